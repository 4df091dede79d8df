package sim

import (
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// changes asks the leader for a change of the voters until it is granted, and returns how often it had to ask.
func (w *world) changes(t *testing.T, change func(leader *member) raft.Request) int {
	t.Helper()
	asked, waiting, granted := 0, false, false
	if !w.untilIs(w.now+20*time.Second, func() bool {
		if l := w.leader(); l != nil && !waiting && !granted {
			waiting = true
			asked++
			w.admin.ask(l, change(l), func(code raft.ErrorCode) {
				granted = code == raft.NoError
				w.in(50*time.Millisecond, func() { waiting = false })
			})
		}
		return granted
	}) {
		w.holds(t)
		t.Fatalf("after %d requests and 20s a change of voters is not granted: %s", asked, w.situation())
	}
	return asked
}

func addition(m *member) raft.Request {
	return raft.AddRaftVoterRequest{Voter: m.key, Endpoints: m.endpoints(), AckWhenCommitted: true}
}

func removal(m *member) raft.Request { return raft.RemoveRaftVoterRequest{Voter: m.key} }

// commits waits until some more appends are acknowledged.
func (w *world) commits(t *testing.T, within time.Duration) {
	t.Helper()
	acked := w.counts.acked
	if !w.untilIs(w.now+within, func() bool { return w.counts.acked >= acked+5 }) {
		w.holds(t)
		t.Fatalf("appends are not acknowledged within %v: %s", within, w.situation())
	}
}

// MB-05 (zookeeper-operator 575): voters go from 3 to 2, to 5 and back to 1, one at a time, with one on a slow disk. At each
// size, even ones too, appends commit; with two voters, neither can do without the other.
func TestMB05EvenNumbersOfVoters(t *testing.T) {
	p := quiet(5, 3)
	p.spares, p.operations, p.think, p.stall = 3, 1<<30, 30*time.Millisecond, 100*time.Millisecond
	w := settled(t, p)
	w.members[1].slowUntil = time.Hour
	sizes := func(want int) {
		t.Helper()
		if set := w.votersOf(w.leader()); len(set) != want {
			t.Fatalf("%d voters %v, want %d", len(set), ids(set), want)
		}
		w.commits(t, 5*time.Second)
		w.holds(t)
	}
	gone := w.follower()
	w.changes(t, func(*member) raft.Request { return removal(gone) })
	sizes(2)

	other := w.holder(without(w.votersOf(w.leader()), w.leader().key)[0])
	other.die(false)
	w.until(w.now + 6*time.Second) // what was on its way is through
	committed := w.oracle.committedEnd()
	w.until(w.now + 5*time.Second)
	if now := w.oracle.committedEnd(); now != committed {
		t.Errorf("one of two voters alone commits up to %d, from %d", now, committed)
	}
	other.start()
	w.commits(t, 10*time.Second)

	for i, m := range w.members[3:6] {
		w.changes(t, func(*member) raft.Request { return addition(m) })
		sizes(3 + i)
	}
	for left := 4; left >= 1; left-- {
		w.changes(t, removal) // the leader itself, each time
		if !w.untilIs(w.now+10*time.Second, func() bool { l := w.leader(); return l != nil && l.seen.voter && l.seen.highWatermark > 0 }) {
			t.Fatalf("%d voters, and none of them leads: %s", left, w.situation())
		}
		sizes(left)
	}
	w.history.check(w)
	w.holds(t)
}

// MB-16 (etcd's learners, strimzi's proposal 203): an observer becomes a voter and back, fifty times, under load, now and
// then after it was cut off and has to catch up first. No round leaves anything behind, and no epoch ends.
func TestMB16ObserverBecomesVoterAndBack(t *testing.T) {
	p := quiet(16, 3)
	p.spares, p.operations, p.think = 1, 1<<30, 10*time.Millisecond
	w := settled(t, p)
	leader, epoch, spare := w.leader(), w.leader().seen.epoch, w.members[3]
	rounds, asked := 50, 0
	if testing.Short() {
		rounds = 5
	}
	d := newDice(p.seed, "rounds")
	for i := range rounds {
		switch i % 3 {
		case 1:
			w.isolates(spare, true, true, time.Millisecond)
		case 2:
			w.isolates(spare, true, true, d.between(time.Second, 6*time.Second))
			w.until(w.now + d.between(0, 4*time.Second))
		}
		asked += w.changes(t, func(*member) raft.Request { return addition(spare) })
		if set := w.votersOf(leader); len(set) != 4 || !has(set, spare.key) {
			t.Fatalf("round %d: after the addition of node %d the voters are %v", i, spare.id, ids(set))
		}
		w.commits(t, 2*time.Second)
		w.changes(t, func(*member) raft.Request { return removal(spare) })
		if !w.untilIs(w.now+3*time.Second, func() bool { return !spare.seen.voter && spare.seen.role == raft.Follower }) {
			w.holds(t)
			t.Fatalf("round %d: removed, node %d is no observer: %s", i, spare.id, w.situation())
		}
		if leader.seen.role != raft.Leader || leader.seen.epoch != epoch {
			t.Fatalf("round %d has ended epoch %d of node %d: %s", i, epoch, leader.id, w.situation())
		}
		w.holds(t)
	}
	t.Logf("%d rounds; %d requests until all additions were granted", rounds, asked)
	if asked == rounds && !testing.Short() {
		t.Error("no addition was refused for a spare that was behind: the test shows nothing about that")
	}
	w.history.check(w)
	w.holds(t)
}
