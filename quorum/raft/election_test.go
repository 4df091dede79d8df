package raft

import (
	"slices"
	"testing"
	"time"
)

// nodeOf starts voter 1 of three with a log of the given epochs and the given quorum-state.
func nodeOf(t testing.TB, state ElectionState, epochs ...Epoch) (*member, *Node) {
	t.Helper()
	set := testVoters(1, 2, 3)
	m := newMember(testConfig(1, set), dynamic(set))
	m.state = state
	for i, e := range epochs {
		m.log = append(m.log, testBatch{Batch: Batch{int64(i), int64(i), e, 10, nil}})
	}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	return m, m.node
}

// ask gives one request and returns its response.
func ask(t testing.TB, m *member, r Request) any {
	t.Helper()
	m.node.Step(m.node.now, Inbound{ID: 1 << 50, Conn: 1, Request: r})
	for _, a := range m.take().answers {
		if a.ID == 1<<50 {
			return a.Result
		}
	}
	return nil
}

var testCluster = new("test")

// TestStartUp is kraft-spec 1.1: which state quorum-state, log and voter set lead to (C-002 to C-015).
func TestStartUp(t *testing.T) {
	other := testKey(2)
	for name, c := range map[string]struct {
		state  ElectionState
		epochs []Epoch
		role   Role
		want   ElectionState
	}{
		"nothing stored":                  {ElectionState{0, None, NoReplica}, nil, Unattached, ElectionState{0, None, NoReplica}},
		"own leadership":                  {ElectionState{7, 1, NoReplica}, []Epoch{7}, Resigned, ElectionState{7, 1, NoReplica}},
		"own vote":                        {ElectionState{7, None, testKey(1)}, []Epoch{6}, Candidate, ElectionState{7, None, testKey(1)}},
		"own vote without a directory":    {ElectionState{7, None, ReplicaKey{ID: 1}}, []Epoch{6}, Candidate, ElectionState{7, None, ReplicaKey{ID: 1}}},
		"vote of the old disk":            {ElectionState{7, None, ReplicaKey{1, UUID{1}}}, []Epoch{6}, Unattached, ElectionState{7, None, ReplicaKey{1, UUID{1}}}},
		"vote for another":                {ElectionState{7, None, other}, nil, Unattached, ElectionState{7, None, other}},
		"leader in the voter set":         {ElectionState{7, 2, NoReplica}, []Epoch{7}, Follower, ElectionState{7, 2, NoReplica}},
		"leader and vote":                 {ElectionState{7, 2, testKey(3)}, []Epoch{7}, Follower, ElectionState{7, 2, testKey(3)}},
		"own vote, but another leads":     {ElectionState{7, 2, testKey(1)}, []Epoch{7}, Follower, ElectionState{7, 2, testKey(1)}},
		"leader unknown to the voter set": {ElectionState{7, 9, NoReplica}, []Epoch{7}, Unattached, ElectionState{7, 9, NoReplica}},
		"log newer than quorum-state":     {ElectionState{5, 1, testKey(1)}, []Epoch{5, 8}, Unattached, ElectionState{8, None, NoReplica}},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := nodeOf(t, c.state, c.epochs...)
			if n.role != c.role || n.state != c.want {
				t.Errorf("%s %+v, want %s %+v", n.role, n.state, c.role, c.want)
			}
			if m.state != c.want {
				t.Errorf("persisted %+v, want %+v", m.state, c.want)
			}
			if n.highWatermark != Unknown {
				t.Errorf("high watermark %d, want unknown", n.highWatermark)
			}
		})
	}
}

// TestSoleVoterStartUp is C-003 to C-007.
func TestSoleVoterStartUp(t *testing.T) {
	for name, c := range map[string]struct {
		state ElectionState
		epoch Epoch
	}{
		"nothing stored":       {ElectionState{0, None, NoReplica}, 1},
		"was leader":           {ElectionState{4, 1, NoReplica}, 5},
		"was follower":         {ElectionState{4, 2, NoReplica}, 5},
		"was candidate":        {ElectionState{4, None, testKey(1)}, 4},
		"voted for a stranger": {ElectionState{4, None, testKey(2)}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			set := testVoters(1)
			m := newMember(testConfig(1, set), dynamic(set))
			m.state = c.state
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			if n := m.node; n.role != Leader || n.state.Epoch != c.epoch {
				t.Errorf("%s of epoch %d, want Leader of %d", n.role, n.state.Epoch, c.epoch)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	set := testVoters(1, 2, 3)
	for name, change := range map[string]func(*Config){
		"zero directory id (C-001)":              func(c *Config) { c.Self.DirectoryID = UUID{} },
		"no voters and no bootstrap (C-019)":     func(c *Config) { c.Log.Control, c.Bootstrap = nil, nil },
		"a vote without a node id (C-016)":       func(c *Config) { c.Self, c.State.Voted = NoReplica, testKey(2) },
		"negative timeout (B-17)":                func(c *Config) { c.FetchTimeout = -1 },
		"zero election timeout":                  func(c *Config) { c.ElectionTimeout = 0 },
		"log that starts above 0 without reason": func(c *Config) { c.Log.Start, c.Log.End = 5, 9 },
		"unknown kraft.version":                  func(c *Config) { c.Log.Control = append(c.Log.Control, ControlAt{3, KRaftVersion{2}}) },
		"a voter twice":                          func(c *Config) { c.Log.Control = []ControlAt{{-1, Voters{append(slices.Clone(set), set[2])}}} },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(1, set)
			cfg.Log.Control = dynamic(set)
			change(&cfg)
			if _, err := New(cfg, 0); err == nil {
				t.Error("New accepted it")
			} else {
				t.Log(err)
			}
		})
	}
	cfg := testConfig(1, set)
	cfg.Self, cfg.Log.Control = NoReplica, dynamic(set)
	reader := newMember(cfg, dynamic(set))
	if err := reader.boot(0); err != nil || reader.node.isVoter {
		t.Fatalf("a reader without an id: %v", err)
	}
	reader.take()
	if r := ask(t, reader, VoteRequest{ClusterID: testCluster, Voter: NoReplica, Replica: testKey(2), Epoch: 1}).(VoteResponse); r.Granted {
		t.Error("a reader without an id voted")
	}
}

// TestCandidateAsksWithWhatIsDurable: votes are given to a log, and a candidacy survives a restart. Did its tail not, it
// would win with the votes that the longer log got (simulation seed 7127875872127963670).
func TestCandidateAsksWithWhatIsDurable(t *testing.T) {
	m, n := nodeOf(t, ElectionState{5, None, NoReplica}, 1, 2, 4)
	n.flushed, n.flushing = 2, true
	n.becomeProspective(causeTimer)
	n.becomeCandidate()
	n.settle()
	votes := func() (last []int64) {
		for _, s := range m.take().sends {
			if v, ok := s.Request.(VoteRequest); ok && !v.PreVote {
				last = append(last, v.Last.Offset)
			}
		}
		return last
	}
	if got := votes(); len(got) > 0 {
		t.Fatalf("asked for votes with a log that ends at %d, of which 2 is durable", got[0])
	}
	m.durable = m.log
	n.Step(n.now, Flushed{End: 3, Generation: n.generation})
	if got := votes(); !slices.Equal(got, []int64{3, 3}) {
		t.Errorf("after the flush asked with log ends %v, want 3 of both others", got)
	}
}

// TestGranting is the table of kraft-spec 1.3 (C-030 to C-047, C-060 to C-069). Voter 1 has a log that ends at (3, 4) and is
// in epoch 5.
func TestGranting(t *testing.T) {
	good, shorter, older := OffsetAndEpoch{3, 4}, OffsetAndEpoch{2, 4}, OffsetAndEpoch{9, 3}
	states := map[string]struct {
		state   ElectionState
		prepare func(*Node)
		// standard vote and pre-vote of replica 2 with an up-to-date log, in epoch 5
		vote, preVote bool
	}{
		"Unattached":                             {ElectionState{5, None, NoReplica}, nil, true, true},
		"Unattached, voted for the asker":        {ElectionState{5, None, testKey(2)}, nil, true, true},
		"Unattached, voted for the asker by id":  {ElectionState{5, None, ReplicaKey{ID: 2}}, nil, true, true},
		"Unattached, voted for its old disk":     {ElectionState{5, None, ReplicaKey{2, UUID{9}}}, nil, false, true},
		"Unattached, voted for another":          {ElectionState{5, None, testKey(3)}, nil, false, true},
		"Unattached, leader known":               {ElectionState{5, 9, NoReplica}, nil, false, true},
		"Prospective":                            {ElectionState{5, None, NoReplica}, func(n *Node) { n.becomeProspective(causeTimer) }, true, true},
		"Prospective, voted for another":         {ElectionState{5, None, testKey(3)}, func(n *Node) { n.becomeProspective(causeTimer) }, false, true},
		"Prospective, leader known":              {ElectionState{5, 3, NoReplica}, func(n *Node) { n.becomeProspective(causeTimer) }, false, true},
		"Candidate":                              {ElectionState{5, None, testKey(1)}, nil, false, true},
		"Resigned":                               {ElectionState{5, 1, NoReplica}, nil, false, true},
		"Follower that has not fetched":          {ElectionState{5, 3, NoReplica}, nil, false, true},
		"Follower that has fetched":              {ElectionState{5, 3, NoReplica}, func(n *Node) { n.follower.hasFetched = true }, false, false},
		"Follower that voted for the asker once": {ElectionState{5, 3, testKey(2)}, func(n *Node) { n.follower.hasFetched = true }, false, false},
		"Leader":                                 {ElectionState{4, None, NoReplica}, win, false, false},
	}
	for name, c := range states {
		for _, pre := range []bool{false, true} {
			for _, last := range []OffsetAndEpoch{good, shorter, older} {
				m, n := nodeOf(t, c.state, 1, 2, 4)
				if c.prepare != nil {
					c.prepare(n)
					m.take()
				}
				want := c.vote
				if pre {
					want = c.preVote
				}
				if last != good {
					want = false // also from whom our vote went to: it may have lost power, and its tail, since
				}
				role, state, timer := n.role, n.state, n.election
				r := ask(t, m, VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(2), Epoch: 5, Last: last, PreVote: pre})
				if got := r.(VoteResponse); got.Error != NoError || got.Granted != want {
					t.Errorf("%s, pre-vote %v, log end %v: %+v, want granted %v", name, pre, last, got, want)
				}
				switch {
				case n.role != role:
					t.Errorf("%s: became %s", name, n.role)
				case !want || pre || state.Voted.ID != None:
					if n.state != state || n.election != timer {
						t.Errorf("%s, pre-vote %v, log end %v: left a trace: %+v", name, pre, last, n.state)
					}
				case n.election == timer:
					t.Errorf("%s: granting a vote did not restart the election timer (C-044)", name)
				case m.state.Voted != testKey(2):
					t.Errorf("%s: vote granted but not persisted", name)
				}
			}
		}
	}
}

// win makes voter 1 a candidate of the next epoch and then leader.
func win(n *Node) {
	n.becomeProspective(causeTimer)
	n.becomeCandidate()
	n.becomeLeader()
	n.settle()
}

// TestProspectiveFollowsALeaderItHears: C-074. The known leader's own word ends a pre-vote round at once, in the same epoch
// and in a later one; the round's late answers mean nothing (C-053).
func TestProspectiveFollowsALeaderItHears(t *testing.T) {
	for _, epoch := range []Epoch{5, 6} {
		m, n := nodeOf(t, ElectionState{5, 2, NoReplica}, 1, 2, 4)
		n.becomeProspective(causeTimer)
		n.leaderEndpoints = n.endpointsOf(2)
		n.settle()
		got := ask(t, m, BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(1), Leader: 2, Epoch: epoch}).(BeginQuorumEpochResponse)
		if got.Error != NoError || n.role != Follower || n.state.Leader != 2 || n.state.Epoch != epoch {
			t.Errorf("epoch %d: error %d, %s of epoch %d, leader %d: want a follower of node 2", epoch, got.Error, n.role, n.state.Epoch, n.state.Leader)
		}
	}
}

// TestVoteRequestErrors: C-034, C-040 to C-042, PR-17.
func TestVoteRequestErrors(t *testing.T) {
	base := VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(2), Epoch: 6, Last: OffsetAndEpoch{3, 4}}
	for name, c := range map[string]struct {
		change func(*VoteRequest)
		code   ErrorCode
		epoch  Epoch // afterwards
	}{
		"older epoch":             {func(r *VoteRequest) { r.Epoch = 4; r.Last.Epoch = 3 }, FencedLeaderEpoch, 5},
		"last epoch not below":    {func(r *VoteRequest) { r.Last.Epoch = 6 }, InvalidRequest, 5},
		"negative offset":         {func(r *VoteRequest) { r.Last.Offset = -1 }, InvalidRequest, 5},
		"negative last epoch":     {func(r *VoteRequest) { r.Last.Epoch = -1 }, InvalidRequest, 5},
		"negative asker":          {func(r *VoteRequest) { r.Replica.ID = -1 }, InvalidRequest, 5},
		"another receiver":        {func(r *VoteRequest) { r.Voter = testKey(3) }, InvalidVoterKey, 6},
		"another disk of ours":    {func(r *VoteRequest) { r.Voter.DirectoryID = UUID{7} }, InvalidVoterKey, 6},
		"no receiver (version 0)": {func(r *VoteRequest) { r.Voter = NoReplica }, NoError, 6},
		"not a voter":             {func(r *VoteRequest) { r.Replica = testKey(9) }, NoError, 6},
		"wrong cluster":           {func(r *VoteRequest) { r.ClusterID = new("other") }, InconsistentClusterID, 5},
		"null cluster":            {func(r *VoteRequest) { r.ClusterID = nil }, InvalidRequest, 5},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := nodeOf(t, ElectionState{5, 2, NoReplica}, 1, 2, 4)
			r := base
			c.change(&r)
			got := ask(t, m, r).(VoteResponse)
			if code := max(got.Error, got.TopError); code != c.code || n.state.Epoch != c.epoch {
				t.Errorf("error %d in epoch %d, want %d in %d", code, n.state.Epoch, c.code, c.epoch)
			}
		})
	}
}

// TestPR16OneVoteCountsOnce: five voters, and the same grant three times.
func TestPR16OneVoteCountsOnce(t *testing.T) {
	set := testVoters(1, 2, 3, 4, 5)
	m := newMember(testConfig(1, set), dynamic(set))
	m.state = ElectionState{3, None, testKey(1)}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	sends := m.take().sends
	i := slices.IndexFunc(sends, func(s Send) bool { return s.To.ID == 2 })
	for range 3 {
		m.node.Step(0, Outcome{Correlation: sends[i].Correlation, Response: VoteResponse{Header: Header{Epoch: 3, Leader: None}, Granted: true}})
		m.take()
	}
	if m.node.role != Candidate || m.node.tally.count(granted) != 2 {
		t.Errorf("%s with %d votes, want Candidate with 2", m.node.role, m.node.tally.count(granted))
	}
}

// TestLongPatienceLooksForALeader: on a disk that is slow or nearly full a candidate, or a leader that resigned, waits for
// long. Meanwhile it was removed, and the new leader tells only its voters: it looks for one itself.
func TestLongPatienceLooksForALeader(t *testing.T) {
	for _, state := range []ElectionState{{7, None, testKey(1)}, {7, 1, NoReplica}} {
		m, n := nodeOf(t, state, 5, 6, 6)
		role := n.role
		n.persistTook = 10 * time.Second
		n.election = n.randomElectionTimeout()
		n.Step(n.now.Add(2*n.cfg.ElectionTimeout), Deadline{})
		sends := m.take().sends
		i := slices.IndexFunc(sends, func(s Send) bool { _, fetch := s.Request.(FetchRequest); return fetch })
		if n.role != role || i < 0 || sends[i].To.ID >= 0 {
			t.Fatalf("%s, then %s sends %+v, want a Fetch to a bootstrap server", role, n.role, sends)
		}
		news := Header{Error: FencedLeaderEpoch, Epoch: 8, Leader: 4, LeaderEndpoints: []Endpoint{{"CONTROLLER", "n4", 9093}}}
		n.Step(n.now, Outcome{Correlation: sends[i].Correlation, Response: FetchResponse{Header: news}})
		if m.take(); n.role != Follower || n.state.Leader != 4 {
			t.Errorf("%s: after the answer %s %+v, want a follower of 4", role, n.role, n.state)
		}
	}
}

// TestVoteRequestsAreRepeated: C-050, C-078. Unanswered after the request timeout, failed ones after the back-off.
func TestVoteRequestsAreRepeated(t *testing.T) {
	m, n := nodeOf(t, ElectionState{3, None, testKey(1)})
	n.election, n.fetch.notBefore = Never, Never // look at the votes only
	first := n.conns[0].correlation
	n.Step(n.now, Outcome{Correlation: first, Failure: Disconnected})
	m.take()
	for _, want := range []struct {
		at Instant
		to NodeID
	}{{Instant(20 * time.Millisecond), 2}, {Instant(2 * time.Second), 3}} {
		if n.Deadline() != want.at {
			t.Fatalf("next deadline %v, want %v", time.Duration(n.Deadline()), time.Duration(want.at))
		}
		n.Step(want.at, Deadline{})
		sends := m.take().sends
		if len(sends) != 1 || sends[0].To.ID != want.to {
			t.Fatalf("at %v sent %+v, want one to %d", time.Duration(want.at), sends, want.to)
		}
		n.election = Never
	}
}

// TestPR08ElectionsEnd: three and five voters on symmetric links of 50 ms that all start in the same tick elect a leader
// within a few rounds, for every seed, and no two of them draw the same timeouts for more than three rounds in a row.
func TestPR08ElectionsEnd(t *testing.T) {
	seeds := 10_000
	if testing.Short() {
		seeds = 50
	}
	var epochs []int
	draws := 0
	for seed := range seeds {
		voters := 3 + 2*(seed%2)
		w := newWorld(uint64(seed))
		w.faults, w.loss, w.delay, w.quiet, w.symmetric = false, 0, 50*time.Millisecond, true, true
		var ids []NodeID
		for i := range voters {
			ids = append(ids, NodeID(i))
		}
		set := testVoters(ids...)
		w.members = nil
		for i := range voters {
			cfg := testConfig(NodeID(i), set)
			cfg.Rand = newRand(uint64(seed), uint64(i))
			w.members = append(w.members, newMember(cfg, dynamic(set)))
		}
		drawn := map[*member][]time.Duration{}
		last := map[*member]Instant{}
		w.looks = func(m *member) {
			if n := m.node; n.election != last[m] && n.election != Never {
				drawn[m] = append(drawn[m], time.Duration(n.election-n.now))
			}
			last[m] = m.node.election
		}
		for _, m := range w.members {
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			if err := w.take(m); err != nil {
				t.Fatal(err)
			}
		}
		leads := func(m *member) bool { return m.node.role == Leader && m.node.highWatermark != Unknown }
		for !slices.ContainsFunc(w.members, leads) {
			if w.now > Instant(10*2*time.Second) {
				t.Fatalf("seed %d: no leader within ten election rounds: %s", seed, w.summary())
			}
			if err := w.until(w.now + Instant(10*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		}
		epochs = append(epochs, int(w.epoch()))
		for i, a := range w.members {
			draws += len(drawn[a])
			for _, b := range w.members[:i] {
				if n := commonRun(drawn[a], drawn[b]); n > 3 {
					t.Fatalf("seed %d: nodes %d and %d draw alike %d times in a row: %v, %v", seed, a.cfg.Self.ID, b.cfg.Self.ID, n, drawn[a], drawn[b])
				}
			}
		}
	}
	slices.Sort(epochs)
	if p99 := epochs[len(epochs)*99/100]; p99 > 4 {
		t.Errorf("99th percentile of epochs used is %d, want at most 4", p99)
	}
	t.Logf("epochs used: median %d, p99 %d, max %d; %d timeouts drawn", epochs[len(epochs)/2], epochs[len(epochs)*99/100], epochs[len(epochs)-1], draws)
	if draws < 3*seeds {
		t.Errorf("%d timeouts drawn in %d elections", draws, seeds)
	}
}

// commonRun is the length of the longest run that two lists share.
func commonRun(a, b []time.Duration) (longest int) {
	for i := range a {
		for j := range b {
			n := 0
			for i+n < len(a) && j+n < len(b) && a[i+n] == b[j+n] {
				n++
			}
			longest = max(longest, n)
		}
	}
	return longest
}

// TestPR10PreVotesDoNotFeedPatience: the leader is gone. A voter whose log is behind, and whose timers are short, asks the
// other for a pre-vote every 50 ms. That one loses its own patience in time all the same, and leads.
func TestPR10PreVotesDoNotFeedPatience(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed)
		w.faults, w.loss, w.delay, w.quiet = false, 0, time.Millisecond, true
		set := testVoters(0, 1, 2)
		w.members = nil
		for i := range NodeID(3) {
			cfg := testConfig(i, set)
			cfg.Rand = newRand(seed, uint64(i))
			if i == 1 {
				cfg.ElectionTimeout, cfg.FetchTimeout = 100*time.Millisecond, 200*time.Millisecond
			}
			w.members = append(w.members, newMember(cfg, dynamic(set)))
		}
		leader, behind, other := w.members[0], w.members[1], w.members[2]
		until := func(d time.Duration, done func() bool) bool {
			for end := w.now.Add(d); w.now < end && !done(); {
				if err := w.until(w.now.Add(time.Millisecond)); err != nil {
					t.Fatal(err)
				}
			}
			return done()
		}
		// The log of one stays behind, and it comes back when the leader is gone.
		for _, m := range []*member{leader, other} {
			m.log = []testBatch{{Batch: Batch{BaseOffset: 0, LastOffset: 9, Epoch: 1, Bytes: 10}}}
			m.state = ElectionState{1, None, NoReplica}
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			if err := w.take(m); err != nil {
				t.Fatal(err)
			}
		}
		win(leader.node)
		if err := w.take(leader); err != nil {
			t.Fatal(err)
		}
		follows := func() bool {
			return other.node.role == Follower && other.node.follower.hasFetched && other.node.highWatermark > 10
		}
		if !until(5*time.Second, follows) {
			t.Fatalf("seed %d: %s", seed, w.summary())
		}
		at, epoch := w.now, other.node.state.Epoch
		for _, to := range []NodeID{1, 2} { // gone without a sign: no connection is refused
			w.cut[link{0, to}], w.cut[link{to, 0}] = true, true
		}
		if err := w.restart(behind); err != nil {
			t.Fatal(err)
		}
		asked := 0
		var asks func() error
		asks = func() error {
			asked++
			w.after(50*time.Millisecond, asks)
			r := VoteRequest{ClusterID: testCluster, Voter: testKey(2), Replica: testKey(1), Epoch: max(epoch, behind.node.state.Epoch), Last: behind.node.log.position(), PreVote: true}
			id := w.newID()
			w.served[id] = servedRequest{1, 2, 0, nil} // nobody waits for the answer
			return w.step(other, Inbound{ID: id, Conn: 1 << 40, Request: r})
		}
		if err := asks(); err != nil {
			t.Fatal(err)
		}
		if !until(other.cfg.FetchTimeout+time.Second, func() bool { return other.node.role != Follower && other.node.role != Unattached }) {
			t.Fatalf("seed %d: %v after the leader was gone and %d pre-votes were asked for: %s", seed, time.Duration(w.now-at), asked, w.summary())
		}
		impatient := time.Duration(w.now - at)
		if !until(5*time.Second-impatient, func() bool { return other.node.role == Leader }) {
			t.Fatalf("seed %d: %v after the leader was gone: %s", seed, time.Duration(w.now-at), w.summary())
		}
		if asked < 20 {
			t.Errorf("seed %d: only %d pre-votes were asked for", seed, asked)
		}
		if seed == 0 {
			t.Logf("%d pre-votes asked for; campaigns after %v, leads after %v", asked, impatient, time.Duration(w.now-at))
		}
	}
}

// TestObserverEntersAnEpochOnlyToVote: whoever asks may be gone for good the next moment, and an observer could never leave
// its epoch again. But the asker may also know what the observer has not heard yet: that it is a voter (PR-31).
func TestObserverEntersAnEpochOnlyToVote(t *testing.T) {
	set := testVoters(1, 2, 3)
	longer, shorter := OffsetAndEpoch{20, 7}, OffsetAndEpoch{5, 7}
	for name, c := range map[string]struct {
		self    NodeID
		voter   ReplicaKey
		last    OffsetAndEpoch
		preVote bool

		granted bool
		code    ErrorCode
		want    Epoch
	}{
		"an observer that gives its vote":        {4, testKey(4), longer, false, true, NoError, 9},
		"an observer, to a shorter log":          {4, testKey(4), shorter, false, false, NoError, 7},
		"an observer, before the vote":           {4, testKey(4), longer, true, true, NoError, 7},
		"an observer, before it, shorter log":    {4, testKey(4), shorter, true, false, NoError, 7},
		"an observer whose predecessor is meant": {4, ReplicaKey{4, UUID{9}}, longer, false, false, InvalidVoterKey, 7},
		"a voter, to a shorter log":              {3, testKey(3), shorter, false, false, NoError, 9},
		"a voter, before the vote":               {3, testKey(3), longer, true, true, NoError, 9},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(testConfig(c.self, set), dynamic(set))
			m.log = []testBatch{{Batch: Batch{BaseOffset: 0, LastOffset: 9, Epoch: 7}}}
			m.state = ElectionState{7, 2, NoReplica}
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			r := VoteRequest{ClusterID: testCluster, Voter: c.voter, Replica: testKey(1), Epoch: 9, Last: c.last, PreVote: c.preVote}
			got := ask(t, m, r).(VoteResponse)
			if got.Granted != c.granted || got.Error != c.code || got.Epoch != 9 || m.node.state.Epoch != c.want {
				t.Errorf("answers %+v and is in epoch %d, want granted %v, error %d, epoch 9, and to be in epoch %d",
					got, m.node.state.Epoch, c.granted, c.code, c.want)
			}
		})
	}
}
