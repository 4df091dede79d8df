package server

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// A request that was handed in just as the loop ended is turned away at once. It was once left lying, and then its client
// waited for the end of the drain, a whole second, while the next leader was there after four milliseconds.
func TestRequestThatCameAsTheLoopEndedIsTurnedAway(t *testing.T) {
	s := &server{inbox: make(chan func(), inboxSize), done: make(chan struct{}), loop: loop{waiting: map[raft.RequestID]waiter{}}}
	dropped := make(chan struct{})
	request := func() {
		s.ask(waiter{
			reply: func(any) { t.Error("answered by a replica that has stopped") },
			drop:  func() { close(dropped) },
		}, func(raft.RequestID) replica.Event {
			t.Error("the replica was asked after its loop had ended")
			return replica.Tick{}
		})
	}
	if !s.post(request) {
		t.Fatal("not taken while the loop runs")
	}
	close(s.done)
	s.dropWaiting()
	for range 100 {
		if s.post(func() {}) {
			t.Fatal("taken after the loop has ended")
		}
	}
	s.turnAway(dropped) // returns once the request was let go
}

// PR-36: who is woken late, by a disk that holds up the loop or for want of processor time, can be told from one that was not.
func TestPR36LateTicksAreCounted(t *testing.T) {
	c := newCluster(t, 1, 0)
	m := c.leader()
	c.stop(m)
	var slow atomic.Bool
	m.fs = vfs.WithFaults(vfs.OS, func(call vfs.Call) error {
		if slow.Load() && call.Op == vfs.OpWrite && strings.HasSuffix(call.Path, ".log") {
			time.Sleep(beatEvery + 2*lateAfter) // no deadline is later than that
		}
		return nil
	})
	c.start(m)
	c.leader()
	before := c.metric(m, "quorum_late_ticks_total")
	if before < 0 {
		t.Fatal("the metric is missing")
	}
	slow.Store(true)
	c.append(c.client(), keyed("k", "v"))
	c.await("the late tick to be counted", func() bool { return c.metric(m, "quorum_late_ticks_total") > before })
}

// One deadline that was missed is one late tick, however often the loop comes round before it looks at its timers.
func TestLateTickCountsOnce(t *testing.T) {
	s := &server{began: time.Now().Add(-time.Hour)}
	now := s.now()
	for _, late := range []time.Duration{lateAfter / 2, 2 * lateAfter, 2 * lateAfter, 3 * lateAfter} {
		s.woke(now, now.Add(-late))
	}
	if got := s.metrics.lateTicks.Load(); got != 2 {
		t.Errorf("counted %d late ticks, want 2", got)
	}
}
