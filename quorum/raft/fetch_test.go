package raft

import (
	"testing"
	"time"
)

// followerOf is voter 1 following node 2 in epoch 7 with a log of three records, its fetch in flight.
func followerOf(t testing.TB) (*member, *Node) {
	t.Helper()
	return nodeOf(t, ElectionState{7, 2, NoReplica}, 5, 6, 6)
}

// respond answers the fetch in flight.
func respond(m *member, r FetchResponse) takeover {
	corr := m.node.fetch.correlation
	if r.Epoch == 0 {
		r.Epoch, r.Leader = m.node.state.Epoch, m.node.state.Leader
	}
	var kept []testBatch
	for _, b := range r.Batches {
		kept = append(kept, testBatch{Batch: b})
	}
	m.kept[corr] = kept
	m.node.Step(m.node.now, Outcome{Correlation: corr, Response: r})
	return m.take()
}

func batch(base int64, epoch Epoch) Batch {
	return Batch{BaseOffset: base, LastOffset: base, Epoch: epoch, Bytes: 10}
}

// TestPR18OnlyBatchesThatContinueTheLog: a response holds bytes of other epochs and offsets, since its sender was truncating
// (KAFKA-18723, C-156, C-157). What comes before the first bad one is kept.
func TestPR18OnlyBatchesThatContinueTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		batches []Batch
		end     int64
	}{
		"good":                       {[]Batch{batch(3, 6), batch(4, 7)}, 5},
		"an epoch beyond ours":       {[]Batch{batch(3, 7), batch(4, 8), batch(5, 7)}, 4},
		"an epoch that goes back":    {[]Batch{batch(3, 7), batch(4, 6)}, 4},
		"an epoch below the log's":   {[]Batch{batch(3, 5)}, 3},
		"an offset we have":          {[]Batch{batch(2, 6), batch(3, 6)}, 3},
		"an offset twice":            {[]Batch{batch(3, 6), batch(3, 6)}, 4},
		"an end before its own base": {[]Batch{{BaseOffset: 3, LastOffset: 2, Epoch: 6, Bytes: 10}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := followerOf(t)
			respond(m, FetchResponse{Batches: c.batches, HighWatermark: Unknown})
			if n.log.end != c.end || m.end() != c.end {
				t.Errorf("log ends at %d, want %d", n.log.end, c.end)
			}
			if n.role != Follower || !n.follower.hasFetched {
				t.Errorf("%s, fetched %v", n.role, n.follower.hasFetched)
			}
		})
	}
}

// TestFollowerHighWatermark: the smaller of its log end and what the leader says (C-125, kraft-spec 3.2).
func TestFollowerHighWatermark(t *testing.T) {
	m, n := followerOf(t)
	respond(m, FetchResponse{HighWatermark: 9})
	if n.highWatermark != 3 {
		t.Errorf("high watermark %d, want the log end 3", n.highWatermark)
	}
	respond(m, FetchResponse{HighWatermark: Unknown}) // a new leader does not know it yet
	if n.highWatermark != 3 || n.role != Follower {
		t.Errorf("high watermark %d", n.highWatermark)
	}
}

// TestLateFetchResponseIsIgnored: C-158, C-160.
func TestLateFetchResponseIsIgnored(t *testing.T) {
	m, n := followerOf(t)
	late := n.fetch.correlation
	n.Step(n.follower.timeout, Deadline{})
	m.take()
	if n.role != Prospective {
		t.Fatal(n.role)
	}
	n.Step(n.now, Outcome{Correlation: late, Response: FetchResponse{Header: Header{Epoch: 7, Leader: 2}, Batches: []Batch{batch(3, 7)}, HighWatermark: 4}})
	if out := m.take(); len(out.ready.Appends) > 0 || n.log.end != 3 {
		t.Error("a late response was appended")
	}
}

// TestFetchFailover: a leader that does not answer is followed by a bootstrap server at once, then by the leader again
// (C-159, C-160, C-161), and there is never more than one fetch in flight (C-164).
func TestFetchFailover(t *testing.T) {
	m, n := followerOf(t)
	n.follower.timeout = Never
	n.Step(n.now, Outcome{Correlation: n.fetch.correlation, Failure: Disconnected})
	if sends := m.take().sends; len(sends) != 1 || sends[0].To.ID >= 0 {
		t.Fatalf("after the failure: %+v, want a bootstrap server", sends)
	}
	respond(m, FetchResponse{Header: Header{Error: NotLeaderOrFollower, Epoch: 7, Leader: 2}})
	if n.fetch.correlation != 0 {
		t.Fatal("no pause after a fetch that brought nothing")
	}
	n.Step(n.Deadline(), Deadline{})
	n.follower.timeout = Never
	sends := m.take().sends
	if len(sends) != 1 || sends[0].To.ID != 2 {
		t.Fatalf("after the pause: %+v, want the leader", sends)
	}
	// It does not answer within the request timeout.
	n.Step(n.conn(2).timeout, Deadline{})
	m.take()
	n.Step(n.Deadline(), Deadline{}) // a second miss in a row waits a little
	if sends := m.take().sends; len(sends) != 1 || sends[0].To.ID >= 0 {
		t.Errorf("after the timeout: %+v, want a bootstrap server", sends)
	}
}

// TestLeaderHeardEndsTheSearch: a connection to the leader ended, and the bootstrap server that is asked next is gone. When
// the leader says that it misses us, the next Fetch goes to it, and what the server may still answer means nothing.
func TestLeaderHeardEndsTheSearch(t *testing.T) {
	m, n := followerOf(t)
	n.Step(n.now, Outcome{Correlation: n.fetch.correlation, Failure: Disconnected})
	sends := m.take().sends
	if len(sends) != 1 || sends[0].To.ID >= 0 {
		t.Fatalf("after the failure: %+v, want a bootstrap server", sends)
	}
	patience, heard := n.follower.timeout, n.now.Add(time.Second)
	n.Step(heard, Inbound{ID: 1, Request: begin(2, 7, nil)})
	again := m.take().sends
	if len(again) != 1 || again[0].To.ID != 2 {
		t.Fatalf("after the leader was heard: %+v, want one Fetch to it", again)
	}
	if n.follower.timeout != patience {
		t.Error("a leader that we only hear has won patience")
	}
	n.Step(heard, Outcome{Correlation: sends[0].Correlation, Response: FetchResponse{Header: Header{Error: NotLeaderOrFollower, Epoch: 7, Leader: None}}})
	if n.fetch.correlation != again[0].Correlation || n.fetch.misses != 0 {
		t.Errorf("the answer of the server was heeded: %+v", n.fetch)
	}
	n.Step(heard, Inbound{ID: 2, Request: begin(2, 7, nil)})
	if sends := m.take().sends; len(sends) != 0 {
		t.Errorf("heard again, while the leader has our Fetch: %+v", sends)
	}
}

// TestOldFlushIsIgnored: a flush that began before a truncation says nothing about the log of now. Only an observer fetches
// while one runs.
func TestOldFlushIsIgnored(t *testing.T) {
	set := testVoters(2, 3)
	m := newMember(testConfig(1, set), dynamic(set))
	m.cfg.ObserverOnly = true
	m.state = ElectionState{7, 2, NoReplica}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	n := m.node
	respond(m, FetchResponse{Batches: []Batch{batch(0, 5), batch(1, 5), batch(2, 5)}, HighWatermark: 1})
	respond(m, FetchResponse{Diverging: &OffsetAndEpoch{1, 5}})
	respond(m, FetchResponse{Batches: []Batch{batch(1, 7)}, HighWatermark: 1})
	if f := m.flushed(); f.End != 3 || f.Generation != 0 {
		t.Fatalf("%+v", f)
	}
	n.Step(n.now, Flushed{End: 3, Generation: 0})
	if n.flushed != 0 {
		t.Errorf("flushed %d by a flush from before the truncation", n.flushed)
	}
	if !m.take().ready.Flush {
		t.Error("no new flush was asked for")
	}
	n.Step(n.now, m.flushed())
	if n.flushed != 2 {
		t.Errorf("flushed %d, want 2", n.flushed)
	}
}

// TestLeaderlessEpochIsNoNewsToAnObserver: whoever is in it may be cut off for good, and an observer could never leave it.
func TestLeaderlessEpochIsNoNewsToAnObserver(t *testing.T) {
	for name, test := range map[string]struct {
		self         NodeID
		observerOnly bool
		want         Epoch
	}{
		"an observer for good":            {4, true, 7},
		"an observer that may be a voter": {4, false, 7},
		"a voter":                         {1, false, 9},
	} {
		set := testVoters(1, 2, 3)
		m := newMember(testConfig(test.self, set), dynamic(set))
		m.cfg.ObserverOnly = test.observerOnly
		m.state = ElectionState{7, 2, NoReplica}
		if err := m.boot(0); err != nil {
			t.Fatal(err)
		}
		m.take()
		respond(m, FetchResponse{Header: Header{Error: FencedLeaderEpoch, Epoch: 9, Leader: None}})
		if got := m.node.state.Epoch; got != test.want {
			t.Errorf("%s is told of epoch 9 without a leader: it goes from epoch 7 to %d, want %d", name, got, test.want)
		}
	}
}

// TestObserverDoesNotWaitForFlush: C-151. What is unsynced stays within one group all the same.
func TestObserverDoesNotWaitForFlush(t *testing.T) {
	set := testVoters(2, 3)
	m := newMember(testConfig(1, set), dynamic(set))
	m.cfg.ObserverOnly = true
	m.state = ElectionState{7, 2, NoReplica}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	n := m.node
	big := func(base int64) Batch { return Batch{BaseOffset: base, LastOffset: base, Epoch: 7, Bytes: 3 << 20} }
	for i := range int64(2) {
		if respond(m, FetchResponse{Batches: []Batch{big(i)}, HighWatermark: 0}); n.fetch.correlation == 0 {
			t.Fatal("waits for a flush")
		}
	}
	respond(m, FetchResponse{Batches: []Batch{big(2)}, HighWatermark: 0})
	if n.log.end != 2 || n.fetch.correlation != 0 {
		t.Fatalf("log end %d, fetch %+v: a third batch does not fit into one unsynced group", n.log.end, n.fetch)
	}
	n.Step(n.now, m.flushed())
	m.take()
	n.Step(n.now, m.flushed())
	if m.take(); n.fetch.correlation == 0 {
		t.Error("does not go on after the flush")
	}
}

// TestPR20NobodySpins: every role, left alone for a minute with nobody answering or with every peer refused, takes few
// steps, and after each expired deadline the next one lies ahead (C-166, B-33, B-34).
func TestPR20NobodySpins(t *testing.T) {
	roles := map[string]func(t *testing.T) (*member, *Node){
		"Unattached": func(t *testing.T) (*member, *Node) { return nodeOf(t, ElectionState{3, None, NoReplica}) },
		"Candidate":  func(t *testing.T) (*member, *Node) { return nodeOf(t, ElectionState{3, None, testKey(1)}) },
		"Follower":   func(t *testing.T) (*member, *Node) { return followerOf(t) },
		"Resigned":   func(t *testing.T) (*member, *Node) { return nodeOf(t, ElectionState{3, 1, NoReplica}) },
		"Leader":     func(t *testing.T) (*member, *Node) { return leaderOf(t) },
		"sole Leader": func(t *testing.T) (*member, *Node) {
			set := testVoters(1)
			m := newMember(testConfig(1, set), dynamic(set))
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			return m, m.node
		},
		"observer": func(t *testing.T) (*member, *Node) {
			m := newMember(testConfig(1, testVoters(2, 3)), nil)
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			return m, m.node
		},
		"following observer": func(t *testing.T) (*member, *Node) {
			set := testVoters(2, 3)
			m := newMember(testConfig(1, set), dynamic(set))
			m.state = ElectionState{7, 2, NoReplica}
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			return m, m.node
		},
		"stopping Candidate": func(t *testing.T) (*member, *Node) {
			m, n := nodeOf(t, ElectionState{3, None, testKey(1)})
			n.Step(n.now, Shutdown{})
			m.take()
			return m, n
		},
		"Leader below its reserve": func(t *testing.T) (*member, *Node) {
			m, n := leaderOf(t)
			n.Step(n.now, Reserve{Below: true})
			m.take()
			return m, n
		},
	}
	for name, start := range roles {
		for _, outcome := range []Failure{NoFailure, Refused, UnsupportedByPeer} {
			m, n := start(t)
			var sent []Correlation
			for _, c := range n.conns {
				if c.correlation != 0 {
					sent = append(sent, c.correlation)
				}
			}
			steps := 0
			end := n.now.Add(time.Minute)
			for n.now < end && n.Deadline() != Never {
				steps++
				var out takeover
				if outcome != NoFailure && len(sent) > 0 {
					n.Step(n.now, Outcome{Correlation: sent[0], Failure: outcome})
					sent = sent[1:]
					out = m.take()
				} else {
					n.Step(n.Deadline(), Deadline{})
					out = m.take()
					if n.Deadline() <= n.now {
						t.Fatalf("%s, peers %d: deadline %d is not after %d", name, outcome, n.Deadline(), n.now)
					}
				}
				for _, s := range out.sends {
					sent = append(sent, s.Correlation)
				}
				if steps > 60*50 {
					t.Fatalf("%s, peers %d: more than 50 steps a second: %d in %v", name, outcome, steps, time.Duration(n.now))
				}
			}
		}
	}
}

// TestObserverGivesUpOnAFetch: an observer has no other timer, so a Fetch that nobody answers must wake it by itself.
func TestObserverGivesUpOnAFetch(t *testing.T) {
	m := newMember(testConfig(4, testVoters(1)), []ControlAt{{-1, KRaftVersion{1}}})
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	if sends := m.take().sends; len(sends) != 1 {
		t.Fatalf("sends %+v, want one Fetch", sends)
	}
	if got, want := m.node.Deadline(), Instant(m.cfg.RequestTimeout); got != want {
		t.Fatalf("deadline %d, want that of the request, %d", got, want)
	}
	for at := m.node.Deadline(); len(m.take().sends) == 0; at = m.node.Deadline() {
		if at > Instant(2*m.cfg.RequestTimeout) {
			t.Fatal("no second Fetch")
		}
		m.node.Step(at, Deadline{})
	}
}

// TestTruncationFreesTheGroup: what a truncation cut off is not unsynced any more. An observer that counts it as such would
// refuse the next large batch again and again.
func TestTruncationFreesTheGroup(t *testing.T) {
	cfg := testConfig(4, testVoters(1, 2, 3))
	cfg.ObserverOnly = true
	m := newMember(cfg, dynamic(testVoters(1, 2, 3)))
	m.state = ElectionState{7, 2, NoReplica}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	n := m.node
	large := func(base int64, epoch Epoch) Batch {
		return Batch{BaseOffset: base, LastOffset: base, Epoch: epoch, Bytes: maxGroup * 3 / 4}
	}
	respond(m, FetchResponse{Batches: []Batch{batch(0, 5)}, HighWatermark: Unknown})
	n.Step(n.now, m.flushed())
	m.take()
	respond(m, FetchResponse{Batches: []Batch{large(1, 6)}, HighWatermark: Unknown})
	respond(m, FetchResponse{Diverging: &OffsetAndEpoch{1, 5}, HighWatermark: Unknown})
	respond(m, FetchResponse{Batches: []Batch{large(1, 7)}, HighWatermark: Unknown})
	if n.log.end != 2 {
		t.Fatalf("log end %d: the batch was refused, %d bytes count as unsynced", n.log.end, n.unsynced)
	}
	n.Step(n.now, m.flushed()) // the flush of before the truncation
	m.take()
	if n.unsynced < maxGroup/2 {
		t.Errorf("%d bytes unsynced after a flush that covered none of them", n.unsynced)
	}
}
