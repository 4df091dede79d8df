package storage_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/metrics"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// images fills a log with batches of ten records of 1 KiB, each key written twice.
func images(t testing.TB, d *storage.Dir, bytes int64) {
	t.Helper()
	for d.Log.Size() < bytes {
		end := d.Log.End()
		b := record.NewBuilder(1000, record.None)
		for i := range int64(10) {
			value := make([]byte, 1024)
			binary.BigEndian.PutUint64(value, uint64(end+i))
			b.Append(1000, binary.BigEndian.AppendUint64(nil, uint64(end+i)/2), value)
		}
		raw, err := b.Build(end, 1)
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, d, raw)
	}
	mustFlush(t, d)
}

func compact(t testing.TB, d *storage.Dir) storage.CheckpointInfo {
	t.Helper()
	c, err := d.BeginCompaction(storage.CompactOptions{UpTo: d.Log.FlushedEnd()})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// TestST17SnapshotsAreStreamed: what making and taking a checkpoint allocates, all together, does not grow with it. So
// memory cannot either, whatever the garbage collector does.
func TestST17SnapshotsAreStreamed(t *testing.T) {
	const limit = 24 << 20
	size := int64(192 << 20)
	if testing.Short() {
		size = 48 << 20
	}
	d, _ := benchDir(t)
	defer d.Abandon()
	images(t, d, size)
	before := allocated()
	info := compact(t, d)
	if used := allocated() - before; used > limit {
		t.Errorf("compaction of %d MiB allocated %d MiB, limit %d", size>>20, used>>20, limit>>20)
	} else {
		t.Logf("compaction of %d MiB allocated %.1f MiB", size>>20, float64(used)/(1<<20))
	}

	follower, _ := benchDir(t)
	defer follower.Abandon()
	buf := make([]byte, 1<<20)
	before = allocated()
	copyCheckpoint(t, d, follower, info, buf)
	if used := allocated() - before; used > 4<<20 {
		t.Errorf("a copy of %d MiB allocated %d MiB", info.Size>>20, used>>20)
	} else {
		t.Logf("a copy of %d MiB allocated %.1f MiB", info.Size>>20, float64(used)/(1<<20))
	}
	before = allocated()
	records := int64(0)
	for offset := int64(0); offset < info.ID.Offset; {
		data, err := follower.ReadFrom(buf, offset, 512<<10, info.ID.Offset)
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range record.All(data) {
			if err != nil {
				t.Fatal(err)
			}
			records += int64(b.Count)
			offset = b.NextOffset()
		}
	}
	if used := allocated() - before; used > 1<<20 {
		t.Errorf("reading it allocated %d KiB", used>>10)
	}
	if records != info.Records || records == 0 {
		t.Errorf("read %d records of %d", records, info.Records)
	}
}

func copyCheckpoint(t testing.TB, from, to *storage.Dir, info storage.CheckpointInfo, buf []byte) {
	t.Helper()
	w, err := to.BeginDownload(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	for w.Size() < info.Size {
		data, _, err := from.ReadCheckpoint(buf, info.ID, w.Size(), cap(buf))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Append(data); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Verify(nil); err != nil {
		t.Fatal(err)
	}
	if err := to.Install(w, true); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkCompact makes the first checkpoint of a log of 128 MiB, half of which stays; MB/s are of the log.
func BenchmarkCompact(b *testing.B) {
	d, dir := benchDir(b)
	images(b, d, 128<<20)
	b.SetBytes(d.Log.Size())
	b.ReportAllocs()
	for b.Loop() {
		compact(b, d)
		b.StopTimer()
		d = withoutCheckpoints(b, d, dir)
		b.StartTimer()
	}
	d.Abandon()
}

// withoutCheckpoints opens the directory again after its checkpoints were removed by hand.
func withoutCheckpoints(t testing.TB, d *storage.Dir, dir string) *storage.Dir {
	t.Helper()
	infos := d.Checkpoints()
	mustClose(t, d)
	for _, info := range infos {
		name := fmt.Sprintf("%s/__cluster_metadata-0/%020d-%010d.checkpoint", dir, info.ID.Offset, info.ID.Epoch)
		if err := vfs.OS.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	d, err := storage.Open(vfs.OS, dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// BenchmarkCompactAgain takes 1 MiB of log into a checkpoint of 64 MiB; MB/s are of the checkpoint.
func BenchmarkCompactAgain(b *testing.B) {
	d, _ := benchDir(b)
	defer func() { d.Abandon() }()
	images(b, d, 128<<20)
	b.SetBytes(compact(b, d).Size)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		images(b, d, d.Log.Size()+1<<20)
		b.StartTimer()
		compact(b, d)
		b.StopTimer()
		if c := d.BeginClean(storage.CleanOptions{HighWatermark: d.Log.End(), MaxBytes: 1}); c != nil {
			if err := c.Run(); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
	}
}

// BenchmarkDownload copies a checkpoint of 64 MiB from one directory to another in pieces of 1 MiB, checks it and lets it
// replace the log, beside a plain copy of the same bytes and its fsync.
func BenchmarkDownload(b *testing.B) {
	d, dir := benchDir(b)
	defer d.Abandon()
	images(b, d, 128<<20)
	info := compact(b, d)
	follower, _ := benchDir(b)
	defer follower.Abandon()
	from := ok(os.Open(fmt.Sprintf("%s/__cluster_metadata-0/%020d-%010d.checkpoint", dir, info.ID.Offset, info.ID.Epoch)))
	defer func() { _ = from.Close() }()
	to := plainFile(b)
	buf := make([]byte, 1<<20)
	beside(b, info.Size, func() {
		copyCheckpoint(b, d, follower, info, buf)
	}, func() {
		ok(0, to.Truncate(0))
		for at := int64(0); at < info.Size; {
			n, err := from.ReadAt(buf, at)
			if err != nil && !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
			ok(to.WriteAt(buf[:n], at))
			at += int64(n)
		}
		ok(0, to.Sync())
	})
}

// BenchmarkReadCheckpoint reads 1 MiB of the topic from a checkpoint of 64 MiB, one after another, as a consumer does.
func BenchmarkReadCheckpoint(b *testing.B) {
	d, dir := benchDir(b)
	defer d.Abandon()
	images(b, d, 128<<20)
	info := compact(b, d)
	from := ok(os.Open(fmt.Sprintf("%s/__cluster_metadata-0/%020d-%010d.checkpoint", dir, info.ID.Offset, info.ID.Epoch)))
	defer func() { _ = from.Close() }()
	buf := make([]byte, 2<<20)
	offset, position := int64(0), int64(0)
	beside(b, 1<<20, func() {
		data := ok(d.ReadFrom(buf, offset, 1<<20, info.ID.Offset))
		for h, err := range record.Headers(data) {
			if err != nil {
				b.Fatal(err)
			}
			offset = h.NextOffset()
		}
		if offset >= info.ID.Offset {
			offset = 0
		}
	}, func() {
		ok(from.ReadAt(buf[:1<<20], position))
		if position += 1 << 20; position+1<<20 > info.Size {
			position = 0
		}
	})
}
