package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// command is `quorum` in this process.
type command struct {
	cancel context.CancelFunc
	done   chan int
	stderr *bytes.Buffer
	out    *bufio.Reader
}

func start(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	c := &command{cancel: cancel, done: make(chan int, 1), stderr: new(bytes.Buffer), out: bufio.NewReader(r)}
	env := Env{
		Args: args, Stdin: strings.NewReader(""), Stdout: w, Stderr: c.stderr, LookupEnv: os.LookupEnv, FS: vfs.OS,
		Listen: (&net.ListenConfig{}).Listen, Dial: (&net.Dialer{}).DialContext,
	}
	go func() {
		code := Run(ctx, env)
		w.Close()
		c.done <- code
	}()
	t.Cleanup(cancel)
	return c
}

// stop is Ctrl-C.
func (c *command) stop(t *testing.T) {
	t.Helper()
	c.cancel()
	go func() { _, _ = io.Copy(io.Discard, c.out) }()
	select {
	case code := <-c.done:
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, c.stderr)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("has not ended 20 s after the interrupt")
	}
}

func (c *command) addresses(t *testing.T) devAddresses {
	t.Helper()
	var a devAddresses
	if err := json.NewDecoder(c.out).Decode(&a); err != nil {
		t.Fatalf("%v; standard error: %s", err, c.stderr)
	}
	return a
}

func kafkaClient(t *testing.T, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic("__cluster_metadata"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// appendAndRead appends keyed records with franz-go's defaults and reads everything back from the beginning.
func appendAndRead(t *testing.T, brokers []string, from, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	producer := kafkaClient(t, brokers)
	for i := range n {
		producer.Produce(ctx, &kgo.Record{Key: fmt.Appendf(nil, "key-%d", from+i), Value: fmt.Appendf(nil, "value-%d", from+i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("append %d: %v", from+i, err)
			}
		})
	}
	if err := producer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	reader := kafkaClient(t, brokers, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"__cluster_metadata": {0: kgo.NewOffset().AtStart()}}))
	for next := 0; next < from+n; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read after %d records: %v", next, err)
		}
		for _, r := range fetches.Records() {
			if string(r.Key) != fmt.Sprintf("key-%d", next) || string(r.Value) != fmt.Sprintf("value-%d", next) {
				t.Fatalf("record %d is %s=%s", next, r.Key, r.Value)
			}
			next++
		}
	}
}

func TestDevAppendsAndReadsHundredThousandRecords(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 5_000
	}
	began := time.Now()
	c := start(t, "dev", "-o", "json")
	a := c.addresses(t)
	if took := time.Since(began); took > time.Second {
		t.Errorf("addresses after %v, want them within a second", took)
	}
	if len(a.Client) != 4 || len(a.Controller) != 4 {
		t.Fatalf("addresses %+v, want those of three voters and an observer", a)
	}
	appendAndRead(t, a.Client, 0, n)
	c.stop(t)
	if _, err := os.Stat(a.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", a.Dir, err)
	}
}

func TestDevGoesOnWithItsDirectory(t *testing.T) {
	dir := t.TempDir()
	var first devAddresses
	for i := range 3 {
		c := start(t, "dev", "-o", "json", "--dir", dir)
		a := c.addresses(t)
		if i == 0 {
			first = a
		} else if fmt.Sprint(a) != fmt.Sprint(first) {
			t.Errorf("run %d listens on %+v, run 0 did on %+v", i, a, first)
		}
		appendAndRead(t, a.Client, i*10, 10)
		c.stop(t)
	}
	// One more observer is welcome, another number of voters is not.
	c := start(t, "dev", "-o", "json", "--dir", dir, "--observers", "2")
	if a := c.addresses(t); len(a.Client) != 5 {
		t.Errorf("addresses %+v, want five members", a)
	}
	c.stop(t)
	refused(t, `holds a quorum of 3 voters: want --voters 3`, "dev", "--dir", dir, "--voters", "1")
}

// refused runs a command that must fail with one line.
func refused(t *testing.T, says string, args ...string) {
	t.Helper()
	c := start(t, args...)
	go func() { _, _ = io.Copy(io.Discard, c.out) }()
	select {
	case code := <-c.done:
		if line := c.stderr.String(); code == 0 || strings.Count(line, "\n") != 1 || !strings.Contains(line, says) {
			t.Errorf("quorum %s: exit code %d, standard error %q; want one line with %q", strings.Join(args, " "), code, line, says)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("quorum %s goes on", strings.Join(args, " "))
	}
}

func TestDevRefusesBadNumbers(t *testing.T) {
	refused(t, "--voters is 0: want 1 to 9", "dev", "--voters", "0")
	refused(t, "--observers is 99: want 0 to 16", "dev", "--observers", "99")
	refused(t, "--port-base is 80", "dev", "--port-base", "80")
}
