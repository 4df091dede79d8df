package wire

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// B-30: a FetchSnapshot is for the one partition that there is. Any other number, or another name, is answered at once.
func TestB30FetchSnapshotIsForOnePartition(t *testing.T) {
	partition := kmsg.NewFetchSnapshotRequestTopicPartition()
	second := kmsg.NewFetchSnapshotRequestTopicPartition()
	second.Partition = 1
	topic := func(name string, partitions ...kmsg.FetchSnapshotRequestTopicPartition) kmsg.FetchSnapshotRequestTopic {
		return kmsg.FetchSnapshotRequestTopic{Topic: name, Partitions: partitions}
	}
	c := peerCodec()
	for name, test := range map[string]struct {
		topics []kmsg.FetchSnapshotRequestTopic
		served bool
	}{
		"ours":                 {[]kmsg.FetchSnapshotRequestTopic{topic(c.Topic, partition)}, true},
		"no topic":             {nil, false},
		"no partition":         {[]kmsg.FetchSnapshotRequestTopic{topic(c.Topic)}, false},
		"two partitions":       {[]kmsg.FetchSnapshotRequestTopic{topic(c.Topic, partition, second)}, false},
		"two topics":           {[]kmsg.FetchSnapshotRequestTopic{topic(c.Topic, partition), topic("other", partition)}, false},
		"the second partition": {[]kmsg.FetchSnapshotRequestTopic{topic(c.Topic, second)}, false},
		"another topic":        {[]kmsg.FetchSnapshotRequestTopic{topic("other", partition)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			req := kmsg.NewPtrFetchSnapshotRequest()
			req.Topics = test.topics
			r, err := c.Decode(frameOf(req, 1))
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := r.Body.(raft.FetchSnapshotRequest); ok != test.served {
				t.Fatalf("served: %v, want %v", ok, test.served)
			}
			if test.served {
				return
			}
			var frame []byte
			for _, part := range r.Answer {
				frame = append(frame, part...)
			}
			reply, err := c.DecodeResponse(r.Header, frame[4:])
			if err != nil {
				t.Fatal(err)
			}
			if got := reply.Response.(raft.FetchSnapshotResponse).TopError; got != raft.InvalidRequest {
				t.Errorf("answered with %d, want INVALID_REQUEST", got)
			}
		})
	}
}

// A FetchSnapshot's answer with bytes that are not copied, or sent apart, is what Kafka's encoder makes in one go.
func TestFetchSnapshotFrame(t *testing.T) {
	for version := range int16(2) {
		for _, size := range []int{0, 1, 126, 127, 70_000} {
			for _, topic := range []string{"t", strings.Repeat("n", 249)} {
				c := peerCodec()
				c.Topic = topic
				body := raft.FetchSnapshotResponse{
					Header:   raft.Header{Leader: 5, Epoch: 3, LeaderEndpoints: []raft.Endpoint{{Name: c.Listener, Host: "h", Port: 9}}},
					Snapshot: raft.OffsetAndEpoch{Offset: 1 << 40, Epoch: 2}, Size: 1 << 33, Position: 1 << 32,
				}
				content := bytes.Repeat([]byte("x"), size)
				resp := c.fetchSnapshotResponse(body)
				resp.Topics[0].Partitions[0].Bytes = content
				r := &Request{Header: Header{Key: FetchSnapshot, Version: version, Correlation: 9}}
				want := responseFrame(r.Header, resp)[0]
				inside := c.Encode(r, body, Extra{Records: [][]byte{content[:size/2], content[size/2:]}})
				if got := slices.Concat(inside...); !bytes.Equal(got, want) {
					t.Errorf("version %d, %d bytes, topic of %d:\n got %.200x\nwant %.200x", version, size, len(topic), got, want)
				}
				apart := c.Encode(r, body, Extra{Apart: size})
				if got := slices.Concat(append([][]byte{apart[0], content}, apart[1:]...)...); !bytes.Equal(got, want) {
					t.Errorf("version %d, %d bytes sent apart, topic of %d:\n got %.200x\nwant %.200x", version, size, len(topic), got, want)
				}
			}
		}
	}
}
