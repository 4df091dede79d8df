package wire

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// The path of one append: a Produce comes in, a follower's Fetch takes it, a consumer's Fetch too, the Produce is
// answered.

func BenchmarkDecodeProduce(b *testing.B) {
	c := clientCodec()
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.Topics = []kmsg.ProduceRequestTopic{{TopicID: c.TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 1024)}}}}
	frame := frameOf(req, 13)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Decode(frame); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeProduceResponse(b *testing.B) {
	c := clientCodec()
	r := &Request{Header: Header{Key: Produce, Version: 13}, echo: []topicEcho{{id: c.TopicID, partitions: []partitionEcho{{0, true}}}}}
	b.ReportAllocs()
	for b.Loop() {
		c.Encode(r, &ProduceResponse{BaseOffset: 5}, Extra{})
	}
}

var benchFetch = raft.FetchRequest{
	ClusterID: new("clusterA"), Replica: raft.ReplicaKey{ID: 2, DirectoryID: d2}, Epoch: 7, Offset: 42, LastFetchedEpoch: 6,
	HighWatermark: 40, MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20,
}

var benchTag = &FetchTag{TableVersion: 7 << 32, Listeners: []raft.Endpoint{
	{Name: "CLIENT", Host: "orders-2.orders-peers.default.svc", Port: 9092},
	{Name: "CONTROLLER", Host: "orders-2.orders-peers.default.svc", Port: 9093},
	{Name: "ADMIN", Host: "orders-2.orders-peers.default.svc", Port: 9091},
	{Name: "HEALTH", Host: "orders-2.orders-peers.default.svc", Port: 8080},
}}

func BenchmarkEncodePeerFetch(b *testing.B) {
	c := peerCodec()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.EncodeRequest(18, 1, benchFetch, benchTag); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodePeerFetch(b *testing.B) {
	c := peerCodec()
	frame, err := c.EncodeRequest(18, 1, benchFetch, benchTag)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Decode(frame[4:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodePeerFetchResponse(b *testing.B) {
	c := peerCodec()
	r := &Request{Header: Header{Key: Fetch, Version: 18}}
	response := raft.FetchResponse{Header: raft.Header{Leader: 1, Epoch: 7, LeaderEndpoints: q1}, HighWatermark: 41}
	records := [][]byte{make([]byte, 1<<20)}
	b.ReportAllocs()
	for b.Loop() {
		c.Encode(r, response, Extra{Records: records})
	}
}

func BenchmarkDecodePeerFetchResponse(b *testing.B) {
	c := peerCodec()
	h := Header{Key: Fetch, Version: 18}
	f := c.Encode(&Request{Header: h}, raft.FetchResponse{Header: raft.Header{Leader: 1, Epoch: 7, LeaderEndpoints: q1}, HighWatermark: 41}, Extra{Records: [][]byte{make([]byte, 1<<20)}})
	var frame []byte
	for _, piece := range f {
		frame = append(frame, piece...)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.DecodeResponse(h, frame[4:]); err != nil {
			b.Fatal(err)
		}
	}
}
