package storage_test

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// testdata/kafka holds what real Apache Kafka 4.4.0 controllers wrote.
const kafkaDirs = "testdata/kafka"

// kafka copies one of Kafka's directories to /data of a file system in memory.
func kafka(t testing.TB, name string) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	root := filepath.Join(kafkaDirs, name)
	err := filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := path.Join(dataDir, filepath.ToSlash(strings.TrimPrefix(p, root)))
		if e.IsDir() {
			return m.MkdirAll(to)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return vfs.WriteFile(m, to, b)
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestKafkasDirectoriesAreReadAndLeftAsTheyAre(t *testing.T) {
	position := func(offset int64, epoch raft.Epoch) *raft.OffsetAndEpoch {
		return &raft.OffsetAndEpoch{Offset: offset, Epoch: epoch}
	}
	for _, tt := range []struct {
		dir      string
		node     raft.NodeID
		state    raft.ElectionState
		log      raft.LogState // without Control
		controls int
		voters   []raft.NodeID // of the newest Voters record
	}{
		{"formatted-dynamic", 1, raft.ElectionState{Leader: -1, Voted: raft.NoReplica}, raft.LogState{}, 2, []raft.NodeID{1, 2, 3}},
		{"formatted-static", 1, raft.ElectionState{Leader: -1, Voted: raft.NoReplica}, raft.LogState{}, 0, nil},
		{
			"static-voter", 1,
			raft.ElectionState{Epoch: 3, Leader: 1, Voted: raft.NoReplica},
			raft.LogState{End: 51, Epochs: []raft.OffsetAndEpoch{{Offset: 0, Epoch: 2}, {Offset: 23, Epoch: 3}}},
			0, nil,
		},
		{
			"dynamic-leader", 1,
			raft.ElectionState{Epoch: 5, Leader: 1, Voted: raft.NoReplica},
			raft.LogState{
				End: 742, Snapshot: position(734, 5), Earliest: position(443, 5),
				Epochs: []raft.OffsetAndEpoch{{Offset: 0, Epoch: 1}, {Offset: 154, Epoch: 2}, {Offset: 185, Epoch: 3}, {Offset: 256, Epoch: 5}},
			},
			2,
			[]raft.NodeID{1, 2, 3},
		},
		{
			"observer-after-snapshot", 4,
			raft.ElectionState{Epoch: 5, Leader: 1, Voted: raft.NoReplica},
			raft.LogState{
				Start: 709, End: 742, Snapshot: position(734, 5), Earliest: position(709, 5),
				Epochs: []raft.OffsetAndEpoch{{Offset: 709, Epoch: 5}},
			},
			2,
			[]raft.NodeID{1, 2, 3},
		},
	} {
		t.Run(tt.dir, func(t *testing.T) {
			fsys := kafka(t, tt.dir)
			before := files(t, fsys)
			d := open(t, fsys, storage.Options{ClusterID: "AAECAwQFBgcICQoLDA0ODw", NodeID: tt.node})
			if got := d.ElectionState(); got != tt.state {
				t.Errorf("state %+v, want %+v", got, tt.state)
			}
			got := d.LogState()
			var newest raft.VoterSet
			for _, c := range got.Control {
				if v, ok := c.Record.(raft.Voters); ok {
					newest = v.Set
				}
			}
			var ids []raft.NodeID
			for _, v := range newest {
				ids = append(ids, v.Key.ID)
			}
			if len(got.Control) != tt.controls || !slices.Equal(ids, tt.voters) {
				t.Errorf("control records %+v, want %d; voters %v, want %v", got.Control, tt.controls, ids, tt.voters)
			}
			got.Control = nil
			if fmt.Sprintf("%+v", describeState(got)) != fmt.Sprintf("%+v", describeState(tt.log)) {
				t.Errorf("log state %+v, want %+v", describeState(got), describeState(tt.log))
			}
			if r := d.Recovery(); r.EpochsRebuilt || r.Torn.Bytes > 0 {
				t.Errorf("recovery: %+v", r)
			}
			mustClose(t, d)
			after := files(t, fsys)
			for name, data := range before {
				if strings.HasSuffix(name, ".deleted") {
					data = "" // Kafka renames before it deletes; we finish that
				}
				if after[name] != data {
					t.Errorf("%s changed", name)
				}
			}
		})
	}
}

func describeState(s raft.LogState) string {
	text := fmt.Sprintf("[%d,%d) %v", s.Start, s.End, s.Epochs)
	if s.Snapshot != nil {
		text += fmt.Sprintf(" snapshots %v to %v", *s.Earliest, *s.Snapshot)
	}
	return text
}

// files returns the content of every file below the data directory.
func files(t testing.TB, fsys vfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{dataDir, logDir} {
		names, err := fsys.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			full := path.Join(dir, name)
			if info, err := fsys.Stat(full); err != nil || !info.Dir {
				all[full] = readFile(t, fsys, full)
			}
		}
	}
	return all
}

// TestKafkasFilesAreWrittenAgainByteForByte decodes each file of a kind that we write, and encodes it again.
func TestKafkasFilesAreWrittenAgainByteForByte(t *testing.T) {
	counts := map[string]int{}
	err := filepath.WalkDir(kafkaDirs, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		want, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		kind := e.Name()
		if ext := filepath.Ext(strings.TrimSuffix(kind, ".deleted")); ext == ".log" || ext == ".checkpoint" {
			kind = ext
		}
		var got []byte
		switch kind {
		case "quorum-state":
			var s raft.ElectionState
			s, err = storage.DecodeQuorumState(want)
			version, voters := int16(1), raft.VoterSet(nil)
			if bytes.Contains(want, []byte(`"data_version":0`)) {
				version, voters = 0, raft.VoterSet{{Key: raft.ReplicaKey{ID: 1}}, {Key: raft.ReplicaKey{ID: 2}}, {Key: raft.ReplicaKey{ID: 3}}}
			}
			got = storage.PlainQuorumState(s, version, voters)
		case "leader-epoch-checkpoint":
			var entries []raft.OffsetAndEpoch
			entries, err = storage.DecodeEpochs(want)
			got = storage.EncodeEpochs(entries)
		case "partition.metadata":
			var id raft.UUID
			id, err = storage.DecodePartition(want)
			got = storage.EncodePartition(id)
		case "meta.properties":
			var m storage.Meta
			m, err = storage.DecodeMeta(want)
			comments := regexp.MustCompile(`(?m)^#.*\n`) // the time of writing, our checksum
			got, want = comments.ReplaceAll(storage.EncodeMeta(m), nil), comments.ReplaceAll(want, nil)
		case ".log", ".checkpoint":
			got, err = rewrite(want)
		default:
			return nil // dumps, and producer snapshots, which we neither read nor write
		}
		if err != nil {
			t.Errorf("%s: %v", p, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: written again\n%.300q, want\n%.300q", p, got, want)
		}
		counts[kind]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]int{"quorum-state": 3, "leader-epoch-checkpoint": 3, "partition.metadata": 3, "meta.properties": 5, ".log": 4, ".checkpoint": 9} {
		if counts[kind] != want {
			t.Errorf("%d files of kind %s, want %d", counts[kind], kind, want)
		}
	}
}

// rewrite takes batches apart into records and puts them together again.
func rewrite(p []byte) (out []byte, err error) {
	for b, err := range record.All(p) {
		if err != nil {
			return out, err
		}
		if b.IsControl() {
			controls, err := record.DecodeControls(b)
			if err != nil {
				return out, err
			}
			out = append(out, record.EncodeControls(b.BaseOffset, b.Epoch, b.BaseTimestamp, controls...)...)
			continue
		}
		build := record.NewBuilder(b.BaseTimestamp, b.Codec())
		for r, err := range b.Records() {
			if err != nil {
				return out, err
			}
			build.Append(r.Timestamp, r.Key, r.Value, r.Headers()...)
		}
		raw, err := build.Build(b.BaseOffset, b.Epoch)
		if err != nil {
			return out, err
		}
		out = append(out, raw...)
	}
	return out, nil
}

// TestInspectSeesWhatKafkasDumpSees compares what we see with the dump of Kafka's own tool, batch by batch.
func TestInspectSeesWhatKafkasDumpSees(t *testing.T) {
	line := regexp.MustCompile(`^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*partitionLeaderEpoch: (\d+) .*isControl: (\w+) .*position: (\d+) CreateTime: (\d+) size: (\d+) .*crc: (\d+) isvalid: true`)
	for _, tt := range []struct{ dump, dir string }{
		{"static-voter.dump.txt", "static-voter"},
		{"dynamic-leader.dump-head.txt", "dynamic-leader"},
		{"formatted-dynamic.dump.txt", "formatted-dynamic"},
	} {
		dump, err := os.ReadFile(filepath.Join(kafkaDirs, tt.dump))
		if err != nil {
			t.Fatal(err)
		}
		ours := map[string]bool{}
		fsys := kafka(t, tt.dir)
		for name := range files(t, fsys) {
			if err := storage.Inspect(fsys, name, func(p storage.Part) error {
				if b, ok := p.Value.(record.Batch); ok {
					ours[fmt.Sprint(p.Position, b.BaseOffset, b.LastOffset(), b.Epoch, b.Count, b.Size, b.MaxTimestamp, b.CRC, b.IsControl())] = true
				}
				return p.Err
			}); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for text := range strings.Lines(string(dump)) {
			m := line.FindStringSubmatch(text)
			if m == nil {
				continue
			}
			if want := strings.Join([]string{m[6], m[1], m[2], m[4], m[3], m[8], m[7], m[9], m[5]}, " "); !ours[want] {
				t.Errorf("%s: we do not see a batch %s", tt.dump, want)
			}
			n++
		}
		if n < 3 {
			t.Errorf("%s: only %d batches found", tt.dump, n)
		}
	}
}
