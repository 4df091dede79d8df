package sim

import (
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// quiet is a plan without any fault: Kafka's default timers, a fast network, fsyncs of a millisecond or so.
func quiet(seed uint64, voters int) plan {
	return plan{
		seed: seed, voters: voters, clients: 3, kraftVersion: 1, chaos: 10 * time.Second,
		electionTimeout: time.Second, fetchTimeout: 2 * time.Second, requestTimeout: 2 * time.Second,
		retryBackoff: 20 * time.Millisecond, fetchMaxWait: 500 * time.Millisecond, fetchMaxBytes: 1 << 20, segmentBytes: 1 << 30,
		delayMin: 500 * time.Microsecond, delayMean: 500 * time.Microsecond, flushMean: time.Millisecond, flushLate: 100 * time.Microsecond,
		window: 1, think: 20 * time.Millisecond, operations: 120, down: 200 * time.Millisecond,
	}
}

// settled makes a world and runs it until a leader's epoch has committed everywhere.
func settled(t *testing.T, p plan) *world {
	t.Helper()
	return settledWith(t, p, nil)
}

func settledWith(t *testing.T, p plan, bug *plant) *world {
	t.Helper()
	w := newWorld(p, bug, nil)
	w.boot()
	if !w.untilIs(10*time.Second, w.followed) {
		t.Fatalf("seed %d: no leader within 10s: %s", p.seed, w.situation())
	}
	w.holds(t)
	return w
}

// followed reports whether all running members follow one leader and know a high watermark of its epoch.
func (w *world) followed() bool {
	l := w.leader()
	if l == nil {
		return false
	}
	for _, m := range w.members {
		if m.up && (m.seen.epoch != l.seen.epoch || m.seen.leader != l.id || m.seen.highWatermark < 1) {
			return false
		}
	}
	return true
}

// holds fails the test if an invariant does not.
func (w *world) holds(t *testing.T) {
	t.Helper()
	if w.failure != nil {
		t.Fatalf("seed %d: %v", w.plan.seed, w.failure)
	}
}

// isolates cuts a member off from all others, in the directions given.
func (w *world) isolates(m *member, in, out bool, d time.Duration) {
	for _, o := range w.members {
		if o != m && in {
			w.net.cut(o.host, m.host, d)
		}
		if o != m && out {
			w.net.cut(m.host, o.host, d)
		}
	}
}

// follower is a voter that does not lead.
func (w *world) follower() *member {
	for _, m := range w.members {
		if m.voter && m.up && m.seen.role == raft.Follower {
			return m
		}
	}
	return nil
}

// asks lets a request of the test's own happen at a member.
func (m *member) asks(what string, event func(raft.RequestID) replica.Event) {
	m.lastID++
	id := m.lastID
	m.step(event(id), "%s", what)
}
