//go:build interop

package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quorumBinary is the program under test, built once.
var quorumBinary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "kraft-interop-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		quorumBinary = filepath.Join(dir, "quorum")
		if out, err := exec.Command("go", "build", "-o", quorumBinary, "../../quorum").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build ./quorum: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// program is a command line before its arguments.
type program []string

func quorum() program { return program{quorumBinary} }

// kafka is a class of Apache Kafka. The test is skipped where its jars could not be had.
func kafka(t *testing.T, class string) program {
	t.Helper()
	lib := os.Getenv("KAFKA_LIB")
	if lib == "" {
		t.Skip("no Apache Kafka: make interop gathers it where there are java and mvn")
	}
	return program{
		"java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", lib + "/*", class,
	}
}

// output runs the program to its end and returns what it wrote; it has to succeed.
func (p program) output(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := p.run(t, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(p[0]), strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout
}

// fails runs the program to its end; it has to fail and to say why.
func (p program) fails(t *testing.T, why string, args ...string) {
	t.Helper()
	stdout, stderr, err := p.run(t, args...)
	if err == nil || !strings.Contains(stdout+stderr, why) {
		t.Errorf("%s %s: %v, want it to fail and say %s\n%s%s", filepath.Base(p[0]), strings.Join(args, " "), err, why, stdout, stderr)
	}
}

func (p program) run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, bad strings.Builder
	c := exec.CommandContext(ctx, p[0], slices.Concat(p[1:], args)...)
	c.Stdout, c.Stderr = &out, &bad
	err = c.Run()
	return out.String(), bad.String(), err
}

// process is a program that runs beside the test, in a directory's log file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start starts the program; the end of the test kills it, and a failed test shows the end of its log.
func (p program) start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	log := filepath.Join(t.TempDir(), name+".log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(p[0], slices.Concat(p[1:], args)...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started := &process{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // a killed process has no error of interest
		close(started.done)
	}()
	t.Cleanup(func() {
		started.send(syscall.SIGKILL)
		<-started.done
		if t.Failed() {
			text := started.text()
			t.Logf("the end of %s's log:\n%s", name, text[max(0, len(text)-2000):])
		}
	})
	return started
}

// send sends the signal; done is closed when the process has ended.
func (p *process) send(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have ended already
}

// text is all that it wrote so far.
func (p *process) text() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

// eventually polls until the condition holds; it says what it waits for while it does not.
func eventually(t *testing.T, patience time.Duration, missing func() string) {
	t.Helper()
	until(t, patience, 50*time.Millisecond, missing)
}

func until(t *testing.T, patience, pause time.Duration, missing func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		what := missing()
		if what == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s still waiting for %s", patience, what)
		}
		time.Sleep(pause)
	}
}

// writeFile writes lines into a new file of the test and returns its name.
func writeFile(t *testing.T, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
