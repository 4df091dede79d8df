package sim

import (
	"flag"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// More public bug reports replayed, of links and machines that are slow rather than broken.

// PR-19 (KAFKA-14145): on a quiet log everybody hears of a commit after three trips of a message, not after a fetch has waited.
func TestPR19CommitIsHeardOfAtOnce(t *testing.T) {
	p := quiet(19, 3)
	p.observers, p.operations, p.clients = 2, 3, 1
	p.delayMin, p.delayMean = 10*time.Millisecond, 10*time.Microsecond
	w := settled(t, p)
	w.until(w.now + 3*time.Second)
	c := w.clients[0]
	longest := time.Duration(0)
	for range 50 {
		at, acked, before := w.now, w.counts.acked, w.leader().disk.log.end
		c.beginAppend()
		known := func() bool {
			for _, m := range w.members {
				if m.seen.highWatermark <= before {
					return false
				}
			}
			return w.counts.acked > acked
		}
		if !w.untilIs(at+2*time.Second, known) {
			w.holds(t)
			t.Fatalf("the append is not known everywhere after 2s: %s", w.situation())
		}
		longest = max(longest, w.now-at)
		w.until(w.now + 700*time.Millisecond) // all are parked again
	}
	w.holds(t)
	if longest > 60*time.Millisecond {
		t.Errorf("the longest of 50 appends took %v until all knew of its commit, want at most 60ms on links of 10ms", longest)
	}
}

// PR-26 (openraft 525): a voter that nobody could reach when the quorum began is as good as any once it listens.
func TestPR26LateVoterIsFoundAtOnce(t *testing.T) {
	for _, late := range []time.Duration{time.Second, 10 * time.Second, 10 * time.Minute} {
		p := quiet(26, 3)
		p.think, p.operations = time.Second, 1<<30
		w := newWorld(p, nil, nil)
		for _, m := range w.members {
			m.format()
		}
		for _, c := range w.clients {
			w.in(time.Second, c.turn)
		}
		last := w.members[2]
		w.members[0].start()
		w.members[1].start()
		w.until(late)
		if !w.untilIs(late+10*time.Second, w.followed) {
			w.holds(t)
			t.Fatalf("two of three elect nobody: %s", w.situation())
		}
		at := w.now
		last.start()
		caughtUp := func() bool {
			l := w.leader()
			return l != nil && last.seen.leader == l.id && last.disk.log.end == l.disk.log.end
		}
		w.untilIs(at+10*time.Second, caughtUp)
		w.holds(t)
		if took := w.now - at; took > 1500*time.Millisecond {
			t.Errorf("%v late, a voter took %v to follow, want at most 1.5s", late, took)
		}
	}
}

var flagLoadedHandoffs = flag.Int("loaded-handoffs", 200, "how often TestPR30HandoffsUnderLoad hands the lead over")

// PR-30 (hashicorp/raft 581, 493, 487): the lead is handed over again and again while clients append, and now and then the
// successor dies as it hears of it. No append is acknowledged that is not committed (the oracle looks), the first successor
// wins unless it died, and whoever leads takes appends.
func TestPR30HandoffsUnderLoad(t *testing.T) {
	rounds := *flagLoadedHandoffs
	if testing.Short() {
		rounds = min(rounds, 20)
	}
	p := quiet(30, 3)
	p.clients, p.window, p.think, p.operations = 12, 5, 4*time.Millisecond, 1<<30
	w := settled(t, p)
	d := newDice(p.seed, "handoffs")
	kills, won := 0, 0
	load, lasted := 0, time.Duration(0) // appends before the handoffs: what a killed successor costs is no load
	for round := range rounds {
		before, began := w.counts.acked, w.now
		w.until(w.now + d.between(50*time.Millisecond, 300*time.Millisecond))
		load, lasted = load+w.counts.acked-before, lasted+w.now-began
		if !w.untilIs(w.now+10*time.Second, w.followed) {
			w.holds(t)
			t.Fatalf("round %d: no rest before it: %s", round, w.situation())
		}
		old := w.leader()
		epoch := old.seen.epoch
		old.asks("hand over", func(id raft.RequestID) replica.Event {
			return replica.Core{Event: raft.Handoff{ID: id, Target: raft.NoReplica, ExpectEpoch: epoch}}
		})
		resigned := func() bool { _, ok := w.oracle.resignations[epoch]; return ok }
		w.untilIs(w.now+2*time.Second, resigned)
		w.holds(t)
		if !resigned() {
			t.Fatalf("round %d: the leader has not resigned: %+v", round, old.replica.Status().Handoff)
		}
		successor := w.member(w.oracle.resignations[epoch].successor)
		killed := d.chance(0.3)
		if killed {
			kills++
			successor.die(false)
			w.in(d.between(10*time.Millisecond, time.Second), successor.start)
		}
		over := func() bool { l := w.leader(); return l != nil && l.seen.epoch > epoch && l.seen.highWatermark > 0 }
		if !w.untilIs(w.now+10*time.Second, over) {
			w.holds(t)
			t.Fatalf("round %d: nobody leads 10s later: %s", round, w.situation())
		}
		if w.leader() == successor && !killed {
			won++
		}
		acked := w.counts.acked
		if !w.untilIs(w.now+5*time.Second, func() bool { return w.counts.acked > acked+5 }) {
			w.holds(t)
			t.Fatalf("round %d: appends do not go on: %s", round, w.situation())
		}
	}
	w.holds(t)
	perSecond := float64(load) / lasted.Seconds()
	t.Logf("%d handoffs, %.0f appends a second before them; the first successor won %d of the %d times that it lived", rounds, perSecond, won, rounds-kills)
	if won*100 < (rounds-kills)*99 {
		t.Errorf("the first successor won %d of %d handoffs without a kill", won, rounds-kills)
	}
	if perSecond < 1000 {
		t.Errorf("%.0f appends a second: the test shows nothing about load", perSecond)
	}
}

func (w *world) member(id raft.NodeID) *member {
	for _, m := range w.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

// PR-36 (strimzi 11613): leader and a follower get the processor for a part of each second only. A wake-up that comes late is
// no silent leader: what has arrived meanwhile is looked at before the timers (rule 7 of package raft).
func TestPR36StarvedProcessesKeepTheirLeader(t *testing.T) {
	starve := func(w *world, who []*member, pause, period, long time.Duration) {
		for until := w.now + long; w.now < until; {
			for _, m := range who {
				m.pause(pause)
			}
			w.until(w.now + period)
			w.holds(t)
		}
	}
	p := quiet(36, 3)
	p.operations = 1 << 30
	w := settled(t, p)
	leader, epoch := w.leader(), w.leader().seen.epoch
	both := []*member{leader, w.follower()}
	starve(w, both, 300*time.Millisecond, time.Second, 2*time.Minute)
	if leader.seen.role != raft.Leader || leader.seen.epoch != epoch {
		t.Fatalf("300ms of each second, and epoch %d of node %d has ended: %s", epoch, leader.id, w.situation())
	}
	starve(w, both, 1500*time.Millisecond, 2*time.Second, time.Minute)
	if last := w.oracle.elections[len(w.oracle.elections)-1].epoch; last > epoch+3 {
		t.Errorf("1.5 of each 2 seconds for a minute led from epoch %d to %d, want 3 at most", epoch, last)
	}
	acked := w.counts.acked
	if !w.untilIs(w.now+10*time.Second, func() bool { return w.followed() && w.counts.acked > acked }) {
		w.holds(t)
		t.Errorf("no service 10s after it ended: %s", w.situation())
	}
}
