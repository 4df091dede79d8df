package storage_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// TestST07NothingIsCleanedWithoutACheckpoint, however old and large the log is, and a log that starts above its newest one
// is refused.
func TestST07NothingIsCleanedWithoutACheckpoint(t *testing.T) {
	fsys := formatted(t)
	d := filled(t, fsys, 40)
	if c := d.BeginClean(storage.CleanOptions{Now: raft.Instant(1000 * time.Hour), HighWatermark: d.Log.End(), MaxBytes: 1, MaxAge: 1}); c != nil || d.Log.Start() != 0 {
		t.Errorf("cleaning %+v, the log starts at %d", c, d.Log.Start())
	}
	info := compactTo(t, d, 60)
	compactTo(t, d, 90)
	cleanAll(t, d)
	start := d.Log.Start()
	if start <= info.ID.Offset || start > 90 {
		t.Fatalf("the log starts at %d", start)
	}
	mustClose(t, d)
	if err := fsys.Rename(checkpointFile(at(90, 5)), checkpointFile(at(60, 3))); err != nil {
		t.Fatal(err)
	}
	_, err := storage.Open(fsys, dataDir, opts)
	if !storage.IsToken(err, storage.SnapshotMissing) && !storage.IsToken(err, storage.LogCorrupt) {
		t.Errorf("a checkpoint at 60 and a log from %d: %v", start, err)
	}
}

// TestST09CheckpointIsCleanedWhileRead: who reads one now and then keeps it, and the log behind it; those in between go. If
// it stops, all go, and it hears so.
func TestST09CheckpointIsCleanedWhileRead(t *testing.T) {
	d := filled(t, formatted(t), 30)
	defer d.Abandon()
	slow := compactTo(t, d, 21)
	clean := func(now raft.Instant) {
		t.Helper()
		if c := d.BeginClean(storage.CleanOptions{Now: now, HighWatermark: d.Log.End(), MaxBytes: 1, ReadBytes: 1 << 20}); c != nil {
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var content []byte
	for position := int64(0); position < slow.Size; position += 100 {
		piece, size, err := d.ReadCheckpoint(nil, slow.ID, position, 100)
		if err != nil || size != slow.Size {
			t.Fatalf("at %d: size %d, %v", position, size, err)
		}
		content = append(content, piece...)
		for range 3 {
			mustAppend(t, d, overwriting(d.Log.End(), d.Log.LastEpoch(), 3, 50))
		}
		compactTo(t, d, mustFlush(t, d))
		clean(0)
		if infos := d.Checkpoints(); len(infos) > 2 || infos[0].ID != slow.ID || d.Log.Start() > slow.ID.Offset {
			t.Fatalf("%d checkpoints from %v on, the log starts at %d", len(infos), infos[0].ID, d.Log.Start())
		}
	}
	if want := snapshotBytes(t, d, slow); !bytes.Equal(content, want) {
		t.Error("the pieces make another file")
	}
	clean(0)
	clean(raft.Instant(29 * time.Second))
	left, _, err := d.FindCheckpoint(slow.ID, 0, int(slow.Size))
	if err != nil {
		t.Fatal(err)
	}
	clean(raft.Instant(29 * time.Second)) // somebody asks for it
	clean(raft.Instant(58 * time.Second))
	if infos := d.Checkpoints(); infos[0].ID != slow.ID {
		t.Errorf("gone after 29 seconds: %v", infos)
	}
	clean(raft.Instant(59 * time.Second))
	if _, _, err := d.ReadCheckpoint(nil, slow.ID, 0, 100); !errors.Is(err, storage.ErrNoCheckpoint) {
		t.Errorf("after a while without reading: %v", err)
	}
	// What is still being sent is sent to its end.
	if got := bytesOf(t, storage.Records{Section: left}); !bytes.Equal(got, content) {
		t.Errorf("of the removed checkpoint %d bytes are left of %d, or others", len(got), len(content))
	}
	if infos := d.Checkpoints(); len(infos) != 1 || d.Log.Start() <= slow.ID.Offset {
		t.Errorf("checkpoints %v, the log starts at %d", infos, d.Log.Start())
	}
}

// aged makes a directory that has a checkpoint, and returns what appends some more and compacts it.
func aged(t *testing.T) (d *storage.Dir, fsys *vfs.Mem, grow func()) {
	t.Helper()
	fsys = formatted(t)
	d = filled(t, fsys, 30)
	grow = func() {
		for range 5 {
			mustAppend(t, d, overwriting(d.Log.End(), d.Log.LastEpoch(), 3, 50))
		}
		compactTo(t, d, mustFlush(t, d))
	}
	grow()
	return d, fsys, grow
}

// TestST09ThreeReadersShareTwoCheckpoints: each has begun with another checkpoint, and needs several in which the next ones are
// made. No more than the newest and one older are kept, and yet each reader gets to an end, again and again.
func TestST09ThreeReadersShareTwoCheckpoints(t *testing.T) {
	d, _, grow := aged(t)
	defer d.Abandon()
	readers := []*slowReader{{piece: 250}, {piece: 250}, {piece: 250}}
	began, most := 0, 0
	for round := range 120 {
		if began < len(readers) {
			began++
		}
		for _, r := range readers[:began] {
			r.read(t, d)
		}
		grow()
		if c := d.BeginClean(storage.CleanOptions{Now: raft.Instant(round) * raft.Instant(10*time.Second), HighWatermark: d.Log.End(), MaxBytes: 1, ReadBytes: 1 << 20}); c != nil {
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
		}
		infos := d.Checkpoints()
		if most = max(most, len(infos)); most > 2 {
			t.Fatalf("round %d: %d checkpoints are kept", round, most)
		}
		if d.Log.Start() > infos[0].ID.Offset {
			t.Fatalf("round %d: the log starts at %d, the oldest checkpoint ends at %d", round, d.Log.Start(), infos[0].ID.Offset)
		}
	}
	for i, r := range readers {
		t.Logf("reader %d: %d downloads, began anew %d times", i, r.done, r.again)
		if r.done < 3 {
			t.Errorf("reader %d got to an end %d times in 120 rounds", i, r.done)
		}
	}
	if most != 2 || readers[1].again+readers[2].again == 0 {
		t.Error("the readers never stood in one another's way: the test shows nothing")
	}
}

// TestST16ReaderWithoutEnd reads a byte now and then, for ever, while checkpoints are made and cleaned. The directory holds two
// checkpoints, the log that may be kept for a reader, and what must stay; without room for that (ReadBytes 0, as below the
// reserve) just what must stay.
func TestST16ReaderWithoutEnd(t *testing.T) {
	for _, readBytes := range []int64{0, 3000, 12_000} {
		d, fsys, grow := aged(t)
		reader := &slowReader{piece: 1}
		largest, kept := int64(0), 0
		for round := range 200 {
			reader.read(t, d)
			grow()
			o := storage.CleanOptions{Now: raft.Instant(round) * raft.Instant(time.Second), HighWatermark: d.Log.End(), MaxBytes: 1, ReadBytes: readBytes}
			if c := d.BeginClean(o); c != nil {
				if err := c.Run(); err != nil {
					t.Fatal(err)
				}
			}
			largest = max(largest, used(t, fsys))
			kept = max(kept, len(d.Checkpoints()))
		}
		const segment, small = 1000, 3000 // small: the other files
		infos := d.Checkpoints()
		limit := 2*infos[len(infos)-1].Size + readBytes + 3*segment + small
		t.Logf("with %d bytes for readers: %d bytes at most, began anew %d times", readBytes, largest, reader.again)
		if largest > limit || reader.again < 3 {
			t.Errorf("with %d bytes for readers the directory grew to %d bytes, limit %d; the reader began anew %d times", readBytes, largest, limit, reader.again)
		}
		if want := min(2, 1+int(readBytes)); kept != want {
			t.Errorf("with %d bytes for readers %d checkpoints were kept, want %d", readBytes, kept, want)
		}
		d.Abandon()
	}
}

// TestST15TheDirectoryStaysSmall however long it goes on: log and checkpoints stay within the limit and what must stay.
func TestST15TheDirectoryStaysSmall(t *testing.T) {
	fsys := formatted(t)
	o := opts
	o.SegmentBytes = 4000
	d := open(t, fsys, o)
	const limit = 20_000
	largest := int64(0)
	for range 500 {
		for range 10 {
			mustAppend(t, d, overwriting(d.Log.End(), 1, 3, 50))
		}
		if end := mustFlush(t, d); d.Uncovered() > 3000 {
			compactTo(t, d, end)
		}
		if c := d.BeginClean(storage.CleanOptions{HighWatermark: d.Log.FlushedEnd(), MaxBytes: limit}); c != nil {
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
		}
		largest = max(largest, used(t, fsys))
	}
	if newest := d.Checkpoints()[len(d.Checkpoints())-1].Size; largest > limit+2*o.SegmentBytes+2*newest {
		t.Errorf("the directory grew to %d bytes; the limit is %d, a segment has %d, a checkpoint %d", largest, limit, o.SegmentBytes, newest)
	}
	mustClose(t, d)
	d = open(t, fsys, o)
	if r := d.Recovery(); r.Bytes > limit+2*o.SegmentBytes {
		t.Errorf("a start reads %d bytes of log", r.Bytes)
	}
	mustClose(t, d)
}
