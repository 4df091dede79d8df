package raft

import (
	"testing"
	"time"
)

// TestSC01FlappingObservers: two hundred observers restart each five seconds, each time with a new directory id, for ten
// minutes. The leader remembers those that are there, and hardly any of their ghosts; those that do not come back are
// forgotten after their session.
func TestSC01FlappingObservers(t *testing.T) {
	m, n := leaderOf(t)
	const observers = 200
	for at := 5 * time.Second; at <= 10*time.Minute; at += 5 * time.Second {
		n.now = Instant(at)
		for id := range NodeID(observers) {
			key := ReplicaKey{ID: 1000 + id, DirectoryID: UUID{1, byte(at >> 40), byte(at >> 32), byte(at >> 24)}}
			n.Step(n.now, Inbound{ID: RequestID(id), Conn: ConnID(id), Request: FetchRequest{
				ClusterID: testCluster, Replica: key, Epoch: 1, Offset: n.log.end, LastFetchedEpoch: 1, HighWatermark: n.highWatermark, MaxWait: time.Second,
			}})
			m.take()
		}
		if got := len(n.Status().Progress) - 3; got > observers {
			t.Fatalf("after %v the leader remembers %d observers, want those that are there, %d", at, got, observers)
		}
		if len(n.leader.parked) > observers+3 {
			t.Fatalf("after %v %d fetches are parked", at, len(n.leader.parked))
		}
		for _, id := range []NodeID{2, 3} {
			fetch(m, id, ConnID(id), n.log.end)
		}
		m.ends(n.now.Add(2 * time.Second))
	}
	if n.role != Leader || n.state.Epoch != 1 {
		t.Fatalf("%s of epoch %d", n.role, n.state.Epoch)
	}
	// Two live twins of one id are tracked apart: nobody is a ghost that fetches.
	for range 3 {
		for _, dir := range []byte{1, 2} {
			n.Step(n.now, Inbound{ID: 1, Conn: ConnID(dir), Request: FetchRequest{ClusterID: testCluster, Replica: ReplicaKey{5000, UUID{dir}}, Epoch: 1, Offset: n.log.end, LastFetchedEpoch: 1}})
			m.take()
		}
		n.now = n.now.Add(500 * time.Millisecond)
	}
	twins := 0
	for _, p := range n.Status().Progress {
		if p.Key.ID == 5000 {
			twins++
		}
	}
	if twins != 2 {
		t.Errorf("%d of two twins are tracked", twins)
	}
	n.now = n.now.Add(observerSession)
	if got := len(n.Status().Progress); got != 3 {
		t.Errorf("%d replicas are listed after a session without a fetch, want the voters", got)
	}
}
