package raft

import (
	"slices"
	"testing"
	"time"
)

// ends moves time to an instant, with the deadlines on the way, and returns all answers.
func (m *member) ends(at Instant) (answers []Answer) {
	for m.node.Deadline() <= at {
		m.node.Step(m.node.Deadline(), Deadline{})
		answers = append(answers, m.take().answers...)
	}
	m.node.now = at
	return answers
}

// TestFetchRequestErrors: C-130, C-131.
func TestFetchRequestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*FetchRequest)
		code   ErrorCode
	}{
		"negative offset":                 {func(r *FetchRequest) { r.Offset = -1 }, InvalidRequest},
		"negative epoch of the last":      {func(r *FetchRequest) { r.LastFetchedEpoch = -1 }, InvalidRequest},
		"last epoch above the leader's":   {func(r *FetchRequest) { r.LastFetchedEpoch = 2 }, InvalidRequest},
		"negative wait":                   {func(r *FetchRequest) { r.MaxWait = -1 }, InvalidRequest},
		"older epoch":                     {func(r *FetchRequest) { r.Epoch, r.LastFetchedEpoch = 0, 0 }, FencedLeaderEpoch},
		"newer epoch":                     {func(r *FetchRequest) { r.Epoch = 2 }, UnknownLeaderEpoch},
		"the leader's own id":             {func(r *FetchRequest) { r.Replica = testKey(1) }, InvalidRequest},
		"the leader's id on another disk": {func(r *FetchRequest) { r.Replica = ReplicaKey{1, UUID{9}} }, InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := leaderOf(t)
			r := FetchRequest{ClusterID: testCluster, Replica: testKey(9), Epoch: 1, Offset: n.log.end, LastFetchedEpoch: 1, MaxWait: time.Second}
			c.change(&r)
			got := ask(t, m, r).(FetchResponse)
			if got.Error != c.code || got.Leader != 1 || got.Epoch != 1 || got.HighWatermark != Unknown || got.End > got.Offset {
				t.Errorf("%+v, want error %d with leader and epoch, and no records", got, c.code)
			}
			if len(n.leader.observers) != 0 {
				t.Error("whoever asks so is tracked")
			}
		})
	}
}

// TestParkedFetchEndsWithItsTime: C-133, C-253. Each parked fetch has its own deadline, which is answered with what there
// is, and several may fall together.
func TestParkedFetchEndsWithItsTime(t *testing.T) {
	m, n := leaderOf(t)
	at := n.now
	for id, wait := range map[NodeID]time.Duration{11: 100 * time.Millisecond, 12: 300 * time.Millisecond, 13: 100 * time.Millisecond} {
		r := FetchRequest{ClusterID: testCluster, Replica: testKey(id), Epoch: 1, Offset: n.log.end, LastFetchedEpoch: 1, HighWatermark: n.highWatermark, MaxWait: wait}
		n.Step(n.now, Inbound{ID: RequestID(id), Conn: ConnID(id), Request: r})
		if out := m.take(); len(out.answers) > 0 {
			t.Fatalf("answered at once: %+v", out.answers)
		}
	}
	ended := func(until time.Duration) (ids []RequestID) {
		for _, a := range m.ends(at.Add(until)) {
			r := a.Result.(FetchResponse)
			if r.Error != NoError || r.End > r.Offset || r.HighWatermark != n.highWatermark {
				t.Errorf("request %d: %+v, want nothing new and no error", a.ID, r)
			}
			ids = append(ids, a.ID)
		}
		slices.Sort(ids)
		return ids
	}
	for _, c := range []struct {
		until time.Duration
		want  []RequestID
	}{{99 * time.Millisecond, nil}, {100 * time.Millisecond, []RequestID{11, 13}}, {299 * time.Millisecond, nil}, {300 * time.Millisecond, []RequestID{12}}} {
		if got := ended(c.until); !slices.Equal(got, c.want) {
			t.Errorf("until %v ended %v, want %v", c.until, got, c.want)
		}
	}
}

// TestWhatIsParked: C-133, C-137, C-138. A fetch waits if there is nothing that its sender does not know.
func TestWhatIsParked(t *testing.T) {
	leader := func(committed bool) (*member, *Node) {
		if committed {
			return leaderOf(t)
		}
		m, n := nodeOf(t, ElectionState{0, None, NoReplica})
		win(n)
		m.take()
		n.Step(n.now, m.flushed())
		m.take()
		return m, n
	}
	for name, c := range map[string]struct {
		committed     bool
		behind        int64
		highWatermark int64
		wait          time.Duration
		parked        bool
	}{
		"nothing new":                       {true, 0, 3, time.Second, true},
		"no time to wait":                   {true, 0, 3, 0, false},
		"records":                           {true, 1, 3, time.Second, false},
		"a higher high watermark":           {true, 0, 2, time.Second, false},
		"a high watermark, and none known":  {true, 0, Unknown, time.Second, false},
		"a sender that cannot tell":         {true, 0, NoHighWatermark, time.Second, true},
		"known to neither":                  {false, 0, Unknown, time.Second, true},
		"known to the sender alone":         {false, 0, 3, time.Second, true},
		"records, high watermark not known": {false, 1, Unknown, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := leader(c.committed)
			r := FetchRequest{
				ClusterID: testCluster, Replica: testKey(9), Epoch: 1, Offset: n.log.end - c.behind, LastFetchedEpoch: 1,
				HighWatermark: c.highWatermark, MaxWait: c.wait, MaxBytes: 1,
			}
			n.Step(n.now, Inbound{ID: 70, Conn: 9, Request: r})
			answered := slices.ContainsFunc(m.take().answers, func(a Answer) bool { return a.ID == 70 })
			if answered == c.parked {
				t.Errorf("answered at once: %v", answered)
			}
		})
	}
}

// TestReaderWithoutAnIDIsNotTracked: C-141. It is served and parked like anybody, and nobody remembers it.
func TestReaderWithoutAnIDIsNotTracked(t *testing.T) {
	m, n := leaderOf(t)
	read := func(offset int64) []Answer {
		n.Step(n.now, Inbound{ID: 70, Conn: 9, Request: FetchRequest{ClusterID: testCluster, Replica: NoReplica, Epoch: 1, Offset: offset, LastFetchedEpoch: 1, HighWatermark: NoHighWatermark, MaxWait: time.Second}})
		return m.take().answers
	}
	if got := read(1); len(got) != 1 || got[0].Result.(FetchResponse).End != n.log.end {
		t.Errorf("with records to read: %+v", got)
	}
	if got := read(n.log.end); len(got) != 0 {
		t.Errorf("at the end: %+v, want it parked", got)
	}
	if len(n.leader.observers) != 0 || len(n.Status().Progress) != 3 {
		t.Errorf("tracked: %+v", n.Status().Progress)
	}
	// There may be many of them, so they are bounded: beyond the bound they are answered at once.
	for range 2 * maxParkedFetches {
		read(n.log.end)
	}
	if len(n.leader.parked) > maxParkedFetches {
		t.Errorf("%d fetches parked", len(n.leader.parked))
	}
	if f := n.leader.parked[0]; f.replica.ID == None {
		t.Errorf("what was parked first is %+v: a voter's fetch was pushed out", f)
	}
}

// TestFetchesAreAnsweredByNobodyElse: C-098, C-131. Only a leader serves; everybody else names the leader that it knows.
func TestFetchesAreAnsweredByNobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		state  ElectionState
		leader NodeID
	}{
		"Unattached": {ElectionState{7, None, NoReplica}, None},
		"Candidate":  {ElectionState{7, None, testKey(1)}, None},
		"Follower":   {ElectionState{7, 2, NoReplica}, 2},
		"Resigned":   {ElectionState{7, 1, NoReplica}, 1},
	} {
		m, _ := nodeOf(t, c.state, 7)
		got := ask(t, m, FetchRequest{ClusterID: testCluster, Replica: testKey(3), Epoch: 7, Offset: 1, LastFetchedEpoch: 7, MaxWait: time.Second}).(FetchResponse)
		if got.Error != NotLeaderOrFollower || got.Leader != c.leader || got.Epoch != 7 {
			t.Errorf("%s: %+v, want NOT_LEADER_OR_FOLLOWER and leader %d", name, got, c.leader)
		}
	}
}

// TestPR29LoneAppend: C-111. An append that nothing follows is committed when its linger is over, by the linger's own timer.
func TestPR29LoneAppend(t *testing.T) {
	const linger, oneWay, flush = 25 * time.Millisecond, time.Millisecond, 20 * time.Millisecond
	for _, voters := range []int{1, 3} {
		w := newWorld(1)
		w.faults, w.loss, w.delay, w.quiet, w.symmetric = false, 0, oneWay, true, true
		var ids []NodeID
		for i := range voters {
			ids = append(ids, NodeID(i))
		}
		w.members = nil
		for _, id := range ids {
			cfg := testConfig(id, testVoters(ids...))
			cfg.AppendLinger = linger
			w.members = append(w.members, newMember(cfg, dynamic(testVoters(ids...))))
		}
		for _, m := range w.members {
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			if err := w.take(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.until(Instant(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(w.members, func(m *member) bool { return m.node.role == Leader })
		leader := w.members[i]
		longest := time.Duration(0)
		for range 1000 {
			id := w.newID()
			leader.payloads[id] = "alone"
			start, acked := w.now, w.stats.Acked
			if err := w.step(leader, Propose{ID: id, Records: 1, Bytes: 10}); err != nil {
				t.Fatal(err)
			}
			for w.stats.Acked == acked && w.now < start.Add(time.Minute) {
				if err := w.until(w.now.Add(100 * time.Microsecond)); err != nil {
					t.Fatal(err)
				}
			}
			longest = max(longest, time.Duration(w.now-start))
			if err := w.until(w.now + Instant(w.rng.Int64N(int64(time.Second)))); err != nil {
				t.Fatal(err)
			}
		}
		// Linger, the leader's fsync and a follower's beside a round trip, and the next fetch.
		if limit := linger + 2*flush + 4*oneWay; longest < linger || longest > limit {
			t.Errorf("%d voters: the longest of 1000 lone appends took %v, want between %v and %v", voters, longest, linger, limit)
		}
	}
}

// TestSoleVoterKeepsItsOffice: C-091, B-03.
func TestSoleVoterKeepsItsOffice(t *testing.T) {
	set := testVoters(1)
	m := newMember(testConfig(1, set), dynamic(set))
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	n := m.node
	n.Step(n.now, m.flushed())
	m.take()
	m.ends(n.now.Add(10 * n.cfg.FetchTimeout))
	if n.role != Leader || n.state.Epoch != 1 || n.leader.checkQuorum != Never {
		t.Errorf("%s of epoch %d, check-quorum at %v", n.role, n.state.Epoch, n.leader.checkQuorum)
	}
}

// TestCheckQuorumIsOfDistinctVoters: C-090, C-092, B-02. With five voters two others are needed, and one voter that comes often
// is not two.
func TestCheckQuorumIsOfDistinctVoters(t *testing.T) {
	set := testVoters(1, 2, 3, 4, 5)
	for name, c := range map[string]struct {
		fetchers []NodeID
		stays    bool
	}{
		"one of four":                {[]NodeID{2, 2}, false},
		"two of four":                {[]NodeID{2, 5}, true},
		"one, and observers":         {[]NodeID{2, 11, 12, 13}, false},
		"one, and another's twin":    {[]NodeID{2, 103}, false},
		"nobody":                     {nil, false},
		"three, by turns, is enough": {[]NodeID{2, 3, 4}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(testConfig(1, set), dynamic(set))
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			n := m.node
			win(n)
			m.take()
			n.Step(n.now, m.flushed())
			m.take()
			for round := range 5 {
				for _, id := range c.fetchers {
					key := testKey(id)
					if id > 100 {
						key = ReplicaKey{ID: id - 100, DirectoryID: UUID{9}}
					}
					n.Step(n.now, Inbound{ID: RequestID(id), Conn: ConnID(id), Request: FetchRequest{ClusterID: testCluster, Replica: key, Epoch: 1, MaxWait: time.Second}})
					m.take()
				}
				m.ends(n.now.Add(n.cfg.FetchTimeout))
				if n.role != Leader {
					if c.stays {
						t.Fatalf("resigned in round %d", round)
					}
					return
				}
			}
			if !c.stays {
				t.Error("still leads")
			}
		})
	}
}
