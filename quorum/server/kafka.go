package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// errEnded closes a connection whose request came too late.
var errEnded = errors.New("the member has ended")

// serveKafka serves the listeners that speak Kafka's protocol.
func (s *server) serveKafka(listeners map[string]net.Listener) []*transport.Server {
	var servers []*transport.Server
	serve := func(name string, codec *wire.Codec, limits transport.Limits, handle func(*transport.Inbound, *wire.Request) error) {
		l, ok := listeners[name]
		if !ok {
			return
		}
		delete(listeners, name) // the transport closes it
		t := &transport.Server{Limits: limits}
		t.Handle = func(in *transport.Inbound) error {
			r, err := codec.Decode(in.Frame)
			switch {
			case err != nil:
				return err
			case r.Answer != nil:
				in.Reply(r.Answer)
				return nil
			case r.Body == nil:
				in.Drop()
				return nil
			}
			s.metrics.requests.count(name, r.Key)
			return handle(in, r)
		}
		t.Closed = func(c *transport.Conn, why error) {
			level := slog.LevelDebug
			if errors.Is(why, transport.ErrUnreadable) { // the peer asks again, and should not be the only one to know
				level = slog.LevelWarn
			}
			s.Log.Log(context.Background(), level, "Closed connection", "listener", name, "peer", c.Remote.String(), "err", why)
			if name == s.cfg.ControllerListener {
				s.post(func() { s.claims.closed(raft.ConnID(c.ID)) })
			}
		}
		t.Refused = func(remote net.Addr, why string) {
			s.metrics.refusedConnections.Add(1)
			s.Log.Warn("Refused connection", "listener", name, "peer", remote.String(), "reason", why)
		}
		servers = append(servers, t)
		s.workers.Go(func() {
			if err := t.Serve(l); err != nil {
				s.post(func() {
					s.fatal = &Fatal{Token: ListenFailed, Message: fmt.Sprintf("listener %s: %v", name, err), Err: err}
				})
			}
		})
	}
	peers := s.limits(peerInFlight)
	peers.FrameBytes = min(peers.FrameBytes, peerFrameBytes)
	serve(s.cfg.ControllerListener, s.codecs.controller, peers, s.handlePeer)
	serve(config.Client, s.codecs.client, s.limits(clientInFlight), s.handleClient)
	return servers
}

// Requests of one connection that may be under way at once. A peer has one; Kafka's clients have up to five.
const (
	peerInFlight   = 2
	clientInFlight = 5
)

// peerFrameBytes bounds the frames on CONTROLLER, where no request is large: a few strangers who announce large ones and
// send them slowly would take the room (queued.max.request.bytes) that the voters' own need.
const peerFrameBytes = 128 << 10

func (s *server) limits(inFlight int) transport.Limits {
	l := transport.DefaultLimits()
	l.FrameBytes = s.cfg.MaxRequestBytes
	l.QueuedBytes = s.cfg.MaxQueuedBytes
	l.InFlight = inFlight
	l.Connections = s.cfg.MaxConnections
	l.PerIP = s.cfg.MaxConnectionsIP
	l.AcceptRate = s.cfg.MaxConnectionRate
	l.Idle = s.cfg.MaxConnectionsIdle
	return l
}

// handlePeer takes in a request on the CONTROLLER listener.
func (s *server) handlePeer(in *transport.Inbound, r *wire.Request) error {
	codec := s.codecs.controller
	switch body := r.Body.(type) {
	case *wire.DescribeClusterRequest:
		in.Reply(codec.Encode(r, s.describeCluster(s.cfg.ControllerListener), wire.Extra{}))
		return nil
	case *wire.UpdateFeaturesRequest:
		return s.handOn(func() { s.updateFeatures(in, r, body) })
	case raft.FetchRequest:
		return s.handOn(func() { s.peerFetch(in, r, body) })
	case raft.FetchSnapshotRequest:
		return s.handOn(func() { s.peerFetchSnapshot(in, r, body) })
	case raft.Request:
		return s.handOn(func() {
			s.ask(waitOn(in, func(result any) {
				in.Reply(codec.Encode(r, result, wire.Extra{Now: s.now(), Wall: s.Wall()}))
			}), func(id raft.RequestID) replica.Event {
				return replica.Core{Event: raft.Inbound{ID: id, Conn: raft.ConnID(in.Conn.ID), Request: body}}
			})
		})
	default:
		return fmt.Errorf("%v cannot be served", r.Header)
	}
}

// updateFeatures raises kraft.version. Kafka's client goes to another member if this one does not lead.
func (s *server) updateFeatures(in *transport.Inbound, r *wire.Request, u *wire.UpdateFeaturesRequest) {
	s.ask(waitOn(in, func(result any) {
		done := result.(raft.UpgradeResult)
		if done.Error == raft.NotLeaderOrFollower {
			done.Error = raft.NotController
		}
		in.Reply(s.codecs.controller.Encode(r, &wire.UpdateFeaturesResponse{Error: done.Error, Message: done.Message}, wire.Extra{}))
	}), func(id raft.RequestID) replica.Event {
		return replica.Core{Event: raft.UpgradeKRaft{ID: id, Version: u.KRaftVersion}}
	})
}

// waitOn is the waiter of a request that came over the wire.
func waitOn(in *transport.Inbound, reply func(result any)) waiter {
	return waiter{reply: reply, drop: func() { in.Close(errEnded) }}
}

// handOn gives work to the loop, or says that the connection is of no use any more.
func (s *server) handOn(f func()) error {
	if !s.post(f) {
		return errEnded
	}
	return nil
}

// peerFetch takes in a replica's Fetch: what it says of itself goes into the member table, and if its copy of the table
// is old, the answer brings the new one.
func (s *server) peerFetch(in *transport.Inbound, r *wire.Request, f raft.FetchRequest) {
	st := s.view.Load()
	if s.leads && f.Replica.ID >= 0 && f.Replica.ID != st.Self.ID {
		if s.tooManyObservers(st, f.Replica) {
			s.metrics.refusedObservers.Add(1)
			in.Reply(s.codecs.controller.Encode(r, raft.FetchResponse{Header: raft.Header{TopError: raft.ThrottlingQuotaExceeded, Leader: raft.None}}, wire.Extra{}))
			return
		}
		s.claimed(raft.ConnID(in.Conn.ID), in.Conn.Remote.String(), f.Replica)
		if r.Tag != nil && f.Epoch == s.epoch {
			s.members.heard(s.now(), s.epoch, f.Replica, r.Tag)
		}
	}
	if r.Tag != nil {
		f.BelowReserve = r.Tag.BelowReserve
	}
	s.ask(waitOn(in, func(result any) {
		fetched := result.(replica.FetchResult)
		extra := wire.Extra{}
		if s.leads && r.Tag != nil && r.Tag.TableVersion != s.members.version {
			extra.Table = s.members.table(s.view.Load().Voters)
		}
		replyRecords(s.codecs.controller, in, r, fetched.FetchResponse, extra, storage.Records{Bytes: fetched.Records, Section: fetched.Section})
	}), func(id raft.RequestID) replica.Event {
		return replica.Core{Event: raft.Inbound{ID: id, Conn: raft.ConnID(in.Conn.ID), Request: f}}
	})
}

// tooManyObservers reports whether an observer is over the bound: a new one when the places are taken by others that still
// fetch. Two that came at once may both have been let in, as the view is a moment old; then the order of the view decides,
// so that one stays.
func (s *server) tooManyObservers(v *view, key raft.ReplicaKey) bool {
	if v.Voters.Contains(key) {
		return false
	}
	observers := 0
	for _, p := range v.Progress {
		if p.Key == key {
			break
		}
		if !v.Voters.Contains(p.Key) && p.LastFetch.Add(forgetAfter) > v.now {
			observers++
		}
	}
	return observers >= s.cfg.MaxObservers
}

// describeCluster lists the members as that listener's callers reach them.
func (s *server) describeCluster(listener string) *wire.DescribeClusterResponse {
	v := s.view.Load()
	return &wire.DescribeClusterResponse{Controller: v.leaderForClients(), Nodes: nodes(v.table, listener)}
}
