package server

import (
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// SC-01: places of observers are for those that are there. Whoever has not fetched for a while holds none.
func TestSC01PlacesOfObserversThatHaveGone(t *testing.T) {
	s := &server{cfg: &config.Config{MaxObservers: 2}}
	now := raft.Instant(time.Hour)
	v := &view{now: now}
	for i, age := range []time.Duration{time.Second, forgetAfter + time.Second, 2 * forgetAfter} {
		v.Progress = append(v.Progress, raft.ReplicaProgress{Key: raft.ReplicaKey{ID: raft.NodeID(1000 + i)}, LastFetch: now.Add(-age)})
	}
	next := raft.ReplicaKey{ID: 2000}
	if s.tooManyObservers(v, next) {
		t.Error("refused, though one of two places is taken by an observer that is there")
	}
	v.Progress = append(v.Progress, raft.ReplicaProgress{Key: raft.ReplicaKey{ID: 1003}, LastFetch: now})
	if !s.tooManyObservers(v, next) {
		t.Error("let in, though both places are taken")
	}
	if s.tooManyObservers(v, v.Progress[1].Key) {
		t.Error("one that comes back to its old place is refused")
	}
}
