package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Who tests the tester? Each planted bug is one that an implementation could have, and says in its name what the code
// does wrong. It must be found within a number of seeds, by the invariants or the histories that watch every run.
type planted struct {
	name   string
	within int
	finds  []string // invariants that may find it
	// deaf names invariants that must not: they would find nothing but this very bug.
	deaf    []string
	edits   []edit // of the code under test, or
	plant   func() *plant
	arrange func(*plan) // makes sure that the bug has a chance
}

// edit changes a file below quorum/ for a build of its own. BUG in the new text is true while this bug is planted.
type edit struct{ file, old, new string }

// find runs seeds until one fails.
func (b planted) find() finding {
	for i := range b.within {
		p := draw(7_000_000 + uint64(i))
		p.chaos = min(p.chaos, 12e9)
		if b.arrange != nil {
			b.arrange(&p)
		}
		var bug *plant
		if b.plant != nil {
			bug = b.plant()
		}
		w := newWorld(p, bug, nil)
		w.oracle.deaf = b.deaf
		if v := w.run(); v != nil {
			first, _, _ := strings.Cut(v.message, "\n")
			return finding{Bug: b.name, Seeds: i + 1, By: v.invariant, Message: first}
		}
	}
	return finding{Bug: b.name}
}

// finding is how a planted bug came to light.
type finding struct {
	Bug     string
	Seeds   int // 0: not at all
	By      string
	Message string
}

// TestPlantedBugsAreFound plants every bug and wants it found. Those in the code under test are planted in a build of
// their own, which replaces source files (go build -overlay): nothing in the code that ships knows of them.
func TestPlantedBugsAreFound(t *testing.T) {
	if name := os.Getenv(plantedVariable); name != "" { // this is that build
		i := slices.IndexFunc(coreBugs, func(b planted) bool { return b.name == name })
		if err := json.NewEncoder(os.Stdout).Encode(coreBugs[i].find()); err != nil {
			t.Fatal(err)
		}
		return
	}
	var found []finding
	var lock sync.Mutex
	take := func(t *testing.T, b planted, f finding) {
		t.Helper()
		lock.Lock()
		found = append(found, f)
		lock.Unlock()
		switch {
		case f.Seeds == 0:
			t.Errorf("not found with %d seeds", b.within)
		case !slices.Contains(b.finds, f.By):
			t.Errorf("found with seed %d by %s, want one of %v: %s", f.Seeds, f.By, b.finds, f.Message)
		}
	}
	t.Run("bugs", func(t *testing.T) {
		for _, b := range borderBugs {
			t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				if testing.Short() && b.within > 200 {
					t.Skip("takes many seeds")
				}
				take(t, b, b.find())
			})
		}
		if testing.Short() {
			return // the rest needs a build of its own
		}
		binary := buildPlanted(t)
		for _, b := range coreBugs {
			t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				take(t, b, findInside(t, binary, b))
			})
		}
	})
	if n := len(borderBugs) + len(coreBugs); n < 35 {
		t.Errorf("%d bugs are planted, want 35 at least", n)
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "bug\tseeds\tfound by")
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.Bug, b.Bug) })
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%d\t%s: %.90s\n", f.Bug, f.Seeds, f.By, f.Message)
	}
	_ = w.Flush()
	t.Logf("%d bugs\n%s", len(found), &table)
}

// No bug in one place brings a leader to load a snapshot: who leads has all that is committed, and members that make their
// own snapshots ask for one only when they lack something. So the oracle is shown one that did.
func TestLeaderThatLoadsASnapshotIsSeen(t *testing.T) {
	p := quiet(1, 3)
	p.snapshots = snapshotPlan{bytes: 1000, retained: 1, maxBytes: 1000}
	w := settled(t, p)
	w.untilIs(w.now+time.Minute, func() bool { l := w.leader(); return l != nil && l.replica.Status().Snapshot != nil })
	w.holds(t)
	leader := w.leader()
	leader.seen.download = &raft.DownloadStatus{Snapshot: *leader.replica.Status().Snapshot}
	w.oracle.look(leader)
	if w.failure == nil || w.failure.invariant != "LeaderNeverLoadSnapshot" {
		t.Errorf("the oracle says %v", w.failure)
	}
}

// plantedVariable tells the other build which bug it has.
const plantedVariable = "QUORUM_SIM_PLANTED"

// buildPlanted builds this package's tests with all bugs of the code under test in it, each asleep until it is named.
func buildPlanted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, b := range slices.Concat(coreBugs, []planted{assertionsOff}) {
		for _, e := range b.edits {
			text, ok := texts[e.file]
			if !ok {
				raw, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					t.Fatal(err)
				}
				text = string(raw)
			}
			if n := strings.Count(text, e.old); n != 1 {
				t.Fatalf("bug %q: %s has %d places that read %q, want 1: follow the code with the bug", b.name, e.file, n, e.old)
			}
			name := "Planted"
			if !strings.HasPrefix(e.file, "raft/") {
				name = "raft.Planted"
			}
			condition := fmt.Sprintf("(%s == %q)", name, b.name)
			if b.name == assertionsOff.name {
				condition = fmt.Sprintf("(%s != \"\")", name)
			}
			texts[e.file] = strings.Replace(text, e.old, strings.ReplaceAll(e.new, "BUG", condition), 1)
		}
	}
	texts["raft/planted.go"] = fmt.Sprintf("package raft\n\nimport \"os\"\n\nvar Planted = os.Getenv(%q)\n", plantedVariable)
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(root, file)] = to
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "planted.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with planted bugs: %v\n%s", err, out)
	}
	return binary
}

// findInside lets the other build look for a bug that is in it.
func findInside(t *testing.T, binary string, b planted) (f finding) {
	t.Helper()
	search := exec.CommandContext(t.Context(), binary, "-test.run=^TestPlantedBugsAreFound$", "-test.timeout=0")
	search.Env = append(os.Environ(), plantedVariable+"="+b.name)
	out, err := search.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", search, err, out)
	}
	if err := json.NewDecoder(strings.NewReader(string(out))).Decode(&f); err != nil {
		t.Fatalf("%v: %v in %q", search, err, out)
	}
	return f
}
