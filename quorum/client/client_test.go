package client

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/status"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is a CONTROLLER listener that answers what it is told.
type member struct {
	address string
	leader  atomic.Int32 // who it says leads
	leads   atomic.Bool
	nodes   []wire.Node
}

// startServer answers requests of one kind as a test makes up, the topic's own aside. On nil it hangs up.
func startServer(t *testing.T, serves wire.Serves, answer func(self wire.Node, body any) any) (address string) {
	t.Helper()
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	self := node(t, 0, ln.Addr().String())
	c := &wire.Codec{Serves: serves, Listener: "PEERS", ClusterID: "c", Topic: "__cluster_metadata", TopicID: raft.UUID{15: 1}}
	s := &transport.Server{Limits: transport.DefaultLimits(), Handle: func(in *transport.Inbound) error {
		r, err := c.Decode(in.Frame)
		switch {
		case err != nil:
			return err
		case r.Body == nil:
			in.Reply(r.Answer)
			return nil
		}
		said := answer(self, r.Body)
		if said == nil {
			return errors.New("gone")
		}
		in.Reply(c.Encode(r, said, wire.Extra{Now: nowInstant, Wall: time.UnixMilli(1e12)}))
		return nil
	}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func startMember(t *testing.T) *member {
	t.Helper()
	m := &member{}
	m.leader.Store(-1)
	m.address = startServer(t, wire.Peers, func(_ wire.Node, body any) any {
		if _, ok := body.(*wire.DescribeClusterRequest); ok {
			return &wire.DescribeClusterResponse{Controller: raft.NodeID(m.leader.Load()), Nodes: m.nodes}
		}
		if !m.leads.Load() {
			return raft.DescribeQuorumResponse{Error: raft.NotLeaderOrFollower, Leader: -1}
		}
		return raft.DescribeQuorumResponse{
			Leader: 1, Epoch: 7, HighWatermark: 40,
			Voters: []raft.ReplicaProgress{
				{Key: raft.ReplicaKey{ID: 0, DirectoryID: raft.UUID{1}}, LogEnd: 35, LastFetch: nowInstant.Add(-2 * time.Second), LastCaughtUp: nowInstant.Add(-2 * time.Second)},
				{Key: raft.ReplicaKey{ID: 1}, LogEnd: 42, LastFetch: nowInstant, LastCaughtUp: nowInstant},
			},
			Observers: []raft.ReplicaProgress{{Key: raft.ReplicaKey{ID: 1000}, LogEnd: 42, LastFetch: -1, LastCaughtUp: -1}},
			Nodes:     []raft.Voter{{Key: raft.ReplicaKey{ID: 1}, Endpoints: []raft.Endpoint{{Name: "ADMIN", Host: "q-1", Port: 9091}}}},
		}
	})
	return m
}

func node(t *testing.T, id raft.NodeID, address string) wire.Node {
	t.Helper()
	a := net.TCPAddrFromAddrPort(must(net.ResolveTCPAddr("tcp", address)).AddrPort())
	return wire.Node{ID: id, Host: a.IP.String(), Port: uint16(a.Port)}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestDescribeQuorumFindsTheLeader(t *testing.T) {
	follower, leader := startMember(t), startMember(t)
	nodes := []wire.Node{node(t, 0, follower.address), node(t, 1, leader.address)}
	follower.nodes = nodes
	follower.leader.Store(1)
	leader.leads.Store(true)
	var c Client
	got, err := c.DescribeQuorum(t.Context(), []string{closedAddress(t), follower.address})
	if err != nil {
		t.Fatal(err)
	}
	want := &Quorum{
		ClusterID: "c", LeaderID: 1, LeaderEpoch: 7, HighWatermark: 40, MaxFollowerLag: 7, MaxFollowerLagTimeMs: 2000,
		Voters: []Replica{
			{NodeID: 0, DirectoryID: "AQAAAAAAAAAAAAAAAAAAAA", LogEndOffset: 35, Lag: 7, LastFetchTimestamp: 1e12 - 2000, LastCaughtUpTimestamp: 1e12 - 2000, Status: "Follower"},
			{NodeID: 1, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA", LogEndOffset: 42, LastFetchTimestamp: 1e12, LastCaughtUpTimestamp: 1e12, Status: "Leader", Endpoints: []Endpoint{{"ADMIN", "q-1", 9091}}},
		},
		Observers: []Replica{{NodeID: 1000, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA", LogEndOffset: 42, LastFetchTimestamp: -1, LastCaughtUpTimestamp: -1, Status: "Observer"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if e, ok := got.Endpoint(1, "ADMIN"); !ok || e.Address() != "q-1:9091" {
		t.Errorf("ADMIN of the leader: %v %v", e, ok)
	}
}

// TestDescribeQuorumDuringAnElection: a member that knows no leader, and one that has just lost it, are asked again.
func TestDescribeQuorumDuringAnElection(t *testing.T) {
	m := startMember(t)
	m.nodes = []wire.Node{node(t, 1, m.address)}
	done := make(chan error, 1)
	go func() {
		_, err := (&Client{}).DescribeQuorum(t.Context(), []string{m.address})
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("gave up during an election: %v", err)
	case <-time.After(150 * time.Millisecond):
	}
	m.leader.Store(1)
	select {
	case err := <-done:
		t.Fatalf("gave up with a member that does not lead yet: %v", err)
	case <-time.After(150 * time.Millisecond):
	}
	m.leads.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestDescribeQuorumSaysWhy(t *testing.T) {
	nothing := closedAddress(t)
	_, err := (&Client{}).DescribeQuorum(t.Context(), []string{nothing})
	if want := "no leader was found: " + nothing + ": connect: connection refused"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	m := startMember(t)
	m.nodes = []wire.Node{node(t, 2, nothing)}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = (&Client{}).DescribeQuorum(ctx, []string{m.address, nothing})
	if want := "no leader was found: " + m.address + ": knows no leader; " + nothing + ": connect: connection refused"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	// Who leads, by all that is known, is gone.
	m.leader.Store(2)
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = (&Client{}).DescribeQuorum(ctx, []string{m.address})
	if want := "no leader was found: " + m.address + " says that node 2 leads: " + nothing + ": connect: connection refused"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	// The wrong kind of listener.
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	go func() {
		c := must(ln.Accept())
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n"))
		_ = c.Close()
	}()
	_, err = (&Client{}).DescribeQuorum(t.Context(), []string{ln.Addr().String()})
	if err == nil || !strings.HasSuffix(err.Error(), "is it a listener that speaks Kafka's protocol?") {
		t.Errorf("asked HTTP: %v", err)
	}
	_ = ln.Close()

	// One that never answers.
	ln = must(net.Listen("tcp", "127.0.0.1:0"))
	defer ln.Close()
	_, err = (&Client{Timeout: 30 * time.Millisecond}).DescribeQuorum(t.Context(), []string{ln.Addr().String()})
	if want := "no leader was found: " + ln.Addr().String() + ": does not answer in time"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func closedAddress(t *testing.T) string {
	t.Helper()
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	defer ln.Close()
	return ln.Addr().String()
}

// health serves one status after the other; the last for ever.
func health(t *testing.T, views ...status.Member) string {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := min(int(n.Add(1)), len(views)) - 1
		if r.URL.Path != status.MemberPath || i < 0 {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(views[i])
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestAwaitHandoff(t *testing.T) {
	accepted := &status.HandoffAccepted{ID: "1-a", From: 1, Target: status.ReplicaKey{NodeID: 2}, Epoch: 7}
	at := func(h status.Handoff) status.Member {
		h.From, h.Target, h.FromEpoch = 1, 2, 7
		return status.Member{Handoff: &h}
	}
	ms := status.Duration(time.Millisecond)
	old := []status.Member{
		{Handoff: &status.Handoff{ID: "1-9", Phase: status.Succeeded, From: 1, FromEpoch: 3, WriteGap: 99 * ms}}, // an earlier one
		at(status.Handoff{ID: "1-a", Phase: status.Converging}),
		at(status.Handoff{ID: "1-a", Phase: status.Pausing}),
		at(status.Handoff{ID: "1-a", Phase: status.Resigned}),
	}
	successor := []status.Member{{}, {}, {}, {}, at(status.Handoff{Phase: status.Succeeded, To: 2, ToEpoch: 8, WriteGap: 4 * ms, MeasuredBy: "successor"})}

	t.Run("both tell", func(t *testing.T) {
		all := append(slices.Clone(old), at(status.Handoff{ID: "1-a", Phase: status.Resigned}), at(status.Handoff{ID: "1-a", Phase: status.Resigned}),
			at(status.Handoff{ID: "1-a", Phase: status.Succeeded, To: 2, ToEpoch: 8, WriteGap: 9 * ms, MeasuredBy: "old-leader"}))
		var phases []string
		h, err := (&Client{}).AwaitHandoff(t.Context(), accepted, []string{health(t, all...), health(t, successor...)}, func(h status.Handoff) { phases = append(phases, h.Phase) })
		if err != nil || h.WriteGap != 9*ms || h.MeasuredBy != "old-leader" {
			t.Errorf("got %+v, %v", h, err)
		}
		if want := []string{status.Converging, status.Pausing, status.Resigned, status.Succeeded}; !slices.Equal(phases, want) {
			t.Errorf("phases %v, want %v", phases, want)
		}
	})
	t.Run("only the successor", func(t *testing.T) {
		h, err := (&Client{}).AwaitHandoff(t.Context(), accepted, []string{closedAddress(t), health(t, successor...)}, nil)
		if err != nil || h.WriteGap != 4*ms || h.To != 2 {
			t.Errorf("got %+v, %v", h, err)
		}
	})
	t.Run("aborted", func(t *testing.T) {
		h, err := (&Client{}).AwaitHandoff(t.Context(), accepted, []string{health(t, at(status.Handoff{ID: "1-a", Phase: status.Aborted, Message: "why"}))}, nil)
		if err != nil || h.Phase != status.Aborted || h.Message != "why" {
			t.Errorf("got %+v, %v", h, err)
		}
	})
	t.Run("never ends", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		h, err := (&Client{}).AwaitHandoff(ctx, accepted, []string{health(t, at(status.Handoff{ID: "1-a", Phase: status.Resigned}))}, nil)
		if err == nil || h == nil || h.Phase != status.Resigned {
			t.Errorf("got %+v, %v", h, err)
		}
	})
}

func TestHandoffFollowsTheLeader(t *testing.T) {
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req status.HandoffRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.ExpectEpoch != 7 || req.MaxPause.Std() != time.Second {
			t.Errorf("request %+v, %v", req, err)
		}
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(status.HandoffAccepted{ID: "x", From: 1})
	}))
	defer leader.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", leader.URL+status.HandoffPath)
		w.WriteHeader(http.StatusTemporaryRedirect)
		_ = json.NewEncoder(w).Encode(status.Problem{Code: status.NotLeader, Message: "node 1 leads"})
	}))
	defer other.Close()
	request := status.HandoffRequest{ExpectEpoch: 7, MaxPause: status.Duration(time.Second)}
	var c Client
	if a, err := c.Handoff(t.Context(), other.URL, request, false); err != nil || a.ID != "x" {
		t.Errorf("got %+v, %v", a, err)
	}
	_, err := c.Handoff(t.Context(), strings.TrimPrefix(other.URL, "http://"), request, true)
	if want := strings.TrimPrefix(other.URL, "http://") + ": NotLeader: node 1 leads"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestAgree: only what a majority of the leader's own voters says in the same epoch is confirmed.
func TestAgree(t *testing.T) {
	voters := []status.Replica{{NodeID: 0, DirectoryID: "a"}, {NodeID: 1, DirectoryID: "b"}, {NodeID: 2, DirectoryID: "c"}}
	leader := func(id, epoch int32, committed bool) *status.Member {
		return &status.Member{NodeID: id, DirectoryID: voters[id].DirectoryID, Role: "Leader", Epoch: epoch, EpochCommitted: committed, Voters: voters, Leader: &status.Leader{NodeID: id, Epoch: epoch}}
	}
	follower := func(id int32, directory string, follows, epoch int32) *status.Member {
		return &status.Member{NodeID: id, DirectoryID: directory, Role: "Follower", Epoch: epoch, Leader: &status.Leader{NodeID: follows, Epoch: epoch}}
	}
	none := Agreement{Leader: -1, Epoch: -1}
	for _, test := range []struct {
		name  string
		views []*status.Member
		want  Agreement
	}{
		{"nobody answers", []*status.Member{nil, nil, nil}, none},
		{"all agree", []*status.Member{follower(0, "a", 1, 7), leader(1, 7, true), follower(2, "c", 1, 7)}, Agreement{1, 7, []int32{0, 1, 2}, 3}},
		{"a majority", []*status.Member{nil, leader(1, 7, true), follower(2, "c", 1, 7)}, Agreement{1, 7, []int32{1, 2}, 3}},
		{"the leader alone", []*status.Member{nil, leader(1, 7, true), nil}, none},
		{"nothing committed yet", []*status.Member{follower(0, "a", 1, 7), leader(1, 7, false), nil}, none},
		{"a leader that was cut off", []*status.Member{follower(0, "a", 2, 8), leader(1, 7, true), follower(2, "c", 2, 8)}, none},
		{"two leaders", []*status.Member{follower(0, "a", 2, 8), leader(1, 7, true), leader(2, 8, true)}, Agreement{2, 8, []int32{0, 2}, 3}},
		{"an observer does not count", []*status.Member{leader(1, 7, true), follower(1000, "x", 1, 7), nil}, none},
		{"a voter on a new disk does not count", []*status.Member{leader(1, 7, true), follower(2, "new", 1, 7), nil}, none},
		{"one member asked twice", []*status.Member{leader(1, 7, true), leader(1, 7, true), nil}, none},
		{"a candidate of a newer epoch", []*status.Member{follower(0, "a", 1, 7), leader(1, 7, true), {NodeID: 2, DirectoryID: "c", Role: "Candidate", Epoch: 8}}, none},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Agree(test.views)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
