package raft

import (
	"slices"
	"testing"
	"time"
)

// begin is BeginQuorumEpoch as a test sends it to voter 1.
func begin(leader NodeID, epoch Epoch, endpoints []Endpoint) BeginQuorumEpochRequest {
	return BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(1), Leader: leader, Epoch: epoch, Endpoints: endpoints}
}

// TestVotersThatFetchAreLeftAlone: C-080, C-081, C-089, B-15. The leader announces itself to all at once, and from then on only
// to voters that have not fetched for half a fetch timeout; whether they answered is of no interest.
func TestVotersThatFetchAreLeftAlone(t *testing.T) {
	m, n := nodeOf(t, ElectionState{0, None, NoReplica})
	win(n)
	period := n.cfg.FetchTimeout / 2
	told := map[NodeID][]Instant{}
	note := func(out takeover) {
		for _, s := range out.sends {
			if _, ok := s.Request.(BeginQuorumEpochRequest); ok {
				told[s.To.ID] = append(told[s.To.ID], n.now)
				n.Step(n.now, Outcome{Correlation: s.Correlation, Response: BeginQuorumEpochResponse{Header{Epoch: 1, Leader: 1}}})
				m.take()
			}
		}
	}
	note(m.take())
	n.Step(n.now, m.flushed())
	note(m.take())
	for at := n.now; at < Instant(10*n.cfg.FetchTimeout); at = at.Add(100 * time.Millisecond) {
		for n.Deadline() <= at {
			n.Step(n.Deadline(), Deadline{})
			note(m.take())
		}
		n.now = at
		fetch(m, 2, 2, n.log.end)
	}
	if n.role != Leader {
		t.Fatalf("%s", n.role)
	}
	if want := []Instant{0}; !slices.Equal(told[2], want) {
		t.Errorf("a voter that fetches all the time was told at %v, want once", told[2])
	}
	if len(told[3]) != 20 {
		t.Errorf("a silent voter was told %d times in 20 s, want each %v", len(told[3]), period)
	}
	for i, at := range told[3] {
		if at != Instant(i)*Instant(period) {
			t.Errorf("round %d at %v", i, time.Duration(at))
		}
	}
}

// TestBeginQuorumEpochByRole: C-082, C-085 and C-088. Who hears of a leader for the first time follows it and fetches from the
// endpoint that came with the news, whatever the voter set says.
func TestBeginQuorumEpochByRole(t *testing.T) {
	moved := []Endpoint{{"CLIENT", "m3", 9092}, {"CONTROLLER", "m3", 9999}}
	for name, c := range map[string]struct {
		state   ElectionState
		prepare func(*Node)
		epoch   Epoch
		code    ErrorCode
	}{
		"Unattached, same epoch":             {ElectionState{7, None, NoReplica}, nil, 7, NoError},
		"Unattached that voted for it":       {ElectionState{7, None, testKey(3)}, nil, 7, NoError},
		"Unattached, only its id known":      {ElectionState{7, 9, NoReplica}, nil, 8, NoError},
		"Prospective, same epoch":            {ElectionState{7, None, NoReplica}, func(n *Node) { n.becomeProspective(causeTimer) }, 7, NoError},
		"Candidate, same epoch":              {ElectionState{7, None, testKey(1)}, nil, 7, NoError},
		"Candidate, higher epoch":            {ElectionState{7, None, testKey(1)}, nil, 9, NoError},
		"Resigned, higher epoch":             {ElectionState{7, 1, NoReplica}, nil, 8, NoError},
		"Follower, higher epoch":             {ElectionState{7, 2, NoReplica}, nil, 8, NoError},
		"Leader, higher epoch":               {ElectionState{6, None, NoReplica}, win, 8, NoError},
		"Candidate, older epoch (C-096)":     {ElectionState{7, None, testKey(1)}, nil, 6, FencedLeaderEpoch},
		"Leader of epoch 7, older (C-096)":   {ElectionState{6, None, NoReplica}, win, 6, FencedLeaderEpoch},
		"Prospective, older epoch (C-096)":   {ElectionState{7, None, NoReplica}, func(n *Node) { n.becomeProspective(causeTimer) }, 6, FencedLeaderEpoch},
		"Unattached, older epoch (C-096)":    {ElectionState{7, None, NoReplica}, nil, 6, FencedLeaderEpoch},
		"Resigned, older epoch, both same":   {ElectionState{7, 1, NoReplica}, nil, 6, FencedLeaderEpoch},
		"Follower of another, older (C-085)": {ElectionState{7, 2, NoReplica}, nil, 6, FencedLeaderEpoch},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := nodeOf(t, c.state, 6)
			if c.prepare != nil {
				c.prepare(n)
				m.take()
			}
			role, state := n.role, n.state
			end := EndQuorumEpochRequest{ClusterID: testCluster, Leader: 3, Epoch: c.epoch, Successors: []ReplicaKey{testKey(1)}}
			if c.code != NoError {
				if got := ask(t, m, end).(EndQuorumEpochResponse); got.Error != c.code || got.Epoch != 7 || n.role != role || n.state != state {
					t.Errorf("EndQuorumEpoch: %+v, then %s %+v", got.Header, n.role, n.state)
				}
			}
			n.Step(n.now, Inbound{ID: 1, Request: begin(3, c.epoch, moved)})
			out := m.take()
			i := slices.IndexFunc(out.answers, func(a Answer) bool { return a.ID == 1 })
			got := out.answers[i].Result.(BeginQuorumEpochResponse)
			if got.Error != c.code {
				t.Fatalf("error %d, want %d", got.Error, c.code)
			}
			if c.code != NoError {
				if n.role != role || n.state != state || got.Epoch != state.Epoch || got.Leader != state.Leader {
					t.Errorf("%+v, then %s %+v: want nothing changed, and the newer epoch in the answer", got, n.role, n.state)
				}
				return
			}
			if n.role != Follower || n.state.Leader != 3 || n.state.Epoch != c.epoch {
				t.Fatalf("%s %+v, want a follower of 3", n.role, n.state)
			}
			if c.epoch == state.Epoch && n.state.Voted != state.Voted {
				t.Errorf("the vote of the epoch became %s", n.state.Voted)
			}
			to := -1
			for i, s := range out.sends {
				if _, ok := s.Request.(FetchRequest); ok {
					to = i
				}
			}
			if m.flushing { // a leader's own tail comes first
				n.Step(n.now, m.flushed())
				out, to = m.take(), 0
			}
			if to < 0 || len(out.sends) == 0 || out.sends[to].To != (Destination{3, "m3", 9999}) {
				t.Errorf("sent %+v, want a Fetch to node 3 at m3:9999", out.sends)
			}
		})
	}
}

// TestPR27MoreEndpointsRefreshAFollower: C-084, B-10, PR-27. The same leader in the same epoch, but told with more
// endpoints than before: no new transition, yet the next Fetch goes to where it is. Fewer, or as many, change nothing.
func TestPR27MoreEndpointsRefreshAFollower(t *testing.T) {
	m, n := followerOf(t) // knows the CONTROLLER endpoint of the voter set
	timer := n.follower.timeout
	moved := []Endpoint{{"CLIENT", "m2", 9092}, {"CONTROLLER", "m2", 9999}}
	if got := ask(t, m, begin(2, 7, testEndpoints(2)[1:])).(BeginQuorumEpochResponse); got.Error != NoError || n.leaderEndpoints[0].Host != "n2" {
		t.Errorf("%+v, endpoints %v", got, n.leaderEndpoints)
	}
	got := ask(t, m, begin(2, 7, moved)).(BeginQuorumEpochResponse)
	if got.Error != NoError || n.role != Follower || n.follower.timeout != timer {
		t.Fatalf("%+v, %s, fetch timer moved %v", got, n.role, n.follower.timeout != timer)
	}
	out := respond(m, FetchResponse{HighWatermark: 0})
	if len(out.sends) != 1 || out.sends[0].To != (Destination{2, "m2", 9999}) {
		t.Errorf("sent %+v, want a Fetch to m2:9999", out.sends)
	}
}

// TestLeaderWithoutEndpoint: B-10, B-05, B-07. A vote's answer may tell who leads without saying where; that is remembered, and
// BeginQuorumEpoch, the leader's heartbeat, brings the rest.
func TestLeaderWithoutEndpoint(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, None, testKey(1)}, 6)
	reply(m, 2, VoteResponse{Header: Header{Epoch: 7, Leader: 9}})
	if n.role != Unattached || n.state.Leader != 9 {
		t.Fatalf("%s, leader %d; want Unattached that knows leader 9", n.role, n.state.Leader)
	}
	n.Step(n.now, Inbound{ID: 1, Request: begin(9, 7, testEndpoints(9))})
	out := m.take()
	if n.role != Follower || n.state.Voted != testKey(1) || len(out.sends) != 1 || out.sends[0].To.Host != "n9" {
		t.Errorf("%s %+v, sent %+v; want a follower that fetches from n9 and keeps its vote", n.role, n.state, out.sends)
	}
}

// TestNewsEndAnOffice: C-085 from the sender's side. An answer with a newer epoch makes a leader, or one that resigned, leave;
// what waited for the leader fails in that step (C-135).
func TestNewsEndAnOffice(t *testing.T) {
	m, n := leaderOf(t)
	n.Step(n.leader.begin, Deadline{})
	m.take()
	fetch(m, 2, 2, n.log.end)
	fetch(m, 3, 3, n.log.end)
	parked := len(n.leader.parked)
	if parked != 2 {
		t.Fatalf("%d fetches parked", parked)
	}
	out := reply(m, 3, BeginQuorumEpochResponse{Header{Error: FencedLeaderEpoch, Epoch: 5, Leader: 2, LeaderEndpoints: testEndpoints(2)}})
	if n.role != Follower || n.state.Epoch != 5 || n.state.Leader != 2 {
		t.Fatalf("%s %+v, want a follower of 2 in epoch 5", n.role, n.state)
	}
	failed := 0
	for _, a := range out.answers {
		if r, ok := a.Result.(FetchResponse); ok && r.Error == NotLeaderOrFollower {
			failed++
		}
	}
	if failed != parked {
		t.Errorf("%d of %d parked fetches failed with NOT_LEADER_OR_FOLLOWER", failed, parked)
	}
	m, n = nodeOf(t, ElectionState{7, 1, NoReplica}, 7)
	reply(m, 2, EndQuorumEpochResponse{Header{Error: FencedLeaderEpoch, Epoch: 9, Leader: None}})
	if n.role != Unattached || n.state.Epoch != 9 {
		t.Errorf("%s %+v, want Unattached in epoch 9", n.role, n.state)
	}
}

// TestResignationIsRepeatedToThoseWhoDidNotAnswer: C-008, C-097. Failures and errors are followed by another try, an answer
// is not.
func TestResignationIsRepeatedToThoseWhoDidNotAnswer(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, 1, NoReplica}, 7)
	n.election = Never
	told := func(out takeover) (ids []NodeID) {
		for _, s := range out.sends {
			if e, ok := s.Request.(EndQuorumEpochRequest); ok && e.Epoch == 7 && e.Leader == 1 {
				ids = append(ids, s.To.ID)
			}
		}
		return ids
	}
	n.Step(n.now, Outcome{Correlation: n.conn(2).correlation, Failure: Disconnected})
	m.take()
	reply(m, 3, EndQuorumEpochResponse{Header{Error: UnknownServerError, Epoch: 7, Leader: 1}})
	n.Step(n.now.Add(n.cfg.RetryBackoff), Deadline{})
	if got := told(m.take()); !slices.Equal(got, []NodeID{2, 3}) {
		t.Fatalf("after a failure and an error told %v, want both again", got)
	}
	reply(m, 3, EndQuorumEpochResponse{Header{Epoch: 7, Leader: 1}})
	n.Step(n.conn(2).timeout, Deadline{})
	if got := told(m.take()); !slices.Equal(got, []NodeID{2}) {
		t.Errorf("after node 3 answered told %v, want 2", got)
	}
}

// TestPR15Successors: C-093, PR-15. Voters only, the leader not among them, by how much of the log they have; those nobody
// has heard of last, and equals by id. Observers never, however much they have.
func TestPR15Successors(t *testing.T) {
	set := testVoters(1, 2, 3, 4, 5)
	m := newMember(testConfig(1, set), dynamic(set))
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	n := m.node
	m.take()
	win(n)
	m.take()
	n.Step(n.now, m.flushed())
	m.take()
	for range 3 {
		m.payloads[50] = "x"
		n.Step(n.now, Propose{ID: 50, Records: 1, Bytes: 10})
		m.take()
		n.Step(n.now, m.flushed())
		m.take()
	}
	end := n.log.end
	fetch(m, 2, 2, end-2)
	fetch(m, 4, 4, end-2)
	fetch(m, 5, 5, end-1)
	fetch(m, 11, 11, end)
	want := []ReplicaKey{testKey(5), testKey(2), testKey(4), testKey(3)}
	if got := n.leader.successors(n, nil); !slices.Equal(got, want) {
		t.Errorf("successors %v, want %v", got, want)
	}
	n.Step(n.leader.checkQuorum, Deadline{})
	for _, s := range m.take().sends {
		e, ok := s.Request.(EndQuorumEpochRequest)
		if !ok {
			continue
		}
		if s.To.ID > 5 || !slices.Equal(e.Successors, want) {
			t.Errorf("to %d: successors %v, want %v", s.To.ID, e.Successors, want)
		}
	}
	if n.role != Resigned {
		t.Errorf("%s", n.role)
	}
}

// TestEndQuorumEpochIsActedUpon: C-094, C-095, PR-15. The first successor campaigns at once, also if it had not heard of that
// leader before; another waits its turn and goes on fetching; an observer takes note and stays what it is.
func TestEndQuorumEpochIsActedUpon(t *testing.T) {
	for name, c := range map[string]struct {
		state      ElectionState
		observer   bool
		successors []ReplicaKey
		role       Role
		epoch      Epoch
		wait       time.Duration // until its own pre-vote
	}{
		"first":                           {ElectionState{7, 3, NoReplica}, false, []ReplicaKey{testKey(1), testKey(2)}, Candidate, 8, 0},
		"first, leader unknown (C-095)":   {ElectionState{7, None, NoReplica}, false, []ReplicaKey{testKey(1), testKey(2)}, Candidate, 8, 0},
		"first, in an older epoch":        {ElectionState{6, 2, NoReplica}, false, []ReplicaKey{testKey(1), testKey(2)}, Candidate, 8, 0},
		"second":                          {ElectionState{7, 3, NoReplica}, false, []ReplicaKey{testKey(2), testKey(1)}, Follower, 7, 500 * time.Millisecond},
		"not named":                       {ElectionState{7, 3, NoReplica}, false, []ReplicaKey{testKey(2)}, Follower, 7, time.Second},
		"another disk of ours":            {ElectionState{7, 3, NoReplica}, false, []ReplicaKey{{1, UUID{9}}, testKey(2)}, Follower, 7, time.Second},
		"nobody named":                    {ElectionState{7, 3, NoReplica}, false, nil, Follower, 7, 0},
		"an observer, though named first": {ElectionState{7, 3, NoReplica}, true, []ReplicaKey{testKey(1)}, Follower, 7, -1},
	} {
		t.Run(name, func(t *testing.T) {
			set := testVoters(1, 2, 3)
			if c.observer {
				set = testVoters(2, 3)
			}
			m := newMember(testConfig(1, set), dynamic(set))
			m.state = c.state
			m.log = []testBatch{{Batch: batch(0, 6)}}
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			n := m.node
			got := ask(t, m, EndQuorumEpochRequest{ClusterID: testCluster, Leader: 3, Epoch: 7, Successors: c.successors, Endpoints: testEndpoints(3)}).(EndQuorumEpochResponse)
			if got.Error != NoError || n.role != c.role || n.state.Epoch != c.epoch {
				t.Fatalf("%+v, then %s of epoch %d; want %s of %d", got.Header, n.role, n.state.Epoch, c.role, c.epoch)
			}
			if c.role == Candidate {
				return
			}
			if n.fetch.correlation == 0 {
				t.Error("does not fetch any more")
			}
			at := n.now
			for n.role == Follower && n.now < Instant(time.Minute) && n.Deadline() != Never {
				n.Step(n.Deadline(), Deadline{})
				m.take()
			}
			if waited := time.Duration(n.now - at); c.wait >= 0 && (n.role != Prospective || waited != c.wait) {
				t.Errorf("%s after %v, want Prospective after %v", n.role, waited, c.wait)
			} else if c.wait < 0 && n.role != Follower {
				t.Errorf("an observer became %s", n.role)
			}
		})
	}
}

// TestRepeatedResignationStartsNoSecondRound: the news may come twice, by a retry or by way of two connections.
func TestRepeatedResignationStartsNoSecondRound(t *testing.T) {
	m, n := followerOf(t)
	r := EndQuorumEpochRequest{ClusterID: testCluster, Leader: 2, Epoch: 7, Successors: []ReplicaKey{testKey(1), testKey(3)}}
	for i, code := range []ErrorCode{NoError, FencedLeaderEpoch} {
		if got := ask(t, m, r).(EndQuorumEpochResponse); got.Error != code || n.role != Candidate || n.state.Epoch != 8 || n.elections.Resign != 1 {
			t.Fatalf("time %d: %+v, %s of epoch %d after %d elections", i+1, got.Header, n.role, n.state.Epoch, n.elections.Resign)
		}
	}
}
