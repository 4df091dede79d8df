package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// TestObserversCostNoLatency commits the same appends with no observer and with a hundred: in the world's time each takes
// as long. (What a hundred observers cost in processor time is for the benchmarks.)
func TestObserversCostNoLatency(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		alone, crowded := commitLatencies(t, seed, 0), commitLatencies(t, seed, 100)
		if !slices.Equal(alone, crowded) {
			t.Errorf("seed %d: latencies of %d appends differ: %v with no observer, %v with 100", seed, len(alone), alone, crowded)
		}
		slices.Sort(alone)
		slices.Sort(crowded)
		n := len(alone)
		t.Logf("seed %d: %d appends: median %v and %v, longest %v and %v", seed, n, alone[n/2], crowded[n/2], alone[n-1], crowded[n-1])
	}
}

// commitLatencies appends now and then at the leader of three voters, and tells how long each took to commit. Messages take
// exactly 1 ms: chance, of which a hundred observers use more than none, has no part in the network. Each disk has its own.
func commitLatencies(t *testing.T, seed uint64, observers int) []time.Duration {
	t.Helper()
	p := quiet(seed, 3)
	p.observers, p.clients = observers, 1
	p.delayMin, p.delayMean = time.Millisecond, 0
	w := newWorld(p, nil, nil)
	w.clients[0].closed = true
	w.boot()
	w.until(5 * time.Second)
	w.holds(t)
	leader, d := w.leader(), newDice(seed, "appends")
	if leader == nil || !w.followed() {
		t.Fatalf("seed %d: no leader that all follow after 5s: %s", seed, w.situation())
	}
	var took []time.Duration
	for i := range 50 {
		w.until(5*time.Second + time.Duration(i)*100*time.Millisecond + d.between(0, 50*time.Millisecond))
		from, end := w.now, leader.disk.log.end
		raw, err := record.NewBuilder(0, record.None).Append(0, []byte("key"), []byte(fmt.Sprint("value ", i))).Build(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := replica.CheckProduce(raw, record.Keyed, record.MaxSize)
		if err != nil {
			t.Fatal(err)
		}
		leader.asks("append", func(id raft.RequestID) replica.Event { return replica.Produce{ID: id, Batch: batch} })
		if !w.untilIs(w.now+time.Second, func() bool { return leader.seen.highWatermark > end }) {
			w.holds(t)
			t.Fatalf("seed %d: append %d is not committed within 1s: %s", seed, i, w.situation())
		}
		took = append(took, w.now-from)
	}
	w.holds(t)
	return took
}
