package raft

import (
	"slices"
	"testing"
	"time"
)

// TestResignationRelaxesPreVotes: EndQuorumEpoch, and NOT_LEADER_OR_FOLLOWER of the leader itself, make a follower grant
// pre-votes; its leader and its vote stay (kraft-spec 12.1 row 1).
func TestResignationRelaxesPreVotes(t *testing.T) {
	preVote := VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(3), Epoch: 7, Last: OffsetAndEpoch{3, 6}, PreVote: true}
	for name, resign := range map[string]func(m *member){
		"EndQuorumEpoch": func(m *member) {
			r := EndQuorumEpochRequest{ClusterID: testCluster, Leader: 2, Epoch: 7, Successors: []ReplicaKey{testKey(3), testKey(1)}}
			if got := ask(t, m, r).(EndQuorumEpochResponse); got.Error != NoError {
				t.Fatalf("%+v", got)
			}
		},
		"NOT_LEADER_OR_FOLLOWER": func(m *member) {
			respond(m, FetchResponse{Header: Header{Error: NotLeaderOrFollower, Epoch: 7, Leader: 2}})
		},
		"its process is gone": func(m *member) {
			m.node.voters.sets[0].set = testVoters(0, 1, 2, 3) // rank 1: not at once
			m.node.Step(m.node.now, ConnectionLost{Peer: 2, Refused: true})
			m.take()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := followerOf(t)
			respond(m, FetchResponse{HighWatermark: Unknown})
			if ask(t, m, preVote).(VoteResponse).Granted {
				t.Fatal("granted while the leader serves")
			}
			resign(m)
			state := n.state
			if !ask(t, m, preVote).(VoteResponse).Granted {
				t.Error("refused")
			}
			if n.state != state || n.state.Leader != 2 || n.role != Follower {
				t.Errorf("%s %+v", n.role, n.state)
			}
			standard := preVote
			standard.PreVote = false
			if ask(t, m, standard).(VoteResponse).Granted {
				t.Error("granted a vote in an epoch that has a leader")
			}
		})
	}
}

// TestSuccessorDelay is Kafka's formula (kraft-spec 4.3) and, without a list, the rank.
func TestSuccessorDelay(t *testing.T) {
	_, n := followerOf(t)
	for count, want := range map[int][]int{2: {0, 500}, 3: {0, 250, 500}, 4: {0, 125, 250, 500}, 6: {0, 31, 62, 124, 248, 496}} {
		var got []int
		for place := range count {
			got = append(got, int(n.successorDelay(place, count)/time.Millisecond))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d successors: %v, want %v", count, got, want)
		}
	}
	if got := n.successorDelay(-1, 2); got != time.Second {
		t.Errorf("not listed: %v", got)
	}
	if got := n.successorDelay(-1, 0); got != 0 { // the lowest id besides the leader's
		t.Errorf("empty list: %v", got)
	}
	if got := n.successorDelay(80, 90); got != time.Second {
		t.Errorf("absurd list: %v", got)
	}
}

// TestInconsistentLeaders: two leaders of one epoch, or a leadership of our own that we do not know of, end the process.
func TestInconsistentLeaders(t *testing.T) {
	for name, r := range map[string]BeginQuorumEpochRequest{
		"another leader of the epoch": {ClusterID: testCluster, Voter: testKey(1), Leader: 3, Epoch: 7, Endpoints: testEndpoints(3)},
		"our own id":                  {ClusterID: testCluster, Voter: testKey(1), Leader: 1, Epoch: 8, Endpoints: testEndpoints(1)},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := followerOf(t)
			n.Step(n.now, Inbound{ID: 1, Request: r})
			f := m.take().ready.Fatal
			if f == nil || f.Reason != InconsistentState {
				t.Fatalf("fatal %+v", f)
			}
			t.Log(f.Message)
			n.Step(n.now, Deadline{}) // a dead node does nothing
			if n.HasReady() && n.Ready().Fatal == nil || n.Deadline() != Never {
				t.Error("goes on after a fatal fault")
			}
		})
	}
}
