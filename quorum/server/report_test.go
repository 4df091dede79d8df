package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// PR-24: a voter that takes every connection and reads nothing starves nobody: the others lead, follow and commit as before.
func TestPR24SilentPeerStarvesNobody(t *testing.T) {
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var taken []net.Conn
	var swallowed atomic.Int32
	var taking sync.WaitGroup
	taking.Go(func() {
		for {
			conn, err := hole.Accept()
			if err != nil {
				return
			}
			taken = append(taken, conn)
			swallowed.Add(1)
		}
	})
	var silent atomic.Pointer[string] // address
	c := &cluster{t: t, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if s := silent.Load(); s != nil && *s == address {
			address = hole.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(func() {
		hole.Close()
		taking.Wait()
		for _, conn := range taken {
			conn.Close()
		}
	})
	// Who waits for the silent voter waits for all of this: long enough that a busy machine is not mistaken for it.
	const timeout = 4 * time.Second
	c.form(3, 0, fmt.Sprintf("controller.quorum.request.timeout.ms=%d", timeout.Milliseconds()),
		fmt.Sprintf("controller.quorum.fetch.timeout.ms=%d", timeout.Milliseconds()))
	leader := c.leader()
	before := c.status(leader)
	m := c.members[0]
	if m == leader {
		m = c.members[1]
	}
	silent.Store(new(m.listeners[config.Controller]))
	c.killMember(m)
	l := c.load(2)
	c.appendsGoOn()
	for until := time.Now().Add(2 * timeout); time.Now().Before(until); { // longer than any timeout, check-quorum's too
		c.appendsGoOn()
	}
	gap := l.end()
	if s := c.status(leader); s.Role != "Leader" || s.Epoch != before.Epoch {
		t.Errorf("%s of epoch %d, was Leader of %d", s.Role, s.Epoch, before.Epoch)
	}
	if swallowed.Load() == 0 {
		t.Error("nobody spoke to the silent voter: the test shows nothing")
	}
	if gap > timeout/2 {
		t.Errorf("longest gap without an acknowledged append is %v: somebody waited for the silent voter", gap)
	}
}

// PR-33: a panic in any goroutine of a member ends its process: nobody recovers, so there is never a live port with a dead loop
// behind it. The member runs in a process of its own, on a disk that panics.
func TestPR33PanicEndsTheProcess(t *testing.T) {
	const variable = "QUORUM_TEST_PANIC"
	if where := os.Getenv(variable); where != "" {
		panics(t, where)
		return
	}
	for _, where := range []string{".log write", ".log sync", "quorum-state.tmp write"} {
		t.Run(where, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			member := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPR33PanicEndsTheProcess$", "-test.timeout=50s")
			member.Env = append(os.Environ(), variable+"="+where, "TMPDIR="+t.TempDir()) // it does not get to clean up
			var said bytes.Buffer
			member.Stdout, member.Stderr = &said, &said
			err := member.Run()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != 2 || !strings.Contains(said.String(), "panic: the disk of a test") {
				t.Errorf("ended with %v:\n%s", err, said.String())
			}
		})
	}
}

// panics runs a member until its disk panics, as an append or a vote makes it do.
func panics(t *testing.T, where string) {
	name, op, _ := strings.Cut(where, " ")
	var armed atomic.Bool
	c := newCluster(t, 1, 0)
	m := c.leader()
	c.killMember(m)
	m.fs = vfs.WithFaults(vfs.OS, func(call vfs.Call) error {
		if armed.Load() && strings.HasSuffix(call.Path, name) && (op == "write") == (call.Op == vfs.OpWrite) && (op == "sync") == (call.Op == vfs.OpSync) {
			panic("the disk of a test")
		}
		return nil
	})
	armed.Store(strings.HasPrefix(name, "quorum-state"))
	c.start(m)
	c.leader()
	armed.Store(true)
	_, _ = c.produceRaw(m, build(t, -1, -1, -1, 1), -1)
	t.Errorf("goes on after a panic at %s", where)
}

// PR-33: of three voters one panics, the leader or a follower, where it appends. Its process ends at once, and the others
// have a leader within five seconds: the old one, if it was not that which panicked.
func TestPR33OthersGoOnAfterAPanic(t *testing.T) {
	const variable = "QUORUM_TEST_PROPERTIES"
	if path := os.Getenv(variable); path != "" {
		panicsOnWord(t, path)
		return
	}
	for _, role := range []string{"Leader", "Follower"} {
		t.Run(role, func(t *testing.T) {
			c := newCluster(t, 3, 0)
			c.leader()
			m := c.members[0]
			c.killMember(m)
			path := filepath.Join(t.TempDir(), "properties")
			if err := os.WriteFile(path, []byte(c.properties(m)), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			process := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPR33OthersGoOnAfterAPanic$", "-test.timeout=60s")
			process.Env = append(os.Environ(), variable+"="+path)
			var said bytes.Buffer
			process.Stdout, process.Stderr = &said, &said
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- process.Wait() }()

			c.leader()
			c.await("the process to follow", func() bool { s := c.status(m); return s != nil && s.Ready })
			if role == "Leader" {
				c.lead(m)
			}
			before := c.status(m)
			if before.Role != role {
				t.Fatalf("node %d is %s of epoch %d, want %s", m.id, before.Role, before.Epoch, role)
			}
			if err := os.WriteFile(path+".panic", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			client := c.client()
			appended := make(chan error, 1)
			client.Produce(ctx, keyed("k", "v"), func(_ *kgo.Record, err error) { appended <- err })
			exit, ok := errors.AsType[*exec.ExitError](<-ended)
			if took := time.Since(began); took > time.Second {
				t.Errorf("the process ended after %v", took)
			}
			if !ok || exit.ExitCode() != 2 || !strings.Contains(said.String(), "panic: a word from the test") {
				t.Errorf("the process ended with %v:\n%s", exit, said.String())
			}
			after := c.status(c.leader())
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a leader that all follow after %v", took)
			}
			if role == "Follower" && after.Epoch != before.Epoch {
				t.Errorf("the panic of a follower leads from epoch %d to %d", before.Epoch, after.Epoch)
			}
			if err := <-appended; err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
}

// panicsOnWord runs a member in a process of its own, until it is told to panic where it appends next.
func panicsOnWord(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(path, text, config.Host{Hostname: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), Options{
		Config: cfg,
		FS: vfs.WithFaults(vfs.OS, func(call vfs.Call) error {
			if call.Op == vfs.OpWrite && strings.HasSuffix(call.Path, ".log") {
				if _, err := os.Stat(path + ".panic"); err == nil {
					panic("a word from the test")
				}
			}
			return nil
		}),
		Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Listen: new(net.ListenConfig).Listen,
		Dial:   new(net.Dialer).DialContext,
	})
	t.Errorf("ended with %v, and did not panic", err)
}

// PR-35: a member asks nobody for anything before others can reach it: it would win and then be refused. Its listener is three
// seconds late here; the others go on, and then it joins them.
func TestPR35ListensBeforeItAsks(t *testing.T) {
	c := newCluster(t, 3, 0)
	m := c.leader()
	c.killMember(m) // the one with the longest log
	held := make(chan struct{})
	var listening, early atomic.Int32
	m.beforeListening = func(address string) {
		if address == m.listeners[config.Controller] {
			<-held
		}
		listening.Add(1)
	}
	m.beforeDialing = func(string) {
		if int(listening.Load()) < len(m.listeners) {
			early.Add(1)
		}
	}
	c.start(m)
	client := c.client()
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		c.append(client, keyed("k", "v"))
		if early.Load() > 0 || c.status(m) != nil {
			t.Fatalf("%d connections were made, status is served %v, before its listener was there", early.Load(), c.status(m) != nil)
		}
	}
	before := c.status(c.members[(int(m.id)+1)%3])
	close(held)
	if after := c.status(c.leader()); early.Load() > 0 || after.Epoch != before.Epoch {
		t.Errorf("%d connections were made before its listeners were there; epoch %d, %d before", early.Load(), after.Epoch, before.Epoch)
	}
	c.append(client, keyed("k", "v"))
}
