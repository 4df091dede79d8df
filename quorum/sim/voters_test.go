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

// PR-13 (KAFKA-17332): power is cut from some in the very step in which an observer becomes a voter, before the record of that
// is on disk: where it stands in the newcomer's own log, or only in the leader's. Nothing that was acknowledged is lost, and no
// offset is told that is not durable.
func TestPR13PowerCutAsAnObserverBecomesVoter(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 6
	}
	p := quiet(1300, 3)
	p.spares, p.operations, p.think = 1, 1<<30, 20*time.Millisecond
	w := settled(t, p)
	d, spare := newDice(p.seed, "cuts"), w.members[3]
	unflushed, outlived := 0, 0
	for round := range rounds {
		added := func(m *member) bool { return m.up && has(w.votersOf(m), spare.key) }
		waiting := false
		if !w.untilIs(w.now+20*time.Second, func() bool {
			l := w.leader()
			if l != nil && !waiting && !added(l) {
				waiting = true
				w.admin.ask(l, addition(spare), func(raft.ErrorCode) { w.in(50*time.Millisecond, func() { waiting = false }) })
			}
			return l != nil && added(l) && (round%2 == 0 || added(spare))
		}) {
			w.holds(t)
			t.Fatalf("round %d: node %d becomes no voter: %s", round, spare.id, w.situation())
		}
		first := w.leader()
		if round%2 == 1 {
			first = spare
		}
		if first.disk.log.end > first.disk.log.durableEnd() {
			unflushed++
		}
		first.die(true)
		w.in(d.about(100*time.Millisecond), first.start)
		for _, i := range d.Perm(len(w.members))[:d.IntN(len(w.members))] {
			m := w.members[i]
			m.die(true)
			w.in(d.about(100*time.Millisecond), m.start)
		}
		w.untilIs(w.now+20*time.Second, w.followed)
		w.commits(t, 10*time.Second)
		if added(w.leader()) {
			outlived++
			w.changes(t, func(*member) raft.Request { return removal(spare) })
		}
		if !w.untilIs(w.now+5*time.Second, func() bool { return !added(spare) && w.followed() }) {
			w.holds(t)
			t.Fatalf("round %d: node %d is a voter by its log, and by that of its leader it is none: %s", round, spare.id, w.situation())
		}
		w.holds(t)
	}
	t.Logf("%d cuts, in %d of them the record was not on disk; %d additions outlived theirs", rounds, unflushed, outlived)
	if unflushed < rounds*3/4 || outlived == 0 || outlived == rounds {
		t.Errorf("in %d of %d cuts the record was not on disk, and %d additions outlived theirs: the test shows little", unflushed, rounds, outlived)
	}
	w.history.check(w)
	w.holds(t)
}

// MB-16 (etcd's learners, strimzi's proposal 203): an observer becomes a voter and back, fifty times, under load, now and
// then after it was cut off and has to catch up first: from nothing, from a few records, and once from 10,000. No round leaves
// anything behind, and no epoch ends.
func TestMB16ObserverBecomesVoterAndBack(t *testing.T) {
	p := quiet(16, 3)
	p.spares, p.operations, p.think = 1, 1<<30, 10*time.Millisecond
	w := settled(t, p)
	leader, epoch, spare := w.leader(), w.leader().seen.epoch, w.members[3]
	lag := func() int64 { return leader.disk.log.end - spare.disk.log.end }
	rounds, asked := 50, 0
	if testing.Short() {
		rounds = 5
	}
	d := newDice(p.seed, "rounds")
	even, few, many := 0, 0, 0
	for i := range rounds {
		switch {
		case i == 2:
			w.isolates(spare, true, true, time.Hour)
			if !w.untilIs(w.now+5*time.Minute, func() bool { return lag() >= 10_000 }) {
				t.Fatalf("cut off for 5m, and %d records behind", lag())
			}
			w.net.heal(func(int) bool { return true })
		case i%4 == 0:
			w.untilIs(w.now+time.Minute, func() bool { return lag() == 0 })
		case i%4 == 1:
			w.untilIs(w.now+time.Minute, func() bool { return lag() == 1 })
		case i%4 == 2:
			w.isolates(spare, true, true, time.Millisecond)
		default:
			w.isolates(spare, true, true, d.between(time.Second, 6*time.Second))
			w.until(w.now + d.between(0, 4*time.Second))
		}
		switch n := lag(); {
		case n == 0:
			even++
		case n == 1:
			few++
		case n >= 10_000:
			many++
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
	t.Logf("%d rounds; %d requests until all additions were granted; nothing behind %d times, one record %d, 10,000 %d", rounds, asked, even, few, many)
	if even == 0 || few == 0 || many == 0 {
		t.Errorf("nothing behind %d times, one record %d, 10,000 %d: want each", even, few, many)
	}
	if asked == rounds && !testing.Short() {
		t.Error("no addition was refused for a spare that was behind: the test shows nothing about that")
	}
	w.history.check(w)
	w.holds(t)
}
