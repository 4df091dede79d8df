package storage_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// bytesOf reads what was found, and lets go of it.
func bytesOf(t testing.TB, r storage.Records) []byte {
	t.Helper()
	if r.Section == nil {
		return r.Bytes
	}
	defer r.Section.Close()
	data, err := io.ReadAll(r.Section)
	if err != nil || len(data) != r.Size() || r.Bytes != nil {
		t.Fatalf("section of %d bytes beside %d: read %d, %v", r.Size(), len(r.Bytes), len(data), err)
	}
	return data
}

// sectionLog is a log of three segments or so, of batches of all sizes.
func sectionLog(t testing.TB, fsys vfs.FS, dir string) *storage.Dir {
	t.Helper()
	if err := storage.Format(fsys, dir, formatOptions()); err != nil {
		t.Fatal(err)
	}
	o := opts
	o.SegmentBytes = 300_000
	d, err := storage.Open(fsys, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Abandon)
	for i, size := range []int{10, 2000, 100, 50_000, 500, 8000} {
		for range 20 - 3*i {
			mustAppend(t, d, batchOf(d.Log.End(), 1, 1+i, size/(1+i)))
		}
	}
	if d.Log.Segments() < 3 {
		t.Fatalf("%d segments", d.Log.Segments())
	}
	return d
}

// TestFindIsReadWithoutTheBytes: it finds the very batches that Read returns, whatever is asked for.
func TestFindIsReadWithoutTheBytes(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"disk": vfs.OS, "memory": vfs.NewMem()} {
		t.Run(name, func(t *testing.T) {
			d := sectionLog(t, fsys, t.TempDir())
			seed := rand.Uint64()
			random, sections := rand.New(rand.NewPCG(seed, 0)), 0
			for range 1000 {
				offset, upTo, maxBytes := random.Int64N(d.Log.End()+1), random.Int64N(d.Log.End()+1), random.IntN(200_000)
				want, err := d.Log.Read(nil, offset, maxBytes, upTo)
				if err != nil {
					t.Fatal(err)
				}
				found, err := d.Log.Find(offset, maxBytes, upTo)
				if err != nil {
					t.Fatal(err)
				}
				if found.Section != nil {
					sections++
				}
				inTopic, err := d.FindFrom(offset, maxBytes, upTo)
				if err != nil {
					t.Fatal(err)
				}
				if got, again := bytesOf(t, found), bytesOf(t, inTopic); !bytes.Equal(got, want) || !bytes.Equal(again, want) {
					t.Fatalf("seed %d: from %d, %d bytes, up to %d: found %d bytes in the log and %d in the topic, want %d",
						seed, offset, maxBytes, upTo, len(got), len(again), len(want))
				}
			}
			if sections < 100 {
				t.Errorf("seed %d: only %d of 1000 were left in place", seed, sections)
			}
			if _, err := d.Log.Find(d.Log.End()+1, 1, d.Log.End()+2); !errors.Is(err, storage.ErrOffset) {
				t.Errorf("beyond the end: %v", err)
			}
		})
	}
}

// TestSectionOutlivesItsSegment: whoever holds one reads a removed segment to its end, and of one that was cut what is left.
func TestSectionOutlivesItsSegment(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"disk": vfs.OS, "memory": vfs.NewMem()} {
		t.Run(name, func(t *testing.T) {
			d := sectionLog(t, fsys, t.TempDir())
			var starts []int64 // of the segments that are large enough
			var found []storage.Records
			var want [][]byte
			for offset := int64(0); offset < d.Log.End(); {
				r, err := d.Log.Find(offset, 1<<20, d.Log.End())
				if err != nil {
					t.Fatal(err)
				}
				data, err := d.Log.Read(nil, offset, 1<<20, d.Log.End())
				if err != nil {
					t.Fatal(err)
				}
				starts, found, want = append(starts, offset), append(found, r), append(want, data)
				for b, err := range record.All(data) {
					if err != nil {
						t.Fatal(err)
					}
					offset = b.NextOffset()
				}
			}
			first, err := record.ParseHeader(want[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Log.Truncate(first.NextOffset()); err != nil {
				t.Fatal(err)
			}
			for i, r := range found[1:] {
				if got := bytesOf(t, r); !bytes.Equal(got, want[i+1]) {
					t.Errorf("of the removed segment %d %d bytes are left of %d", starts[i+1], len(got), len(want[i+1]))
				}
			}
			defer found[0].Section.Close()
			if got, err := io.ReadAll(found[0].Section); err != nil || !bytes.Equal(got, want[0][:first.Size]) {
				t.Errorf("of the cut segment %d bytes are left, %v; want %d", len(got), err, first.Size)
			}
		})
	}
}

// TestFindChecksWhatItFinds: nothing is sent that is damaged.
func TestFindChecksWhatItFinds(t *testing.T) {
	fsys := vfs.NewMem()
	d := sectionLog(t, fsys, dataDir)
	r, err := d.Log.Find(0, 200_000, d.Log.End())
	if err != nil || r.Section == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	size := r.Size()
	r.Section.Close()
	f, err := fsys.OpenReadWrite(logDir + "/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("rot"), int64(size)-30); err != nil {
		t.Fatal(err)
	}
	_, err = d.Log.Find(0, 200_000, d.Log.End())
	if fault, ok := errors.AsType[*storage.Fault](err); !ok || fault.Token != storage.LogCorrupt {
		t.Errorf("got %v, want %s", err, storage.LogCorrupt)
	}
}
