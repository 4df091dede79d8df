package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// admin changes voters, as a person or an operator does: by request, over the network, to whom it believes to lead. One
// that is careful does one thing at a time and reads the quorum again after each. One that is rash fires at anybody.
type admin struct {
	w     *world
	host  int
	dice  dice
	peers []*caller
	busy  bool // the careful one waits for an answer
}

func newAdmin(w *world, host int) *admin {
	a := &admin{w: w, host: host, dice: newDice(w.plan.seed, "admin")}
	for _, m := range w.members {
		a.peers = append(a.peers, &caller{n: w.net, from: host, to: m, timeout: 2 * w.plan.requestTimeout})
	}
	return a
}

// careful does the next thing that would bring the quorum back to its size on disks that exist.
func (a *admin) careful() bool {
	leader := a.w.leader()
	if leader == nil || a.busy {
		return false
	}
	change := a.next(leader)
	if change == nil {
		return false
	}
	a.busy = true
	a.ask(leader, change, func(raft.ErrorCode) { a.busy = false })
	return true
}

// next is what a careful admin would do: remove who lost its disk, add who can stand in, and now and then replace somebody
// for no reason, the leader too.
func (a *admin) next(leader *member) raft.Request {
	set := a.w.votersOf(leader)
	for _, v := range set {
		if a.w.holder(v) == nil {
			return a.removal(v)
		}
	}
	if len(set) < a.w.plan.voters {
		return a.addition(set)
	}
	if v := set[a.dice.IntN(len(set))]; a.dice.chance(0.5) {
		return a.removal(v)
	}
	return a.addition(set)
}

// sensible is a change that a healed quorum can make: without somebody who is gone, with somebody who waits, or without a
// follower.
func (a *admin) sensible(leader *member, healed []bool) raft.Request {
	set := a.w.votersOf(leader)
	if len(set) > 1 {
		for _, v := range set {
			if m := a.w.holder(v); m == nil || !healed[m.host] {
				return a.removal(v)
			}
		}
	}
	for _, m := range a.w.members {
		if m.voter && healed[m.host] && !a.w.lockedOut(m, leader) && !slices.ContainsFunc(set, func(v raft.Voter) bool { return v.Key.ID == m.id }) {
			return raft.AddRaftVoterRequest{Voter: m.key, Endpoints: m.endpoints(), AckWhenCommitted: true}
		}
	}
	for _, v := range set {
		if v.Key != leader.key {
			return a.removal(v)
		}
	}
	return nil
}

// addition asks to make a voter of somebody who runs and might be one; nil if there is nobody.
func (a *admin) addition(set raft.VoterSet) raft.Request {
	for _, i := range a.dice.Perm(len(a.w.members)) {
		if m := a.w.members[i]; m.voter && m.up && !has(set, m.key) {
			id := clusterID
			return raft.AddRaftVoterRequest{ClusterID: &id, Voter: m.key, Endpoints: m.endpoints(), AckWhenCommitted: a.dice.chance(0.7)}
		}
	}
	return nil
}

func (a *admin) removal(v raft.Voter) raft.Request { return raft.RemoveRaftVoterRequest{Voter: v.Key} } // as Kafka's tool: no cluster id

// rash asks several members at once for several things at once.
func (a *admin) rash() bool {
	for range 1 + a.dice.IntN(3) {
		m := a.w.members[a.dice.IntN(len(a.w.members))]
		if l := a.w.leader(); l != nil && a.dice.chance(0.7) {
			m = l
		}
		o := a.w.members[a.dice.IntN(len(a.w.members))]
		var change raft.Request = raft.RemoveRaftVoterRequest{Voter: o.key}
		if a.dice.chance(0.5) {
			change = raft.AddRaftVoterRequest{Voter: o.key, Endpoints: o.endpoints(), AckWhenCommitted: a.dice.chance(0.5)}
		}
		a.ask(m, change, func(raft.ErrorCode) {})
	}
	return true
}

// ask sends a change, and tells what became of it: an error code, or UnknownServerError if nobody answered.
func (a *admin) ask(to *member, change raft.Request, done func(raft.ErrorCode)) {
	a.w.trace.note(a.w, "asked of %d: %s", to.id, about{change})
	a.peers[to.host].call(change, func(answer any, _ raft.Failure) {
		code, message := raft.UnknownServerError, "no answer"
		switch r := answer.(type) {
		case raft.AddRaftVoterResponse:
			code, message = r.Error, r.Message
		case raft.RemoveRaftVoterResponse:
			code, message = r.Error, r.Message
		}
		a.w.trace.note(a.w, "%d answers %s: %d %s", to.id, about{change}, code, message)
		if code == raft.NoError {
			a.w.saw(changeGranted)
		} else {
			a.w.saw(changeRefused)
		}
		done(code)
	})
}

// asked is a voter set that somebody asked a leader for: it may come to stand in its log for a while.
type asked struct {
	set   raft.VoterSet
	until time.Duration
}

// strands judges a change that arrives at a leader. One that would leave a quorum which cannot commit, for want of disks
// that exist, or in the healed world of members that are healed, nobody may ask for, and no quorum can know: it is refused
// here, in the place of the person who should have known. What else is asked for is remembered.
func (w *world) strands(m *member, change raft.Request) (refusal raft.Response) {
	set := w.votersOf(m)
	switch r := change.(type) {
	case raft.AddRaftVoterRequest:
		set, refusal = with(set, raft.Voter{Key: r.Voter}), raft.AddRaftVoterResponse{Error: raft.RequestTimedOut}
	case raft.RemoveRaftVoterRequest:
		set, refusal = without(set, r.Voter), raft.RemoveRaftVoterResponse{Error: raft.RequestTimedOut}
		if w.healed != nil && r.Voter == m.key {
			return refusal // asked in the chaos, and come late: at rest no epoch may end
		}
	default:
		return nil
	}
	if m.seen.role != raft.Leader {
		return nil
	}
	chosen := 0
	for _, v := range set {
		if h := w.holder(v); h != nil && (w.healed == nil || w.healed[h.host]) {
			chosen++
		}
	}
	if chosen < set.Majority() {
		return refusal
	}
	w.asked = append(slices.DeleteFunc(w.asked, func(a asked) bool { return a.until < w.now }), asked{set, w.now + 3*w.plan.requestTimeout})
	return nil
}

func with(set raft.VoterSet, v raft.Voter) raft.VoterSet {
	return append(without(set, v.Key), v)
}

func without(set raft.VoterSet, key raft.ReplicaKey) raft.VoterSet {
	var rest raft.VoterSet
	for _, v := range set {
		if v.Key != key {
			rest = append(rest, v)
		}
	}
	return rest
}

// differences is how many voters one set has and the other has not.
func differences(a, b raft.VoterSet) int {
	n := 0
	for _, pair := range [][2]raft.VoterSet{{a, b}, {b, a}} {
		for _, v := range pair[0] {
			if w, ok := pair[1].ByID(v.Key.ID); !ok || w.Key != v.Key && !w.Key.DirectoryID.IsZero() && !v.Key.DirectoryID.IsZero() {
				n++
			}
		}
	}
	return n
}

func ids(set raft.VoterSet) (ids []raft.NodeID) {
	for _, v := range set {
		ids = append(ids, v.Key.ID)
	}
	return ids
}

func describeChange(v any) string {
	switch r := v.(type) {
	case raft.AddRaftVoterRequest:
		return fmt.Sprintf("AddRaftVoter{%v}", r.Voter)
	case raft.RemoveRaftVoterRequest:
		return fmt.Sprintf("RemoveRaftVoter{%v}", r.Voter)
	case raft.AddRaftVoterResponse:
		return fmt.Sprintf("AddRaftVoter answer{%d %s}", r.Error, r.Message)
	case raft.RemoveRaftVoterResponse:
		return fmt.Sprintf("RemoveRaftVoter answer{%d %s}", r.Error, r.Message)
	case raft.UpdateRaftVoterResponse:
		return fmt.Sprintf("UpdateRaftVoter answer{%s}", head(r.Header))
	case raft.ApiVersionsResponse:
		return fmt.Sprintf("ApiVersions answer{%d, kraft.version %v}", r.Error, r.KRaft != nil)
	case raft.UpdateRaftVoterRequest:
		return fmt.Sprintf("UpdateRaftVoter{%v}", r.Voter.Key)
	}
	return describeClient(v)
}
