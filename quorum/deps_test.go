package main

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write deps.txt anew")

// TestDependencies: the member links what deps.txt lists and nothing else. A new line there is a decision to review:
// no Kubernetes, and at most 16 modules.
func TestDependencies(t *testing.T) {
	var modules []string
	for line := range strings.Lines(list(t, "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")) {
		if m := strings.TrimSpace(line); m != "" && m != "github.com/kraft-operator/kraft-operator" && !slices.Contains(modules, m) {
			modules = append(modules, m)
		}
	}
	slices.Sort(modules)
	got := strings.Join(modules, "\n") + "\n"
	if *update {
		if err := os.WriteFile("deps.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the binary links\n%swhile deps.txt has\n%sif that is meant: go test ./quorum -update", got, want)
	}
	if len(modules) > 16 {
		t.Errorf("%d modules, at most 16 are wanted", len(modules))
	}
	if strings.Contains(got, "k8s.io") {
		t.Error("the member must not know Kubernetes")
	}
}

// TestKafkaMessagesStayAtTheBorder: only wire and client know Kafka's messages.
func TestKafkaMessagesStayAtTheBorder(t *testing.T) {
	for line := range strings.Lines(list(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")) {
		name, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasSuffix(name, "/quorum/wire") || strings.HasSuffix(name, "/quorum/client") {
			continue
		}
		if slices.Contains(strings.Fields(imports), "github.com/twmb/franz-go/pkg/kmsg") {
			t.Errorf("%s imports kmsg", name)
		}
	}
}

func list(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
