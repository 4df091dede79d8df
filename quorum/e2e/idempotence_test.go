//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var idempotence = flag.Duration("idempotence", 20*time.Second, "how long TestIdempotentProducersWhileLeadersAreKilled goes on")

// Leaders are killed one after the other under load, while all members make snapshots and clean their logs behind them. What
// franz-go's idempotent producer retries is in the log once and in order: as somebody sees it who reads along, and as the
// compacted topic has it in the end.
func TestIdempotentProducersWhileLeadersAreKilled(t *testing.T) {
	// Every key is of its own, so a snapshot is as large as all that was written: the longer, the fewer.
	between := 128 << 10 * max(1, int64(*idempotence/(20*time.Second)))
	q := start(t, 3, "metadata.log.segment.bytes=1048576", "metadata.max.retention.bytes=1",
		fmt.Sprintf("metadata.log.max.record.bytes.between.snapshots=%d", between))
	q.settled()
	l := begin(t, q.bootstrap(), *writers)
	a := l.audit()
	snapshots := make([]map[int64]bool, len(q.members)) // offsets of those seen, by member
	kills, logStart := 0, int64(0)
	// A busy machine takes longer to write enough for a log to be cleaned.
	until, latest := time.Now().Add(*idempotence), time.Now().Add(6**idempotence)
	for now := time.Now(); now.Before(until) || logStart == 0 && now.Before(latest); now = time.Now() {
		kills++
		leader, _ := q.settled()
		l.run(time.Duration(rand.IntN(800)) * time.Millisecond)
		leader.kill()
		l.run(time.Duration(rand.IntN(200)) * time.Millisecond)
		leader.start()
		for i, p := range q.members {
			if s := p.status(); s != nil && s.Snapshot != nil {
				if snapshots[i] == nil {
					snapshots[i] = map[int64]bool{}
				}
				snapshots[i][s.Snapshot.Offset] = true
				logStart = max(logStart, s.LogStartOffset)
			}
		}
	}
	q.settled()
	l.run(*steady)
	l.end()
	_, view := q.settled()
	a.end(view.HighWatermark)
	least := len(snapshots[0])
	for _, seen := range snapshots {
		least = min(least, len(seen))
	}
	if least == 0 || logStart == 0 {
		t.Errorf("a member made %d snapshots, and all logs begin at %d: want snapshots and cleaning all the time", least, logStart)
	}
	t.Logf("e2e: idempotence for %v: kills=%d epochs=%d records=%d lost=0 doubled=0 out-of-order=0; snapshots seen at least=%d, of %d bytes in the end, one log starts at %d of %d; read along %d offsets, %d compacted before they were read",
		*idempotence, kills, view.Epoch, l.total.Load(), least, view.Snapshot.Bytes, logStart, view.LogEndOffset, a.next-a.missed, a.missed)
}

// audit reads the log along with those who write it, so that it sees what compaction removes later: a record that stands
// there twice.
type audit struct {
	l      *load
	client *kgo.Client
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	next   int64 // offset
	missed int64 // offsets that were compacted before they were read
	seen   []int // by writer: its next number
}

func (l *load) audit() *audit {
	l.t.Helper()
	a := &audit{l: l, seen: make([]int, len(l.acked))}
	a.client = dial(l.t, l.brokers, fromStart(), kgo.KeepControlRecords())
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.done.Go(func() {
		for ctx.Err() == nil {
			for _, r := range a.client.PollFetches(ctx).Records() { // errors are retried
				a.take(r)
			}
		}
	})
	l.t.Cleanup(a.stop)
	return a
}

func (a *audit) stop() {
	a.cancel()
	a.done.Wait()
	a.client.Close()
}

func (a *audit) take(r *kgo.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Offset < a.next {
		a.l.t.Errorf("offset %d was read after %d", r.Offset, a.next-1)
	}
	a.missed += r.Offset - a.next
	a.next = r.Offset + 1
	if r.Attrs.IsControl() {
		return
	}
	switch w, n := numbers(a.l.t, r); {
	case n < a.seen[w]:
		a.l.t.Errorf("writer %d: number %d at offset %d again, or after number %d", w, n, r.Offset, a.seen[w]-1)
	default: // what is left out was compacted, or is found missing in the end
		a.seen[w] = n + 1
	}
}

// end waits until all is read.
func (a *audit) end(highWatermark int64) {
	a.l.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		a.mu.Lock()
		next := a.next
		a.mu.Unlock()
		if next >= highWatermark {
			break
		}
		if time.Now().After(deadline) {
			a.l.t.Fatalf("read along up to offset %d of %d", next, highWatermark)
		}
	}
	a.stop()
}
