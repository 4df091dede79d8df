package server

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// exposition writes Prometheus' text format. It is all that would be used of a client library of eight modules.
type exposition struct {
	w    io.Writer
	last string // name of the family being written
}

func (e *exposition) head(name, kind, help string) {
	if name != e.last {
		fmt.Fprintf(e.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		e.last = name
	}
}

// gauge writes one sample; labels are names and values in turn.
func (e *exposition) gauge(name, help string, value float64, labels ...string) {
	e.head(name, "gauge", help)
	e.sample(name, value, labels)
}

func (e *exposition) counter(name, help string, value uint64, labels ...string) {
	e.head(name, "counter", help)
	e.sample(name, float64(value), labels)
}

func (e *exposition) sample(name string, value float64, labels []string) {
	var b strings.Builder
	b.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		if i == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.WriteString(labels[i])
		b.WriteString(`="`)
		b.WriteString(escaper.Replace(labels[i+1]))
		b.WriteByte('"')
	}
	if len(labels) > 0 {
		b.WriteByte('}')
	}
	fmt.Fprintf(e.w, "%s %s\n", b.String(), number(value))
}

// number writes a value. An offset or an epoch is an integer, and stays one to whoever reads it, as long as a float64 holds
// it exactly: not 1e+06.
func number(value float64) string {
	format := byte('g')
	if value == math.Trunc(value) && math.Abs(value) <= 1<<53 {
		format = 'f'
	}
	return strconv.FormatFloat(value, format, -1, 64)
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (e *exposition) histogram(name, help string, h *histogram) {
	e.head(name, "histogram", help)
	cumulative := uint64(0)
	for i, bound := range bounds {
		cumulative += h.counts[i].Load()
		e.sample(name+"_bucket", float64(cumulative), []string{"le", number(bound.Seconds())})
	}
	cumulative += h.counts[len(bounds)].Load()
	e.sample(name+"_bucket", float64(cumulative), []string{"le", "+Inf"})
	e.sample(name+"_sum", time.Duration(h.sum.Load()).Seconds(), nil)
	e.sample(name+"_count", float64(cumulative), nil)
}

// bounds of all histograms: from a fast disk's fsync to a slow one's worst moment.
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// histogram counts durations by size. Any goroutine may use it.
type histogram struct {
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// sampled keeps values as Kafka's metrics do: of two windows of 30 s, the full one and the one that is filling.
type sampled struct {
	mu      sync.Mutex
	windows [2]window
}

type window struct {
	since      time.Time
	count      float64
	sum, worst float64
}

const windowSize = 30 * time.Second

func (s *sampled) add(value float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.turn(now)
	w := &s.windows[1]
	w.count++
	w.sum += value
	w.worst = max(w.worst, value)
}

// turn begins a new window if the filling one is full.
func (s *sampled) turn(now time.Time) {
	switch age := now.Sub(s.windows[1].since); {
	case age >= 2*windowSize:
		s.windows = [2]window{{since: now}, {since: now}}
	case age >= windowSize:
		s.windows = [2]window{s.windows[1], {since: now}}
	}
}

func (s *sampled) read() window {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(time.Now())
	a, b := s.windows[0], s.windows[1]
	return window{since: a.since, count: a.count + b.count, sum: a.sum + b.sum, worst: max(a.worst, b.worst)}
}

// avg and max are NaN while there is no value, as in Kafka.
func (s *sampled) avg() float64 {
	w := s.read()
	return w.sum / w.count // 0/0 is NaN
}

func (s *sampled) max() float64 {
	w := s.read()
	if w.count == 0 {
		return math.NaN()
	}
	return w.worst
}

// rate is the sum a second.
func (s *sampled) rate() float64 {
	w := s.read()
	return w.sum / max(time.Since(w.since), time.Second).Seconds()
}

// share is rate for values that are seconds: how much of the time they are.
func (s *sampled) share() float64 { return min(s.rate(), 1) }
