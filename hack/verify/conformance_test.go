package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the page has to list, in this order: behaviours (with gaps), past bugs, and scenarios.
var conformanceIDs = slices.Concat(
	ids("C-%03d", 1, 23, 30, 56, 60, 78, 80, 104, 110, 125, 130, 143, 150, 166, 170, 177, 180, 201, 210, 216, 220, 225, 230, 248, 250, 253),
	ids("B-%02d", 1, 70),
	ids("PR-%02d", 1, 37),
	ids("MB-%02d", 1, 2, 5, 5, 8, 12, 14, 16),
	ids("ST-%02d", 1, 27),
	[]string{"OB-06", "SC-01"},
)

// ids numbers from the first to the second of each pair of bounds.
func ids(format string, bounds ...int) (all []string) {
	for pair := range slices.Chunk(bounds, 2) {
		for i := pair[0]; i <= pair[1]; i++ {
			all = append(all, fmt.Sprintf(format, i))
		}
	}
	return all
}

// TestConformancePage holds docs/conformance.md to the tests that it names: every id once and in order, no row without a test
// or a remark, every scenario with a test named after it; and every test, script, table row and invariant is there.
func TestConformancePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	shown, remarked, missing := 0, 0, 0
	sources := map[string]string{} // the test files of a package
	row := regexp.MustCompile(`^\| ([A-Z]+-\d+) \|`)
	for line := range strings.Lines(string(page)) {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		id := m[1]
		listed = append(listed, id)
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 {
			t.Errorf("%s: %d cells, want id, text, tests and remark", id, len(cells)-2)
			continue
		}
		text, tests, remark := strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4])
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(tests, -1)
		switch {
		case text == "":
			t.Errorf("%s says nothing", id)
		case len(names) > 0:
			shown++
		case remark == "":
			t.Errorf("%s has neither a test nor a reason", id)
		case strings.Contains(remark, "not there yet"):
			missing++
		default:
			remarked++
		}
		if scenario := id[0] != 'C' && id[0] != 'B'; scenario && len(names) > 0 && !slices.ContainsFunc(names, func(name []string) bool { return carries(sources, name[1], id) }) {
			t.Errorf("%s: none of its tests carries the id in its name, or in the comment above it", id)
		}
		for _, name := range append(names, regexp.MustCompile("`([a-z]+\\.Test[A-Za-z0-9]+)`").FindAllStringSubmatch(remark, -1)...) {
			if err := named(sources, name[1]); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if !slices.Equal(listed, conformanceIDs) {
		for i := range max(len(listed), len(conformanceIDs)) {
			got, want := "nothing", "nothing"
			if i < len(listed) {
				got = listed[i]
			}
			if i < len(conformanceIDs) {
				want = conformanceIDs[i]
			}
			if got != want {
				t.Errorf("row %d is %s, want %s", i+1, got, want)
				break
			}
		}
	}
	t.Logf("%d ids: %d shown by tests, %d do not apply, %d not there yet", len(listed), shown, remarked, missing)
}

// carries reports whether a test, a script or a table row is named after an id: TestPR01…, pr01_…, … (PR-01); or a test has
// it in the comment above.
func carries(sources map[string]string, name, id string) bool {
	upper := strings.ToUpper(name)
	if strings.Contains(upper, id) || strings.Contains(upper, strings.ReplaceAll(id, "-", "")) {
		return true
	}
	pkg, function, _ := strings.Cut(name, ".")
	function, _, _ = strings.Cut(function, "/")
	code, err := testSource(sources, pkg)
	if err != nil {
		return false
	}
	above, _, found := strings.Cut(code, "\nfunc "+function+"(")
	above = above[strings.LastIndex(above, "\n\n")+1:]
	return found && strings.HasPrefix(above, "\n//") && strings.Contains(above, id)
}

// named finds what a cell calls a test: "script NAME", "sim: INVARIANT", "package.TestName" or "package.TestName/row", which
// may be a spec.
func named(sources map[string]string, name string) error {
	switch kind, what, _ := strings.Cut(name, " "); kind {
	case "script":
		_, err := os.Stat(filepath.Join(root, "quorum/raft/testdata/scripts", what+".txt"))
		return err
	case "sim:":
		code, err := testSource(sources, "sim")
		if err == nil && !strings.Contains(code, `"`+what+`"`) {
			err = fmt.Errorf("quorum/sim has no %q", what)
		}
		return err
	}
	pkg, function, _ := strings.Cut(name, ".")
	function, row, _ := strings.Cut(function, "/")
	code, err := testSource(sources, pkg)
	switch {
	case err != nil:
		return err
	case !strings.Contains(code, "\nfunc "+function+"(") || !strings.HasPrefix(function, "Test") && !strings.HasPrefix(function, "Fuzz"):
		return fmt.Errorf("package %s has no test %s", pkg, function)
	case row != "" && !strings.Contains(code, `"`+row+`"`):
		return fmt.Errorf("%s.%s has no row %q", pkg, function, row)
	}
	return nil
}

// testSource is the text of all test files of a package, and of the simulation's other files, which hold the invariants.
func testSource(sources map[string]string, pkg string) (string, error) {
	if code, ok := sources[pkg]; ok {
		return code, nil
	}
	pattern := "*_test.go"
	if pkg == "sim" {
		pattern = "*.go"
	}
	var files []string
	for _, dir := range []string{"quorum", "quorum/storage", "controllers", "hack", "."} {
		found, err := filepath.Glob(filepath.Join(root, dir, pkg, pattern))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return "", fmt.Errorf("no package %s with tests", pkg)
	}
	var code strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		code.Write(b)
	}
	sources[pkg] = code.String()
	return sources[pkg], nil
}
