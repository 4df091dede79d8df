package storage_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
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
	log     [][]byte // batches from offset 0, as appended; compaction and cleaning change nothing here
	flushed int      // of them, how many are on disk for sure
	state   raft.ElectionState
	next    *raft.ElectionState // being written: may be there or not
	floor   int                 // during a truncation: how many batches stay
	instead [][]byte            // during a download: what may be there instead of log
}

func (m *model) end() int64 { return endOf(m.log) }

func endOf(log [][]byte) int64 {
	if len(log) == 0 {
		return 0
	}
	return header(log[len(log)-1]).NextOffset()
}

func (m *model) epoch() raft.Epoch {
	if len(m.log) == 0 {
		return 0
	}
	return header(m.log[len(m.log)-1]).Epoch
}

func header(raw []byte) record.Header {
	h, err := record.ParseHeader(raw)
	if err != nil {
		panic(err)
	}
	return h
}

// check opens what a crash has left. It must open; flushed batches are there or in a checkpoint, no others than appended
// ones follow; of each key the newest record is there; the vote is the promised one; and what was found stays, whatever
// happens next.
func (m *model) check(disk *vfs.Mem, o storage.Options, rng *rand.Rand) error {
	d, err := storage.Open(disk, dataDir, o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer d.Abandon()
	if err := holds(d, m.log, min(m.flushed, m.floor)); err != nil {
		if m.instead == nil {
			return err
		}
		if other := holds(d, m.instead, len(m.instead)); other != nil {
			return fmt.Errorf("neither the old log: %w, nor the new: %w", err, other)
		}
	}
	if s := d.ElectionState(); s != m.state && (m.next == nil || s != *m.next) {
		return fmt.Errorf("state %+v, want %+v or %+v", s, m.state, m.next)
	}
	names, err := disk.List(logDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".tmp") && name != "quorum-state.tmp" || strings.HasSuffix(name, ".part") {
			return fmt.Errorf("%s is still there", name)
		}
	}
	// The process that recovered acts on what it read. It must be there after the next power cut.
	again, err := storage.Open(disk.CrashClone(rng, 0), dataDir, o)
	if err != nil {
		return fmt.Errorf("open after a second crash: %w", err)
	}
	defer again.Abandon()
	if again.Log.Start() != d.Log.Start() || again.Log.End() != d.Log.End() || again.ElectionState() != d.ElectionState() || !slices.Equal(again.Checkpoints(), d.Checkpoints()) {
		return fmt.Errorf("recovered [%d, %d), %+v, %v; after a second crash [%d, %d), %+v, %v", d.Log.Start(), d.Log.End(), d.ElectionState(), d.Checkpoints(),
			again.Log.Start(), again.Log.End(), again.ElectionState(), again.Checkpoints())
	}
	return nil
}

// holds checks that a directory has the batches, the first at least of them for sure, as segments or in a checkpoint.
func holds(d *storage.Dir, log [][]byte, atLeast int) error {
	found, err := walk(d)
	if err != nil {
		return err
	}
	infos := d.Checkpoints()
	first := slices.IndexFunc(log, func(raw []byte) bool { return header(raw).BaseOffset >= d.Log.Start() })
	if first < 0 {
		first = len(log)
	}
	if endOf(log[:first]) != d.Log.Start() || d.Log.Start() > 0 && (len(infos) == 0 || infos[0].ID.Offset < d.Log.Start()) {
		return fmt.Errorf("the log starts at %d, checkpoints %v", d.Log.Start(), infos)
	}
	if end := first + len(found); end < atLeast || end > len(log) {
		return fmt.Errorf("%d batches from the %dth on, want up to %d to %d", len(found), first, atLeast, len(log))
	}
	for i, b := range found {
		if !bytes.Equal(b, log[first+i]) {
			return fmt.Errorf("batch %d is not the one appended", first+i)
		}
	}
	want, got := map[string]string{}, map[string]string{}
	for _, raw := range log[:first+len(found)] {
		b, err := record.Parse(raw)
		if err != nil {
			return err
		}
		if err := newest(want, b); err != nil {
			return err
		}
	}
	if err := d.Walk(0, d.Log.End(), func(b record.Batch) error { return newest(got, b) }); err != nil {
		return err
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("newest records %v, want %v", got, want)
	}
	return nil
}

// newest notes where and what the newest record of each key is.
func newest(of map[string]string, b record.Batch) error {
	if b.IsControl() {
		return nil
	}
	for r, err := range b.Records() {
		if err != nil {
			return err
		}
		of[string(r.Key)] = fmt.Sprintf("%d %s", r.Offset, r.Value)
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

// TestPR13PowerCutAtEveryCall (ST-12) runs random lives of a directory and cuts the power before every call that reaches
// the disk: format, appends, rolls, flushes, truncations, votes, epochs, compactions, downloads, replaced logs, cleaning,
// clean stops, kills. No flushed record and no vote is lost. Its last line is how often, by operation.
func TestPR13PowerCutAtEveryCall(t *testing.T) {
	n, total := *seeds, crashes{}
	if testing.Short() {
		n = min(n, 3)
	}
	for seed := range n {
		c := life(t, seed)
		for op, n := range c {
			total[op] = tally{total[op].points + n.points, total[op].schedules + n.schedules}
		}
	}
	total["format"] = powerCutsDuringFormat(t, n)
	var sum tally
	var line []string
	for _, op := range slices.Sorted(maps.Keys(total)) {
		line = append(line, fmt.Sprintf("%s %d/%d", op, total[op].points, total[op].schedules))
		sum = tally{sum.points + total[op].points, sum.schedules + total[op].schedules}
	}
	t.Logf("seeds %d, points/schedules: %s; together %d/%d", n, strings.Join(line, ", "), sum.points, sum.schedules)
	if n < 25 {
		return // some operations are rare
	}
	for _, op := range []string{"append", "roll", "flush", "truncate", "vote", "compact", "download", "install", "clean", "format"} {
		if total[op].points == 0 {
			t.Errorf("no power cut in %s", op)
		}
	}
}

// crashes counts, by operation, the calls before which the power was cut, and the states that it left.
type crashes map[string]tally

type tally struct{ points, schedules int }

// overwriting is batchOf with few keys.
func overwriting(base int64, epoch raft.Epoch, n, valueBytes int) []byte {
	b := record.NewBuilder(1000+base, record.Snappy).Producer(epochProducer(epoch), 0, int32(base))
	for i := range n {
		b.Append(1000+base, fmt.Appendf(nil, "key-%d", (base+int64(i))%7), fmt.Append(bytes.Repeat([]byte{'v'}, valueBytes), base+int64(i)))
	}
	raw, err := b.Build(base, epoch)
	if err != nil {
		panic(err)
	}
	return raw
}

func epochProducer(epoch raft.Epoch) int64 { return int64(epoch % 3) }

func life(t *testing.T, seed uint64) crashes {
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
	doing, kind := "open", "open"
	count := crashes{}
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		if !c.Op.Writes() {
			return nil
		}
		if kind == "append" && c.Op == vfs.OpCreate { // all calls from the new segment on are of the roll
			kind = "roll"
		}
		n := count[kind]
		n.points++
		defer func() { count[kind] = n }()
		for _, p := range []float64{0, 0.5, 0.8, 1} {
			n.schedules++
			if err := m.check(disk.CrashClone(rng, p), o, rng); err != nil {
				fail(fmt.Sprintf("%s, power cut before %s %s at %d, survival %v", doing, c.Op, c.Path, c.Offset, p), err)
			}
		}
		if c.Op == vfs.OpExchange && seed%2 == 1 { // not every file system can
			return errors.ErrUnsupported
		}
		return nil
	})
	d, err := storage.Open(fsys, dataDir, o)
	if err != nil {
		fail(doing, err)
	}
	now := raft.Instant(0)
	highWatermark := int64(0)
	var compaction *storage.Compaction
	var cleanings []*storage.Cleaning
	for range 60 {
		now += raft.Instant(rng.Int64N(1e9))
		switch n := rng.IntN(30); {
		case n < 8:
			kind = "append"
			var group [][]byte
			epoch := m.epoch() + raft.Epoch(rng.IntN(2)*rng.IntN(3))
			before := m.log
			for range 1 + rng.IntN(3) {
				b := overwriting(m.end(), epoch, 1+rng.IntN(4), rng.IntN(150))
				group = append(group, b)
				m.log = append(slices.Clip(m.log), b)
			}
			doing = fmt.Sprintf("append of %d batches to %d", len(group), len(before))
			err = d.Log.Append(now, group...)
		case n < 13:
			doing, kind = "flush", "flush"
			var end int64
			if end, err = d.Log.Flush(); err == nil && end != m.end() {
				err = fmt.Errorf("flushed to %d, want %d", end, m.end())
			}
			m.flushed = len(m.log)
			highWatermark = max(highWatermark, m.end()-rng.Int64N(3))
			d.MarkCommitted(now, highWatermark)
		case n < 15:
			next := raft.ElectionState{Epoch: m.state.Epoch + 1, Leader: raft.None, Voted: raft.ReplicaKey{ID: 2, DirectoryID: dir1}}
			kind = "vote"
			m.next, doing = &next, fmt.Sprintf("vote in epoch %d", next.Epoch)
			err = d.WriteElectionState(next, 1, nil)
			m.state, m.next = next, nil
		case n < 17:
			kind = "truncate"
			keep := len(m.log)
			for keep > 0 && rng.IntN(4) > 0 && header(m.log[keep-1]).BaseOffset >= highWatermark {
				keep--
			}
			offset := endOf(m.log[:keep])
			m.floor, doing = keep, fmt.Sprintf("truncation from %d to %d batches", len(m.log), keep)
			err = d.Log.Truncate(offset)
			if keep < len(m.log) {
				m.flushed = keep
			}
			m.log, m.floor = m.log[:keep], 1<<30
		case n < 18:
			doing, kind = "committed", "committed"
			err = d.WriteCommitted()
		case n < 19:
			doing, kind = "clean stop and start", "stop"
			compaction, cleanings = nil, nil
			if err = d.Close(); err == nil {
				m.flushed = len(m.log)
				d, err = storage.Open(fsys, dataDir, o)
			}
		case n < 24:
			doing, kind = fmt.Sprintf("compaction up to %d", highWatermark), "compact"
			// Often it begins now and runs later.
			if compaction == nil {
				compaction, err = d.BeginCompaction(storage.CompactOptions{UpTo: highWatermark, Now: int64(now), DeleteRetention: 1})
			}
			if compaction != nil && rng.IntN(3) > 0 {
				_, err = compaction.Run()
				compaction = nil
			}
			if errors.Is(err, storage.ErrNothingNew) {
				err = nil
			}
		case n < 26:
			doing, kind = "cleaning", "clean"
			if c := d.BeginClean(storage.CleanOptions{Now: now, HighWatermark: highWatermark, MaxBytes: 1 + rng.Int64N(3000)}); c != nil {
				cleanings = append(cleanings, c)
			}
			if n := len(cleanings); n > 0 && rng.IntN(2) == 0 { // in any order, or never
				i := rng.IntN(n)
				err = cleanings[i].Run()
				cleanings = slices.Delete(cleanings, i, i+1)
			}
		case n < 27:
			kind = "download"
			keep := len(m.log) // of what is not committed, another leader may have none
			for keep > 0 && rng.IntN(3) > 0 && header(m.log[keep-1]).BaseOffset >= highWatermark {
				keep--
			}
			id, content, log := snapshotOf(t, m.log[:keep], m.epoch()+1, rng)
			m.instead, doing = log, fmt.Sprintf("download of %v over a log to %d", id, m.end())
			var w *storage.Download
			w, err = download(d, id, content, rng)
			killed := rng.IntN(3) == 0 // between the arrival of the checkpoint and the removal of the log
			if err == nil {
				doing, kind = fmt.Sprintf("install of %v", id), "install"
				err = d.Install(w, !killed)
			}
			if err == nil {
				m.log, m.flushed, m.instead, highWatermark = log, len(log), nil, id.Offset
			}
			if err == nil && killed {
				d.Abandon()
				doing, compaction, cleanings = "kill and start", nil, nil
				d, err = storage.Open(fsys, dataDir, o)
			}
		default:
			doing, kind = "kill and start", "kill"
			compaction, cleanings = nil, nil
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
	doing, kind = "the end", "stop"
	if err := d.Close(); err != nil {
		fail(doing, err)
	}
	m.flushed = len(m.log)
	if err := m.check(disk.CrashClone(rng, 0), o, rng); err != nil {
		fail("after a clean stop", err)
	}
	return count
}

// snapshotOf makes a leader that has the given log and some more of its own epoch, and takes its checkpoint of all of it.
func snapshotOf(t *testing.T, log [][]byte, epoch raft.Epoch, rng *rand.Rand) (id raft.OffsetAndEpoch, content []byte, all [][]byte) {
	t.Helper()
	leader := open(t, formatted(t), opts)
	defer leader.Abandon()
	all = slices.Clone(log)
	for range 1 + rng.IntN(3) {
		all = append(all, overwriting(endOf(all), epoch, 1+rng.IntN(3), rng.IntN(150)))
	}
	mustAppend(t, leader, all...)
	c, err := leader.BeginCompaction(storage.CompactOptions{UpTo: mustFlush(t, leader)})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	content, _, err = leader.ReadCheckpoint(nil, info.ID, 0, int(info.Size))
	if err != nil {
		t.Fatal(err)
	}
	return info.ID, content, all
}

func download(d *storage.Dir, id raft.OffsetAndEpoch, content []byte, rng *rand.Rand) (*storage.Download, error) {
	w, err := d.BeginDownload(id)
	if err != nil {
		return nil, err
	}
	for len(content) > 0 {
		n := min(len(content), 1+rng.IntN(600))
		if err := w.Append(content[:n]); err != nil {
			return nil, err
		}
		content = content[n:]
	}
	_, err = w.Verify(nil)
	return w, err
}

// powerCutsDuringFormat: an interrupted format is no format; run again it succeeds.
func powerCutsDuringFormat(t *testing.T, times uint64) (count tally) {
	for seed := range times {
		rng := rand.New(rand.NewPCG(seed, 5))
		disk := vfs.NewMem()
		fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
			if !c.Op.Writes() {
				return nil
			}
			count.points++
			for _, p := range []float64{0, 0.2, 0.5, 0.8, 1} {
				count.schedules++
				left := disk.CrashClone(rng, p)
				d, err := storage.Open(left, dataDir, opts)
				if err == nil {
					if n := len(d.LogState().Control); n != 2 {
						t.Fatalf("seed %d, before %s %s: formatted with %d control records", seed, c.Op, c.Path, n)
					}
					d.Abandon()
					continue
				}
				if !storage.IsToken(err, storage.NotFormatted) {
					t.Fatalf("seed %d, before %s %s: %v", seed, c.Op, c.Path, err)
				}
				if err := storage.Format(left, dataDir, formatOptions()); err != nil {
					t.Fatalf("seed %d, before %s %s: format again: %v", seed, c.Op, c.Path, err)
				}
				open(t, left.CrashClone(rng, 0), opts).Abandon()
			}
			return nil
		})
		if err := storage.Format(fsys, dataDir, formatOptions()); err != nil {
			t.Fatal(err)
		}
		open(t, disk.CrashClone(rng, 0), opts).Abandon()
	}
	return count
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
