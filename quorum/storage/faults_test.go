package storage_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// TestST05DamagedStateFile: what cannot be read is refused and left alone; what only looks odd starts.
func TestST05DamagedStateFile(t *testing.T) {
	good := `{"leaderId":-1,"leaderEpoch":7,"votedId":2,"votedDirectoryId":"AQIDBAUGBwgJCgsMDQ4PEA","data_version":1}`
	v0 := `{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`
	voted2 := raft.ElectionState{Epoch: 7, Leader: raft.None, Voted: raft.ReplicaKey{ID: 2, DirectoryID: mustUUID("AQIDBAUGBwgJCgsMDQ4PEA")}}
	for _, tt := range []struct {
		name, content string
		want          raft.ElectionState // Epoch 0: refused
	}{
		{"empty", "", raft.ElectionState{}},
		{"half", good[:len(good)/2], raft.ElectionState{}},
		{"garbage", "\x00\x01\x02", raft.ElectionState{}},
		{"no version", strings.Replace(good, `,"data_version":1`, "", 1), raft.ElectionState{}},
		{"version 2", strings.Replace(good, `version":1`, `version":2`, 1), raft.ElectionState{}},
		{"no vote", strings.Replace(good, `"votedId":2,`, "", 1), raft.ElectionState{}},
		{"v0 without voters", strings.Replace(v0, `"currentVoters":[{"voterId":1}],`, "", 1), raft.ElectionState{}},
		{"epoch below 0", strings.Replace(good, `:7`, `:-7`, 1), raft.ElectionState{}},
		{"bad directory", strings.Replace(good, `AQID`, `----====`, 1), raft.ElectionState{}},
		{"good", good, voted2},
		{"newline and a new field", good[:len(good)-1] + `,"extra":1}` + "\n", voted2},
		{"version 0", v0, raft.ElectionState{Epoch: 7, Leader: 1, Voted: raft.ReplicaKey{ID: raft.None}}},
	} {
		fsys := formatted(t)
		mustClose(t, open(t, fsys, opts))
		writeFile(t, fsys, logDir+"/quorum-state", tt.content)
		writeFile(t, fsys, logDir+"/quorum-state.tmp", "stale")
		d, err := storage.Open(fsys, dataDir, opts)
		if tt.want.Epoch == 0 {
			if !storage.IsToken(err, storage.StateFileCorrupt) || !strings.Contains(err.Error(), logDir+"/quorum-state") {
				t.Errorf("%s: %v", tt.name, err)
			}
			if got := readFile(t, fsys, logDir+"/quorum-state"); got != tt.content {
				t.Errorf("%s: the file was changed to %q", tt.name, got)
			}
			continue
		}
		if err != nil || d.ElectionState() != tt.want {
			t.Errorf("%s: %v, %v", tt.name, err, d)
			continue
		}
		if got := readFile(t, fsys, logDir+"/quorum-state.tmp"); len(got) != 512 {
			t.Errorf("%s: the spare has %d bytes", tt.name, len(got))
		}
		d.Abandon()
	}
}

// TestST06MissingStateFile: it may be missing only where nothing ever ran, else the member may vote twice.
func TestST06MissingStateFile(t *testing.T) {
	for _, tt := range []struct {
		name   string
		remove []string
		token  storage.Token
	}{
		{"log is there", []string{"quorum-state"}, storage.StateFileCorrupt},
		{"only the epoch checkpoint is there", []string{"quorum-state", "00000000000000000000.log", "committed"}, storage.StateFileCorrupt},
		{"only committed is there", []string{"quorum-state", "00000000000000000000.log", "leader-epoch-checkpoint"}, storage.StateFileCorrupt},
		{"log is gone but the state is there", []string{"00000000000000000000.log"}, storage.LogCorrupt},
		{"nothing is there", []string{"quorum-state", "00000000000000000000.log", "leader-epoch-checkpoint", "committed"}, ""},
	} {
		fsys := formatted(t)
		d := open(t, fsys, opts)
		mustAppend(t, d, batch(0, 9, 3))
		mustFlush(t, d)
		d.MarkCommitted(0, 3)
		mustClose(t, d)
		for _, name := range tt.remove {
			if err := fsys.Remove(path.Join(logDir, name)); err != nil {
				t.Fatal(err)
			}
		}
		d, err := storage.Open(fsys, dataDir, opts)
		if tt.token == "" && err != nil || tt.token != "" && !storage.IsToken(err, tt.token) {
			t.Errorf("%s: %v, want token %q", tt.name, err, tt.token)
		}
		if err == nil {
			d.Abandon()
		}
	}
}

// tail prepares a log of three committed batches and one more, and returns where that one lies.
func tail(t *testing.T) (fsys *vfs.Mem, segment string, from, size int64) {
	fsys = formatted(t)
	d := open(t, fsys, opts)
	mustAppend(t, d, batch(0, 1, 3), batch(3, 1, 3), batch(6, 1, 3))
	mustFlush(t, d)
	d.MarkCommitted(0, 9)
	if err := d.WriteCommitted(); err != nil {
		t.Fatal(err)
	}
	from = d.Log.Size()
	mustAppend(t, d, batchOf(9, 1, 20, 300))
	size = d.Log.Size()
	d.Abandon()
	return fsys, logDir + "/00000000000000000000.log", from, size
}

// TestST03TornTail: whatever the end looks like, also cut at each byte of the last batch, the log starts up to the last
// whole one.
func TestST03TornTail(t *testing.T) {
	_, _, from, size := tail(t)
	rng := rand.New(rand.NewPCG(3, 3))
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	type damage struct {
		name string
		cut  int64 // size to cut to
		zero int64 // zero from here
		add  []byte
		end  int64 // the log's end after the start
	}
	cases := []damage{
		{"whole", size, size, nil, 29},
		{"last 4 KiB zeroed", size, size - 4096, nil, 9},
		{"4 MiB of zeros", size, size, make([]byte, 4<<20), 29},
		{"noise", size, size, noise, 29},
		{"half a batch and noise", size - 100, size, noise, 9},
	}
	step := int64(1)
	if testing.Short() {
		step = 97
	}
	for cut := from; cut < size; cut += step {
		cases = append(cases, damage{fmt.Sprintf("cut at %d of [%d, %d)", cut, from, size), cut, size, nil, 9})
	}
	for _, tt := range cases {
		fsys, segment, from, _ := tail(t)
		f, err := fsys.OpenReadWrite(segment)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Truncate(tt.cut)
		if tt.zero < tt.cut {
			_, _ = f.WriteAt(make([]byte, tt.cut-tt.zero), tt.zero)
		}
		_, _ = f.WriteAt(tt.add, tt.cut)
		damagedSize, _ := f.Size()
		_ = f.Close()
		d, err := storage.Open(fsys, dataDir, opts)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := d.Log.End(); got != tt.end {
			t.Errorf("%s: end %d, want %d", tt.name, got, tt.end)
		}
		wantSize := from
		if tt.end == 29 {
			wantSize = size
		}
		torn := d.Recovery().Torn
		if d.Log.Size() != wantSize || torn.Bytes != damagedSize-wantSize || torn.Bytes > 0 && (torn.Position != wantSize || torn.Offset != tt.end || torn.File != segment) {
			t.Errorf("%s: log of %d bytes, recovery %+v", tt.name, d.Log.Size(), torn)
		}
		if tt.cut > from && tt.cut%37 != 0 && tt.cut < size {
			d.Abandon()
			continue
		}
		// It goes on from there, and what was cut does not come back.
		mustAppend(t, d, batch(tt.end, 2, 1))
		mustClose(t, d)
		d = open(t, fsys, opts)
		if d.Log.End() != tt.end+1 || d.Recovery().Torn.Bytes != 0 {
			t.Errorf("%s: after another start: end %d, %+v", tt.name, d.Log.End(), d.Recovery().Torn)
		}
		d.Abandon()
	}
}

// TestST04DamageBelowCommittedIsFatal: every bit below the committed offset, and damage that more follows than one write
// leaves unsynced. The error names segment, position and offset; nothing is cut.
func TestST04DamageBelowCommittedIsFatal(t *testing.T) {
	fsys, segment, from, _ := tail(t)
	whole := readFile(t, fsys, segment)
	starts := batchStarts(storage.KindSegment, whole)
	check := func(name, content, place string) {
		t.Helper()
		writeFile(t, fsys, segment, content)
		_, err := storage.Open(fsys, dataDir, opts)
		if !storage.IsToken(err, storage.LogCorrupt) {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.Contains(err.Error(), place) {
			t.Errorf("%s: %q, want %s", name, err, place)
		}
		if readFile(t, fsys, segment) != content {
			t.Fatalf("%s: the segment was changed", name)
		}
	}
	place := func(i int) string { return fmt.Sprintf("%s at position %d, offset %d: ", segment, starts[i], 3*i) }
	for i, start := range starts[:3] {
		for at := start; at < starts[i+1]; at++ {
			for bit := range 8 {
				if testing.Short() && (at*8+bit)%31 != 0 {
					continue
				}
				b := []byte(whole)
				b[at] ^= 1 << bit
				want := place(i)
				switch epoch := int32(binary.BigEndian.Uint32(b[start+12:])); { // has no checksum
				case i == 0 && epoch == 0:
					continue // as good as the other; Verify misses the LeaderChange, see TestAFlippedByteIsFound
				case i == 2 && epoch > 1:
					want = fmt.Sprintf("%s holds epoch %d before offset 9, where epoch 1 was committed", logDir, epoch)
				case epoch > 1:
					want = place(i + 1) // which has a smaller one
				}
				check(fmt.Sprintf("bit %d flipped at %d of %d", bit, at, from), string(b), want)
			}
		}
	}
	check("log lost behind the committed offset", whole[:starts[2]+10], place(2))
	check("log lost at the end of a batch", whole[:starts[2]], logDir+" ends at offset 6, but all before offset 9 ")
	check("log empty", "", logDir+" ends at offset 0, but all before offset 9 ")
	check("more than a group behind the damage", whole[:from+100]+strings.Repeat("x", storage.MaxGroup), place(3))
}

func TestDamageInAnotherSegment(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(fsys *vfs.Mem)
		end    int64 // -1: LOG_CORRUPT
	}{
		{"segment in the middle missing, nothing committed", func(fsys *vfs.Mem) { _ = fsys.Remove(logDir + "/00000000000000000004.log") }, 4},
		{"cut inside the first", func(fsys *vfs.Mem) {
			f, _ := fsys.OpenReadWrite(logDir + "/00000000000000000002.log")
			_ = f.Truncate(50)
		}, 2},
	} {
		fsys := formatted(t)
		o := opts
		o.SegmentBytes = 100
		d := open(t, fsys, o)
		for i := range int64(5) {
			mustAppend(t, d, batch(i*2, 1, 2))
		}
		mustFlush(t, d)
		d.Abandon()
		tt.damage(fsys)
		d = open(t, fsys, o)
		if d.Log.End() != tt.end {
			t.Errorf("%s: end %d, want %d", tt.name, d.Log.End(), tt.end)
		}
		mustAppend(t, d, batch(tt.end, 1, 2))
		mustClose(t, d)
		d = open(t, fsys, o)
		if d.Log.End() != tt.end+2 || d.Recovery().Torn.Bytes != 0 {
			t.Errorf("%s: after another start: end %d, %+v", tt.name, d.Log.End(), d.Recovery())
		}
		d.Abandon()
	}
}

func TestDamagedCommittedFileIsRefused(t *testing.T) {
	for _, content := range []string{"", "0\n", "0\n1\n", "0\n1\n1 x\n", "1\n1\n1 9\n", "0\n2\n1 3\n2 9\n"} {
		fsys, _, _, _ := tail(t)
		writeFile(t, fsys, logDir+"/committed", content)
		if _, err := storage.Open(fsys, dataDir, opts); !storage.IsToken(err, storage.StateFileCorrupt) {
			t.Errorf("%q: %v", content, err)
		}
	}
	fsys, _, _, _ := tail(t)
	writeFile(t, fsys, logDir+"/committed", "0\n1\n2 9\n")
	if _, err := storage.Open(fsys, dataDir, opts); !storage.IsToken(err, storage.LogCorrupt) {
		t.Errorf("another epoch was committed: %v", err)
	}
}

// TestST07LogStartsAboveZeroWithoutSnapshot: of no checkpoint, and of one that ends before the log begins, the error tells
// both offsets.
func TestST07LogStartsAboveZeroWithoutSnapshot(t *testing.T) {
	fsys := kafka(t, "observer-after-snapshot")
	for _, name := range []string{"00000000000000000709-0000000005.checkpoint", "00000000000000000734-0000000005.checkpoint"} {
		if err := fsys.Remove(path.Join(logDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := storage.Open(fsys, dataDir, storage.Options{ClusterID: "AAECAwQFBgcICQoLDA0ODw", NodeID: 4})
	if !storage.IsToken(err, storage.SnapshotMissing) || !strings.Contains(err.Error(), "starts at offset 709") {
		t.Errorf("no checkpoint: %v", err)
	}

	fsys = formatted(t)
	d := filled(t, fsys, 30)
	compactTo(t, d, 60)
	mustClose(t, d)
	names, err := fsys.List(logDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names { // the log begins at 78 now
		if strings.HasSuffix(name, ".log") && name < "00000000000000000078.log" {
			if err := fsys.Remove(path.Join(logDir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err = storage.Open(fsys, dataDir, opts)
	if !storage.IsToken(err, storage.SnapshotMissing) || !strings.Contains(err.Error(), "starts at offset 78 ") || !strings.Contains(err.Error(), "the newest ends at 60") {
		t.Errorf("a checkpoint of offset 60: %v", err)
	}
	if again, listErr := fsys.List(logDir); listErr != nil || len(again) < len(names)-3 {
		t.Errorf("left %v of %v: %v", again, names, listErr)
	}
}

// TestST08PartialSnapshots: the newest whole one counts.
func TestST08PartialSnapshots(t *testing.T) {
	fsys := kafka(t, "observer-after-snapshot")
	writeFile(t, fsys, logDir+"/00000000000000000734-0000000005.checkpoint", "")
	writeFile(t, fsys, logDir+"/00000000000000000740-0000000005.checkpoint.part", "x")
	d := open(t, fsys, storage.Options{ClusterID: "AAECAwQFBgcICQoLDA0ODw", NodeID: 4})
	defer d.Abandon()
	if s := d.LogState(); *s.Snapshot != (raft.OffsetAndEpoch{Offset: 709, Epoch: 5}) {
		t.Errorf("snapshot %v", *s.Snapshot)
	}
	if ok, _ := vfs.Exists(fsys, logDir+"/00000000000000000740-0000000005.checkpoint.part"); ok {
		t.Error("the partial file is still there")
	}
}

// TestSnapshotAheadOfTheLog: the log that it replaces goes, also if that was interrupted.
func TestSnapshotAheadOfTheLog(t *testing.T) {
	fsys := kafka(t, "observer-after-snapshot")
	if err := fsys.Rename(logDir+"/00000000000000000734-0000000005.checkpoint", logDir+"/00000000000000000800-0000000006.checkpoint"); err != nil {
		t.Fatal(err)
	}
	d := open(t, fsys, storage.Options{ClusterID: "AAECAwQFBgcICQoLDA0ODw", NodeID: 4})
	if s := d.LogState(); s.Start != 800 || s.End != 800 || len(s.Epochs) != 0 {
		t.Errorf("log state %+v", s)
	}
	mustAppend(t, d, batch(800, 6, 1))
	mustClose(t, d)
}

// TestST13FsyncErrorIsFatal: no second fsync on anything, and no call that pretends.
func TestST13FsyncErrorIsFatal(t *testing.T) {
	for _, tt := range []struct {
		name string
		call vfs.Op
		path string
		do   func(d *storage.Dir) error
	}{
		{"log", vfs.OpSync, ".log", func(d *storage.Dir) error { _, err := d.Log.Flush(); return err }},
		{"quorum-state", vfs.OpSync, "quorum-state.tmp", func(d *storage.Dir) error {
			return d.WriteElectionState(raft.ElectionState{Epoch: 5, Leader: 1, Voted: raft.NoReplica}, 1, nil)
		}},
		{"directory of quorum-state", vfs.OpSyncDir, logDir, func(d *storage.Dir) error {
			return d.WriteElectionState(raft.ElectionState{Epoch: 5, Leader: 1, Voted: raft.NoReplica}, 1, nil)
		}},
		{"epochs", vfs.OpSync, "leader-epoch-checkpoint.tmp", func(d *storage.Dir) error {
			if err := d.Log.AssignEpoch(raft.OffsetAndEpoch{Offset: 3, Epoch: 9}); err != nil {
				return err
			}
			return d.WriteCommitted()
		}},
		{"truncation", vfs.OpSync, ".log", func(d *storage.Dir) error { return d.Log.Truncate(0) }},
	} {
		var fail, failed bool
		syncs := 0
		fsys := vfs.WithFaults(formatted(t), func(c vfs.Call) error {
			if !fail || c.Op != vfs.OpSync && c.Op != vfs.OpSyncDir {
				return nil
			}
			syncs++
			if !failed && c.Op == tt.call && strings.HasSuffix(c.Path, tt.path) {
				failed = true
				return syscall.ENOSPC // also without space: an fsync that fails is fatal
			}
			return nil
		})
		d := open(t, fsys, opts)
		mustAppend(t, d, batch(0, 1, 3))
		fail = true
		if err := tt.do(d); !storage.IsToken(err, storage.DiskIOError) || errors.Is(err, storage.ErrDiskFull) {
			t.Errorf("%s: %v", tt.name, err)
		}
		before := syncs
		for name, err := range map[string]error{
			"same again":  tt.do(d),
			"append":      d.Log.Append(0, batch(d.Log.End(), 1, 1)),
			"truncate":    d.Log.Truncate(0),
			"state":       d.WriteElectionState(raft.ElectionState{Epoch: 6, Leader: 1, Voted: raft.NoReplica}, 1, nil),
			"committed":   d.WriteCommitted(),
			"clean close": d.Close(),
		} {
			if !storage.IsToken(err, storage.DiskIOError) {
				t.Errorf("%s: %s after it: %v", tt.name, name, err)
			}
		}
		if syncs != before {
			t.Errorf("%s: %d more fsyncs after the failed one", tt.name, syncs-before)
		}
	}
}

// TestST01FullDisk: a write that finds no space is undone, also if it went half through, and the log goes on once there
// is space again.
func TestST01FullDisk(t *testing.T) {
	for _, short := range []int{0, 1, 100, 400} {
		full := false
		mem := formatted(t)
		fsys := vfs.WithFaults(mem, func(c vfs.Call) error {
			if full && c.Op == vfs.OpWrite && strings.HasSuffix(c.Path, ".log") {
				return &vfs.ShortWrite{N: short, Err: syscall.ENOSPC}
			}
			return nil
		})
		d := open(t, fsys, opts)
		mustAppend(t, d, batch(0, 1, 3))
		full = true
		err := d.Log.Append(0, batch(3, 1, 5), batch(8, 1, 9))
		var f *storage.Fault
		if !errors.Is(err, storage.ErrDiskFull) || errors.As(err, &f) {
			t.Errorf("short write of %d: %v", short, err)
		}
		if d.Log.End() != 3 {
			t.Errorf("end %d", d.Log.End())
		}
		mustFlush(t, d)
		full = false
		mustAppend(t, d, batch(3, 1, 2))
		mustClose(t, d)
		d = open(t, mem, opts)
		if d.Log.End() != 5 || d.Recovery().Torn.Bytes != 0 {
			t.Errorf("after a restart: end %d, %+v", d.Log.End(), d.Recovery())
		}
		d.Abandon()
	}
}

// TestST27EmptySegmentAfterARoll: a roll whose write found no space leaves an empty segment, which is no damage.
func TestST27EmptySegmentAfterARoll(t *testing.T) {
	full := false
	mem := formatted(t)
	fsys := vfs.WithFaults(mem, func(c vfs.Call) error {
		if full && c.Op == vfs.OpWrite && strings.HasSuffix(c.Path, ".log") {
			return syscall.ENOSPC
		}
		return nil
	})
	o := opts
	o.SegmentBytes = 200
	d := open(t, fsys, o)
	mustAppend(t, d, batch(0, 1, 4))
	full = true
	if err := d.Log.Append(0, batch(4, 1, 4)); !errors.Is(err, storage.ErrDiskFull) {
		t.Fatal(err)
	}
	mustClose(t, d)
	writeFile(t, mem, logDir+"/00000000000000000000.index", "whatever Kafka leaves beside the segments")
	d = open(t, mem, o)
	if d.Log.End() != 4 || d.Log.Segments() != 2 || d.Recovery().Torn.Bytes != 0 {
		t.Errorf("end %d, %d segments, %+v", d.Log.End(), d.Log.Segments(), d.Recovery())
	}
	mustAppend(t, d, batch(4, 1, 4))
	mustClose(t, d)
}

func TestFailedCutBackIsFatal(t *testing.T) {
	fail := false
	fsys := vfs.WithFaults(formatted(t), func(c vfs.Call) error {
		switch {
		case fail && c.Op == vfs.OpWrite:
			return &vfs.ShortWrite{N: 10, Err: syscall.ENOSPC}
		case fail && c.Op == vfs.OpTruncate:
			return syscall.EIO
		}
		return nil
	})
	d := open(t, fsys, opts)
	fail = true
	if err := d.Log.Append(0, batch(0, 0, 3)); !storage.IsToken(err, storage.DiskIOError) {
		t.Errorf("append: %v", err)
	}
	if _, err := d.Log.Flush(); !storage.IsToken(err, storage.DiskIOError) {
		t.Errorf("flush after it: %v", err)
	}
}

func TestReserve(t *testing.T) {
	fsys := formatted(t)
	o := opts
	o.Reserve = 1000
	d := open(t, fsys, o)
	defer d.Abandon()
	free := func() storage.Space {
		s, err := d.Free()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if free().Below {
		t.Error("below the reserve on an empty disk")
	}
	fsys.SetCapacity(2000)
	if s := free(); s.Below != (s.Free < 1000) {
		t.Errorf("%+v", s)
	}
	fsys.SetCapacity(1)
	if s := free(); !s.Below || s.Free != 0 {
		t.Errorf("%+v", s)
	}
}

// TestST21TwoProcesses: the second waits for its grace and then says who has it.
func TestST21TwoProcesses(t *testing.T) {
	fsys := formatted(t)
	first := open(t, fsys, opts)
	var slept time.Duration
	o := opts
	o.LockGrace = time.Second
	o.Sleep = func(d time.Duration) { slept += d }
	if _, err := storage.Open(fsys, dataDir, o); !storage.IsToken(err, storage.DirLocked) || slept != o.LockGrace {
		t.Errorf("second: %v after %v", err, slept)
	}
	o.Sleep = func(time.Duration) { first.Abandon() } // it dies while the second waits
	second := open(t, fsys, o)
	second.Abandon()
}

// TestNoMoreThanOneGroupIsUnsynced is what the judgement of a torn tail rests on.
func TestNoMoreThanOneGroupIsUnsynced(t *testing.T) {
	syncs := 0
	fsys := vfs.WithFaults(formatted(t), func(c vfs.Call) error {
		if c.Op == vfs.OpSync && strings.HasSuffix(c.Path, ".log") {
			syncs++
		}
		return nil
	})
	d := open(t, fsys, opts)
	defer d.Abandon()
	next := int64(0)
	for range 20 {
		b := batchOf(next, 1, 10, 150_000) // 1.5 MB
		mustAppend(t, d, b)
		next += 10
	}
	if syncs != 3 { // five batches are 7.5 MB; a sixth would be too much
		t.Errorf("%d fsyncs for 30 MB without a Flush", syncs)
	}
	if d.Log.FlushedEnd() != 150 {
		t.Errorf("flushed end %d", d.Log.FlushedEnd())
	}
}

func TestST26UnknownControlRecordStopsTheStart(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	mustAppend(t, d, batch(0, 1, 3))
	mustClose(t, d)
	const segment = logDir + "/00000000000000000000.log"
	before := readFile(t, fsys, segment)
	writeFile(t, fsys, segment, before+string(record.EncodeControls(3, 1, 1000, record.Control{Type: 7})))
	_, err := storage.Open(fsys, dataDir, opts)
	if want := fmt.Sprintf("%s at position %d: offset 3: ", segment, len(before)); !storage.IsToken(err, storage.UnknownRecord) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "control type 7") {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestAChangedDigitIsRefused: of epoch, vote, identity and what is committed nothing else tells, so they have a checksum.
func TestAChangedDigitIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, from, to string }{
		{logDir + "/quorum-state", `"leaderEpoch":9`, `"leaderEpoch":8`},
		{logDir + "/quorum-state", `"votedId":2`, `"votedId":3`},
		{dataDir + "/meta.properties", "node.id=1", "node.id=3"},
		{dataDir + "/meta.properties", "cluster.id=clusterA", "cluster.id=clusterC"},
		{logDir + "/committed", "1 10", "1 18"},
		{logDir + "/committed", "1 10", "1 11"},
	} {
		fsys := formatted(t)
		d := open(t, fsys, opts)
		if err := d.WriteElectionState(raft.ElectionState{Epoch: 9, Leader: raft.None, Voted: raft.ReplicaKey{ID: 2, DirectoryID: dir1}}, 1, nil); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, d, batch(0, 1, 20))
		mustFlush(t, d)
		d.MarkCommitted(0, 10)
		mustClose(t, d)
		text := readFile(t, fsys, tt.name)
		if !strings.Contains(text, tt.from) {
			t.Fatalf("%s: %q lacks %q", tt.name, text, tt.from)
		}
		writeFile(t, fsys, tt.name, strings.Replace(text, tt.from, tt.to, 1))
		if _, err := storage.Open(fsys, dataDir, storage.Options{NodeID: raft.None}); !storage.IsToken(err, storage.StateFileCorrupt) || !strings.Contains(err.Error(), tt.name) {
			t.Errorf("%s instead of %s: %v", tt.to, tt.from, err)
		}
	}
}
