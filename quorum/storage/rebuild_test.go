package storage_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// TestQuorumStateRoundTrips: C-022, C-014. Both versions of the file hold an epoch with a leader, with a vote, with both
// and with neither; version 0 knows no directory ids.
func TestQuorumStateRoundTrips(t *testing.T) {
	voted := raft.ReplicaKey{ID: 3, DirectoryID: dir1}
	for _, version := range []int16{0, 1} {
		for _, want := range []raft.ElectionState{
			{Epoch: 0, Leader: raft.None, Voted: raft.NoReplica},
			{Epoch: 7, Leader: 2, Voted: raft.NoReplica},
			{Epoch: 7, Leader: raft.None, Voted: voted},
			{Epoch: 7, Leader: 2, Voted: voted},
			{Epoch: 7, Leader: 3, Voted: voted},
			{Epoch: 1<<31 - 1, Leader: 1<<31 - 1, Voted: raft.ReplicaKey{ID: 1<<31 - 1}},
		} {
			text := storage.EncodeQuorumState(want, version, voters())
			got, err := storage.DecodeQuorumState(text)
			if err != nil {
				t.Fatalf("version %d, %+v: %v", version, want, err)
			}
			if version == 0 {
				want.Voted.DirectoryID = raft.UUID{}
			}
			if got != want || !bytes.Contains(text, fmt.Appendf(nil, `"data_version":%d`, version)) {
				t.Errorf("version %d: %+v became %+v by way of %s", version, want, got, text)
			}
		}
	}
}

// TestB50StartReadsNoDataRecords: a start finds the control records by the batches' headers. The records of a data batch may
// be anything whose checksum is right.
func TestB50StartReadsNoDataRecords(t *testing.T) {
	fsys := formatted(t)
	mustClose(t, open(t, fsys, opts))
	noise := batch(0, 1, 3)
	for i := record.HeaderSize; i < len(noise); i++ {
		noise[i] = 0xff
	}
	const checksum, checked = 17, 21 // positions in a header
	binary.BigEndian.PutUint32(noise[checksum:], crc32.Checksum(noise[checked:], crc32.MakeTable(crc32.Castagnoli)))
	control := record.EncodeControl(3, 1, 1000, raft.KRaftVersion{Version: 1}, raft.Voters{Set: voters()})
	writeFile(t, fsys, logDir+"/00000000000000000000.log", string(noise)+string(control))
	d := open(t, fsys, opts)
	defer d.Abandon()
	s := d.LogState()
	if d.Log.End() != 5 || d.Recovery().Torn.Bytes != 0 || len(s.Control) == 0 || s.Control[len(s.Control)-1].Offset != 4 {
		t.Errorf("the log ends at %d, recovery %+v, control records %+v", d.Log.End(), d.Recovery(), s.Control)
	}
}

// TestIndexesAndEpochsAreRebuilt: C-175, B-39. What Kafka leaves beside the segments is not needed, and the epoch
// checkpoint may be missing, empty, damaged, or hold what a truncation has taken away: the log itself says what is so.
func TestIndexesAndEpochsAreRebuilt(t *testing.T) {
	const segment, epochs = logDir + "/00000000000000000000.log", logDir + "/leader-epoch-checkpoint"
	for name, damage := range map[string]func(fsys *vfs.Mem){
		"missing":             func(fsys *vfs.Mem) { _ = fsys.Remove(epochs) },
		"empty":               func(fsys *vfs.Mem) { writeFile(t, fsys, epochs, "") },
		"garbage":             func(fsys *vfs.Mem) { writeFile(t, fsys, epochs, "\x00\x00\x00") },
		"too little":          func(fsys *vfs.Mem) { writeFile(t, fsys, epochs, "0\n1\n1 0\n") },
		"epochs that are cut": func(fsys *vfs.Mem) { writeFile(t, fsys, epochs, "0\n4\n1 0\n3 4\n5 6\n6 9\n") },
		"indexes of Kafka's": func(fsys *vfs.Mem) {
			_ = fsys.Remove(epochs)
			for _, kind := range []string{"index", "timeindex", "snapshot"} {
				writeFile(t, fsys, strings.TrimSuffix(segment, "log")+kind, "\x01\x02\x03")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := formatted(t)
			d := open(t, fsys, opts)
			mustAppend(t, d, batch(0, 1, 4), batch(4, 3, 2))
			mustClose(t, d)
			damage(fsys)
			d = open(t, fsys, opts)
			if s := d.LogState(); s.End != 6 || !slices.Equal(s.Epochs, []raft.OffsetAndEpoch{{Offset: 0, Epoch: 1}, {Offset: 4, Epoch: 3}}) {
				t.Errorf("log state %+v", s)
			}
			if !d.Recovery().EpochsRebuilt {
				t.Error("the recovery does not tell of it")
			}
			mustClose(t, d)
			if got := readFile(t, fsys, epochs); got != "0\n2\n1 0\n3 4\n" {
				t.Errorf("leader-epoch-checkpoint %q", got)
			}
		})
	}
}

// TestAppendContinuesTheLog: C-171. What does not follow the end of the log is a bug of the caller, and nothing is written.
func TestAppendContinuesTheLog(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	mustAppend(t, d, batch(0, 2, 3))
	whole := d.Log.Size()
	for name, b := range map[string][]byte{
		"before the end":       batch(2, 2, 1),
		"behind a hole":        batch(4, 2, 1),
		"of an earlier epoch":  batch(3, 1, 1),
		"cut":                  batch(3, 2, 1)[:70],
		"nothing":              {},
		"with a second, wrong": append(batch(3, 2, 1), batch(9, 2, 1)...),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: appended", name)
				}
			}()
			_ = d.Log.Append(0, b)
		}()
		if d.Log.Size() != whole || d.Log.End() != 3 {
			t.Fatalf("%s: the log is now %d bytes long and ends at %d", name, d.Log.Size(), d.Log.End())
		}
	}
	mustAppend(t, d)
	mustAppend(t, d, batch(3, 2, 1))
	mustClose(t, d)
}
