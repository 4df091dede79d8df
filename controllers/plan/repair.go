package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// Patience with what is not the quorum's doing.
const (
	// problemGrace: the kubelet's and the scheduler's complaints often pass by themselves (image registry, autoscaler).
	problemGrace = time.Minute
	// lostNodeFactor: a Pod that is still there after this many grace periods is on a node that no longer answers.
	lostNodeFactor = 2
)

// replaceNonContributing removes Pods that add nothing to the quorum and are ended or outdated: nobody waits for them,
// no gate protects them. It comes before everything that may wait, so that a corrected spec always gets through, even
// when every member is broken by the old one (kubernetes/kubernetes#67250).
func replaceNonContributing(o Observation) (Step, bool) {
	if o.Identity == nil {
		return Step{}, false
	}
	// One at a time all the same: a person who watches, and a second operator, see one member replaced after the other.
	// One that will not end by itself is no reason to wait: it would keep the others from their corrected spec for ever.
	leaving := slices.ContainsFunc(voters(o), func(m member) bool { return m.pod != nil && m.pod.Terminating && !o.onLostNode(m.pod) })
	for _, m := range members(o) {
		p := m.pod
		if p == nil || p.Terminating || (leaving && !m.observer) {
			continue
		}
		switch {
		case m.claim != nil && m.claim.Deleting: // the Pod, running or not, is what still holds the data
		case p.ended():
			return do(v1alpha1.ReasonReplacingBroken, fmt.Sprintf("Pod %s has ended (%s); making it again", p.Name, p.Phase), DeletePod{p.Name, p.UID, p.NodeID})
		case !p.Running && p.stuck() && o.outdated(p) && mayTakeOver(o, m):
			acts := check(o, m)
			acts = append(acts, DeletePod{p.Name, p.UID, p.NodeID})
			return do(v1alpha1.ReasonReplacingBroken, fmt.Sprintf("Pod %s does not run%s and is outdated", p.Name, parenthesis(p.Token, p.Problem)), acts...)
		}
	}
	return Step{}, false
}

// stuck: it has never run, or the kubelet waits before it tries again. One that has just ended is given the moment that
// its restart takes.
func (p *Pod) stuck() bool { return p.Phase == corev1.PodPending || p.Problem != "" }

// mayTakeOver: the wanted revision is there to replace a broken member with, and has not broken another one already. A
// corrected spec is a new revision, which has broken nobody.
func mayTakeOver(o Observation, next member) bool {
	if !replaceable(o) || failing(o, next.id) {
		return false
	}
	return !slices.ContainsFunc(members(o), func(m member) bool { return m.id != next.id && m.missing(o) })
}

// onLostNode: the Pod should have ended long ago.
func (o Observation) onLostNode(p *Pod) bool {
	return p.Terminating && o.Now.Sub(p.TerminatingSince) > lostNodeFactor*p.Grace
}

// check asks the API server to accept a revision's Pod before the first member goes for it.
func check(o Observation, m member) []Action {
	if m.claim == nil || slices.ContainsFunc(o.Pods, func(p Pod) bool { return p.Revision == o.Revision.Name }) {
		return nil
	}
	return []Action{CheckPod{m.id, m.claim.Name, o.Revision.Name}}
}

// noQuorum: while no leader is known to a majority nothing that runs is touched, and no lost disk is replaced. Missing
// Pods are made all the same, that's a standing duty.
func noQuorum(o Observation) (Step, bool) {
	refusal := gateLeader(o)
	if refusal.Reason == "" {
		return Step{}, false
	}
	if lost := majorityLost(o); lost.Reason != "" {
		return refused(lost)
	}
	able := 0
	vs := voters(o)
	for _, m := range vs {
		if reason, _ := o.fault(m.pod); m.pod != nil && m.pod.Running && !m.pod.Terminating && reason == "" {
			able++
		}
	}
	need := len(vs)/2 + 1
	if able < need {
		if reason, why := broken(o); why != "" {
			return stall(reason, "%d of %d voters run and can append, %d needed: %s", able, len(vs), need, why)
		}
		if o.Revision.Invalid != "" {
			return invalidTemplate(o)
		}
		if lost := gateOneAtATime(o); lost.Stalled {
			return refused(lost)
		}
		return wait(refusal.Reason, "%d of %d voters run and can append, %d needed", able, len(vs), need)
	}
	return wait(refusal.Reason, "%s", refusal.Message)
}

// broken names the first voter that has been kept from running, or from storing, for a while, and by what; one whose turn
// to be replaced comes is left out.
func broken(o Observation) (reason, why string) {
	for _, m := range voters(o) {
		if m.pod == nil || m.pod.Terminating || (o.outdated(m.pod) && replaceable(o)) {
			continue
		}
		if reason, text := o.trouble(m.pod); text != "" && o.Now.Sub(m.pod.Created) > problemGrace {
			return reason, fmt.Sprintf("Pod %s (%s)", m.pod.Name, text)
		}
	}
	return "", ""
}

// repair gives a voter whose claim was lost a new one. Its process finds an empty disk and makes itself a new directory
// id: it follows as an observer and can't vote with a name whose promises it has forgotten.
func repair(o Observation) (Step, bool) {
	for _, m := range voters(o) {
		if m.claim != nil || (m.pod != nil && !m.pod.ended()) {
			continue
		}
		name := ""
		for count := 1; name == "" || o.claim(name) != nil; count++ { // 0 was the initial one
			name = claimName(o.Want.Name, o.Want.UID, m.id, count)
		}
		return do(v1alpha1.ReasonVoterReplaced, fmt.Sprintf("voter %d has lost its claim; giving it a new one, on which it follows as an observer", m.id),
			CreateClaim{name, m.id, o.Identity.ClusterID, o.Identity.Image, withoutClaimUIDs(o.Identity.Voters)})
	}
	return Step{}, false
}

// voterReplaced says what only a person, or a later release, can end.
func voterReplaced(o Observation) (Step, bool) {
	for _, m := range voters(o) {
		if _, voter, ok := o.progress(m.id); ok && !voter {
			return stall(v1alpha1.ReasonVoterReplaced, "voter %d lost its disk and follows as an observer under its new directory id; %d of %d voters are left, and this release does not change the voter set", m.id, len(Contributing(o)), len(o.View.Voters))
		}
	}
	return Step{}, false
}

// invalidTemplate: what runs stays as it is.
func invalidTemplate(o Observation) (Step, bool) {
	if o.Revision.Invalid == "" {
		return Step{}, false
	}
	return stall(v1alpha1.ReasonInvalidTemplate, "%s", o.Revision.Invalid)
}
