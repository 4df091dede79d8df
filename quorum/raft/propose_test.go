package raft

import (
	"testing"
	"time"
)

// TestGroupsStayWithinTheirBound: what waited for a flush is appended together, up to 8 MiB, and the rest after the next.
func TestGroupsStayWithinTheirBound(t *testing.T) {
	m, n := leaderOf(t)
	propose := func(id RequestID) takeover {
		m.payloads[id] = "x"
		n.Step(n.now, Propose{ID: id, Records: 1, Bytes: 3 << 20})
		return m.take()
	}
	if out := propose(100); len(out.ready.Appends) != 1 || !out.ready.Flush {
		t.Fatalf("%+v", out.ready)
	}
	for id := RequestID(101); id < 105; id++ {
		if out := propose(id); len(out.ready.Appends) != 0 {
			t.Fatal("appended beside an unsynced group")
		}
	}
	for _, want := range []int{2, 2, 0} {
		n.Step(n.now, m.flushed())
		if out := m.take(); len(out.ready.Appends) != want || out.ready.Flush != (want > 0) {
			t.Fatalf("%d batches after a flush, want %d", len(out.ready.Appends), want)
		}
	}
	n.Step(n.now, Propose{ID: 200, Records: 1, Bytes: maxGroup + 1})
	if r := m.take().answers[0].Result.(ProposeResult); r.Error != RecordBatchTooLarge {
		t.Errorf("a batch beyond the bound: %+v", r)
	}
}

// TestHeldBytesAreBounded: while a flush takes its time, what waits may not fill the memory, however few batches it is.
func TestHeldBytesAreBounded(t *testing.T) {
	m, n := leaderOf(t)
	propose := func(id RequestID) []Answer {
		m.payloads[id] = "x"
		n.Step(n.now, Propose{ID: id, Records: 1, Bytes: maxGroup})
		return m.take().answers
	}
	propose(100) // into the log; its flush goes on
	for i := range RequestID(maxHeld / maxGroup) {
		if answers := propose(101 + i); len(answers) != 0 {
			t.Fatalf("proposal %d within the bound: %+v", i, answers)
		}
	}
	answers := propose(200)
	if len(answers) != 1 || answers[0].Result.(ProposeResult).Error != ThrottlingQuotaExceeded {
		t.Errorf("a proposal beyond the bound: %+v, want THROTTLING_QUOTA_EXCEEDED", answers)
	}
}

// TestLinger: C-111, C-112. Proposals wait for company, but not a full group, and an empty queue has no timer.
func TestLinger(t *testing.T) {
	m, n := leaderOf(t)
	n.cfg.AppendLinger = 25 * time.Millisecond
	start := n.now
	n.Step(n.now, Propose{ID: 100, Records: 1, Bytes: 10})
	if out := m.take(); len(out.ready.Appends) != 0 || n.Deadline() != start.Add(25*time.Millisecond) {
		t.Fatalf("appended at once, or deadline %v", time.Duration(n.Deadline()-start))
	}
	n.Step(start.Add(10*time.Millisecond), Propose{ID: 101, Records: 2, Bytes: 10})
	m.take()
	n.Step(n.Deadline(), Deadline{})
	out := m.take()
	if len(out.ready.Appends) != 2 || n.now != start.Add(25*time.Millisecond) {
		t.Fatalf("%d batches at %v, want 2 after 25 ms", len(out.ready.Appends), time.Duration(n.now-start))
	}
	n.Step(n.now, m.flushed())
	m.take()
	n.Step(n.now, Propose{ID: 102, Records: 1, Bytes: maxGroup})
	if out := m.take(); len(out.ready.Appends) != 1 {
		t.Error("a full group waited")
	}
}

// TestAwait: a duplicate is answered like its original, at once if that is done.
func TestAwait(t *testing.T) {
	m, n := leaderOf(t)
	await := func(id RequestID, base, last int64) (ProposeResult, bool) {
		n.Step(n.now, Await{ID: id, BaseOffset: base, LastOffset: last})
		for _, a := range m.take().answers {
			if a.ID == id {
				return a.Result.(ProposeResult), true
			}
		}
		return ProposeResult{}, false
	}
	if r, ok := await(1, 0, 0); !ok || r.Error != NoError || r.BaseOffset != 0 {
		t.Errorf("committed: %+v, %v", r, ok)
	}
	base := n.log.end
	n.Step(n.now, Propose{ID: 100, Records: 3, Bytes: 10})
	m.take()
	if r, ok := await(2, base, base+2); ok {
		t.Errorf("answered before the original: %+v", r)
	}
	if r, ok := await(3, base+9, base+9); !ok || r.Error != NotLeaderOrFollower {
		t.Errorf("not in the log: %+v, %v", r, ok)
	}
	n.Step(n.now, m.flushed())
	m.take()
	got := map[RequestID]ProposeResult{}
	for _, a := range fetch(m, 2, 2, n.log.end) {
		if r, ok := a.Result.(ProposeResult); ok {
			got[a.ID] = r
		}
	}
	for _, id := range []RequestID{100, 2} {
		if r := got[id]; r.Error != NoError || r.BaseOffset != base || r.Epoch != n.state.Epoch {
			t.Errorf("request %d: %+v", id, r)
		}
	}
}

// TestHighWatermarkIsNotForgotten: a leader does not know the high watermark until its epoch has committed, but what it knew
// before is still true when it leaves.
func TestHighWatermarkIsNotForgotten(t *testing.T) {
	m, n := followerOf(t)
	respond(m, FetchResponse{HighWatermark: 3})
	win(n)
	m.take()
	if n.role != Leader || n.highWatermark != Unknown {
		t.Fatalf("%s, high watermark %d", n.role, n.highWatermark)
	}
	ask(t, m, VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(2), Epoch: 9, Last: OffsetAndEpoch{0, 0}})
	if n.role != Unattached || n.highWatermark != 3 {
		t.Errorf("%s, high watermark %d, want 3", n.role, n.highWatermark)
	}
}
