package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// TestReadersBesideTheOwner: readers below the high watermark see the same intact batches at every time while the owner
// appends, rolls, truncates what is above it, and another goroutine flushes. Run it with the race detector.
func TestReadersBesideTheOwner(t *testing.T) {
	dir := t.TempDir()
	if err := storage.Format(vfs.OS, dir, formatOptions()); err != nil {
		t.Fatal(err)
	}
	o := opts
	o.SegmentBytes = 20_000
	d, err := storage.Open(vfs.OS, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	var highWatermark atomic.Int64
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { // clients
			var buf []byte
			for from := int64(0); !done.Load(); {
				upTo := highWatermark.Load()
				if from >= upTo {
					from = 0
				}
				var err error
				if buf, err = d.Log.Read(buf, from, 3000, upTo); err != nil {
					t.Error(err)
					return
				}
				for b, err := range record.All(buf) {
					if err != nil || b.BaseOffset != from || b.Epoch != raft.Epoch(1+b.BaseOffset/100) {
						t.Errorf("read at %d below %d: %+v, %v", from, upTo, b.Header, err)
						return
					}
					from = b.NextOffset()
				}
			}
		})
	}
	wg.Go(func() { // lookups
		for !done.Load() {
			upTo := highWatermark.Load()
			if _, _, err := d.Log.OffsetForTimestamp(1000+upTo/2, upTo); err != nil {
				t.Error(err)
				return
			}
			d.Log.EndOffsetForEpoch(3)
		}
	})
	wg.Go(func() { // the flusher, and whoever writes the file committed
		for !done.Load() {
			if _, err := d.Log.Flush(); err != nil {
				t.Error(err)
				return
			}
			if err := d.WriteCommitted(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	now := raft.Instant(0)
	for next := int64(0); next < 300; now += 1e7 {
		// An offset's epoch is a function of it, but for what is above the high watermark and about to go.
		for range 5 {
			mustAppend(t, d, batchOf(next, raft.Epoch(1+next/100), 2, 100))
			next += 2
		}
		mustAppend(t, d, batchOf(next, raft.Epoch(50+next/100), 3, 2000), batchOf(next+3, raft.Epoch(50+next/100), 3, 10_000))
		if err := d.Log.Truncate(next); err != nil {
			t.Fatal(err)
		}
		highWatermark.Store(next)
		d.MarkCommitted(now, next)
	}
	done.Store(true)
	wg.Wait()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Log.Read(nil, 0, 100, 100); err == nil {
		t.Error("read after close")
	}
	if _, err := d.Log.Flush(); err == nil || errors.Is(err, storage.ErrDiskFull) {
		t.Errorf("flush after close: %v", err)
	}
}

// TestReadersBesideCompactionAndCleaning: clients that read from anywhere meet every key that they should, and nothing twice
// or backwards, while the owner appends and checkpoints come and go. Run it with the race detector.
func TestReadersBesideCompactionAndCleaning(t *testing.T) {
	dir := t.TempDir()
	if err := storage.Format(vfs.OS, dir, formatOptions()); err != nil {
		t.Fatal(err)
	}
	o := opts
	o.SegmentBytes = 5000
	d, err := storage.Open(vfs.OS, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	var highWatermark atomic.Int64
	var done atomic.Bool
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() { // clients; the last one gets slow now and then
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for !done.Load() {
				from, last := rng.Int64N(highWatermark.Load()+1), int64(-1)
				seen := map[string]int64{}
				upTo := highWatermark.Load()
				for at := from; at < upTo; {
					data, err := d.ReadFrom(nil, at, 1+rng.IntN(3000), upTo)
					if newer := highWatermark.Load(); len(data) == 0 && upTo < newer {
						upTo = newer // all up to there is compacted away by now
						continue
					}
					if err != nil || len(data) == 0 {
						t.Errorf("read at %d below %d: %d bytes, %v", at, upTo, len(data), err)
						return
					}
					for b, err := range record.All(data) {
						if err != nil || b.NextOffset() <= at || b.IsControl() {
							t.Errorf("read at %d: %+v, %v", at, b.Header, err)
							return
						}
						at = b.NextOffset()
						for r, err := range b.Records() {
							if err != nil || r.Offset <= last || string(r.Key) != fmt.Sprintf("key-%d", r.Offset%7) {
								t.Errorf("record %d after %d: %q, %v", r.Offset, last, r.Key, err)
								return
							}
							last = r.Offset
							seen[string(r.Key)] = r.Offset
						}
					}
					if n == 2 {
						runtime.Gosched()
					}
				}
				// Seven keys take turns: below any limit each stands in the last seven offsets, or newer by now.
				for key, offset := range seen {
					if upTo-from >= 14 && offset < upTo-7 && offset < highWatermark.Load()-2000 {
						t.Errorf("read from %d below %d: newest of %s is %d", from, upTo, key, offset)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for !done.Load() {
			if infos := d.Checkpoints(); len(infos) > 0 {
				info := infos[len(infos)-1]
				if _, _, err := d.ReadCheckpoint(nil, info.ID, info.Size/2, 500); err != nil && !errors.Is(err, storage.ErrNoCheckpoint) {
					t.Errorf("read checkpoint: %v", err)
				}
			}
			if _, _, err := d.OffsetForTimestamp(1000, highWatermark.Load()); err != nil {
				t.Error(err)
			}
			d.Uncovered()
		}
	})
	var jobs sync.WaitGroup
	var compacting atomic.Bool
	for i := range 400 {
		mustAppend(t, d, overwriting(d.Log.End(), 1, 3, 50))
		if i%3 == 0 {
			highWatermark.Store(mustFlush(t, d))
		}
		if i%20 == 10 && compacting.CompareAndSwap(false, true) {
			c, err := d.BeginCompaction(storage.CompactOptions{UpTo: highWatermark.Load()})
			if err != nil {
				t.Fatal(err)
			}
			jobs.Go(func() {
				defer compacting.Store(false)
				if _, err := c.Run(); err != nil {
					t.Error(err)
				}
			})
		}
		if i%7 == 0 {
			now := raft.Instant(time.Duration(i) * time.Minute)
			if c := d.BeginClean(storage.CleanOptions{Now: now, HighWatermark: highWatermark.Load(), MaxBytes: 1}); c != nil {
				jobs.Go(func() {
					if err := c.Run(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	done.Store(true)
	wg.Wait()
	jobs.Wait()
	if d.Log.Start() == 0 || len(d.Checkpoints()) == 0 {
		t.Error("nothing was cleaned")
	}
	mustClose(t, d)
}
