//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ST-21: a process that does not answer holds its directory all the same: a second one is refused and changes nothing, and the
// first goes on as if nothing had been. Killed, it holds it no longer, and nothing is left that would have to be removed.
func TestST21FrozenProcessHoldsItsDirectory(t *testing.T) {
	q := start(t, 1, "lock.timeout.ms=200")
	p := q.members[0]
	_, before := q.settled()
	client := dial(t, q.bootstrap())
	write := func() {
		t.Helper()
		if err := client.ProduceSync(t.Context(), &kgo.Record{Key: []byte("k"), Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	write()

	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	q.await("it to have stopped", func() bool {
		stat, err := os.ReadFile(p.proc("stat"))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	held := contents(t, p.data())
	text, err := os.ReadFile(p.config())
	if err != nil {
		t.Fatal(err)
	}
	second := q.member(1) // for its address: the first's ports are in use, and it is the directory that must stop it
	q.members = q.members[:1]
	config := filepath.Join(q.root, "second.properties")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(string(text), p.address, second.address)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "run", "--config", config, "--log-level", "error").CombinedOutput()
	want := fmt.Sprintf("quorum: DIR_LOCKED: %s is held by another process; waited 200ms for it\n", filepath.Join(p.data(), ".lock"))
	if err == nil || string(out) != want {
		t.Errorf("a second process: %v, %q, want an exit code and %q", err, out, want)
	}
	now := contents(t, p.data())
	for file, was := range held {
		if now[file] != was {
			t.Errorf("%s has changed", file)
		}
	}
	if len(now) != len(held) {
		t.Errorf("%d files before, %d after", len(held), len(now))
	}

	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	write()
	if _, after := q.settled(); after.Epoch != before.Epoch {
		t.Errorf("epoch %d before, %d after", before.Epoch, after.Epoch)
	}
	p.kill()
	p.start()
	q.settled()
	write()
}

// contents are the files below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
