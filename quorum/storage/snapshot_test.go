package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

func at(offset int64, epoch raft.Epoch) raft.OffsetAndEpoch {
	return raft.OffsetAndEpoch{Offset: offset, Epoch: epoch}
}

func checkpointFile(id raft.OffsetAndEpoch) string {
	return fmt.Sprintf("%s/%020d-%010d.checkpoint", logDir, id.Offset, id.Epoch)
}

// filled is a directory whose log has n batches of few keys, all flushed, in small segments.
func filled(t testing.TB, fsys vfs.FS, n int) *storage.Dir {
	t.Helper()
	o := opts
	o.SegmentBytes = 1000
	d := open(t, fsys, o)
	for range n {
		mustAppend(t, d, overwriting(d.Log.End(), 1+raft.Epoch(d.Log.End()/20), 3, 50))
	}
	mustFlush(t, d)
	return d
}

func compactTo(t testing.TB, d *storage.Dir, upTo int64) storage.CheckpointInfo {
	t.Helper()
	c, err := d.BeginCompaction(storage.CompactOptions{UpTo: upTo, Now: 1 << 40, DeleteRetention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// cleanAll lets everything go but the newest checkpoint and the log behind it.
func cleanAll(t testing.TB, d *storage.Dir) {
	t.Helper()
	if c := d.BeginClean(storage.CleanOptions{HighWatermark: d.Log.End(), MaxBytes: 1}); c != nil {
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// latest is the newest record of each key below upTo.
func latest(t testing.TB, d *storage.Dir, upTo int64) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := d.Walk(0, upTo, func(b record.Batch) error { return newest(all, b) }); err != nil {
		t.Fatal(err)
	}
	return all
}

func snapshotBytes(t testing.TB, d *storage.Dir, info storage.CheckpointInfo) []byte {
	t.Helper()
	data, size, err := d.ReadCheckpoint(nil, info.ID, 0, int(info.Size))
	if err != nil || size != info.Size || int64(len(data)) != size {
		t.Fatalf("read checkpoint: %d of %d bytes, %v", len(data), size, err)
	}
	return data
}

// offer lets a directory download and check a file.
func offer(d *storage.Dir, id raft.OffsetAndEpoch, content []byte) (*storage.Download, []raft.ControlAt, error) {
	w, err := d.BeginDownload(id)
	if err != nil {
		return nil, nil, err
	}
	if err := w.Append(content); err != nil {
		return w, nil, err
	}
	controls, err := w.Verify(nil)
	return w, controls, err
}

func used(t testing.TB, fsys vfs.FS) (size int64) {
	t.Helper()
	for _, content := range files(t, fsys) {
		size += int64(len(content))
	}
	return size
}

// TestST08DamagedCheckpoint: with any byte of the newest damaged, an older one serves as long as the log covers the rest;
// else nothing is believed and nothing removed.
func TestST08DamagedCheckpoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, tt := range []struct {
		name    string
		cleaned bool
	}{{"the log covers it", false}, {"the log was cleaned", true}} {
		fsys := formatted(t)
		d := filled(t, fsys, 30)
		compactTo(t, d, 42)
		newestID := compactTo(t, d, 72).ID
		if tt.cleaned {
			cleanAll(t, d)
		}
		want := latest(t, d, d.Log.End())
		mustClose(t, d)
		name := checkpointFile(newestID)
		whole := readFile(t, fsys, name)
		damages := map[string]string{"empty": "", "no footer": whole[:strings.LastIndex(whole, "\x00\x00\x00\x00\x00\x00\x00\x48")]}
		for i := 0; i < len(whole); i += 1 + rng.IntN(15) {
			b := []byte(whole)
			b[i] ^= 0x80
			damages[fmt.Sprintf("bit flipped at %d", i)] = string(b)
			damages[fmt.Sprintf("cut at %d", i)] = whole[:i]
		}
		for what, content := range damages {
			disk := fsys.CrashClone(rng, 1)
			if err := disk.Remove(name); err != nil {
				t.Fatal(err)
			}
			writeFile(t, disk, name, content)
			d, err := storage.Open(disk, dataDir, opts)
			if tt.cleaned {
				if !storage.IsToken(err, storage.SnapshotMissing) || !strings.Contains(err.Error(), name+" is damaged: position ") {
					t.Fatalf("%s, %s: %v", tt.name, what, err)
				}
				if readFile(t, disk, name) != content {
					t.Fatalf("%s, %s: the file was changed", tt.name, what)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s, %s: %v", tt.name, what, err)
			}
			if infos := d.Checkpoints(); len(infos) != 1 || infos[0].ID != at(42, 2) || *d.LogState().Snapshot != infos[0].ID {
				t.Fatalf("%s, %s: checkpoints %v", tt.name, what, infos)
			}
			if got := latest(t, d, d.Log.End()); !maps.Equal(got, want) {
				t.Fatalf("%s, %s: newest records %v, want %v", tt.name, what, got, want)
			}
			if there, _ := vfs.Exists(disk, name); there || !slices.Contains(d.Recovery().Removed, name) {
				t.Fatalf("%s, %s: the damaged file is there: %v, removed %v", tt.name, what, there, d.Recovery().Removed)
			}
			if told := d.Recovery().Damaged; len(told) != 1 || told[0].File != name || !strings.Contains(told[0].Reason, "position ") {
				t.Fatalf("%s, %s: of the damage is told %+v", tt.name, what, told)
			}
			d.Abandon()
		}
	}
}

// TestST04DamageBelowACheckpointIsFatal: it must not pass for a torn tail just because nobody has written the file committed
// since, or the log be replaced by a checkpoint that ends before what was acknowledged.
func TestST04DamageBelowACheckpointIsFatal(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	for range 30 {
		mustAppend(t, d, overwriting(d.Log.End(), 1, 3, 50))
	}
	mustFlush(t, d)
	compactTo(t, d, 60)
	d.Abandon()
	segment := logDir + "/00000000000000000000.log"
	content := []byte(readFile(t, fsys, segment))
	at := batchStarts(storage.KindSegment, string(content))[10]
	content[at+70] ^= 1
	writeFile(t, fsys, segment, string(content))
	if _, err := storage.Open(fsys, dataDir, opts); !storage.IsToken(err, storage.LogCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("%s at position %d, offset 30: ", segment, at)) {
		t.Error(err)
	}
	if readFile(t, fsys, segment) != string(content) {
		t.Error("the segment was changed")
	}
}

// TestST02PartialFilesGoFirst: they may be what fills the disk.
func TestST02PartialFilesGoFirst(t *testing.T) {
	fsys := formatted(t)
	d := filled(t, fsys, 30)
	compactTo(t, d, 42)
	w, err := d.BeginDownload(at(500, 9))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	d.Abandon()
	left := []string{"00000000000000000500-0000000009.checkpoint.part", "00000000000000000090-0000000005.checkpoint.tmp", "00000000000000000042-0000000003.checkpoint.deleted"}
	for _, name := range left[1:] {
		writeFile(t, fsys, path.Join(logDir, name), "x")
	}
	fsys.SetCapacity(used(t, fsys))
	d = open(t, fsys, opts)
	defer d.Abandon()
	for _, name := range left {
		if there, _ := vfs.Exists(fsys, path.Join(logDir, name)); there {
			t.Errorf("%s is still there", name)
		}
	}
}

// slowReader downloads the newest checkpoint piece by piece, and begins anew when it is gone.
type slowReader struct {
	piece  int
	id     raft.OffsetAndEpoch
	at     int64
	done   int // downloads
	again  int // times it began anew
	rounds int // that the last download has taken
}

func (r *slowReader) read(t *testing.T, d *storage.Dir) {
	t.Helper()
	if r.rounds++; r.at == 0 {
		infos := d.Checkpoints()
		r.id = infos[len(infos)-1].ID
	}
	data, size, err := d.ReadCheckpoint(nil, r.id, r.at, r.piece)
	switch {
	case errors.Is(err, storage.ErrNoCheckpoint):
		r.again++
		r.at = 0
	case err != nil:
		t.Fatal(err)
	default:
		if r.at += int64(len(data)); r.at == size {
			r.done++
			r.at, r.rounds = 0, 0
		}
	}
}

// TestST10OddPieces: whatever the sizes, the bytes are the file's; positions outside are refused, and 2^31 is no border.
func TestST10OddPieces(t *testing.T) {
	d := filled(t, formatted(t), 30)
	defer d.Abandon()
	info := compactTo(t, d, 90)
	whole := snapshotBytes(t, d, info)
	for _, piece := range []int{1, 7, len(whole) - 1, len(whole), len(whole) + 1, 10*len(whole) + 7} {
		var got, buf []byte
		for int64(len(got)) < info.Size {
			data, size, err := d.ReadCheckpoint(buf, info.ID, int64(len(got)), piece)
			if err != nil || len(data) == 0 || len(data) > piece || size != info.Size {
				t.Fatalf("pieces of %d, at %d: %d bytes of %d, %v", piece, len(got), len(data), size, err)
			}
			left, _, err := d.FindCheckpoint(info.ID, int64(len(got)), piece)
			if err != nil {
				t.Fatal(err)
			}
			if there := bytesOf(t, storage.Records{Section: left}); !bytes.Equal(there, data) {
				t.Fatalf("pieces of %d, at %d: %d bytes in place, %d read, or others", piece, len(got), len(there), len(data))
			}
			got, buf = append(got, data...), data
		}
		if !bytes.Equal(got, whole) {
			t.Errorf("pieces of %d make another file", piece)
		}
	}
	for _, position := range []int64{-1, info.Size, info.Size + 1, 1 << 40} {
		if _, size, err := d.ReadCheckpoint(nil, info.ID, position, 10); !errors.Is(err, storage.ErrPosition) || size != info.Size {
			t.Errorf("position %d: %v", position, err)
		}
		if _, size, err := d.FindCheckpoint(info.ID, position, 10); !errors.Is(err, storage.ErrPosition) || size != info.Size {
			t.Errorf("position %d: %v", position, err)
		}
	}
	for _, id := range []raft.OffsetAndEpoch{{}, at(90, 4), at(89, 5)} {
		if _, _, err := d.ReadCheckpoint(nil, id, 0, 10); !errors.Is(err, storage.ErrNoCheckpoint) {
			t.Errorf("%v: %v", id, err)
		}
	}
	if data, _, err := d.ReadCheckpoint(nil, info.ID, 0, -1); err != nil || len(data) != 0 {
		t.Errorf("no bytes asked: %d, %v", len(data), err)
	}
}

func TestST10PositionsBeyond31Bits(t *testing.T) {
	d, dir := benchDir(t)
	for range 3 {
		mustAppend(t, d, overwriting(d.Log.End(), 1, 3, 50))
	}
	mustFlush(t, d)
	compactTo(t, d, 9)
	mustClose(t, d)
	// Of an older checkpoint nobody reads more than he is asked for.
	const size = 1<<31 + 10
	f, err := os.Create(filepath.Join(dir, "__cluster_metadata-0", "00000000000000000003-0000000001.checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("the end"), size-7); err != nil {
		t.Skip("no sparse files here")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = storage.Open(vfs.OS, dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Abandon()
	data, got, err := d.ReadCheckpoint(nil, at(3, 1), size-7, 100)
	if err != nil || string(data) != "the end" || got != size {
		t.Errorf("%q of %d bytes, %v", data, got, err)
	}
}

// TestST11CheckpointsEndAtBatches: whatever offset is asked for, the checkpoint ends at a batch's end at or below it, and it
// and the log behind it are as good as the log.
func TestST11CheckpointsEndAtBatches(t *testing.T) {
	source := filled(t, formatted(t), 12)
	defer source.Abandon()
	all := content(t, source, source.Log.End())
	ends := map[int64]raft.Epoch{}
	for h, err := range record.Headers(all) {
		if err != nil {
			t.Fatal(err)
		}
		ends[h.NextOffset()] = h.Epoch
	}
	want := latest(t, source, source.Log.End())
	for upTo := int64(-1); upTo <= source.Log.End()+2; upTo++ {
		d := filled(t, formatted(t), 12)
		c, err := d.BeginCompaction(storage.CompactOptions{UpTo: upTo})
		if err == nil {
			var info storage.CheckpointInfo
			if info, err = c.Run(); err == nil {
				if epoch, ok := ends[info.ID.Offset]; !ok || epoch != info.ID.Epoch || info.ID.Offset > upTo {
					t.Fatalf("up to %d: checkpoint %v, batches end at %v", upTo, info.ID, ends)
				}
				replay(t, d, info, want)
			}
		}
		if upTo < 3 != errors.Is(err, storage.ErrNothingNew) || err != nil && !errors.Is(err, storage.ErrNothingNew) {
			t.Errorf("up to %d: %v", upTo, err)
		}
		d.Abandon()
	}
}

// replay gives a follower the checkpoint and the log behind it.
func replay(t *testing.T, d *storage.Dir, info storage.CheckpointInfo, want map[string]string) {
	t.Helper()
	follower := open(t, formatted(t), opts)
	defer follower.Abandon()
	copyCheckpoint(t, d, follower, info, make([]byte, 1000))
	if err := d.Log.Walk(info.ID.Offset, d.Log.End(), func(b record.Batch) error { return follower.Log.Append(0, b.Raw) }); err != nil {
		t.Fatal(err)
	}
	if got := latest(t, follower, follower.Log.End()); !maps.Equal(got, want) {
		t.Fatalf("checkpoint %v and the log behind it: %v, want %v", info.ID, got, want)
	}
}

// TestC201CheckpointHasTheVotersOfItsOffset, not those of the log's end.
func TestC201CheckpointHasTheVotersOfItsOffset(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	set := func(host string) raft.VoterSet {
		s := voters()
		s[0].Endpoints = []raft.Endpoint{{Name: "CONTROLLER", Host: host, Port: 9093}}
		return s
	}
	mustAppend(t, d, record.EncodeControl(0, 1, 1000, raft.LeaderChange{Leader: 1}, raft.KRaftVersion{Version: 1}, raft.Voters{Set: set("first")}))
	mustAppend(t, d, batch(3, 1, 2), record.EncodeControl(5, 1, 1000, raft.Voters{Set: set("second")}), batch(6, 1, 2))
	mustAppend(t, d, record.EncodeControl(8, 1, 1000, raft.Voters{Set: set("third")}), batch(9, 1, 2))
	mustFlush(t, d)
	for _, tt := range []struct {
		upTo int64
		host string
	}{{5, "first"}, {8, "second"}, {11, "third"}} {
		info := compactTo(t, d, tt.upTo)
		follower := open(t, formatted(t), opts)
		w, controls, err := offer(follower, info.ID, snapshotBytes(t, d, info))
		if err != nil {
			t.Fatal(err)
		}
		if err := follower.Install(w, true); err != nil {
			t.Fatal(err)
		}
		want := []raft.ControlAt{{Offset: tt.upTo - 1, Record: raft.KRaftVersion{Version: 1}}, {Offset: tt.upTo - 1, Record: raft.Voters{Set: set(tt.host)}}}
		if fmt.Sprint(controls) != fmt.Sprint(want) {
			t.Errorf("up to %d: %v, want %v", tt.upTo, controls, want)
		}
		follower.Abandon()
	}
	mustClose(t, d)
	d = open(t, fsys, opts)
	defer d.Abandon()
	if got := d.LogState().Control; len(got) != 2 || got[1].Offset != 10 {
		t.Errorf("control records after a start: %v", got)
	}
}

// TestC181DownloadsAreCheckedWhole: nothing that is not a whole checkpoint of that name is believed, and nothing of it stays.
func TestC181DownloadsAreCheckedWhole(t *testing.T) {
	d := filled(t, formatted(t), 12)
	defer d.Abandon()
	id := compactTo(t, d, 36).ID
	good := snapshotBytes(t, d, d.Checkpoints()[0])
	var parts [][]byte
	for b, err := range record.All(good) {
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, b.Raw)
	}
	n := len(parts)
	head, data, foot := parts[0], parts[1:n-1], parts[n-1]
	join := slices.Concat[[]byte]
	all := slices.Concat(data...)
	leader := record.EncodeControl(30, 1, 1000, raft.LeaderChange{Leader: 1})
	for _, tt := range []struct {
		name    string
		id      raft.OffsetAndEpoch
		content []byte
		is      error
	}{
		{"good", id, good, nil},
		{"nothing in it, nor a checksum", id, join(head, record.EncodeControls(id.Offset, id.Epoch, 1000, record.Control{Type: record.TypeSnapshotFooter})), nil},
		{"a batch is missing", id, join(head, slices.Concat(data[1:]...), foot), record.ErrCorrupt},
		{"empty", id, nil, record.ErrCorrupt},
		{"no header", id, join(all, foot), record.ErrCorrupt},
		{"footer first", id, join(foot, all, head), record.ErrCorrupt},
		{"no footer", id, join(head, all), record.ErrCorrupt},
		{"two headers", id, join(head, head, all, foot), record.ErrCorrupt},
		{"data behind the footer", id, join(head, foot, all), record.ErrCorrupt},
		{"two footers", id, join(good, foot), record.ErrCorrupt},
		{"a batch twice", id, join(head, all, data[len(data)-1], foot), record.ErrCorrupt},
		{"out of order", id, join(head, data[1], data[0], foot), record.ErrCorrupt},
		{"another's control batch", id, join(head, all, leader, foot), record.ErrCorrupt},
		{"beyond its offset", at(id.Offset-1, id.Epoch), good, record.ErrCorrupt},
		{"of a later epoch", at(id.Offset, id.Epoch-1), good, record.ErrCorrupt},
		{"one byte short", id, good[:len(good)-1], record.ErrShort},
		{"a byte more", id, append(bytes.Clone(good), 0), record.ErrShort},
		{"control record of the future", id, join(head, unknownControl(), foot), record.ErrUnknown},
	} {
		fsys := formatted(t)
		follower := open(t, fsys, opts)
		w, _, err := offer(follower, tt.id, tt.content)
		if !errors.Is(err, tt.is) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.is)
		}
		if _, fault := errors.AsType[*storage.Fault](err); fault {
			t.Errorf("%s: a leader's bytes are no fault of the directory: %v", tt.name, err)
		}
		if err != nil {
			w.Discard()
		} else if err := follower.Install(w, true); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if n := len(follower.Checkpoints()); (n == 1) != (tt.is == nil) {
			t.Errorf("%s: %d checkpoints", tt.name, n)
		}
		for name := range files(t, fsys) {
			if strings.HasSuffix(name, ".part") {
				t.Errorf("%s: %s is left", tt.name, name)
			}
		}
		mustAppend(t, follower, batch(follower.Log.End(), 9, 1))
		follower.Abandon()
	}
}

// TestKafkasCheckpointsAreTaken: those that real controllers made.
func TestKafkasCheckpointsAreTaken(t *testing.T) {
	names, err := filepath.Glob(kafkaDirs + "/*/__cluster_metadata-0/*.checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, name := range names {
		var id raft.OffsetAndEpoch
		if _, err := fmt.Sscanf(strings.NewReplacer("-", " ", ".", " ").Replace(filepath.Base(name)), "%d %d", &id.Offset, &id.Epoch); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(name)
		if err != nil || id.Offset == 0 {
			continue
		}
		fsys := formatted(t)
		d := open(t, fsys, opts)
		w, controls, err := offer(d, id, content)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := d.Install(w, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(controls) != 2 || d.Log.End() != id.Offset || d.Checkpoints()[0].Timestamp < 1e12 || d.Checkpoints()[0].Records == 0 {
			t.Errorf("%s: %v, log end %d, %+v", name, controls, d.Log.End(), d.Checkpoints())
		}
		mustClose(t, d)
		if readFile(t, fsys, checkpointFile(id)) != string(content) {
			t.Errorf("%s: taken with other bytes", name)
		}
		taken++
	}
	if taken < 4 {
		t.Errorf("%d checkpoints taken", taken)
	}
}

// TestST13FsyncErrorOfACheckpointIsFatal: no second fsync of that file or any other, and no call that pretends.
func TestST13FsyncErrorOfACheckpointIsFatal(t *testing.T) {
	source := filled(t, formatted(t), 12)
	defer source.Abandon()
	info := compactTo(t, source, 36)
	data := snapshotBytes(t, source, info)
	later := at(info.ID.Offset+100, info.ID.Epoch)
	for _, tt := range []struct {
		name, suffix string
		op           vfs.Op
		do           func(d *storage.Dir) error
	}{
		{"compaction", ".checkpoint.tmp", vfs.OpSync, func(d *storage.Dir) error { return compactErr(d, 36) }},
		{"directory of a compaction", logDir, vfs.OpSyncDir, func(d *storage.Dir) error { return compactErr(d, 36) }},
		{"download", ".checkpoint.part", vfs.OpSync, func(d *storage.Dir) error {
			_, _, err := offer(d, later, data)
			return err
		}},
		{"install", logDir, vfs.OpSyncDir, func(d *storage.Dir) error {
			w, _, err := offer(d, later, data)
			return errors.Join(err, d.Install(w, true))
		}},
		{"cleaning", logDir, vfs.OpSyncDir, func(d *storage.Dir) error {
			return d.BeginClean(storage.CleanOptions{HighWatermark: 30, MaxBytes: 1}).Run()
		}},
	} {
		var fail, failed bool
		var after []string
		fsys := vfs.WithFaults(formatted(t), func(c vfs.Call) error {
			switch {
			case failed && (c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir):
				after = append(after, c.Path)
			case fail && !failed && c.Op == tt.op && strings.HasSuffix(c.Path, tt.suffix):
				failed = true
				return syscall.EIO
			}
			return nil
		})
		d := filled(t, fsys, 12)
		compactTo(t, d, 30)
		fail = true
		if err := tt.do(d); !storage.IsToken(err, storage.DiskIOError) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err := d.Log.Append(0, batch(d.Log.End(), 9, 1)); !storage.IsToken(err, storage.DiskIOError) {
			t.Errorf("%s: append after it: %v", tt.name, err)
		}
		if err := compactErr(d, 36); !storage.IsToken(err, storage.DiskIOError) {
			t.Errorf("%s: compaction after it: %v", tt.name, err)
		}
		if err := d.Close(); !storage.IsToken(err, storage.DiskIOError) {
			t.Errorf("%s: close after it: %v", tt.name, err)
		}
		if len(after) > 0 {
			t.Errorf("%s: fsyncs after the failed one: %v", tt.name, after)
		}
	}
}

func compactErr(d *storage.Dir, upTo int64) error {
	c, err := d.BeginCompaction(storage.CompactOptions{UpTo: upTo})
	if err != nil {
		return err
	}
	_, err = c.Run()
	return err
}

// TestCancelledCompactionLeavesNothing.
func TestCancelledCompactionLeavesNothing(t *testing.T) {
	fsys := formatted(t)
	d := filled(t, fsys, 12)
	defer d.Abandon()
	c, err := d.BeginCompaction(storage.CompactOptions{UpTo: 36})
	if err != nil {
		t.Fatal(err)
	}
	c.Cancel()
	if _, err := c.Run(); !errors.Is(err, storage.ErrCanceled) {
		t.Error(err)
	}
	for name := range files(t, fsys) {
		if strings.Contains(name, "000036-") {
			t.Errorf("%s is left", name)
		}
	}
	compactTo(t, d, 36) // and another one may begin
}
