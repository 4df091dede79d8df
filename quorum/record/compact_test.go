package record_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// line says all that a client sees of a record.
func line(r record.Record) string {
	return fmt.Sprintf("%d@%d %q=%q nil:%v %v", r.Offset, r.Timestamp, r.Key, r.Value, r.Value == nil, r.Headers())
}

func lines(t *testing.T, b record.Batch, keep func(record.Record) bool) (all []string) {
	t.Helper()
	for r, err := range b.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if keep(r) {
			all = append(all, line(r))
		}
	}
	return all
}

func everything(record.Record) bool { return true }

// mixed is a batch of n records of a producer; every third is a tombstone if there are to be any.
func mixed(t *testing.T, codec record.Codec, n int, tombstones bool) record.Batch {
	t.Helper()
	b := record.NewBuilder(5000, codec).Producer(7<<32|1, 3, 40)
	for i := range n {
		value := bytes.Repeat([]byte{byte('a' + i%26)}, i*3)
		if tombstones && i%3 == 1 {
			value = nil
		}
		b.Append(5000+int64(i*i)-20, fmt.Appendf(nil, "k%d", i), value, record.RecordHeader{Key: "h", Value: []byte{byte(i)}})
	}
	raw, err := b.Build(100, 9)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, raw)
}

// TestCompactKeepsWhatClientsSee: of the records that stay nothing changes, whatever packed them and wherever the delete
// horizon lies; nor does what producers are recognised by.
func TestCompactKeepsWhatClientsSee(t *testing.T) {
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		for _, tombstones := range []bool{false, true} {
			for _, horizon := range []int64{0, 5000, 1 << 41, -1 << 62} {
				for name, keep := range map[string]func(record.Record) bool{
					"all": everything, "none": func(record.Record) bool { return false },
					"some": func(r record.Record) bool { return r.Offset%7 < 3 }, "the last": func(r record.Record) bool { return r.Offset == 129 },
				} {
					before := mixed(t, codec, 30, tombstones)
					out, h, err := record.Compact([]byte("before"), before, horizon, keep)
					if err != nil {
						t.Fatal(err)
					}
					after := parse(t, out[len("before"):])
					where := fmt.Sprintf("%s, tombstones %v, horizon %d, %s", codec, tombstones, horizon, name)
					want, got := lines(t, before, keep), lines(t, after, everything)
					if fmt.Sprint(got) != fmt.Sprint(want) || int(after.Count) != len(want) || after.Codec() != record.None {
						t.Errorf("%s: %d records, %s:\n%v\nwant\n%v", where, after.Count, after.Codec(), got, want)
					}
					if after.Header != h {
						t.Errorf("%s: header %+v, parsed %+v", where, h, after.Header)
					}
					if after.BaseOffset != 100 || after.LastOffset() != 129 || after.Epoch != 9 || after.ProducerID != before.ProducerID ||
						after.ProducerEpoch != 3 || after.BaseSequence != 40 || after.LastSequence() != before.LastSequence() {
						t.Errorf("%s: header %+v, was %+v", where, after.Header, before.Header)
					}
					if hasHorizon := tombstones && len(want) > 0; after.HasDeleteHorizon() != hasHorizon || hasHorizon && after.BaseTimestamp != horizon {
						t.Errorf("%s: delete horizon %v, base timestamp %d", where, after.HasDeleteHorizon(), after.BaseTimestamp)
					}
				}
			}
		}
	}
}

// TestCompactLeavesADeleteHorizonAlone: it counts from the first checkpoint that holds the tombstone.
func TestCompactLeavesADeleteHorizonAlone(t *testing.T) {
	first, _, err := record.Compact(nil, mixed(t, record.Zstd, 30, true), 7000, everything)
	if err != nil {
		t.Fatal(err)
	}
	second, h, err := record.Compact(nil, parse(t, first), 9000, everything)
	if err != nil || !bytes.Equal(first, second) || h.BaseTimestamp != 7000 {
		t.Errorf("%v, horizon %d; bytes equal: %v", err, h.BaseTimestamp, bytes.Equal(first, second))
	}
}

// TestCompactedBatchIsNeverTooLarge: deltas from a horizon far away take more bytes than a full batch has left.
func TestCompactedBatchIsNeverTooLarge(t *testing.T) {
	b := record.NewBuilder(5000, record.Zstd)
	const n = 1000
	for range n {
		b.Append(5000, make([]byte, (record.MaxSize-record.HeaderSize)/n-20), nil)
	}
	b.Append(5000, make([]byte, record.MaxSize-b.Size()-20), nil)
	raw, err := b.Build(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := record.CheckProduce(raw, record.Keyed); err != nil {
		t.Fatal(err)
	}
	_, h, err := record.Compact(nil, parse(t, raw), 1<<41, everything)
	if err != nil || h.Size > record.MaxSize || h.HasDeleteHorizon() || h.Count != n+1 {
		t.Errorf("%v: %d bytes, limit %d, %d of %d records, horizon %v", err, h.Size, record.MaxSize, h.Count, n+1, h.HasDeleteHorizon())
	}
	_, h, err = record.Compact(nil, parse(t, raw), 1<<41, func(r record.Record) bool { return r.Offset%2 == 0 })
	if err != nil || !h.HasDeleteHorizon() {
		t.Errorf("%v: half of it has no horizon", err)
	}
}

// TestZstdWithALargeWindow: compressors at high levels declare windows larger than any batch.
func TestZstdWithALargeWindow(t *testing.T) {
	plain := mixed(t, record.None, 30, true)
	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed, zstd.WithWindowSize(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain.Raw[record.HeaderSize:]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw := append(bytes.Clone(plain.Raw[:record.HeaderSize]), packed.Bytes()...)
	raw[8], raw[9], raw[10], raw[11] = 0, 0, byte((len(raw)-12)>>8), byte(len(raw)-12)
	raw[22] = byte(record.Zstd)
	record.Seal(raw)
	if got, want := lines(t, parse(t, raw), everything), lines(t, plain, everything); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
