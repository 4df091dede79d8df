package raft

import (
	"slices"
	"testing"
	"time"
)

// reply answers the request in flight to a node.
func reply(m *member, to NodeID, r Response) takeover {
	m.node.Step(m.node.now, Outcome{Correlation: m.node.conn(to).correlation, Response: r})
	return m.take()
}

// votesAskedOf lists whom a step asked for votes or pre-votes, in order.
func votesAskedOf(out takeover, pre bool) (ids []NodeID) {
	for _, s := range out.sends {
		if v, ok := s.Request.(VoteRequest); ok && v.PreVote == pre {
			ids = append(ids, s.To.ID)
		}
	}
	return ids
}

func vote(epoch Epoch, granted bool) VoteResponse {
	return VoteResponse{Header: Header{Epoch: epoch, Leader: None}, Granted: granted}
}

// TestTally is C-055: even quorums need one more than half, and a round is lost once those who may still say yes are too few.
func TestTally(t *testing.T) {
	for _, c := range []struct {
		voters, yes, no int // yes counts our own
		won, lost       bool
	}{
		{1, 1, 0, true, false},
		{2, 1, 0, false, false},
		{2, 1, 1, false, true},
		{2, 2, 0, true, false},
		{3, 1, 1, false, false},
		{3, 2, 0, true, false},
		{3, 1, 2, false, true},
		{4, 2, 1, false, false},
		{4, 2, 2, false, true},
		{4, 3, 0, true, false},
		{5, 2, 2, false, false},
		{5, 3, 2, true, false},
		{5, 2, 3, false, true},
	} {
		var ids []NodeID
		for i := range c.voters {
			ids = append(ids, NodeID(i+1))
		}
		tally := newTally(testVoters(ids...), testKey(1))
		for i := 1; i < c.yes; i++ {
			tally.ballots[i] = granted
		}
		for i := range c.no {
			tally.ballots[c.voters-1-i] = rejected
		}
		if tally.won() != c.won || tally.lost() != c.lost {
			t.Errorf("%d voters, %d yes, %d no: won %v, lost %v; want %v, %v", c.voters, c.yes, c.no, tally.won(), tally.lost(), c.won, c.lost)
		}
	}
}

// TestCandidateThatCannotWinWaits: C-051, C-052, B-13. It sends nothing any more, waits out the rest of its timer, and then
// asks for pre-votes in the same epoch, with its own vote kept.
func TestCandidateThatCannotWinWaits(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, None, testKey(1)}, 6)
	timer := n.election
	reply(m, 2, vote(7, false))
	reply(m, 3, vote(7, false))
	if n.role != Candidate || n.election != timer || n.Deadline() != timer {
		t.Fatalf("%s, timer %v, deadline %v: want a candidate that waits until %v", n.role, n.election, n.Deadline(), timer)
	}
	n.Step(timer, Deadline{})
	out := m.take()
	if n.role != Prospective || n.state != (ElectionState{7, None, testKey(1)}) {
		t.Errorf("%s %+v", n.role, n.state)
	}
	if got := votesAskedOf(out, true); !slices.Equal(got, []NodeID{2, 3}) {
		t.Errorf("asked %v for pre-votes, want 2 and 3", got)
	}
}

// TestAVoterIsCountedOnce: C-053, C-054, C-075. A voter that has answered is not asked again in that round, and whatever comes
// later under the same correlation means nothing: a yes never becomes a no, nor the reverse.
func TestAVoterIsCountedOnce(t *testing.T) {
	for _, first := range []bool{true, false} {
		set := testVoters(1, 2, 3, 4, 5)
		m := newMember(testConfig(1, set), dynamic(set))
		m.state = ElectionState{7, None, testKey(1)}
		if err := m.boot(0); err != nil {
			t.Fatal(err)
		}
		m.take()
		n := m.node
		correlation := n.conn(2).correlation
		reply(m, 2, vote(7, first))
		want := n.tally.ballots[1]
		n.Step(n.now, Outcome{Correlation: correlation, Response: vote(7, !first)})
		m.take()
		n.Step(n.now.Add(100*time.Millisecond), Deadline{})
		if out := m.take(); n.tally.ballots[1] != want || slices.Contains(votesAskedOf(out, false), 2) {
			t.Errorf("after %v, then %v: ballot %d, want %d and no other question", first, !first, n.tally.ballots[1], want)
		}
	}
}

// TestLostPreVote is C-071 to C-073: where a rejected Prospective goes, always in the unchanged epoch.
func TestLostPreVote(t *testing.T) {
	for name, c := range map[string]struct {
		state ElectionState
		role  Role
	}{
		"leader and endpoint known (C-071)": {ElectionState{7, 2, NoReplica}, Follower},
		"only the leader's id (C-072)":      {ElectionState{7, 9, NoReplica}, Unattached},
		"no leader (C-073)":                 {ElectionState{7, None, NoReplica}, Unattached},
		"no leader, a vote (C-045)":         {ElectionState{7, None, testKey(3)}, Unattached},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := nodeOf(t, c.state, 6)
			n.Step(n.Deadline(), Deadline{}) // first the search for a leader, perhaps
			m.take()
			for n.role != Prospective {
				n.Step(max(n.now, n.election, n.follower.timeout), Deadline{})
				m.take()
			}
			// A rejection is no reason to forget anything.
			at := n.now
			reply(m, 2, vote(7, false))
			reply(m, 3, vote(7, false))
			if n.role != c.role || n.state != c.state {
				t.Fatalf("%s %+v, want %s %+v", n.role, n.state, c.role, c.state)
			}
			if c.role == Unattached && n.election < at.Add(n.cfg.ElectionTimeout) {
				t.Errorf("election timer ends after %v, want a new one", time.Duration(n.election-at))
			}
			if c.role == Follower && (n.follower.timeout < at.Add(n.cfg.FetchTimeout) || n.follower.hasFetched) {
				t.Errorf("fetch timer ends after %v, fetched %v: want a new one, and no trust yet", time.Duration(n.follower.timeout-at), n.follower.hasFetched)
			}
			// C-045, C-046: the vote of the epoch stays given, whatever roles were passed through.
			other := VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(2), Epoch: 7, Last: OffsetAndEpoch{9, 6}}
			if got := ask(t, m, other).(VoteResponse).Granted; got != (c.state == ElectionState{7, None, NoReplica}) {
				t.Errorf("a vote asked for afterwards: granted %v", got)
			}
		})
	}
}

// TestNoSecondVoteOverRoles: C-046. A follower that voted for another than its leader, and then stopped trusting the leader,
// gives no second vote in that epoch.
func TestNoSecondVoteOverRoles(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, 2, testKey(3)}, 6)
	asked := VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(2), Epoch: 7, Last: OffsetAndEpoch{9, 6}}
	for _, want := range []Role{Follower, Prospective, Follower, Prospective} {
		if n.role != want {
			t.Fatalf("%s, want %s", n.role, want)
		}
		if ask(t, m, asked).(VoteResponse).Granted || n.state.Voted != testKey(3) {
			t.Errorf("%s: gave a second vote, state %+v", n.role, n.state)
		}
		if n.role == Follower {
			n.Step(n.follower.timeout, Deadline{})
		} else {
			n.Step(n.election, Deadline{})
		}
		m.take()
	}
}

// TestPreVotesAreRepeated: C-078, and C-074: after the round answers mean nothing.
func TestPreVotesAreRepeated(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, None, NoReplica}, 6)
	n.becomeProspective(causeTimer)
	n.settle()
	out := m.take()
	if got := votesAskedOf(out, true); !slices.Equal(got, []NodeID{2, 3}) {
		t.Fatalf("asked %v", got)
	}
	late := n.conn(3).correlation
	n.election, n.fetch.notBefore = Never, Never // look at the requests only
	n.Step(n.conn(2).timeout, Deadline{})
	if got := votesAskedOf(m.take(), true); !slices.Equal(got, []NodeID{2, 3}) {
		t.Errorf("after the request timeout asked %v, want both again", got)
	}
	n.Step(n.now, Outcome{Correlation: late, Response: vote(7, true)})
	m.take()
	if n.role != Prospective {
		t.Errorf("an answer that came after its time made it %s", n.role)
	}
}

// TestPreVotesForMany: C-065. One epoch, many askers, and no trace of any.
func TestPreVotesForMany(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, None, NoReplica}, 6)
	before := n.state
	for _, id := range []NodeID{2, 3, 9} {
		r := VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(id), Epoch: 7, Last: OffsetAndEpoch{1, 6}, PreVote: true}
		n.Step(n.now, Inbound{ID: 1, Request: r})
		out := m.take()
		if got := out.answers[0].Result.(VoteResponse); !got.Granted || out.ready.Persist != nil || n.state != before {
			t.Errorf("node %d: %+v, persisted %+v", id, got, out.ready.Persist)
		}
	}
}

// TestObserverVotes: C-038, B-08. An observer's view of the voters may be old, so it answers by the same rules; but its vote
// starts no timer, and it never campaigns.
func TestObserverVotes(t *testing.T) {
	set := testVoters(2, 3)
	m := newMember(testConfig(1, set), dynamic(set))
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	n := m.node
	r := VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(2), Epoch: 1}
	if got := ask(t, m, r).(VoteResponse); !got.Granted || m.state.Voted != testKey(2) {
		t.Fatalf("%+v, persisted %+v", got, m.state)
	}
	if n.election != Never {
		t.Error("an election timer runs")
	}
	for range 100 {
		n.Step(max(n.now, n.Deadline()), Deadline{})
		if m.take(); n.role != Unattached {
			t.Fatalf("an observer became %s", n.role)
		}
	}
}

// TestLeaderAnswersVotesOfStrangers: C-033, C-035, C-039, and C-085 of a response: a higher epoch ends an office, whoever asks.
func TestLeaderAnswersVotesOfStrangers(t *testing.T) {
	m, n := leaderOf(t)
	r := VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(9), Epoch: 1, Last: OffsetAndEpoch{99, 0}}
	if got := ask(t, m, r).(VoteResponse); got.Error != NoError || got.Granted || got.Leader != 1 || got.Epoch != 1 {
		t.Errorf("in its epoch: %+v, want no, and its name", got)
	}
	r.Epoch, r.Last = 2, OffsetAndEpoch{99, 1}
	if got := ask(t, m, r).(VoteResponse); got.Error != NoError || !got.Granted || n.role != Unattached || n.state.Voted != testKey(9) {
		t.Errorf("in a higher epoch: %+v, %s, %+v", got, n.role, n.state)
	}
}

// TestFollowerNamesItsLeader: C-033.
func TestFollowerNamesItsLeader(t *testing.T) {
	m, _ := followerOf(t)
	r := VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(3), Epoch: 7, Last: OffsetAndEpoch{9, 6}}
	got := ask(t, m, r).(VoteResponse)
	if _, named := Find(got.LeaderEndpoints, "CONTROLLER"); got.Granted || got.Leader != 2 || got.Epoch != 7 || !named {
		t.Errorf("%+v, want no, and leader 2 with its endpoint", got)
	}
}

// TestNullClusterIDWithTheCompatibilityKey: C-041. Old peers send none; cluster.id.optional=true lets them in, and another
// cluster's id is refused all the same.
func TestNullClusterIDWithTheCompatibilityKey(t *testing.T) {
	for _, optional := range []bool{true, false} {
		for name, r := range map[string]Request{
			"Vote":             VoteRequest{Voter: NoReplica, Replica: testKey(2), Epoch: 9},
			"BeginQuorumEpoch": BeginQuorumEpochRequest{Voter: NoReplica, Leader: 2, Epoch: 9},
			"EndQuorumEpoch":   EndQuorumEpochRequest{Leader: 2, Epoch: 9},
			"Fetch":            FetchRequest{Replica: testKey(2), Epoch: 9},
			"UpdateRaftVoter":  UpdateRaftVoterRequest{Epoch: 9, Voter: Voter{Key: testKey(2)}},
		} {
			m, n := followerOf(t)
			n.cfg.RequireID = !optional
			if got := topErrorOf(ask(t, m, r)); (got == InvalidRequest) == optional {
				t.Errorf("%s without a cluster id, optional %v: top-level error %d", name, optional, got)
			}
		}
	}
}

func topErrorOf(result any) ErrorCode {
	switch r := result.(type) {
	case VoteResponse:
		return r.TopError
	case BeginQuorumEpochResponse:
		return r.TopError
	case EndQuorumEpochResponse:
		return r.TopError
	case FetchResponse:
		return r.TopError
	case UpdateRaftVoterResponse:
		return r.TopError
	}
	return NoError
}

// TestVoteResponsesOfAnEarlierRound: C-053, C-074, C-251. A role's requests die with it.
func TestVoteResponsesOfAnEarlierRound(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, None, testKey(1)}, 6)
	late := []Correlation{n.conn(2).correlation, n.conn(3).correlation, 0, 9999}
	ask(t, m, BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(1), Leader: 3, Epoch: 7, Endpoints: testEndpoints(3)})
	if n.role != Follower || n.state.Leader != 3 {
		t.Fatalf("%s, leader %d", n.role, n.state.Leader)
	}
	for _, c := range late {
		n.Step(n.now, Outcome{Correlation: c, Response: vote(7, true)})
		if m.take(); n.role != Follower {
			t.Fatalf("a late grant made a follower %s", n.role)
		}
	}
}
