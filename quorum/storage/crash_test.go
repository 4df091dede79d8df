package storage_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

var seeds = flag.Uint64("seeds", 25, "how many random lives TestPR13PowerCutAtEveryCall runs")

// model is what a directory has promised so far. The disk after a crash is checked against it.
type model struct {
	log     [][]byte // batches, as appended
	flushed int      // of them, how many are on disk for sure
	state   raft.ElectionState
	next    *raft.ElectionState // being written: may be there or not
	floor   int                 // during a truncation: how many batches stay
}

func (m *model) end() int64 {
	if len(m.log) == 0 {
		return 0
	}
	h, err := record.ParseHeader(m.log[len(m.log)-1])
	if err != nil {
		panic(err)
	}
	return h.NextOffset()
}

func (m *model) epoch() raft.Epoch {
	if len(m.log) == 0 {
		return 0
	}
	h, _ := record.ParseHeader(m.log[len(m.log)-1])
	return h.Epoch
}

// check opens what a crash has left. It must open; flushed batches are there, no others than appended ones follow; the
// vote is the promised one; and what was found stays, whatever happens next.
func (m *model) check(disk *vfs.Mem, o storage.Options, rng *rand.Rand) error {
	d, err := storage.Open(disk, dataDir, o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer d.Abandon()
	found, err := walk(d)
	if err != nil {
		return err
	}
	if len(found) < min(m.flushed, m.floor) || len(found) > len(m.log) {
		return fmt.Errorf("%d batches, want %d to %d", len(found), min(m.flushed, m.floor), len(m.log))
	}
	for i, b := range found {
		if !bytes.Equal(b, m.log[i]) {
			return fmt.Errorf("batch %d is not the one appended", i)
		}
	}
	if s := d.ElectionState(); s != m.state && (m.next == nil || s != *m.next) {
		return fmt.Errorf("state %+v, want %+v or %+v", s, m.state, m.next)
	}
	// The process that recovered acts on what it read. It must be there after the next power cut.
	again, err := storage.Open(disk.CrashClone(rng, 0), dataDir, o)
	if err != nil {
		return fmt.Errorf("open after a second crash: %w", err)
	}
	defer again.Abandon()
	if again.Log.End() != d.Log.End() || again.ElectionState() != d.ElectionState() {
		return fmt.Errorf("recovered up to %d, %+v; after a second crash %d, %+v", d.Log.End(), d.ElectionState(), again.Log.End(), again.ElectionState())
	}
	return nil
}

func walk(d *storage.Dir) ([][]byte, error) {
	var found [][]byte
	err := d.Log.Walk(d.Log.Start(), d.Log.End(), func(b record.Batch) error {
		found = append(found, bytes.Clone(b.Raw))
		return nil
	})
	return found, err
}

// TestPR13PowerCutAtEveryCall runs random lives of a directory and cuts the power before every call that reaches the
// disk: appends, rolls, flushes, truncations, votes, epochs, clean stops, kills. No flushed record and no vote is lost.
func TestPR13PowerCutAtEveryCall(t *testing.T) {
	n, cuts := *seeds, 0
	if testing.Short() {
		n = min(n, 4)
	}
	for seed := range n {
		cuts += life(t, seed)
	}
	t.Logf("%d power cuts", cuts)
}

func life(t *testing.T, seed uint64) (cuts int) {
	rng := rand.New(rand.NewPCG(seed, 13))
	disk := formatted(t)
	o := opts
	o.SegmentBytes = 600
	if seed%3 == 0 {
		o.SegmentBytes = 1 << 20
	}
	m := &model{state: raft.ElectionState{Leader: raft.None, Voted: raft.NoReplica}, floor: 1 << 30}
	fail := func(doing string, err error) {
		t.Helper()
		t.Fatalf("seed %d, %s: %v", seed, doing, err)
	}
	doing := "open"
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		if !c.Op.Writes() {
			return nil
		}
		for _, p := range []float64{0, 0.5, 0.8, 1} {
			cuts++
			if err := m.check(disk.CrashClone(rng, p), o, rng); err != nil {
				fail(fmt.Sprintf("%s, power cut before %s %s at %d, survival %v", doing, c.Op, c.Path, c.Offset, p), err)
			}
		}
		return nil
	})
	d, err := storage.Open(fsys, dataDir, o)
	if err != nil {
		fail(doing, err)
	}
	now := raft.Instant(0)
	highWatermark := int64(0)
	for range 25 {
		now += raft.Instant(rng.Int64N(1e9))
		switch n := rng.IntN(20); {
		case n < 8:
			var group [][]byte
			epoch := m.epoch() + raft.Epoch(rng.IntN(2)*rng.IntN(3))
			before := m.log
			for range 1 + rng.IntN(3) {
				b := batchOf(m.end(), epoch, 1+rng.IntN(4), rng.IntN(150))
				group = append(group, b)
				m.log = append(slices.Clip(m.log), b)
			}
			doing = fmt.Sprintf("append of %d batches to %d", len(group), len(before))
			err = d.Log.Append(now, group...)
		case n < 13:
			doing = "flush"
			var end int64
			if end, err = d.Log.Flush(); err == nil && end != m.end() {
				err = fmt.Errorf("flushed to %d, want %d", end, m.end())
			}
			m.flushed = len(m.log)
			highWatermark = max(highWatermark, m.end()-rng.Int64N(3))
			d.MarkCommitted(now, highWatermark)
		case n < 15:
			next := raft.ElectionState{Epoch: m.state.Epoch + 1, Leader: raft.None, Voted: raft.ReplicaKey{ID: 2, DirectoryID: dir1}}
			m.next, doing = &next, fmt.Sprintf("vote in epoch %d", next.Epoch)
			err = d.WriteElectionState(next, 1, nil)
			m.state, m.next = next, nil
		case n < 17:
			keep := len(m.log)
			for keep > 0 && rng.IntN(4) > 0 {
				h, _ := record.ParseHeader(m.log[keep-1])
				if h.BaseOffset < highWatermark {
					break
				}
				keep--
			}
			offset := int64(0)
			if keep > 0 {
				h, _ := record.ParseHeader(m.log[keep-1])
				offset = h.NextOffset()
			}
			m.floor, doing = keep, fmt.Sprintf("truncation from %d to %d batches", len(m.log), keep)
			err = d.Log.Truncate(offset)
			if keep < len(m.log) {
				m.flushed = keep
			}
			m.log, m.floor = m.log[:keep], 1<<30
		case n < 18:
			doing = "committed"
			err = d.WriteCommitted()
		case n < 19:
			doing = "clean stop and start"
			if err = d.Close(); err == nil {
				m.flushed = len(m.log)
				d, err = storage.Open(fsys, dataDir, o)
			}
		default:
			doing = "kill and start"
			d.Abandon() // the page cache survives
			if d, err = storage.Open(fsys, dataDir, o); err == nil && d.Log.End() != m.end() {
				err = fmt.Errorf("end %d, want %d", d.Log.End(), m.end())
			}
			m.flushed = len(m.log)
		}
		if err != nil {
			fail(doing, err)
		}
	}
	doing = "the end"
	if err := d.Close(); err != nil {
		fail(doing, err)
	}
	m.flushed = len(m.log)
	if err := m.check(disk.CrashClone(rng, 0), o, rng); err != nil {
		fail("after a clean stop", err)
	}
	return cuts
}

// TestPowerCutDuringFormat: an interrupted format is no format; run again it succeeds.
func TestPowerCutDuringFormat(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	disk := vfs.NewMem()
	cuts := 0
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		for i := range 50 {
			p := float64(i) / 49
			left := disk.CrashClone(rng, p)
			cuts++
			d, err := storage.Open(left, dataDir, opts)
			if err == nil {
				if n := len(d.LogState().Control); n != 2 {
					t.Fatalf("before %s %s: formatted with %d control records", c.Op, c.Path, n)
				}
				d.Abandon()
				continue
			}
			if !storage.IsToken(err, storage.NotFormatted) {
				t.Fatalf("before %s %s: %v", c.Op, c.Path, err)
			}
			if err := storage.Format(left, dataDir, formatOptions()); err != nil {
				t.Fatalf("before %s %s: format again: %v", c.Op, c.Path, err)
			}
			open(t, left.CrashClone(rng, 0), opts).Abandon()
		}
		return nil
	})
	if err := storage.Format(fsys, dataDir, formatOptions()); err != nil {
		t.Fatal(err)
	}
	if cuts < 500 {
		t.Errorf("only %d cuts", cuts)
	}
	open(t, disk.CrashClone(rng, 0), opts).Abandon()
}

// TestPowerCutWhileALongTailIsCut: a truncation that takes more than one group must not leave a hole that looks like rot.
func TestPowerCutWhileALongTailIsCut(t *testing.T) {
	if testing.Short() {
		t.Skip("16 MiB at every step")
	}
	rng := rand.New(rand.NewPCG(7, 7))
	o := opts
	o.SegmentBytes = 5 << 20
	disk := formatted(t)
	var watch vfs.Hook
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		if watch == nil {
			return nil
		}
		return watch(c)
	})
	d := open(t, fsys, o)
	m := &model{state: d.ElectionState()}
	for range 8 {
		b := batchOf(m.end(), 1, 2, 1<<20)
		m.log = append(m.log, b)
		mustAppend(t, d, b)
		mustFlush(t, d)
	}
	m.flushed, m.floor = len(m.log), 1
	if d.Log.Segments() < 4 {
		t.Fatalf("%d segments", d.Log.Segments())
	}
	watch = func(c vfs.Call) error {
		if !c.Op.Writes() {
			return nil
		}
		for range 3 {
			if err := m.check(disk.CrashClone(rng, 0.5), o, rng); err != nil {
				t.Fatalf("power cut before %s %s: %v", c.Op, c.Path, err)
			}
		}
		return nil
	}
	if err := d.Log.Truncate(2); err != nil {
		t.Fatal(err)
	}
}

// TestFailedFsyncIsNotBelievedAfterARestart: after a failed fsync Linux counts the lost pages as clean. The process that
// starts next still reads them, and an fsync of its own succeeds without writing them: it must write them again.
func TestFailedFsyncIsNotBelievedAfterARestart(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	disk := formatted(t)
	fail := false
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		if fail && c.Op == vfs.OpSync && strings.HasSuffix(c.Path, ".log") {
			fail = false
			return errors.Join(syscall.EIO, disk.DropDirty(c.Path))
		}
		return nil
	})
	d := open(t, fsys, opts)
	mustAppend(t, d, batch(0, 1, 50))
	mustFlush(t, d)
	mustAppend(t, d, batch(50, 1, 50), batch(100, 1, 50))
	fail = true
	if _, err := d.Log.Flush(); !storage.IsToken(err, storage.DiskIOError) {
		t.Fatal(err)
	}
	d.Abandon()

	d = open(t, fsys, opts)
	if d.Log.End() != 150 || d.Log.FlushedEnd() != 150 {
		t.Fatalf("end %d, flushed %d", d.Log.End(), d.Log.FlushedEnd())
	}
	d.Abandon()
	d = open(t, disk.CrashClone(rng, 0), opts)
	defer d.Abandon()
	if d.Log.End() != 150 {
		t.Errorf("after a power cut the log ends at %d: the restarted process acknowledged what was never written", d.Log.End())
	}
}
