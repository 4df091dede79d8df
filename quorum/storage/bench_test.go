package storage_test

import (
	"fmt"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

func benchDir(b *testing.B) (*storage.Dir, string) {
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

// BenchmarkAppendFlush is one group of one batch, appended and synced: what a lone writer waits for on each replica.
func BenchmarkAppendFlush(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			d, _ := benchDir(b)
			defer d.Abandon()
			raw := batchOf(0, 1, 1, size)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				record.Stamp(raw, d.Log.End(), 1)
				mustAppend(b, d, raw)
				mustFlush(b, d)
			}
		})
	}
}

// BenchmarkAppend is Append alone, of groups of 100 small batches.
func BenchmarkAppend(b *testing.B) {
	d, _ := benchDir(b)
	defer d.Abandon()
	group := make([][]byte, 100)
	for i := range group {
		group[i] = batchOf(0, 1, 1, 100)
	}
	b.SetBytes(int64(len(group) * len(group[0])))
	b.ReportAllocs()
	for b.Loop() {
		for i, raw := range group {
			record.Stamp(raw, d.Log.End()+int64(i), 1)
		}
		mustAppend(b, d, group...)
	}
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

func BenchmarkRead(b *testing.B) {
	for _, maxBytes := range []int{1, 1 << 20} {
		b.Run(fmt.Sprintf("maxBytes=%d", maxBytes), func(b *testing.B) {
			d, _ := benchDir(b)
			defer d.Abandon()
			fill(b, d, 64<<20)
			end := d.Log.End()
			var buf []byte
			var bytes int64
			offset := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if buf, err = d.Log.Read(buf, offset, maxBytes, end); err != nil {
					b.Fatal(err)
				}
				bytes += int64(len(buf))
				if offset += 7919; offset >= end {
					offset -= end
				}
			}
			b.SetBytes(bytes / int64(b.N))
		})
	}
}

// BenchmarkOpen reads a log of 256 MiB from the page cache, checksums included; goal: 1 GiB in 4 s.
func BenchmarkOpen(b *testing.B) {
	d, dir := benchDir(b)
	fill(b, d, 256<<20)
	b.SetBytes(d.Log.Size())
	d.MarkCommitted(0, d.Log.End())
	mustClose(b, d)
	for b.Loop() {
		d, err := storage.Open(vfs.OS, dir, opts)
		if err != nil {
			b.Fatal(err)
		}
		d.Abandon()
	}
}
