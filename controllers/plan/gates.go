package plan

import (
	"fmt"
	"time"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// Refusal is why a gate is closed; the zero value means it's open. Reason is a condition reason and Message its text.
type Refusal struct {
	Reason, Message string
	Stalled         bool
	Again           time.Duration // when to look again, 0: as usual
}

// Limits of the gates.
const (
	MaxViewAge       = 2 * time.Second // what was seen longer ago is no ground to disrupt anything
	maxLeaderChanges = 3               // in one roll, the handoff included
	leadershipCalm   = 5 * time.Minute // without a change the count is forgotten
)

// gates must all be open before a contributing voter is removed, or leadership moved away from it. One question each.
var gates = []func(Observation, member) Refusal{
	func(o Observation, _ member) Refusal { return gateLeader(o) },
	func(o Observation, _ member) Refusal { return gateOneAtATime(o) },
	gatePrevious,
	gateClaim,
	gateQuorum,
	func(o Observation, _ member) Refusal { return gateCalm(o) },
}

// unsafe asks every gate whether m may go; the first that refuses speaks.
func unsafe(o Observation, m member) (Refusal, bool) {
	for _, gate := range gates {
		if r := gate(o, m); r.Reason != "" {
			return r, true
		}
	}
	return Refusal{}, false
}

// SafeToRestart answers for the member that a roll would take next if all were outdated: what the condition shows.
func SafeToRestart(o Observation) Refusal {
	if o.Identity == nil {
		return Refusal{Reason: v1alpha1.ReasonNotBootstrapped, Message: "there is no quorum yet"}
	}
	if r := gateLeader(o); r.Reason != "" {
		return r
	}
	vs := voters(o)
	next, best := vs[0], -1
	for _, m := range vs {
		if !o.contributes(m) {
			continue // it may go at any time; the question is about those that count
		}
		rank := 0
		if m.pod != nil && o.outdated(m.pod) {
			rank += 2
		}
		if m.id != o.View.Leader {
			rank++
		}
		if rank >= best {
			next, best = m, rank
		}
	}
	r, _ := unsafe(o, next)
	return r
}

// gateLeader: the leader's own account is fresh, and a majority of voters agrees that it leads, in this epoch.
func gateLeader(o Observation) Refusal {
	switch v := o.View; {
	case v == nil:
		return Refusal{Reason: v1alpha1.ReasonNoLeader, Message: "no voter answers"}
	case v.Leader < 0:
		return Refusal{Reason: v1alpha1.ReasonNoLeader, Message: "no voter knows a leader; waiting for an election"}
	case o.Now.Sub(v.At) > MaxViewAge:
		return Refusal{Reason: v1alpha1.ReasonViewStale, Message: "what the quorum said of itself is too old"}
	case int(v.ConfirmedBy) < majority(o):
		return Refusal{Reason: v1alpha1.ReasonLeaderNotConfirmed, Message: fmt.Sprintf("%d of %d voters name %d as leader of epoch %d, %d needed", v.ConfirmedBy, len(v.Voters), v.Leader, v.Epoch, majority(o))}
	case !v.Committed:
		return Refusal{Reason: v1alpha1.ReasonLeaderNotCommitting, Message: fmt.Sprintf("leader %d has not committed in epoch %d yet", v.Leader, v.Epoch)}
	}
	return Refusal{}
}

// gateOneAtATime: no member is on its way out, none is missing, and leadership isn't being moved.
func gateOneAtATime(o Observation) Refusal {
	if o.Handoff != nil && o.Handoff.Running && (o.View == nil || o.Handoff.FromEpoch == o.View.Epoch) {
		return Refusal{Reason: v1alpha1.ReasonHandingOff, Message: fmt.Sprintf("leader %d is handing over to %d", o.Handoff.From, o.Handoff.To)}
	}
	for _, m := range members(o) {
		switch p := m.pod; {
		case p == nil && m.claim != nil && m.claim.Deleting:
			return Refusal{Reason: v1alpha1.ReasonClaimDeleting, Message: fmt.Sprintf("member %d waits until claim %s is deleted", m.id, m.claim.Name)}
		case p == nil:
			return Refusal{Reason: v1alpha1.ReasonCreatingMembers, Message: fmt.Sprintf("member %d has no Pod yet", m.id)}
		case o.onLostNode(p):
			return Refusal{
				Reason: v1alpha1.ReasonTerminatingOnLostNode, Stalled: true,
				Message: fmt.Sprintf("Pod %s on node %s should have ended long ago; if the node is gone for good, delete the Node or taint it node.kubernetes.io/out-of-service", p.Name, p.Node),
			}
		case p.Terminating:
			return Refusal{Reason: v1alpha1.ReasonMemberTerminating, Message: fmt.Sprintf("Pod %s is shutting down", p.Name)}
		case !p.Running && m.claim != nil && m.claim.Deleting:
			return gateClaim(o, m)
		}
	}
	return Refusal{}
}

// gatePrevious: every member that was replaced has come back for good: ready, caught up by offset in this life, both for
// minReadySeconds. Readiness alone is not enough: a ready voter with an old log counts for no commit.
func gatePrevious(o Observation, next member) Refusal {
	for _, m := range members(o) {
		if m.id != next.id && m.pod != nil && !o.outdated(m.pod) {
			if r := settled(o, m); r.Reason != "" {
				return r
			}
		}
	}
	return Refusal{}
}

func settled(o Observation, m member) Refusal {
	p := m.pod
	late := o.Now.Sub(p.Created) > o.Want.MemberTimeout
	switch reason, why := o.trouble(p); {
	case !p.Ready && why != "" && (late || o.Now.Sub(p.Created) > problemGrace):
		return Refusal{Reason: reason, Stalled: true, Message: fmt.Sprintf("Pod %s is not ready: %s", p.Name, why)}
	case !p.Ready:
		return Refusal{Reason: reason, Stalled: late, Message: fmt.Sprintf("Pod %s is not ready yet%s", p.Name, parenthesis(why))}
	case !o.caughtUp(m):
		return Refusal{Reason: v1alpha1.ReasonMemberNotCaughtUp, Stalled: late, Message: fmt.Sprintf("member %d does not hold yet what the leader has", m.id)}
	}
	if left := o.Want.MinReady - o.Now.Sub(p.ReadySince); left > 0 {
		return Refusal{Reason: v1alpha1.ReasonSettling, Again: left, Message: fmt.Sprintf("member %d is ready and caught up, for less than %s", m.id, o.Want.MinReady)}
	}
	return Refusal{}
}

// gateClaim: the disk is still there when the Pod is gone. A claim that is being deleted lives as long as its Pod does.
func gateClaim(_ Observation, m member) Refusal {
	switch {
	case m.claim == nil:
		return Refusal{Reason: v1alpha1.ReasonClaimDeleting, Stalled: true, Message: fmt.Sprintf("the claim of member %d is gone: its data would go with its Pod", m.id)}
	case m.claim.Deleting:
		return Refusal{Reason: v1alpha1.ReasonClaimDeleting, Stalled: true, Message: fmt.Sprintf("claim %s is being deleted: the data of member %d would go with its Pod; delete the Pod by hand if that's wanted", m.claim.Name, m.id)}
	}
	return Refusal{}
}

// gateQuorum: enough of the other voters are caught up to go on without this one, and from five voters on with one to
// spare. A quorum of one has nobody to ask.
func gateQuorum(o Observation, m member) Refusal {
	size := len(o.View.Voters)
	if size <= 1 {
		return Refusal{}
	}
	need := size/2 + 1
	if size >= 5 {
		need++
	}
	good := 0
	for _, id := range Contributing(o) {
		if id != m.id {
			good++
		}
	}
	if good < need {
		return Refusal{Reason: v1alpha1.ReasonQuorumAtStake, Message: fmt.Sprintf("without voter %d, %d of %d voters would be caught up, %d needed", m.id, good, size, need)}
	}
	return Refusal{}
}

// gateCalm: leadership that moves again and again by itself means something is wrong that a roll would make worse.
func gateCalm(o Observation) Refusal {
	since := o.Now.Sub(o.Memory.LastLeaderChange)
	if o.Memory.Revision == o.Revision.Name && o.Memory.LeaderChanges > maxLeaderChanges && since < leadershipCalm {
		return Refusal{
			Reason: v1alpha1.ReasonLeadershipUnstable, Stalled: true, Again: leadershipCalm - since,
			Message: fmt.Sprintf("leadership changed more than %d times in this roll; going on when it has been stable for %s, or with a new spec", maxLeaderChanges, leadershipCalm),
		}
	}
	return Refusal{}
}
