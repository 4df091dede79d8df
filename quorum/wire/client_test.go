package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

func clientCodec() *Codec {
	c := peerCodec()
	c.Serves, c.Listener = Clients, "CLIENT"
	return c
}

// frameOf is a request frame without its length prefix, as a client sends it.
func frameOf(req kmsg.Request, version int16) []byte {
	return requestFrame(Header{Key: req.Key(), Version: version, Correlation: 11, ClientID: "client"}, req)[4:]
}

// answer decodes req on the codec's listener, encodes response (nil: wire must have answered) and reads it as a client
// does.
func answer(t *testing.T, c *Codec, req kmsg.Request, version int16, response any, x Extra) (*Request, kmsg.Response) {
	t.Helper()
	r, err := c.Decode(frameOf(req, version))
	if err != nil {
		t.Fatal(err)
	}
	f := r.Answer
	if response != nil {
		if r.Body == nil {
			t.Fatalf("%v was answered by wire", r.Header)
		}
		f = c.Encode(r, response, x)
	} else if f == nil {
		t.Fatalf("%v was not answered by wire", r.Header)
	}
	all := slices.Concat(f...)
	resp := req.ResponseKind()
	if err := readResponse(r.Header, all[4:], resp); err != nil {
		t.Fatal(err)
	}
	if got, _ := ReadCorrelation(all[4:]); got != 11 {
		t.Errorf("correlation id %d, want 11", got)
	}
	if len(all) != 4+int(all[0])<<24+int(all[1])<<16+int(all[2])<<8+int(all[3]) {
		t.Errorf("length prefix %x of %d bytes", all[:4], len(all))
	}
	return r, resp
}

// versions calls f with each version in which the listener serves the request.
func versions(t *testing.T, s Serves, key int16, f func(t *testing.T, version int16)) {
	t.Helper()
	offered, ok := s.find(key)
	if !ok {
		t.Fatalf("%s is not offered", KeyName(key))
	}
	lowest := offered.Min
	if key == Produce {
		lowest = produceMin
	}
	for v := lowest; v <= offered.Max; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) { f(t, v) })
	}
}

func TestProduce(t *testing.T) {
	hint := LeaderHint{Leader: 2, Epoch: 9, Node: Node{ID: 2, Host: "q-2", Port: 9092, Rack: "b"}}
	versions(t, Clients, Produce, func(t *testing.T, version int16) {
		c := clientCodec()
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 1500
		req.Topics = []kmsg.ProduceRequestTopic{
			{Topic: "foreign", TopicID: d2, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 0, Records: []byte("other")}}},
			{Topic: c.Topic, TopicID: c.TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 3, Records: []byte("third")}, {Partition: 0, Records: []byte("batch")}}},
		}
		r, resp := answer(t, c, req, version, &ProduceResponse{BaseOffset: 77, LogStart: 5, Hint: hint}, Extra{})
		want := &ProduceRequest{Acks: -1, Timeout: 1500 * time.Millisecond, Records: []byte("batch")}
		if diff := cmp.Diff(want, r.Body); diff != "" {
			t.Errorf("request (-want +got)\n%s", diff)
		}
		got := resp.(*kmsg.ProduceResponse)
		unknown := int16(raft.UnknownTopicOrPartition)
		if version >= 13 {
			unknown = int16(raft.UnknownTopicID)
		}
		if len(got.Topics) != 2 || got.Topics[0].Partitions[0].ErrorCode != unknown || got.Topics[1].Partitions[0].ErrorCode != unknown {
			t.Errorf("foreign partitions: %+v", got.Topics)
		}
		if p := got.Topics[1].Partitions[1]; p.ErrorCode != 0 || p.BaseOffset != 77 || p.LogAppendTime != -1 || version >= 5 && p.LogStartOffset != 5 {
			t.Errorf("own partition: %+v", p)
		}
		if len(got.Brokers) != 0 {
			t.Errorf("a success names the leader: %+v", got.Brokers)
		}

		_, resp = answer(t, c, req, version, &ProduceResponse{Error: raft.NotLeaderOrFollower, Message: "go there", BaseOffset: 77, Hint: hint}, Extra{})
		got = resp.(*kmsg.ProduceResponse)
		p := got.Topics[1].Partitions[1]
		if p.ErrorCode != 6 || p.BaseOffset != -1 || version >= 8 && *p.ErrorMessage != "go there" {
			t.Errorf("an error: %+v", p)
		}
		if named := len(got.Brokers) == 1 && got.Brokers[0].Host == "q-2" && p.CurrentLeader.LeaderID == 2 && p.CurrentLeader.LeaderEpoch == 9; named != (version >= 10) {
			t.Errorf("leader named: %v", named)
		}
	})
}

func TestProduceWithoutOurPartition(t *testing.T) {
	c := clientCodec()
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: []byte("x")}}}}
	_, resp := answer(t, c, req, 9, nil, Extra{})
	if got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != 3 {
		t.Errorf("error %d, want 3", got)
	}
	// acks=0 is never answered, not even with an error.
	req.Acks = 0
	if r, err := c.Decode(frameOf(req, 9)); err != nil || r.Body != nil || r.Answer != nil {
		t.Errorf("acks=0: %+v, %v", r, err)
	}
}

func TestProduceTransactional(t *testing.T) {
	c := clientCodec()
	for _, version := range []int16{3, 9} {
		req := kmsg.NewPtrProduceRequest()
		req.TransactionID = new("tx")
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: c.Topic, Partitions: []kmsg.ProduceRequestTopicPartition{{}}}}
		r, err := c.Decode(frameOf(req, version))
		if err != nil {
			t.Fatal(err)
		}
		if !r.Body.(*ProduceRequest).Transactional {
			t.Errorf("v%d: the transactional id was overlooked", version)
		}
	}
}

// TestProduceBounds: what a frame announces must not decide how much is reserved for it.
func TestProduceBounds(t *testing.T) {
	c := clientCodec()
	body := append([]byte{0, 255, 255, 0, 0, 0, 1}, 0x81, 0x80, 0x80, 0x04) // 8 Mi topics
	body = append(body, make([]byte, 8<<20)...)
	frame := slices.Concat(frameOf(kmsg.NewPtrProduceRequest(), 9)[:17], body)
	var err error
	if n := testing.AllocsPerRun(1, func() { _, err = c.Decode(frame) }); err == nil || n > 5000 {
		t.Errorf("%v after %v allocations", err, n)
	}
	req := kmsg.NewPtrProduceRequest()
	twice := kmsg.ProduceRequestTopic{Topic: c.Topic, Partitions: []kmsg.ProduceRequestTopicPartition{{}, {}}}
	req.Topics = []kmsg.ProduceRequestTopic{twice}
	if _, err := c.Decode(frameOf(req, 9)); err == nil {
		t.Error("our partition twice in one request was accepted")
	}
	if _, err := c.Decode(frameOf(kmsg.NewPtrProduceRequest(), 2)); err == nil {
		t.Error("Produce version 2 was accepted")
	}
}

func fetchRequest(c *Codec) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID, req.SessionEpoch = -1, -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.Rack = 100, 1, 5000, "a"
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = 42, 4000, 3
	req.Topics = []kmsg.FetchRequestTopic{{Topic: c.Topic, TopicID: c.TopicID, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return req
}

func TestClientFetch(t *testing.T) {
	records := [][]byte{[]byte("one "), []byte("two")}
	hint := LeaderHint{Leader: 2, Epoch: 9, Node: Node{ID: 2, Host: "q-2", Port: 9092}}
	versions(t, Clients, Fetch, func(t *testing.T, version int16) {
		c := clientCodec()
		req := fetchRequest(c)
		r, resp := answer(t, c, req, version, &ClientFetchResponse{HighWatermark: 50, LogStart: 7, ReadReplica: 1000, Hint: hint}, Extra{Records: records})
		want := &ClientFetchRequest{MaxWait: 100 * time.Millisecond, MinBytes: 1, MaxBytes: 4000, Offset: 42, LeaderEpoch: -1, LastFetchedEpoch: -1}
		if version >= 9 {
			want.LeaderEpoch = 3
		}
		if version >= 11 {
			want.Rack = "a"
		}
		if diff := cmp.Diff(want, r.Body); diff != "" {
			t.Errorf("request (-want +got)\n%s", diff)
		}
		got := resp.(*kmsg.FetchResponse)
		p := got.Topics[0].Partitions[0]
		if string(p.RecordBatches) != "one two" || p.HighWatermark != 50 || p.LastStableOffset != 50 || got.SessionID != 0 || len(got.Brokers) != 0 {
			t.Errorf("response %+v", got)
		}
		if version >= 11 && p.PreferredReadReplica != 1000 {
			t.Errorf("preferred read replica %d", p.PreferredReadReplica)
		}

		// Ours not first: the records are put in their place.
		foreign := req.Topics[0].Partitions[0]
		foreign.Partition = 4
		req.Topics[0].Partitions = append([]kmsg.FetchRequestTopicPartition{foreign}, req.Topics[0].Partitions...)
		_, resp = answer(t, c, req, version, &ClientFetchResponse{HighWatermark: 50, ReadReplica: -1}, Extra{Records: records})
		parts := resp.(*kmsg.FetchResponse).Topics[0].Partitions
		if len(parts) != 2 || parts[0].ErrorCode == 0 || len(parts[0].RecordBatches) != 0 || string(parts[1].RecordBatches) != "one two" {
			t.Errorf("partitions %+v", parts)
		}

		// A topic without partitions before ours: nobody asks so, but whoever does must not end the process.
		req = fetchRequest(c)
		req.Topics = append([]kmsg.FetchRequestTopic{{Topic: "t", TopicID: d1}}, req.Topics...)
		_, resp = answer(t, c, req, version, &ClientFetchResponse{HighWatermark: 50, ReadReplica: -1}, Extra{Records: records})
		if topics := resp.(*kmsg.FetchResponse).Topics; len(topics) != 2 || string(topics[1].Partitions[0].RecordBatches) != "one two" {
			t.Errorf("topics %+v", topics)
		}

		// An error names the leader.
		req = fetchRequest(c)
		_, resp = answer(t, c, req, version, &ClientFetchResponse{Error: raft.NotLeaderOrFollower, HighWatermark: -1, LogStart: -1, ReadReplica: -1, Hint: hint}, Extra{})
		got = resp.(*kmsg.FetchResponse)
		if named := got.Topics[0].Partitions[0].CurrentLeader.LeaderID == 2; named != (version >= 12) {
			t.Errorf("leader named: %v", named)
		}
		if named := len(got.Brokers) == 1 && got.Brokers[0].Port == 9092; named != (version >= 16) {
			t.Errorf("leader's address: %v", named)
		}

		// Another topic, and a replica: wire answers.
		req.Topics[0].Topic, req.Topics[0].TopicID = "t", d1
		_, resp = answer(t, c, req, version, nil, Extra{})
		if code := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode; code != int16(topicError(version >= 13)) {
			t.Errorf("another topic: error %d", code)
		}
		req = fetchRequest(c)
		req.ReplicaID, req.ReplicaState.ID = 3, 3
		_, resp = answer(t, c, req, version, nil, Extra{})
		got = resp.(*kmsg.FetchResponse)
		code := got.ErrorCode
		if version < 7 {
			code = got.Topics[0].Partitions[0].ErrorCode
		}
		if code != int16(raft.InvalidRequest) {
			t.Errorf("a replica on CLIENT: error %d", code)
		}
	})
}

func TestListOffsets(t *testing.T) {
	versions(t, Clients, ListOffsets, func(t *testing.T, version int16) {
		c := clientCodec()
		req := kmsg.NewPtrListOffsetsRequest()
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = TimestampLatest, 3
		req.Topics = []kmsg.ListOffsetsRequestTopic{
			{Topic: c.Topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}},
			{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}},
		}
		r, resp := answer(t, c, req, version, &ListOffsetsResponse{Timestamp: 5, Offset: 6, LeaderEpoch: 7}, Extra{})
		want := &ListOffsetsRequest{LeaderEpoch: -1, Timestamp: -1}
		if version >= 4 {
			want.LeaderEpoch = 3
		}
		if diff := cmp.Diff(want, r.Body); diff != "" {
			t.Errorf("request (-want +got)\n%s", diff)
		}
		got := resp.(*kmsg.ListOffsetsResponse)
		if o := got.Topics[0].Partitions[0]; o.Offset != 6 || o.Timestamp != 5 || version >= 4 && o.LeaderEpoch != 7 {
			t.Errorf("own: %+v", o)
		}
		if o := got.Topics[1].Partitions[0]; o.ErrorCode != 3 || o.Offset != -1 {
			t.Errorf("foreign: %+v", o)
		}
		_, resp = answer(t, c, req, version, &ListOffsetsResponse{Error: raft.OffsetNotAvailable, Offset: 6}, Extra{})
		if o := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; o.ErrorCode != 78 || o.Offset != -1 {
			t.Errorf("error: %+v", o)
		}
	})
}

func TestMetadata(t *testing.T) {
	response := &MetadataResponse{
		Brokers: []Node{{ID: 0, Host: "q-0", Port: 9092, Rack: "a"}, {ID: 1, Host: "q-1", Port: 9092}}, Controller: 1,
		Leader: 1, Epoch: 4, Replicas: []raft.NodeID{0, 1}, InSync: []raft.NodeID{1},
	}
	versions(t, Clients, Metadata, func(t *testing.T, version int16) {
		c := clientCodec()
		req := kmsg.NewPtrMetadataRequest()
		r, resp := answer(t, c, req, version, response, Extra{}) // all topics
		if !r.Body.(*MetadataRequest).Ours {
			t.Error("all topics, but not ours")
		}
		got := resp.(*kmsg.MetadataResponse)
		if len(got.Brokers) != 2 || len(got.Topics) != 1 || *got.Topics[0].Topic != c.Topic {
			t.Fatalf("response %+v", got)
		}
		p := got.Topics[0].Partitions[0]
		if p.Leader != 1 || version >= 7 && p.LeaderEpoch != 4 || !slices.Equal(p.Replicas, []int32{0, 1}) || !slices.Equal(p.ISR, []int32{1}) {
			t.Errorf("partition %+v", p)
		}
		if version >= 2 && *got.ClusterID != c.ClusterID || version >= 1 && (got.ControllerID != 1 || *got.Brokers[0].Rack != "a" || got.Brokers[1].Rack != nil) {
			t.Errorf("response %+v", got)
		}
		if version >= 10 && got.Topics[0].TopicID != c.TopicID {
			t.Errorf("topic id %x", got.Topics[0].TopicID)
		}

		req.Topics = []kmsg.MetadataRequestTopic{{Topic: new("t")}, {Topic: &c.Topic}}
		if version >= 12 {
			req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{TopicID: d2}, kmsg.MetadataRequestTopic{TopicID: c.TopicID})
		}
		_, resp = answer(t, c, req, version, response, Extra{})
		got = resp.(*kmsg.MetadataResponse)
		var codes []int16
		for _, topic := range got.Topics {
			codes = append(codes, topic.ErrorCode)
		}
		if want := []int16{3, 0, 100, 0}[:len(req.Topics)]; !slices.Equal(codes, want) {
			t.Errorf("errors %v, want %v", codes, want)
		}
		if version >= 1 { // an empty list asks for none
			req.Topics = []kmsg.MetadataRequestTopic{}
			r, resp = answer(t, c, req, version, response, Extra{})
			if r.Body.(*MetadataRequest).Ours || len(resp.(*kmsg.MetadataResponse).Topics) != 0 {
				t.Error("no topic was asked for")
			}
		}
	})
}

func TestInitProducerID(t *testing.T) {
	versions(t, Clients, InitProducerID, func(t *testing.T, version int16) {
		req := kmsg.NewPtrInitProducerIDRequest()
		r, resp := answer(t, clientCodec(), req, version, &InitProducerIDResponse{ProducerID: 1<<32 | 5, ProducerEpoch: 1}, Extra{})
		want := &InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1}
		if diff := cmp.Diff(want, r.Body); diff != "" {
			t.Errorf("request (-want +got)\n%s", diff)
		}
		if got := resp.(*kmsg.InitProducerIDResponse); got.ProducerID != 1<<32|5 || got.ProducerEpoch != 1 {
			t.Errorf("response %+v", got)
		}
	})
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	versions(t, Clients, OffsetForLeaderEpoch, func(t *testing.T, version int16) {
		c := clientCodec()
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: c.Topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: 9, LeaderEpoch: 4}}}}
		r, resp := answer(t, c, req, version, &OffsetForLeaderEpochResponse{Epoch: 3, EndOffset: 88}, Extra{})
		if diff := cmp.Diff(&OffsetForLeaderEpochRequest{CurrentEpoch: 9, Epoch: 4}, r.Body); diff != "" {
			t.Errorf("request (-want +got)\n%s", diff)
		}
		if p := resp.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]; p.LeaderEpoch != 3 || p.EndOffset != 88 {
			t.Errorf("response %+v", p)
		}
	})
}

func TestFindCoordinator(t *testing.T) {
	versions(t, Clients, FindCoordinator, func(t *testing.T, version int16) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g"}
		_, resp := answer(t, clientCodec(), req, version, nil, Extra{})
		got := resp.(*kmsg.FindCoordinatorResponse)
		code := got.ErrorCode
		if version >= 4 {
			code = got.Coordinators[0].ErrorCode
		}
		if code != int16(CoordinatorNotAvailable) {
			t.Errorf("error %d", code)
		}
	})
}

// TestDescribeQuorum: C-223. Each version carries its own fields; what it does not know is left out.
func TestDescribeQuorum(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	x := Extra{Now: raft.Instant(10 * time.Second), Wall: now}
	response := raft.DescribeQuorumResponse{
		Leader: 1, Epoch: 7, HighWatermark: 40,
		Voters: []raft.ReplicaProgress{
			{Key: raft.ReplicaKey{ID: 1, DirectoryID: d1}, LogEnd: 42, LastFetch: x.Now, LastCaughtUp: x.Now},
			{Key: raft.ReplicaKey{ID: 2, DirectoryID: d2}, LogEnd: 41, LastFetch: raft.Instant(8 * time.Second), LastCaughtUp: raft.Instant(20 * time.Second)},
		},
		Observers: []raft.ReplicaProgress{{Key: raft.ReplicaKey{ID: 1000}, LogEnd: -1, LastFetch: -1, LastCaughtUp: -1}},
		Nodes:     []raft.Voter{{Key: raft.ReplicaKey{ID: 1}, Endpoints: q1}},
	}
	for _, c := range []*Codec{peerCodec(), clientCodec()} {
		versions(t, c.Serves, DescribeQuorum, func(t *testing.T, version int16) {
			req := kmsg.NewPtrDescribeQuorumRequest()
			req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: c.Topic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
			_, resp := answer(t, c, req, version, response, x)
			got := resp.(*kmsg.DescribeQuorumResponse)
			p := got.Topics[0].Partitions[0]
			if p.LeaderID != 1 || p.HighWatermark != 40 || len(p.CurrentVoters) != 2 || len(p.Observers) != 1 {
				t.Errorf("response %+v", p)
			}
			if version >= 1 {
				// Never in the future: Kafka's tool refuses that.
				times := []int64{p.CurrentVoters[0].LastFetchTimestamp, p.CurrentVoters[1].LastFetchTimestamp, p.CurrentVoters[1].LastCaughtUpTimestamp, p.Observers[0].LastFetchTimestamp}
				if want := []int64{1_000_000, 998_000, 1_000_000, -1}; !slices.Equal(times, want) {
					t.Errorf("times %v, want %v", times, want)
				}
			}
			// The times came with version 1; directories, listeners and messages with version 2.
			for _, r := range slices.Concat(p.CurrentVoters, p.Observers) {
				if version < 1 && (r.LastFetchTimestamp != -1 || r.LastCaughtUpTimestamp != -1) {
					t.Errorf("replica %d has times %d and %d", r.ReplicaID, r.LastFetchTimestamp, r.LastCaughtUpTimestamp)
				}
				if version < 2 && r.ReplicaDirectoryID != ([16]byte{}) {
					t.Errorf("replica %d has directory %v", r.ReplicaID, r.ReplicaDirectoryID)
				}
			}
			if version < 2 && (len(got.Nodes) != 0 || got.ErrorMessage != nil || p.ErrorMessage != nil) {
				t.Errorf("nodes %+v, messages %v and %v", got.Nodes, got.ErrorMessage, p.ErrorMessage)
			}
			if version >= 2 && (len(got.Nodes) != 1 || got.Nodes[0].Listeners[0].Host != "q-1" || p.CurrentVoters[1].ReplicaDirectoryID != d2) {
				t.Errorf("nodes %+v", got.Nodes)
			}
			_, resp = answer(t, c, req, version, raft.DescribeQuorumResponse{Error: raft.NotLeaderOrFollower, Leader: -1}, x)
			if got := resp.(*kmsg.DescribeQuorumResponse); got.ErrorCode != 0 || got.Topics[0].Partitions[0].ErrorCode != 6 {
				t.Errorf("not the leader: %+v", got)
			}
			req.Topics[0].Topic = "t"
			_, resp = answer(t, c, req, version, nil, x)
			if got := resp.(*kmsg.DescribeQuorumResponse); got.Topics[0].Partitions[0].ErrorCode != 3 {
				t.Errorf("another topic: %+v", got)
			}
		})
	}
}

// TestDescribeCluster: each listener answers for its own kind and says which (KIP-919).
func TestDescribeCluster(t *testing.T) {
	response := &DescribeClusterResponse{Controller: 1, Nodes: []Node{{ID: 1, Host: "q-1", Port: 9093}}}
	for _, test := range []struct {
		codec     *Codec
		version   int16
		kind      int8
		wantError raft.ErrorCode
	}{
		{peerCodec(), 1, EndpointControllers, 0},
		{peerCodec(), 2, EndpointControllers, 0},
		{peerCodec(), 2, EndpointBrokers, MismatchedEndpointType},
		{peerCodec(), 2, 3, UnsupportedEndpointType},
		{peerCodec(), 0, EndpointBrokers, raft.InvalidRequest},
		{clientCodec(), 0, EndpointBrokers, 0},
		{clientCodec(), 2, EndpointBrokers, 0},
		{clientCodec(), 2, EndpointControllers, MismatchedEndpointType},
		{clientCodec(), 2, 3, UnsupportedEndpointType},
	} {
		t.Run(fmt.Sprintf("%s v%d type %d", test.codec.Listener, test.version, test.kind), func(t *testing.T) {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.EndpointType = test.kind
			var body any
			if test.wantError == 0 {
				body = response
			}
			_, resp := answer(t, test.codec, req, test.version, body, Extra{})
			got := resp.(*kmsg.DescribeClusterResponse)
			if got.ErrorCode != int16(test.wantError) {
				t.Fatalf("error %d, want %d", got.ErrorCode, test.wantError)
			}
			if test.wantError == 0 && (got.ControllerID != 1 || len(got.Brokers) != 1 || got.ClusterID != "clusterA" || test.version >= 1 && got.EndpointType != test.kind) {
				t.Errorf("response %+v", got)
			}
		})
	}
	// A leader that is not in the list is not named: clients would look for it in vain.
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = EndpointControllers
	_, resp := answer(t, peerCodec(), req, 2, &DescribeClusterResponse{Controller: 7, Nodes: response.Nodes}, Extra{})
	if got := resp.(*kmsg.DescribeClusterResponse).ControllerID; got != -1 {
		t.Errorf("controller %d, want -1", got)
	}
}

func apiVersionsRequest(name, version string) *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = name, version
	return req
}

// TestApiVersionsOfBadSoftware: from version 3 on clients say what they are, by Kafka's rule of what a name may be.
func TestApiVersionsOfBadSoftware(t *testing.T) {
	for _, c := range []struct {
		name, version string
		code          raft.ErrorCode
	}{
		{"apache-kafka-java", "4.1.0", raft.NoError},
		{"kgo", "v1.19.5", raft.NoError},
		{"a", "1", raft.NoError},
		{"", "1", raft.InvalidRequest},
		{"kgo", "", raft.InvalidRequest},
		{"-kgo", "1", raft.InvalidRequest},
		{"kgo.", "1", raft.InvalidRequest},
		{"k go", "1", raft.InvalidRequest},
		{"kgo", "1\n", raft.InvalidRequest},
		{"kgö", "1", raft.InvalidRequest},
	} {
		for version := range int16(5) {
			want := c.code
			if version < 3 {
				want = raft.NoError // nothing is said there
			}
			_, resp := answer(t, peerCodec(), apiVersionsRequest(c.name, c.version), version, nil, Extra{})
			got := resp.(*kmsg.ApiVersionsResponse)
			if raft.ErrorCode(got.ErrorCode) != want || len(got.ApiKeys) > 0 != (want == raft.NoError) {
				t.Errorf("%q %q in version %d: error %d with %d keys, want error %d", c.name, c.version, version, got.ErrorCode, len(got.ApiKeys), want)
			}
		}
	}
}

func TestApiVersions(t *testing.T) {
	for _, c := range []*Codec{peerCodec(), clientCodec()} {
		c.Features = func() Features { return Features{KRaftVersion: 1, Epoch: 3} }
		versions(t, c.Serves, ApiVersions, func(t *testing.T, version int16) {
			_, resp := answer(t, c, apiVersionsRequest("test", "1"), version, nil, Extra{})
			got := resp.(*kmsg.ApiVersionsResponse)
			if len(got.ApiKeys) != len(offers[c.Serves]) {
				t.Errorf("%d keys", len(got.ApiKeys))
			}
			// A feature that starts at 0 crashes clients of versions below 4 (KAFKA-17011).
			if shown := len(got.SupportedFeatures) == 1; shown != (version >= 4) {
				t.Errorf("kraft.version shown: %v", shown)
			}
			if version >= 3 && (got.FinalizedFeaturesEpoch != 3 || len(got.FinalizedFeatures) != 1 || got.FinalizedFeatures[0].MaxVersionLevel != 1) {
				t.Errorf("finalized %+v", got)
			}
		})
	}
}

// TestApiVersionsOfAnObserverOnly: without kraft.version no leader can make it a voter.
func TestApiVersionsOfAnObserverOnly(t *testing.T) {
	c := peerCodec()
	c.KRaft = nil
	_, resp := answer(t, c, apiVersionsRequest("test", "1"), 4, nil, Extra{})
	if got := resp.(*kmsg.ApiVersionsResponse); len(got.SupportedFeatures) != 0 || got.FinalizedFeaturesEpoch != -1 {
		t.Errorf("features %+v", got)
	}
}

// TestApiVersionsTooHigh: a version we do not know is answered in version 0, so that the peer can go down to ours.
func TestApiVersionsTooHigh(t *testing.T) {
	for _, c := range []*Codec{peerCodec(), clientCodec()} {
		frame := frameOf(kmsg.NewPtrApiVersionsRequest(), 5)
		frame[3] = 99
		r, err := c.Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		_, err = DecodeApiVersions(99, slices.Concat(r.Answer...)[4:])
		offered, _ := c.Serves.find(ApiVersions)
		if err == nil || err.Error() != (&TooHighError{offered.Max}).Error() {
			t.Errorf("got %v", err)
		}
	}
}

// TestNotServed: what no listener serves ends the connection with a sentence.
func TestNotServed(t *testing.T) {
	for _, test := range []struct {
		codec *Codec
		frame []byte
		want  string
	}{
		{clientCodec(), frameOf(kmsg.NewPtrVoteRequest(), 2), "request with key 52 (Vote) is not served by listener CLIENT"},
		{peerCodec(), frameOf(kmsg.NewPtrProduceRequest(), 9), "request with key 0 (Produce) is not served by listener CONTROLLER"},
		{clientCodec(), frameOf(kmsg.NewPtrFetchSnapshotRequest(), 1), "request with key 59 (FetchSnapshot) is not served by listener CLIENT"},
		{peerCodec(), frameOf(kmsg.NewPtrFetchRequest(), 12), "Fetch v12 is not served by listener CONTROLLER: versions 13 to 18 are"},
		{peerCodec(), []byte{0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff}, "request with key 32767 (Unknown) is not served by listener CONTROLLER"},
		{peerCodec(), []byte{0, 1}, "malformed message: 2 bytes are too few for a request header"},
		{peerCodec(), []byte{0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff}, "malformed message: ApiVersions v0: client id of 32767 bytes in 0"},
		{peerCodec(), append(frameOf(kmsg.NewPtrVoteRequest(), 2), make([]byte, maxSmall)...), "malformed message: Vote v2: body of"},
	} {
		_, err := test.codec.Decode(test.frame)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

// TestAnotherTopic: a peer of another quorum gets a top-level error, and the wrong cluster id comes first.
func TestAnotherTopic(t *testing.T) {
	c := peerCodec()
	stranger := peerCodec()
	stranger.Topic, stranger.TopicID = "__raft_performance_test", d1
	clusterA, other := "clusterA", "other"
	for _, cluster := range []*string{&clusterA, &other, nil} {
		want := raft.InvalidRequest
		if cluster == &other {
			want = raft.InconsistentClusterID
		}
		for _, r := range []raft.Request{
			raft.VoteRequest{ClusterID: cluster},
			raft.BeginQuorumEpochRequest{ClusterID: cluster},
			raft.EndQuorumEpochRequest{ClusterID: cluster},
			raft.FetchRequest{ClusterID: cluster},
		} {
			_, version := carries(r)
			frame, err := stranger.EncodeRequest(version, 1, r, nil)
			if err != nil {
				t.Fatal(err)
			}
			in, err := c.Decode(frame[4:])
			if err != nil {
				t.Fatal(err)
			}
			reply, err := c.DecodeResponse(in.Header, slices.Concat(in.Answer...)[4:])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(topLevel(in.Key, want), reply.Response); diff != "" {
				t.Errorf("%T (-want +got)\n%s", r, diff)
			}
		}
	}
}

// TestVersionFor: a request is never sent in a version that drops what matters.
func TestVersionFor(t *testing.T) {
	peer := Versions{ranges: map[int16]Range{Vote: {0, 1}, Fetch: {4, 12}, AddRaftVoter: {0, 0}, BeginQuorumEpoch: {0, 9}}}
	for _, test := range []struct {
		request raft.Request
		version int16
		ok      bool
	}{
		{raft.VoteRequest{}, 1, true},
		{raft.VoteRequest{PreVote: true}, 0, false},
		{raft.FetchRequest{}, 0, false}, // by name only
		{raft.AddRaftVoterRequest{AckWhenCommitted: true}, 0, true},
		{raft.AddRaftVoterRequest{}, 0, false},
		{raft.BeginQuorumEpochRequest{}, 1, true},
		{raft.UpdateRaftVoterRequest{}, 0, false}, // not offered at all
	} {
		version, ok := peer.VersionFor(test.request)
		if ok != test.ok || ok && version != test.version {
			t.Errorf("%+v: %d %v, want %d %v", test.request, version, ok, test.version, test.ok)
		}
	}
	if _, err := peerCodec().EncodeRequest(1, 1, raft.VoteRequest{PreVote: true}, nil); err == nil {
		t.Error("a pre-vote was encoded without saying that it is one")
	}
}

func TestMemberTableTag(t *testing.T) {
	table := &MemberTable{Version: 1 << 40, Members: []Member{
		{Key: raft.ReplicaKey{ID: 1, DirectoryID: d1}, Listeners: q1, Rack: "a"},
		{Key: raft.ReplicaKey{ID: 1000, DirectoryID: d2}, BelowReserve: true},
	}}
	encoded := appendMemberTable(nil, table)
	if diff := cmp.Diff(table, readMemberTable(encoded)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for n := range encoded {
		if readMemberTable(encoded[:n]) != nil {
			t.Errorf("a table cut at %d of %d bytes was accepted", n, len(encoded))
		}
	}
	// A later version may add tagged fields.
	later := append(bytes.Clone(encoded[:len(encoded)-1]), 1, 5, 2, 0xaa, 0xbb)
	if diff := cmp.Diff(table, readMemberTable(later)); diff != "" {
		t.Errorf("with unknown fields (-want +got)\n%s", diff)
	}
	tag := &FetchTag{TableVersion: -1, Listeners: q1, Rack: "b", BelowReserve: true}
	if diff := cmp.Diff(tag, readFetchTag(appendFetchTag(nil, tag))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestAddRaftVoterVersion0: what the old version cannot say is what it meant: answer when it is committed (KIP-1186).
// No cluster id, as Kafka's tools send it, is let through: the core decides.
func TestAddRaftVoterVersion0(t *testing.T) {
	c := peerCodec()
	sent := raft.AddRaftVoterRequest{Voter: raft.ReplicaKey{ID: 3, DirectoryID: d2}, Endpoints: q1, AckWhenCommitted: true}
	frame, err := c.EncodeRequest(0, 1, sent, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Decode(frame[4:])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got.Body); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// kraftUpgrade is what kafka-features upgrade --feature kraft.version=1 sends.
func kraftUpgrade() *kmsg.UpdateFeaturesRequest {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "kraft.version", MaxVersionLevel: 1, UpgradeType: 1}}
	return req
}

// TestUpdateFeatures: kraft.version is the only feature, and what is asked of others is refused in words.
func TestUpdateFeatures(t *testing.T) {
	c := peerCodec()
	versions(t, c.Serves, UpdateFeatures, func(t *testing.T, version int16) {
		r, resp := answer(t, c, kraftUpgrade(), version, &UpdateFeaturesResponse{}, Extra{})
		if got := r.Body.(*UpdateFeaturesRequest).KRaftVersion; got != 1 {
			t.Errorf("asked for level %d", got)
		}
		got := resp.(*kmsg.UpdateFeaturesResponse)
		// Before version 2 Kafka's client wants a line for each feature.
		if wantLines := version < 2; got.ErrorCode != 0 || got.ErrorMessage != nil || len(got.Results) == 1 != wantLines {
			t.Errorf("answered %+v", got)
		}
		_, resp = answer(t, c, kraftUpgrade(), version, &UpdateFeaturesResponse{Error: raft.NotController, Message: "why"}, Extra{})
		if got := resp.(*kmsg.UpdateFeaturesResponse); got.ErrorCode != int16(raft.NotController) || *got.ErrorMessage != "why" {
			t.Errorf("answered %+v", got)
		}
	})
	for name, test := range map[string]struct {
		edit func(*kmsg.UpdateFeaturesRequest)
		want raft.ErrorCode
	}{
		"another feature": {func(r *kmsg.UpdateFeaturesRequest) { r.FeatureUpdates[0].Feature = "metadata.version" }, raft.InvalidUpdateVersion},
		"two features":    {func(r *kmsg.UpdateFeaturesRequest) { r.FeatureUpdates = append(r.FeatureUpdates, r.FeatureUpdates[0]) }, raft.InvalidRequest},
		"none":            {func(r *kmsg.UpdateFeaturesRequest) { r.FeatureUpdates = nil }, raft.InvalidRequest},
		"only validate":   {func(r *kmsg.UpdateFeaturesRequest) { r.ValidateOnly = true }, raft.InvalidRequest},
	} {
		req := kraftUpgrade()
		test.edit(req)
		r, resp := answer(t, c, req, 2, nil, Extra{})
		if got := resp.(*kmsg.UpdateFeaturesResponse); r.Body != nil || got.ErrorCode != int16(test.want) || got.ErrorMessage == nil {
			t.Errorf("%s: answered %+v, want error %d in words", name, got, test.want)
		}
	}
}
