package sim

import (
	"bufio"
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	flagSeed  = flag.Uint64("seed", 0, "run only this seed, with a trace")
	flagSeeds = flag.Int("seeds", 200, "how many fresh seeds to run")
	flagHours = flag.Float64("hours", 0, "run fresh seeds for so long instead, or until one fails")
)

// TestSimulation runs fresh seeds, or one.
//
// Scenarios: PR-01..PR-14, PR-20, PR-22, PR-23, PR-31, PR-34, PR-37, MB-02, MB-08, MB-16, ST-22 with random timing, RL-08;
// oracles O1 to O6.
func TestSimulation(t *testing.T) {
	if *flagSeed != 0 {
		var trace bytes.Buffer
		w := newWorld(draw(*flagSeed), nil, newTrace(&trace))
		v := w.run()
		t.Logf("%v\n%s%s", w.plan, traceHead, &trace)
		if v != nil {
			t.Fatalf("%v", v)
		}
		return
	}
	// The first seed is random, so that each run of the suite looks somewhere else; it is printed, so that nothing is lost.
	first := rand.Uint64() >> 1
	if *flagHours > 0 {
		end := time.Now().Add(time.Duration(*flagHours * float64(time.Hour)))
		t.Logf("fresh seeds from %d until %s", first, end.Format(time.DateTime))
		runAll(t, func(i int) (plan, bool) { return draw(first + uint64(i)), time.Now().Before(end) })
		return
	}
	n := *flagSeeds
	if testing.Short() {
		n = min(n, 30)
	}
	t.Logf("%d seeds from %d", n, first)
	runAll(t, drawn(first, n))
}

// TestSeedsThatFailed repeats what has failed once, for ever.
func TestSeedsThatFailed(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var plans []plan
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		seed, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil || len(fields) != 2 {
			t.Fatalf("testdata/seeds.txt: %q, want a seed and the generation of plans that it failed in", text)
		}
		generation, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatalf("testdata/seeds.txt: %v", err)
		}
		plans = append(plans, drawAs(seed, generation))
	}
	runAll(t, func(i int) (plan, bool) {
		if i < len(plans) {
			return plans[i], true
		}
		return plan{}, false
	})
}

// TestEverythingHappens insists that seeds come across all faults and all odd situations, not only the first hundred.
func TestEverythingHappens(t *testing.T) {
	if testing.Short() {
		t.Skip("needs many seeds")
	}
	total := runAll(t, drawn(20_000, 200))
	for k, n := range total.counts.faults {
		if n < 10 {
			t.Errorf("fault %v happened %d times, want 10 at least", faultKind(k), n)
		}
	}
	for k, n := range total.counts.marks {
		if n < 3 && mark(k) != flushedTooLate && mark(k) != nobodyElectable { // they have tests of their own
			t.Errorf("%v: seen %d times, want 3 at least", mark(k), n)
		}
	}
}

// TestLogsThatElectNobody: a disk is lost with records that only an observer has, while a follower has a newer set in which
// that observer votes. No demand is made of such a quorum; but one that can elect somebody is no such quorum.
func TestLogsThatElectNobody(t *testing.T) {
	w := newWorld(drawAs(1866071330813075957, 9), nil, newTrace(nil))
	if v := w.run(); v != nil || w.counts.marks[nobodyElectable] != 1 {
		t.Fatalf("%v; seen %d times, want once", v, w.counts.marks[nobodyElectable])
	}
	if !w.leaderless() {
		t.Error("somebody can be elected by now")
	}
	for _, m := range w.members {
		if m.id == 3 { // whose vote is wanted, and who has more than the candidate
			m.disk.log = shadow{}
		}
	}
	if w.leaderless() {
		t.Error("nobody has more than the candidate, and nobody can be elected")
	}
}

// TestSameSeedSameTrace shows that a seed says it all.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := range uint64(10) {
		hash := func() uint64 {
			trace := newTrace(nil)
			_ = newWorld(draw(1000+seed), nil, trace).run()
			return trace.hash
		}
		if a, b := hash(), hash(); a != b {
			t.Errorf("seed %d: trace hash %x, then %x", 1000+seed, a, b)
		}
	}
}
