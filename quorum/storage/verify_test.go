package storage_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

var flips = flag.Int("flips", 200, "how many bytes of each file TestAFlippedByteIsFound flips; 0: each bit of all of them")

var kafkasDirs = []string{"formatted-dynamic", "formatted-static", "static-voter", "dynamic-leader", "observer-after-snapshot"}

func verify(t testing.TB, fsys vfs.FS) *storage.Report {
	t.Helper()
	r, err := storage.Verify(fsys, dataDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// findings are those of a severity, as text.
func findings(r *storage.Report, s storage.Severity) (all []string) {
	for _, f := range r.Findings {
		if f.Severity == s {
			all = append(all, f.String())
		}
	}
	return all
}

// overwrite replaces a file, whoever may write to it.
func overwrite(t testing.TB, fsys vfs.FS, name, data string) {
	t.Helper()
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	writeFile(t, fsys, name, data)
}

// TestKafkasDirectoriesAreWhole: of what real controllers wrote nothing is damaged or odd.
func TestKafkasDirectoriesAreWhole(t *testing.T) {
	for _, dir := range kafkasDirs {
		r := verify(t, kafka(t, dir))
		if !r.Whole() || findings(r, storage.Warning) != nil {
			t.Errorf("%s: %v", dir, r.Findings)
		}
	}
}

// leads opens an epoch as a leader does: quorum-state first, then a LeaderChange.
func leads(t testing.TB, d *storage.Dir, epoch raft.Epoch, more ...raft.ControlRecord) {
	t.Helper()
	if err := d.WriteElectionState(raft.ElectionState{Epoch: epoch, Leader: 1, Voted: raft.NoReplica}, 1, nil); err != nil {
		t.Fatal(err)
	}
	change := raft.LeaderChange{Leader: 1, Voters: []raft.NodeID{1}, Granting: []raft.NodeID{1}}
	mustAppend(t, d, record.EncodeControl(d.Log.End(), epoch, 1000, append([]raft.ControlRecord{change}, more...)...))
}

// ours returns a directory that this package wrote: three epochs in several segments, a clean stop.
func ours(t testing.TB) *vfs.Mem {
	t.Helper()
	fsys := formatted(t)
	o := opts
	o.SegmentBytes = 900
	d := open(t, fsys, o)
	leads(t, d, 1, raft.KRaftVersion{Version: 1}, raft.Voters{Set: voters()})
	for epoch := range raft.Epoch(3) {
		for range 4 {
			mustAppend(t, d, batch(d.Log.End(), max(1, 2*epoch), 3))
		}
		if epoch < 2 {
			leads(t, d, 2*(epoch+1))
		}
	}
	mustFlush(t, d)
	d.MarkCommitted(0, d.Log.End())
	mustClose(t, d)
	return fsys
}

// compacted returns ours with two checkpoints beside the log.
func compacted(t testing.TB) *vfs.Mem {
	t.Helper()
	fsys := ours(t)
	o := opts
	o.SegmentBytes = 900
	d := open(t, fsys, o)
	for _, upTo := range []int64{20, d.Log.End()} {
		c, err := d.BeginCompaction(storage.CompactOptions{UpTo: upTo, Now: 5000, DeleteRetention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Run(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, d)
	return fsys
}

// told is how much Verify says of a changed byte.
type told int

const (
	nothing told = iota
	warning      // in the file
	damaged      // the file is
	placed       // damage, and where: the file if it is a small one; of a file of batches the one that has the byte
)

// less are the files of which less can be said than the place, and why.
var less = []struct {
	dirs  string // how their names begin
	kind  storage.Kind
	least told
	why   string
}{
	{"ours, compacted", storage.KindCheckpoint, damaged, "its footer sums up all offsets and epochs, so one that changed within a gap is known, but not whose"},
	{"ours", storage.KindSpare, nothing, "what is in it means nothing"},
	{"", storage.KindLeftover, nothing, "waits to be deleted, and nobody reads it"},
	{"kafka", storage.KindMeta, nothing, "Kafka writes no checksum: another id is as good, and a comment means nothing"},
	{"kafka", storage.KindState, nothing, "Kafka writes no checksum: another vote is as good"},
	{"kafka: observer", storage.KindEpochs, warning, "an epoch that begins before the log does is also what a crash leaves"},
}

// TestAFlippedByteIsFound flips bytes of every file of directories of ours and of Kafka's, and asks Verify for damage at the
// place: the batch, or the small file. The exceptions are those of less.
func TestAFlippedByteIsFound(t *testing.T) {
	dirs := map[string]*vfs.Mem{"ours": ours(t), "ours, never run": formatted(t), "ours, compacted": compacted(t)}
	for _, dir := range kafkasDirs {
		dirs["kafka: "+dir] = kafka(t, dir)
	}
	for dir, fsys := range dirs {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 1))
			all := files(t, fsys)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				data := all[name]
				kind := storage.KindOf(path.Base(name))
				least, why := placed, ""
				for _, l := range less {
					if l.kind == kind && strings.HasPrefix(dir, l.dirs) {
						least, why = l.least, l.why
					}
				}
				starts := batchStarts(kind, data)
				var count [placed + 1]int
				for _, f := range chosen(rng, starts, data) {
					b := []byte(data)
					b[f.at] ^= f.mask
					overwrite(t, fsys, name, string(b))
					from := -1 // of the batch
					for _, start := range starts {
						if start <= f.at {
							from = start
						}
					}
					r := verify(t, fsys)
					got := tells(r, name, from)
					if count[got]++; got < least {
						t.Errorf("%s: byte %d of what begins at %d: %#02x became %#02x: %v", name, f.at, from, data[f.at], b[f.at], r.Findings)
					}
				}
				overwrite(t, fsys, name, data)
				t.Logf("%s: %d flips placed, %d damage, %d a warning, %d nothing; %s", path.Base(name), count[placed], count[damaged], count[warning], count[nothing], why)
			}
		})
	}
}

// tells is what a report says of a change in a file, or in its batch that begins there.
func tells(r *storage.Report, name string, from int) told {
	got := nothing
	for _, f := range r.Findings {
		own := path.Join(dataDir, f.File) == name
		// What has no checksum contradicts a neighbour, or another file. Then both places are named.
		other := strings.Contains(f.What, fmt.Sprintf("at position %d", from)) && (own || strings.Contains(f.What, path.Base(name)))
		if from < 0 {
			other = strings.Contains(f.What, path.Base(name))
		}
		switch {
		case f.Severity == storage.Damage && (own && (from < 0 || f.Position == int64(from)) || other):
			return placed
		case f.Severity == storage.Damage && own:
			got = damaged
		case f.Severity == storage.Warning && own:
			got = max(got, warning)
		}
	}
	return got
}

// batchStarts is where the batches of a file begin; none in a file without.
func batchStarts(kind storage.Kind, data string) (starts []int) {
	if kind != storage.KindSegment && kind != storage.KindCheckpoint {
		return nil
	}
	for rest := []byte(data); len(rest) > 0; {
		h, err := record.ParseHeader(rest)
		if err != nil {
			panic(err)
		}
		starts = append(starts, len(data)-len(rest))
		rest = rest[h.Size:]
	}
	return starts
}

// TestMetaPropertiesMayBeEdited: with our checksum in it an edit is damage, and the error says how it is none.
func TestMetaPropertiesMayBeEdited(t *testing.T) {
	const name = dataDir + "/meta.properties"
	fsys := ours(t)
	sum, text, _ := strings.Cut(readFile(t, fsys, name), "\n")
	edited := strings.Replace(text, "cluster.id=", "cluster.id=a", 1)
	if edited == text {
		t.Fatalf("no cluster id in %q", text)
	}
	writeFile(t, fsys, name, sum+"\n"+edited)
	if _, err := storage.ReadMeta(fsys, dataDir); err == nil || !strings.HasSuffix(err.Error(), "without that line nothing is compared") {
		t.Errorf("edited: %v", err)
	}
	if verify(t, fsys).Whole() {
		t.Error("edited: whole")
	}
	writeFile(t, fsys, name, edited)
	m, err := storage.ReadMeta(fsys, dataDir)
	if err != nil || m.ClusterID[0] != 'a' {
		t.Errorf("edited without the checksum: %+v, %v", m, err)
	}
	if r := verify(t, fsys); !r.Whole() {
		t.Errorf("edited without the checksum: %v", r.Findings)
	}
}

type flip struct {
	at   int
	mask byte
}

// chosen picks what to flip: in text files all bytes to all values; in batches as many as the flag says, half of them in
// the headers, of which the checksum covers a part only.
func chosen(rng *rand.Rand, starts []int, data string) (all []flip) {
	switch {
	case len(starts) == 0 && len(data) < 1000 && *flips == 0:
		for at := range len(data) {
			for mask := 1; mask < 256; mask++ {
				all = append(all, flip{at, byte(mask)})
			}
		}
	case *flips == 0:
		for at := range len(data) {
			for bit := range 8 {
				all = append(all, flip{at, 1 << bit})
			}
		}
	case len(starts) == 0:
		for at := range len(data) {
			all = append(all, flip{at, 1 << rng.IntN(8)}, flip{at, byte(1 + rng.IntN(255))})
		}
	default:
		for i := range *flips {
			at := rng.IntN(len(data))
			if i%2 == 0 {
				at = starts[rng.IntN(len(starts))] + rng.IntN(21)
			}
			all = append(all, flip{at, 1 << rng.IntN(8)})
		}
	}
	return all
}

// TestVerifyNamesWhatIsWrong: one thing wrong, one finding that says where and what.
func TestVerifyNamesWhatIsWrong(t *testing.T) {
	const segment, second = logDir + "/00000000000000000000.log", logDir + "/00000000000000000016.log"
	remove := func(names ...string) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, fsys *vfs.Mem) {
			for _, name := range names {
				if err := fsys.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	edit := func(name string, change func(string) string) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, fsys *vfs.Mem) { overwrite(t, fsys, name, change(readFile(t, fsys, name))) }
	}
	rename := func(from, to string) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, fsys *vfs.Mem) {
			if err := fsys.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := func(t *testing.T, fsys *vfs.Mem) string {
		names, err := fsys.List(logDir)
		if err != nil {
			t.Fatal(err)
		}
		for i := len(names) - 1; ; i-- {
			if strings.HasSuffix(names[i], ".log") {
				return logDir + "/" + names[i]
			}
		}
	}
	cut := func(s string) string { return s[:len(s)-10] }
	for _, tt := range []struct {
		name, dir string
		change    func(*testing.T, *vfs.Mem)
		want      string
	}{
		{"nothing", "ours", func(*testing.T, *vfs.Mem) {}, ""},
		{"no identity", "ours", remove(dataDir + "/meta.properties"), "damage: meta.properties: is missing beside a log"},
		{"no log directory", "formatted-static", rename(logDir, dataDir+"/elsewhere"), "damage: __cluster_metadata-0: is missing"},
		{"ST-06", "ours", remove(logDir + "/quorum-state"), "damage: __cluster_metadata-0/quorum-state: is missing beside a log"},
		{"ST-05", "ours", edit(logDir+"/quorum-state", func(s string) string { return s[:100] }), "damage: __cluster_metadata-0/quorum-state, position 0: not JSON"},
		{"ST-05, the last blanks are gone", "ours", edit(logDir+"/quorum-state", cut), "damage: __cluster_metadata-0/quorum-state, position 502: the end"},
		{"quorum-state without blanks", "ours", edit(logDir+"/quorum-state", func(s string) string { return strings.TrimRight(s, " ") }), ""},
		{"an older quorum-state", "ours", func(t *testing.T, fsys *vfs.Mem) {
			overwrite(t, fsys, logDir+"/quorum-state", string(storage.EncodeQuorumState(raft.ElectionState{Epoch: 3, Leader: 1, Voted: raft.NoReplica}, 1, nil)))
		}, "damage: __cluster_metadata-0/quorum-state: epoch 3, but in 00000000000000000016.log at position 532 epoch 4 begins"},
		{"another leader", "ours", func(t *testing.T, fsys *vfs.Mem) {
			overwrite(t, fsys, logDir+"/quorum-state", string(storage.EncodeQuorumState(raft.ElectionState{Epoch: 4, Leader: 2, Voted: raft.NoReplica}, 1, nil)))
		}, "damage: __cluster_metadata-0/quorum-state: leader 2 of epoch 4, whose LeaderChange in the log names 1"},
		{"ST-04", "ours", func(t *testing.T, fsys *vfs.Mem) {
			edit(last(t, fsys), func(s string) string { return s[:70] + "X" + s[71:] })(t, fsys)
		}, "CRC is"},
		{"ST-03, cut off below what is committed", "ours", func(t *testing.T, fsys *vfs.Mem) { edit(last(t, fsys), cut)(t, fsys) }, "batch is not whole"},
		{"ST-03, a tail that was never synced", "ours", func(t *testing.T, fsys *vfs.Mem) {
			edit(last(t, fsys), func(s string) string { return s + string(batch(41, 4, 3)[:100]) })(t, fsys)
		}, "note: __cluster_metadata-0/00000000000000000035.log, position 266, offset 41: torn tail of 100 bytes"},
		{"the last batch is gone", "ours", func(t *testing.T, fsys *vfs.Mem) { edit(last(t, fsys), func(string) string { return "" })(t, fsys) }, "all before offset 41 was committed and synced, but the log ends at 35"},
		{"no file committed", "ours", remove(logDir + "/committed"), "note: __cluster_metadata-0/committed: is not there"},
		{"a segment is gone", "ours", remove(second), "the segment begins at offset 35, the one before ends at 16"},
		{"segments swapped", "ours", func(t *testing.T, fsys *vfs.Mem) {
			a, b := readFile(t, fsys, segment), readFile(t, fsys, second)
			overwrite(t, fsys, segment, b)
			overwrite(t, fsys, second, a)
		}, "damage: __cluster_metadata-0/00000000000000000000.log, position 0, offset 0: batch is out of place: base offset 16, want 0"},
		{"no epochs", "ours", remove(logDir + "/leader-epoch-checkpoint"), "damage: __cluster_metadata-0/leader-epoch-checkpoint: epoch 1 is missing, which begins at offset 0 in 00000000000000000000.log at position 0"},
		{"another topic id", "ours", func(t *testing.T, fsys *vfs.Mem) {
			overwrite(t, fsys, logDir+"/partition.metadata", string(storage.EncodePartition(dir1)))
		}, "damage: __cluster_metadata-0/partition.metadata: topic id ABEiM0RVZneImaq7zN3u_w, want AAAAAAAAAAAAAAAAAAAAAQ"},
		{"leftovers", "ours", func(t *testing.T, fsys *vfs.Mem) { overwrite(t, fsys, logDir+"/committed.tmp", "x") }, "note: __cluster_metadata-0/committed.tmp: left by an interrupted write"},
		{"lost+found", "ours", func(t *testing.T, fsys *vfs.Mem) { _ = fsys.MkdirAll(dataDir + "/lost+found") }, ""},
		{"ST-07, no checkpoint", "observer-after-snapshot", remove(logDir+"/00000000000000000709-0000000005.checkpoint", logDir+"/00000000000000000734-0000000005.checkpoint"), "damage: __cluster_metadata-0/00000000000000000709.log: the log starts at offset 709, and no whole checkpoint"},
		{"ST-07, too old", "observer-after-snapshot", func(t *testing.T, fsys *vfs.Mem) {
			remove(logDir+"/00000000000000000734-0000000005.checkpoint")(t, fsys)
			rename(logDir+"/00000000000000000709-0000000005.checkpoint", logDir+"/00000000000000000700-0000000005.checkpoint")(t, fsys)
		}, "the log starts at offset 709, but the newest whole checkpoint ends at 700"},
		{"a checkpoint of another epoch", "dynamic-leader", rename(logDir+"/00000000000000000734-0000000005.checkpoint", logDir+"/00000000000000000734-0000000004.checkpoint"), "epoch 5 in a checkpoint of epoch 4"},
		{"a checkpoint inside a batch", "dynamic-leader", rename(logDir+"/00000000000000000443-0000000005.checkpoint", logDir+"/00000000000000000005-0000000001.checkpoint"), "in a checkpoint of epoch 1"},
		{"another checkpoint's content", "dynamic-leader", func(t *testing.T, fsys *vfs.Mem) {
			overwrite(t, fsys, logDir+"/00000000000000000443-0000000005.checkpoint", readFile(t, fsys, logDir+"/00000000000000000734-0000000005.checkpoint"))
		}, "damage: __cluster_metadata-0/00000000000000000443-0000000005.checkpoint, offset 443: has the voters"},
		{"the directory of another node", "dynamic-leader", func(t *testing.T, fsys *vfs.Mem) {
			edit(dataDir+"/meta.properties", func(s string) string { return strings.Replace(s, "node.id=1", "node.id=2", 1) })(t, fsys)
		}, "damage: meta.properties: node.id=2, but directory.id=AQECAwQFBgcICQoLDA0ODw is that of voter 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fsys := ours(t)
			if tt.dir != "ours" {
				fsys = kafka(t, tt.dir)
			}
			tt.change(t, fsys)
			r := verify(t, fsys)
			var all []string
			for _, f := range r.Findings {
				all = append(all, f.String())
			}
			text := strings.Join(all, "\n")
			if !strings.Contains(text, tt.want) || tt.want == "" && len(all) > 0 {
				t.Errorf("got\n%s\nwant %s", text, tt.want)
			}
			if strings.HasPrefix(tt.want, "note") && !r.Whole() || strings.HasPrefix(tt.want, "damage") && r.Whole() {
				t.Errorf("whole: %v: %s", r.Whole(), text)
			}
		})
	}
}

// TestPR32VotersThatChangeByMoreThanOne is a warning: a member starts on it, whoever wrote it.
func TestPR32VotersThatChangeByMoreThanOne(t *testing.T) {
	three := voters()
	for id := raft.NodeID(2); id < 4; id++ {
		three = append(three, raft.Voter{Key: raft.ReplicaKey{ID: id, DirectoryID: raft.UUID{1, byte(id)}}})
	}
	fsys := formatted(t)
	d := open(t, fsys, opts)
	leads(t, d, 1, raft.KRaftVersion{Version: 1}, raft.Voters{Set: voters()})
	mustAppend(t, d, record.EncodeControl(3, 1, 1000, raft.Voters{Set: three[:2]}))
	if r := verify(t, fsys); findings(r, storage.Warning) != nil {
		t.Errorf("one more voter: %v", r.Findings)
	}
	mustAppend(t, d, record.EncodeControl(4, 1, 1000, raft.Voters{Set: raft.VoterSet{three[0], three[2]}}))
	mustClose(t, d)
	if got := findings(verify(t, fsys), storage.Warning); len(got) != 1 || !strings.Contains(got[0], "00000000000000000000.log, position 317, offset 4: the voters change from") {
		t.Errorf("two changes at once: %q", got)
	}
}

// TestVerifyWhereADiskCannotBeRead: it says which file, and goes on with the others.
func TestVerifyWhereADiskCannotBeRead(t *testing.T) {
	for _, name := range []string{"meta.properties", "__cluster_metadata-0/quorum-state", "__cluster_metadata-0/00000000000000000016.log", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"} {
		fsys := vfs.WithFaults(ours(t), func(c vfs.Call) error {
			if c.Op == vfs.OpRead && c.Path == path.Join(dataDir, name) {
				return syscall.EIO
			}
			return nil
		})
		got := findings(verify(t, fsys), storage.Damage)
		if len(got) != 1 || !strings.Contains(got[0], "damage: "+name+": cannot be read: ") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestVerifyBesideAMember: it says so, and takes nothing.
func TestVerifyBesideAMember(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	leads(t, d, 1)
	before := files(t, fsys)
	if r := verify(t, fsys); !r.InUse || !r.Whole() {
		t.Errorf("in use: %v, %v", r.InUse, r.Findings)
	}
	if fmt.Sprint(files(t, fsys)) != fmt.Sprint(before) {
		t.Error("files have changed")
	}
	mustClose(t, d)
	if verify(t, fsys).InUse {
		t.Error("in use after the end")
	}
}

func TestVerifyKnowsWhatIsNoDirectoryOfAMember(t *testing.T) {
	fsys := ours(t)
	_ = fsys.MkdirAll("/empty")
	for dir, want := range map[string]string{"/empty": "is no member's directory", logDir: "the member's is the one above", "/none": "not exist"} {
		if _, err := storage.Verify(fsys, dir, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", dir, err, want)
		}
	}
}

// TestVerifyIsCalmAfterACrash: whatever a power cut leaves, at whatever call, is no damage. And what it says of a torn tail
// comes true at the next start.
func TestVerifyIsCalmAfterACrash(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 4)
	}
	cuts, torn := 0, 0
	for seed := range n {
		rng := rand.New(rand.NewPCG(seed, 14))
		disk := formatted(t)
		o := opts
		o.SegmentBytes = 2000
		fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
			if !c.Op.Writes() {
				return nil
			}
			left := disk.CrashClone(rng, rng.Float64())
			if there, _ := vfs.Exists(left, logDir+"/committed"); !there {
				return nil // without it a torn tail cannot be told from damage
			}
			cuts++
			r := verify(t, left)
			if !r.Whole() {
				t.Fatalf("seed %d, before %s %s: %v", seed, c.Op, c.Path, r.Findings)
			}
			l := r.Logs[0]
			if strings.Contains(fmt.Sprint(r.Findings), "is ahead of the log") {
				l.End = l.Checkpoints[len(l.Checkpoints)-1].Offset
			}
			d := open(t, left, o)
			if got := d.Log.End(); got != l.End {
				t.Fatalf("seed %d, before %s %s: the log was opened up to %d, verify said %d: %+v %v", seed, c.Op, c.Path, got, l.End, l, r.Findings)
			}
			if cut := strings.Contains(fmt.Sprint(r.Findings), "torn tail"); cut != (d.Recovery().Torn.File != "") {
				t.Fatalf("seed %d, before %s %s: cut off %+v, verify said %v", seed, c.Op, c.Path, d.Recovery().Torn, r.Findings)
			} else if cut {
				torn++
			}
			d.Abandon()
			return nil
		})
		d := open(t, fsys, o)
		leads(t, d, 1, raft.KRaftVersion{Version: 1}, raft.Voters{Set: voters()})
		mustFlush(t, d)
		highWatermark := d.Log.End()
		d.MarkCommitted(0, highWatermark)
		if err := d.WriteCommitted(); err != nil {
			t.Fatal(err)
		}
		now := raft.Instant(0)
		for range 30 {
			now += raft.Instant(rng.Int64N(1e9))
			switch rng.IntN(8) {
			case 0:
				leads(t, d, d.ElectionState().Epoch+1+raft.Epoch(rng.IntN(2)))
			case 1:
				mustFlush(t, d)
				if highWatermark = max(highWatermark, d.Log.End()-rng.Int64N(30)); d.MarkCommitted(now, highWatermark) {
					if err := d.WriteCommitted(); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				if to := boundaryAfter(t, d, highWatermark); to < d.Log.End() {
					if err := d.Log.Truncate(to); err != nil {
						t.Fatal(err)
					}
					leads(t, d, d.ElectionState().Epoch+1) // who made us cut it
				}
			case 3:
				mustClose(t, d)
				d = open(t, fsys, o)
			case 4:
				c, err := d.BeginCompaction(storage.CompactOptions{UpTo: highWatermark, Now: 5000, DeleteRetention: time.Hour})
				if err == nil {
					_, err = c.Run()
				}
				if err != nil && !errors.Is(err, storage.ErrNothingNew) {
					t.Fatal(err)
				}
				if c := d.BeginClean(storage.CleanOptions{Now: now, HighWatermark: highWatermark, MaxBytes: 2000}); c != nil {
					if err := c.Run(); err != nil {
						t.Fatal(err)
					}
				}
			default:
				mustAppend(t, d, batchOf(d.Log.End(), d.ElectionState().Epoch, 1+rng.IntN(5), rng.IntN(200)))
			}
		}
		mustClose(t, d)
	}
	t.Logf("%d power cuts, %d torn tails", cuts, torn)
	if torn == 0 {
		t.Error("no tail was torn")
	}
}

// boundaryAfter is where a batch begins at or after an offset.
func boundaryAfter(t *testing.T, d *storage.Dir, offset int64) int64 {
	t.Helper()
	end := d.Log.End()
	if err := d.Log.Walk(offset, end, func(b record.Batch) error {
		if b.BaseOffset >= offset && b.BaseOffset < end {
			end = b.BaseOffset
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return end
}
