package wire

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// maxPartitions bounds the partitions one client request may name. Ours is the only one that exists, but clients with
// several topics in mind may ask for others beside it.
const maxPartitions = 1000

// topicEcho is a topic of a client's request, to be repeated in the response.
type topicEcho struct {
	name       string
	id         raft.UUID
	partitions []partitionEcho
}

type partitionEcho struct {
	index int32
	ours  bool
}

// topicError is the error for partitions that are not ours. byID: the request names topics by id only.
func topicError(byID bool) raft.ErrorCode {
	if byID {
		return raft.UnknownTopicID
	}
	return raft.UnknownTopicOrPartition
}

// decodeProduce reads Produce by hand: it is the one large request, and a generic decoder would make room for as many
// topics as the bytes of the records could be.
func (c *Codec) decodeProduce(r *Request, body []byte) error {
	if r.Version < produceMin {
		return fmt.Errorf("%v is not served: versions from %d on are", r.Header, produceMin)
	}
	flexible, byID := r.Version >= 9, r.Version >= 13
	in := reader{src: body}
	req := &ProduceRequest{}
	req.Transactional = in.bytes(flexible) != nil
	req.Acks = in.int16()
	req.Timeout = time.Duration(in.int32()) * time.Millisecond

	var echo []topicEcho
	partitions, found := 0, 0
	for range in.array(flexible) {
		var t topicEcho
		if byID {
			t.id = in.uuid()
		} else {
			t.name = string(in.bytes(flexible))
		}
		for range in.array(flexible) {
			index := in.int32()
			records := in.records(flexible)
			in.tags(flexible)
			if partitions++; in.bad || partitions > maxPartitions {
				return fmt.Errorf("%w: %v: a partition does not fit, or more than %d are named", ErrMalformed, r.Header, maxPartitions)
			}
			ours := index == 0 && (byID && t.id == c.TopicID || !byID && t.name == c.Topic)
			if ours {
				found++
				req.Records = records
			}
			t.partitions = append(t.partitions, partitionEcho{index, ours})
		}
		in.tags(flexible)
		if in.bad || len(echo) == maxPartitions {
			return fmt.Errorf("%w: %v: a topic does not fit, or more than %d are named", ErrMalformed, r.Header, maxPartitions)
		}
		echo = append(echo, t)
	}
	in.tags(flexible)
	if in.bad || len(in.src) > 0 {
		return fmt.Errorf("%w: %v: its end is not where it should be", ErrMalformed, r.Header)
	}
	if found > 1 {
		return fmt.Errorf("%w: %v: partition 0 of topic %s appears twice", ErrMalformed, r.Header, c.Topic)
	}
	r.echo = echo
	switch {
	case found == 1:
		r.Body = req
	case req.Acks != 0:
		r.Answer = c.Encode(r, &ProduceResponse{}, Extra{})
	}
	return nil
}

func (c *Codec) produceResponse(r *Request, p *ProduceResponse) kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	for _, t := range r.echo.([]topicEcho) {
		topic := kmsg.ProduceResponseTopic{Topic: t.name, TopicID: t.id}
		for _, e := range t.partitions {
			out := kmsg.NewProduceResponseTopicPartition()
			out.Partition, out.BaseOffset, out.LogAppendTime = e.index, -1, -1
			switch {
			case !e.ours:
				out.ErrorCode = int16(topicError(r.Version >= 13))
			case p.Error != raft.NoError:
				out.ErrorCode, out.ErrorMessage, out.LogStartOffset = int16(p.Error), message(p.Message), p.LogStart
				if r.Version >= 10 && p.Hint.Leader >= 0 {
					out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(p.Hint.Leader), int32(p.Hint.Epoch)
					if n := p.Hint.Node; n.Host != "" {
						resp.Brokers = append(resp.Brokers, kmsg.ProduceResponseBroker{NodeID: int32(n.ID), Host: n.Host, Port: int32(n.Port), Rack: message(n.Rack)})
					}
				}
			default:
				out.BaseOffset, out.LogStartOffset = p.BaseOffset, p.LogStart
			}
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// bytes returns a nullable string; nil stands for null.
func (r *reader) bytes(flexible bool) []byte {
	if flexible {
		return r.compact()
	}
	n := r.int16()
	if n < 0 {
		return nil
	}
	return r.take(int(n))
}

// records returns nullable records; null is the same as none.
func (r *reader) records(flexible bool) []byte {
	if flexible {
		return r.compact()
	}
	n := r.int32()
	if n < 0 {
		return nil
	}
	return r.take(int(n))
}

// array returns the length of an array, null being empty.
func (r *reader) array(flexible bool) int {
	if flexible {
		return r.count()
	}
	n := int(r.int32())
	if n > len(r.src) {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return max(n, 0)
}

func (r *reader) tags(flexible bool) {
	if flexible {
		r.skipTags()
	}
}
