package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// container is what a member's pod has: a configuration file, a volume and a termination log.
type container struct {
	t       *testing.T
	root    string
	config  string // path of the file
	data    string
	last    string // the termination log
	fs      vfs.FS
	clients string // address of the CLIENT listener
}

// newContainer makes a sole voter's pod with its directory formatted. edit changes the properties before they are written.
func newContainer(t *testing.T, edit func(map[string]string)) *container {
	t.Helper()
	root := t.TempDir()
	c := &container{t: t, root: root, config: filepath.Join(root, "quorum.properties"), data: filepath.Join(root, "data"), last: filepath.Join(root, "last")}
	c.fs = vfs.Mount(vfs.OS, map[string]string{root: root, terminationLog: c.last})
	ports := make([]string, 2)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports[i] = l.Addr().String()
	}
	c.clients = ports[1]
	values := map[string]string{
		"node.id":                             "0",
		"listeners":                           fmt.Sprintf("CONTROLLER://%s,CLIENT://%s", ports[0], ports[1]),
		"controller.quorum.bootstrap.servers": ports[0],
		"log.dirs":                            c.data,
		"lock.timeout.ms":                     "100",
	}
	if edit != nil {
		edit(values)
	}
	var text strings.Builder
	for k, v := range values {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	for file, content := range map[string]string{c.config: text.String(), c.last: ""} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set, err := raft.NewVoterSet(raft.Voter{
		Key:       raft.ReplicaKey{ID: 0, DirectoryID: raft.UUID{0: 0x10}},
		Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: "127.0.0.1", Port: 1}},
		KRaft:     raft.VersionRange{Max: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.Format(c.fs, c.data, storage.FormatOptions{ClusterID: "one-cluster", NodeID: 0, InitialVoters: set, KRaftVersion: 1}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *container) env(args ...string) Env {
	return Env{
		Args: args, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: new(bytes.Buffer),
		LookupEnv: func(string) (string, bool) { return "", false }, FS: c.fs,
		Listen: (&net.ListenConfig{}).Listen, Dial: (&net.Dialer{}).DialContext,
	}
}

// fails runs the member, which must end by itself with the token as its last word: one line, no more.
func (c *container) fails(token string, says ...string) {
	c.t.Helper()
	env := c.env("run", "--config", c.config, "--log-level", "error")
	c.end(env, Run(c.t.Context(), env), token, says...)
}

func (c *container) end(env Env, code int, token string, says ...string) {
	c.t.Helper()
	line := env.Stderr.(*bytes.Buffer).String()
	last, err := os.ReadFile(c.last)
	if err != nil {
		c.t.Fatal(err)
	}
	if code == 0 || strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, "quorum: "+token+": ") {
		c.t.Errorf("exit code %d, standard error %q; want one line with %s", code, line, token)
	}
	if "quorum: "+string(last) != line {
		c.t.Errorf("termination log %q, standard error %q", last, line)
	}
	for _, s := range says {
		if !strings.Contains(line, s) {
			c.t.Errorf("standard error %q does not name %q", line, s)
		}
	}
}

func TestRunNamesWhatIsWrongWithTheConfiguration(t *testing.T) {
	tests := []struct {
		name, key, value string
		says             []string
	}{
		{"unknown key", "log.dir", "/x", []string{"log.dir", "quorum.properties"}},
		{"bad number", "controller.quorum.fetch.timeout.ms", "soon", []string{"controller.quorum.fetch.timeout.ms", "soon"}},
		{"bad choice", "topic.mode", "both", []string{"topic.mode", "both", "keyed", "opaque"}},
		{"missing listener", "listeners", "CLIENT://127.0.0.1:9092", []string{"listeners", "CONTROLLER"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newContainer(t, func(v map[string]string) { v[test.key] = test.value })
			c.fails("CONFIG_INVALID", test.says...)
		})
	}
	t.Run("no file", func(t *testing.T) {
		c := newContainer(t, nil)
		c.config += ".missing"
		c.fails("CONFIG_INVALID", c.config, "no such file")
	})
}

func TestRunRefusesDirectoriesThatAreNotItsOwn(t *testing.T) {
	t.Run("not formatted", func(t *testing.T) {
		c := newContainer(t, nil)
		if err := os.RemoveAll(c.data); err != nil {
			t.Fatal(err)
		}
		c.fails("NOT_FORMATTED", c.data, "quorum format")
	})
	t.Run("another cluster", func(t *testing.T) {
		newContainer(t, func(v map[string]string) { v["cluster.id"] = "another-cluster" }).fails("CLUSTER_ID_MISMATCH", "one-cluster", "another-cluster")
	})
	t.Run("another node", func(t *testing.T) {
		newContainer(t, func(v map[string]string) { v["node.id"] = "7" }).fails("NODE_ID_MISMATCH", "0", "7")
	})
	t.Run("in use", func(t *testing.T) {
		c := newContainer(t, nil)
		lock, err := vfs.OS.Lock(filepath.Join(c.data, ".lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		c.fails("DIR_LOCKED", ".lock", "100ms")
	})
	t.Run("read-only", func(t *testing.T) {
		c := newContainer(t, nil)
		lasting := c.fs
		c.fs = vfs.WithFaults(lasting, func(call vfs.Call) error {
			if strings.HasPrefix(call.Path, c.data) {
				return vfs.ReadOnly(call)
			}
			return nil
		})
		c.fails("NOT_WRITABLE", c.data)
	})
}

// ST-19: two nodes have each other's directory. Both refuse it and change nothing; with their own again they go on.
func TestST19SwappedDirectories(t *testing.T) {
	nodes := []*container{newContainer(t, nil), newContainer(t, nil)}
	if err := os.RemoveAll(nodes[1].data); err != nil {
		t.Fatal(err)
	}
	set, err := raft.NewVoterSet(raft.Voter{
		Key:       raft.ReplicaKey{ID: 1, DirectoryID: raft.UUID{0: 0x11}},
		Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: "127.0.0.1", Port: 1}},
		KRaft:     raft.VersionRange{Max: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.Format(nodes[1].fs, nodes[1].data, storage.FormatOptions{ClusterID: "one-cluster", NodeID: 1, InitialVoters: set, KRaftVersion: 1}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(nodes[1].config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(nodes[1].config, []byte(strings.ReplaceAll(string(text), "node.id=0", "node.id=1")), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(client *kgo.Client) {
		if _, err := nodes[0].append(client, 1); err != nil {
			t.Error(err)
		}
	}
	for _, n := range nodes {
		n.runFor(write)
	}
	before := []map[string]string{contents(t, nodes[0].data), contents(t, nodes[1].data)}
	swap := func() {
		t.Helper()
		aside := nodes[0].data + ".aside"
		for _, move := range [][2]string{{nodes[0].data, aside}, {nodes[1].data, nodes[0].data}, {aside, nodes[1].data}} {
			if err := os.Rename(move[0], move[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	swap()
	nodes[0].fails("NODE_ID_MISMATCH", "node 1", "node.id=0")
	nodes[1].fails("NODE_ID_MISMATCH", "node 0", "node.id=1")
	swap()
	for i, n := range nodes {
		if after := contents(t, n.data); !maps.Equal(after, before[i]) {
			t.Errorf("the directory of node %d has changed", i)
		}
		n.runFor(write)
	}
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

func TestRunNamesThePortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := newContainer(t, func(v map[string]string) { v["listeners"] += ",HEALTH://" + l.Addr().String() })
	c.fails("PORT_IN_USE", "HEALTH", l.Addr().String())
}

// A directory with a log but without quorum-state may have voted in an epoch that nothing remembers.
func TestST06MissingQuorumStateIsFatal(t *testing.T) {
	c := newContainer(t, nil)
	c.runFor(func(client *kgo.Client) {
		if _, err := c.append(client, 3); err != nil {
			t.Error(err)
		}
	})
	if err := os.Remove(filepath.Join(c.data, "__cluster_metadata-0", "quorum-state")); err != nil {
		t.Fatal(err)
	}
	c.fails("STATE_FILE_CORRUPT", "quorum-state")
}

// runFor runs the member while f does something with it, then stops it gracefully.
func (c *container) runFor(f func(*kgo.Client)) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	env := c.env("run", "--config", c.config, "--log-level", "error")
	done := make(chan int, 1)
	go func() { done <- Run(ctx, env) }()
	client := kafkaClient(c.t, []string{c.clients})
	f(client)
	client.Close()
	cancel()
	if code := <-done; code != 0 {
		c.t.Fatalf("exit code %d: %s", code, env.Stderr)
	}
}

func (c *container) append(client *kgo.Client, n int) (acked int, err error) {
	for i := range n {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		err = client.ProduceSync(ctx, &kgo.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)}).FirstErr()
		cancel()
		if err != nil {
			return i, err
		}
	}
	return n, nil
}

// ST-13: a disk that fails under a running member ends it with one line, and what it acknowledged is there when it comes back.
func TestRunEndsWhenTheDiskFails(t *testing.T) {
	tests := []struct {
		name  string
		op    vfs.Op
		err   error
		token string
	}{
		{"full at a write", vfs.OpWrite, syscall.ENOSPC, "DISK_FULL"},
		{"full in mid-write", vfs.OpWrite, &vfs.ShortWrite{N: 20, Err: syscall.ENOSPC}, "DISK_FULL"},
		{"full at an fsync", vfs.OpSync, syscall.ENOSPC, "DISK_IO_ERROR"},
		{"failed fsync", vfs.OpSync, syscall.EIO, "DISK_IO_ERROR"},
		{"failed write", vfs.OpWrite, syscall.EIO, "DISK_IO_ERROR"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newContainer(t, nil)
			healthy := c.fs
			var calls atomic.Int64
			c.fs = vfs.WithFaults(healthy, func(call vfs.Call) error { // for good: a full disk gets a second try, with the ballast's room
				if call.Op == test.op && strings.HasSuffix(call.Path, ".log") && calls.Add(1) >= 8 {
					return test.err
				}
				return nil
			})
			env := c.env("run", "--config", c.config, "--log-level", "error")
			done := make(chan int, 1)
			go func() { done <- Run(t.Context(), env) }()
			client := kafkaClient(t, []string{c.clients})
			acked := 0
			stop := make(chan struct{})
			writing := make(chan struct{})
			go func() {
				defer close(writing)
				for {
					select {
					case <-stop:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					if client.ProduceSync(ctx, &kgo.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "%d", acked)}).FirstErr() == nil {
						acked++
					}
					cancel()
				}
			}()
			code := <-done
			close(stop)
			client.Close()
			<-writing
			c.end(env, code, test.token)

			c.fs = healthy
			c.runFor(func(*kgo.Client) {
				reader := kafkaClient(t, []string{c.clients}, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"__cluster_metadata": {0: kgo.NewOffset().AtStart()}}))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				for next := 0; next < acked; {
					fetches := reader.PollFetches(ctx)
					if err := fetches.Err(); err != nil {
						t.Fatalf("%d of %d acknowledged records read: %v", next, acked, err)
					}
					next += fetches.NumRecords()
				}
				reader.Close()
			})
			if acked == 0 {
				t.Error("nothing was acknowledged before the fault: the test shows nothing")
			}
		})
	}
}

// observer.only makes no observer of a voter: who has set it hears what does.
func TestRunWarnsOfAnObserverThatVotes(t *testing.T) {
	for _, only := range []string{"true", "false"} {
		c := newContainer(t, func(values map[string]string) { values["observer.only"] = only })
		ctx, cancel := context.WithCancel(t.Context())
		env := c.env("run", "--config", c.config)
		out := &tail{more: make(chan struct{}, 1)}
		env.Stderr = out
		done := make(chan int, 1)
		go func() { done <- Run(ctx, env) }()
		out.find(t, `msg="Opened log"`)
		cancel()
		if code := <-done; code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		const says = `level=WARN msg="This member is a voter already: observer.only=true keeps it from nothing until it is removed, with quorum voter remove" voter=0`
		if n := strings.Count(out.String(), says); n != 1 && only == "true" || n != 0 && only == "false" {
			t.Errorf("observer.only=%s: warned %d times in\n%s", only, n, out)
		}
	}
}
