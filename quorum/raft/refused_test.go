package raft

import (
	"testing"
	"time"
)

// TestNotAuthorizedIsFatal: C-056, whatever was asked for: no retry mends it, and a member that nobody listens to must say so.
func TestNotAuthorizedIsFatal(t *testing.T) {
	follower := func(t *testing.T) (*member, NodeID) { m, _ := followerOf(t); return m, 2 }
	for name, c := range map[string]struct {
		start    func(t *testing.T) (*member, NodeID)
		response Response
	}{
		"pre-vote": {func(t *testing.T) (*member, NodeID) {
			m, n := nodeOf(t, ElectionState{7, None, NoReplica}, 6)
			n.becomeProspective(causeTimer)
			n.settle()
			m.take()
			return m, 2
		}, VoteResponse{Header: topError(ClusterAuthorization)}},
		"Fetch": {follower, FetchResponse{Header: topError(ClusterAuthorization)}},
		"BeginQuorumEpoch": {func(t *testing.T) (*member, NodeID) {
			m, n := nodeOf(t, ElectionState{0, None, NoReplica})
			win(n)
			m.take()
			return m, 2
		}, BeginQuorumEpochResponse{topError(ClusterAuthorization)}},
		"EndQuorumEpoch": {func(t *testing.T) (*member, NodeID) {
			m, _ := nodeOf(t, ElectionState{7, 1, NoReplica}, 7)
			return m, 2
		}, EndQuorumEpochResponse{topError(ClusterAuthorization)}},
		// It has one error code, which comes as that of the partition, and no leader beside it.
		"UpdateRaftVoter": {updating, UpdateRaftVoterResponse{Header{Error: ClusterAuthorization, Leader: None, Epoch: -1}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, to := c.start(t)
			if f := reply(m, to, c.response).ready.Fatal; f == nil || f.Reason != NotAuthorized {
				t.Errorf("fatal %+v, want %s", f, NotAuthorized)
			}
		})
	}
}

// updating is voter 1, which has just sent UpdateRaftVoter to leader 2 of epoch 7.
func updating(t *testing.T) (*member, NodeID) {
	t.Helper()
	m, n := followerOf(t)
	respond(m, FetchResponse{Batches: []Batch{batch(3, 7)}, HighWatermark: 3})
	n.Step(n.now, m.flushed())
	m.take()
	out := respond(m, FetchResponse{HighWatermark: 4})
	if len(out.sends) != 1 {
		t.Fatalf("sent %+v, want UpdateRaftVoter", out.sends)
	}
	if _, ok := out.sends[0].Request.(UpdateRaftVoterRequest); !ok {
		t.Fatalf("sent %T, want UpdateRaftVoter", out.sends[0].Request)
	}
	return m, 2
}

// TestUpdateVoterAnswers: C-241, C-242. What an answer makes of the one who asked, and when it asks again.
func TestUpdateVoterAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		response UpdateRaftVoterResponse
		failure  Failure
		role     Role
		epoch    Epoch
		leader   NodeID
		updated  bool
		again    time.Duration // when to ask again; 0: not
	}{
		"done":                         {UpdateRaftVoterResponse{Header{Epoch: 7, Leader: 2}}, 0, Follower, 7, 2, true, 0},
		"a leader that cannot":         {UpdateRaftVoterResponse{Header{Error: UnsupportedVersion, Epoch: 7, Leader: 2}}, 0, Follower, 7, 2, true, 0},
		"a leader too old":             {UpdateRaftVoterResponse{}, UnsupportedByPeer, Follower, 7, 2, true, 0},
		"another change is under way":  {UpdateRaftVoterResponse{Header{Error: RequestTimedOut, Epoch: 7, Leader: 2}}, 0, Follower, 7, 2, false, 500 * time.Millisecond},
		"not to the leader's liking":   {UpdateRaftVoterResponse{Header{Error: InvalidRequest, Epoch: 7, Leader: 2}}, 0, Follower, 7, 2, false, 4 * time.Second},
		"not a voter":                  {UpdateRaftVoterResponse{Header{Error: VoterNotFound, Epoch: 7, Leader: 2}}, 0, Follower, 7, 2, false, 4 * time.Second},
		"another cluster":              {UpdateRaftVoterResponse{topError(InconsistentClusterID)}, 0, Follower, 7, 2, false, 4 * time.Second},
		"a newer epoch (C-242)":        {UpdateRaftVoterResponse{Header{Error: FencedLeaderEpoch, Epoch: 8, Leader: None}}, 0, Unattached, 8, None, false, 0},
		"a newer epoch, with a leader": {UpdateRaftVoterResponse{Header{Error: NotLeaderOrFollower, Epoch: 8, Leader: 3}}, 0, Follower, 8, 3, false, 0},
		"a newer epoch without error":  {UpdateRaftVoterResponse{Header{Epoch: 8, Leader: 3}}, 0, Follower, 8, 3, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, to := updating(t)
			n := m.node
			at := n.now
			var out takeover
			if c.failure == NoFailure {
				out = reply(m, to, c.response)
			} else {
				n.Step(n.now, Outcome{Correlation: n.conn(to).correlation, Failure: c.failure})
				out = m.take()
			}
			if out.ready.Fatal != nil {
				t.Fatalf("fatal %+v", out.ready.Fatal)
			}
			if n.role != c.role || n.state.Epoch != c.epoch || n.state.Leader != c.leader || n.follower.updated != c.updated {
				t.Errorf("%s of epoch %d, leader %d, updated %v; want %s of %d, leader %d, %v", n.role, n.state.Epoch, n.state.Leader, n.follower.updated, c.role, c.epoch, c.leader, c.updated)
			}
			if c.again > 0 && n.follower.update != at.Add(c.again) {
				t.Errorf("asks again after %v, want %v", time.Duration(n.follower.update-at), c.again)
			}
		})
	}
}
