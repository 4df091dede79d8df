package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

func benchDir(b testing.TB) (*storage.Dir, string) {
	b.Helper()
	dir := b.TempDir()
	if err := storage.Format(vfs.OS, dir, formatOptions()); err != nil {
		b.Fatal(err)
	}
	d, err := storage.Open(vfs.OS, dir, opts)
	if err != nil {
		b.Fatal(err)
	}
	return d, dir
}

// beside runs ours and plain in turns and reports what ours takes, and in how many times what plain takes: both medians.
// Of two figures that were taken one after the other on a shared machine the ratio means little, of these it means most.
func beside(b *testing.B, bytes int64, ours, plain func()) {
	b.Helper()
	took := make([]time.Duration, 0, 1<<20) // made before: it is not ours to allocate
	takes := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		plain()
		between := time.Now()
		ours()
		if ended := time.Now(); len(took) < cap(took) {
			took, takes = append(took, ended.Sub(between)), append(takes, between.Sub(began))
		}
	}
	slices.Sort(took)
	slices.Sort(takes)
	median, floor := took[len(took)/2], takes[len(takes)/2]
	b.ReportMetric(float64(median.Nanoseconds()), "ns/op")
	b.ReportMetric(float64(bytes)/1e6/median.Seconds(), "MB/s")
	b.ReportMetric(float64(median)/float64(floor), "x-plain")
}

// plainFile is a file beside the directory, for what the disk takes at least.
func plainFile(b *testing.B) *os.File {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "plain"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	return f
}

// ok is a value whose error a benchmark has no use for.
func ok[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// BenchmarkAppendFlush is one group of one batch, appended and synced: what a lone writer waits for on each replica.
func BenchmarkAppendFlush(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			d, _ := benchDir(b)
			defer d.Abandon()
			raw := batchOf(0, 1, 1, size)
			f, at := plainFile(b), int64(0)
			beside(b, int64(len(raw)), func() {
				record.Stamp(raw, d.Log.End(), 1)
				mustAppend(b, d, raw)
				mustFlush(b, d)
			}, func() {
				at += int64(ok(f.WriteAt(raw, at)))
				ok(0, f.Sync())
			})
		})
	}
}

// BenchmarkAppend is Append alone, of groups of 100 small batches, beside a write of the same bytes.
func BenchmarkAppend(b *testing.B) {
	d, _ := benchDir(b)
	defer d.Abandon()
	group := make([][]byte, 100)
	for i := range group {
		group[i] = batchOf(0, 1, 1, 100)
	}
	all := slices.Concat(group...)
	f, at := plainFile(b), int64(0)
	unsynced := 0
	beside(b, int64(len(all)), func() {
		for i, raw := range group {
			record.Stamp(raw, d.Log.End()+int64(i), 1)
		}
		mustAppend(b, d, group...)
	}, func() {
		if unsynced += len(all); unsynced > storage.MaxGroup { // as Append does by itself
			unsynced = 0
			ok(0, f.Sync())
		}
		at += int64(ok(f.WriteAt(all, at)))
	})
}

func fill(b *testing.B, d *storage.Dir, bytes int64) {
	b.Helper()
	raw := batchOf(0, 1, 100, 1000)
	for d.Log.Size() < bytes {
		record.Stamp(raw, d.Log.End(), 1)
		mustAppend(b, d, raw)
	}
	mustFlush(b, d)
}

// BenchmarkRead reads batches from all over a log of 64 MiB in the page cache, beside a plain read of as many bytes.
func BenchmarkRead(b *testing.B) {
	for _, maxBytes := range []int{1, 1 << 20} {
		b.Run(fmt.Sprintf("maxBytes=%d", maxBytes), func(b *testing.B) {
			d, dir := benchDir(b)
			defer d.Abandon()
			fill(b, d, 64<<20)
			f := ok(os.Open(filepath.Join(dir, "__cluster_metadata-0", "00000000000000000000.log")))
			defer f.Close()
			end := d.Log.End()
			buf, same := make([]byte, 2<<20), make([]byte, 2<<20)
			n := len(ok(d.Log.Read(buf, 0, maxBytes, end)))
			offset, at := int64(0), int64(0)
			beside(b, int64(n), func() {
				ok(d.Log.Read(buf, offset, maxBytes, end))
				if offset += 7919; offset >= end-2000 {
					offset -= end - 2000
				}
			}, func() {
				ok(f.ReadAt(same[:n], at))
				if at += 7919 * 1000; at >= 60<<20 {
					at -= 60 << 20
				}
			})
		})
	}
}

// BenchmarkOpen reads a log of 256 MiB from the page cache, checksums included, beside a plain read of it; goal: 1 GiB in
// 4 s.
func BenchmarkOpen(b *testing.B) {
	d, dir := benchDir(b)
	fill(b, d, 256<<20)
	size := d.Log.Size()
	d.MarkCommitted(0, d.Log.End())
	mustClose(b, d)
	buf := make([]byte, 1<<20)
	beside(b, size, func() {
		ok(storage.Open(vfs.OS, dir, opts)).Abandon()
	}, func() {
		f := ok(os.Open(filepath.Join(dir, "__cluster_metadata-0", "00000000000000000000.log")))
		defer f.Close()
		for at := int64(0); at < size; at += int64(len(buf)) {
			_, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
			ok(0, err)
		}
	})
}

// BenchmarkVerify checks the same log from end to end, records included.
func BenchmarkVerify(b *testing.B) {
	d, dir := benchDir(b)
	fill(b, d, 256<<20)
	b.SetBytes(d.Log.Size())
	d.MarkCommitted(0, d.Log.End())
	mustClose(b, d)
	b.ReportAllocs()
	for b.Loop() {
		ok(storage.Verify(vfs.OS, dir, nil))
	}
}
