package sim

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCorrectnessPage holds docs/correctness.md to the code: every invariant that a run can violate has a row, every row an
// invariant, and every seed named there is one of testdata.
func TestCorrectnessPage(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	found := func(pattern, text string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	page := read("../../docs/correctness.md")
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range sources {
		if !strings.HasSuffix(name, "_test.go") {
			code.WriteString(read(name))
		}
	}
	checked, told := found(`violate\("(\w+)"`, code.String()), found("(?m)^\\| `([A-Z]\\w+)` \\|", page)
	if !slices.Equal(checked, told) {
		t.Errorf("invariants of the code:\n%v\nof the page:\n%v", checked, told)
	}
	seeds := read("testdata/seeds.txt")
	for _, seed := range found(`seed (\d{6,})`, page) {
		if !strings.Contains(seeds, seed) {
			t.Errorf("seed %s is not in testdata/seeds.txt", seed)
		}
	}
	for _, script := range found("script `(\\w+)`", page) {
		if _, err := os.Stat("../raft/testdata/scripts/" + script + ".txt"); err != nil {
			t.Error(err)
		}
	}
}
