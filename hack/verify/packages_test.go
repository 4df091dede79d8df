package verify

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/kraft-operator/kraft-operator"
)

// goList returns what go list prints, a word a line, sorted and without doubles.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	lines := strings.Fields(string(out))
	slices.Sort(lines)
	return slices.Compact(lines)
}

// packages returns the directories of all packages, relative to the root; "." is the root's own.
func packages(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, path := range goList(t, "./...") {
		dirs = append(dirs, strings.TrimPrefix(strings.TrimPrefix(path, module), "/"))
	}
	for i, dir := range dirs {
		if dir == "" {
			dirs[i] = "."
		}
	}
	return dirs
}

func TestEveryPackageHasOnePackageComment(t *testing.T) {
	for _, dir := range packages(t) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var commented []string
		var code int
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			code++
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
				commented = append(commented, filepath.Base(file))
			}
		}
		if code > 0 && len(commented) != 1 {
			t.Errorf("package %s has %d package comments %v, want one: put it into doc.go, or above main", dir, len(commented), commented)
		}
	}
}
