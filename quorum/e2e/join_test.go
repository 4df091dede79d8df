//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	logBytes = flag.Int64("log-bytes", 64<<20, "size of the log that members with an empty disk join")
	kills    = flag.Int("kills", 10, "how often TestAnEmptyDiskJoins kills who joins")
)

// checkpointMemory is by how much making, serving or taking a snapshot may grow a process, however large the snapshot.
const checkpointMemory = 32 << 20

// A member with an empty disk joins a quorum whose log is nearly all in its snapshot: as fast as that can be copied, about,
// and in little memory. Killed again and again on the way, it comes back each time; its disk never holds more than what is
// live and two snapshots. In the end it is a voter, and has what was written.
func TestAnEmptyDiskJoins(t *testing.T) {
	q := start(t, 3, nearlyAllInASnapshot()...)
	q.settled()
	w := newImage(t, q)
	makes := q.makeSnapshots(w)
	leader, _ := q.settled()

	// Once without a fault: time and memory.
	serving := leader.measureMemory()
	p := q.joiner()
	began := time.Now()
	p.start()
	taking := p.measureMemory()
	q.awaitFor(10*time.Minute, "the new member to catch up", func() bool { return caughtUp(p, leader) })
	took := time.Since(began)
	taken, served := taking.growth(), serving.growth()
	cpu := p.processorTime()
	held := usage(t, p.data())
	copied := copyTime(t, p.data(), filepath.Join(q.root, "copy"))
	rate := func(d time.Duration) float64 { return float64(held.all) / d.Seconds() / 1e6 }
	t.Logf("e2e: an empty disk joins: %d MB (a snapshot of %d MB) in %.2f s, %.0f MB/s; plain copy %.2f s, %.0f MB/s; %.1fx; processor time of who takes %.2f s; memory of who makes grows by %.1f MiB at most, of who serves by %.1f MiB, of who takes by %.1f MiB",
		held.all/1e6, held.largest/1e6, took.Seconds(), rate(took), copied.Seconds(), rate(copied), took.Seconds()/copied.Seconds(), cpu.Seconds(), mib(makes), mib(served), mib(taken))
	if max(makes, taken, served) > checkpointMemory {
		t.Errorf("memory grew by %.1f MiB where it is made, by %.1f MiB where it is served and by %.1f MiB where it is taken, want at most %d",
			mib(makes), mib(served), mib(taken), checkpointMemory>>20)
	}

	// The same, killed.
	again := func() {
		p.kill()
		q.format(p, "--no-initial-controllers")
	}
	watch := watchDisk(t, p.data())
	again()
	during, after, restarts := 0, 0, 0
	for during < *kills {
		p.start()
		restarts++
		time.Sleep(time.Duration(rand.Float64() * 1.1 * float64(took))) // the kill comes at any point of it
		p.kill()
		switch u := usage(t, p.data()); {
		case u.partial > 0:
			during++
		case u.snapshots > 0:
			after++
			again()
		}
		if restarts > 20*(*kills+1) {
			t.Fatalf("only %d of %d kills came during a download", during, restarts)
		}
		w.rewrite(max(1, int(*logBytes/valueBytes*3/2)/max(1, *kills))) // the leader's snapshot is replaced now and then
	}
	p.start()
	leader, _ = q.settled()
	q.awaitFor(10*time.Minute, "the killed member to catch up", func() bool { return caughtUp(p, leader) })
	most := watch.end()
	snapshot := max(usage(t, leader.data()).largest, most.largest)
	t.Logf("e2e: killed while it joins: kills=%d during the download, %d after it, %d before it; back each time; at most on its disk: %d MB, of it %d MB of snapshots and %d MB of log; a snapshot has %d MB",
		during, after, restarts-during-after, most.all/1e6, most.snapshots/1e6, most.rest/1e6, snapshot/1e6)
	const meanwhile = 16 << 20 // what is appended while a snapshot is made, and stays to the end of a segment
	if log := betweenSnapshots() + meanwhile; most.snapshots > 2*snapshot || most.rest > log {
		t.Errorf("the disk held %d bytes of snapshots, want at most two of %d, and %d of log, want at most %d", most.snapshots, snapshot, most.rest, log)
	}

	command(t, "voter", "add", "--node-id", strconv.Itoa(p.id), "--bootstrap-controller", leader.controller())
	q.await("it to be a voter", func() bool {
		s := p.status()
		return s != nil && s.IsVoter && s.VotersCommitted
	})
	w.compare(p)
}

// ST-17: three members with empty disks join at the same time, and all processes have a memory limit of 128 MiB. None comes near
// it, neither who makes and serves the snapshots nor who takes them, whatever the size; and afterwards they hold what they held.
func TestST17ThreeEmptyDisksJoinAtOnce(t *testing.T) {
	const limit = 128 << 20
	limited := func(p *process) { p.env = fmt.Sprintf("GOMEMLIMIT=%d", limit) }
	q := startOn(t, 3, limited, nearlyAllInASnapshot()...)
	q.settled()
	w := newImage(t, q)
	makes := q.makeSnapshots(w)
	leader, _ := q.settled()
	serving := leader.measureMemory()
	var joiners []*process
	for range 3 {
		p := q.joiner()
		limited(p)
		joiners = append(joiners, p)
	}
	began := time.Now()
	for _, p := range joiners {
		p.start()
	}
	var taken []memory
	for _, p := range joiners {
		taken = append(taken, p.measureMemory())
	}
	for _, p := range joiners {
		q.awaitFor(10*time.Minute, "the new members to catch up", func() bool { return caughtUp(p, leader) })
	}
	took := time.Since(began)
	served, takes := serving.growth(), int64(0)
	for _, m := range taken {
		takes = max(takes, m.growth())
	}
	if most := max(makes, served, takes); most > checkpointMemory {
		t.Errorf("memory grew by %.1f MiB where it is made, by %.1f MiB where it is served, by %.1f MiB where it is taken, want at most %d",
			mib(makes), mib(served), mib(takes), checkpointMemory>>20)
	}
	var peaks []string
	for _, p := range q.members {
		peak := p.kernel("VmHWM") // of all its life, or since measureMemory
		peaks = append(peaks, fmt.Sprintf("%.0f", mib(peak)))
		if peak >= limit {
			t.Errorf("member %d held %.0f MiB at its peak, want less than %d", p.id, mib(peak), limit>>20)
		}
	}
	// Who served holds what it held before; who took holds no more than who had it all the time.
	rest := serving.base * 6 / 5
	q.awaitFor(10*time.Minute, "all to hold what the leader held, and a fifth more at most", func() bool {
		for _, p := range append([]*process{leader}, joiners...) {
			if p.kernel("VmRSS") > rest {
				return false
			}
		}
		return true
	})
	t.Logf("e2e: three empty disks join at once, GOMEMLIMIT %d MiB: a snapshot of %d MB each, in %.2f s; peaks %s MiB (three voters, three who join); memory of who makes grows by %.1f MiB at most, of who serves all three by %.1f MiB, of who takes by %.1f MiB; the leader held %.1f MiB before, %.1f MiB after",
		limit>>20, usage(t, leader.data()).largest/1e6, took.Seconds(), strings.Join(peaks, " "), mib(makes), mib(served), mib(takes), mib(serving.base), mib(leader.kernel("VmRSS")))
	for _, p := range joiners {
		w.compare(p)
	}
}

// nearlyAllInASnapshot are lines of the configuration with which the log ends up in snapshots.
func nearlyAllInASnapshot() []string {
	return []string{
		"metadata.max.retention.bytes=1", fmt.Sprintf("metadata.log.segment.bytes=%d", segmentBytes()),
		fmt.Sprintf("metadata.log.max.record.bytes.between.snapshots=%d", betweenSnapshots()),
	}
}

func segmentBytes() int64 { return min(8<<20, max(1<<20, *logBytes/64)) }

// betweenSnapshots is somewhat more than what makeSnapshots fills at a time, so that none is made meanwhile.
func betweenSnapshots() int64 { return *logBytes / 16 * 9 }

// joiner makes a member with an empty disk.
func (q *quorum) joiner() *process {
	q.t.Helper()
	p := q.member(len(q.members))
	p.joining = true
	q.format(p, "--no-initial-controllers")
	return p
}

// makeSnapshots writes until nearly all of the log is in the snapshot of each member, and returns by how much the member grew
// that grew most while it made one, beside few appends, since before the first. The first snapshot holds half of the log.
func (q *quorum) makeSnapshots(w *image) (most int64) {
	q.t.Helper()
	before := make([]memory, len(q.members))
	for part := range int64(2) {
		keys := *logBytes / 2 * (part + 1)
		w.fill(keys)
		for i, p := range q.members {
			if part == 0 {
				before[i] = p.measureMemory()
			}
			q.awaitFor(10*time.Minute, "what the appends took to be given back", func() bool {
				return p.kernel("VmRSS") < before[i].base+checkpointMemory/2
			})
			p.measureMemory()
		}
		for _, p := range q.members {
			q.awaitFor(10*time.Minute, "a snapshot of nearly all", func() bool {
				w.rewrite(16)
				s := p.status()
				return s != nil && s.Snapshot != nil && s.Snapshot.Bytes >= keys*9/10 && s.LogStartOffset > 0
			})
		}
		for _, m := range before {
			q.t.Logf("member %d grows by %.1f MiB at most for a snapshot of %d MB", m.p.id, mib(m.growth()), m.p.status().Snapshot.Bytes/1e6)
			most = max(most, m.growth())
		}
	}
	return most
}

// image writes keys, and knows which write of each is the newest.
type image struct {
	t      *testing.T
	client *kgo.Client
	newest []int // by key
	dice   *rand.Rand
}

const (
	valueBytes    = 16 << 10
	appendRecords = 64 // at a time, so that appends take little memory beside snapshots
)

func newImage(t *testing.T, q *quorum) *image {
	t.Helper()
	client := dial(t, q.bootstrap(), kgo.ProducerBatchCompression(kgo.NoCompression()))
	return &image{t: t, client: client, dice: rand.New(rand.NewPCG(1, 2))}
}

// fill writes so many bytes of new keys.
func (w *image) fill(size int64) {
	w.t.Helper()
	for len(w.newest) < int(size/valueBytes)+1 {
		var records []*kgo.Record
		for range appendRecords {
			w.newest = append(w.newest, 0)
			records = append(records, w.record(len(w.newest)-1))
		}
		w.write(records)
	}
}

// rewrite writes keys that are there anew.
func (w *image) rewrite(n int) {
	w.t.Helper()
	var records []*kgo.Record
	for range n {
		key := w.dice.IntN(len(w.newest))
		w.newest[key]++
		records = append(records, w.record(key))
		if len(records) == appendRecords {
			w.write(records)
			records = nil
		}
	}
	w.write(records)
}

func (w *image) record(key int) *kgo.Record {
	value := make([]byte, valueBytes)
	copy(value, fmt.Sprintf("%d ", w.newest[key]))
	return &kgo.Record{Key: []byte(strconv.Itoa(key)), Value: value}
}

func (w *image) write(records []*kgo.Record) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// compare reads the whole topic from a member.
func (w *image) compare(p *process) {
	w.t.Helper()
	w.newest = append(w.newest, 0)
	last := len(w.newest) - 1
	w.write([]*kgo.Record{w.record(last)})
	reader := dial(w.t, []string{p.client()}, kgo.Rack(fmt.Sprintf("rack-%d", p.id)), fromStart())
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	got := make([]int, len(w.newest))
	for key := range got {
		got[key] = -1
	}
	for got[last] < 0 {
		fetches := reader.PollFetches(ctx)
		if err := errors.Join(fetches.Err(), ctx.Err()); err != nil {
			w.t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			key, _ := strconv.Atoi(string(r.Key))
			number, _, _ := strings.Cut(string(r.Value), " ")
			got[key], _ = strconv.Atoi(number)
		}
	}
	for key, n := range w.newest {
		if got[key] != n {
			w.t.Fatalf("member %d has write %d of key %d, want %d", p.id, got[key], key, n)
		}
	}
	w.t.Logf("member %d has the newest write of each of %d keys", p.id, len(got))
}

// memory measures by how much a process grows.
type memory struct {
	p    *process
	base int64
}

// measureMemory notes what the process holds now, as soon as it answers, and has the kernel forget its peak.
func (p *process) measureMemory() memory {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); p.status() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("member %d does not answer", p.id)
		}
	}
	if err := os.WriteFile(p.proc("clear_refs"), []byte("5"), 0); err != nil {
		p.t.Fatal(err)
	}
	return memory{p, p.kernel("VmRSS")}
}

// growth is how far the peak since then lies above.
func (m memory) growth() int64 { return m.p.kernel("VmHWM") - m.base }

func (p *process) proc(file string) string {
	return filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), file)
}

// kernel is a line of /proc/PID/status in bytes.
func (p *process) kernel(name string) int64 {
	p.t.Helper()
	text, err := os.ReadFile(p.proc("status"))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return kb << 10
		}
	}
	p.t.Fatalf("no %s in %s", name, p.proc("status"))
	return 0
}

// processorTime is what a process has used so far, in user and kernel mode: what a busy machine changes least.
func (p *process) processorTime() time.Duration {
	p.t.Helper()
	text, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		p.t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // behind the name, from field 3 on
	ticks := 0                                                                // of 10 ms, on every Linux
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func mib(size int64) float64 { return float64(size) / (1 << 20) }

// disk is what a directory holds, in bytes.
type disk struct {
	all       int64
	snapshots int64 // whole and partial ones
	partial   int64
	largest   int64 // snapshot that is whole
	rest      int64
}

func usage(t *testing.T, dir string) (u disk) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = e.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // just removed
		}
		if err != nil || e.IsDir() {
			return err
		}
		u.all += info.Size()
		name := e.Name()
		switch {
		case strings.HasSuffix(name, ".checkpoint"):
			u.snapshots += info.Size()
			u.largest = max(u.largest, info.Size())
		case strings.Contains(name, ".checkpoint"):
			u.snapshots += info.Size()
			u.partial += info.Size()
		default:
			u.rest += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return u
}

// watch looks at a directory again and again, and keeps the most of each figure.
type watch struct {
	stop chan struct{}
	done chan disk
}

func watchDisk(t *testing.T, dir string) *watch {
	w := &watch{stop: make(chan struct{}), done: make(chan disk, 1)}
	go func() {
		var most disk
		for {
			u := usage(t, dir)
			most = disk{
				all: max(most.all, u.all), snapshots: max(most.snapshots, u.snapshots), partial: max(most.partial, u.partial),
				largest: max(most.largest, u.largest), rest: max(most.rest, u.rest),
			}
			select {
			case <-w.stop:
				w.done <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { w.end() })
	return w
}

func (w *watch) end() disk {
	select {
	case <-w.stop:
		return disk{}
	default:
	}
	close(w.stop)
	return <-w.done
}

// copyTime is how long it takes to copy the files of a directory and sync each.
func copyTime(t *testing.T, from, to string) time.Duration {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(to)
	began := time.Now()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(filepath.Join(to, e.Name()))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Sync(), out.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}
