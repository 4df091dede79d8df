package raft

import (
	"slices"
	"testing"
	"time"
)

// leaderOf makes voter 1 of three a leader of epoch 1 whose control batch is committed, with followers 2 and 3 parked.
func leaderOf(t testing.TB) (*member, *Node) {
	t.Helper()
	m, n := leaderOfSet(t, 1, 2, 3)
	fetch(m, 2, 2, n.log.end)
	return m, n
}

// fetch gives a valid fetch and returns the answers it caused.
func fetch(m *member, from NodeID, conn ConnID, offset int64) []Answer {
	m.node.Step(m.node.now, Inbound{ID: RequestID(from), Conn: conn, Request: FetchRequest{
		ClusterID: testCluster, Replica: testKey(from), Epoch: m.node.state.Epoch, Offset: offset, LastFetchedEpoch: m.node.log.lastEpoch(),
		HighWatermark: m.node.highWatermark, MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20,
	}})
	return m.take().answers
}

// answered reports whether a barrier got its proof.
func answered(answers []Answer) bool {
	return slices.ContainsFunc(answers, func(a Answer) bool { r, ok := a.Result.(BarrierResult); return ok && r.Error == NoError })
}

// TestBarrierNeedsTheSameConnection: a fetch on a new connection may have been sent before the barrier came, whatever was
// answered on the old one.
func TestBarrierNeedsTheSameConnection(t *testing.T) {
	m, n := leaderOf(t)
	n.Step(n.now, Barrier{ID: 100})
	if answered(m.take().answers) {
		t.Fatal("proof without any fetch")
	}
	answers := fetch(m, 2, 22, n.log.end)
	if answered(answers) {
		t.Fatal("a fetch on another connection counted")
	}
	// It is answered at once, though there is nothing to tell; the next one on that connection counts.
	if len(answers) != 1 || len(n.leader.parked) != 0 {
		t.Fatalf("the fetch was parked although a barrier waits for its successor: %+v", answers)
	}
	if !answered(fetch(m, 2, 22, n.log.end)) {
		t.Fatal("a fetch that follows an answer did not count")
	}
}

// TestBarrierIgnoresObservers: only voters prove leadership.
func TestBarrierIgnoresObservers(t *testing.T) {
	m, n := leaderOf(t)
	n.Step(n.now, Barrier{ID: 100})
	m.take()
	for range 3 {
		if answered(fetch(m, 9, 9, n.log.end)) {
			t.Fatal("an observer's fetch counted")
		}
	}
}

// TestOneParkedFetchForEachReplica: a replica that comes again on a new connection does not leave the old request parked.
func TestOneParkedFetchForEachReplica(t *testing.T) {
	m, n := leaderOf(t)
	for i := range 10 {
		fetch(m, 3, ConnID(30+i), n.log.end)
	}
	if got := len(n.leader.parked); got != 2 {
		t.Errorf("%d fetches parked, want one of each voter", got)
	}
}

// TestPR04FetchOffsetGoesBack (KAFKA-12181): who had 500 records and lost them fetches from 0 again: an observer, a voter, and a
// voter that was added again under the directory id of its new disk. The leader leads on, answers with records, or with the id
// of a snapshot if it has one, and its high watermark stays.
func TestPR04FetchOffsetGoesBack(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		m, n := leaderOf(t)
		asks := func(key ReplicaKey, offset int64) FetchResponse {
			t.Helper()
			r := FetchRequest{ClusterID: testCluster, Replica: key, Epoch: 1, Offset: offset, LastFetchedEpoch: min(1, Epoch(offset)), MaxBytes: 1 << 20}
			return answerTo(do(m, Inbound{ID: 90, Conn: ConnID(key.ID), Request: r}).answers, 90).(FetchResponse)
		}
		settles := func() { // all have all, but node 3: it is what this is about
			for m.flushing {
				do(m, m.flushed())
			}
			asks(testKey(2), n.log.end)
			asks(testKey(2), n.log.end)
		}
		for id := RequestID(100); n.log.end < 500; id++ {
			m.payloads[id] = "x"
			do(m, Propose{ID: id, Records: 10, Bytes: 10})
			settles()
		}
		if snapshot {
			created, ok := m.snapshotAt(n.highWatermark)
			if !ok {
				t.Fatal("no snapshot")
			}
			do(m, created)
		}
		loses := func(who string, key ReplicaKey) {
			t.Helper()
			asks(key, n.log.end)
			highWatermark, end := n.highWatermark, n.log.end
			r := asks(key, 0)
			if r.Error != NoError || r.End != end && !snapshot || (r.Snapshot != nil) != snapshot || r.HighWatermark != highWatermark {
				t.Errorf("%s: %+v; the log ends at %d, the high watermark is %d", who, r, end, highWatermark)
			}
			asks(testKey(2), 0) // now a majority has nothing
			if n.role != Leader || n.state.Epoch != 1 || n.highWatermark != highWatermark {
				t.Fatalf("%s: %s of epoch %d with high watermark %d, was leader of 1 with %d", who, n.role, n.state.Epoch, n.highWatermark, highWatermark)
			}
			settles()
		}
		changed := ReplicaKey{3, UUID{9}}
		loses("an observer", testKey(9))
		loses("an observer on a new disk", ReplicaKey{9, UUID{9}})
		loses("a voter", testKey(3))
		do(m, Inbound{ID: 60, Request: removal(3)})
		settles()
		loses("a voter that was", changed)
		asks(changed, n.log.end)
		do(m, Inbound{ID: 60, Request: AddRaftVoterRequest{Voter: changed, Endpoints: testEndpoints(3)}})
		outcome(t, m, 3, ApiVersionsResponse{KRaft: &VersionRange{0, 1}})
		settles()
		if v, _ := n.Status().Voters.ByID(3); v.Key != changed || n.highWatermark != n.log.end {
			t.Fatalf("voter %v, high watermark %d of %d", v, n.highWatermark, n.log.end)
		}
		loses("a voter again", changed)
	}
}

// TestCaughtUp is DescribeQuorum's LastCaughtUp (kraft-spec 2.6, C-221, C-222).
func TestCaughtUp(t *testing.T) {
	m, n := leaderOf(t)
	at := func(d time.Duration) { n.now = Instant(d) }
	caughtUp := func(id NodeID) Instant {
		r := ask(t, m, DescribeQuorumRequest{}).(DescribeQuorumResponse)
		for _, p := range slices.Concat(r.Voters, r.Observers) {
			if p.Key.ID == id {
				return p.LastCaughtUp
			}
		}
		return -2
	}
	if got := caughtUp(9); got != -2 {
		t.Errorf("an observer that never fetched is listed: %v", got)
	}
	at(time.Second)
	fetch(m, 9, 9, 0)
	if got := caughtUp(9); got != Instant(Unknown) {
		t.Errorf("caught up %v without being so", got)
	}
	end := n.log.end
	at(2 * time.Second)
	fetch(m, 9, 9, end)
	if got := caughtUp(9); got != Instant(2*time.Second) {
		t.Errorf("caught up %v at the end of the log", got)
	}
	// Records come; at its next fetch it has what was the end then.
	at(3 * time.Second)
	n.Step(n.now, Propose{ID: 50, Records: 2, Bytes: 20})
	m.take()
	at(4 * time.Second)
	fetch(m, 9, 9, end)
	if got := caughtUp(9); got != Instant(2*time.Second) {
		t.Errorf("caught up %v, want the time of the fetch before", got)
	}
	at(5 * time.Second)
	fetch(m, 9, 9, end+2)
	if got := caughtUp(9); got != Instant(5*time.Second) {
		t.Errorf("caught up %v", got)
	}
	// It asks again while it flushes, and more records come: then it has what was the end when it first asked.
	for i, offset := range []int64{end + 3, end + 3, end + 4} {
		at(time.Duration(6+i) * time.Second)
		n.Step(n.now, m.flushed(), Propose{ID: RequestID(51 + i), Records: 2, Bytes: 20})
		m.take()
		fetch(m, 9, 9, offset)
	}
	if got := caughtUp(9); got != Instant(6*time.Second) {
		t.Errorf("caught up %v, want the time at which it first asked", got)
	}
	at(8*time.Second + observerSession)
	if got := caughtUp(9); got != -2 {
		t.Errorf("a silent observer is still listed: %v", got)
	}
	if got := caughtUp(1); got != n.now {
		t.Errorf("the leader is caught up %v, want now", got)
	}
}

// TestDescribeQuorumElsewhere is C-220.
func TestDescribeQuorumElsewhere(t *testing.T) {
	m, _ := nodeOf(t, ElectionState{7, 2, NoReplica}, 7)
	if r := ask(t, m, DescribeQuorumRequest{}).(DescribeQuorumResponse); r.Error != NotLeaderOrFollower || r.HighWatermark != Unknown {
		t.Errorf("%+v", r)
	}
}

// TestCheckQuorumWindow: half a window of one voter is not enough; a majority starts a new window (C-090, C-092).
func TestCheckQuorumWindow(t *testing.T) {
	m, n := leaderOf(t)
	window := n.cfg.FetchTimeout * 3 / 2
	for i := 1; i <= 10; i++ {
		n.now = Instant(i) * Instant(window) * 9 / 10
		fetch(m, 3, 3, n.log.end)
		n.Step(n.now, Deadline{})
		m.take()
	}
	if n.role != Leader {
		t.Fatalf("%s although a majority fetched in each window", n.role)
	}
	last := n.now
	for n.role == Leader {
		n.Step(max(n.now, n.Deadline()), Deadline{})
		fetch(m, 9, 9, n.log.end) // an observer does not help
	}
	if n.now-last != Instant(window) {
		t.Errorf("resigned after %v, want %v", time.Duration(n.now-last), window)
	}
}
