package storage_test

import (
	"errors"
	"math/rand/v2"
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
