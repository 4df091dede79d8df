package raft

import (
	"testing"
	"time"
)

// leaderOfSet makes voter 1 the leader of epoch 1, with its control batch on the disks of all voters.
func leaderOfSet(t testing.TB, ids ...NodeID) (*member, *Node) {
	t.Helper()
	set := testVoters(ids...)
	m := newMember(testConfig(1, set), dynamic(set))
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	n := m.node
	if n.role != Leader {
		win(n)
		for _, s := range m.take().sends {
			do(m, Outcome{Correlation: s.Correlation, Response: BeginQuorumEpochResponse{Header{Epoch: 1, Leader: 1}}})
		}
	}
	do(m, m.flushed())
	for _, id := range ids[1:] {
		fetch(m, id, ConnID(id), n.log.end)
	}
	if n.highWatermark != n.log.end {
		t.Fatalf("high watermark %d, log end %d", n.highWatermark, n.log.end)
	}
	return m, n
}

// appendAndFlush lets the leader append a record and have it on its own disk.
func appendAndFlush(m *member, id RequestID) {
	m.payloads[id] = "x"
	do(m, Propose{ID: id, Records: 1, Bytes: 10})
	do(m, m.flushed())
}

// TestRemovedLeaderDoesNotCount: C-092, C-121, B-06, B-23. From the moment that the record of its removal is appended a leader
// counts neither for the high watermark nor for check-quorum: of the three others two are needed.
func TestRemovedLeaderDoesNotCount(t *testing.T) {
	m, n := leaderOfSet(t, 1, 2, 3, 4)
	before := n.highWatermark
	appendAndFlush(m, 50)
	do(m, Inbound{ID: 60, Request: removal(1)})
	do(m, m.flushed())
	if n.isVoter || len(n.leader.set) != 3 || n.flushed != n.log.end {
		t.Fatalf("voter %v, set %v, flushed %d of %d", n.isVoter, n.leader.set, n.flushed, n.log.end)
	}
	// The leader and one other have all of it: that is one of three.
	fetch(m, 2, 2, n.log.end)
	if n.highWatermark != before {
		t.Errorf("high watermark %d with one voter of three beyond %d", n.highWatermark, before)
	}
	// One voter's fetches keep nobody in office, and a window later it resigns.
	for n.role == Leader && n.now < Instant(time.Minute) {
		fetch(m, 2, 2, before)
		m.ends(n.now.Add(500 * time.Millisecond))
	}
	if want := n.cfg.FetchTimeout * 3 / 2; n.now > Instant(want).Add(n.cfg.FetchTimeout) {
		t.Errorf("resigned after %v, want about %v", time.Duration(n.now), want)
	}

	// Two voters' fetches do, for as long as they take to store it; then the removal is committed, and it goes.
	m, n = leaderOfSet(t, 1, 2, 3, 4)
	before = n.highWatermark
	do(m, Inbound{ID: 60, Request: removal(1)})
	do(m, m.flushed())
	for n.now < Instant(10*time.Second) {
		fetch(m, 2, 2, before)
		fetch(m, 4, 4, before)
		if m.ends(n.now.Add(500 * time.Millisecond)); n.role != Leader {
			t.Fatalf("%s after %v, although a majority fetches", n.role, time.Duration(n.now))
		}
	}
	end := n.log.end
	fetch(m, 2, 2, end)
	fetch(m, 4, 4, end)
	if n.highWatermark != end {
		t.Errorf("high watermark %d with two voters of three at %d", n.highWatermark, end)
	}
}

// TestHighWatermarkOverChangesOfVoters: C-120. It does not fall when a voter comes that has nothing yet, and it may rise
// when one goes that held it down.
func TestHighWatermarkOverChangesOfVoters(t *testing.T) {
	m, n := leaderOfSet(t, 1, 2, 3)
	fetch(m, 9, 9, n.log.end)
	before := n.highWatermark
	do(m, Inbound{ID: 60, Request: addition(9)})
	outcome(t, m, 9, ApiVersionsResponse{KRaft: &VersionRange{0, 1}})
	do(m, m.flushed())
	if len(n.leader.set) != 4 || n.highWatermark != before {
		t.Errorf("%d voters, high watermark %d, was %d", len(n.leader.set), n.highWatermark, before)
	}
	// Two of four have the record, the leader among them: not enough. Then three.
	fetch(m, 2, 2, n.log.end)
	if n.highWatermark != before {
		t.Errorf("high watermark %d with two voters of four", n.highWatermark)
	}
	fetch(m, 9, 9, n.log.end)
	if n.highWatermark != n.log.end {
		t.Errorf("high watermark %d of %d with three voters of four", n.highWatermark, n.log.end)
	}
	// Node 3 has fallen behind, node 9 too: without 9 the leader and node 2 are a majority.
	appendAndFlush(m, 50)
	before = n.highWatermark
	appended := n.log.end
	fetch(m, 2, 2, appended)
	if n.highWatermark != before {
		t.Fatalf("high watermark %d", n.highWatermark)
	}
	do(m, Inbound{ID: 61, Request: removal(9)})
	if n.highWatermark != appended {
		t.Errorf("high watermark %d after the removal was appended, want %d", n.highWatermark, appended)
	}
}

// TestProbeAnswersForOneNode: C-235. What another node answers says nothing about the one that is to be added.
func TestProbeAnswersForOneNode(t *testing.T) {
	m, n := leaderAnd(t, 4)
	n.Step(n.leader.begin.Add(n.cfg.FetchTimeout/2), Deadline{}) // BeginQuorumEpoch is under way to others
	m.take()
	fetch(m, 4, 4, n.log.end)
	do(m, Inbound{ID: 60, Request: addition(4)})
	if n.conn(3).correlation == 0 {
		t.Fatal("nothing is asked of node 3")
	}
	outcome(t, m, 3, ApiVersionsResponse{KRaft: &VersionRange{0, 1}})
	if n.leader.change == nil || len(n.Status().Voters) != 3 {
		t.Fatalf("change %v, voters %v", n.leader.change, n.Status().Voters)
	}
	outcome(t, m, 4, ApiVersionsResponse{KRaft: &VersionRange{0, 1}})
	if len(n.Status().Voters) != 4 {
		t.Errorf("voters %v", n.Status().Voters)
	}
}
