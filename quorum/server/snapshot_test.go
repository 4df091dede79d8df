package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// small makes snapshots often, and keeps of the log what has to be kept.
var small = []string{
	"metadata.log.segment.bytes=1048576",
	"metadata.log.max.record.bytes.between.snapshots=500000",
	"metadata.max.retention.bytes=1",
	"controller.quorum.fetch.snapshot.max.bytes=10007", // no border of a batch, nor of anything else
}

// rewrite appends values to a few keys until the log of every running member begins beyond the offset. It returns the
// newest value of each key.
func (c *cluster) rewrite(beyond int64) map[string]string {
	c.t.Helper()
	client := c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	newest := map[string]string{}
	n := 0
	c.await("all logs to be cleaned", func() bool {
		var records []*kgo.Record
		for range 20 {
			n++
			key := fmt.Sprintf("k%d", n%50)
			value := fmt.Sprintf("%d %s", n, strings.Repeat(string(rune('a'+n%26)), 2000))
			records, newest[key] = append(records, keyed(key, value)), value
		}
		c.append(client, records...)
		for _, m := range c.members {
			if m.cancel == nil {
				continue
			}
			if s := c.status(m); s == nil || s.LogStartOffset <= beyond {
				return false
			}
		}
		return true
	})
	return newest
}

// state reads the whole topic of a member and returns the newest value of each key.
func (c *cluster) state(m *testMember) map[string]string {
	c.t.Helper()
	end := c.status(m).HighWatermark
	client := c.client(kgo.SeedBrokers(c.bootstrap(m)...), kgo.Rack(fmt.Sprintf("rack-%d", m.id)),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}), kgo.KeepControlRecords())
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	newest := map[string]string{}
	for last := int64(-1); last < end-1; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			c.t.Fatalf("read after offset %d of %d: %v", last, end, err)
		}
		for _, r := range fetches.Records() {
			if r.Offset <= last {
				c.t.Fatalf("offset %d after %d", r.Offset, last)
			}
			if last = r.Offset; !r.Attrs.IsControl() {
				newest[string(r.Key)] = string(r.Value)
			}
		}
	}
	return newest
}

func (c *cluster) caughtUp(m *testMember) {
	c.t.Helper()
	c.await(fmt.Sprintf("member %d to catch up", m.id), func() bool {
		s, l := c.status(m), c.status(c.leader())
		return s != nil && l != nil && s.Ready && s.HighWatermark == l.HighWatermark
	})
}

// What is known of the newest snapshot is what lies on disk: its keys, its bytes, how long it took, and its age.
func TestSnapshotMetrics(t *testing.T) {
	began := time.Now()
	c := newCluster(t, 1, 1, small...)
	m := c.leader()
	if got := c.metric(m, "quorum_snapshot_seconds"); got != 0 {
		t.Errorf("the first snapshot took %v s before there was one", got)
	}
	want := c.rewrite(0)
	c.await("no more snapshots to be due", func() bool { return c.metric(m, "quorum_snapshot_uncovered_bytes") < 500_000 })
	s := c.status(m).Snapshot
	file, err := os.Stat(filepath.Join(m.dir, topic+"-0", fmt.Sprintf("%020d-%010d.checkpoint", s.Offset, s.Epoch)))
	if err != nil {
		t.Fatal(err)
	}
	for metric, value := range map[string]float64{
		"quorum_snapshot_bytes":   float64(file.Size()),
		"quorum_snapshot_offset":  float64(s.Offset),
		"quorum_snapshot_records": float64(len(want)),
	} {
		if got := c.metric(m, metric); got != value {
			t.Errorf("%s is %v, want %v", metric, got, value)
		}
	}
	if took := c.metric(m, "quorum_snapshot_seconds"); took <= 0 || took > time.Since(began).Seconds() {
		t.Errorf("the last snapshot took %v s of a test of %v", took, time.Since(began))
	}
	age := c.metric(m, "quorum_snapshot_age_seconds")
	if age <= 0 || age > time.Since(began).Seconds() {
		t.Errorf("the snapshot is %v s old in a test of %v", age, time.Since(began))
	}
	c.await("it to grow older", func() bool { return c.metric(m, "quorum_snapshot_age_seconds") > age+0.5 })
}

// A new observer, and a voter that was away while the others cleaned their logs, catch up by snapshot and then by Fetch
// (ST-16), in chunks of an odd size (ST-10). What clients read from them is what they read from the leader.
func TestST16MembersCatchUpBySnapshot(t *testing.T) {
	c := newCluster(t, 3, 1, small...)
	leader := c.leader()
	observer := c.members[3]
	away := c.members[1]
	if away == leader {
		away = c.members[2]
	}
	c.killMember(observer)
	c.killMember(away)
	want := c.rewrite(c.status(leader).LogEndOffset + 100)

	if err := storage.Format(vfs.OS, observer.dir+"-new", storage.FormatOptions{ClusterID: testCluster, NodeID: observer.id, KRaftVersion: 1}); err != nil {
		t.Fatal(err)
	}
	observer.dir += "-new"
	for _, m := range []*testMember{observer, away} {
		c.start(m)
		c.caughtUp(m)
		s := c.status(m)
		if s.Snapshot == nil || s.LogStartOffset == 0 || s.LogStartOffset > s.Snapshot.Offset || s.Snapshot.Bytes == 0 {
			t.Errorf("member %d: log starts at %d, snapshot %+v", m.id, s.LogStartOffset, s.Snapshot)
		}
		if got := c.state(m); !maps.Equal(got, want) {
			t.Errorf("member %d: %d keys, want %d, or other values", m.id, len(got), len(want))
		}
		if n := c.metric(leader, `quorum_requests_total{listener="CONTROLLER",request="FetchSnapshot"}`); n < 5 {
			t.Errorf("the leader was asked for %v chunks", n)
		}
	}
	// What they got survives a restart, and the voter counts: without it there is no majority.
	c.killMember(observer)
	c.start(observer)
	c.caughtUp(observer)
	for _, m := range c.members[:3] {
		if m != leader && m != away {
			c.killMember(m)
		}
	}
	client := c.client()
	c.append(client, keyed("k1", "last"))
	want["k1"] = "last"
	c.caughtUp(observer)
	for _, m := range []*testMember{observer, away, leader} {
		if got := c.state(m); !maps.Equal(got, want) {
			t.Errorf("member %d: %d keys, want %d, or other values", m.id, len(got), len(want))
		}
	}
}

// The leader changes while a member downloads its snapshot: the member begins anew with the next leader's (C-194, ST-16).
func TestLeaderChangesInMidDownload(t *testing.T) {
	c := newCluster(t, 3, 1, append(slices.Clone(small[:3]), "controller.quorum.fetch.snapshot.max.bytes=500")...)
	leader := c.leader()
	observer := c.members[3]
	c.killMember(observer)
	want := c.rewrite(100)
	c.start(observer)
	c.await("the download to begin", func() bool {
		s := c.status(observer)
		return s != nil && s.Download != nil && s.Download.Position > 0
	})
	c.killMember(leader)
	c.caughtUp(observer)
	if got := c.state(observer); !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d, or other values", len(got), len(want))
	}
}

// Connections break when a tenth of the snapshot has come through them, in the middle of a piece, and the leader stays: the member
// that downloads it goes on where it was, and not at the beginning.
func TestDownloadGoesOnAfterBrokenConnections(t *testing.T) {
	c := newCluster(t, 3, 1, append(slices.Clone(small[:3]), "controller.quorum.fetch.snapshot.max.bytes=500")...)
	leader, observer := c.leader(), c.members[3]
	epoch := c.status(leader).Epoch
	c.killMember(observer)
	want := c.rewrite(100)
	const most = 5
	var breaks atomic.Int64
	observer.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if breaks.Load() >= most {
			return conn, err
		}
		return &brittleConn{conn, 10_000, &breaks}, err
	}
	pieces := func() float64 {
		return c.metric(leader, `quorum_requests_total{listener="CONTROLLER",request="FetchSnapshot"}`)
	}
	asked := pieces()
	c.start(observer)
	c.caughtUp(observer)
	asked = pieces() - asked
	size := c.status(observer).Snapshot.Bytes
	t.Logf("%.0f pieces of a snapshot of %d bytes were asked for, with %d breaks", asked, size, breaks.Load())
	if breaks.Load() < most {
		t.Errorf("connections broke %d times, want %d times at least", breaks.Load(), most)
	}
	if want := size/500 + 1 + 2*breaks.Load(); int64(asked) > want { // what was on its way is asked for again
		t.Errorf("%.0f pieces were asked for, want %d at most", asked, want)
	}
	if began := observer.said.with("Began to download"); len(began) != 1 {
		t.Errorf("it began %d times, want once: %s", len(began), began)
	}
	if now := c.status(leader); now.Role != "Leader" || now.Epoch != epoch {
		t.Errorf("the leader is %s in epoch %d, was it in epoch %d", now.Role, now.Epoch, epoch)
	}
	if got := c.state(observer); !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d, or other values", len(got), len(want))
	}
}

// brittleConn ends, as if by the other side, when so many bytes have been read.
type brittleConn struct {
	net.Conn
	left   int
	breaks *atomic.Int64
}

func (c *brittleConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		c.breaks.Add(1)
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// ST-10: what nobody has is asked of a leader, through a socket: it says so, and is a leader still.
func TestST10PiecesThatAreNotThere(t *testing.T) {
	c := newCluster(t, 1, 0, "metadata.log.max.record.bytes.between.snapshots=100000")
	leader := c.leader()
	file, id := snapshotOf(c, leader, 200_000)
	before := c.status(leader)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(content))
	w := newWireTo(t, leader, config.Controller)
	for _, tt := range []struct {
		offset   int64
		epoch    raft.Epoch
		position int64
		want     error
	}{
		{id.Offset, id.Epoch, -1, kerr.PositionOutOfRange},
		{id.Offset, id.Epoch, math.MinInt64, kerr.PositionOutOfRange},
		{id.Offset, id.Epoch, size, kerr.PositionOutOfRange},
		{id.Offset, id.Epoch, size + 1, kerr.PositionOutOfRange},
		{id.Offset, id.Epoch, math.MaxInt32, kerr.PositionOutOfRange},
		{id.Offset, id.Epoch, math.MaxInt32 + 1, kerr.PositionOutOfRange}, // which ends a leader of Kafka's
		{id.Offset, id.Epoch, 1<<32 + 7, kerr.PositionOutOfRange},         // 7, if cut to 32 bits
		{id.Offset, id.Epoch, math.MaxInt64, kerr.PositionOutOfRange},
		{id.Offset + 1, id.Epoch, 0, kerr.SnapshotNotFound},
		{id.Offset, id.Epoch + 1, 0, kerr.SnapshotNotFound},
		{id.Offset + 1, id.Epoch, -1, kerr.PositionOutOfRange}, // both: either would do
		{0, 0, 0, kerr.SnapshotNotFound},                       // lies there, but is nobody else's
		{-1, id.Epoch, 0, kerr.SnapshotNotFound},
		{id.Offset, -1, 0, kerr.SnapshotNotFound},
		{math.MaxInt64, math.MaxInt32, 0, kerr.SnapshotNotFound},
	} {
		p := w.pieceOfSnapshot(snapshotFetchOf(c, raft.OffsetAndEpoch{Offset: tt.offset, Epoch: tt.epoch}, tt.position, 1000))
		if code(p.ErrorCode) != tt.want || len(p.Bytes) > 0 {
			t.Errorf("snapshot %d-%d at position %d: %v and %d bytes, want %v", tt.offset, tt.epoch, tt.position, code(p.ErrorCode), len(p.Bytes), tt.want)
		}
	}
	if last := w.snapshot(snapshotFetchOf(c, id, size-1, 1000)); !bytes.Equal(last, content[size-1:]) {
		t.Errorf("at the last position: %x, want %x", last, content[size-1:])
	}
	if now := c.status(leader); now.Role != "Leader" || now.Epoch != before.Epoch || now.LogEndOffset != before.LogEndOffset {
		t.Errorf("the leader was %+v, is %+v", before, now)
	}
}

// Snapshots are replaced while a member downloads one piece by piece, and writes go on: it gets there all the same (ST-09).
func TestST09SnapshotsAreReplacedWhileOneIsDownloaded(t *testing.T) {
	c := &cluster{t: t}
	var slow atomic.Bool
	c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return slowConn{conn, &slow}, err
	}
	c.form(3, 1, append(slices.Clone(small[:3]), "controller.quorum.fetch.snapshot.max.bytes=200")...)
	leader := c.leader()
	observer := c.members[3]
	c.killMember(observer)
	c.rewrite(100)
	slow.Store(true)
	client := c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	first := c.status(leader).Snapshot.Offset
	c.start(observer)
	newest := map[string]string{}
	replaced := 0
	for n := 0; ; n++ {
		key, value := fmt.Sprintf("k%d", n%50), fmt.Sprintf("%d %s", n, strings.Repeat("x", 10_000))
		c.append(client, keyed(key, value))
		newest[key] = value
		s, l := c.status(observer), c.status(leader)
		if s != nil && s.Download != nil && l.Snapshot.Offset != first {
			first = l.Snapshot.Offset
			replaced++
		}
		if s != nil && s.Ready {
			break
		}
	}
	if replaced < 3 {
		t.Errorf("%d snapshots were made while one was downloaded, want 3 at least", replaced)
	}
	slow.Store(false)
	c.caughtUp(observer)
	got := c.state(observer)
	for key, value := range newest {
		if got[key] != value {
			t.Errorf("%s is %.10q…, want %.10q…", key, got[key], value)
		}
	}
}

// A member that is killed again and again while it downloads begins anew each time, and its disk never holds more than one
// download and what it has installed.
func TestKillsInMidDownloadLeaveNothingBehind(t *testing.T) {
	c := &cluster{t: t}
	var slow atomic.Bool
	c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return slowConn{conn, &slow}, err
	}
	c.form(3, 1, append(slices.Clone(small[:3]), "controller.quorum.fetch.snapshot.max.bytes=1000", "log.ballast.bytes=0")...)
	leader, observer := c.leader(), c.members[3]
	c.killMember(observer)
	want := c.rewrite(100)
	slow.Store(true)
	size := c.status(leader).Snapshot.Bytes
	const kills = 8
	for i := range int64(kills) {
		c.start(observer)
		c.await("the download to be that far", func() bool {
			s := c.status(observer)
			return s != nil && s.Download != nil && s.Download.Position >= size*i/kills
		})
		c.killMember(observer)
		if held := bytesIn(t, observer.dir); held > size+64<<10 {
			t.Fatalf("after kill %d the directory holds %d bytes, the snapshot has %d", i, held, size)
		}
	}
	slow.Store(false)
	c.start(observer)
	c.caughtUp(observer)
	if got := c.state(observer); !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d, or other values", len(got), len(want))
	}
	if held := bytesIn(t, observer.dir); held > 2*size+1<<20 {
		t.Errorf("at the end the directory holds %d bytes, the snapshot has %d", held, size)
	}
}

// bytesIn is the size of all files below a directory.
func bytesIn(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// slowConn is a connection to a peer that takes a while to send, now and then.
type slowConn struct {
	net.Conn
	slow *atomic.Bool
}

func (c slowConn) Write(p []byte) (int, error) {
	if c.slow.Load() {
		time.Sleep(2 * time.Millisecond)
	}
	return c.Conn.Write(p)
}
