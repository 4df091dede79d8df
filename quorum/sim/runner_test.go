package sim

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// drawn are the plans of n seeds.
func drawn(first uint64, n int) func(int) (plan, bool) {
	return func(i int) (plan, bool) { return draw(first + uint64(i)), i < n }
}

// runAll runs plans on all cores, one world each, until there are no more or one fails; then that one is run again, to be
// told. A run that takes long says every ten seconds how far it is.
func runAll(t *testing.T, next func(i int) (plan, bool)) *tally {
	t.Helper()
	total := &tally{began: time.Now()}
	var lock sync.Mutex // next, total, failed
	var failed *plan
	taken, told := 0, total.began
	take := func() (p plan, ok bool) {
		lock.Lock()
		defer lock.Unlock()
		if failed != nil {
			return p, false
		}
		p, ok = next(taken)
		taken++
		return p, ok
	}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p, ok := take(); ok; p, ok = take() {
				w := newWorld(p, nil, nil)
				v := w.run()
				lock.Lock()
				total.add(w)
				if v != nil && failed == nil {
					failed = &p
				}
				if now := time.Now(); now.Sub(told) >= 10*time.Second {
					told = now
					t.Log(total.progress())
				}
				lock.Unlock()
			}
		})
	}
	workers.Wait()
	t.Log(total.String())
	if failed != nil {
		t.Fatal(tell(*failed))
	}
	return total
}

// tell runs a plan that fails once more, for its story.
func tell(p plan) string {
	var trace bytes.Buffer
	w := newWorld(p, nil, newTrace(&trace))
	v := w.run()
	if v == nil {
		return fmt.Sprintf("%vfailed once and not again: something is not drawn from the seed", p)
	}
	return fmt.Sprintf("%v\n%v\n%s%s\nrepeat with the whole trace: make sim SEED=%d", v, p, traceHead, lastLines(trace.Bytes(), 60), p.seed)
}

// tally adds up what many runs have seen.
type tally struct {
	began   time.Time
	seeds   int
	events  int
	virtual time.Duration
	counts  counts
}

func (s *tally) add(w *world) {
	s.seeds++
	s.events += w.events
	s.virtual += w.now
	s.counts.add(w.counts)
}

func (s *tally) progress() string {
	took := time.Since(s.began)
	return fmt.Sprintf("%d seeds, %.1f a second; %.1f hours simulated", s.seeds, float64(s.seeds)/took.Seconds(), s.virtual.Hours())
}

// String is the report: what was done, and how often what was seen.
func (s *tally) String() string {
	var b strings.Builder
	took := time.Since(s.began)
	c := &s.counts
	fmt.Fprintf(&b, "%s in %v on %d cores (%.0f times real time)\n", s.progress(), took.Round(10*time.Millisecond), runtime.GOMAXPROCS(0), s.virtual.Seconds()/took.Seconds())
	fmt.Fprintf(&b, "checked: %d events, %d elections, %d batches committed, %d appends acknowledged, %d barrier reads, %d operations in histories (%d histories too hard)\nhealed: a new append committed within %v at the latest\n",
		s.events, c.elections, c.committed, c.acked, c.reads, c.operations, c.unknown, c.commitAfter.Round(time.Millisecond))
	table(&b, "fault", c.faults[:], func(i int) string { return faultKind(i).String() })
	table(&b, "seen", c.marks[:], func(i int) string { return mark(i).String() })
	return b.String()
}

// table prints numbers in three columns.
func table(b *strings.Builder, head string, numbers []int, name func(int) string) {
	const columns = 3
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	rows := (len(numbers) + columns - 1) / columns
	for row := range rows {
		fmt.Fprintf(w, "  %s", map[bool]string{true: head + ":"}[row == 0])
		for i := row; i < len(numbers); i += rows {
			fmt.Fprintf(w, "\t%s\t%d", name(i), numbers[i])
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
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
