package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// TestInspectGoesOnBehindDamage: all bytes are told of, whole batches behind damage included.
func TestInspectGoesOnBehindDamage(t *testing.T) {
	const name = logDir + "/00000000000000000000.log"
	one, two, three := batch(0, 1, 2), batch(2, 1, 3), batch(5, 2, 1)
	at := len(one)
	for _, tt := range []struct {
		name   string
		change func(b []byte) []byte
		want   string
	}{
		{"whole", slices.Clone[[]byte], "0-1; 2-4; 5-5"},
		{"a record", func(b []byte) []byte { b[at+80] ^= 1; return b }, "0-1; CRC is; 5-5"},
		{"the length", func(b []byte) []byte { b[at+10] ^= 1; return b }, "0-1; whole batches go on; 5-5"},
		{"the magic", func(b []byte) []byte { b[at+16] ^= 1; return b }, "0-1; magic 3; 5-5"},
		{"the base offset", func(b []byte) []byte { b[at+7] ^= 8; return b }, "0-1; 10-12 base offset 10 want 2; 5-5"},
		{"an epoch that falls", func(b []byte) []byte { b[at+15] = 0; return b }, "0-1; 2-4 epoch 0 after epoch 1 at position 0; 5-5"},
		{"zeros behind", func(b []byte) []byte { return append(b, make([]byte, 5000)...) }, "0-1; 2-4; 5-5; 5000 zero bytes"},
		{"cut off", func(b []byte) []byte { return b[:len(b)-1] }, "0-1; 2-4; batch is not whole"},
		{"garbage between", func(b []byte) []byte { return slices.Insert(b, at, []byte("garbage")...) }, "0-1; whole batches go on; 2-4; 5-5"},
		{"a batch is gone", func(b []byte) []byte { return slices.Delete(b, at, at+len(two)) }, "0-1; 5-5 base offset 5 want 2"},
		{"empty", func(b []byte) []byte { return nil }, ""},
	} {
		fsys := formatted(t)
		content := tt.change(slices.Concat(one, two, three))
		writeFile(t, fsys, name, string(content))
		var end int64
		var got []string
		if err := storage.Inspect(fsys, name, func(p storage.Part) error {
			if p.Position != end {
				t.Errorf("%s: position %d, want %d", tt.name, p.Position, end)
			}
			end += p.Bytes
			var words []string
			if b, ok := p.Value.(record.Batch); ok {
				words = append(words, fmt.Sprintf("%d-%d", b.BaseOffset, b.LastOffset()))
			}
			if p.Err != nil {
				words = append(words, p.Err.Error())
			}
			got = append(got, strings.Join(words, " "))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if end != int64(len(content)) {
			t.Errorf("%s: told of %d bytes of %d", tt.name, end, len(content))
		}
		want := strings.Split(tt.want, "; ")
		if tt.want == "" {
			want = nil
		}
		if !slices.EqualFunc(got, want, func(g, w string) bool {
			return !slices.ContainsFunc(strings.Fields(w), func(word string) bool { return !strings.Contains(g, word) })
		}) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestInspectFindsAnUnfinishedCheckpoint is for what only a checkpoint has: a head and a foot, and one epoch if there are no
// gaps.
func TestInspectFindsAnUnfinishedCheckpoint(t *testing.T) {
	header, footer := record.Control{Type: record.TypeSnapshotHeader}, record.Control{Type: record.TypeSnapshotFooter}
	control := func(base int64, c record.Control) []byte { return record.EncodeControls(base, 3, 1000, c) }
	for _, tt := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"whole", slices.Concat(control(0, header), batch(1, 3, 2), control(3, footer)), ""},
		{"compacted", slices.Concat(control(0, header), batch(1, 1, 2), batch(5, 2, 2), control(7, footer)), ""},
		{"compacted, the foot at the end offset", slices.Concat(control(0, header), batch(1, 1, 2), control(9, footer)), ""},
		{"compacted, and beginning below the head's end", slices.Concat(control(0, header), batch(0, 1, 2), control(9, footer)), ""},
		{"no foot", slices.Concat(control(0, header), batch(1, 3, 2)), "the checkpoint ends without a SnapshotFooter"},
		{"empty", nil, "the checkpoint ends without a SnapshotFooter"},
		{"no head", slices.Concat(batch(0, 3, 1), control(1, footer)), "the checkpoint begins without a SnapshotHeader"},
		{"another head", slices.Concat(control(0, footer), control(1, footer)), "a checkpoint begins with SnapshotFooter"},
		{"two heads", slices.Concat(control(0, header), control(1, header), control(2, footer)), "SnapshotHeader after SnapshotHeader"},
		{"a control record after the foot", slices.Concat(control(0, header), control(1, footer), control(2, footer)), "SnapshotFooter after SnapshotFooter"},
		{"an epoch above the name's", slices.Concat(control(0, header), batch(1, 4, 2), control(3, footer)), "epoch 4 in a checkpoint of epoch 3"},
		{"another epoch and no gap", slices.Concat(control(0, header), batch(1, 2, 2), control(3, footer)), "epoch 2 in a checkpoint of epoch 3"},
		{"a negative epoch", slices.Concat(control(0, header), batch(1, -2, 2), control(3, footer)), "epoch -2 after epoch 3"},
		{"a gap beyond the end offset", slices.Concat(control(0, header), batch(1, 3, 2), batch(8, 3, 2), control(10, footer)), "base offset 8, want 3"},
		{"a foot too far", slices.Concat(control(0, header), batch(1, 3, 2), control(5, footer)), "base offset 5, want 3"},
		{"going back", slices.Concat(control(0, header), batch(5, 3, 2), batch(4, 3, 1), control(7, footer)), "base offset 4, want 7"},
	} {
		fsys := formatted(t)
		const name = logDir + "/00000000000000000009-0000000003.checkpoint"
		writeFile(t, fsys, name, string(tt.content))
		var got string
		if err := storage.Inspect(fsys, name, func(p storage.Part) error {
			if p.Err != nil && got == "" {
				got = p.Err.Error()
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestKindOf(t *testing.T) {
	got := map[storage.Kind][]string{}
	for _, name := range []string{
		"meta.properties", "quorum-state", "leader-epoch-checkpoint", "partition.metadata", "committed", ".lock",
		"00000000000000000000.log", "0.log", "00000000000000000709-0000000005.checkpoint", "bootstrap.checkpoint",
		"00000000000000000742.snapshot", "00000000000000000742.index", "00000000000000000742.timeindex", "00000000000000000742.index.deleted",
		"00000000000000000742.snapshot.deleted", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown",
		"quorum-state.tmp", "ballast", "committed.tmp", "00000000000000000000.log.deleted", "00000000000000000709-0000000005-123.checkpoint.part", "notes.txt",
	} {
		got[storage.KindOf(name)] = append(got[storage.KindOf(name)], name)
	}
	want := map[storage.Kind][]string{
		storage.KindMeta: {"meta.properties"}, storage.KindState: {"quorum-state"}, storage.KindEpochs: {"leader-epoch-checkpoint"},
		storage.KindPartition: {"partition.metadata"}, storage.KindCommitted: {"committed"}, storage.KindLock: {".lock"},
		storage.KindSpare:      {"quorum-state.tmp"},
		storage.KindBallast:    {"ballast"},
		storage.KindSegment:    {"00000000000000000000.log"},
		storage.KindCheckpoint: {"00000000000000000709-0000000005.checkpoint", "bootstrap.checkpoint"},
		storage.KindProducers:  {"00000000000000000742.snapshot"},
		storage.KindKafka: {
			"00000000000000000742.index", "00000000000000000742.timeindex", "00000000000000000742.snapshot.deleted",
			"recovery-point-offset-checkpoint", ".kafka_cleanshutdown",
		},
		storage.KindLeftover: {
			"00000000000000000742.index.deleted", "committed.tmp", "00000000000000000000.log.deleted",
			"00000000000000000709-0000000005-123.checkpoint.part",
		},
		storage.KindUnknown: {"0.log", "notes.txt"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
