//go:build e2e

package e2e

import (
	"bufio"
	"flag"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var starve = flag.Duration("starve", 20*time.Second, "how long TestPR36StarvedProcesses starves its processes, each of two ways")

// PR-36: the leader and a follower get little processor time, as from a CFS quota. For less than the timeouts at a stretch that
// changes nothing; for nearly as long it may cost an election now and then, and their metrics say why.
func TestPR36StarvedProcesses(t *testing.T) {
	q := start(t, 3)
	q.settled()
	l := begin(t, q.bootstrap(), 4)
	hungry := func(pause, period time.Duration) (epochs int32, late []float64) {
		t.Helper()
		leader, before := q.settled()
		follower := q.members[(leader.id+1)%3]
		late = []float64{leader.metric("quorum_late_ticks_total"), follower.metric("quorum_late_ticks_total")}
		for began := time.Now(); time.Since(began) < *starve; time.Sleep(period - pause) {
			var both sync.WaitGroup
			both.Go(func() { leader.freeze(pause) })
			both.Go(func() { follower.freeze(pause) })
			both.Wait()
		}
		total := l.total.Load()
		q.awaitFor(10*time.Second, "an append after it", func() bool { return l.total.Load() > total })
		_, after := q.settled()
		for i, p := range []*process{leader, follower} {
			late[i] = p.metric("quorum_late_ticks_total") - late[i]
		}
		t.Logf("e2e: frozen for %v of each %v, for %v: epoch %d to %d, late ticks %v", pause, period, *starve, before.Epoch, after.Epoch, late)
		return after.Epoch - before.Epoch, late
	}
	if n, _ := hungry(300*time.Millisecond, time.Second); n != 0 {
		t.Errorf("%d epochs by pauses of 300 ms, want none", n)
	}
	n, late := hungry(1500*time.Millisecond, 2*time.Second) // no deadline is later than a second
	if most := int32(math.Ceil(3 * starve.Minutes())); n > most {
		t.Errorf("%d epochs by pauses of 1.5 s, want %d at most", n, most)
	}
	if !(late[0] > 0 && late[1] > 0) {
		t.Errorf("%v late ticks by pauses of 1.5 s, want some of both", late)
	}
	l.end()
}

// metric reads one sample of /metrics; NaN if it is not there.
func (p *process) metric(sample string) float64 {
	p.t.Helper()
	r, err := quiet.Get("http://" + p.health() + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), sample+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
	}
	return math.NaN()
}
