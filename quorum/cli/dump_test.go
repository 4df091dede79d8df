package cli

import (
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	batches "github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

const logDir = "/data/__cluster_metadata-0"

// directory is a member's that has led and stopped.
func directory(t *testing.T) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	key := raft.ReplicaKey{ID: 1, DirectoryID: raft.UUID{1, 2, 3}}
	set := raft.VoterSet{{Key: key, Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: "2001:db8::1", Port: 9093}}, KRaft: raft.VersionRange{Max: 1}}}
	if err := storage.Format(fsys, "/data", storage.FormatOptions{ClusterID: "c", NodeID: 1, InitialVoters: set, KRaftVersion: 1, Timestamp: 1000}); err != nil {
		t.Fatal(err)
	}
	d, err := storage.Open(fsys, "/data", storage.Options{NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteElectionState(raft.ElectionState{Epoch: 3, Leader: 1, Voted: key}, 1, nil); err != nil {
		t.Fatal(err)
	}
	data, err := batches.NewBuilder(1500, batches.None).Producer(77, 0, 4).
		Append(1500, []byte("greeting"), []byte("hello\n"), batches.RecordHeader{Key: "h", Value: []byte{0xff}}).
		Append(1501, []byte{0xfe}, nil).Build(2, 3)
	if err != nil {
		t.Fatal(err)
	}
	control := batches.EncodeControl(0, 3, 1400, raft.LeaderChange{Leader: 1, Voters: []raft.NodeID{1}, Granting: []raft.NodeID{1}}, raft.KRaftVersion{Version: 1})
	if err := d.Log.Append(0, control, data); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Log.Flush(); err != nil {
		t.Fatal(err)
	}
	d.MarkCommitted(0, 4)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return fsys
}

// on runs a command on a file system.
func on(t *testing.T, fsys vfs.FS, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	env, out, errs := world(t, args...)
	env.FS = fsys
	return Run(t.Context(), env), out.String(), errs.String()
}

func TestDump(t *testing.T) {
	fsys := directory(t)
	if err := vfs.WriteFile(fsys, logDir+"/00000000000000000000.index", make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := fsys.MkdirAll("/data/lost+found"); err != nil {
		t.Fatal(err)
	}
	code, got, stderr := on(t, fsys, "dump", "--records", "/data")
	const want = `.lock: not held
__cluster_metadata-0/00000000000000000000-0000000000.checkpoint: checkpoint, 243 bytes
    POSITION     BYTES  OFFSETS            EPOCH  RECORDS  TIME                      CRC
           0       168  0-2                    0        3  1970-01-01T00:00:01.000Z  89361afa  control
                        0                                  SnapshotHeader of a log up to 1970-01-01T00:00:01.000Z
                        1                                  KRaftVersion 1
                        2                                  Voters 1@AQIDAAAAAAAAAAAAAAAAAA CONTROLLER://[2001:db8::1]:9093 kraft.version 0-1
         168        75  3-3                    0        1  1970-01-01T00:00:01.000Z  8db697cb  control
                        3                                  SnapshotFooter
__cluster_metadata-0/00000000000000000000.index: 8 bytes, an index or list that Kafka derives from the log: not read
__cluster_metadata-0/00000000000000000000.log: segment, 201 bytes
    POSITION     BYTES  OFFSETS            EPOCH  RECORDS  TIME                      CRC
           0       107  0-1                    3        2  1970-01-01T00:00:01.400Z  5db09462  control
                        0                                  LeaderChange leader 1, voters [1], granted by [1]
                        1                                  KRaftVersion 1
         107        94  2-3                    3        2  1970-01-01T00:00:01.501Z  a52aaa0f  producer 77 epoch 0 sequences 4-5
                        2                                  1970-01-01T00:00:01.500Z  "greeting" = "hello\n"  "h": "\xff"
                        3                                  1970-01-01T00:00:01.501Z  "\xfe" = null
__cluster_metadata-0/committed: 25 bytes
  all before offset 4, of epoch 3, is committed and synced
__cluster_metadata-0/leader-epoch-checkpoint: 8 bytes
  epoch 3 begins at offset 0
__cluster_metadata-0/partition.metadata: 43 bytes
  topic id AAAAAAAAAAAAAAAAAAAAAQ
__cluster_metadata-0/quorum-state: 512 bytes
  version 1: epoch 3, leader 1, voted for 1@AQIDAAAAAAAAAAAAAAAAAA
__cluster_metadata-0/quorum-state.tmp: 512 bytes, room for the next quorum-state: what is in it means nothing
lost+found: a directory of something else: not read
meta.properties: 86 bytes
  cluster c, node 1, directory AQIDAAAAAAAAAAAAAAAAAA
`
	if diff := cmp.Diff(want, got); diff != "" || code != 0 || stderr != "" {
		t.Errorf("code %d, %s%s", code, stderr, diff)
	}
}

// TestDumpJSON: each line is one value.
func TestDumpJSON(t *testing.T) {
	code, got, stderr := on(t, directory(t), "dump", "--records", "-o", "json", logDir+"/00000000000000000000.log")
	if code != 0 {
		t.Fatalf("code %d, %s", code, stderr)
	}
	var records []dumpRecord
	var positions []int64
	var types []string
	for text := range strings.Lines(got) {
		var line dumpLine
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.File != logDir+"/00000000000000000000.log" {
			t.Fatalf("%v: %s", err, text)
		}
		if line.Batch != nil {
			positions = append(positions, *line.Position)
		}
		if line.Record != nil {
			records = append(records, *line.Record)
		}
		if line.Control != nil {
			types = append(types, line.Control.Type)
		}
	}
	if diff := cmp.Diff([]int64{0, 107}, positions); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"LeaderChange", "KRaftVersion"}, types); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]dumpRecord{
		{Offset: 2, Timestamp: 1500, Key: new("greeting"), Value: new("hello\n"), Headers: map[string]string{"h": `"\xff"`}},
		{Offset: 3, Timestamp: 1501, KeyBase64: []byte{0xfe}},
	}, records); diff != "" {
		t.Error(diff)
	}
}

// TestDamageIsShown: where it is, what follows it, and in the exit code.
func TestDamageIsShown(t *testing.T) {
	fsys := directory(t)
	const name = logDir + "/00000000000000000000.log"
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	b[90] ^= 1
	if err := vfs.WriteFile(fsys, name, b); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := on(t, fsys, "dump", name)
	if code != 1 || !strings.Contains(stdout, "           0       107  DAMAGED: batch is damaged: CRC is ") || !strings.Contains(stdout, "         107        94  2-3 ") ||
		!strings.HasPrefix(stderr, "quorum: dump "+name+": damaged in 1 place, the first: "+name+", position 0: batch is damaged: CRC is ") {
		t.Errorf("code %d, %s%s", code, stderr, stdout)
	}
	code, stdout, _ = on(t, fsys, "dump", "-o", "json", name)
	if code != 1 || !strings.Contains(stdout, `"position":0,"bytes":107,"damage":"batch is damaged: CRC is `) {
		t.Errorf("code %d, %s", code, stdout)
	}

	code, stdout, stderr = on(t, fsys, "verify", "/data")
	if code != 1 || !strings.Contains(stdout, "damage:      __cluster_metadata-0/00000000000000000000.log, position 0, offset 0: batch is damaged: CRC is ") ||
		!strings.Contains(stdout, "what helps:") || strings.Contains(stdout, "\nwhole\n") ||
		!strings.HasPrefix(stderr, "quorum: verify /data: damaged in 1 place, the first: __cluster_metadata-0/00000000000000000000.log, position 0, offset 0: ") {
		t.Errorf("code %d, %s%s", code, stderr, stdout)
	}
	code, stdout, _ = on(t, fsys, "verify", "-o", "json", "/data")
	var r verified
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 1 || r.Whole || len(r.Findings) != 1 || r.Findings[0].Position != 0 || r.Findings[0].Severity != storage.Damage {
		t.Errorf("code %d, %v, %s", code, err, stdout)
	}
}

func TestVerify(t *testing.T) {
	code, got, stderr := on(t, directory(t), "verify", "/data")
	const want = `directory:   /data: cluster c, node 1, directory id AQIDAAAAAAAAAAAAAAAAAA
log:         __cluster_metadata-0: offsets 0 to 4, records: 4, batches: 2, segments: 1, bytes: 201
election:    epoch 3, leader 1, voted for 1@AQIDAAAAAAAAAAAAAAAAAA
epochs:      3 from offset 0
committed:   all before offset 4
voters:      1@AQIDAAAAAAAAAAAAAAAAAA
whole
`
	if diff := cmp.Diff(want, got); diff != "" || code != 0 || stderr != "" {
		t.Errorf("code %d, %s%s", code, stderr, diff)
	}
}

// TestDumpAndVerifyStream: a log far larger than what they allocate.
func TestDumpAndVerifyStream(t *testing.T) {
	fsys := directory(t)
	d, err := storage.Open(fsys, "/data", storage.Options{NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := batches.NewBuilder(1500, batches.None)
	for range 100 {
		b.Append(1500, []byte("k"), make([]byte, 10_000))
	}
	for range 64 {
		raw, err := b.Build(d.Log.End(), 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Log.Append(0, raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"dump", "/data"}, {"dump", "-o", "json", "/data"}, {"verify", "/data"}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		env, _, stderr := world(t, args...)
		env.FS, env.Stdout = fsys, io.Discard
		if code := Run(t.Context(), env); code != 0 {
			t.Errorf("%v: code %d, %s", args, code, stderr)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%v allocated %d MiB over a log of 64 MiB", args, n>>20)
		}
	}
}
