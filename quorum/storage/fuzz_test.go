package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
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
