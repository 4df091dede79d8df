package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// handleClient takes in a request on the CLIENT listener. It runs on the connection's goroutine, so what takes a while,
// such as unpacking a batch to check it, is done here; what needs the replica goes to the loop.
func (s *server) handleClient(in *transport.Inbound, r *wire.Request) error {
	switch body := r.Body.(type) {
	case *wire.ProduceRequest:
		return s.produce(in, r, body)
	case *wire.ClientFetchRequest:
		return s.clientFetch(in, r, body)
	case *wire.ListOffsetsRequest:
		return s.listOffsets(in, r, body)
	case *wire.OffsetForLeaderEpochRequest:
		return s.offsetForLeaderEpoch(in, r, body)
	case *wire.InitProducerIDRequest:
		return s.initProducerID(in, r, body)
	case *wire.MetadataRequest:
		s.reply(in, r, s.metadata())
		return nil
	case *wire.DescribeClusterRequest:
		s.reply(in, r, s.describeCluster(config.Client))
		return nil
	case raft.DescribeQuorumRequest:
		return s.handleDescribeQuorum(in, r, body)
	default:
		return fmt.Errorf("%v cannot be served", r.Header)
	}
}

func (s *server) reply(in *transport.Inbound, r *wire.Request, response any) {
	in.Reply(s.codecs.client.Encode(r, response, wire.Extra{}))
}

// replyRecords answers a Fetch or a FetchSnapshot. A section is closed by the transport.
func replyRecords(codec *wire.Codec, in *transport.Inbound, r *wire.Request, response any, extra wire.Extra, found storage.Records) {
	if found.Section != nil {
		extra.Apart = found.Size()
		in.ReplyWith(codec.Encode(r, response, extra), found.Section)
		return
	}
	if len(found.Bytes) > 0 {
		extra.Records = [][]byte{found.Bytes}
	}
	in.Reply(codec.Encode(r, response, extra))
}

// produce appends one batch. With acks=0 the client wants no answer, so it gets neither an answer nor a promise; but the
// request counts as open until its fate is known, or such a client could fill the memory.
func (s *server) produce(in *transport.Inbound, r *wire.Request, p *wire.ProduceRequest) error {
	answer := func(resp *wire.ProduceResponse) { s.reply(in, r, resp) }
	drop := func() { in.Close(errEnded) }
	if p.Acks == 0 {
		answer, drop = func(*wire.ProduceResponse) { in.Drop() }, in.Drop
	}
	if p.Acks < -1 || p.Acks > 1 {
		answer(&wire.ProduceResponse{Error: invalidRequiredAcks, Message: fmt.Sprintf("acks is %d: want -1, 0 or 1", p.Acks), Hint: noHint})
		return nil
	}
	if p.Transactional {
		answer(&wire.ProduceResponse{Error: raft.InvalidRequest, Message: "transactions are not supported", Hint: noHint})
		return nil
	}
	s.checks <- struct{}{}
	batch, err := replica.CheckProduce(p.Records, s.topicMode(), s.cfg.MaxBatchBytes)
	<-s.checks
	if rejected, ok := errors.AsType[*record.Rejection](err); ok {
		s.metrics.rejectedBatches.Add(1)
		answer(&wire.ProduceResponse{Error: rejected.Code, Message: rejected.Error(), Hint: noHint})
		return nil
	}
	timeout := min(max(p.Timeout, time.Millisecond), maxAppendWait)
	return s.handOn(func() {
		began := s.now()
		s.ask(waiter{drop: drop, reply: func(result any) {
			done := result.(replica.ProduceResult)
			if took := time.Duration(s.now() - began); done.Error == raft.NoError {
				s.metrics.commit.observe(took)
				s.metrics.commits.add(float64(took.Microseconds()) / 1000)
			}
			answer(&wire.ProduceResponse{
				Error: done.Error, Message: cmp.Or(done.Message, s.refusal(done.Error)), BaseOffset: done.BaseOffset, LogStart: done.LogStart,
				Hint: s.hintFor(done.Header),
			})
		}}, func(id raft.RequestID) replica.Event {
			return replica.Produce{ID: id, Batch: batch, Timeout: timeout}
		})
	})
}

// refusal is what people are told beside the code of an append that was refused here and now.
func (s *server) refusal(code raft.ErrorCode) string {
	switch code {
	case raft.KafkaStorageError:
		return fmt.Sprintf("its disk is full, to log.reserve.bytes=%d, or has refused a write: free some space, or make it larger", s.cfg.ReserveBytes)
	case raft.ThrottlingQuotaExceeded:
		return "too many appends wait for a majority of the voters"
	default:
		return ""
	}
}

// invalidRequiredAcks is Kafka's INVALID_REQUIRED_ACKS.
const invalidRequiredAcks raft.ErrorCode = 21

var noHint = wire.LeaderHint{Leader: raft.None, Epoch: -1, Node: wire.Node{ID: raft.None}}

// hintFor sends a client on, if the answer says that it came to the wrong member.
func (s *server) hintFor(h raft.Header) wire.LeaderHint {
	if h.Error != raft.NotLeaderOrFollower && h.Error != raft.FencedLeaderEpoch {
		return noHint
	}
	// The table as of now: the view is as old as the last round, and this may be the first answer of a new epoch.
	st := s.replica.Status()
	v := &view{Status: st, table: s.members.table(st.Voters)}
	return v.hint(config.Client)
}

// clientFetch reads below the high watermark, or sends the consumer to a nearer member.
func (s *server) clientFetch(in *transport.Inbound, r *wire.Request, f *wire.ClientFetchRequest) error {
	v := s.view.Load()
	if id := readReplica(s.cfg.ReadReplicas, v, f.Rack, f.Offset, in.Conn.ID); id != raft.None && r.Version >= preferredReadReplicaSince {
		s.reply(in, r, &wire.ClientFetchResponse{HighWatermark: v.shown, LogStart: v.LogStart, ReadReplica: id, Hint: noHint})
		return nil
	}
	read := replica.Read{
		LeaderEpoch: f.LeaderEpoch,
		Offset:      f.Offset,
		MinBytes:    f.MinBytes,
		MaxBytes:    min(f.MaxBytes, maxReadBytes),
		MaxWait:     min(f.MaxWait, maxReadWait),
	}
	return s.handOn(func() {
		s.ask(waitOn(in, func(result any) {
			done := result.(replica.ReadResult)
			resp := &wire.ClientFetchResponse{
				Error: done.Error, HighWatermark: done.HighWatermark, LogStart: done.LogStart,
				ReadReplica: raft.None, Hint: s.hintFor(done.Header),
			}
			if done.Range == nil {
				replyRecords(s.codecs.client, in, r, resp, wire.Extra{}, storage.Records{Bytes: done.Records})
				return
			}
			s.beside(in, func() (err error) {
				var found storage.Records
				if r.Splits() {
					found, err = done.Range.Find()
				} else {
					found.Bytes, err = done.Range.Read()
				}
				if err == nil {
					replyRecords(s.codecs.client, in, r, resp, wire.Extra{}, found)
				}
				return err
			})
		}), func(id raft.RequestID) replica.Event {
			read.ID = id
			return read
		})
	})
}

// beside runs a read of the log on a goroutine of its own, a few at a time. If it fails the connection is closed: what is
// wrong with the disk is for the loop to find out, which uses it all the time.
func (s *server) beside(in *transport.Inbound, read func() error) {
	s.workers.Go(func() {
		select {
		case s.reading <- struct{}{}:
			defer func() { <-s.reading }()
		case <-s.done:
			in.Close(errEnded)
			return
		}
		if err := read(); err != nil {
			s.Log.Warn("Could not read the log for a client", "peer", in.Conn.Remote.String(), "err", err)
			in.Close(err)
		}
	})
}

const (
	maxReadWait               = 30 * time.Second // a client that has gone is forgotten after this
	maxAppendWait             = 2 * time.Minute  // likewise
	preferredReadReplicaSince = 11               // version of Fetch (KIP-392)
	maxReadBytes              = 1 << 20          // of one answer to a consumer, one batch excepted: the loop reads it
)

func (s *server) listOffsets(in *transport.Inbound, r *wire.Request, l *wire.ListOffsetsRequest) error {
	timestamp := l.Timestamp
	switch timestamp {
	case wire.TimestampEarliestHere:
		timestamp = replica.Earliest // nothing is kept elsewhere
	case wire.TimestampTiered:
		s.reply(in, r, &wire.ListOffsetsResponse{Timestamp: -1, Offset: -1, LeaderEpoch: -1})
		return nil
	}
	return s.handOn(func() {
		s.ask(waitOn(in, func(result any) {
			done := result.(replica.ListOffsetsResult)
			resp := &wire.ListOffsetsResponse{Error: done.Error, Timestamp: done.Timestamp, Offset: done.Offset, LeaderEpoch: done.Epoch}
			if done.Search == nil {
				s.reply(in, r, resp)
				return
			}
			s.beside(in, func() (err error) {
				if resp.Offset, resp.Timestamp, resp.LeaderEpoch, err = done.Search.Run(); err == nil {
					s.reply(in, r, resp)
				}
				return err
			})
		}), func(id raft.RequestID) replica.Event {
			return replica.ListOffsets{ID: id, LeaderEpoch: l.LeaderEpoch, Timestamp: timestamp}
		})
	})
}

func (s *server) offsetForLeaderEpoch(in *transport.Inbound, r *wire.Request, o *wire.OffsetForLeaderEpochRequest) error {
	return s.handOn(func() {
		s.ask(waitOn(in, func(result any) {
			done := result.(replica.EpochEndResult)
			s.reply(in, r, &wire.OffsetForLeaderEpochResponse{Error: done.Error, Epoch: done.Epoch, EndOffset: done.End})
		}), func(id raft.RequestID) replica.Event {
			return replica.EpochEnd{ID: id, LeaderEpoch: o.CurrentEpoch, Epoch: o.Epoch}
		})
	})
}

func (s *server) handleDescribeQuorum(in *transport.Inbound, r *wire.Request, body raft.Request) error {
	return s.handOn(func() {
		s.ask(waitOn(in, func(result any) {
			in.Reply(s.codecs.client.Encode(r, result, wire.Extra{Now: s.now(), Wall: s.Wall()}))
		}), func(id raft.RequestID) replica.Event {
			return replica.Core{Event: raft.Inbound{ID: id, Conn: raft.ConnID(in.Conn.ID), Request: body}}
		})
	})
}

// metadata tells clients who leads, and every member that they may ask.
func (s *server) metadata() *wire.MetadataResponse {
	v := s.view.Load()
	m := &wire.MetadataResponse{
		Brokers:    nodes(v.table, config.Client),
		Controller: v.leaderForClients(),
		Leader:     v.leaderForClients(),
		Epoch:      v.Election.Epoch,
	}
	if _, reachable := node(v.table, m.Leader, config.Client); !reachable {
		m.Error, m.Leader, m.Controller = wire.LeaderNotAvailable, raft.None, raft.None
	}
	for _, n := range m.Brokers {
		m.Replicas = append(m.Replicas, n.ID)
		if _, votes := v.Voters.ByID(n.ID); votes {
			m.InSync = append(m.InSync, n.ID)
		}
	}
	return m
}
