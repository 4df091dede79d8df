package raft

import (
	"slices"
	"testing"
	"time"
)

// TestStopOfALeaderNobodyCanFollow: with no voter fit to take over it resigns at once, and says why (C-102).
func TestStopOfALeaderNobodyCanFollow(t *testing.T) {
	m, n := leaderOf(t)
	n.now = n.now.Add(n.cfg.FetchTimeout) // both have been silent for that long
	n.Step(n.now, Shutdown{Timeout: time.Second})
	out := m.take()
	if h := n.Status().Handoff; n.role != Resigned || h.Phase != HandoffAborted || h.Message == "" {
		t.Errorf("%s, handoff %+v", n.role, h)
	}
	if s := n.Status(); s.Leader != None || s.Election.Leader != 1 {
		t.Errorf("who resigned shows leader %d", s.Leader)
	}
	if len(out.sends) != 2 {
		t.Errorf("sent %+v, want the news to both", out.sends)
	}
	stopped := false
	for !stopped {
		n.Step(n.Deadline(), Deadline{})
		stopped = m.take().ready.Stopped
	}
	if n.now != Instant(n.cfg.FetchTimeout).Add(time.Second) {
		t.Errorf("stopped at %v, want when its time was over", time.Duration(n.now))
	}
	n.Step(n.now, Shutdown{})
	if m.take().ready.Stopped {
		t.Error("stopped twice")
	}
}

// TestSecondStopIsMoreUrgent: asked again with less time it takes less time.
func TestSecondStopIsMoreUrgent(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, None, NoReplica}, 7)
	do(m, Shutdown{Timeout: time.Minute})
	do(m, Shutdown{Timeout: time.Second})
	if n.shutdown != n.now.Add(time.Second) {
		t.Errorf("stops in %v", time.Duration(n.shutdown-n.now))
	}
	do(m, Shutdown{})
	if n.shutdown != n.now.Add(time.Second) {
		t.Errorf("asked a third time, stops in %v", time.Duration(n.shutdown-n.now))
	}
}

// TestStopDuringAHandoff: the handoff goes on, with half of the time that is left.
func TestStopDuringAHandoff(t *testing.T) {
	m, n := leaderOf(t)
	do(m, Handoff{ID: 80, Target: testKey(3)})
	do(m, Shutdown{Timeout: 300 * time.Millisecond})
	if n.transfer.deadline != n.now.Add(150*time.Millisecond) || n.transfer.maxPause != 150*time.Millisecond {
		t.Errorf("deadline %v, pause %v", time.Duration(n.transfer.deadline-n.now), n.transfer.maxPause)
	}
	m.ends(n.now.Add(150 * time.Millisecond))
	if n.role != Resigned {
		t.Errorf("%s after the target did not come: who stops resigns all the same", n.role)
	}
}

// TestStopBeforeTheEpochIsSettled: a new leader that is told to stop hands over once its epoch has committed, or, if it never
// does, resigns when its time is over: not without a word.
func TestStopBeforeTheEpochIsSettled(t *testing.T) {
	m, n := nodeOf(t, ElectionState{0, None, NoReplica})
	win(n)
	m.take()
	do(m, Shutdown{Timeout: 100 * time.Millisecond})
	if n.role != Leader {
		t.Fatalf("%s before its first record has committed", n.role)
	}
	n.Step(n.now.Add(100*time.Millisecond), Deadline{})
	out := m.take()
	told := 0
	for _, s := range out.sends {
		if _, ok := s.Request.(EndQuorumEpochRequest); ok {
			told++
		}
	}
	if n.role != Resigned || !out.ready.Stopped || told != 2 {
		t.Errorf("%s, stopped %v, told %d", n.role, out.ready.Stopped, told)
	}
}

// TestSuccessorThatIsStopping: it takes note of the news, once, and does not campaign.
func TestSuccessorThatIsStopping(t *testing.T) {
	m, n := followerOf(t)
	n.stopping, n.shutdown = true, n.now.Add(time.Minute)
	r := EndQuorumEpochRequest{ClusterID: testCluster, Leader: 2, Epoch: 7, Successors: []ReplicaKey{testKey(1), testKey(3)}}
	ask(t, m, r)
	mark := n.transfer.mark
	n.now = n.now.Add(time.Second)
	ask(t, m, r)
	if n.role != Follower || n.transfer.mark != mark || n.follower.hasFetched {
		t.Errorf("%s, mark %v then %v", n.role, mark, n.transfer.mark)
	}
}

// TestStoppingSoleVoterTakesNothingNew: it answers what it has, and goes.
func TestStoppingSoleVoterTakesNothingNew(t *testing.T) {
	set := testVoters(1)
	m := newMember(testConfig(1, set), dynamic(set))
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	do(m, m.flushed())
	m.payloads[81] = "x"
	do(m, Propose{ID: 81, Records: 1, Bytes: 10})
	if out := do(m, Shutdown{}); out.ready.Stopped {
		t.Fatal("stopped with an append that has no answer")
	}
	if r := do(m, Propose{ID: 82, Records: 1, Bytes: 10}).answers[0].Result.(ProposeResult); r.Error != NotLeaderOrFollower {
		t.Errorf("a new append: %+v", r)
	}
	out := do(m, m.flushed())
	if len(out.answers) != 1 || out.answers[0].ID != 81 || !out.ready.Stopped {
		t.Errorf("after the flush: %+v, stopped %v", out.answers, out.ready.Stopped)
	}
}

// do gives one event now.
func do(m *member, ev Event) takeover {
	m.node.Step(m.node.now, ev)
	return m.take()
}

// TestStopWithAControlBatchHeld: the disk is slow, so a record of the sole voter's own waits for its place when the time is
// up. Its writes are answered, and nobody else.
func TestStopWithAControlBatchHeld(t *testing.T) {
	m, n := leaderOfSet(t, 1)
	m.payloads[50], m.payloads[51] = "x", "y"
	do(m, Propose{ID: 50, Records: 1, Bytes: 10})
	do(m, Propose{ID: 51, Records: 1, Bytes: 10})
	n.proposals.jump([]ControlRecord{KRaftVersion{1}})
	do(m, Shutdown{Timeout: time.Second})
	n.now = n.now.Add(time.Second)
	var ids []RequestID
	for _, a := range do(m, Deadline{}).answers {
		ids = append(ids, a.ID)
	}
	if !n.stopped || !slices.Equal(ids, []RequestID{51, 50}) {
		t.Errorf("stopped %v, answered %v", n.stopped, ids)
	}
}
