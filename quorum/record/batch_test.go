package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
)

func build(t testing.TB, base int64, epoch raft.Epoch, codec record.Codec, n int) []byte {
	t.Helper()
	b := record.NewBuilder(1000, codec)
	for i := range n {
		b.Append(1000+int64(i), fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value-%d", i), record.RecordHeader{Key: "h", Value: []byte{byte(i)}})
	}
	raw, err := b.Build(base, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestBuildAndReadBack(t *testing.T) {
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		raw := build(t, 42, 7, codec, 300)
		b := parse(t, raw)
		if b.BaseOffset != 42 || b.LastOffset() != 341 || b.Epoch != 7 || b.Count != 300 || b.Codec() != codec || b.MaxTimestamp != 1299 || b.ProducerID != -1 {
			t.Errorf("%s: header %+v", codec, b.Header)
		}
		i := int64(0)
		for r, err := range b.Records() {
			if err != nil {
				t.Fatalf("%s: %v", codec, err)
			}
			h := r.Headers()
			if r.Offset != 42+i || r.Timestamp != 1000+i || string(r.Key) != fmt.Sprintf("key-%d", i) || string(r.Value) != fmt.Sprintf("value-%d", i) || len(h) != 1 || h[0].Key != "h" || h[0].Value[0] != byte(i) {
				t.Fatalf("%s: record %d: %+v", codec, i, r)
			}
			i++
		}
		if i != 300 {
			t.Errorf("%s: %d records", codec, i)
		}
		if codec != record.None && len(raw) > 7000 {
			t.Errorf("%s: %d bytes: not compressed", codec, len(raw))
		}
	}
}

func TestNullsAreKept(t *testing.T) {
	raw, err := record.NewBuilder(5, record.None).
		Append(5, nil, nil).
		Append(5, []byte{}, []byte{}, record.RecordHeader{Key: "", Value: nil}).
		Build(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var rs []record.Record
	for r, err := range parse(t, raw).Records() {
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	if rs[0].Key != nil || rs[0].Value != nil || rs[1].Key == nil || rs[1].Value == nil || rs[1].Headers()[0].Value != nil {
		t.Errorf("records: %+v", rs)
	}
}

func TestStampKeepsTheChecksum(t *testing.T) {
	raw := build(t, 0, 0, record.Snappy, 3)
	before := parse(t, raw)
	record.Stamp(raw, 1<<40, 9)
	after := parse(t, raw)
	if after.CRC != before.CRC || after.BaseOffset != 1<<40 || after.Epoch != 9 {
		t.Errorf("header after the stamp: %+v", after.Header)
	}
}

func TestAllToleratesAPartialEndOnly(t *testing.T) {
	one, two := build(t, 0, 1, record.None, 2), build(t, 2, 1, record.None, 5)
	p := append(bytes.Clone(one), two...)
	for cut := len(one); cut <= len(p); cut++ {
		n := 0
		for _, err := range record.All(p[:cut]) {
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			n++
		}
		if want := 1 + cut/len(p); n != want {
			t.Fatalf("cut at %d: %d batches, want %d", cut, n, want)
		}
	}
	for bit := range 8 * len(p) {
		damaged := bytes.Clone(p)
		damaged[bit/8] ^= 1 << (bit % 8)
		b, size, err := record.Fetched(damaged)
		at := bit / 8
		free := at < 8 || at >= 12 && at < 16 || at >= len(one) && at < len(one)+8 || at >= len(one)+12 && at < len(one)+16 // offset and epoch: not under the CRC
		if !free && err == nil && size == len(p) {
			t.Fatalf("bit %d flipped and not seen: %+v", bit, b)
		}
	}
}

func TestFetchedRefusesBatchesThatDoNotContinue(t *testing.T) {
	for name, second := range map[string][]byte{
		"gap":       build(t, 3, 1, record.None, 1),
		"overlap":   build(t, 1, 1, record.None, 1),
		"old epoch": build(t, 2, 0, record.None, 1),
	} {
		batches, _, err := record.Fetched(append(build(t, 0, 1, record.None, 2), second...))
		if !errors.Is(err, record.ErrCorrupt) || len(batches) != 1 {
			t.Errorf("%s: %d batches, %v", name, len(batches), err)
		}
	}
}

func TestUnknownControlRecordIsNotSkipped(t *testing.T) {
	for _, typ := range []record.ControlType{0, 1, 7} {
		raw := record.EncodeControls(0, 1, 1000, record.Control{Type: typ})
		if _, err := record.Summary(parse(t, raw)); !errors.Is(err, record.ErrUnknown) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	header := record.EncodeControls(0, 1, 1000, record.Control{Type: record.TypeSnapshotHeader})
	if _, err := record.Summary(parse(t, header)); !errors.Is(err, record.ErrUnknown) {
		t.Errorf("snapshot header in a log: %v", err)
	}
}

// damaged returns a batch with bytes overwritten and the checksum made right again: for what only the parser can catch.
func damaged(raw []byte, at int, b ...byte) []byte {
	out := bytes.Clone(raw)
	copy(out[at:], b)
	record.Seal(out)
	return out
}

func TestHeaderBounds(t *testing.T) {
	raw := build(t, 0, 0, record.None, 3)
	for name, p := range map[string][]byte{
		"length negative":    damaged(raw, 8, 0xff, 0xff, 0xff, 0xff),
		"length below 49":    damaged(raw, 8, 0, 0, 0, 48),
		"length over 8 MiB":  damaged(raw, 8, 0, 0x80, 0, 0),
		"magic 1":            damaged(raw, 16, 1),
		"base negative":      damaged(raw, 0, 0x80),
		"delta negative":     damaged(raw, 23, 0x80),
		"count negative":     damaged(raw, 57, 0x80),
		"count over offsets": damaged(raw, 57, 0, 0, 0, 4),
		"offset overflow":    damaged(raw, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
	} {
		if _, err := record.Parse(p); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckProduce(t *testing.T) {
	keyed := build(t, 0, 0, record.None, 3)
	noKey, _ := record.NewBuilder(1, record.Gzip).Append(1, []byte("k"), nil).Append(1, nil, []byte("v")).Build(0, 0)
	idempotent, _ := record.NewBuilder(1, record.None).Producer(5, 0, 0).Append(1, []byte("k"), nil).Build(0, 0)
	big, err := record.NewBuilder(1, record.None).Append(1, []byte("k"), make([]byte, record.MaxSize-record.HeaderSize-20)).Build(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Clone(keyed)
	old[16] = 1
	badCRC := bytes.Clone(keyed)
	badCRC[len(badCRC)-1] ^= 1
	over := append(bytes.Clone(big), make([]byte, 100)...)
	binary.BigEndian.PutUint32(over[8:], uint32(len(over)-12))
	for _, tt := range []struct {
		name string
		p    []byte
		mode record.Mode
		code raft.ErrorCode
		says string
	}{
		{"keyed", keyed, record.Keyed, raft.NoError, ""},
		{"largest", big, record.Keyed, raft.NoError, ""},
		{"idempotent", idempotent, record.Keyed, raft.NoError, ""},
		{"snappy", build(t, 0, 0, record.Snappy, 3), record.Keyed, raft.NoError, ""},
		{"no key, keyed", noKey, record.Keyed, raft.InvalidRecord, "record 1: has no key"},
		{"no key, opaque", noKey, record.Opaque, raft.NoError, ""},
		{"empty", nil, record.Keyed, raft.CorruptMessage, "0 bytes"},
		{"old format", old, record.Keyed, raft.InvalidRecord, "message format 1, want 2"},
		{"bad CRC", badCRC, record.Keyed, raft.CorruptMessage, "CRC"},
		{"cut off", keyed[:len(keyed)-1], record.Keyed, raft.CorruptMessage, "longer than"},
		{"two batches", append(bytes.Clone(keyed), keyed...), record.Keyed, raft.InvalidRecord, "one batch"},
		{"too large", over, record.Keyed, record.MessageTooLarge, "limit 8388608"},
		{"control", record.EncodeControl(0, 0, 1, raft.KRaftVersion{}), record.Opaque, raft.InvalidRecord, "control"},
		{"transactional", damaged(keyed, 21, 0, 0x10), record.Keyed, raft.InvalidRecord, "transactions"},
		{"log append time", damaged(keyed, 21, 0, 0x08), record.Keyed, raft.InvalidRecord, "attributes 0x8"},
		{"codec 5", damaged(keyed, 21, 0, 5), record.Keyed, record.UnsupportedCodec, "codec 5"},
		{"gap in offsets", damaged(keyed, 23, 0, 0, 0, 3), record.Keyed, raft.InvalidRecord, "last offset delta 3"},
		{"fewer records", damaged(damaged(keyed, 23, 0, 0, 0, 1), 57, 0, 0, 0, 2), record.Keyed, raft.CorruptMessage, "after the last"},
		{"sequence missing", damaged(idempotent, 53, 0xff, 0xff, 0xff, 0xff), record.Keyed, raft.InvalidRecord, "sequence -1"},
		{"garbage packed", damaged(build(t, 0, 0, record.Zstd, 30), 70, 1, 2, 3, 4), record.Keyed, raft.CorruptMessage, "zstd"},
	} {
		_, err := record.CheckProduce(tt.p, tt.mode)
		var r *record.Rejection
		switch {
		case tt.code == raft.NoError:
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		case !errors.As(err, &r) || r.Code != tt.code || !strings.Contains(err.Error(), tt.says):
			t.Errorf("%s: got %v, want code %d and %q", tt.name, err, tt.code, tt.says)
		}
	}
}

// TestDecompressionBombs: what a batch unpacks to is bounded before it is allocated.
func TestDecompressionBombs(t *testing.T) {
	zeros := make([]byte, record.MaxDecoded+1)
	for _, codec := range []record.Codec{record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		raw, err := record.NewBuilder(1, codec).Append(1, []byte("k"), zeros).Build(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var r *record.Rejection
		if _, err := record.CheckProduce(raw, record.Keyed); !errors.As(err, &r) || r.Code != record.MessageTooLarge {
			t.Errorf("%s: %d bytes of batch: %v", codec, len(raw), err)
		}
	}
}

// TestB29DecompressionRetainsNothing: what batches unpacked to is garbage once they are checked, and so are the buffers that
// it took.
func TestB29DecompressionRetainsNothing(t *testing.T) {
	const most = 2 << 20
	noise, rng := make([]byte, record.MaxDecoded/2), rand.New(rand.NewPCG(29, 29))
	for i := range noise {
		noise[i] = byte(rng.IntN(16))
	}
	for _, codec := range []record.Codec{record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		raw, err := record.NewBuilder(1, codec).Append(1, []byte("k"), noise).Build(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		held := func() int64 {
			for range 3 { // a pool keeps what it holds for one collection more
				runtime.GC()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := held()
		for range 5 {
			if _, err := record.CheckProduce(raw, record.Keyed); err != nil {
				t.Fatal(err)
			}
		}
		if grown := held() - before; grown > most {
			t.Errorf("%s: after batches of %d bytes that unpack to %d the heap holds %d bytes more, want at most %d", codec, len(raw), len(noise), grown, most)
		}
	}
}

func TestWalkingAllocatesNothing(t *testing.T) {
	p := append(build(t, 0, 1, record.None, 50), build(t, 50, 1, record.None, 50)...)
	allocs := testing.AllocsPerRun(100, func() {
		for b, err := range record.All(p) {
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range b.Records() {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestNothingIsAllocatedForARecord: what the path of an append does to a batch costs the same for one record and a thousand.
func TestNothingIsAllocatedForARecord(t *testing.T) {
	few, many := build(t, 0, 1, record.None, 1), build(t, 0, 1, record.None, 1000)
	for name, do := range map[string]func([]byte) error{
		"CheckProduce": func(p []byte) error { _, err := record.CheckProduce(p, record.Keyed); return err },
		"Fetched":      func(p []byte) error { _, _, err := record.Fetched(p); return err },
		"Stamp":        func(p []byte) error { record.Stamp(p, 7, 3); return nil },
	} {
		count := func(p []byte) float64 {
			return testing.AllocsPerRun(100, func() {
				if err := do(p); err != nil {
					t.Fatal(err)
				}
			})
		}
		if one, thousand := count(few), count(many); one != thousand || one > 1 {
			t.Errorf("%s: %v allocations for a record, %v for a thousand", name, one, thousand)
		}
	}
}

func FuzzBatches(f *testing.F) {
	f.Add(golden(f, "LCbatch"))
	f.Add(golden(f, "bootstrap-checkpoint"))
	for c := record.None; c <= record.Zstd; c++ {
		f.Add(build(f, 3, 1, c, 20))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		whole := 0
		for b, err := range record.All(p) {
			if err != nil {
				break
			}
			whole += b.Size
			if b.Size < record.HeaderSize || len(b.Raw) != b.Size {
				t.Fatalf("batch %+v", b.Header)
			}
		}
		if _, size, err := record.Fetched(p); err == nil && size != whole {
			t.Fatalf("Fetched took %d bytes, All %d", size, whole)
		}
		// Reach behind the checksum: the fuzzer cannot guess it.
		sealed := bytes.Clone(p)
		record.Seal(sealed)
		b, err := record.Parse(sealed)
		if err != nil {
			return
		}
		n := int32(0)
		for r, err := range b.Records() {
			if err != nil {
				break
			}
			if r.Offset < b.BaseOffset || r.Offset > b.LastOffset() {
				t.Fatalf("record at %d in batch %d-%d", r.Offset, b.BaseOffset, b.LastOffset())
			}
			r.Headers()
			n++
		}
		if checked, err := record.CheckProduce(sealed, record.Opaque); err == nil && (n != checked.Count || len(sealed) != checked.Size) {
			t.Fatalf("accepted %+v with %d good records", checked.Header, n)
		}
	})
}

func FuzzControl(f *testing.F) {
	for _, name := range []string{"VotersRecord", "KRaftVersionRecord", "SnapshotHeader", "SnapshotFooter"} {
		f.Add(golden(f, name), int16(6))
	}
	f.Add([]byte{0, 0, 1, 0x80, 0x20, 4, 1, 2, 3, 4}, int16(4))
	f.Add([]byte{0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 1, 0}, int16(2))
	f.Fuzz(func(t *testing.T, value []byte, typ int16) {
		raw, err := record.NewBuilder(1, record.None).Append(1, binary.BigEndian.AppendUint32(nil, uint32(uint16(typ))), value).Build(0, 0)
		if err != nil {
			return
		}
		raw[22] |= 0x20
		record.Seal(raw)
		b := parse(t, raw)
		controls, err := record.DecodeControls(b)
		if err != nil {
			return
		}
		again, err := record.DecodeControls(parse(t, record.EncodeControls(0, 0, 1, controls...)))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(controls) {
			t.Fatalf("%x read as %+v, written and read again as %+v, %v", value, controls, again, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		raw := build(b, 0, 1, record.None, n)
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := record.Parse(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheckProduce(b *testing.B) {
	for c := record.None; c <= record.Zstd; c++ {
		raw := build(b, 0, 1, c, 1000)
		b.Run(c.String(), func(b *testing.B) {
			b.SetBytes(int64(len(build(b, 0, 1, record.None, 1000))))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := record.CheckProduce(raw, record.Keyed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	value := make([]byte, 100)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(rng.Uint32())
	}
	b.ReportAllocs()
	for b.Loop() {
		build := record.NewBuilder(1, record.None)
		for range 100 {
			build.Append(1, value[:16], value)
		}
		if _, err := build.Build(0, 0); err != nil {
			b.Fatal(err)
		}
	}
}
