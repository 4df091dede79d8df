package record_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// golden reads testdata/golden.txt: bytes that Apache Kafka's own classes wrote, one "name hex" a line.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if digits, ok := strings.CutPrefix(line, name+" "); ok {
			b, err := hex.DecodeString(strings.TrimSpace(digits))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("no golden vector %s", name)
	return nil
}

func uuid(t testing.TB, s string) raft.UUID {
	t.Helper()
	u, err := raft.ParseUUID(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func oneVoter(t testing.TB) raft.Voters {
	return raft.Voters{Set: raft.VoterSet{{
		Key:       raft.ReplicaKey{ID: 1, DirectoryID: uuid(t, "ABEiM0RVZneImaq7zN3u_w")},
		Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: "q-1", Port: 9093}},
		KRaft:     raft.VersionRange{Min: 0, Max: 1},
	}}}
}

func parse(t testing.TB, p []byte) record.Batch {
	t.Helper()
	b, err := record.Parse(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenLeaderChangeBatch(t *testing.T) {
	want := golden(t, "LCbatch")
	lc := raft.LeaderChange{Leader: 1, Voters: []raft.NodeID{1, 2, 3}, Granting: []raft.NodeID{1, 2}}
	if got := record.EncodeControl(0, 1, 1000, lc); !bytes.Equal(got, want) {
		t.Errorf("encoded\n%x, want\n%x", got, want)
	}
	b := parse(t, want)
	if got, err := record.Summary(b); err != nil || !reflect.DeepEqual(got, raft.Batch{Epoch: 1, Bytes: len(want), Control: []raft.ControlRecord{lc}}) {
		t.Errorf("summary %+v, %v", got, err)
	}
}

// TestGoldenControlValues compares the values of single records, which Kafka's vectors give without their batch.
func TestGoldenControlValues(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    record.Control
	}{
		{"VotersRecord", record.Control{Type: record.TypeVoters, Record: oneVoter(t)}},
		{"KRaftVersionRecord", record.Control{Type: record.TypeKRaftVersion, Record: raft.KRaftVersion{Version: 1}}},
		{"SnapshotHeader", record.Control{Type: record.TypeSnapshotHeader, LastContainedLogTimestamp: 1000}},
		{"SnapshotFooter", record.Control{Type: record.TypeSnapshotFooter}},
	} {
		b := parse(t, record.EncodeControls(7, 2, 1000, tt.c))
		for r, err := range b.Records() {
			if err != nil {
				t.Fatal(err)
			}
			if want := golden(t, tt.name); !bytes.Equal(r.Value, want) {
				t.Errorf("%s: encoded %x, want %x", tt.name, r.Value, want)
			}
		}
		tt.c.Offset = 7
		if got, err := record.DecodeControls(b); err != nil || !reflect.DeepEqual(got, []record.Control{tt.c}) {
			t.Errorf("%s: decoded %+v, %v", tt.name, got, err)
		}
	}
}

// TestSnapshotFooterWithASum: it stands in a tagged field, one of several perhaps, as Kafka's decoder passes over them.
func TestSnapshotFooterWithASum(t *testing.T) {
	footer := record.Control{Type: record.TypeSnapshotFooter, Offset: 7, Sum: 0x01020304, Summed: true}
	b := parse(t, record.EncodeControls(7, 2, 1000, footer))
	if got, err := record.DecodeControls(b); err != nil || !reflect.DeepEqual(got, []record.Control{footer}) {
		t.Errorf("%+v, %v", got, err)
	}
	for r, err := range b.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if want := []byte{0, 0, 1, 0x80, 0x20, 4, 1, 2, 3, 4}; !bytes.Equal(r.Value, want) {
			t.Errorf("encoded %x, want %x", r.Value, want)
		}
	}
	for _, tt := range []struct {
		value  []byte
		summed bool
		bad    bool
	}{
		{[]byte{0, 0, 2, 7, 1, 9, 0x80, 0x20, 4, 1, 2, 3, 4}, true, false},
		{[]byte{0, 0, 1, 7, 4, 1, 2, 3, 4}, false, false},
		{[]byte{0, 0, 1, 0x80, 0x20, 3, 1, 2, 3}, false, false},
		{[]byte{0, 0, 1, 0x80, 0x20, 5, 1, 2, 3, 4}, false, true},
		{[]byte{0, 0, 2, 0x80, 0x20, 4, 1, 2, 3, 4}, false, true},
	} {
		raw, err := record.NewBuilder(1, record.None).Append(1, []byte{0, 0, 0, 4}, tt.value).Build(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		raw[22] |= 0x20
		record.Seal(raw)
		got, err := record.DecodeControls(parse(t, raw))
		if (err != nil) != tt.bad || !tt.bad && (got[0].Summed != tt.summed || tt.summed && got[0].Sum != 0x01020304) {
			t.Errorf("%x: %+v, %v", tt.value, got, err)
		}
	}
}

// TestGoldenBootstrapCheckpoint takes a file of Kafka's formatter apart and puts it together again.
func TestGoldenBootstrapCheckpoint(t *testing.T) {
	want := golden(t, "bootstrap-checkpoint")
	var again []byte
	for b, err := range record.All(want) {
		if err != nil {
			t.Fatal(err)
		}
		if !b.IsControl() {
			build := record.NewBuilder(b.BaseTimestamp, record.None)
			for r, err := range b.Records() {
				if err != nil {
					t.Fatal(err)
				}
				build.Append(r.Timestamp, r.Key, r.Value, r.Headers()...)
			}
			raw, err := build.Build(b.BaseOffset, b.Epoch)
			if err != nil {
				t.Fatal(err)
			}
			again = append(again, raw...)
			continue
		}
		controls, err := record.DecodeControls(b)
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, record.EncodeControls(b.BaseOffset, b.Epoch, b.BaseTimestamp, controls...)...)
		if b.BaseOffset == 0 {
			if got := controls[2].Record; len(controls) != 3 || !reflect.DeepEqual(got, oneVoter(t)) {
				t.Errorf("voters: %+v", got)
			}
		}
	}
	if !bytes.Equal(again, want) {
		t.Errorf("written again\n%x, want\n%x", again, want)
	}
}
