package plan

import (
	"fmt"
	"time"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// Step is what one pass does, and why. At most one of its actions is disruptive, and it's the last one.
type Step struct {
	// Reason is a condition reason of package v1alpha1, Message the sentence a person reads. Both are stable as long as
	// the facts that matter are: no clock, no offset.
	Reason, Message string
	Stalled         bool // waits for a person or a new spec, rather than for time
	Actions         []Action
	RequeueAfter    time.Duration // the quorum sends no watch events, so there's always a next look
}

// How soon to look again.
const (
	pollQuiet  = 10 * time.Second // nothing to do
	pollBusy   = time.Second      // something is under way
	pollPaused = 30 * time.Second // only status
)

// rules are tried in order; the first that applies decides. The order is the policy; doc.go gives the reasons.
var rules = []func(Observation) (Step, bool){
	identityConflict,
	replaceNonContributing,
	bootstrap,
	noQuorum,
	repair,
	invalidTemplate,
	rollout,
	voterReplaced,
}

// Next is the whole policy.
func Next(o Observation) Step {
	switch {
	case o.Want.Deleting:
		return Step{Reason: v1alpha1.ReasonDeleting, Message: "the garbage collector removes Pods and shared objects; claims are kept or go as storage.whenDeleted says", RequeueAfter: pollPaused}
	case o.Want.Paused:
		return Step{Reason: v1alpha1.ReasonPaused, Message: "spec.paused is set: nothing but status is written", RequeueAfter: pollPaused}
	}
	standing := standing(o)
	step := Step{Reason: v1alpha1.ReasonUpToDate, Message: fmt.Sprintf("%d voters and %d observers run what the spec asks for", len(voters(o)), len(observerSlots(o))), RequeueAfter: pollQuiet}
	decided := false
	for _, rule := range rules {
		if s, ok := rule(o); ok {
			step, decided = s, true
			break
		}
	}
	if !decided && len(standing) > 0 {
		step = standingStep(standing)
	}
	step.Actions = append(standing, step.Actions...)
	return oneDisruption(withoutConflicts(o, step))
}

// standing is what runs in every pass once it's known who the quorum is, whatever the rules wait for.
func standing(o Observation) []Action {
	if o.Identity == nil || conflictOfIdentity(o) != "" {
		return nil
	}
	var acts []Action
	acts = append(acts, shared(o)...)
	acts = append(acts, revisions(o)...)
	acts = append(acts, claimOwners(o)...)
	acts = append(acts, scaleObservers(o)...)
	acts = append(acts, missingPods(o)...)
	return acts
}

// standingStep names a pass that only keeps things in order.
func standingStep(acts []Action) Step {
	s := Step{Reason: v1alpha1.ReasonApplying, Message: "bringing shared objects in line with the spec", RequeueAfter: pollBusy}
	for _, a := range acts {
		switch a.(type) {
		case CreateMemberPod:
			s.Reason, s.Message = v1alpha1.ReasonCreatingMembers, "making the Pods of members that have none"
		case CreateClaim, ParkClaim, DeleteClaim, DeletePod:
			s.Reason, s.Message = v1alpha1.ReasonScalingObservers, "bringing the number of observers in line with the spec"
			return s
		default:
		}
	}
	return s
}

// shared makes what is absent and mends what differs. What is being deleted is waited for.
func shared(o Observation) []Action {
	var acts []Action
	for _, s := range o.Shared {
		switch s.State {
		case SharedAbsent:
			acts = append(acts, CreateShared{s.Kind, s.Name})
		case SharedOutdated:
			acts = append(acts, ApplyShared{s.Kind, s.Name, s.UID})
		case SharedCurrent, SharedDeleting:
		}
	}
	return acts
}

// keepRevisions is how many revisions besides the wanted one stay to go back to.
const keepRevisions = 10

func revisions(o Observation) []Action {
	var acts []Action
	switch r := o.Revision; {
	case r.Invalid != "":
		return nil
	case !r.Stored || !r.Config:
		acts = append(acts, CreateRevision{r.Name})
	case !r.Newest:
		acts = append(acts, RaiseRevision{r.Name})
	}
	inUse := map[string]bool{}
	for _, p := range o.Pods {
		inUse[p.Revision] = true
	}
	for _, p := range o.FormatPods {
		inUse[p.Revision] = true
	}
	for i, r := range o.Revisions { // oldest first
		if i < len(o.Revisions)-keepRevisions && !inUse[r.Name] {
			acts = append(acts, DeleteRevision(r))
		}
	}
	return acts
}

// claimOwners lets claims go with the quorum, or stay, as storage.whenDeleted says now.
func claimOwners(o Observation) []Action {
	var acts []Action
	for _, c := range o.Claims {
		if !c.Deleting && c.Owned != o.Want.DeleteWithQuorum {
			acts = append(acts, OwnClaim{c.Name, c.UID, o.Want.DeleteWithQuorum})
		}
	}
	return acts
}

// missingPods makes the Pod of every member that has a usable claim and no Pod, all at once: a whole quorum that went
// down comes back together, and a Pod that doesn't run yet disturbs nobody.
func missingPods(o Observation) []Action {
	if !accountExists(o) {
		return nil
	}
	var acts []Action
	for _, m := range members(o) {
		if !m.missing(o) {
			continue
		}
		if revision := makeFrom(o, len(acts) > 0); revision != "" {
			acts = append(acts, CreateMemberPod{m.id, m.claim.Name, revision, o.restartDue()})
		}
	}
	return acts
}

// withoutConflicts takes back what would touch an object that isn't ours. Names that somebody else holds need a
// person; those of a deleted quorum need the garbage collector. Until then no running member is touched.
func withoutConflicts(o Observation, s Step) Step {
	if len(o.Conflicts) == 0 {
		return s
	}
	taken := map[Kind]map[string]bool{}
	var foreign, old []string
	for _, c := range o.Conflicts {
		if taken[c.Kind] == nil {
			taken[c.Kind] = map[string]bool{}
		}
		taken[c.Kind][c.Name] = true
		if c.OldOwner {
			old = append(old, fmt.Sprintf("%s %s", c.Kind, c.Name))
		} else {
			foreign = append(foreign, fmt.Sprintf("%s %s", c.Kind, c.Name))
		}
	}
	var kept []Action
	for _, a := range s.Actions {
		kind, name := target(o, a)
		_, fresh := a.(CreateIdentity)
		if Disruptive(a) || taken[kind][name] || (fresh && len(old) > 0) {
			continue
		}
		kept = append(kept, a)
	}
	s.Actions = kept
	if len(foreign) > 0 {
		return Step{
			Reason: v1alpha1.ReasonNameConflict, Stalled: true, Actions: kept, RequeueAfter: pollPaused,
			Message: fmt.Sprintf("%s: there already, and not this quorum's; delete or rename it, or give the quorum another name", list(foreign)),
		}
	}
	if !s.Stalled {
		s.Reason, s.RequeueAfter = v1alpha1.ReasonOldOwner, pollBusy
		s.Message = fmt.Sprintf("%s: of a deleted MetadataQuorum of this name; waiting for the garbage collector", list(old))
	}
	return s
}

// target is the object that an action makes, for those whose name may be taken.
func target(o Observation, a Action) (Kind, string) {
	switch a := a.(type) {
	case CreateIdentity:
		return KindConfigMap, IdentityName(o.Want.Name)
	case CreateShared:
		return a.Kind, a.Name
	case ApplyShared:
		return a.Kind, a.Name
	case CreateRevision:
		return KindControllerRevision, a.Name
	case CreateClaim:
		return KindClaim, a.Name
	case CreateFormatPod:
		return KindPod, FormatPodName(o.Want.Name, a.NodeID)
	case CreateMemberPod:
		return KindPod, PodName(o.Want.Name, a.NodeID)
	default:
		return "", ""
	}
}

// oneDisruption keeps the first disruptive action only, and puts it last. Standing duties come first: an observer that
// is scaled away goes before a member is replaced, and the step says so.
func oneDisruption(s Step) Step {
	var calm []Action
	var disruptive Action
	for _, a := range s.Actions {
		switch {
		case !Disruptive(a):
			calm = append(calm, a)
		case disruptive == nil:
			disruptive = a
		default:
			name := standingStep([]Action{disruptive})
			s.Reason, s.Message, s.RequeueAfter = name.Reason, name.Message, name.RequeueAfter
		}
	}
	if disruptive != nil {
		calm = append(calm, disruptive)
	}
	s.Actions = calm
	return s
}

func do(reason, message string, actions ...Action) (Step, bool) {
	return Step{Reason: reason, Message: message, Actions: actions, RequeueAfter: pollBusy}, true
}

func wait(reason, format string, args ...any) (Step, bool) {
	return Step{Reason: reason, Message: fmt.Sprintf(format, args...), RequeueAfter: pollBusy}, true
}

func stall(reason, format string, args ...any) (Step, bool) {
	return Step{Reason: reason, Message: fmt.Sprintf(format, args...), Stalled: true, RequeueAfter: pollQuiet}, true
}
