package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// initProducerID hands out a producer id. Clients ask any member for one and would give up on NOT_LEADER_OR_FOLLOWER,
// so a member that does not lead asks the leader on their behalf.
func (s *server) initProducerID(in *transport.Inbound, r *wire.Request, i *wire.InitProducerIDRequest) error {
	if i.Transactional {
		s.reply(in, r, &wire.InitProducerIDResponse{Error: raft.InvalidRequest, ProducerID: -1, ProducerEpoch: -1})
		return nil
	}
	return s.handOn(func() {
		s.ask(waitOn(in, func(result any) {
			done := result.(replica.InitProducerResult)
			if done.Error != raft.NotLeaderOrFollower {
				s.reply(in, r, &wire.InitProducerIDResponse{Error: done.Error, ProducerID: done.ProducerID, ProducerEpoch: done.ProducerEpoch})
				return
			}
			s.forward(in, r, s.hintFor(done.Header).Node)
		}), func(id raft.RequestID) replica.Event { return replica.InitProducer{ID: id} })
	})
}

// maxForwards bounds the producer ids that are being asked for at once; more are told to try again.
const maxForwards = 32

// forward asks the leader for a producer id, beside the loop. Without a leader the client is told to try again:
// COORDINATOR_NOT_AVAILABLE is the one error that every client takes so here.
func (s *server) forward(in *transport.Inbound, r *wire.Request, leader wire.Node) {
	again := &wire.InitProducerIDResponse{Error: wire.CoordinatorNotAvailable, ProducerID: -1, ProducerEpoch: -1}
	if leader.Host == "" || leader.ID == s.cfg.NodeID || s.forwards.Add(1) > maxForwards {
		if leader.Host != "" && leader.ID != s.cfg.NodeID {
			s.forwards.Add(-1)
		}
		s.reply(in, r, again)
		return
	}
	s.workers.Go(func() {
		defer s.forwards.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.RequestTimeout)
		defer cancel()
		stop := context.AfterFunc(s.ended, cancel)
		defer stop()
		id, code, err := askProducerID(ctx, s.Dial, leader)
		switch {
		case err != nil:
			s.Log.Debug("Could not get a producer id from the leader", "leader", leader.ID, "err", err)
			s.reply(in, r, again)
		case code != raft.NoError:
			s.reply(in, r, again)
		default:
			s.reply(in, r, &wire.InitProducerIDResponse{ProducerID: id})
		}
	})
}

// askProducerID sends InitProducerId version 0, the one request that a member sends as a client: plain fields only.
//
//	request  length int32, key int16, version int16, correlation int32, client id string, transactional id null, timeout int32
//	response length int32, correlation int32, throttle int32, error int16, producer id int64, producer epoch int16
func askProducerID(ctx context.Context, dial transport.DialFunc, leader wire.Node) (int64, raft.ErrorCode, error) {
	conn, err := dial(ctx, "tcp", net.JoinHostPort(leader.Host, strconv.Itoa(int(leader.Port))))
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	const clientID = "quorum"
	be := binary.BigEndian
	request := be.AppendUint32(nil, 2+2+4+2+uint32(len(clientID))+2+4)
	request = be.AppendUint16(request, uint16(wire.InitProducerID))
	request = be.AppendUint16(request, 0)
	request = be.AppendUint32(request, 1)
	request = be.AppendUint16(request, uint16(len(clientID)))
	request = append(request, clientID...)
	request = be.AppendUint16(request, 0xffff)
	request = be.AppendUint32(request, 0xffffffff) // transaction timeout: none
	if _, err := conn.Write(request); err != nil {
		return 0, 0, err
	}
	var response [4 + 4 + 4 + 2 + 8 + 2]byte
	if _, err := io.ReadFull(conn, response[:]); err != nil {
		return 0, 0, err
	}
	if n := be.Uint32(response[:]); int(n) != len(response)-4 {
		return 0, 0, fmt.Errorf("InitProducerId answer of %d bytes, want %d", n, len(response)-4)
	}
	return int64(be.Uint64(response[14:])), raft.ErrorCode(be.Uint16(response[12:])), nil
}
