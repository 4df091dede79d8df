package storage_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// FuzzOpen gives Open any log, state, epochs and committed position: it opens or says which Fault, and what it opened it
// opens again the same, without anything left to mend.
func FuzzOpen(f *testing.F) {
	for _, dir := range []string{"static-voter", "dynamic-leader"} {
		read := func(name string) []byte {
			b, err := os.ReadFile(filepath.Join(kafkaDirs, dir, "__cluster_metadata-0", name))
			if err != nil {
				f.Fatal(err)
			}
			return b
		}
		log := read("00000000000000000000.log")
		f.Add(log[:min(len(log), 3000)], read("quorum-state"), read("leader-epoch-checkpoint"), []byte("0\n1\n2 20\n"))
	}
	f.Fuzz(func(t *testing.T, log, state, epochs, committed []byte) {
		fsys := formatted(t)
		for name, data := range map[string][]byte{
			"00000000000000000000.log": log, "quorum-state": state, "leader-epoch-checkpoint": epochs, "committed": committed,
		} {
			writeFile(t, fsys, logDir+"/"+name, string(data))
		}
		d, err := storage.Open(fsys, dataDir, opts)
		if err != nil {
			if _, ok := errors.AsType[*storage.Fault](err); !ok {
				t.Fatalf("no fault: %v", err)
			}
			return
		}
		end, election := d.Log.End(), d.ElectionState()
		d.Abandon()
		d = open(t, fsys, opts)
		if r := d.Recovery(); d.Log.End() != end || d.ElectionState() != election || r.Torn.Bytes > 0 || r.EpochsRebuilt {
			t.Fatalf("end %d then %d, %+v then %+v, %+v", end, d.Log.End(), election, d.ElectionState(), r)
		}
		if err := d.Log.Append(0, batch(end, 1<<30, 1)); err != nil {
			t.Fatal(err)
		}
		mustClose(t, d)
	})
}

// FuzzCheckpoint offers any bytes as a checkpoint, with the CRCs made right. What is taken is read, walked, compacted and
// found again by the next start; what is not leaves nothing behind. Put into the directory, it is used or given up. Run it with
// -fuzzminimizetime 10x: else most of the time goes into making inputs smaller.
func FuzzCheckpoint(f *testing.F) {
	d := filled(f, formatted(f), 12)
	ours := snapshotBytes(f, d, compactTo(f, d, 36))
	d.Abandon()
	f.Add(ours, int64(36), int32(2))
	f.Add(ours[:len(ours)-72], int64(36), int32(2))
	kafkas, err := os.ReadFile(filepath.Join(kafkaDirs, "dynamic-leader", "__cluster_metadata-0", "00000000000000000443-0000000005.checkpoint"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kafkas[:min(len(kafkas), 4000)], int64(443), int32(5))
	f.Add(kafkas, int64(443), int32(5))
	f.Fuzz(func(t *testing.T, content []byte, offset int64, epoch int32) {
		if offset <= 0 || epoch < 0 || len(content) > 1<<16 {
			return
		}
		reseal(content)
		id := at(offset, raft.Epoch(epoch))
		fsys := formatted(t)
		d := open(t, fsys, opts)
		w, _, err := offer(d, id, content)
		if _, fault := errors.AsType[*storage.Fault](err); fault {
			t.Fatalf("a fault: %v", err)
		}
		if err != nil {
			w.Discard()
			mustClose(t, d)
			writeFile(t, fsys, checkpointFile(id), string(content))
			if d, err = storage.Open(fsys, dataDir, opts); err == nil { // it starts without
				if len(d.Checkpoints()) > 0 {
					t.Fatal("the start takes what a download does not")
				}
				d.Abandon()
			} else if !storage.IsToken(err, storage.UnknownRecord) {
				t.Fatal(err)
			}
			return
		}
		if err := d.Install(w, true); err != nil {
			t.Fatal(err)
		}
		mustClose(t, d)
		d = open(t, fsys, opts)
		defer d.Abandon()
		if infos := d.Checkpoints(); len(infos) != 1 || infos[0].ID != id || d.Log.Start() != offset || d.Log.End() != offset {
			t.Fatalf("checkpoints %v, log [%d, %d)", infos, d.Log.Start(), d.Log.End())
		}
		records := int64(0)
		for from := int64(0); from < offset; {
			data, err := d.ReadFrom(nil, from, 1000, offset)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) == 0 {
				break
			}
			for b, err := range record.All(data) {
				if err != nil || b.NextOffset() <= from {
					t.Fatalf("read at %d: %+v, %v", from, b.Header, err)
				}
				from = b.NextOffset()
				records += int64(b.Count)
			}
		}
		if records != d.Checkpoints()[0].Records {
			t.Fatalf("read %d records of %d", records, d.Checkpoints()[0].Records)
		}
		if offset > 1<<62 {
			return
		}
		mustAppend(t, d, batch(offset, raft.Epoch(epoch), 2))
		switch err := compactErr(d, mustFlush(t, d)); {
		case storage.IsToken(err, storage.LogCorrupt): // its records, which nobody has looked into
		case err != nil:
			t.Fatal(err)
		}
	})
}

// reseal makes the CRCs of all batches right.
func reseal(p []byte) {
	for len(p) > 0 {
		h, err := record.ParseHeader(p)
		if err != nil || h.Size > len(p) {
			return
		}
		binary.BigEndian.PutUint32(p[17:], crc32.Checksum(p[21:h.Size], crc32.MakeTable(crc32.Castagnoli)))
		p = p[h.Size:]
	}
}

// FuzzSmallFiles: what a decoder accepts, it writes so that it reads the same again.
func FuzzSmallFiles(f *testing.F) {
	f.Add([]byte(`{"leaderId":1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"ABEiM0RVZneImaq7zN3u_w","data_version":1}`))
	f.Add([]byte("0\n2\n1 0\n3 1\n"))
	f.Add([]byte("#\nnode.id=1\ndirectory.id=ABEiM0RVZneImaq7zN3u_w\nversion=1\ncluster.id=a\\=b\n"))
	f.Add([]byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"))
	f.Add(storage.EncodeCommitted(7, 3))
	f.Add(storage.EncodeMeta(storage.Meta{ClusterID: "a=b", NodeID: 1, DirectoryID: dir1}))
	f.Add(storage.EncodeQuorumState(raft.ElectionState{Epoch: 7, Leader: 1, Voted: raft.ReplicaKey{ID: 2, DirectoryID: dir1}}, 1, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := storage.DecodeQuorumState(b); err == nil {
			if again, err := storage.DecodeQuorumState(storage.EncodeQuorumState(s, 1, nil)); err != nil || again != s {
				t.Errorf("quorum-state %q: %+v, then %+v, %v", b, s, again, err)
			}
		}
		if e, err := storage.DecodeEpochs(b); err == nil {
			if again, err := storage.DecodeEpochs(storage.EncodeEpochs(e)); err != nil || len(again) != len(e) {
				t.Errorf("epochs %q: %v, then %v, %v", b, e, again, err)
			}
		}
		if p, err := storage.DecodeCommitted(b); err == nil {
			if again, err := storage.DecodeCommitted(storage.EncodeCommitted(p.Offset, p.Epoch)); err != nil || again != p {
				t.Errorf("committed %q: %v, then %v, %v", b, p, again, err)
			}
		}
		if m, err := storage.DecodeMeta(b); err == nil && m.DirectoryID != (raft.UUID{}) {
			if again, err := storage.DecodeMeta(storage.EncodeMeta(m)); err != nil || again != m {
				t.Errorf("meta.properties %q: %+v, then %+v, %v", b, m, again, err)
			}
		}
		if id, err := storage.DecodePartition(b); err == nil {
			if again, err := storage.DecodePartition(storage.EncodePartition(id)); err != nil || again != id {
				t.Errorf("partition.metadata %q: %v, then %v, %v", b, id, again, err)
			}
		}
	})
}
