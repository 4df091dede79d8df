//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load is serial writers with one franz-go client: each appends its next number only when the last is acknowledged. No two
// records have the same key, so that compaction takes none.
type load struct {
	t       *testing.T
	brokers []string
	client  *kgo.Client
	stop    chan struct{}
	group   sync.WaitGroup
	total   atomic.Int64

	mu    sync.Mutex
	acked []int       // by writer
	at    []time.Time // of every acknowledgement
}

var value = bytes.Repeat([]byte("x"), 100)

func begin(t *testing.T, brokers []string, writers int) *load {
	t.Helper()
	l := &load{t: t, brokers: brokers, stop: make(chan struct{}), acked: make([]int, writers)}
	l.client = dial(t, brokers)
	for w := range writers {
		l.group.Go(func() { l.write(w) })
	}
	return l
}

// fromStart reads the topic from its beginning.
func fromStart() kgo.Opt {
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}})
}

// dial makes a client with its defaults, but for the back-off after a failure, which is 10 ms, also for asking anew who
// leads. So what is measured is the quorum's gap and not the client's patience.
func dial(t *testing.T, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
		kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (l *load) write(w int) {
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		err := l.client.ProduceSync(ctx, &kgo.Record{Key: fmt.Appendf(nil, "%d/%d", w, n), Value: value}).FirstErr()
		cancel()
		if err != nil {
			l.t.Errorf("writer %d, number %d: %v", w, n, err)
			return
		}
		l.total.Add(1)
		l.mu.Lock()
		l.acked[w] = n + 1
		l.at = append(l.at, time.Now())
		l.mu.Unlock()
	}
}

// run lets the writers work for a while, and in any case until an append is acknowledged.
func (l *load) run(d time.Duration) {
	l.t.Helper()
	before := l.total.Load()
	time.Sleep(d) // the load itself is what is waited for
	for deadline := time.Now().Add(time.Minute); l.total.Load() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatal("no append was acknowledged for a minute")
		}
	}
}

// longestGap is the longest time without an acknowledgement between two instants.
func (l *load) longestGap(from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, gap := time.Time{}, time.Duration(0)
	for _, at := range l.at {
		if at.After(to) {
			break
		}
		if !at.Before(from) && !last.IsZero() {
			gap = max(gap, at.Sub(last))
		}
		last = at
	}
	return gap
}

// end stops the writers and reads everything back: every number of every writer once and in order.
func (l *load) end() {
	l.t.Helper()
	close(l.stop)
	l.group.Wait()
	l.client.Close()

	reader := dial(l.t, l.brokers, fromStart())
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	want, got := 0, 0
	for _, n := range l.acked {
		want += n
	}
	next := make([]int, len(l.acked))
	for got < want {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			l.t.Fatalf("read %d of %d records in 5 minutes: acknowledged records are lost", got, want)
		}
		if err := fetches.Err(); err != nil {
			l.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			w, n := numbers(l.t, r)
			if n != next[w] {
				l.t.Fatalf("writer %d: number %d at offset %d, expected %d: lost, doubled or out of order", w, n, r.Offset, next[w])
			}
			next[w]++
			got++
		})
	}
	if !slices.Equal(next, l.acked) {
		l.t.Errorf("acknowledged %v, in the log %v", l.acked, next)
	}
	l.t.Logf("%d records acknowledged, lost=0 doubled=0 out of order=0", want)
}

// numbers are a record's writer and its number.
func numbers(t *testing.T, r *kgo.Record) (w, n int) {
	t.Helper()
	if _, err := fmt.Sscanf(string(r.Key), "%d/%d", &w, &n); err != nil {
		t.Fatalf("a key %q at offset %d that nobody wrote: %v", r.Key, r.Offset, err)
	}
	return w, n
}

// distribution prints sorted durations as minimum, median, 90th percentile and maximum, and returns the median.
func distribution(t *testing.T, what string, gaps []time.Duration) time.Duration {
	slices.Sort(gaps)
	at := func(share float64) time.Duration { return gaps[min(int(share*float64(len(gaps))), len(gaps)-1)] }
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
	t.Logf("%s: longest gap between two acknowledged appends, ms: min %s  median %s  p90 %s  max %s  (n=%d)",
		what, ms(gaps[0]), ms(at(0.5)), ms(at(0.9)), ms(gaps[len(gaps)-1]), len(gaps))
	return at(0.5)
}
