package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// fakeLeader is a leader whose quorum a test makes up. on plays the core: it is called with the lock held.
type fakeLeader struct {
	address string

	mu    sync.Mutex
	state raft.DescribeQuorumResponse
	asked []raft.Request
	on    func(l *fakeLeader, r raft.Request) (code raft.ErrorCode, message string, hangUp bool)
}

var (
	dirA = raft.UUID{0xA}
	dirB = raft.UUID{0xB}
)

// nowInstant is the leader's clock.
const nowInstant = raft.Instant(time.Hour)

func fresh(id raft.NodeID, directory raft.UUID) raft.ReplicaProgress {
	return raft.ReplicaProgress{Key: raft.ReplicaKey{ID: id, DirectoryID: directory}, LogEnd: 100, LastFetch: nowInstant, LastCaughtUp: nowInstant}
}

func silent(id raft.NodeID, directory raft.UUID) raft.ReplicaProgress {
	p := fresh(id, directory)
	p.LastFetch, p.LastCaughtUp = nowInstant.Add(-time.Minute), nowInstant.Add(-time.Minute)
	return p
}

// startLeader leads voters 0 to n-1 as node 0. Node 3 observes. edit, if not nil, changes that before anybody asks.
func startLeader(t *testing.T, n int, edit func(*fakeLeader)) *fakeLeader {
	t.Helper()
	l := &fakeLeader{}
	l.state = raft.DescribeQuorumResponse{Leader: 0, Epoch: 7, HighWatermark: 100, Observers: []raft.ReplicaProgress{fresh(3, dirA)}}
	for i := range n {
		l.state.Voters = append(l.state.Voters, fresh(raft.NodeID(i), dirA))
	}
	if edit != nil {
		edit(l)
	}
	l.address = startServer(t, wire.Peers, func(self wire.Node, body any) any {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch body.(type) {
		case *wire.DescribeClusterRequest:
			return &wire.DescribeClusterResponse{Controller: 0, Nodes: []wire.Node{self, {ID: 3, Host: "q-3", Port: 9093}}}
		case raft.DescribeQuorumRequest:
			state := l.state
			state.Nodes = []raft.Voter{{Key: raft.ReplicaKey{ID: 0}, Endpoints: []raft.Endpoint{{Name: "ADMIN", Host: "q-0", Port: 9}, {Name: "PEERS", Host: self.Host, Port: self.Port}}}}
			return state
		}
		request := body.(raft.Request)
		l.asked = append(l.asked, request)
		code, message, hangUp := l.on(l, request)
		switch _, add := request.(raft.AddRaftVoterRequest); {
		case hangUp:
			return nil
		case add:
			return raft.AddRaftVoterResponse{Error: code, Message: message}
		default:
			return raft.RemoveRaftVoterResponse{Error: code, Message: message}
		}
	})
	return l
}

// requests are those to change the voters, in order.
func (l *fakeLeader) requests() []raft.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked)
}

// obey changes the voters as asked.
func (l *fakeLeader) obey(r raft.Request) {
	if add, ok := r.(raft.AddRaftVoterRequest); ok {
		l.state.Voters = append(l.state.Voters, fresh(add.Voter.ID, add.Voter.DirectoryID))
		l.state.Observers = nil
	}
	if remove, ok := r.(raft.RemoveRaftVoterRequest); ok {
		l.state.Voters = slices.DeleteFunc(l.state.Voters, func(v raft.ReplicaProgress) bool { return v.Key == remove.Voter })
	}
}

func voterIDs(c *Changed) string { return names(c.Voters) }

func TestAddVoterNeedsItsNodeIDOnly(t *testing.T) {
	l := startLeader(t, 3, func(l *fakeLeader) {
		l.state.Observers = append(l.state.Observers, silent(3, dirB)) // its old directory, not forgotten yet
		l.on = func(l *fakeLeader, r raft.Request) (raft.ErrorCode, string, bool) {
			if len(l.asked) < 3 {
				return raft.RequestTimedOut, "node 3 is 5 records behind", false
			}
			l.obey(r)
			return raft.NoError, "", false
		}
	})
	var told []string
	did, err := new(Client).AddVoter(t.Context(), []string{l.address}, Voter{NodeID: 3}, func(s string) { told = append(told, s) })
	if err != nil {
		t.Fatal(err)
	}
	if !did.Changed || did.AnswerLost || did.DirectoryID != dirA.String() || voterIDs(did) != "0, 1, 2, 3" {
		t.Errorf("got %+v", did)
	}
	want := raft.AddRaftVoterRequest{
		ClusterID: new("c"), Voter: raft.ReplicaKey{ID: 3, DirectoryID: dirA}, AckWhenCommitted: true,
		Endpoints: []raft.Endpoint{{Name: "PEERS", Host: "q-3", Port: 9093}},
	}
	if diff := cmp.Diff(raft.Request(want), l.requests()[2]); diff != "" {
		t.Errorf("asked (-want +got)\n%s", diff)
	}
	if want := "node 0 answers REQUEST_TIMED_OUT: node 3 is 5 records behind"; len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want %q once", told, want)
	}
	again, err := new(Client).AddVoter(t.Context(), []string{l.address}, Voter{NodeID: 3}, nil)
	if err != nil || again.Changed || len(l.requests()) != 3 {
		t.Errorf("the same again: %+v, %v after %d requests, want nothing to do", again, err, len(l.requests()))
	}
}

// TestChangeVotersWhoseAnswerIsLost: what was asked is looked for before anything is asked again, and a set that is shown
// counts only once it is committed.
func TestChangeVotersWhoseAnswerIsLost(t *testing.T) {
	add := func(c *Client, l *fakeLeader, tell func(string)) (*Changed, error) {
		return c.AddVoter(t.Context(), []string{l.address}, Voter{NodeID: 3}, tell)
	}
	remove := func(c *Client, l *fakeLeader, tell func(string)) (*Changed, error) {
		return c.RemoveVoter(t.Context(), []string{l.address}, Voter{NodeID: 2}, false, tell)
	}
	for _, test := range []struct {
		name   string
		change func(*Client, *fakeLeader, func(string)) (*Changed, error)
		hangUp bool
		voters string
	}{
		{"add, no answer", add, true, "0, 1, 2, 3"},
		{"add, timed out", add, false, "0, 1, 2, 3"},
		{"remove, no answer", remove, true, "0, 1"},
		{"remove, timed out", remove, false, "0, 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := startLeader(t, 3, func(l *fakeLeader) {
				l.on = func(l *fakeLeader, r raft.Request) (raft.ErrorCode, string, bool) {
					l.obey(r)
					for i := range l.state.Voters {
						l.state.Voters[i].LogEnd = 101
					}
					return raft.RequestTimedOut, "", test.hangUp
				}
			})
			waits := make(chan string, 10)
			done := make(chan error, 1)
			var did *Changed
			go func() {
				var err error
				did, err = test.change(new(Client), l, func(s string) { waits <- s })
				done <- err
			}()
			for s := range waits {
				if s == "the change is not committed yet" {
					break
				}
			}
			l.mu.Lock()
			l.state.HighWatermark = 101
			l.mu.Unlock()
			if err := <-done; err != nil || !did.Changed || did.AnswerLost != test.hangUp || voterIDs(did) != test.voters || len(l.requests()) != 1 {
				t.Errorf("got %+v, %v after %d requests", did, err, len(l.requests()))
			}
		})
	}
}

// TestChangeVotersInVain tells what is known when the time is up.
func TestChangeVotersInVain(t *testing.T) {
	for _, test := range []struct {
		name      string
		on        func(*fakeLeader, raft.Request) (raft.ErrorCode, string, bool)
		says      string
		unsettled bool
	}{
		{"refused", func(*fakeLeader, raft.Request) (raft.ErrorCode, string, bool) {
			return raft.RequestTimedOut, "node 3 is 5 records behind", false
		}, "add voter 3: time is up: node 0 answers REQUEST_TIMED_OUT: node 3 is 5 records behind; the voters are as they were", false},
		{"connection lost", func(*fakeLeader, raft.Request) (raft.ErrorCode, string, bool) {
			return 0, "", true
		}, "the connection was closed; it may have been made all the same: see quorum describe status", true},
		{"appended, not committed", func(l *fakeLeader, r raft.Request) (raft.ErrorCode, string, bool) {
			l.obey(r)
			for i := range l.state.Voters {
				l.state.Voters[i].LogEnd = 101
			}
			return raft.RequestTimedOut, "", false
		}, "add voter 3: time is up: the change is not committed yet; it may have been made all the same: see quorum describe status", true},
		{"another leads", func(l *fakeLeader, _ raft.Request) (raft.ErrorCode, string, bool) {
			l.state.Epoch++
			return raft.NotLeaderOrFollower, "node 0 lost the lead", false
		}, "node 0 answers NOT_LEADER_OR_FOLLOWER: node 0 lost the lead; the voters are as they were", false},
		{"another leads, for how long?", func(l *fakeLeader, _ raft.Request) (raft.ErrorCode, string, bool) {
			l.state.Epoch++
			l.state.HighWatermark = raft.Unknown
			return raft.NotLeaderOrFollower, "node 0 lost the lead", false
		}, "node 0 answers NOT_LEADER_OR_FOLLOWER: node 0 lost the lead; it may have been made all the same: see quorum describe status", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := startLeader(t, 3, func(l *fakeLeader) { l.on = test.on })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := new(Client).AddVoter(ctx, []string{l.address}, Voter{NodeID: 3}, nil)
			if err == nil || !strings.HasSuffix(err.Error(), test.says) || errors.Is(err, ErrUnsettled) != test.unsettled {
				t.Errorf("got %v (unsettled %v), want …%s", err, errors.Is(err, ErrUnsettled), test.says)
			}
		})
	}
}

// TestChangeVotersInterrupted: who interrupts is told what is known, and not that a question had no answer.
func TestChangeVotersInterrupted(t *testing.T) {
	for _, midway := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		l := startLeader(t, 3, func(l *fakeLeader) {
			l.on = func(*fakeLeader, raft.Request) (raft.ErrorCode, string, bool) {
				if midway {
					cancel()
				}
				return raft.RequestTimedOut, "not now", midway
			}
		})
		var told []string
		_, err := new(Client).AddVoter(ctx, []string{l.address}, Voter{NodeID: 3}, func(s string) { told = append(told, s); cancel() })
		if err == nil || !strings.HasPrefix(err.Error(), "add voter 3: interrupted: ") || errors.Is(err, ErrUnsettled) != midway || midway && len(told) > 0 {
			t.Errorf("midway %v: got %v, told %q", midway, err, told)
		}
	}
}

// TestAddVoterThatIsNotKnownYet: what the quorum does not tell now it may tell soon; who cannot wait can say it.
func TestAddVoterThatIsNotKnownYet(t *testing.T) {
	for _, test := range []struct {
		name string
		node int32
		edit func(*fakeLeader)
		says string
	}{
		{"nobody", 7, nil, "add voter 7: time is up: node 7 does not fetch from node 0, the leader: want it running as an observer; the voters are as they were"},
		{"gone", 3, func(l *fakeLeader) { l.state.Observers[0] = silent(3, dirA) }, "add voter 3: time is up: node 3 does not fetch from node 0, the leader: want it running as an observer; the voters are as they were"},
		{
			"two directories", 3, func(l *fakeLeader) { l.state.Observers = append(l.state.Observers, fresh(3, dirB)) },
			"add voter 3: time is up: node 3 was just seen with directories " + dirA.String() + " and " + dirB.String() + ": want --directory-id, or only one of them running; the voters are as they were",
		},
		{
			"nobody knows where", 4, func(l *fakeLeader) { l.state.Observers[0] = fresh(4, dirA) },
			"add voter 4: time is up: the quorum does not tell how node 4 is reached: want --endpoint CONTROLLER://HOST:PORT; the voters are as they were",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := startLeader(t, 3, test.edit)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := new(Client).AddVoter(ctx, []string{l.address}, Voter{NodeID: test.node}, nil); err == nil || err.Error() != test.says {
				t.Errorf("\n got %v\nwant %s", err, test.says)
			}
			if asked := l.requests(); len(asked) > 0 {
				t.Errorf("asked %+v", asked)
			}
		})
	}
}

// TestChangeVotersRefused says at once what cannot be, and the way out.
func TestChangeVotersRefused(t *testing.T) {
	refuse := func(code raft.ErrorCode, message string) func(*fakeLeader, raft.Request) (raft.ErrorCode, string, bool) {
		return func(*fakeLeader, raft.Request) (raft.ErrorCode, string, bool) { return code, message, false }
	}
	add := func(v Voter) func(*Client, context.Context, []string) error {
		return func(c *Client, ctx context.Context, b []string) error {
			_, err := c.AddVoter(ctx, b, v, nil)
			return err
		}
	}
	remove := func(v Voter) func(*Client, context.Context, []string) error {
		return func(c *Client, ctx context.Context, b []string) error {
			_, err := c.RemoveVoter(ctx, b, v, false, nil)
			return err
		}
	}
	static := func(l *fakeLeader) {
		for i := range l.state.Voters {
			l.state.Voters[i].Key.DirectoryID = raft.UUID{}
		}
	}
	const version0 = "the quorum has static voters (kraft.version 0): raise its version first: kafka-features --bootstrap-controller LEADER upgrade --feature kraft.version=1"
	for _, test := range []struct {
		name   string
		voters int
		edit   func(*fakeLeader)
		do     func(*Client, context.Context, []string) error
		says   string
	}{
		{
			"MB-10 another directory of a voter", 3, func(l *fakeLeader) { l.state.Observers[0] = fresh(2, dirB) }, add(Voter{NodeID: 2}),
			"add voter 2: the voters have node 2 with another directory, " + dirA.String() + ": remove the old entry first: quorum voter remove --node-id 2 --directory-id " + dirA.String(),
		},
		{
			"another directory, as told", 3, nil, add(Voter{NodeID: 2, DirectoryID: dirB}),
			"add voter 2: the voters have node 2 with another directory, " + dirA.String() + ": remove the old entry first: quorum voter remove --node-id 2 --directory-id " + dirA.String(),
		},
		{"another cluster", 3, nil, add(Voter{NodeID: 3, ClusterID: "other"}), "add voter 3: node 3 is of cluster other: these are members of cluster c"},
		{"no directory", 3, func(l *fakeLeader) { l.state.Observers[0] = fresh(3, raft.UUID{}) }, add(Voter{NodeID: 3}), "add voter 3: node 3 has no directory id: want one formatted for kraft.version 1"},
		{
			"observer.only", 3, func(l *fakeLeader) { l.on = refuse(raft.InvalidRequest, "") }, add(Voter{NodeID: 3}),
			"add voter 3: node 0 answers INVALID_REQUEST: want a member that supports the quorum's kraft.version",
		},
		{"static voters", 3, func(l *fakeLeader) { l.on = refuse(raft.UnsupportedVersion, "why") }, add(Voter{NodeID: 3}), "add voter 3: node 0 answers UNSUPPORTED_VERSION: why"},
		{"add, kraft.version 0", 3, static, add(Voter{NodeID: 3}), "add voter 3: " + version0},
		{"remove, kraft.version 0", 3, static, remove(Voter{NodeID: 2}), "remove voter 2: " + version0},
		{"MB-10 no such voter", 3, nil, remove(Voter{NodeID: 9}), "remove voter 9: no such voter: want one of 0, 1, 2"},
		{"MB-10 removed before", 3, nil, remove(Voter{NodeID: 3}), "remove voter 3: no such voter: node 3 is an observer: want one of 0, 1, 2"},
		{"MB-10 another directory", 3, nil, remove(Voter{NodeID: 2, DirectoryID: dirB}), "remove voter 2: no such voter: node 2 has directory " + dirA.String() + ", not " + dirB.String()},
		{"MB-10 the last voter", 1, nil, remove(Voter{NodeID: 0}), "remove voter 0: it is the only voter: add another first"},
		{
			"MB-04 too many are gone", 3, func(l *fakeLeader) { l.state.Voters[2] = silent(2, dirA) }, remove(Voter{NodeID: 1}),
			"remove voter 1: of the voters that would stay, 0, 2, only 1 are up to date: want at least 2, or --force",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := startLeader(t, test.voters, test.edit)
			says := strings.ReplaceAll(test.says, "LEADER", l.address)
			if err := test.do(new(Client), t.Context(), []string{l.address}); err == nil || err.Error() != says {
				t.Errorf("\n got %v\nwant %s", err, says)
			}
		})
	}
}

func TestRemoveVoter(t *testing.T) {
	l := startLeader(t, 3, func(l *fakeLeader) {
		l.state.Voters[2] = silent(2, dirA)
		l.on = func(l *fakeLeader, r raft.Request) (raft.ErrorCode, string, bool) {
			if len(l.asked) == 1 {
				return raft.NotLeaderOrFollower, "", false // it has just lost the lead, and got it back
			}
			l.obey(r)
			return raft.NoError, "", false
		}
	})
	did, err := new(Client).RemoveVoter(t.Context(), []string{l.address}, Voter{NodeID: 2}, false, nil)
	if err != nil || !did.Changed || voterIDs(did) != "0, 1" || did.DirectoryID != dirA.String() {
		t.Fatalf("removed the voter that is gone: %+v, %v", did, err)
	}
	l.mu.Lock()
	l.state.Voters = append(l.state.Voters, silent(2, dirA))
	l.mu.Unlock()
	if did, err = new(Client).RemoveVoter(t.Context(), []string{l.address}, Voter{NodeID: 1}, true, nil); err != nil || voterIDs(did) != "0, 2" {
		t.Errorf("forced: %+v, %v", did, err)
	}
}

// TestMB04RemovalThatCostsTheQuorum goes over all quorums of up to seven voters of which some are silent.
func TestMB04RemovalThatCostsTheQuorum(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for down := range 1 << n {
			if down&1 != 0 {
				continue // node 0 leads
			}
			v := &view{Quorum: &Quorum{LeaderID: 0}}
			for id := range n {
				r := Replica{NodeID: int32(id), LastFetchTimestamp: 100_000, LastCaughtUpTimestamp: 100_000 - int64(id)*600}
				if down>>id&1 != 0 {
					r.LastCaughtUpTimestamp = []int64{-1, 10_000, 94_999}[id%3] // never, gone, fetches but lags
				}
				v.Voters = append(v.Voters, r)
			}
			for id := range n {
				able := 0
				for other := range n {
					if other != id && down>>other&1 == 0 {
						able++
					}
				}
				if got, want := v.risk(int32(id)) == nil, able > (n-1)/2; got != want {
					t.Errorf("%d voters, down %s: removal of node %d is allowed: %v, want %v", n, fmt.Sprintf("%0*b", n, down), id, got, want)
				}
			}
		}
	}
}
