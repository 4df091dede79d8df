package replica

import (
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// PR-37: the wall clock only dates records. However it jumps, no timer moves, nobody campaigns or resigns, and appends go on.
func TestPR37WallClockJumps(t *testing.T) {
	jumps := []time.Duration{time.Hour, -2 * time.Hour, 10 * 365 * 24 * time.Hour, 0}
	leader := newDriver(t, 1)
	leader.pass(10 * time.Second)
	epoch := leader.r.Status().Election.Epoch
	for _, jump := range jumps {
		before := leader.r.Deadline()
		leader.wall = jump
		leader.step(Tick{})
		if after := leader.r.Deadline(); after != before {
			t.Errorf("a jump by %v moved the leader's next deadline from %v to %v", jump, before, after)
		}
		if got := answer[ProduceResult](leader, leader.produce(leader.batch(-1, -1, 1), 0)); got.Error != raft.NoError {
			t.Errorf("an append after a jump by %v: %+v", jump, got)
		}
		leader.pass(5 * time.Second)
		if s := leader.r.Status(); s.Role != raft.Leader || s.Election.Epoch != epoch {
			t.Errorf("a jump by %v made a leader of epoch %d %s of epoch %d", jump, epoch, s.Role, s.Election.Epoch)
		}
	}
	follower := newDriver(t, 3)
	follower.respond(follower.follow(6), 6, nil, 0)
	for _, jump := range jumps {
		before := follower.r.Deadline()
		follower.wall = jump
		follower.step(Tick{})
		if s, after := follower.r.Status(), follower.r.Deadline(); s.Role != raft.Follower || s.Election.Epoch != 6 || after != before {
			t.Errorf("a jump by %v: %s of epoch %d, next deadline %v, was %v", jump, s.Role, s.Election.Epoch, after, before)
		}
	}
}
