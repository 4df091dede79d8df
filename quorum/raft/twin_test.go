package raft

import (
	"testing"
	"time"
)

// TestMB11TwinOfAVoter: a second process runs with a voter's id on a disk of its own. Asked as that voter it says that it
// is not; its fetches are an observer's, so it commits nothing and keeps nobody in office; and the voter's own progress is
// untouched.
func TestMB11TwinOfAVoter(t *testing.T) {
	m, n := leaderOf(t)
	twin := ReplicaKey{2, UUID{9}}
	fetchOfTwin := func() {
		t.Helper()
		r := ask(t, m, FetchRequest{ClusterID: testCluster, Replica: twin, Epoch: 1, Offset: n.log.end, LastFetchedEpoch: 1, HighWatermark: NoHighWatermark})
		if got := r.(FetchResponse); got.Error != NoError {
			t.Fatalf("%+v", got)
		}
	}
	before := n.highWatermark
	appendAndFlush(m, 50)
	fetchOfTwin()
	if n.highWatermark != before {
		t.Errorf("high watermark %d by the fetch of a twin", n.highWatermark)
	}
	if p := n.leader.voter(testKey(2)); p.end != before || p.lastFetch != 0 {
		t.Errorf("the voter is booked as %+v after its twin's fetch", p)
	}
	listed := 0
	for _, p := range n.Status().Progress {
		if p.Key == twin {
			listed++
		}
	}
	if listed != 1 {
		t.Errorf("the twin is listed %d times", listed)
	}
	for n.role == Leader && n.now < Instant(time.Minute) {
		fetchOfTwin()
		m.ends(n.now.Add(500 * time.Millisecond))
	}
	if n.now > Instant(2*n.cfg.FetchTimeout) {
		t.Errorf("in office for %v by the fetches of a twin", time.Duration(n.now))
	}

	// The twin itself, by its own voter set an observer: who takes it for the voter is told.
	cfg := testConfig(2, testVoters(1, 2, 3))
	cfg.Self = twin
	other := newMember(cfg, dynamic(testVoters(1, 2, 3)))
	if err := other.boot(0); err != nil {
		t.Fatal(err)
	}
	other.take()
	if v := ask(t, other, VoteRequest{ClusterID: testCluster, Voter: testKey(2), Replica: testKey(1), Epoch: 1}).(VoteResponse); v.Error != InvalidVoterKey || v.Granted {
		t.Errorf("vote asked of the twin: %+v", v)
	}
	b := BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(2), Leader: 1, Epoch: 1, Endpoints: testEndpoints(1)}
	if r := ask(t, other, b).(BeginQuorumEpochResponse); r.Error != InvalidVoterKey {
		t.Errorf("BeginQuorumEpoch to the twin: %+v", r)
	}
}
