package storage_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

func ballot(epoch raft.Epoch) raft.ElectionState {
	return raft.ElectionState{Epoch: epoch, Leader: raft.None, Voted: raft.ReplicaKey{ID: 2, DirectoryID: dir1}}
}

// TestST02VotesOnADiskWithoutAByte: others of the volume take every byte before each call, those that the member has just
// freed too. It votes again and again, and starts, and each vote is there after a power cut at any call.
func TestST02VotesOnADiskWithoutAByte(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	disk := formatted(t)
	d := open(t, disk, opts)
	mustAppend(t, d, batch(0, 1, 3))
	mustFlush(t, d)
	if err := d.WriteElectionState(ballot(1), 1, nil); err != nil {
		t.Fatal(err)
	}
	d.Abandon() // leader-epoch-checkpoint and committed are not written

	full := func(m *vfs.Mem) { m.SetCapacity(used(t, m)) }
	voted, voting := raft.Epoch(1), raft.Epoch(1)
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		full(disk)
		if !c.Op.Writes() {
			return nil
		}
		for _, p := range []float64{0, 0.5, 1} {
			left := disk.CrashClone(rng, p)
			full(left)
			d, err := storage.Open(left, dataDir, opts)
			if err != nil {
				t.Fatalf("power cut before %s %s: %v", c.Op, c.Path, err)
			}
			if got := d.ElectionState(); got != ballot(voted) && got != ballot(voting) {
				t.Fatalf("power cut before %s %s: %+v, want the vote of epoch %d or %d", c.Op, c.Path, got, voted, voting)
			}
			if err := d.WriteElectionState(ballot(voting+1), 1, nil); err != nil {
				t.Fatalf("power cut before %s %s, next vote: %v", c.Op, c.Path, err)
			}
			d.Abandon()
		}
		return nil
	})
	for range 3 {
		d := open(t, fsys, opts)
		for range 8 { // some of them longer than the one before
			voting++
			if err := d.WriteElectionState(ballot(voting), 1, nil); err != nil {
				t.Fatal(err)
			}
			voted = voting
		}
		if free, err := d.Free(); err != nil || free.Free != 0 || !free.Full {
			t.Errorf("%+v, %v: want a full disk", free, err)
		}
		d.MarkCommitted(0, 3)
		if err := d.Close(); err != nil {
			t.Errorf("a clean stop: %v", err)
		}
	}
}

// TestST02VoteWithoutASpare: a spare could not be made, or its room was taken where names cannot be exchanged. Then a vote
// that finds no room is not given, what was voted before stands, and with the room the spare is back.
func TestST02VoteWithoutASpare(t *testing.T) {
	disk := formatted(t)
	greedy := false
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		if greedy {
			disk.SetCapacity(used(t, disk))
		}
		if c.Op == vfs.OpExchange {
			return errors.ErrUnsupported
		}
		return nil
	})
	d := open(t, fsys, opts)
	for epoch := raft.Epoch(1); epoch < 5; epoch++ { // nobody else wants the room that the old one leaves
		disk.SetCapacity(used(t, disk))
		if err := d.WriteElectionState(ballot(epoch), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	greedy = true
	if err := d.WriteElectionState(ballot(5), 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteElectionState(ballot(6), 1, nil); !errors.Is(err, storage.ErrDiskFull) {
		t.Fatalf("a vote without room: %v", err)
	}
	d.Abandon()
	d = open(t, fsys, opts)
	if d.ElectionState() != ballot(5) {
		t.Errorf("%+v, want the vote of epoch 5", d.ElectionState())
	}
	if err := d.WriteElectionState(ballot(6), 1, nil); !errors.Is(err, storage.ErrDiskFull) {
		t.Errorf("a vote without room after a restart: %v", err)
	}
	greedy = false
	disk.SetCapacity(0)
	if err := d.ProvideSpare(); err != nil {
		t.Fatal(err)
	}
	greedy = true
	if err := d.WriteElectionState(ballot(6), 1, nil); err != nil {
		t.Errorf("a vote with a spare: %v", err)
	}
	d.Abandon()
}

// TestST01FullDiskAtEveryWrite lets the disk be full at every write of a life with a compaction, a download and a cleaning,
// for a while. Whatever fails may be tried again, and nothing is lost.
func TestST01FullDiskAtEveryWrite(t *testing.T) {
	source := filled(t, formatted(t), 20)
	defer source.Abandon()
	info := compactTo(t, source, 60)
	data := snapshotBytes(t, source, info)
	want := latest(t, source, 60)
	points := 0
	for first := 1; ; first++ {
		mem := formatted(t)
		calls, full := 0, false
		fsys := vfs.WithFaults(mem, func(c vfs.Call) error {
			if c.Op != vfs.OpWrite && c.Op != vfs.OpCreate {
				return nil
			}
			if calls++; calls == first {
				full = true
			}
			if full {
				return &vfs.ShortWrite{N: c.Size / 2, Err: syscall.ENOSPC}
			}
			return nil
		})
		var failed error
		// try does something until it goes well, once there is space again.
		try := func(what string, do func() error) {
			t.Helper()
			err := do()
			if err != nil && full && failed == nil {
				failed = err
				if _, fault := errors.AsType[*storage.Fault](err); fault || !errors.Is(err, storage.ErrDiskFull) {
					t.Fatalf("full at write %d, %s: %v", first, what, err)
				}
				full = false
				err = do()
			}
			if err != nil {
				t.Fatalf("full at write %d, %s again: %v", first, what, err)
			}
		}
		var d *storage.Dir
		o := opts
		o.SegmentBytes = 1000
		try("open", func() (err error) {
			d, err = storage.Open(fsys, dataDir, o)
			return err
		})
		for d.Log.End() < 30 {
			try("append", func() error { return d.Log.Append(0, overwriting(d.Log.End(), 1+raft.Epoch(d.Log.End()/20), 3, 50)) })
		}
		mustFlush(t, d)
		d.MarkCommitted(0, 30)
		try("committed", d.WriteCommitted)
		try("vote", func() error {
			return d.WriteElectionState(raft.ElectionState{Epoch: 7, Leader: raft.None, Voted: raft.NoReplica}, 1, nil)
		})
		try("compaction", func() error { return compactErr(d, 15) })
		try("compaction", func() error { return compactErr(d, 30) })
		cleanAll(t, d)
		var w *storage.Download
		try("download", func() (err error) {
			if w, err = d.BeginDownload(info.ID); err != nil {
				return err
			}
			for len(data[w.Size():]) > 0 {
				if err := w.Append(data[w.Size():min(w.Size()+200, info.Size)]); err != nil {
					w.Discard()
					return err
				}
			}
			_, err = w.Verify(nil)
			return err
		})
		installed := d.Install(w, true)
		if installed != nil { // no log can be begun: the process ends, and the next one begins it
			if !full || !storage.IsToken(installed, storage.DiskIOError) {
				t.Fatalf("full at write %d, install: %v", first, installed)
			}
			full = false
			d.Abandon()
			d = open(t, fsys, o)
		}
		if got := latest(t, d, d.Log.End()); d.Log.End() != 60 || !maps.Equal(got, want) || d.ElectionState().Epoch != 7 {
			t.Fatalf("full at write %d: log end %d, %v, want %v", first, d.Log.End(), got, want)
		}
		for name := range files(t, mem) {
			if strings.HasSuffix(name, ".tmp") && !strings.HasSuffix(name, "quorum-state.tmp") || strings.HasSuffix(name, ".part") {
				t.Fatalf("full at write %d: %s is left", first, name)
			}
		}
		full = false
		if err := d.Close(); err != nil && !errors.Is(err, storage.ErrDiskFull) {
			t.Fatalf("full at write %d, close: %v", first, err)
		}
		open(t, mem, o).Abandon()
		if calls < first {
			break
		}
		points++
	}
	t.Logf("%d writes", points)
	if points < 30 {
		t.Errorf("only %d writes", points)
	}
}

// TestCheckpointsLeaveRoomForAVote: at the end of the reserve a compaction and a download stop, and a vote is still written.
func TestCheckpointsLeaveRoomForAVote(t *testing.T) {
	fsys := formatted(t)
	o := opts
	o.Reserve = 4000
	d := open(t, fsys, o)
	defer d.Abandon()
	for range 30 {
		mustAppend(t, d, batchOf(d.Log.End(), 1, 3, 500))
	}
	mustFlush(t, d)
	fsys.SetCapacity(used(t, fsys) + 6000)
	if err := compactErr(d, d.Log.End()); !errors.Is(err, storage.ErrDiskFull) {
		t.Errorf("compaction: %v", err)
	}
	if _, _, err := offer(d, at(1000, 3), make([]byte, 5000)); !errors.Is(err, storage.ErrDiskFull) {
		t.Errorf("download: %v", err)
	}
	if err := d.WriteElectionState(raft.ElectionState{Epoch: 3, Leader: raft.None, Voted: raft.NoReplica}, 1, nil); err != nil {
		t.Errorf("vote: %v", err)
	}
}

// TestST01GroupOfTwoEpochsIsTriedAgain: what found no room leaves no trace, also not of the epochs that it would have begun.
func TestST01GroupOfTwoEpochsIsTriedAgain(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	defer d.Abandon()
	mustAppend(t, d, batchOf(0, 1, 1, 50))
	group := [][]byte{batchOf(1, 2, 1, 50), batchOf(2, 3, 1, 50)}
	fsys.SetCapacity(used(t, fsys) + 10)
	if err := d.Log.Append(0, group...); !errors.Is(err, storage.ErrDiskFull) || d.Log.End() != 1 || d.Log.LastEpoch() != 1 {
		t.Fatalf("on a full disk: %v, log end %d, last epoch %d", err, d.Log.End(), d.Log.LastEpoch())
	}
	fsys.SetCapacity(0)
	if err := d.Log.Append(0, group...); err != nil || d.Log.End() != 3 || d.Log.LastEpoch() != 3 {
		t.Fatalf("with room again: %v, log end %d, last epoch %d", err, d.Log.End(), d.Log.LastEpoch())
	}
}
