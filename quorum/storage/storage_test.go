package storage_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

const (
	dataDir = "/data"
	logDir  = "/data/__cluster_metadata-0"
)

var (
	dir1 = mustUUID("ABEiM0RVZneImaq7zN3u_w")
	opts = storage.Options{ClusterID: "clusterA", NodeID: 1}
)

func mustUUID(s string) raft.UUID {
	u, err := raft.ParseUUID(s)
	if err != nil {
		panic(err)
	}
	return u
}

func voters() raft.VoterSet {
	return raft.VoterSet{{
		Key:       raft.ReplicaKey{ID: 1, DirectoryID: dir1},
		Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: "q-1", Port: 9093}},
		KRaft:     raft.VersionRange{Max: 1},
	}}
}

func formatOptions() storage.FormatOptions {
	return storage.FormatOptions{ClusterID: "clusterA", NodeID: 1, InitialVoters: voters(), KRaftVersion: 1, Timestamp: 1000}
}

// formatted returns a fresh file system with a formatted directory.
func formatted(t testing.TB) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	if err := storage.Format(fsys, dataDir, formatOptions()); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func open(t testing.TB, fsys vfs.FS, o storage.Options) *storage.Dir {
	t.Helper()
	d, err := storage.Open(fsys, dataDir, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// batch makes a batch of n records whose content says where it belongs.
func batch(base int64, epoch raft.Epoch, n int) []byte {
	return batchOf(base, epoch, n, 10)
}

func batchOf(base int64, epoch raft.Epoch, n, valueBytes int) []byte {
	b := record.NewBuilder(1000+base, record.None)
	for i := range n {
		key := fmt.Appendf(nil, "key-%d", base+int64(i))
		b.Append(1000+base+int64(i), key, fmt.Append(bytes.Repeat([]byte{'v'}, valueBytes), epoch))
	}
	raw, err := b.Build(base, epoch)
	if err != nil {
		panic(err)
	}
	return raw
}

func mustAppend(t testing.TB, d *storage.Dir, batches ...[]byte) {
	t.Helper()
	if err := d.Log.Append(0, batches...); err != nil {
		t.Fatal(err)
	}
}

func mustFlush(t testing.TB, d *storage.Dir) int64 {
	t.Helper()
	end, err := d.Log.Flush()
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func mustClose(t testing.TB, d *storage.Dir) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// content returns all bytes of the log in [start, upTo).
func content(t testing.TB, d *storage.Dir, upTo int64) []byte {
	t.Helper()
	var all []byte
	if err := d.Log.Walk(d.Log.Start(), upTo, func(b record.Batch) error {
		all = append(all, b.Raw...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func readFile(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeFile(t testing.TB, fsys vfs.FS, name, data string) {
	t.Helper()
	if err := vfs.WriteFile(fsys, name, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func unknownControl() []byte {
	return record.EncodeControls(0, 1, 1000, record.Control{Type: 7})
}
