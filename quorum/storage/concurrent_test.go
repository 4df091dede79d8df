package storage_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

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
