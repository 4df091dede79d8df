package raft

import (
	"slices"
	"testing"
	"time"
)

// TestWhatRestartsTheFetchTimer: C-152, C-165. A successful answer does, with or without records; an error does not, or a
// leader that only complains would stay for ever.
func TestWhatRestartsTheFetchTimer(t *testing.T) {
	for name, c := range map[string]struct {
		response FetchResponse
		restarts bool
	}{
		"nothing new":            {FetchResponse{HighWatermark: 2}, true},
		"records":                {FetchResponse{HighWatermark: 2, Batches: []Batch{batch(3, 7)}}, true},
		"where the logs part":    {FetchResponse{HighWatermark: 2, Diverging: &OffsetAndEpoch{2, 6}}, true},
		"not the leader":         {FetchResponse{Header: Header{Error: NotLeaderOrFollower, Epoch: 7, Leader: 2}}, false},
		"an unexpected error":    {FetchResponse{Header: Header{Error: UnknownServerError, Epoch: 7, Leader: 2}}, false},
		"not available":          {FetchResponse{Header: Header{Error: BrokerNotAvailable, Epoch: 7, Leader: 2}}, false},
		"unknown topic":          {FetchResponse{Header: Header{TopError: UnknownTopicOrPartition, Epoch: 7, Leader: None}}, false},
		"an epoch of the future": {FetchResponse{Header: Header{Error: UnknownLeaderEpoch, Epoch: 7, Leader: 2}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := followerOf(t)
			n.now = n.now.Add(100 * time.Millisecond)
			before := n.follower.timeout
			respond(m, c.response)
			if restarted := n.follower.timeout != before; restarted != c.restarts || n.role != Follower || n.follower.hasFetched != c.restarts {
				t.Errorf("%s, restarted %v, fetched %v; want %v", n.role, restarted, n.follower.hasFetched, c.restarts)
			}
		})
	}
}

// TestFetchGoesOn: C-150, C-012. What came is appended and flushed, and the next Fetch is from the new end, to the leader.
func TestFetchGoesOn(t *testing.T) {
	for _, epochs := range [][]Epoch{nil, {5, 6, 6}} {
		m, n := nodeOf(t, ElectionState{7, 2, NoReplica}, epochs...)
		end := int64(len(epochs))
		if n.fetch.to != 2 {
			t.Fatalf("%d records: fetches from %d, want from the leader that quorum-state names", end, n.fetch.to)
		}
		out := respond(m, FetchResponse{Batches: []Batch{batch(end, 7), batch(end+1, 7)}, HighWatermark: end})
		if len(out.ready.Appends) != 1 || !out.ready.Flush || len(out.sends) != 0 {
			t.Fatalf("%+v: want an append, a flush, and no Fetch yet", out.ready)
		}
		n.Step(n.now, m.flushed())
		sends := m.take().sends
		if len(sends) != 1 {
			t.Fatalf("sent %+v", sends)
		}
		if f := sends[0].Request.(FetchRequest); sends[0].To.ID != 2 || f.Offset != end+2 || f.LastFetchedEpoch != 7 || f.HighWatermark != end || f.Replica != testKey(1) || f.Epoch != 7 {
			t.Errorf("%+v to %d", f, sends[0].To.ID) // C-140
		}
	}
}

// TestLateFetchResponseOfAnotherLeader: C-158.
func TestLateFetchResponseOfAnotherLeader(t *testing.T) {
	m, n := followerOf(t)
	late := n.fetch.correlation
	ask(t, m, begin(3, 8, testEndpoints(3)))
	if n.role != Follower || n.state.Leader != 3 {
		t.Fatal(n.role)
	}
	n.Step(n.now, Outcome{Correlation: late, Response: FetchResponse{Header: Header{Epoch: 7, Leader: 2}, Batches: []Batch{batch(3, 7)}, HighWatermark: 4}})
	if out := m.take(); len(out.ready.Appends) > 0 || n.log.end != 3 || n.fetch.to != 3 {
		t.Error("an answer of the old leader was appended under the new one")
	}
}

// TestHighWatermarkSurvivesElections: C-125, C-215. What is committed stays known over every role but that of a new leader.
func TestHighWatermarkSurvivesElections(t *testing.T) {
	m, n := followerOf(t)
	respond(m, FetchResponse{HighWatermark: 2})
	for _, next := range []struct {
		role Role
		do   func()
	}{
		{Prospective, func() { n.Step(n.follower.timeout, Deadline{}) }},
		{Follower, func() { n.Step(n.election, Deadline{}) }},
		{Unattached, func() {
			n.Step(n.now, Inbound{ID: 1, Request: VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(3), Epoch: 8, Last: OffsetAndEpoch{9, 7}}})
		}},
		{Prospective, func() { n.Step(n.election, Deadline{}) }},
		{Candidate, func() {
			n.Step(n.now, Outcome{Correlation: n.conn(3).correlation, Response: vote(8, true)})
		}},
	} {
		next.do()
		if m.take(); n.role != next.role || n.highWatermark != 2 {
			t.Fatalf("%s with high watermark %d, want %s and 2", n.role, n.highWatermark, next.role)
		}
	}
}

// TestUnattachedVoterFindsTheLeader: C-163, B-11. It asks a bootstrap server once no election has come of itself, and
// follows whom that names, though the leader does not count it as a voter and will never announce itself.
func TestUnattachedVoterFindsTheLeader(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, None, NoReplica}, 6)
	for n.fetch.correlation == 0 {
		if n.Deadline() >= n.election {
			t.Fatal("campaigns before it looks for a leader")
		}
		n.Step(n.Deadline(), Deadline{})
		m.take()
	}
	if n.fetch.to >= 0 {
		t.Fatalf("fetches from %d, want from a bootstrap server", n.fetch.to)
	}
	respond(m, FetchResponse{Header: Header{Error: NotLeaderOrFollower, Epoch: 8, Leader: 3, LeaderEndpoints: testEndpoints(3)}})
	if n.role != Follower || n.state.Leader != 3 || n.fetch.to != 3 {
		t.Errorf("%s of %d, fetches from %d; want from leader 3", n.role, n.state.Leader, n.fetch.to)
	}
}

// TestPR28ObserverGoesBackToTheLeader: B-14, C-161. The leader fails to answer for a while; the observer asks a bootstrap
// server between its tries, is sent back, and stays with the leader once that answers: hardly another request to anybody
// else.
func TestPR28ObserverGoesBackToTheLeader(t *testing.T) {
	set := testVoters(2, 3, 4)
	m := newMember(testConfig(1, set), dynamic(set))
	m.state = ElectionState{7, 2, NoReplica}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	n := m.node
	others, leader := 0, 0
	run := func(until Instant, alive bool) {
		others, leader = 0, 0
		for n.now < until {
			switch {
			case n.fetch.correlation == 0:
				n.Step(n.Deadline(), Deadline{})
				m.take()
			case n.fetch.to == 2:
				leader++
				if n.now = n.now.Add(500 * time.Millisecond); alive {
					respond(m, FetchResponse{HighWatermark: 0})
				} else {
					n.Step(n.now, Outcome{Correlation: n.fetch.correlation, Failure: Disconnected})
					m.take()
				}
			default:
				others++
				n.now = n.now.Add(time.Millisecond)
				respond(m, FetchResponse{Header: Header{Error: NotLeaderOrFollower, Epoch: 7, Leader: 2}})
			}
		}
	}
	run(Instant(10*time.Second), false)
	if leader == 0 || others == 0 || others > leader+1 {
		t.Errorf("while the leader does not answer: %d fetches to it, %d to others; want turns", leader, others)
	}
	run(n.now.Add(20*time.Second), true)
	if leader < 30 || others > 1 {
		t.Errorf("with the leader back: %d fetches to it, %d to others", leader, others)
	}
	if n.role != Follower {
		t.Errorf("%s", n.role)
	}
}

// TestPR28LeaderBehindABlackHole: what is sent to the leader's own address gets lost, a bootstrap server is the leader under
// another one. The observer has data as soon as it has given the first request up and asked each of the others once; from
// then on it hardly asks anybody else.
func TestPR28LeaderBehindABlackHole(t *testing.T) {
	for name, servers := range map[string]int{"the only bootstrap server": 1, "one of three": 3} {
		set := testVoters(2, 3, 4)
		m := newMember(testConfig(1, set), dynamic(set))
		m.cfg.Bootstrap = m.cfg.Bootstrap[:servers]
		m.cfg.Bootstrap[0].Host = "elsewhere" // and leads
		m.state = ElectionState{7, 2, NoReplica}
		m.cfg.ObserverOnly = true
		if err := m.boot(0); err != nil {
			t.Fatal(err)
		}
		m.take()
		n := m.node
		first, data, others := Instant(0), 0, 0
		const long = time.Minute
		for n.now < Instant(long) {
			switch {
			case n.fetch.correlation == 0 || n.fetch.to == 2: // to rest, or until it gives up
				n.Step(n.Deadline(), Deadline{})
				m.take()
			case n.fetch.to == m.cfg.Bootstrap[0].ID:
				if data++; data == 1 {
					first = n.now
				}
				n.now = n.now.Add(500 * time.Millisecond)
				respond(m, FetchResponse{HighWatermark: 0})
			default:
				others++
				n.now = n.now.Add(time.Millisecond)
				respond(m, FetchResponse{Header: Header{Error: NotLeaderOrFollower, Epoch: 7, Leader: 2, LeaderEndpoints: testEndpoints(2)}})
			}
		}
		if limit := Instant(0).Add(m.cfg.RequestTimeout + 4*m.cfg.RetryBackoff*time.Duration(servers)); first == 0 || first > limit {
			t.Errorf("%s: first data after %v, want %v at most", name, time.Duration(first), time.Duration(limit))
		}
		if turns := int(long / (m.cfg.RequestTimeout + time.Second)); data < turns || others > servers {
			t.Errorf("%s: in %v %d answers with data, and %d requests to who does not lead; want %d at least, and %d at most", name, long, data, others, turns, servers)
		}
	}
}

// TestPR28NextLeaderIsFound: the leader's machine is gone. The others name it until they have elected another, which the
// observer follows a moment later.
func TestPR28NextLeaderIsFound(t *testing.T) {
	set := testVoters(2, 3, 4)
	m := newMember(testConfig(1, set), dynamic(set))
	m.state = ElectionState{7, 2, NoReplica}
	m.cfg.ObserverOnly = true
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	n := m.node
	elected := Instant(0).Add(m.cfg.RequestTimeout + m.cfg.ElectionTimeout*3/4)
	for n.state.Epoch == 7 && n.now < elected.Add(time.Minute) {
		switch h := (Header{Error: NotLeaderOrFollower, Epoch: 7, Leader: 2, LeaderEndpoints: testEndpoints(2)}); {
		case n.fetch.correlation == 0 || n.fetch.to == 2 || n.fetch.to == m.cfg.Bootstrap[0].ID: // to rest, or until it gives up
			n.Step(n.Deadline(), Deadline{})
			m.take()
		default:
			if n.now = n.now.Add(time.Millisecond); n.now >= elected {
				h.Epoch, h.Leader, h.LeaderEndpoints = 8, 3, testEndpoints(3)
			}
			respond(m, FetchResponse{Header: h})
		}
	}
	if limit := elected.Add(2 * n.backoff(backoffSteps)); n.state.Leader != 3 || n.now > limit {
		t.Errorf("leader %d after %v, want 3 after %v at most", n.state.Leader, time.Duration(n.now), time.Duration(limit))
	}
}

// TestDivergenceThatMakesNoSenseIsNotRepeatedAtOnce: the leader says that our logs part beyond our end, again and again.
func TestDivergenceThatMakesNoSenseIsNotRepeatedAtOnce(t *testing.T) {
	m, n := followerOf(t)
	respond(m, FetchResponse{Diverging: &OffsetAndEpoch{9, 6}})
	if n.log.end != 3 || n.fetch.correlation != 0 || n.Deadline() <= n.now {
		t.Errorf("log end %d, deadline %v at %v: want a pause", n.log.end, n.Deadline(), n.now)
	}
}

// TestDanglingEpochIsForgotten: C-154. A leader that never wrote in its epoch, and lost it, has that epoch at the end of
// its log; the first divergence takes it away, in the epoch checkpoint as well.
func TestDanglingEpochIsForgotten(t *testing.T) {
	set := testVoters(1, 2, 3)
	cfg := testConfig(1, set)
	cfg.State = ElectionState{7, 2, NoReplica}
	cfg.Log = LogState{End: 3, Epochs: []OffsetAndEpoch{{0, 5}, {3, 6}}, Control: dynamic(set)}
	n, err := New(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	sends := slices.Clone(n.Ready().Sends)
	n.Advance()
	f := sends[slices.IndexFunc(sends, func(s Send) bool { return s.To.ID == 2 })]
	if r := f.Request.(FetchRequest); r.Offset != 3 || r.LastFetchedEpoch != 6 {
		t.Fatalf("%+v", r)
	}
	n.Step(0, Outcome{Correlation: f.Correlation, Response: FetchResponse{Header: Header{Epoch: 7, Leader: 2}, HighWatermark: 2, Diverging: &OffsetAndEpoch{3, 5}}})
	r := n.Ready()
	if r.Truncate == nil || r.Truncate.Offset != 3 || n.log.position() != (OffsetAndEpoch{3, 5}) {
		t.Errorf("truncate %+v, log end %+v; want the epoch gone and no record", r.Truncate, n.log.position())
	}
	if next := r.Sends[0].Request.(FetchRequest); next.Offset != 3 || next.LastFetchedEpoch != 5 {
		t.Errorf("next fetch %+v", next)
	}
}

// TestStaticVotersEndWithTheFirstVoterSet: C-020. What the log or the checkpoint says counts, whatever is configured.
func TestStaticVotersEndWithTheFirstVoterSet(t *testing.T) {
	cfg := testConfig(1, testVoters(1, 2, 3))
	cfg.StaticVoters = testVoters(1, 2, 3)
	for name, c := range map[string]struct {
		control []ControlAt
		end     int64
		voters  int
	}{
		"nothing":              {nil, 0, 3},
		"the checkpoint's set": {dynamic(testVoters(2, 3)), 0, 2},
		"the log's set":        {[]ControlAt{{-1, KRaftVersion{1}}, {-1, Voters{testVoters(1, 2)}}, {1, Voters{testVoters(2, 3, 4, 5)}}}, 2, 4},
	} {
		cfg := cfg
		cfg.Log.Control, cfg.Log.End = c.control, c.end
		if c.end > 0 {
			cfg.Log.Epochs = []OffsetAndEpoch{{0, 1}}
		}
		n, err := New(cfg, 0)
		if err != nil {
			t.Fatal(err)
		}
		if s := n.Status(); len(s.Voters) != c.voters || s.IsVoter != s.Voters.Contains(cfg.Self) {
			t.Errorf("%s: %d voters, want %d", name, len(s.Voters), c.voters)
		}
	}
}

// TestLogsThatNoLeaderCouldHave: what storage says about a log must make sense, or nothing built on it does.
func TestLogsThatNoLeaderCouldHave(t *testing.T) {
	for name, l := range map[string]LogState{
		"an end before the start":      {Start: 5, End: 4, Snapshot: &OffsetAndEpoch{5, 1}},
		"a start without a snapshot":   {Start: 5, End: 9},
		"epochs that fall":             {End: 9, Epochs: []OffsetAndEpoch{{0, 2}, {4, 1}}},
		"an epoch before the last one": {End: 9, Epochs: []OffsetAndEpoch{{4, 1}, {2, 2}}},
		"an end before its snapshot":   {End: 9, Snapshot: &OffsetAndEpoch{10, 1}},
		"an epoch beyond the end":      {End: 9, Epochs: []OffsetAndEpoch{{10, 1}}},
	} {
		if _, err := newLogHistory(l); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	h, err := newLogHistory(LogState{Start: 5, End: 5, Snapshot: &OffsetAndEpoch{5, 3}})
	if err != nil || h.lastEpoch() != 3 || *h.earliest != (OffsetAndEpoch{5, 3}) {
		t.Errorf("an empty log behind a snapshot: %v, last epoch %d", err, h.lastEpoch())
	}
}

// TestMembersOfTheSameName: what a peer says about our own id. A voter whose quorum-state was lost must end; who is no voter
// hears of the one that had its id before.
func TestMembersOfTheSameName(t *testing.T) {
	for name, c := range map[string]struct {
		voters []NodeID
		fatal  bool
	}{"a voter": {[]NodeID{1, 2, 3}, true}, "an observer with a voter's old id": {[]NodeID{2, 3}, false}} {
		set := testVoters(c.voters...)
		m := newMember(testConfig(1, set), dynamic(set))
		m.state = ElectionState{7, None, NoReplica}
		if err := m.boot(0); err != nil {
			t.Fatal(err)
		}
		m.take()
		n := m.node
		n.Step(n.now, Inbound{ID: 1, Request: begin(1, 8, testEndpoints(1))})
		f := m.take().ready.Fatal
		if (f != nil) != c.fatal {
			t.Errorf("%s: fatal %+v", name, f)
		}
		if f == nil && (n.role != Unattached || n.state.Epoch != 8 || n.state.Leader != None) {
			t.Errorf("%s: %s %+v, want Unattached in epoch 8 without a leader", name, n.role, n.state)
		}
	}
}
