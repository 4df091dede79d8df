package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// member is one that should exist, with what there is of it.
type member struct {
	id       int32
	observer bool   // by its node id; a voter that lost its disk is none
	claim    *Claim // the one its Pod should mount, nil if lost or not yet made
	pod      *Pod
	initial  *InitialVoter
}

// members are those that should exist: voters by id, then observers by id. Never 0..replicas-1: voters are those of the
// record and of the voter set, observers those that have an unparked claim.
func members(o Observation) []member { return append(voters(o), observerMembers(o)...) }

func voters(o Observation) []member {
	if o.Identity == nil {
		return nil
	}
	var ids []int32
	for _, v := range o.Identity.Voters {
		ids = append(ids, v.NodeID)
	}
	if o.View != nil {
		for _, v := range o.View.Voters {
			if v.NodeID < v1alpha1.FirstObserverID {
				ids = append(ids, v.NodeID)
			}
		}
	}
	slices.Sort(ids)
	var ms []member
	for _, id := range slices.Compact(ids) {
		m := member{id: id, pod: o.pod(id)}
		if i := slices.IndexFunc(o.Identity.Voters, func(v InitialVoter) bool { return v.NodeID == id }); i >= 0 {
			m.initial = &o.Identity.Voters[i]
		}
		m.claim = voterClaim(o, m)
		ms = append(ms, m)
	}
	return ms
}

// voterClaim is the claim of the record as long as it lives, else the one that replaced it.
func voterClaim(o Observation, m member) *Claim {
	var found *Claim
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.NodeID != m.id || c.Parked {
			continue
		}
		if m.initial != nil && c.Name == m.initial.Claim {
			return c
		}
		if found == nil {
			found = c
		}
	}
	return found
}

func observerMembers(o Observation) []member {
	var ms []member
	for _, c := range observerSlots(o) {
		ms = append(ms, member{id: c.NodeID, observer: true, claim: c, pod: o.pod(c.NodeID)})
	}
	return ms
}

// observerSlots are the claims that count as observers, by node id. One that is being deleted holds its place until it
// is gone, and is waited for.
func observerSlots(o Observation) []*Claim {
	var slots []*Claim
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.NodeID < v1alpha1.FirstObserverID || c.Parked {
			continue
		}
		if n := len(slots); n > 0 && slots[n-1].NodeID == c.NodeID {
			continue
		}
		slots = append(slots, c)
	}
	return slots
}

// mayRun: an initial voter's claim runs only once its format is on record, so that a member never starts on a disk
// whose directory id was planned and not yet written.
func (m member) mayRun(o Observation) bool {
	if m.initial == nil || m.claim.Name != m.initial.Claim {
		return true
	}
	return o.Identity.Sealed && m.claim.UID == m.initial.ClaimUID && m.claim.FormattedFor == m.claim.UID
}

// missing: it has no Pod, and one can be made.
func (m member) missing(o Observation) bool {
	return m.pod == nil && m.claim != nil && !m.claim.Deleting && !o.formatting(m.claim.Name) && m.mayRun(o)
}

func (o Observation) pod(id int32) *Pod {
	for i := range o.Pods {
		if o.Pods[i].NodeID == id {
			return &o.Pods[i]
		}
	}
	return nil
}

func (o Observation) formatting(claim string) bool {
	return slices.ContainsFunc(o.FormatPods, func(p FormatPod) bool { return p.Claim == claim })
}

// restartDue is spec.rollout.restartedAt once its time has come.
func (o Observation) restartDue() time.Time {
	if o.Want.RestartedAt.After(o.Now) {
		return time.Time{}
	}
	return o.Want.RestartedAt
}

// outdated: made from another revision, or before a restart that is due. The annotation is asked first, since the
// clock that stamps Pods and the one that sets restartedAt may differ.
func (o Observation) outdated(p *Pod) bool {
	if p.Revision != o.Revision.Name {
		return true
	}
	due := o.restartDue()
	return p.RestartedAt.Before(due) && p.Created.Before(due)
}

// makeFrom is the revision that a Pod is made from now: the wanted one, or "" while it's being stored. A member that is
// gone comes back as it was, from an older revision that serves, while the wanted one can't be rendered, and while it has
// not been shown to run: a drained node must not take a second voter into a spec that may have broken the first. Of
// several that are gone the first one tries.
func makeFrom(o Observation, tried bool) string {
	wanted := o.Revision.Name
	switch {
	case o.Revision.Invalid != "":
		wanted = ""
	case !replaceable(o):
		return ""
	case !failing(o, nobody) && (!tried || runs(o)):
		return wanted
	}
	for _, r := range slices.Backward(o.Revisions) {
		if r.Config != "" && (wanted == "" || serves(o, r.Name)) {
			return r.Name
		}
	}
	return wanted
}

// nobody is no node id.
const nobody int32 = -1

// failing: a member made from the wanted revision, other than one, doesn't run, not yet or not any more.
func failing(o Observation, except int32) bool {
	return slices.ContainsFunc(members(o), func(m member) bool {
		return m.id != except && m.pod != nil && m.pod.Revision == o.Revision.Name && !m.pod.Running
	})
}

// runs: a member made from the wanted revision does.
func runs(o Observation) bool {
	return slices.ContainsFunc(members(o), func(m member) bool {
		return m.pod != nil && m.pod.Revision == o.Revision.Name && m.pod.Running && !m.pod.Terminating
	})
}

// serves: a voter runs it. Not "is ready": while leadership moves nobody is.
func serves(o Observation, revision string) bool {
	return slices.ContainsFunc(voters(o), func(m member) bool {
		return m.pod != nil && m.pod.Revision == revision && m.pod.Running && !m.pod.Terminating
	})
}

// replaceable: what takes the place of a removed Pod can be made.
func replaceable(o Observation) bool { return o.Revision.Stored && o.Revision.Config }

// accountExists: the API server refuses a Pod whose ServiceAccount isn't there.
func accountExists(o Observation) bool {
	return !slices.ContainsFunc(o.Shared, func(s Shared) bool {
		return s.Kind == KindServiceAccount && s.State == SharedAbsent
	})
}

// ended: the Pod won't run again.
func (p *Pod) ended() bool { return p.Phase == corev1.PodFailed || p.Phase == corev1.PodSucceeded }

// progress of a replica: as a voter if it is one under its directory id, else as an observer.
func (o Observation) progress(id int32) (p Progress, voter, ok bool) {
	if o.View == nil {
		return Progress{}, false, false
	}
	byID := func(p Progress) bool { return p.NodeID == id }
	v := slices.IndexFunc(o.View.Voters, byID)
	w := slices.IndexFunc(o.View.Observers, byID)
	switch {
	case w >= 0 && (v < 0 || fresher(o.View.Observers[w], o.View.Voters[v])):
		return o.View.Observers[w], false, true // under another directory id than the voter set's
	case v >= 0:
		return o.View.Voters[v], true, true
	}
	return Progress{}, false, false
}

func fresher(a, b Progress) bool {
	return a.CaughtUpAge != nil && (b.CaughtUpAge == nil || *a.CaughtUpAge < *b.CaughtUpAge)
}

// caughtUp: by offset, within the fetch timeout, and in this life of its process: what a leader remembers of a member
// from before its restart counts for nothing.
func (o Observation) caughtUp(m member) bool {
	p, _, ok := o.progress(m.id)
	return ok && m.pod != nil && !m.pod.Terminating && m.pod.Running && o.current(m, p)
}

// current: a patient quorum (a long fetch timeout) is no reason to count on a voter that has not been heard of for long;
// one that follows is caught up every half second.
func (o Observation) current(m member, p Progress) bool {
	if p.CaughtUpAge == nil || *p.CaughtUpAge > min(o.Want.FetchTimeout, silentAfter) {
		return false
	}
	return m.id == o.View.Leader || o.Now.Add(-*p.CaughtUpAge).After(m.pod.Started)
}

// contributes: a voter of the voter set, under its directory id, that is caught up. It counts for commits and elections.
func (o Observation) contributes(m member) bool {
	_, voter, ok := o.progress(m.id)
	return ok && voter && o.caughtUp(m)
}

// Contributing is the node ids of the voters that count for commits and elections right now, by id.
func Contributing(o Observation) []int32 {
	var ids []int32
	for _, m := range voters(o) {
		if o.contributes(m) {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// CaughtUp reports whether a member holds what its leader has, by offset, within the fetch timeout.
func CaughtUp(o Observation, nodeID int32) bool {
	return o.caughtUp(member{id: nodeID, pod: o.pod(nodeID)})
}

// Outdated reports whether a Pod should be replaced by a roll.
func Outdated(o Observation, p Pod) bool { return o.outdated(&p) }

// Member is one member that should exist, for the report.
type Member struct {
	NodeID int32
	Voter  bool   // in the voter set, under its directory id; by its record while the quorum doesn't answer
	Claim  string // "" if it has none
	Pod    *Pod
	// Progress as its leader knows it, nil if unknown.
	Progress *Progress
}

// Members are all that should exist, by node id.
func Members(o Observation) []Member {
	var out []Member
	for _, m := range members(o) {
		x := Member{NodeID: m.id, Voter: !m.observer, Pod: m.pod}
		if m.claim != nil {
			x.Claim = m.claim.Name
		}
		if p, voter, ok := o.progress(m.id); ok {
			x.Progress, x.Voter = &p, voter
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return out
}

// majority of the voter set: by the quorum's own word, else by the record's.
func majority(o Observation) int {
	n := len(voters(o))
	if o.View != nil && len(o.View.Voters) > 0 {
		n = len(o.View.Voters)
	}
	return n/2 + 1
}
