package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// TestHandoffsAreShort hands leadership over again and again in a world without faults, under load: by request, and by
// asking the leader to stop. Each takes exactly one election, and the first successor named wins it.
// (Kafka: with 4 voters or more the first successor never wins, and 5 take 132 ms.)
func TestHandoffsAreShort(t *testing.T) {
	for _, voters := range []int{2, 3, 4, 5, 7} {
		for _, how := range []string{"handoff", "stop"} {
			t.Run(fmt.Sprintf("%d voters, %s", voters, how), func(t *testing.T) {
				rounds := 30
				if testing.Short() {
					rounds = 10
				}
				testHandoffs(t, voters, rounds, how == "stop")
			})
		}
	}
}

func testHandoffs(t *testing.T, voters, rounds int, stop bool) {
	p := quiet(uint64(voters), voters)
	p.operations, p.think = 1<<30, 40*time.Millisecond
	w := settled(t, p)
	d := newDice(p.seed, "handoffs")
	var took []time.Duration
	first := 0
	for range rounds {
		w.until(w.now + d.between(time.Second, 1500*time.Millisecond))
		if !w.untilIs(w.now+10*time.Second, w.followed) {
			w.holds(t)
			t.Fatalf("no rest before the handoff: %s", w.situation())
		}
		old := w.leader()
		epoch, before := old.seen.epoch, w.counts.elections
		if stop {
			old.gracefulStop(300 * time.Millisecond)
		} else {
			old.asks("hand over", func(id raft.RequestID) replica.Event {
				return replica.Core{Event: raft.Handoff{ID: id, Target: raft.NoReplica, ExpectEpoch: epoch, MaxPause: 250 * time.Millisecond, CatchUpTimeout: time.Second}}
			})
		}
		over := func() bool { l := w.leader(); return l != nil && l.seen.epoch > epoch && w.followed() }
		if !w.untilIs(w.now+5*time.Second, over) {
			w.holds(t)
			t.Fatalf("no new leader within 5s: %s", w.situation())
		}
		w.holds(t)
		r, resigned := w.oracle.resignations[epoch]
		e := w.oracle.elections[len(w.oracle.elections)-1]
		if !resigned || w.counts.elections != before+1 || e.epoch != epoch+1 {
			t.Fatalf("handoff from epoch %d: resigned %v, %d elections, now epoch %d; want one election, epoch %d", epoch, resigned, w.counts.elections-before, e.epoch, epoch+1)
		}
		took = append(took, e.at-r.at)
		if e.leader == r.successor {
			first++
		}
	}
	slices.Sort(took)
	t.Logf("%d handoffs: the first successor won %d; EndQuorumEpoch to new leader: median %v, longest %v",
		rounds, first, took[len(took)/2].Round(10*time.Microsecond), took[len(took)-1].Round(10*time.Microsecond))
	if first != rounds {
		t.Errorf("the first successor won %d of %d handoffs", first, rounds)
	}
	if longest := took[len(took)-1]; longest > 100*time.Millisecond {
		t.Errorf("the longest handoff took %v, want at most 100ms", longest)
	}
	w.history.check(w)
	w.holds(t)
}
