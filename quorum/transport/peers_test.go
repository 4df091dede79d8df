package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

func codec() *wire.Codec {
	return &wire.Codec{
		Serves: wire.Peers, Listener: "CONTROLLER", ClusterID: "c", Topic: "__cluster_metadata", TopicID: raft.UUID{15: 1},
		ClientID: "member-1", KRaft: &raft.VersionRange{Max: 1},
	}
}

// replies collects what Peers reports.
type replies struct {
	peers *Peers
	got   chan Reply
	lost  chan raft.ConnectionLost
	dials atomic.Int32
}

func newPeers(t *testing.T) *replies {
	r := &replies{got: make(chan Reply, 100), lost: make(chan raft.ConnectionLost, 100)}
	r.peers = &Peers{
		Codec: codec(), RequestTimeout: 5 * time.Second,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			r.dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		OnReply: func(reply Reply) { r.got <- reply },
		OnLost:  func(l raft.ConnectionLost) { r.lost <- l },
	}
	t.Cleanup(r.peers.Close)
	return r
}

func destination(t *testing.T, id raft.NodeID, address string) raft.Destination {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return raft.Destination{ID: id, Host: host, Port: uint16(n)}
}

// member answers requests as a real one would, with the response it is told.
func member(answer func(*wire.Request) any, extra wire.Extra) *Server {
	c := codec()
	return &Server{Limits: DefaultLimits(), Handle: func(in *Inbound) error {
		r, err := c.Decode(in.Frame)
		if err != nil {
			return err
		}
		if r.Body == nil {
			in.Reply(r.Answer)
			return nil
		}
		in.Reply(c.Encode(r, answer(r), extra))
		return nil
	}}
}

// TestB56EveryRequestOverSockets sends each request that members exchange and gets its response back, through real
// connections: versions, headers and correlation have to fit, not only bodies.
func TestB56EveryRequestOverSockets(t *testing.T) {
	cluster := "c"
	endpoints := []raft.Endpoint{{Name: "CONTROLLER", Host: "q-1", Port: 9093}}
	head := raft.Header{Leader: 1, Epoch: 7, LeaderEndpoints: endpoints}
	key := raft.ReplicaKey{ID: 2, DirectoryID: raft.UUID{1}}
	table := &wire.MemberTable{Version: 9, Members: []wire.Member{{Key: key, Listeners: endpoints, Rack: "a", BelowReserve: true}}}
	for _, test := range []struct {
		name     string
		request  raft.Request
		response raft.Response
	}{
		{"Vote", raft.VoteRequest{ClusterID: &cluster, Voter: key, Replica: key, Epoch: 7, Last: raft.OffsetAndEpoch{Offset: 5, Epoch: 6}}, raft.VoteResponse{Header: head, Granted: true}},
		{"pre-vote", raft.VoteRequest{ClusterID: &cluster, Voter: key, Replica: key, Epoch: 7, PreVote: true}, raft.VoteResponse{Header: head}},
		{"BeginQuorumEpoch", raft.BeginQuorumEpochRequest{ClusterID: &cluster, Voter: key, Leader: 1, Epoch: 7, Endpoints: endpoints}, raft.BeginQuorumEpochResponse{Header: head}},
		{"EndQuorumEpoch", raft.EndQuorumEpochRequest{ClusterID: &cluster, Leader: 1, Epoch: 7, Successors: []raft.ReplicaKey{key}, Endpoints: endpoints}, raft.EndQuorumEpochResponse{Header: head}},
		{"Fetch", raft.FetchRequest{ClusterID: &cluster, Replica: key, Epoch: 7, Offset: 5, LastFetchedEpoch: 6, HighWatermark: -1, MaxWait: time.Second, MaxBytes: 100, BelowReserve: true}, raft.FetchResponse{Header: head, HighWatermark: 4, LogStart: 1}},
		{"UpdateRaftVoter", raft.UpdateRaftVoterRequest{ClusterID: &cluster, Epoch: 7, Voter: raft.Voter{Key: key, Endpoints: endpoints, KRaft: raft.VersionRange{Max: 1}}}, raft.UpdateRaftVoterResponse{Header: head}},
		{"a top-level error", raft.VoteRequest{ClusterID: &cluster, Voter: key, Replica: key, Epoch: 7}, raft.VoteResponse{Header: raft.Header{TopError: raft.InconsistentClusterID, Leader: raft.None}}},
		{"ApiVersions", raft.ApiVersionsRequest{}, raft.ApiVersionsResponse{KRaft: &raft.VersionRange{Max: 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			received := make(chan *wire.Request, 1)
			s := member(func(r *wire.Request) any { received <- r; return test.response }, wire.Extra{Records: [][]byte{[]byte("batch "), []byte("bytes")}, Table: table})
			to := destination(t, 1, serve(t, s))
			r := newPeers(t)
			tag := &wire.FetchTag{TableVersion: 8, Listeners: endpoints, Rack: "b", BelowReserve: true}
			r.peers.Send(raft.Send{Correlation: 77, To: to, Request: test.request}, tag)
			got := <-r.got
			if got.Outcome.Correlation != 77 || got.Outcome.Failure != raft.NoFailure || got.To != to {
				t.Fatalf("reported %+v", got)
			}
			if diff := cmp.Diff(test.response, got.Outcome.Response); diff != "" {
				t.Errorf("response (-want +got)\n%s", diff)
			}
			if _, probe := test.request.(raft.ApiVersionsRequest); !probe {
				in := <-received
				if diff := cmp.Diff(test.request, in.Body, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("request (-want +got)\n%s", diff)
				}
				if _, fetch := test.request.(raft.FetchRequest); fetch {
					if diff := cmp.Diff(tag, in.Tag); diff != "" {
						t.Errorf("tag (-want +got)\n%s", diff)
					}
					if string(got.Records) != "batch bytes" {
						t.Errorf("records %q", got.Records)
					}
					if diff := cmp.Diff(table, got.Table); diff != "" {
						t.Errorf("table (-want +got)\n%s", diff)
					}
				}
			}
		})
	}
}

var vote = raft.VoteRequest{Voter: raft.NoReplica, Replica: raft.ReplicaKey{ID: 2}, Epoch: 7}

func TestOneConnectionServesManyRequests(t *testing.T) {
	s := member(func(*wire.Request) any { return raft.VoteResponse{Header: raft.Header{Leader: raft.None}} }, wire.Extra{})
	to := destination(t, 1, serve(t, s))
	r := newPeers(t)
	for i := range 20 {
		r.peers.Send(raft.Send{Correlation: raft.Correlation(i), To: to, Request: vote}, nil)
		if got := <-r.got; got.Outcome.Correlation != raft.Correlation(i) || got.Outcome.Response == nil {
			t.Fatalf("outcome %d is %+v", i, got.Outcome)
		}
	}
	if n := r.dials.Load(); n != 1 {
		t.Errorf("dialed %d times", n)
	}
}

// Rule 6 of package raft: a leader takes a Fetch on the same connection for one that follows its last answer. So a request
// without an outcome and a newer one never share a connection.
func TestAConnectionCarriesOneRequestAtATime(t *testing.T) {
	c := codec()
	arrived := make(chan *Inbound, 10)
	s := &Server{Limits: DefaultLimits(), Handle: func(in *Inbound) error {
		r, err := c.Decode(in.Frame)
		switch {
		case err != nil:
			return err
		case r.Body == nil:
			in.Reply(r.Answer)
		default:
			arrived <- in // parked
		}
		return nil
	}}
	to := destination(t, 1, serve(t, s))
	r := newPeers(t)
	var seen []uint64
	for i := range raft.Correlation(3) {
		r.peers.Send(raft.Send{Correlation: i, To: to, Request: vote}, nil)
		in := <-arrived
		if seen = append(seen, in.Conn.ID); slices.Contains(seen[:i], in.Conn.ID) {
			t.Errorf("connections %v: a request followed one that was not answered", seen)
		}
		if i > 0 {
			if got := <-r.got; got.Outcome.Correlation != i-1 || got.Outcome.Failure != raft.Disconnected {
				t.Errorf("the older request: %+v, want Disconnected", got.Outcome)
			}
		}
	}
	// Of those that wait for a connection only the newest is sent.
	for i := range raft.Correlation(20) {
		r.peers.Send(raft.Send{Correlation: 10 + i, To: to, Request: vote}, nil)
	}
	for i := range raft.Correlation(20) {
		want := raft.Outcome{Correlation: 9 + i, Failure: raft.Disconnected}
		if i == 0 {
			want.Correlation = 2
		}
		if got := (<-r.got).Outcome; got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	select {
	case l := <-r.lost:
		t.Errorf("told %+v although we ended the connections", l)
	default:
	}
}

// PR-28: the name of a bootstrap server may stand for many members; the one that was reached first may never know a leader.
func TestPR28BootstrapServerIsDialledAnewForEachRequest(t *testing.T) {
	s := member(func(*wire.Request) any { return raft.VoteResponse{Header: raft.Header{Leader: raft.None}} }, wire.Extra{})
	to := destination(t, -2, serve(t, s))
	r := newPeers(t)
	for i := range 3 {
		r.peers.Send(raft.Send{Correlation: raft.Correlation(i), To: to, Request: vote}, nil)
		if got := <-r.got; got.Outcome.Failure != raft.NoFailure || got.Outcome.Correlation != raft.Correlation(i) {
			t.Fatalf("request %d: %+v", i, got)
		}
	}
	if n := r.dials.Load(); n != 3 {
		t.Errorf("%d dials for 3 requests to a bootstrap server, want one each", n)
	}
}

// PR-28: one address that refuses does not hide the others.
func TestPR28DialTriesEveryAddressOfAName(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	conn, err := Dial(t.Context(), "tcp", net.JoinHostPort("localhost", port)) // ::1, if it is one of them, refuses
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	l.Close()
	if _, err := Dial(t.Context(), "tcp", net.JoinHostPort("localhost", port)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial a closed port: %v, want it to say that it was refused", err)
	}
	if _, err := Dial(t.Context(), "tcp", "no port"); err == nil {
		t.Error("an address without a port was dialled")
	}
}

// freeAddress returns an address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestPR26RefusedIsToldAndRetried also stands for a peer that comes up later: each request dials anew.
func TestPR26RefusedIsToldAndRetried(t *testing.T) {
	address := freeAddress(t)
	to := destination(t, 1, address)
	r := newPeers(t)
	r.peers.Send(raft.Send{Correlation: 1, To: to, Request: vote}, nil)
	if got := <-r.got; got.Outcome.Failure != raft.Refused {
		t.Errorf("got %+v, want Refused", got.Outcome)
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("the port was taken: %v", err)
	}
	s := member(func(*wire.Request) any { return raft.VoteResponse{} }, wire.Extra{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	r.peers.Send(raft.Send{Correlation: 2, To: to, Request: vote}, nil)
	if got := <-r.got; got.Outcome.Response == nil {
		t.Errorf("got %+v, want a response", got.Outcome)
	}
	s.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestConnectionLost is what fast failover lives on: the open request fails first, then it is told whether the process
// is gone (refused) or only the connection was cut.
func TestConnectionLost(t *testing.T) {
	for _, test := range []struct {
		name    string
		refused bool
	}{{"process gone", true}, {"connection cut", false}} {
		t.Run(test.name, func(t *testing.T) {
			conns := make(chan net.Conn, 2)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			c := codec()
			s := &Server{Limits: DefaultLimits()}
			s.Handle = func(in *Inbound) error {
				r, err := c.Decode(in.Frame)
				if err != nil {
					return err
				}
				if r.Body == nil {
					in.Reply(r.Answer)
				} else {
					conns <- in.Conn.net // a parked Fetch
				}
				return nil
			}
			served := make(chan error, 1)
			go func() { served <- s.Serve(ln) }()
			defer func() {
				s.Close()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			r := newPeers(t)
			r.peers.Send(raft.Send{Correlation: 1, To: destination(t, 5, ln.Addr().String()), Request: vote}, nil)
			nc := <-conns
			if test.refused {
				_ = ln.Close()
			}
			_ = nc.Close()
			if got := <-r.got; got.Outcome.Failure != raft.Disconnected || got.Outcome.Correlation != 1 {
				t.Errorf("got %+v, want Disconnected", got.Outcome)
			}
			if got, want := <-r.lost, (raft.ConnectionLost{Peer: 5, Refused: test.refused}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestPR25RequestTimeoutEndsTheConnection: a peer that swallows everything must not hold later requests back.
func TestPR25RequestTimeoutEndsTheConnection(t *testing.T) {
	c := codec()
	var silent atomic.Bool
	silent.Store(true)
	s := &Server{Limits: DefaultLimits(), Handle: func(in *Inbound) error {
		r, err := c.Decode(in.Frame)
		if err != nil {
			return err
		}
		if r.Body == nil {
			in.Reply(r.Answer)
		} else if !silent.Load() {
			in.Reply(c.Encode(r, raft.VoteResponse{}, wire.Extra{}))
		}
		return nil
	}}
	to := destination(t, 1, serve(t, s))
	r := newPeers(t)
	r.peers.RequestTimeout = 50 * time.Millisecond
	r.peers.Send(raft.Send{Correlation: 1, To: to, Request: vote}, nil)
	if got := <-r.got; got.Outcome.Failure != raft.Disconnected {
		t.Errorf("got %+v, want Disconnected", got.Outcome)
	}
	silent.Store(false)
	r.peers.RequestTimeout = 5 * time.Second
	r.peers.Send(raft.Send{Correlation: 2, To: to, Request: vote}, nil)
	if got := <-r.got; got.Outcome.Response == nil {
		t.Errorf("got %+v, want a response", got.Outcome)
	}
	if n := r.dials.Load(); n != 2 {
		t.Errorf("dialed %d times, want 2", n)
	}
	select {
	case l := <-r.lost:
		t.Errorf("told %+v although we ended the connection", l)
	default:
	}
}

func TestHandshakeWithAnOlderPeer(t *testing.T) {
	// It speaks ApiVersions 0 to 1 and Vote 0 to 1: no pre-vote.
	s := &Server{Limits: DefaultLimits(), Handle: func(in *Inbound) error {
		h, _, err := wire.ReadHeader(in.Frame)
		if err != nil {
			return err
		}
		correlation := []byte{byte(h.Correlation >> 24), byte(h.Correlation >> 16), byte(h.Correlation >> 8), byte(h.Correlation)}
		body := []byte{0, 0, 0, 0, 0, 2, 0, 18, 0, 0, 0, 1, 0, 52, 0, 0, 0, 1}
		if h.Version > 1 {
			body = []byte{0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 1}
		} else if h.Version == 1 {
			body = append(body, 0, 0, 0, 0)
		}
		in.Reply([][]byte{frame(string(correlation) + string(body))})
		return nil
	}}
	to := destination(t, 1, serve(t, s))
	r := newPeers(t)
	preVote := vote
	preVote.PreVote = true
	r.peers.Send(raft.Send{Correlation: 1, To: to, Request: preVote}, nil)
	if got := <-r.got; got.Outcome.Failure != raft.UnsupportedByPeer {
		t.Errorf("got %+v, want UnsupportedByPeer", got.Outcome)
	}
}

func TestDestinationThatMoves(t *testing.T) {
	answer := func(*wire.Request) any { return raft.VoteResponse{} }
	a, b := serve(t, member(answer, wire.Extra{})), serve(t, member(answer, wire.Extra{}))
	r := newPeers(t)
	for i, address := range []string{a, b} {
		to := destination(t, 1, address)
		r.peers.Send(raft.Send{Correlation: raft.Correlation(i), To: to, Request: vote}, nil)
		if got := <-r.got; got.To != to || got.Outcome.Response == nil {
			t.Errorf("got %+v from %v, want a response of %v", got.Outcome, got.To, to)
		}
	}
}

func TestCloseWhileDialing(t *testing.T) {
	r := newPeers(t)
	dialing := make(chan struct{})
	r.peers.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(dialing)
		<-ctx.Done()
		return nil, syscall.ETIMEDOUT
	}
	r.peers.Send(raft.Send{Correlation: 1, To: raft.Destination{ID: 1, Host: "h", Port: 1}, Request: vote}, nil)
	<-dialing
	r.peers.Close()
	select {
	case got := <-r.got:
		t.Errorf("reported %+v after Close", got)
	default:
	}
	r.peers.Send(raft.Send{Correlation: 2, To: raft.Destination{ID: 1, Host: "h", Port: 1}, Request: vote}, nil)
}
