//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

var (
	runs    = flag.Int("runs", 3, "how often the leader is killed, or stopped")
	writers = flag.Int("writers", 8, "serial writers that append all the time")
	steady  = flag.Duration("steady", 400*time.Millisecond, "load before each fault")
	quiet   = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}
)

const topic = "__cluster_metadata"

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "quorum-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "quorum")
		if out, err := exec.Command("go", "build", "-o", binary, "..").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build ./quorum: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// process is one member. It has an address of its own, so that its ports stay free while it is down.
type process struct {
	t       *testing.T
	id      int
	address string
	dir     string
	joining bool   // begins without a vote
	volume  string // its directory, in p.dir, is a file system of its own; "": none
	env     string // one more variable of its environment, NAME=value; "": none
	cmd     *exec.Cmd
	log     *os.File
}

func (p *process) controller() string { return p.address + ":9093" }
func (p *process) client() string     { return p.address + ":9092" }
func (p *process) admin() string      { return p.address + ":9091" }
func (p *process) health() string     { return p.address + ":8080" }

// quorum is some voters, each a process, and who joined them.
type quorum struct {
	t       *testing.T
	root    string
	extra   []string // lines of every member's configuration
	members []*process
}

// start formats and starts the voters. Each is in a rack of its own, so that a client that names it reads there.
func start(t *testing.T, voters int, extra ...string) *quorum {
	t.Helper()
	return startOn(t, voters, func(*process) {}, extra...)
}

// startOn is start with a say in what the directories lie on.
func startOn(t *testing.T, voters int, prepare func(*process), extra ...string) *quorum {
	t.Helper()
	q := &quorum{t: t, root: t.TempDir(), extra: extra}
	var initial []string
	for id := range voters {
		p := q.member(id)
		prepare(p)
		initial = append(initial, fmt.Sprintf("%d@%s:%s", id, p.controller(), raft.UUID{0: 0x10, 15: byte(id)}))
	}
	for _, p := range q.members {
		q.format(p, "--initial-controllers", strings.Join(initial, ","))
		p.start()
	}
	t.Cleanup(func() {
		for _, p := range q.members {
			p.kill()
			if text, err := os.ReadFile(p.log.Name()); err != nil || strings.Contains(string(text), "Two processes") {
				t.Errorf("member %d took one process for two, or left no log: %v", p.id, err)
			}
			if t.Failed() {
				tail, _ := exec.Command("tail", "-n", "15", p.log.Name()).Output()
				t.Logf("last words of member %d:\n%s", p.id, tail)
			}
		}
	})
	return q
}

// member finds an address and a directory for one more.
func (q *quorum) member(id int) *process {
	address := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	p := &process{t: q.t, id: id, address: address, dir: filepath.Join(q.root, strconv.Itoa(id))}
	q.members = append(q.members, p)
	return p
}

// format gives a member an empty directory and its configuration.
func (q *quorum) format(p *process, how ...string) {
	q.t.Helper()
	if err := errors.Join(os.RemoveAll(p.data()), os.MkdirAll(p.dir, 0o755)); err != nil {
		q.t.Fatal(err)
	}
	var bootstrap []string
	for _, m := range q.members {
		bootstrap = append(bootstrap, m.controller())
	}
	lines := append([]string{
		fmt.Sprintf("node.id=%d", p.id),
		fmt.Sprintf("broker.rack=rack-%d", p.id),
		fmt.Sprintf("listeners=CONTROLLER://%s,CLIENT://%s,ADMIN://%s,HEALTH://%s", p.controller(), p.client(), p.admin(), p.health()),
		"controller.quorum.bootstrap.servers=" + strings.Join(bootstrap, ","),
		"log.dirs=" + p.data(),
	}, q.extra...)
	if err := os.WriteFile(p.config(), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		q.t.Fatal(err)
	}
	command(q.t, append([]string{"format", "--cluster-id", "E2E-TESTiEaAAAAAAAAAAA", "--config", p.config()}, how...)...)
}

// command runs the program to its end; it has to succeed.
func command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		t.Fatalf("quorum %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (p *process) config() string { return filepath.Join(p.dir, "quorum.properties") }
func (p *process) data() string   { return filepath.Join(p.dir, p.volume, "data") }

func (p *process) start() {
	p.t.Helper()
	var err error
	if p.log, err = os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		p.t.Fatal(err)
	}
	defer p.log.Close()
	p.cmd = exec.Command(binary, "run", "--config", p.config())
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if p.env != "" {
		p.cmd.Env = append(os.Environ(), p.env)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill is SIGKILL and the wait for the end.
func (p *process) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// terminate is SIGTERM; the process must end with exit code 0 in time.
func (p *process) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			p.t.Errorf("member %d after SIGTERM: %v", p.id, err)
		}
	case <-time.After(15 * time.Second):
		p.t.Errorf("member %d has not ended 15 s after SIGTERM", p.id)
		_ = p.cmd.Process.Kill()
		p.t.Logf("member %d was killed: %v", p.id, <-done)
	}
	p.cmd = nil
}

// status asks for /v1/status; nil if there is no answer.
func (p *process) status() *status.Member {
	r, err := quiet.Get("http://" + p.health() + status.MemberPath)
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	var s status.Member
	if r.StatusCode != http.StatusOK || json.NewDecoder(r.Body).Decode(&s) != nil {
		return nil
	}
	return &s
}

// settled waits until one member leads, and all voters follow it and have caught up, and returns the leader and its view.
func (q *quorum) settled() (*process, *status.Member) {
	q.t.Helper()
	var leader *process
	var view *status.Member
	q.await("all voters to follow one leader", func() bool {
		leader, view = nil, nil
		for _, p := range q.members {
			if p.joining {
				continue
			}
			s := p.status()
			if s == nil || !s.Ready {
				return false
			}
			if s.Role == "Leader" {
				if leader != nil {
					return false
				}
				leader, view = p, s
			}
		}
		if leader == nil {
			return false
		}
		for _, p := range q.members {
			if p.joining {
				continue
			}
			if s := p.status(); s == nil || s.Epoch != view.Epoch {
				return false
			}
		}
		for _, r := range view.Voters {
			if r.LastCaughtUpMs < 0 || r.LastCaughtUpMs > 1000 {
				return false
			}
		}
		return true
	})
	return leader, view
}

// said is all that a member has logged.
func (p *process) said() string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// explain shows what the members logged from an instant on, if clients had to wait for long.
func (q *quorum) explain(gap time.Duration, from time.Time) {
	if gap < 4*killGap {
		return
	}
	since := from.UTC().Format("time=2006-01-02T15:04:05.000")
	for _, p := range q.members {
		for line := range strings.Lines(p.said()) {
			if line >= since && strings.HasPrefix(line, "time=") {
				q.t.Logf("  member %d: %s", p.id, strings.TrimSpace(line))
			}
		}
	}
}

func (q *quorum) await(what string, ok func() bool) {
	q.t.Helper()
	q.awaitFor(2*time.Minute, what, ok) // a busy machine takes long to start a process
}

func (q *quorum) awaitFor(patience time.Duration, what string, ok func() bool) {
	q.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, p := range q.members {
				q.t.Logf("member %d: %+v", p.id, p.status())
			}
			q.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// caughtUp reports whether a member has all that the leader has committed.
func caughtUp(p, leader *process) bool {
	s, l := p.status(), leader.status()
	return s != nil && l != nil && s.Ready && l.Role == "Leader" && s.HighWatermark == l.HighWatermark
}

func (q *quorum) bootstrap() []string {
	var all []string
	for _, p := range q.members {
		all = append(all, p.client())
	}
	return all
}
