package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// raw sends one request to one member, as it is.
func (c *cluster) raw(m *testMember, request kmsg.Request) (kmsg.Response, error) {
	c.t.Helper()
	return c.rawTo(m, config.Client, request)
}

func (c *cluster) rawTo(m *testMember, listener string, request kmsg.Request) (kmsg.Response, error) {
	c.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(m.listeners[listener]))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.SeedBrokers()[0].Request(ctx, request)
}

// produceRaw appends one batch to one member and returns the partition's answer.
func (c *cluster) produceRaw(m *testMember, batch []byte, acks int16) (kmsg.ProduceResponseTopicPartition, *kmsg.ProduceResponse) {
	c.t.Helper()
	response, err := c.raw(m, produce(batch, acks))
	if err != nil {
		c.t.Fatalf("produce: %v", err)
	}
	p := response.(*kmsg.ProduceResponse)
	return p.Topics[0].Partitions[0], p
}

// produce is a request that appends one batch.
func produce(batch []byte, acks int16) kmsg.Request {
	request := kmsg.NewPtrProduceRequest()
	request.Version = 12
	request.Acks, request.TimeoutMillis = acks, 5000
	request.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch}}}}
	return pinned{request}
}

// pinned keeps a client from raising the version: newer ones name the topic by id.
type pinned struct{ *kmsg.ProduceRequest }

func (pinned) MaxVersion() int16 { return 12 }

// build makes a batch of n keyed records.
func build(t *testing.T, producer int64, epoch int16, sequence int32, n int) []byte {
	t.Helper()
	b := record.NewBuilder(1_700_000_000_000, record.None).Producer(producer, epoch, sequence)
	for i := range n {
		b.Append(1_700_000_000_000, []byte("k"), fmt.Appendf(nil, "%d", int(sequence)+i))
	}
	raw, err := b.Build(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func code(c int16) error { return kerr.ErrorForCode(c) }

func (c *cluster) producerID(m *testMember) int64 {
	c.t.Helper()
	response, err := c.raw(m, kmsg.NewPtrInitProducerIDRequest())
	if err != nil {
		c.t.Fatal(err)
	}
	r := response.(*kmsg.InitProducerIDResponse)
	if r.ErrorCode != 0 || r.ProducerEpoch != 0 {
		c.t.Fatalf("member %d: InitProducerId: %+v", m.id, r)
	}
	return r.ProducerID
}

func TestEveryMemberHandsOutProducerIDs(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.leader()
	seen := map[int64]bool{}
	for _, m := range c.members {
		id := c.producerID(m)
		if id>>32 < 1 || seen[id] {
			t.Errorf("member %d handed out producer id %d (%#x) after %v", m.id, id, id, seen)
		}
		seen[id] = true
	}
}

// A retry that reaches the next leader finds the original there.
func TestDuplicateIsRecognisedByTheNextLeader(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	id := c.producerID(leader)
	first, _ := c.produceRaw(leader, build(t, id, 0, 0, 3), -1)
	second, _ := c.produceRaw(leader, build(t, id, 0, 3, 2), -1)
	if first.ErrorCode != 0 || second.ErrorCode != 0 {
		t.Fatalf("appends: %v, %v", code(first.ErrorCode), code(second.ErrorCode))
	}
	if again, _ := c.produceRaw(leader, build(t, id, 0, 0, 3), -1); again.ErrorCode != 0 || again.BaseOffset != first.BaseOffset {
		t.Errorf("retry at the same leader: %v at %d, want success at %d", code(again.ErrorCode), again.BaseOffset, first.BaseOffset)
	}
	c.killMember(leader)
	next := c.leader()
	for _, try := range []struct {
		sequence, n int32
		want        int64
	}{{0, 3, first.BaseOffset}, {3, 2, second.BaseOffset}} {
		again, _ := c.produceRaw(next, build(t, id, 0, try.sequence, int(try.n)), 1)
		if again.ErrorCode != 0 || again.BaseOffset != try.want {
			t.Errorf("retry of sequence %d at the next leader: %v at %d, want success at %d", try.sequence, code(again.ErrorCode), again.BaseOffset, try.want)
		}
	}
	last, _ := c.produceRaw(next, build(t, id, 0, 5, 1), -1)
	if got := c.readAll(6); last.ErrorCode != 0 || got[5].Offset != last.BaseOffset {
		t.Errorf("the sixth record stands at offset %d, appended at %d (%v): a retry was appended", got[5].Offset, last.BaseOffset, code(last.ErrorCode))
	}
	if gap, _ := c.produceRaw(next, build(t, id, 0, 9, 1), -1); code(gap.ErrorCode) != kerr.OutOfOrderSequenceNumber {
		t.Errorf("a gap in sequences: %v", code(gap.ErrorCode))
	}
	if stranger, _ := c.produceRaw(next, build(t, id+1, 0, 9, 1), -1); code(stranger.ErrorCode) != kerr.UnknownProducerID {
		t.Errorf("an unknown producer in mid-sequence: %v", code(stranger.ErrorCode))
	}
}

func TestFollowersNameTheLeader(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	epoch := c.status(leader).Epoch
	for _, m := range c.members {
		if m == leader {
			continue
		}
		p, r := c.produceRaw(m, build(t, -1, -1, -1, 1), -1)
		if code(p.ErrorCode) != kerr.NotLeaderForPartition || p.CurrentLeader.LeaderID != int32(leader.id) || p.CurrentLeader.LeaderEpoch != epoch {
			t.Errorf("member %d: %v, leader %+v", m.id, code(p.ErrorCode), p.CurrentLeader)
		}
		if len(r.Brokers) != 1 || fmt.Sprintf("%s:%d", r.Brokers[0].Host, r.Brokers[0].Port) != leader.listeners["CLIENT"] {
			t.Errorf("member %d: endpoints %+v, want %s", m.id, r.Brokers, leader.listeners["CLIENT"])
		}
	}
}

func TestBadBatchesAreRefused(t *testing.T) {
	c := newCluster(t, 1, 0, "message.max.bytes=2048")
	leader := c.leader()
	end := c.status(leader).LogEndOffset
	flipped := build(t, -1, -1, -1, 1)
	flipped[len(flipped)-1] ^= 1
	noKey, err := record.NewBuilder(0, record.None).Append(0, nil, []byte("v")).Build(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	control := record.EncodeControl(0, 1, 0, raft.KRaftVersion{Version: 1})
	tests := []struct {
		name  string
		batch []byte
		want  error
	}{
		{"a flipped bit", flipped, kerr.CorruptMessage},
		{"no key", noKey, kerr.InvalidRecord},
		{"a control batch", control, kerr.InvalidRecord},
		{"two batches", append(build(t, -1, -1, -1, 1), build(t, -1, -1, -1, 1)...), kerr.InvalidRecord},
		{"cut short", build(t, -1, -1, -1, 3)[:70], kerr.CorruptMessage},
		{"nothing", nil, kerr.CorruptMessage},
		{"too large", build(t, -1, -1, -1, 1000), kerr.MessageTooLarge},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, _ := c.produceRaw(leader, test.batch, -1)
			if code(p.ErrorCode) != test.want || p.ErrorMessage == nil || *p.ErrorMessage == "" {
				t.Errorf("got %v (%v), want %v and a message", code(p.ErrorCode), p.ErrorMessage, test.want)
			}
		})
	}
	if now := c.status(leader).LogEndOffset; now != end {
		t.Errorf("log end went from %d to %d", end, now)
	}
}

func TestAcksZeroIsAppendedWithoutAnAnswer(t *testing.T) {
	c := newCluster(t, 1, 0)
	leader := c.leader()
	client := c.client(kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	c.append(client, keyed("a", "1"), keyed("b", "2"))
	c.await("the append", func() bool { return c.status(leader).HighWatermark >= 3 })
	if got := c.readAll(2); string(got[0].Key) != "a" || string(got[1].Key) != "b" {
		t.Errorf("read %v", got)
	}
}

func TestCodecsComeBackAsSent(t *testing.T) {
	c := newCluster(t, 1, 0)
	c.leader()
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		client := c.client(kgo.ProducerBatchCompression(codec))
		var batch []*kgo.Record
		for n := range 100 {
			batch = append(batch, keyed(fmt.Sprint(i), fmt.Sprintf("value %d value value value", n)))
		}
		c.append(client, batch...)
	}
	for i, r := range c.readAll(100 * len(codecs)) {
		if want := fmt.Sprintf("value %d value value value", i%100); string(r.Value) != want || string(r.Key) != fmt.Sprint(i/100) {
			t.Fatalf("record %d is %s=%s, want %s", i, r.Key, r.Value, want)
		}
	}
}

func TestReplicasMayNotFetchFromTheClientListener(t *testing.T) {
	c := newCluster(t, 1, 0)
	leader := c.leader()
	request := kmsg.NewPtrFetchRequest()
	request.ReplicaID, request.ReplicaState.ID = 5, 5
	request.MaxBytes = 1 << 20
	id, _ := raft.ParseUUID("AAAAAAAAAAAAAAAAAAAAAQ")
	request.Topics = []kmsg.FetchRequestTopic{{Topic: topic, TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{{FetchOffset: 0, PartitionMaxBytes: 1 << 20, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1}}}}
	response, err := c.raw(leader, request)
	if err != nil {
		t.Fatal(err)
	}
	if got := code(response.(*kmsg.FetchResponse).ErrorCode); got != kerr.InvalidRequest {
		t.Errorf("got %v, want INVALID_REQUEST", got)
	}
}

func (c *cluster) listOffset(m *testMember, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	request := kmsg.NewPtrListOffsetsRequest()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = timestamp
	request.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	response, err := c.raw(m, request)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
}

func TestListOffsets(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	client := c.client()
	const future = 4_000_000_000_000 // after the control records, which have the time of now
	var at []int64
	for i := range 5 {
		r := keyed("k", fmt.Sprint(i))
		r.Timestamp = time.UnixMilli(future + int64(i)*1000)
		c.append(client, r)
		at = append(at, r.Offset)
	}
	for _, test := range []struct {
		timestamp, want int64
	}{
		{replica.Earliest, 0},
		{replica.Latest, at[4] + 1},
		{future + 2000, at[2]},
		{future + 2001, at[3]},
		{1 << 60, -1},
	} {
		if p := c.listOffset(leader, test.timestamp); p.ErrorCode != 0 || p.Offset != test.want {
			t.Errorf("offset for %d: %v, %d, want %d", test.timestamp, code(p.ErrorCode), p.Offset, test.want)
		}
	}
	for _, m := range c.members {
		if m != leader {
			if p := c.listOffset(m, replica.Latest); code(p.ErrorCode) != kerr.NotLeaderForPartition {
				t.Errorf("member %d: %v, want NOT_LEADER_OR_FOLLOWER", m.id, code(p.ErrorCode))
			}
		}
	}
}

// The largest batch that may be appended can be replicated and read, though it is eight times what a Fetch asks for.
func TestPR21LargestBatchIsReplicated(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	epoch := c.status(leader).Epoch
	sized := func(size int) []byte {
		b := record.NewBuilder(0, record.None)
		raw, err := b.Append(0, []byte("k"), make([]byte, size-record.HeaderSize-20)).Build(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if missing := size - len(raw); missing != 0 {
			raw, err = record.NewBuilder(0, record.None).Append(0, []byte("k"), make([]byte, size-record.HeaderSize-20+missing)).Build(0, 0)
			if err != nil || len(raw) != size {
				t.Fatalf("batch of %d bytes, want %d: %v", len(raw), size, err)
			}
		}
		return raw
	}
	var end int64
	for _, size := range []int{record.MaxSize - 1, record.MaxSize} {
		p, _ := c.produceRaw(leader, sized(size), -1)
		if p.ErrorCode != 0 {
			t.Errorf("%d bytes: %v", size, code(p.ErrorCode))
		}
		end = p.BaseOffset + 1
	}
	for _, tt := range []struct {
		name    string
		batch   []byte
		records int
	}{
		{"a byte too many", overweight(t, record.MaxSize+1, 3), 3},
		{"a byte too many in one record", overweight(t, record.MaxSize+1, 1), 1},
		{"a record that alone is too large", overweight(t, record.MaxSize+record.HeaderSize+1000, 1), 1},
		{"a byte behind the largest", append(sized(record.MaxSize), 0), 1},
	} {
		if p, _ := c.produceRaw(leader, tt.batch, -1); code(p.ErrorCode) != kerr.MessageTooLarge {
			t.Errorf("%s: %d bytes: %v, want MESSAGE_TOO_LARGE", tt.name, len(tt.batch), code(p.ErrorCode))
		}
	}
	if next, _ := c.produceRaw(leader, build(t, -1, -1, -1, 1), -1); next.ErrorCode != 0 || next.BaseOffset != end {
		t.Errorf("the next batch: %v at offset %d, want it at %d", code(next.ErrorCode), next.BaseOffset, end)
	}
	for _, m := range c.members {
		c.await("all members to have it", func() bool { return c.status(m).HighWatermark == c.status(leader).LogEndOffset })
	}
	for _, r := range c.readAll(2)[:2] {
		if len(r.Value) < record.MaxSize-200 {
			t.Errorf("read a value of %d bytes", len(r.Value))
		}
	}
	if now := c.status(leader); now.Epoch != epoch {
		t.Errorf("epoch went from %d to %d", epoch, now.Epoch)
	}
}

// overweight makes a whole batch of that many bytes, which our own builder refuses to.
func overweight(t *testing.T, size, records int) []byte {
	t.Helper()
	build := func(padding int) []byte {
		b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(records - 1), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(records)}
		for n := range records {
			r := kmsg.Record{OffsetDelta: int32(n), Key: []byte("k"), Value: make([]byte, size/records-100)}
			if n == 0 {
				r.Value = append(r.Value, make([]byte, padding)...)
			}
			r.Length = int32(len(r.AppendTo(nil)) - 1) // all behind the length, which is one byte while it is 0
			b.Records = r.AppendTo(b.Records)
		}
		b.Length = int32(record.HeaderSize - 12 + len(b.Records))
		raw := b.AppendTo(nil)
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		return raw
	}
	raw := build(size - len(build(0)))
	if len(raw) != size {
		t.Fatalf("a batch of %d bytes, want %d", len(raw), size)
	}
	return raw
}
