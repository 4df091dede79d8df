package wire

import (
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
