//go:build e2e

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// process is one member.
type process struct {
	t      *testing.T
	binary string
	id     int
	dir    string
	client string // addresses of its listeners
	health string
	cmd    *exec.Cmd
	log    *os.File
}

// quorum is three voters, each a process.
type quorum struct {
	t       *testing.T
	members []*process
}

// build compiles the binary once.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "quorum")
	out, err := exec.Command("go", "build", "-o", binary, "..").CombinedOutput()
	if err != nil {
		t.Fatalf("go build ./quorum: %v\n%s", err, out)
	}
	return binary
}

// start formats and starts the voters.
func start(t *testing.T, voters int) *quorum {
	t.Helper()
	binary := build(t)
	q := &quorum{t: t}
	root := t.TempDir()
	var initial, bootstrap []string
	var listeners []string
	for id := range voters {
		ports := freePorts(t, 4)
		p := &process{t: t, binary: binary, id: id, dir: filepath.Join(root, fmt.Sprint(id)), client: ports[1], health: ports[3]}
		listeners = append(listeners, fmt.Sprintf("CONTROLLER://%s,CLIENT://%s,ADMIN://%s,HEALTH://%s", ports[0], ports[1], ports[2], ports[3]))
		initial = append(initial, fmt.Sprintf("%d@%s:%s", id, ports[0], raft.UUID{0: 0x10, 15: byte(id)}))
		bootstrap = append(bootstrap, ports[0])
		q.members = append(q.members, p)
	}
	for id, p := range q.members {
		if err := os.MkdirAll(p.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("node.id=%d\nlisteners=%s\ncontroller.quorum.bootstrap.servers=%s\nlog.dirs=%s\n",
			id, listeners[id], strings.Join(bootstrap, ","), filepath.Join(p.dir, "data"))
		if err := os.WriteFile(p.config(), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(binary, "format", "--cluster-id", "E2E-TESTiEaAAAAAAAAAAA", "--config", p.config(),
			"--initial-controllers", strings.Join(initial, ",")).CombinedOutput()
		if err != nil {
			t.Fatalf("format member %d: %v\n%s", id, err, out)
		}
		p.start()
	}
	t.Cleanup(func() {
		for _, p := range q.members {
			p.kill()
			if t.Failed() {
				tail, _ := exec.Command("tail", "-n", "15", p.log.Name()).Output()
				t.Logf("last words of member %d:\n%s", p.id, tail)
			}
		}
	})
	return q
}

// freePorts finds addresses that nobody uses. All are held until all are known.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

func (p *process) config() string { return filepath.Join(p.dir, "quorum.properties") }

func (p *process) start() {
	p.t.Helper()
	var err error
	if p.log, err = os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		p.t.Fatal(err)
	}
	defer p.log.Close()
	p.cmd = exec.Command(p.binary, "run", "--config", p.config())
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
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
		<-done
	}
	p.cmd = nil
}

// status asks for /v1/status; nil if there is no answer.
func (p *process) status() *status.Member {
	r, err := quiet.Get("http://" + p.health + status.MemberPath)
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

// settled waits until one member leads, and all follow it and have caught up, and returns the leader and its view.
func (q *quorum) settled() (*process, *status.Member) {
	q.t.Helper()
	var leader *process
	var view *status.Member
	q.await("all members to follow one leader", func() bool {
		leader, view = nil, nil
		for _, p := range q.members {
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

// explain shows what the members logged from an instant on, if clients had to wait for long.
func (q *quorum) explain(gap time.Duration, from time.Time) {
	if gap < 4*killGap {
		return
	}
	since := from.UTC().Format("time=2006-01-02T15:04:05.000")
	for _, p := range q.members {
		text, err := os.ReadFile(filepath.Join(p.dir, "log"))
		if err != nil {
			q.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line >= since && strings.HasPrefix(line, "time=") {
				q.t.Logf("  member %d: %s", p.id, strings.TrimSpace(line))
			}
		}
	}
}

func (q *quorum) await(what string, ok func() bool) {
	q.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, p := range q.members {
				q.t.Logf("member %d: %+v", p.id, p.status())
			}
			q.t.Fatalf("waited 30 s for %s", what)
		}
	}
}

func (q *quorum) bootstrap() []string {
	var all []string
	for _, p := range q.members {
		all = append(all, p.client)
	}
	return all
}
