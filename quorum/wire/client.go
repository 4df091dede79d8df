package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// decodeClient reads what only ordinary clients send.
func (c *Codec) decodeClient(r *Request, body []byte) error {
	switch r.Key {
	case Produce:
		return c.decodeProduce(r, body)
	case Fetch:
		return c.decodeClientFetch(r, body)
	case ListOffsets:
		return c.decodeListOffsets(r, body)
	case Metadata:
		return c.decodeMetadata(r, body)
	case FindCoordinator:
		return c.decodeFindCoordinator(r, body)
	case InitProducerID:
		req := kmsg.NewPtrInitProducerIDRequest()
		if err := read(r.Header, body, req); err != nil {
			return err
		}
		r.Body = &InitProducerIDRequest{Transactional: req.TransactionalID != nil, ProducerID: req.ProducerID, ProducerEpoch: req.ProducerEpoch}
		return nil
	case OffsetForLeaderEpoch:
		return c.decodeOffsetForLeaderEpoch(r, body)
	default:
		panic(fmt.Sprintf("wire: %v is offered but not decoded", r.Header))
	}
}

func (c *Codec) encodeClient(r *Request, response any, x Extra) Frame {
	switch resp := response.(type) {
	case *ProduceResponse:
		return responseFrame(r.Header, c.produceResponse(r, resp))
	case *ClientFetchResponse:
		return c.encodeClientFetch(r, resp, x.Records, x.Apart)
	case *ListOffsetsResponse:
		return responseFrame(r.Header, c.listOffsetsResponse(r, resp))
	case *MetadataResponse:
		return responseFrame(r.Header, c.metadataResponse(r, resp))
	case *InitProducerIDResponse:
		out := kmsg.NewPtrInitProducerIDResponse()
		out.ErrorCode, out.ProducerID, out.ProducerEpoch = int16(resp.Error), resp.ProducerID, resp.ProducerEpoch
		return responseFrame(r.Header, out)
	case *OffsetForLeaderEpochResponse:
		return responseFrame(r.Header, c.offsetForLeaderEpochResponse(r, resp))
	default:
		panic(fmt.Sprintf("wire: cannot encode %T", response))
	}
}

// Splits reports whether the records of the answer to a Fetch may be sent apart: to a replica always, to a client if ours
// is the first partition, as it is with every client that knows one topic.
func (r *Request) Splits() bool {
	echo, client := r.echo.([]topicEcho)
	return !client || len(echo[0].partitions) > 0 && echo[0].partitions[0].ours
}

// encodeClientFetch leaves the record bytes uncopied if the answer splits; else it copies them into place.
func (c *Codec) encodeClientFetch(r *Request, f *ClientFetchResponse, records [][]byte, apart int) Frame {
	resp := c.clientFetchResponse(r, f)
	if len(records) == 0 || r.Splits() {
		return fetchFrame(r.Header, resp, records, apart)
	}
	for t, e := range r.echo.([]topicEcho) {
		for p := range e.partitions {
			resp.Topics[t].Partitions[p].RecordBatches = []byte{}
			if e.partitions[p].ours {
				for _, b := range records {
					resp.Topics[t].Partitions[p].RecordBatches = append(resp.Topics[t].Partitions[p].RecordBatches, b...)
				}
			}
		}
	}
	return responseFrame(r.Header, resp)
}

func (c *Codec) decodeListOffsets(r *Request, body []byte) error {
	req := kmsg.NewPtrListOffsetsRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	var echo []topicEcho
	for _, t := range req.Topics {
		e := topicEcho{name: t.Topic}
		for _, p := range t.Partitions {
			ours := r.Body == nil && c.named(t.Topic, p.Partition)
			if ours {
				r.Body = &ListOffsetsRequest{LeaderEpoch: raft.Epoch(p.CurrentLeaderEpoch), Timestamp: p.Timestamp}
			}
			e.partitions = append(e.partitions, partitionEcho{p.Partition, ours})
		}
		echo = append(echo, e)
	}
	if r.echo = echo; r.Body == nil {
		r.Answer = c.Encode(r, &ListOffsetsResponse{}, Extra{})
	}
	return nil
}

func (c *Codec) listOffsetsResponse(r *Request, l *ListOffsetsResponse) kmsg.Response {
	resp := kmsg.NewPtrListOffsetsResponse()
	for _, t := range r.echo.([]topicEcho) {
		topic := kmsg.ListOffsetsResponseTopic{Topic: t.name}
		for _, e := range t.partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.Timestamp, p.Offset, p.LeaderEpoch = e.index, -1, -1, -1
			switch {
			case !e.ours:
				p.ErrorCode = int16(raft.UnknownTopicOrPartition)
			case l.Error != raft.NoError:
				p.ErrorCode = int16(l.Error)
			default:
				p.Timestamp, p.Offset, p.LeaderEpoch = l.Timestamp, l.Offset, int32(l.LeaderEpoch)
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// metadataEcho is a topic asked for by name or id.
type metadataEcho struct {
	name *string
	id   raft.UUID
	ours bool
}

func (c *Codec) decodeMetadata(r *Request, body []byte) error {
	req := kmsg.NewPtrMetadataRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	m := &MetadataRequest{}
	var echo []metadataEcho
	for _, t := range req.Topics {
		e := metadataEcho{name: t.Topic, id: t.TopicID}
		e.ours = t.Topic != nil && *t.Topic == c.Topic || t.Topic == nil && t.TopicID == c.TopicID
		m.Ours = m.Ours || e.ours
		echo = append(echo, e)
	}
	// Version 0 has no null: there an empty list stands for all topics, later for none.
	if all := req.Topics == nil || r.Version == 0 && len(req.Topics) == 0; all {
		m.Ours = true
		echo = []metadataEcho{{ours: true}}
	}
	r.Body, r.echo = m, echo
	return nil
}

func (c *Codec) metadataResponse(r *Request, m *MetadataResponse) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	resp.ClusterID, resp.ControllerID = &c.ClusterID, int32(m.Controller)
	for _, b := range m.Brokers {
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(b.ID), Host: b.Host, Port: int32(b.Port), Rack: message(b.Rack)})
	}
	for _, e := range r.echo.([]metadataEcho) {
		t := kmsg.NewMetadataResponseTopic()
		switch {
		case e.ours:
			t.Topic, t.TopicID = &c.Topic, c.TopicID
			p := kmsg.NewMetadataResponseTopicPartition()
			p.ErrorCode, p.Leader, p.LeaderEpoch = int16(m.Error), int32(m.Leader), int32(m.Epoch)
			for _, id := range m.Replicas {
				p.Replicas = append(p.Replicas, int32(id))
			}
			for _, id := range m.InSync {
				p.ISR = append(p.ISR, int32(id))
			}
			t.Partitions = append(t.Partitions, p)
		case e.name != nil:
			t.ErrorCode, t.Topic = int16(raft.UnknownTopicOrPartition), e.name
		default:
			t.ErrorCode, t.TopicID = int16(raft.UnknownTopicID), e.id
			if r.Version < 12 {
				t.Topic = new("") // not nullable before
			}
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// decodeFindCoordinator answers that there is none: we have no consumer groups and no transactions. The request is
// offered all the same because librdkafka looks for it before it compresses with lz4.
func (c *Codec) decodeFindCoordinator(r *Request, body []byte) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	why := "this is a quorum: it has no consumer groups and no transactions"
	resp := kmsg.NewPtrFindCoordinatorResponse()
	if r.Version >= 4 {
		for _, k := range req.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, kmsg.FindCoordinatorResponseCoordinator{
				Key: k, NodeID: -1, Port: -1, ErrorCode: int16(CoordinatorNotAvailable), ErrorMessage: &why,
			})
		}
	} else {
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Port = int16(CoordinatorNotAvailable), &why, -1, -1
	}
	r.Answer = responseFrame(r.Header, resp)
	return nil
}

func (c *Codec) decodeOffsetForLeaderEpoch(r *Request, body []byte) error {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	var echo []topicEcho
	for _, t := range req.Topics {
		e := topicEcho{name: t.Topic}
		for _, p := range t.Partitions {
			ours := r.Body == nil && c.named(t.Topic, p.Partition)
			if ours {
				r.Body = &OffsetForLeaderEpochRequest{CurrentEpoch: raft.Epoch(p.CurrentLeaderEpoch), Epoch: raft.Epoch(p.LeaderEpoch)}
			}
			e.partitions = append(e.partitions, partitionEcho{p.Partition, ours})
		}
		echo = append(echo, e)
	}
	if r.echo = echo; r.Body == nil {
		r.Answer = c.Encode(r, &OffsetForLeaderEpochResponse{}, Extra{})
	}
	return nil
}

func (c *Codec) offsetForLeaderEpochResponse(r *Request, o *OffsetForLeaderEpochResponse) kmsg.Response {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, t := range r.echo.([]topicEcho) {
		topic := kmsg.OffsetForLeaderEpochResponseTopic{Topic: t.name}
		for _, e := range t.partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = e.index, -1, -1
			switch {
			case !e.ours:
				p.ErrorCode = int16(raft.UnknownTopicOrPartition)
			case o.Error != raft.NoError:
				p.ErrorCode = int16(o.Error)
			default:
				p.LeaderEpoch, p.EndOffset = int32(o.Epoch), o.EndOffset
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
