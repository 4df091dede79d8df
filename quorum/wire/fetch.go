package wire

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// decodeClientFetch reads a consumer's Fetch. A replica has no business on the client listener: there everything is
// cut at the high watermark and nobody is tracked, so a replica id is an error rather than ignored.
func (c *Codec) decodeClientFetch(r *Request, body []byte) error {
	req := kmsg.NewPtrFetchRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	byID := r.Version >= 13
	var echo []topicEcho
	var ours *kmsg.FetchRequestTopicPartition
	for i := range req.Topics {
		t := &req.Topics[i]
		e := topicEcho{name: t.Topic, id: t.TopicID}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			is := ours == nil && p.Partition == 0 && (byID && t.TopicID == c.TopicID || !byID && t.Topic == c.Topic)
			if is {
				ours = p
			}
			e.partitions = append(e.partitions, partitionEcho{p.Partition, is})
		}
		echo = append(echo, e)
	}
	r.echo = echo
	switch {
	case fetchReplica(req) >= 0:
		r.Answer = c.refuseFetch(r, raft.InvalidRequest)
	case req.SessionID != 0:
		// We answer every Fetch with session id 0, which keeps clients on full requests.
		r.Answer = c.refuseFetch(r, FetchSessionNotFound)
	case ours == nil:
		r.Answer = c.Encode(r, &ClientFetchResponse{ReadReplica: raft.None}, Extra{})
	default:
		r.Body = &ClientFetchRequest{
			MaxWait:          time.Duration(req.MaxWaitMillis) * time.Millisecond,
			MinBytes:         int(req.MinBytes),
			MaxBytes:         int(min(req.MaxBytes, ours.PartitionMaxBytes)),
			Rack:             req.Rack,
			LeaderEpoch:      raft.Epoch(ours.CurrentLeaderEpoch),
			Offset:           ours.FetchOffset,
			LastFetchedEpoch: raft.Epoch(ours.LastFetchedEpoch),
		}
	}
	return nil
}

// refuseFetch answers with an error for the whole request; below version 7 there is no place for it but the partitions.
func (c *Codec) refuseFetch(r *Request, code raft.ErrorCode) Frame {
	resp := kmsg.NewPtrFetchResponse()
	if resp.ErrorCode = int16(code); r.Version < 7 {
		resp = c.clientFetchResponse(r, &ClientFetchResponse{Error: code, HighWatermark: raft.Unknown, LogStart: raft.Unknown, ReadReplica: raft.None})
	}
	return fetchFrame(r.Header, resp, nil, 0)
}

func (c *Codec) clientFetchResponse(r *Request, f *ClientFetchResponse) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	for _, t := range r.echo.([]topicEcho) {
		topic := kmsg.FetchResponseTopic{Topic: t.name, TopicID: t.id}
		for _, e := range t.partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.HighWatermark = e.index, -1
			p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			if !e.ours {
				p.ErrorCode = int16(topicError(r.Version >= 13))
			} else {
				p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = int16(f.Error), f.HighWatermark, f.HighWatermark, f.LogStart
				p.PreferredReadReplica = int32(f.ReadReplica)
				if f.Diverging != nil {
					p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = int32(f.Diverging.Epoch), f.Diverging.Offset
				}
				if f.Error != raft.NoError && f.Hint.Leader >= 0 {
					p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int32(f.Hint.Leader), int32(f.Hint.Epoch)
					if n := f.Hint.Node; n.Host != "" && r.Version >= 16 {
						resp.Brokers = append(resp.Brokers, kmsg.FetchResponseBroker{NodeID: int32(n.ID), Host: n.Host, Port: int32(n.Port), Rack: message(n.Rack)})
					}
				}
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
