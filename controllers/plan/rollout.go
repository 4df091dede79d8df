package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// silentAfter is how long a voter may be behind before a roll takes it for one that won't come back by itself.
const silentAfter = 10 * time.Second

// rollout replaces outdated members one by one: one canary observer, the follower voters, then the leader hands over,
// once and to an updated voter, and goes as a follower; then the other observers. When none is outdated it sees the last
// one settle.
func rollout(o Observation) (Step, bool) {
	if o.Revision.Name == "" {
		return Step{}, false
	}
	var followers, observers []member
	var leader *member
	for _, m := range members(o) {
		switch {
		case m.pod == nil || m.pod.Terminating || !o.outdated(m.pod):
		case m.observer:
			observers = append(observers, m)
		case m.id == o.View.Leader:
			leader = &m
		default:
			followers = append(followers, m)
		}
	}
	if len(followers) == 0 && len(observers) == 0 && leader == nil {
		return settle(o)
	}
	if !replaceable(o) {
		return wait(v1alpha1.ReasonApplying, "storing revision %s", o.Revision.Name)
	}
	switch {
	case canaryDue(o, observers):
		return replaceObserver(o, observers[0])
	case len(followers) > 0:
		return replaceFollower(o, followers)
	case leader != nil:
		return replaceLeader(o, *leader)
	}
	return replaceObserver(o, observers[0])
}

// settle waits for the last replaced member. Also in quiet times: a member that isn't well is named.
func settle(o Observation) (Step, bool) {
	if r := gateOneAtATime(o); r.Reason != "" {
		return refused(r)
	}
	if r := gatePrevious(o, member{id: nobody}); r.Reason != "" {
		return refused(r)
	}
	return Step{}, false
}

// canaryDue: the first observer of a roll goes before any voter, so that a bad image hits somebody who has no vote.
func canaryDue(o Observation, outdated []member) bool {
	return len(outdated) > 0 && len(outdated) == len(observerMembers(o))
}

func replaceObserver(o Observation, m member) (Step, bool) {
	for _, gate := range []Refusal{gateOneAtATime(o), gatePrevious(o, m), gateClaim(o, m)} {
		if gate.Reason != "" {
			return refused(gate)
		}
	}
	return remove(o, m, v1alpha1.ReasonReplacing, fmt.Sprintf("replacing observer %d", m.id), m.pod.Ready)
}

// replaceFollower takes the highest id first; those that have long been behind before all others, since nobody misses
// them.
func replaceFollower(o Observation, followers []member) (Step, bool) {
	next := followers[len(followers)-1]
	for _, m := range followers {
		if !o.contributes(m) {
			next = m
			break
		}
	}
	if r, closed := unsafe(o, next); closed {
		return refused(r)
	}
	if o.caughtUp(next) {
		return remove(o, next, v1alpha1.ReasonReplacing, fmt.Sprintf("replacing voter %d, a follower", next.id), true)
	}
	if !o.silent(next) {
		return wait(v1alpha1.ReasonMemberNotCaughtUp, "member %d does not hold yet what the leader has", next.id)
	}
	return remove(o, next, v1alpha1.ReasonReplacingBroken, fmt.Sprintf("replacing voter %d, which does not follow", next.id), false)
}

// silent: not caught up for so long, in this life and under this leader, that waiting for it is no use.
func (o Observation) silent(m member) bool {
	if o.Now.Sub(m.pod.Started) < silentAfter || o.Memory.Epoch != o.View.Epoch || o.Now.Sub(o.Memory.LastLeaderChange) < silentAfter {
		return false
	}
	p, _, ok := o.progress(m.id)
	return !ok || p.CaughtUpAge == nil || *p.CaughtUpAge > silentAfter
}

// replaceLeader moves leadership away from the last outdated voter. The next pass finds it a follower, the handoff
// verified by a majority, and removes it like any other.
func replaceLeader(o Observation, m member) (Step, bool) {
	if r, closed := unsafe(o, m); closed {
		return refused(r)
	}
	if len(o.View.Voters) == 1 {
		return remove(o, m, v1alpha1.ReasonSingleVoterRestart, fmt.Sprintf("replacing voter %d, the only one: appends wait until it's back", m.id), false)
	}
	heirs := successors(o, m)
	if len(heirs) == 0 {
		return wait(v1alpha1.ReasonNoCaughtUpSuccessor, "leader %d has no updated voter that is caught up to hand over to", m.id)
	}
	memory := Remember(o) // what is seen for the first time counts, too
	if left := handoffBackoff(memory) - o.Now.Sub(memory.LastHandoffEnd); memory.HandoffFailures > 0 && left > 0 {
		s, ok := wait(v1alpha1.ReasonHandoffBackoff, "the handoff from leader %d was given up%s; trying again in a while", m.id, handoffReason(o))
		s.RequeueAfter = left
		return s, ok
	}
	h := HandOff{Leader: m.id, Epoch: o.View.Epoch, Target: heirs[0].NodeID, TargetDir: heirs[0].DirectoryID, MaxPause: o.Want.HandoffMaxPause, CatchUpTimeout: o.Want.HandoffCatchUp}
	for _, p := range heirs {
		h.Candidates = append(h.Candidates, p.NodeID)
	}
	return do(v1alpha1.ReasonHandingOff, fmt.Sprintf("leader %d hands over to %d in epoch %d", m.id, h.Target, h.Epoch), h)
}

// successors are the updated voters that could lead at once, those that hold most first.
func successors(o Observation, leader member) []Progress {
	var heirs []Progress
	for _, m := range voters(o) {
		if m.id == leader.id || !o.contributes(m) || o.outdated(m.pod) || !m.pod.Ready {
			continue
		}
		p, _, _ := o.progress(m.id)
		heirs = append(heirs, p)
	}
	slices.SortStableFunc(heirs, func(a, b Progress) int { return cmp.Compare(b.LogEnd, a.LogEnd) })
	return heirs
}

// handoffBackoff doubles from 10 seconds to 5 minutes.
func handoffBackoff(m Memory) time.Duration {
	const first, most = 10 * time.Second, 5 * time.Minute
	return min(first<<min(max(m.HandoffFailures-1, 0), 10), most)
}

func handoffReason(o Observation) string {
	if o.Handoff == nil || o.Handoff.Running || o.Handoff.Succeeded {
		return ""
	}
	return parenthesis(o.Handoff.Reason)
}

// remove takes a member's Pod away for a new one: by eviction as long as somebody would miss it.
func remove(o Observation, m member, reason, message string, evict bool) (Step, bool) {
	acts := check(o, m)
	if evict {
		return do(reason, message, append(acts, EvictPod{m.pod.Name, m.pod.UID, m.id})...)
	}
	return do(reason, message, append(acts, DeletePod{m.pod.Name, m.pod.UID, m.id})...)
}

func refused(r Refusal) (Step, bool) {
	s := Step{Reason: r.Reason, Message: r.Message, Stalled: r.Stalled, RequeueAfter: pollBusy}
	if r.Again > 0 {
		s.RequeueAfter = min(r.Again, pollQuiet)
	}
	return s, true
}

// Remember is the memory that status keeps for the next pass.
func Remember(o Observation) Memory {
	m := o.Memory
	if v := o.View; v != nil && v.Leader >= 0 && v.Epoch != m.Epoch {
		if m.Epoch > 0 {
			m.LeaderChanges++
		}
		m.Epoch, m.LastLeaderChange = v.Epoch, o.Now
	}
	if m.Revision != o.Revision.Name || !rolling(o) || o.Now.Sub(m.LastLeaderChange) >= leadershipCalm {
		m.Revision, m.LeaderChanges = o.Revision.Name, 0
	}
	if h := o.Handoff; h != nil && !h.Running && h.ID != m.LastHandoffID {
		m.LastHandoffID, m.LastHandoffEnd = h.ID, o.Now
		if h.Succeeded {
			m.HandoffFailures = 0
		} else {
			m.HandoffFailures++
		}
	}
	return m
}

// rolling: some member is outdated, or has not settled.
func rolling(o Observation) bool {
	for _, m := range members(o) {
		if m.pod == nil || m.pod.Terminating || o.outdated(m.pod) || settled(o, m).Reason != "" {
			return true
		}
	}
	return false
}
