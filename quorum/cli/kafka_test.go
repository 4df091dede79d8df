package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// kafkaDirs holds what real Apache Kafka 4.4.0 controllers wrote.
const kafkaDirs = "../storage/testdata/kafka/"

// TestDumpAndVerifyReadKafkasDirectories: each of them is whole, and shown batch by batch, as a table and as JSON. The storage
// package compares the batches with what Kafka's own tool says of them.
func TestDumpAndVerifyReadKafkasDirectories(t *testing.T) {
	const cluster, id, staticID = "AAECAwQFBgcICQoLDA0ODw", "AQECAwQFBgcICQoLDA0ODw", "xmahgVzp54ajkiAmmF2Psw"
	voters := []string{"1@AQECAwQFBgcICQoLDA0ODw", "2@AgECAwQFBgcICQoLDA0ODw", "3@AwECAwQFBgcICQoLDA0ODw"}
	const table = "log:         __cluster_metadata-0: "
	// What is dumped of each kind of file: how many batches, and records in them.
	type dumped struct{ Batches, Records int }
	tests := []struct {
		dir      string
		meta     dumpMeta
		log      verifiedLog // without name and state
		state    *dumpState
		verify   []string // lines of the table
		notes    int
		segments dumped
		points   dumped   // checkpoints
		dump     []string // texts in the table
	}{
		{
			dir: "formatted-dynamic", meta: dumpMeta{cluster, 1, id}, log: verifiedLog{Voters: voters},
			verify: []string{
				table + "offsets 0 to 0, records: 0, batches: 0, segments: 0, bytes: 0", "voters:      " + strings.Join(voters, " "),
			},
			points: dumped{3, 10},
			dump:   []string{"KRaftVersion 1", "Voters " + voters[0] + " CONTROLLER://127.0.0.1:18191 kraft.version 0-1, " + voters[1]},
		},
		{
			dir: "formatted-static", meta: dumpMeta{cluster, 1, staticID},
			verify: []string{table + "offsets 0 to 0, records: 0, batches: 0, segments: 0, bytes: 0"},
			points: dumped{3, 8},
			dump:   []string{"  cluster " + cluster + ", node 1, directory " + staticID},
		},
		{
			dir: "static-voter", meta: dumpMeta{cluster, 1, staticID},
			log: verifiedLog{
				End: 51, Segments: 1, Batches: 42, Records: 51, Bytes: 4217,
				Epochs: []dumpPosition{{2, 0}, {3, 23}},
			},
			state: &dumpState{Epoch: 3, Leader: 1, Voted: -1, VotedDirectoryID: "AAAAAAAAAAAAAAAAAAAAAA", Voters: []raft.NodeID{1, 2, 3}},
			verify: []string{
				table + "offsets 0 to 51, records: 51, batches: 42, segments: 1, bytes: 4217",
				"election:    epoch 3, leader 1, voted for nobody", "epochs:      2 from offset 0, 3 from offset 23",
			},
			notes: 1, segments: dumped{42, 51}, points: dumped{3, 8},
			dump: []string{
				"LeaderChange leader 2, voters [1 2 3], granted by [2 1]", "LeaderChange leader 1, voters [1 2 3], granted by [1 2]",
				"  version 0: epoch 3, leader 1, voted for nobody, voters [1 2 3]", "  epoch 3 begins at offset 23",
			},
		},
		{
			dir: "dynamic-leader", meta: dumpMeta{cluster, 1, id},
			log: verifiedLog{
				End: 742, Segments: 1, Batches: 697, Records: 742, Bytes: 61076,
				Epochs:      []dumpPosition{{1, 0}, {2, 154}, {3, 185}, {5, 256}},
				Checkpoints: []dumpPosition{{5, 443}, {5, 734}}, Voters: voters,
			},
			state: &dumpState{Version: 1, Epoch: 5, Leader: 1, Voted: -1, VotedDirectoryID: "AAAAAAAAAAAAAAAAAAAAAA"},
			verify: []string{
				table + "offsets 0 to 742, records: 742, batches: 697, segments: 1, bytes: 61076",
				"election:    epoch 5, leader 1, voted for nobody",
				"checkpoints: epoch 5 up to offset 443, epoch 5 up to offset 734",
			},
			notes: 1, segments: dumped{697, 742}, points: dumped{9, 491},
			dump: []string{"LeaderChange leader 3, voters [1 2 3], granted by [2 3]", "  version 1: epoch 5, leader 1, voted for nobody"},
		},
		{
			dir: "observer-after-snapshot", meta: dumpMeta{cluster, 4, "JKmgmdTZeJlFKWEtMMmwQw"},
			log: verifiedLog{
				Start: 709, End: 742, Segments: 1, Batches: 33, Records: 33, Bytes: 2590, Epochs: []dumpPosition{{5, 709}},
				Checkpoints: []dumpPosition{{5, 709}, {5, 734}}, Voters: voters,
			},
			state: &dumpState{Version: 1, Epoch: 5, Leader: 1, Voted: -1, VotedDirectoryID: "AAAAAAAAAAAAAAAAAAAAAA"},
			verify: []string{
				table + "offsets 709 to 742, records: 33, batches: 33, segments: 1, bytes: 2590",
				"note:        __cluster_metadata-0/00000000000000000000.log.deleted: left by an interrupted write, or waiting to be deleted: " +
					"the next start removes it",
			},
			notes: 3, segments: dumped{33, 33}, points: dumped{6, 630},
			dump: []string{"00000000000000000742.snapshot: 10 bytes, producers' state that Kafka derives", "3-313                  5      311"},
		},
	}
	entries, err := os.ReadDir(kafkaDirs)
	if err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() })
	if len(entries) != len(tests) {
		t.Errorf("%d directories, %d tests", len(entries), len(tests))
	}
	for _, tt := range tests {
		t.Run(tt.dir, func(t *testing.T) {
			read := func(args ...string) string {
				t.Helper()
				code, stdout, stderr := on(t, vfs.OS, append(args, kafkaDirs+tt.dir)...)
				if code != 0 || stderr != "" {
					t.Fatalf("%v: code %d, %s", args, code, stderr)
				}
				return stdout
			}
			has := func(text string, wanted ...string) {
				t.Helper()
				for _, want := range wanted {
					if !strings.Contains(text, want) {
						t.Errorf("no %q in\n%s", want, text)
					}
				}
			}

			text := read("verify")
			has("\n"+text, fmt.Sprintf("\ndirectory:   %s%s: cluster %s, node %d, directory id %s\n",
				kafkaDirs, tt.dir, cluster, tt.meta.NodeID, tt.meta.DirectoryID), "\nwhole\n")
			for _, line := range tt.verify {
				has("\n"+text, "\n"+line+"\n")
			}

			var v verified
			if err := json.Unmarshal([]byte(read("verify", "-o", "json")), &v); err != nil {
				t.Fatal(err)
			}
			want := tt.log
			want.Name, want.State = "__cluster_metadata-0", tt.state
			for _, list := range []*[]dumpPosition{&want.Epochs, &want.Checkpoints} {
				*list = append([]dumpPosition{}, *list...)
			}
			want.Voters = append([]string{}, want.Voters...)
			if diff := cmp.Diff([]verifiedLog{want}, v.Logs); diff != "" {
				t.Error(diff)
			}
			if v.Meta != tt.meta || !v.Whole || v.InUse || len(v.Findings) != tt.notes {
				t.Errorf("meta %+v, want %+v; whole %v, in use %v, findings %+v, want %d notes", v.Meta, tt.meta, v.Whole, v.InUse, v.Findings, tt.notes)
			}

			text = read("dump", "--records")
			has(text, tt.dump...)
			if strings.Contains(text, "DAMAGED") {
				t.Errorf("damage in\n%s", text)
			}

			var segments, points, rows dumped
			next := tt.log.Start // offset of the next batch of the log
			for line := range strings.Lines(read("dump", "--records", "-o", "json")) {
				var l dumpLine
				if err := json.Unmarshal([]byte(line), &l); err != nil || l.Damage != "" {
					t.Fatalf("%v: %s", err, line)
				}
				of := &points
				if strings.HasSuffix(l.File, ".log") {
					of = &segments
				}
				switch {
				case l.Batch != nil:
					of.Batches++
					of.Records += int(l.Batch.Records)
					if of == &segments && l.Batch.BaseOffset != next {
						t.Errorf("%s: offset %d is expected", line, next)
					}
					if of == &segments {
						next = l.Batch.LastOffset + 1
					}
				case l.Record != nil || l.Control != nil:
					rows.Records++
				}
			}
			if segments != tt.segments || points != tt.points || rows.Records != segments.Records+points.Records || next != tt.log.End {
				t.Errorf("dumped of segments %+v, want %+v; of checkpoints %+v, want %+v; records in all %d; log up to %d, want %d",
					segments, tt.segments, points, tt.points, rows.Records, next, tt.log.End)
			}
		})
	}
}
