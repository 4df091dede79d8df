package verify

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents returns the path and text of every Markdown file of ours.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "testdata"}, d.Name()) {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, ".md") {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			texts[name] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestFileMapNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "## File map\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no section \"File map\"")
	}
	fileMap, _, _ := strings.Cut(after, "\n## ")

	named := make(map[string]bool) // the first column of the table: `a/b`, or several of them
	for row := range strings.Lines(fileMap) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			name := strings.TrimSuffix(m[1], "/")
			named[name] = true
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("the file map names %s, which is not there", name)
			}
		}
	}
	for _, dir := range packages(t) {
		if dir != "." && !named[dir] {
			t.Errorf("the file map of ARCHITECTURE.md does not name the package %s", dir)
		}
	}
}

func TestCommandsOfTheDocumentsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	if !targets["demo"] || !targets["test"] {
		t.Fatalf("found these targets in the Makefile: %v", targets)
	}
	var (
		makes  = regexp.MustCompile("(?m)(?:`|^\\s*(?:sudo )?)make ([a-z][a-z0-9-]*)")
		runs   = regexp.MustCompile(`go (?:run|build|test) (?:-[^ ]+ )*(\./[a-z0-9/]+)`)
		ours   = regexp.MustCompile("(?m)(?:`|^\\s*)((?:hack|\\.ci)/[a-zA-Z0-9_./-]+)")
		linked = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	)
	for name, text := range documents(t) {
		for _, m := range makes.FindAllStringSubmatch(text, -1) {
			if !targets[m[1]] {
				t.Errorf("%s says make %s, which the Makefile does not have", name, m[1])
			}
		}
		for _, m := range append(runs.FindAllStringSubmatch(text, -1), ours.FindAllStringSubmatch(text, -1)...) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s says %q, but %s is not there", name, m[0], m[1])
			}
		}
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	}
}
