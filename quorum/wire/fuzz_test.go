package wire

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// FuzzDecodeRequest: no bytes of a stranger may crash a member or make it reserve much more than was sent; whatever is
// accepted can be answered.
func FuzzDecodeRequest(f *testing.F) {
	for _, file := range []string{"dynamic.jsonl", "static.jsonl"} {
		for _, r := range recordedFrames(f, file) {
			if r.Direction == "request" {
				f.Add(true, r.raw)
			}
		}
	}
	c := clientCodec()
	for _, key := range []int16{Produce, Fetch, ListOffsets, Metadata, FindCoordinator, InitProducerID, OffsetForLeaderEpoch, DescribeCluster} {
		offered, _ := c.Serves.find(key)
		for version := offered.Min; version <= offered.Max; version++ {
			f.Add(false, frameOf(sampleRequest(key, c), version))
		}
	}
	for version := range int16(3) {
		f.Add(true, frameOf(kraftUpgrade(), version))
	}
	f.Fuzz(func(t *testing.T, peers bool, frame []byte) {
		c := clientCodec()
		if peers {
			c = peerCodec()
		}
		r, err := c.Decode(frame)
		if err != nil || r.Body == nil {
			return
		}
		var f Frame
		switch r.Body.(type) {
		case *DescribeClusterRequest:
			f = c.Encode(r, &DescribeClusterResponse{}, Extra{})
		case *UpdateFeaturesRequest:
			f = c.Encode(r, &UpdateFeaturesResponse{}, Extra{})
		case *ProduceRequest:
			f = c.Encode(r, &ProduceResponse{}, Extra{})
		case *ClientFetchRequest:
			f = c.Encode(r, &ClientFetchResponse{}, Extra{Records: [][]byte{[]byte("r")}})
		case *ListOffsetsRequest:
			f = c.Encode(r, &ListOffsetsResponse{}, Extra{})
		case *MetadataRequest:
			f = c.Encode(r, &MetadataResponse{}, Extra{})
		case *InitProducerIDRequest:
			f = c.Encode(r, &InitProducerIDResponse{}, Extra{})
		case *OffsetForLeaderEpochRequest:
			f = c.Encode(r, &OffsetForLeaderEpochResponse{}, Extra{})
		case raft.DescribeQuorumRequest:
			f = c.Encode(r, raft.DescribeQuorumResponse{}, Extra{})
		case raft.AddRaftVoterRequest:
			f = c.Encode(r, raft.AddRaftVoterResponse{Error: raft.RequestTimedOut, Message: "why"}, Extra{})
		case raft.RemoveRaftVoterRequest:
			f = c.Encode(r, raft.RemoveRaftVoterResponse{}, Extra{})
		case raft.UpdateRaftVoterRequest:
			f = c.Encode(r, raft.UpdateRaftVoterResponse{}, Extra{})
		case raft.FetchRequest:
			f = c.Encode(r, raft.FetchResponse{}, Extra{Records: [][]byte{[]byte("r")}})
		default:
			f = c.Encode(r, topLevel(r.Key, raft.InvalidRequest), Extra{})
		}
		if len(f) == 0 {
			t.Fatalf("%v has no answer", r.Header)
		}
	})
}

// FuzzDecodeResponse: a peer that went mad must not take us with it.
func FuzzDecodeResponse(f *testing.F) {
	for _, file := range []string{"dynamic.jsonl", "static.jsonl"} {
		for _, r := range recordedFrames(f, file) {
			if r.Direction == "response" && r.Key != ApiVersions {
				f.Add(r.Key, r.Version, r.raw)
			}
		}
	}
	c := peerCodec()
	f.Add(Fetch, int16(18), slices.Concat(c.Encode(&Request{Header: Header{Key: Fetch, Version: 18}}, raft.FetchResponse{}, Extra{Table: &MemberTable{Members: []Member{{Listeners: q1}}}})...)[4:])
	f.Fuzz(func(t *testing.T, key, version int16, frame []byte) {
		if version < 0 || version > 18 {
			return // we only send versions that we know
		}
		_, _ = c.DecodeResponse(Header{Key: key, Version: version}, frame)
	})
}

// sampleRequest is a client's request that names our partition.
func sampleRequest(key int16, c *Codec) kmsg.Request {
	req := kmsg.RequestForKey(key)
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		req.Acks = -1
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: c.Topic, TopicID: c.TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: []byte("records")}}}}
	case *kmsg.FetchRequest:
		return fetchRequest(c)
	case *kmsg.ListOffsetsRequest:
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: c.Topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -2}}}}
	case *kmsg.MetadataRequest:
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &c.Topic}}
	case *kmsg.FindCoordinatorRequest:
		req.CoordinatorKeys = []string{"g"}
	case *kmsg.OffsetForLeaderEpochRequest:
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: c.Topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{LeaderEpoch: 1}}}}
	case *kmsg.DescribeClusterRequest:
		req.EndpointType = EndpointBrokers
	}
	return req
}
