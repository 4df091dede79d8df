package sim

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
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
)

// TestSimulation runs fresh seeds, or one.
//
// Scenarios: PR-01..PR-11, PR-13, PR-20, PR-22, PR-23, PR-34 with random timing, RL-08; oracles O1, O2, O3, O5, O6.
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
	n := *flagSeeds
	if testing.Short() {
		n = min(n, 30)
	}
	// The first seed is random, so that each run of the suite looks somewhere else; it is printed, so that nothing is lost.
	first := rand.Uint64() >> 1
	t.Logf("%d seeds from %d", n, first)
	var total tally
	for i := range uint64(n) {
		total.run(t, first+i)
	}
	t.Log(total.String())
}

// TestSeedsThatFailed repeats what has failed once, for ever.
func TestSeedsThatFailed(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var total tally
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		number, _, _ := strings.Cut(lines.Text(), "#")
		if number = strings.TrimSpace(number); number == "" {
			continue
		}
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatalf("testdata/seeds.txt: %v", err)
		}
		total.run(t, seed)
	}
	t.Log(total.String())
}

// TestEverythingHappens insists that seeds come across all faults and all odd situations, not only the first hundred.
func TestEverythingHappens(t *testing.T) {
	if testing.Short() {
		t.Skip("needs many seeds")
	}
	var total tally
	for i := range uint64(150) {
		total.run(t, 20_000+i)
	}
	for k, n := range total.counts.faults {
		if n < 10 {
			t.Errorf("fault %v happened %d times, want 10 at least", faultKind(k), n)
		}
	}
	for k, n := range total.counts.marks {
		if n < 3 {
			t.Errorf("%v: seen %d times, want 3 at least", mark(k), n)
		}
	}
	t.Log(total.String())
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

// tally adds up what many seeds have seen.
type tally struct {
	seeds   int
	events  int
	unknown int
	virtual time.Duration
	real    time.Duration
	counts  counts
}

// run runs a seed.
func (s *tally) run(t *testing.T, seed uint64) {
	t.Helper()
	s.runPlan(t, draw(seed))
}

// runPlan runs a plan. If it fails, it is run again to be told.
func (s *tally) runPlan(t *testing.T, p plan) {
	t.Helper()
	start := time.Now()
	w := newWorld(p, nil, nil)
	v := w.run()
	s.seeds++
	s.events += w.events
	s.unknown += w.history.unknown
	s.virtual += w.now
	s.real += time.Since(start)
	s.counts.add(w.counts)
	if v == nil {
		return
	}
	var trace bytes.Buffer
	_ = newWorld(p, nil, newTrace(&trace)).run() // the same again
	t.Fatalf("%v\n%v\n%s%s\nrepeat: go test ./quorum/sim -run TestSimulation -seed=%d -v\n   or : make sim SEED=%d",
		v, w.plan, traceHead, lastLines(trace.Bytes(), 60), p.seed, p.seed)
}

func (s *tally) String() string {
	var b strings.Builder
	c := &s.counts
	fmt.Fprintf(&b, "%d seeds, %v simulated in %v (%.0f times real time), %d events, %d elections, %d appends acknowledged, %d barrier reads, %d histories too hard",
		s.seeds, s.virtual.Round(time.Second), s.real.Round(time.Millisecond), s.virtual.Seconds()/max(s.real.Seconds(), 1e-9), s.events, c.elections, c.acked, c.reads, s.unknown)
	fmt.Fprintf(&b, "\nfaults:")
	for k, n := range c.faults {
		fmt.Fprintf(&b, " %v %d;", faultKind(k), n)
	}
	fmt.Fprintf(&b, "\nseen:")
	for k, n := range c.marks {
		fmt.Fprintf(&b, " %v %d;", mark(k), n)
	}
	return b.String()
}

// lastLines is the end of a trace: what led to the failure.
func lastLines(b []byte, n int) []byte {
	at := len(b)
	for range n + 1 {
		i := bytes.LastIndexByte(b[:at], '\n')
		if i < 0 {
			return b
		}
		at = i
	}
	return b[at+1:]
}
