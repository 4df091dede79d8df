package raft

import (
	"testing"
	"time"
)

// TestCommonResponseHandling is kraft-spec 2, steps 0 to 6, on the answers to a candidate's votes.
func TestCommonResponseHandling(t *testing.T) {
	for name, c := range map[string]struct {
		response VoteResponse
		role     Role
		state    ElectionState
		fatal    FatalReason
		again    bool // node 2 is asked again after a back-off
	}{
		"not authorized (C-056)":              {VoteResponse{Header: topError(ClusterAuthorization)}, Candidate, ElectionState{}, NotAuthorized, false},
		"another cluster":                     {VoteResponse{Header: topError(InconsistentClusterID)}, Candidate, ElectionState{7, None, testKey(1)}, "", true},
		"not available":                       {VoteResponse{Header: Header{Error: BrokerNotAvailable, Epoch: 7, Leader: None}}, Candidate, ElectionState{7, None, testKey(1)}, "", true},
		"an older epoch":                      {VoteResponse{Header: Header{Epoch: 6, Leader: 3}, Granted: true}, Candidate, ElectionState{7, None, testKey(1)}, "", true},
		"another receiver":                    {VoteResponse{Header: Header{Error: InvalidVoterKey, Epoch: 7, Leader: None}}, Candidate, ElectionState{7, None, testKey(1)}, "", true},
		"an invalid request":                  {VoteResponse{Header: Header{Error: InvalidRequest, Epoch: 7, Leader: None}}, Candidate, ElectionState{}, InconsistentState, false},
		"a newer epoch":                       {VoteResponse{Header: Header{Error: FencedLeaderEpoch, Epoch: 9, Leader: None}}, Unattached, ElectionState{9, None, NoReplica}, "", false},
		"a newer epoch with a leader":         {VoteResponse{Header: Header{Error: FencedLeaderEpoch, Epoch: 9, Leader: 3}}, Follower, ElectionState{9, 3, NoReplica}, "", false},
		"a newer epoch with a strange leader": {VoteResponse{Header: Header{Error: FencedLeaderEpoch, Epoch: 9, Leader: 30}}, Unattached, ElectionState{9, 30, NoReplica}, "", false},
		"the leader of the epoch (C-053)":     {VoteResponse{Header: Header{Epoch: 7, Leader: 3}}, Follower, ElectionState{7, 3, testKey(1)}, "", false},
		"a grant":                             {VoteResponse{Header: Header{Epoch: 7, Leader: None}, Granted: true}, Leader, ElectionState{7, 1, NoReplica}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := nodeOf(t, ElectionState{7, None, testKey(1)}, 6)
			n.Step(n.now, Outcome{Correlation: n.conn(2).correlation, Response: c.response})
			out := m.take()
			if f := out.ready.Fatal; c.fatal != "" {
				if f == nil || f.Reason != c.fatal {
					t.Errorf("fatal %+v, want %s", f, c.fatal)
				}
				return
			} else if f != nil {
				t.Fatalf("fatal %+v", f)
			}
			if n.role != c.role || n.state != c.state {
				t.Errorf("%s %+v, want %s %+v", n.role, n.state, c.role, c.state)
			}
			if c.again && len(out.sends) > 0 {
				t.Errorf("asked again at once: %+v", out.sends)
			}
			if c.again && n.Deadline() != n.now.Add(20*time.Millisecond) {
				t.Errorf("next deadline %v", time.Duration(n.Deadline()))
			}
		})
	}
}

// TestC070PeerWithoutPreVote: one such peer is enough to do without.
func TestC070PeerWithoutPreVote(t *testing.T) {
	for name, o := range map[string]Outcome{
		"its versions say so": {Failure: UnsupportedByPeer},
		"it answers so":       {Response: VoteResponse{Header: topError(UnsupportedVersion)}},
	} {
		m, n := nodeOf(t, ElectionState{7, None, NoReplica}, 6)
		n.Step(n.Deadline(), Deadline{})
		n.Step(n.election, Deadline{})
		m.take()
		if n.role != Prospective {
			t.Fatal(n.role)
		}
		o.Correlation = n.conn(3).correlation
		n.Step(n.now, o)
		m.take()
		if n.role != Candidate || n.state.Epoch != 8 {
			t.Errorf("%s: %s of epoch %d", name, n.role, n.state.Epoch)
		}
	}
}

// TestBeginAndEndErrors: C-041, C-085 to C-087, C-096.
func TestBeginAndEndErrors(t *testing.T) {
	type answer struct {
		code   ErrorCode
		epoch  Epoch
		leader NodeID
	}
	for name, c := range map[string]struct {
		begin *BeginQuorumEpochRequest
		end   *EndQuorumEpochRequest
		want  answer
	}{
		"begin: wrong cluster":           {&BeginQuorumEpochRequest{ClusterID: new("other"), Leader: 3, Epoch: 9}, nil, answer{InconsistentClusterID, 7, 2}},
		"begin: older epoch":             {&BeginQuorumEpochRequest{ClusterID: testCluster, Leader: 3, Epoch: 6}, nil, answer{FencedLeaderEpoch, 7, 2}},
		"begin: no leader":               {&BeginQuorumEpochRequest{ClusterID: testCluster, Leader: -1, Epoch: 9}, nil, answer{InvalidRequest, 7, 2}},
		"begin: without endpoints":       {&BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(1), Leader: 3, Epoch: 9}, nil, answer{NoError, 9, 3}},
		"begin: for another disk":        {&BeginQuorumEpochRequest{ClusterID: testCluster, Voter: ReplicaKey{1, UUID{9}}, Leader: 3, Epoch: 9}, nil, answer{InvalidVoterKey, 9, 3}},
		"begin: the same leader":         {&BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(1), Leader: 2, Epoch: 7}, nil, answer{NoError, 7, 2}},
		"end: null cluster":              {nil, &EndQuorumEpochRequest{Leader: 2, Epoch: 7}, answer{InvalidRequest, 7, 2}},
		"end: older epoch":               {nil, &EndQuorumEpochRequest{ClusterID: testCluster, Leader: 2, Epoch: 6}, answer{FencedLeaderEpoch, 7, 2}},
		"end: of a leader not yet known": {nil, &EndQuorumEpochRequest{ClusterID: testCluster, Leader: 3, Epoch: 9, Successors: []ReplicaKey{testKey(2), testKey(1)}}, answer{NoError, 9, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := followerOf(t)
			timer := n.follower.timeout
			var h Header
			if c.begin != nil {
				if c.begin.Voter == (ReplicaKey{}) {
					c.begin.Voter = NoReplica
				}
				h = ask(t, m, *c.begin).(BeginQuorumEpochResponse).Header
			} else {
				h = ask(t, m, *c.end).(EndQuorumEpochResponse).Header
			}
			if got := (answer{max(h.Error, h.TopError), n.state.Epoch, n.state.Leader}); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if c.want.epoch == 7 && n.follower.timeout != timer {
				t.Error("the fetch timer moved") // C-083
			}
		})
	}
}
