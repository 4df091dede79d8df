package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// TestLargeFetches: what is sent from the file arrives as it lies there, at a follower that has much to catch up with, and
// at clients of both, whatever else they ask for in the same request.
func TestLargeFetches(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	follower := c.members[0]
	if follower == leader {
		follower = c.members[1]
	}
	c.stop(follower)
	raw := batchOf(t, 3, 30_000)
	fill(newWire(t, leader), raw, 4<<20)
	c.start(follower)
	c.await("the follower to catch up", func() bool {
		a, b := c.status(leader), c.status(follower)
		return a != nil && b != nil && a.HighWatermark > 100 && b.HighWatermark == a.HighWatermark
	})
	end := c.status(follower).HighWatermark
	var all [][]byte
	for _, m := range []*testMember{leader, follower} {
		w, got := newWire(t, m), []byte{}
		for offset := int64(0); offset < end; {
			alone := w.records(fetchOf(offset, 1<<20))
			behind := w.records(fetchOf(offset, 1<<20, "another"))
			if !bytes.Equal(alone, behind) {
				t.Fatalf("member %d at offset %d: %d bytes, and %d behind another topic", m.id, offset, len(alone), len(behind))
			}
			if end-offset > 100 && len(alone) < 900_000 {
				t.Errorf("member %d at offset %d: only %d bytes", m.id, offset, len(alone))
			}
			for b, err := range record.All(alone) {
				if err != nil || b.BaseOffset != offset {
					t.Fatalf("member %d at offset %d: %+v, %v", m.id, offset, b.Header, err)
				}
				if b.BaseOffset < end {
					got = append(got, b.Raw...)
				}
				offset = b.NextOffset()
			}
		}
		all = append(all, got)
	}
	if !bytes.Equal(all[0], all[1]) || len(all[0]) < 4<<20 {
		t.Errorf("the leader has %d bytes, the follower %d", len(all[0]), len(all[1]))
	}
}

// TestSnapshotsAreSentFromTheFile: a FetchSnapshot brings what lies there, also if the checkpoint is removed while a slow
// reader is being served, and takes none of the heap for it.
func TestSnapshotsAreSentFromTheFile(t *testing.T) {
	c := newCluster(t, 1, 0, "metadata.log.max.record.bytes.between.snapshots=8000000")
	leader := c.leader()
	file, id := snapshotOf(c, leader, 8<<20)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWireTo(t, leader, config.Controller)
	var got []byte
	for len(got) < len(content) {
		got = append(got, w.snapshot(snapshotFetchOf(c, id, int64(len(got)), 1_000_007))...)
	}
	if !bytes.Equal(got, content) {
		t.Errorf("%d bytes came in pieces of %d, or others", len(got), len(content))
	}
	request := snapshotFetchOf(c, id, 0, 1<<20)
	var before, after runtime.MemStats
	const times = 50
	runtime.ReadMemStats(&before)
	for range times {
		w.ask(request)
	}
	runtime.ReadMemStats(&after)
	if heap := (after.TotalAlloc - before.TotalAlloc) / times; heap > 100_000 {
		t.Errorf("a piece of 1 MiB takes %d bytes of the heap", heap)
	}

	w.send(snapshotFetchOf(c, id, 0, 8<<20)) // more than the sockets hold
	if _, err := io.ReadFull(w.conn, w.buf[:4]); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint32(w.buf))
	if _, err := io.ReadFull(w.conn, rest); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(rest, content[:min(len(content), 8<<20)]) {
		t.Errorf("after the removal %d bytes came, others than the file's", len(rest))
	}
}

// snapshotOf fills a leader's log with at least that many bytes of different keys, and waits for a checkpoint of them.
func snapshotOf(c *cluster, leader *testMember, size int) (file string, id raft.OffsetAndEpoch) {
	c.t.Helper()
	w := newWire(c.t, leader)
	for n := range size/30_000 + 1 {
		b := record.NewBuilder(1_700_000_000_000, record.None)
		b.Append(1_700_000_000_000, fmt.Appendf(nil, "%06d", n), make([]byte, 30_000))
		raw, err := b.Build(0, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		w.ask(produceOf(raw))
	}
	c.await("a checkpoint", func() bool {
		s := c.status(leader).Snapshot
		if s != nil {
			id = raft.OffsetAndEpoch{Offset: s.Offset, Epoch: raft.Epoch(s.Epoch)}
			file = filepath.Join(leader.dir, topic+"-0", fmt.Sprintf("%020d-%010d.checkpoint", id.Offset, id.Epoch))
		}
		return s != nil && s.Bytes > int64(size)*9/10
	})
	return file, id
}

// TestRecordsCostNoAllocation: from socket to socket, a request for a thousand records allocates what one for a few does.
func TestRecordsCostNoAllocation(t *testing.T) {
	produce, fetch := map[int]float64{}, map[int]float64{}
	for _, records := range []int{1, 1000} {
		c := newCluster(t, 1, 0)
		w := newWire(t, c.leader())
		raw := batchOf(t, records, 2000/records)
		request := produceOf(raw)
		w.ask(request)
		produce[records] = testing.AllocsPerRun(300, func() { w.ask(request) })
		fill(w, raw, 1<<20)
		request = fetchOf(0, 1<<20)
		if got := w.ask(request); got < 900_000 {
			t.Fatalf("an answer of %d bytes", got)
		}
		fetch[records] = testing.AllocsPerRun(300, func() { w.ask(request) })
	}
	// A few more or less, as the loop's timers fall.
	if produce[1000] > produce[1]+5 {
		t.Errorf("an append of 1000 records makes %v allocations, of one %v", produce[1000], produce[1])
	}
	if fetch[1000] > fetch[1]+5 || fetch[1000] > 100 {
		t.Errorf("a fetch of 1 MiB makes %v allocations with batches of 1000 records, %v with batches of one", fetch[1000], fetch[1])
	}
}

func batchOf(t testing.TB, records, valueBytes int) []byte {
	t.Helper()
	b := record.NewBuilder(1_700_000_000_000, record.None)
	for i := range records {
		b.Append(1_700_000_000_000, fmt.Appendf(nil, "%06d", i), make([]byte, valueBytes))
	}
	raw, err := b.Build(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// fill appends copies of a batch, several to a request, until they are that many bytes.
func fill(w *wireClient, raw []byte, size int) {
	w.t.Helper()
	request := produceOf(raw)
	const window = 5
	for sent := 0; sent < size; sent += window * len(raw) {
		for range window {
			w.send(request)
		}
		for range window {
			w.receive()
		}
	}
}

func produceOf(raw []byte) []byte {
	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks, produce.TimeoutMillis = 9, -1, 5000
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: raw}}}}
	return kmsg.NewRequestFormatter().AppendRequest(nil, produce, 1)
}

// fetchOf asks for our topic, behind others.
func fetchOf(offset int64, maxBytes int, others ...string) []byte {
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxWaitMillis, fetch.MinBytes, fetch.MaxBytes = fetchVersion, 100, 1, int32(maxBytes)
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, int32(maxBytes)
	for _, name := range append(others, topic) {
		fetch.Topics = append(fetch.Topics, kmsg.FetchRequestTopic{Topic: name, Partitions: []kmsg.FetchRequestTopicPartition{p}})
	}
	return kmsg.NewRequestFormatter().AppendRequest(nil, fetch, 1)
}

// snapshotFetchOf asks for a piece of a checkpoint as an observer does that nobody counts.
func snapshotFetchOf(c *cluster, id raft.OffsetAndEpoch, position int64, maxBytes int) []byte {
	fetch := kmsg.NewPtrFetchSnapshotRequest()
	fetch.Version, fetch.ClusterID, fetch.MaxBytes = 1, new(testCluster), int32(maxBytes)
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch = c.status(c.leader()).Epoch
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch, p.Position = id.Offset, int32(id.Epoch), position
	fetch.Topics = []kmsg.FetchSnapshotRequestTopic{{Topic: topic, Partitions: []kmsg.FetchSnapshotRequestTopicPartition{p}}}
	return kmsg.NewRequestFormatter().AppendRequest(nil, fetch, 1)
}

// wireClient sends frames and reads answers into a buffer of its own.
type wireClient struct {
	t    testing.TB
	conn net.Conn
	buf  []byte
}

func newWire(t testing.TB, m *testMember) *wireClient { return newWireTo(t, m, config.Client) }

func newWireTo(t testing.TB, m *testMember, listener string) *wireClient {
	t.Helper()
	conn, err := net.Dial("tcp", m.listeners[listener])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Minute))
	return &wireClient{t: t, conn: conn, buf: make([]byte, 4<<20)}
}

func (w *wireClient) ask(request []byte) (size int) {
	w.send(request)
	return len(w.receive())
}

func (w *wireClient) send(request []byte) {
	if _, err := w.conn.Write(request); err != nil {
		w.t.Fatal(err)
	}
}

// receive returns the next answer, valid until the call after.
func (w *wireClient) receive() []byte {
	if _, err := io.ReadFull(w.conn, w.buf[:4]); err != nil {
		w.t.Fatal(err)
	}
	answer := w.buf[:binary.BigEndian.Uint32(w.buf)]
	if _, err := io.ReadFull(w.conn, answer); err != nil {
		w.t.Fatal(err)
	}
	return answer
}

// records asks and returns the record bytes of the last topic.
func (w *wireClient) records(request []byte) []byte {
	w.t.Helper()
	w.send(request)
	response := kmsg.NewPtrFetchResponse()
	response.Version = fetchVersion
	if err := response.ReadFrom(w.receive()[5:]); err != nil { // behind correlation id and tags
		w.t.Fatal(err)
	}
	p := response.Topics[len(response.Topics)-1].Partitions[0]
	if p.ErrorCode != 0 {
		w.t.Fatal(code(p.ErrorCode))
	}
	return bytes.Clone(p.RecordBatches)
}

// snapshot asks and returns the bytes, valid until the call after.
func (w *wireClient) snapshot(request []byte) []byte {
	w.t.Helper()
	p := w.pieceOfSnapshot(request)
	if p.ErrorCode != 0 {
		w.t.Fatal(code(p.ErrorCode))
	}
	return p.Bytes
}

// pieceOfSnapshot asks and returns the partition's answer, its bytes valid until the call after.
func (w *wireClient) pieceOfSnapshot(request []byte) kmsg.FetchSnapshotResponseTopicPartition {
	w.t.Helper()
	w.send(request)
	response := kmsg.NewPtrFetchSnapshotResponse()
	response.Version = 1
	if err := response.ReadFrom(w.receive()[5:]); err != nil {
		w.t.Fatal(err)
	}
	if response.ErrorCode != 0 {
		w.t.Fatal(code(response.ErrorCode))
	}
	return response.Topics[0].Partitions[0]
}

const fetchVersion = 12 // the last that names topics
