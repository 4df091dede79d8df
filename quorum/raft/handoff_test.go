package raft

import (
	"strings"
	"testing"
)

// TestRefusedHandoffShows: whoever looks at the status hours later sees that a handoff was asked for, and why there was none.
func TestRefusedHandoffShows(t *testing.T) {
	_, n := leaderOf(t)
	n.Step(n.now, Handoff{ID: 60, Target: ReplicaKey{ID: 9}, DryRun: true})
	n.Ready()
	n.Advance()
	if got := n.Status().Handoff.Phase; got != HandoffNone {
		t.Errorf("a dry run shows as %s", got)
	}
	n.Step(n.now, Handoff{ID: 61, Target: ReplicaKey{ID: 9}})
	n.Ready()
	n.Advance()
	if h := n.Status().Handoff; h.ID != 61 || h.Phase != HandoffAborted || h.Target.ID != 9 || !strings.Contains(h.Message, "node 9 is not a voter") {
		t.Errorf("%+v", h)
	}
	n.Step(n.now, Handoff{ID: 62, Target: NoReplica})
	n.Ready()
	n.Advance()
	n.Step(n.now, Handoff{ID: 63, Target: NoReplica})
	if h := n.Status().Handoff; h.ID != 62 || h.Phase != HandoffConverging {
		t.Errorf("a second handoff took the place of the first: %+v", h)
	}
}

// TestResignationIsNoFailedHandoff: a leader without a majority names successors too. The first of them cannot tell that from a
// handoff, so it must not call it a failed one if another wins.
func TestResignationIsNoFailedHandoff(t *testing.T) {
	m, n := followerOf(t)
	ask(t, m, EndQuorumEpochRequest{ClusterID: testCluster, Leader: 2, Epoch: 7, Successors: []ReplicaKey{testKey(1), testKey(3)}, Endpoints: testEndpoints(2)})
	if h := n.Status().Handoff; h.Phase != HandoffResigned {
		t.Fatalf("%+v", h)
	}
	ask(t, m, BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(1), Leader: 3, Epoch: 9, Endpoints: testEndpoints(3)})
	if h := n.Status().Handoff; h.Phase != HandoffNone {
		t.Errorf("%+v", h)
	}
}
