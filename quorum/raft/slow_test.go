package raft

import (
	"testing"
	"time"
)

// flushingFollower is followerOf that has fetched two records more and flushes them, and has just asked again beside that.
func flushingFollower(t *testing.T) (*member, *Node) {
	t.Helper()
	m, n := followerOf(t)
	if out := respond(m, FetchResponse{Batches: []Batch{batch(3, 7), batch(4, 7)}, HighWatermark: 1}); !out.ready.Flush || len(out.sends) > 0 {
		t.Fatalf("%+v: want a flush, and no Fetch yet", out.ready)
	}
	n.Step(n.now.Add(n.cfg.FetchTimeout/4), Deadline{})
	sends := m.take().sends
	if len(sends) != 1 {
		t.Fatalf("sent %+v, want a Fetch beside the flush", sends)
	}
	if f := sends[0].Request.(FetchRequest); sends[0].To.ID != 2 || f.Offset != 3 || f.LastFetchedEpoch != 6 || f.MaxWait != 0 || f.MaxBytes != 1 || f.Replica != testKey(1) {
		t.Fatalf("%+v to %d: want what is durable, at once, and little", f, sends[0].To.ID)
	}
	return m, n
}

// TestST14AnswersBesideAFlush: whatever a good answer says, the leader is there. Its records are here already; what it has
// committed is believed as far as it has vouched for our log; where the logs part, ours is cut at once.
func TestST14AnswersBesideAFlush(t *testing.T) {
	held, beyond := OffsetAndEpoch{4, 7}, OffsetAndEpoch{9, 7}
	for name, c := range map[string]struct {
		response  FetchResponse
		committed int64
		end       int64
		flushed   int64
		download  bool
		fetches   bool // goes on at once
	}{
		"nothing":                             {FetchResponse{HighWatermark: Unknown}, 1, 5, 3, false, false},
		"records that are here":               {FetchResponse{HighWatermark: 2, Batches: []Batch{batch(3, 7)}}, 2, 5, 3, false, false},
		"all is committed":                    {FetchResponse{HighWatermark: 5}, 3, 5, 3, false, false},
		"the logs part where it is durable":   {FetchResponse{HighWatermark: 2, Diverging: &OffsetAndEpoch{2, 6}}, 1, 2, 2, false, true},
		"a snapshot of what is being flushed": {FetchResponse{HighWatermark: 4, Snapshot: &held}, 1, 5, 3, false, false},
		"a snapshot beyond the log":           {FetchResponse{HighWatermark: 9, Snapshot: &beyond}, 1, 5, 3, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := flushingFollower(t)
			before := n.follower.timeout
			out := respond(m, c.response)
			if n.role != Follower || n.follower.timeout <= before || n.fetch.misses > 0 {
				t.Errorf("%s, patience restarted %v, %d misses", n.role, n.follower.timeout > before, n.fetch.misses)
			}
			if n.highWatermark != c.committed || n.log.end != c.end || n.flushed != c.flushed || (n.download != nil) != c.download || len(out.ready.Appends) > 0 {
				t.Errorf("high watermark %d, log end %d, flushed %d, %d appends, downloads %v", n.highWatermark, n.log.end, n.flushed, len(out.ready.Appends), n.download != nil)
			}
			if fetches := len(out.sends) > 0; fetches != c.fetches {
				t.Errorf("sent %+v", out.sends)
			}
			if n.flushed == n.log.end || c.download {
				return
			}
			n.Step(n.now, m.flushed())
			if sends := m.take().sends; len(sends) != 1 || sends[0].Request.(FetchRequest).Offset != 5 {
				t.Errorf("flushed, it sent %+v, want a Fetch from offset 5 at once", sends)
			}
		})
	}
}

// TestST14FlushEndsBeforeTheAnswer: the flush is done while the Fetch beside it is under way. The leader has been asked only
// for what was durable before, so its answer says nothing of the rest: that may be another leader's.
func TestST14FlushEndsBeforeTheAnswer(t *testing.T) {
	m, n := flushingFollower(t)
	n.Step(n.now, m.flushed())
	m.take()
	out := respond(m, FetchResponse{HighWatermark: 5})
	if n.flushed != 5 || n.highWatermark != 3 {
		t.Errorf("flushed %d, high watermark %d: want 5, 3", n.flushed, n.highWatermark)
	}
	if len(out.sends) != 1 || out.sends[0].Request.(FetchRequest).Offset != 5 {
		t.Errorf("sent %+v, want a Fetch from offset 5", out.sends)
	}
}

// TestST14LeaderThatLowersTheHighWatermark is found out beside a flush, too.
func TestST14LeaderThatLowersTheHighWatermark(t *testing.T) {
	m, n := flushingFollower(t)
	if respond(m, FetchResponse{HighWatermark: 0}); n.ready.Fatal == nil && !n.dead {
		t.Errorf("high watermark %d, and no complaint", n.highWatermark)
	}
}

// TestST14CampaignWaitsForTheFlush: votes are not asked for before, so an epoch opened earlier would only be lost.
func TestST14CampaignWaitsForTheFlush(t *testing.T) {
	m, n := flushingFollower(t)
	n.Step(n.follower.timeout.Add(10*n.cfg.FetchTimeout), Deadline{})
	if m.take(); n.role != Follower {
		t.Fatalf("%s with an unsynced tail", n.role)
	}
	n.Step(n.now, m.flushed())
	if at := n.Deadline(); at > n.now {
		t.Fatalf("flushed, its next deadline is in %v, want at once", time.Duration(at-n.now))
	}
	do(m, Deadline{})
	if n.role != Prospective {
		t.Errorf("%s after a silent leader and a flush, want Prospective", n.role)
	}
}

// TestST14SlowLeader: with its own flush running for a fetch timeout, it hands over if the others had all of it on disk in
// a third of that, and only then.
func TestST14SlowLeader(t *testing.T) {
	for name, c := range map[string]struct {
		others time.Duration // when they have flushed
		leaves time.Duration // when it hands over; 0: not within ten seconds
	}{
		"the others are fast":           {time.Millisecond, 2 * time.Second},
		"the others are not so fast":    {900 * time.Millisecond, 2700 * time.Millisecond},
		"the others are nearly as slow": {4 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := leaderOf(t)
			do(m, Propose{ID: 50, Records: 1, Bytes: 10})
			began := n.now
			n.now = began.Add(c.others)
			for _, id := range []NodeID{2, 3} {
				fetch(m, id, ConnID(id), n.log.end)
			}
			if n.highWatermark != n.log.end || n.flushed == n.log.end {
				t.Fatalf("high watermark %d, flushed %d of %d", n.highWatermark, n.flushed, n.log.end)
			}
			for n.now < began.Add(10*time.Second) && !n.transfer.active() {
				n.now = min(n.Deadline(), began.Add(10*time.Second))
				for i := range n.leader.voters {
					n.leader.voters[i].lastFetch = n.now
				}
				n.leader.resetCheckQuorum(n)
				do(m, Deadline{})
			}
			want := c.leaves
			if !n.transfer.active() {
				if want != 0 {
					t.Errorf("it did not hand over")
				}
			} else if got := time.Duration(n.now - began); got != want {
				t.Errorf("it handed over after %v, want %v", got, want)
			}
		})
	}
}

// TestST14PatienceBeginsWithTheVoteOnDisk: whoever was long in writing down its vote, or who leads, could ask and hear nobody
// meanwhile, and gives others as long for theirs; but not as long as a machine sleeps.
func TestST14PatienceBeginsWithTheVoteOnDisk(t *testing.T) {
	after := func(m *member, n *Node, took time.Duration) {
		n.now = n.now.Add(took)
		do(m, Persisted{})
		if sends := do(m, Deadline{}).sends; len(sends) > 0 {
			t.Errorf("%s sends %+v again, although it was sent just now", n.role, sends)
		}
	}
	for _, c := range []struct{ took, allowed time.Duration }{
		{time.Millisecond, 0}, {10 * time.Second, 20 * time.Second}, {time.Hour, 20 * time.Second},
	} {
		m, n := nodeOf(t, ElectionState{7, None, NoReplica}, 5, 6, 6)
		n.becomeProspective(causeTimer)
		n.becomeCandidate()
		n.settle()
		m.take()
		after(m, n, c.took)
		if left := time.Duration(n.election - n.now); n.role != Candidate || left > 2*(n.cfg.ElectionTimeout+c.allowed) || c.allowed > 0 && left < n.cfg.ElectionTimeout+c.allowed {
			t.Errorf("%s %v after its candidacy, gives the others %v, want %v at least", n.role, c.took, left, n.cfg.ElectionTimeout+c.allowed)
		}
		n.becomeLeader()
		n.settle()
		m.take()
		after(m, n, c.took)
		if left := time.Duration(n.leader.checkQuorum - n.now); n.role != Leader || c.allowed > 0 && left != n.cfg.FetchTimeout*3/2+c.allowed {
			t.Errorf("%s %v after it won, waits %v for a majority, want %v more than usual", n.role, c.took, left, c.allowed)
		}
	}
	m, n := nodeOf(t, ElectionState{7, None, NoReplica}, 5, 6, 6)
	n.persistTook = 10 * time.Second
	n.election = n.now.Add(40 * time.Second)
	ask(t, m, VoteRequest{ClusterID: testCluster, Voter: n.cfg.Self, Replica: testKey(2), Epoch: 8, Last: OffsetAndEpoch{Offset: 0, Epoch: 1}})
	after(m, n, time.Millisecond)
	if left := time.Duration(n.election - n.now); n.persistTook != 0 || left > 2*n.cfg.ElectionTimeout {
		t.Errorf("its disk is quick again, and it waits %v", left)
	}
	m, n = nodeOf(t, ElectionState{7, None, NoReplica}, 5, 6, 6)
	ask(t, m, begin(2, 8, testEndpoints(2)))
	if after(m, n, 10*time.Second); n.role != Follower || n.now.Add(n.cfg.FetchTimeout) > n.follower.timeout {
		t.Errorf("%s, its fetch timer ends in %v, want a whole fetch timeout", n.role, time.Duration(n.follower.timeout-n.now))
	}
}
