package storage_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

func TestAppendFlushReopen(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	if s := d.LogState(); s.End != 0 || len(s.Control) != 2 || s.Control[1].Offset != -1 {
		t.Fatalf("log state of a new directory: %+v", s)
	}
	leaderChange := record.EncodeControl(0, 1, 1000, raft.LeaderChange{Leader: 1, Voters: []raft.NodeID{1}, Granting: []raft.NodeID{1}},
		raft.KRaftVersion{Version: 1}, raft.Voters{Set: voters()})
	if err := d.Log.AssignEpoch(raft.OffsetAndEpoch{Offset: 0, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, d, leaderChange, batch(3, 1, 2))
	if got := d.Log.FlushedEnd(); got != 0 {
		t.Errorf("flushed end before the flush: %d", got)
	}
	if end := mustFlush(t, d); end != 5 || d.Log.FlushedEnd() != 5 {
		t.Errorf("flush returned %d, flushed end %d, want 5", end, d.Log.FlushedEnd())
	}
	mustAppend(t, d, batch(5, 3, 1))
	want := content(t, d, 6)
	mustClose(t, d)

	var seen []int64
	o := opts
	o.OnBatch = func(b record.Batch) { seen = append(seen, b.BaseOffset) }
	d = open(t, fsys, o)
	defer d.Abandon()
	s := d.LogState()
	if s.Start != 0 || s.End != 6 || !slices.Equal(s.Epochs, []raft.OffsetAndEpoch{{Offset: 0, Epoch: 1}, {Offset: 5, Epoch: 3}}) {
		t.Errorf("log state: %+v", s)
	}
	if n := len(s.Control); n != 4 || s.Control[2].Offset != 1 || s.Control[3].Offset != 2 {
		t.Errorf("control records: %+v", s.Control)
	}
	if !slices.Equal(seen, []int64{0, 3, 5}) {
		t.Errorf("OnBatch saw %v", seen)
	}
	if !bytes.Equal(content(t, d, 6), want) || d.Recovery().EpochsRebuilt {
		t.Errorf("content differs, or epochs were rebuilt: %+v", d.Recovery())
	}
}

func TestReadReturnsWholeBatches(t *testing.T) {
	o := opts
	o.SegmentBytes = 3000
	d := open(t, formatted(t), o)
	defer d.Abandon()
	var starts []int64
	var sizes []int
	for next, i := int64(0), 0; next < 400; i++ {
		n := 1 + i%4
		b := batchOf(next, 1, n, 10+i*7%600)
		mustAppend(t, d, b)
		starts, sizes = append(starts, next), append(sizes, len(b))
		next += int64(n)
	}
	starts = append(starts, d.Log.End())
	if d.Log.Segments() < 5 {
		t.Fatalf("%d segments: the test wants several", d.Log.Segments())
	}
	end := d.Log.End()
	var buf []byte
	for offset := range end {
		for _, upTo := range []int64{offset + 1, offset + 2, offset + 17, end} {
			for _, maxBytes := range []int{1, 500, 5000} {
				var err error
				if buf, err = d.Log.Read(buf, offset, maxBytes, upTo); err != nil {
					t.Fatalf("read(%d, %d, %d): %v", offset, maxBytes, upTo, err)
				}
				// The batch that holds offset, and as many whole ones as fit below upTo and in the segment.
				i, _ := slices.BinarySearch(starts, offset+1)
				i--
				next := offset
				for b, err := range record.All(buf) {
					if err != nil {
						t.Fatal(err)
					}
					if b.BaseOffset != starts[i] || b.NextOffset() > upTo {
						t.Fatalf("read(%d, %d, %d): batch %d-%d, want from %d", offset, maxBytes, upTo, b.BaseOffset, b.LastOffset(), starts[i])
					}
					next = b.NextOffset()
					i++
				}
				if next == offset && starts[i+1] <= upTo {
					t.Fatalf("read(%d, %d, %d) is empty", offset, maxBytes, upTo)
				}
				if len(buf) > maxBytes && len(buf) > sizes[i-1] {
					t.Fatalf("read(%d, %d, %d): %d bytes", offset, maxBytes, upTo, len(buf))
				}
			}
		}
	}
	if _, err := d.Log.Read(nil, end+1, 100, end+2); !errors.Is(err, storage.ErrOffset) {
		t.Errorf("read beyond the end: %v", err)
	}
	if got, err := d.Log.Read(nil, end, 100, end); err != nil || len(got) != 0 {
		t.Errorf("read at the end: %d bytes, %v", len(got), err)
	}
}

func TestTruncate(t *testing.T) {
	for _, segmentBytes := range []int64{400, 1 << 20} {
		fsys := formatted(t)
		o := opts
		o.SegmentBytes = segmentBytes
		d := open(t, fsys, o)
		for i := range int64(20) {
			mustAppend(t, d, batch(i*2, raft.Epoch(1+i/5), 2))
		}
		mustFlush(t, d)
		want := content(t, d, 14)
		if err := d.Log.Truncate(14); err != nil {
			t.Fatal(err)
		}
		if d.Log.End() != 14 || d.Log.FlushedEnd() != 14 || d.Log.LastEpoch() != 2 {
			t.Errorf("end %d, flushed %d, epoch %d", d.Log.End(), d.Log.FlushedEnd(), d.Log.LastEpoch())
		}
		if err := d.Log.Truncate(30); err != nil || d.Log.End() != 14 {
			t.Errorf("truncation beyond the end: %v, end %d", err, d.Log.End())
		}
		tail := batch(14, 7, 3)
		mustAppend(t, d, tail)
		want = append(want, tail...)
		mustFlush(t, d)
		d.Abandon()
		d = open(t, fsys, o)
		if !bytes.Equal(content(t, d, d.Log.End()), want) {
			t.Error("content differs after reopening")
		}
		if p, ok := d.Log.EndOffsetForEpoch(5); !ok || p != (raft.OffsetAndEpoch{Offset: 14, Epoch: 2}) {
			t.Errorf("end of epoch 5: %v %v", p, ok)
		}
		d.Abandon()
	}
}

// TestPR03TruncationBelowCommittedIsFatal: a restarted core knows no high watermark; the directory does.
func TestPR03TruncationBelowCommittedIsFatal(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	mustAppend(t, d, batch(0, 1, 5), batch(5, 1, 5))
	mustFlush(t, d)
	d.MarkCommitted(0, 10)
	mustClose(t, d)
	d = open(t, fsys, opts)
	defer d.Abandon()
	if err := d.Log.Truncate(5); !storage.IsToken(err, storage.TruncationBelowHW) {
		t.Errorf("truncate below the committed offset: %v", err)
	}
	if d.Log.End() != 10 {
		t.Errorf("end %d", d.Log.End())
	}
}

func TestEndOffsetForEpoch(t *testing.T) {
	d := open(t, formatted(t), opts)
	defer d.Abandon()
	if _, ok := d.Log.EndOffsetForEpoch(0); ok {
		t.Error("an empty log knows an epoch")
	}
	mustAppend(t, d, batch(0, 2, 4), batch(4, 5, 3))
	for _, tt := range []struct {
		ask  raft.Epoch
		want raft.OffsetAndEpoch
		ok   bool
	}{
		{1, raft.OffsetAndEpoch{Offset: 0, Epoch: 1}, true},
		{2, raft.OffsetAndEpoch{Offset: 4, Epoch: 2}, true},
		{4, raft.OffsetAndEpoch{Offset: 4, Epoch: 2}, true},
		{5, raft.OffsetAndEpoch{Offset: 7, Epoch: 5}, true},
		{6, raft.OffsetAndEpoch{}, false},
	} {
		if got, ok := d.Log.EndOffsetForEpoch(tt.ask); got != tt.want || ok != tt.ok {
			t.Errorf("epoch %d: %v %v, want %v %v", tt.ask, got, ok, tt.want, tt.ok)
		}
	}
}

func TestOffsetForTimestamp(t *testing.T) {
	o := opts
	o.SegmentBytes = 10000
	d := open(t, formatted(t), o)
	defer d.Abandon()
	for i := range int64(200) {
		mustAppend(t, d, batchOf(i*3, 1, 3, 100)) // record at offset x has time 1000+x
	}
	for _, offset := range []int64{0, 1, 2, 3, 299, 300, 301, 598, 599} {
		p, ok, err := d.Log.OffsetForTimestamp(1000+offset, 600)
		if err != nil || !ok || p.Offset != offset || p.Timestamp != 1000+offset || p.Epoch != 1 {
			t.Errorf("time %d: %+v %v %v", 1000+offset, p, ok, err)
		}
	}
	if p, ok, err := d.Log.OffsetForTimestamp(1600, 600); ok || err != nil {
		t.Errorf("time after the last: %+v %v %v", p, ok, err)
	}
	if p, ok, _ := d.Log.OffsetForTimestamp(1599, 597); ok {
		t.Errorf("found %+v, which is not below upTo", p)
	}
	if p, ok, err := d.Log.MaxTimestamp(600); err != nil || !ok || p.Offset != 599 {
		t.Errorf("max timestamp: %+v %v %v", p, ok, err)
	}
}

// TestB43SegmentsRollByAge: the age goes by the append clock and starts anew with the process.
func TestB43SegmentsRollByAge(t *testing.T) {
	fsys := formatted(t)
	o := opts
	o.SegmentAge = time.Hour
	d := open(t, fsys, o)
	at := raft.Instant(5 * time.Minute)
	for i := range int64(3) {
		if err := d.Log.Append(at, batch(i, 1, 1)); err != nil {
			t.Fatal(err)
		}
		at = at.Add(45 * time.Minute)
	}
	if got := d.Log.Segments(); got != 2 {
		t.Errorf("%d segments after 90 minutes, want 2", got)
	}
	mustClose(t, d)
	d = open(t, fsys, o)
	defer d.Abandon()
	if err := d.Log.Append(raft.Instant(100*time.Hour), batch(3, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if got := d.Log.Segments(); got != 2 {
		t.Errorf("%d segments: an age that this process did not see counts from its first append", got)
	}
}

// TestAppendAndReadAllocateNothing, whatever the number of records. The index grows by an entry in 4 KiB: less than one
// allocation a call.
func TestAppendAndReadAllocateNothing(t *testing.T) {
	for _, records := range []int{1, 1000} {
		dir := t.TempDir()
		if err := storage.Format(vfs.OS, dir, formatOptions()); err != nil {
			t.Fatal(err)
		}
		d, err := storage.Open(vfs.OS, dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		raw := batchOf(0, 1, records, 100)
		group := [][]byte{raw}
		if n := testing.AllocsPerRun(200, func() {
			record.Stamp(raw, d.Log.End(), 1)
			mustAppend(t, d, group...)
		}); n > 0 {
			t.Errorf("append of %d records: %v allocations", records, n)
		}
		buf := make([]byte, 4*len(raw)+8192)
		if n := testing.AllocsPerRun(200, func() {
			if got, err := d.Log.Read(buf, 50*int64(records), 2*len(raw), d.Log.End()); err != nil || len(got) < len(raw) {
				t.Fatal(len(got), err)
			}
		}); n > 0 {
			t.Errorf("read of %d records: %v allocations", records, n)
		}
		d.Abandon()
	}
}

func TestMarkCommittedOncePerSecondAndOnlyWhatIsFlushed(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	mustAppend(t, d, batch(0, 1, 4))
	mustFlush(t, d)
	mustAppend(t, d, batch(4, 1, 4))
	if !d.MarkCommitted(0, 8) {
		t.Error("the first mark is due")
	}
	if err := d.WriteCommitted(); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, fsys, logDir+"/committed"); got != "0\n1\n1 4\n#crc32c e39e4c7a\n" {
		t.Errorf("committed holds %q, want what is flushed", got)
	}
	mustFlush(t, d)
	if d.MarkCommitted(raft.Instant(time.Second-1), 8) {
		t.Error("due within a second")
	}
	if !d.MarkCommitted(raft.Instant(time.Second), 8) {
		t.Error("not due after a second")
	}
	mustClose(t, d)
	if got := readFile(t, fsys, logDir+"/committed"); got != "0\n1\n1 8\n#crc32c 3000ee1e\n" {
		t.Errorf("committed holds %q after a clean stop", got)
	}
}
