package raft

import (
	"testing"
)

// TestC177TruncationUndoesVoterSets: a voter set is in force as soon as it is appended, and no longer than its record lives.
func TestC177TruncationUndoesVoterSets(t *testing.T) {
	m, n := followerOf(t)
	without := testVoters(2, 3)
	control := Batch{BaseOffset: 3, LastOffset: 4, Epoch: 7, Bytes: 10, Control: []ControlRecord{LeaderChange{Leader: 2}, Voters{without}}}
	respond(m, FetchResponse{Batches: []Batch{control}, HighWatermark: 3})
	if s := n.Status(); len(s.Voters) != 2 || s.VotersOffset != 4 || s.IsVoter {
		t.Fatalf("after the append: %+v", s)
	}
	n.Step(n.now, m.flushed())
	m.take()
	respond(m, FetchResponse{Diverging: &OffsetAndEpoch{3, 6}})
	if s := n.Status(); len(s.Voters) != 3 || s.VotersOffset != -1 || !s.IsVoter {
		t.Errorf("after the truncation: %+v", s)
	}
}

// TestStaticVotersEndAtVersionOne: their entries have no directory id, so from kraft.version 1 on they would make a voter of
// a replica that lost its disk.
func TestStaticVotersEndAtVersionOne(t *testing.T) {
	static := testVoters(1, 2, 3)
	for i := range static {
		static[i].Key.DirectoryID = UUID{}
	}
	for version, voter := range map[int16]bool{0: true, 1: false} {
		cfg := testConfig(1, static)
		cfg.StaticVoters = static
		cfg.Log.Control = []ControlAt{{-1, KRaftVersion{version}}}
		n, err := New(cfg, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n.Status().IsVoter != voter {
			t.Errorf("kraft.version %d: voter %v, want %v", version, n.Status().IsVoter, voter)
		}
	}
}

// TestUnknownKRaftVersionIsFatal: a level that this version does not know may change any rule.
func TestUnknownKRaftVersionIsFatal(t *testing.T) {
	m, _ := followerOf(t)
	out := respond(m, FetchResponse{Batches: []Batch{{BaseOffset: 3, LastOffset: 3, Epoch: 7, Bytes: 10, Control: []ControlRecord{KRaftVersion{2}}}}})
	if f := out.ready.Fatal; f == nil || f.Reason != InconsistentState {
		t.Errorf("fatal %+v", f)
	}
}

// TestVoterMatching is C-246.
func TestVoterMatching(t *testing.T) {
	set := testVoters(1, 2)
	set[1].Key.DirectoryID = UUID{}
	for key, want := range map[ReplicaKey]bool{
		testKey(1):            true,
		{1, UUID{9}}:          false,
		{ID: 1}:               false,
		{2, UUID{9}}:          true,
		{ID: 2}:               true,
		testKey(3):            false,
		NoReplica:             false,
		{None, UUID{1, 2, 3}}: false,
	} {
		if got := set.Contains(key); got != want {
			t.Errorf("Contains(%s) = %v", key, got)
		}
	}
	if _, err := NewVoterSet(set[0], set[0]); err == nil {
		t.Error("a double id was accepted")
	}
}

// TestRemovedVoterIgnoresLaterChanges: once its removal is committed, a change of the others, committed or not, does not call
// it back into elections.
func TestRemovedVoterIgnoresLaterChanges(t *testing.T) {
	m, n := followerOf(t)
	change := func(offset int64, voters ...NodeID) FetchResponse {
		b := Batch{BaseOffset: offset, LastOffset: offset, Epoch: 7, Bytes: 10, Control: []ControlRecord{Voters{testVoters(voters...)}}}
		return FetchResponse{Batches: []Batch{b}, HighWatermark: offset}
	}
	for offset, c := range []struct {
		voters    []NodeID
		electable bool
	}{{[]NodeID{2, 3}, true}, {[]NodeID{2, 3, 4}, false}, {[]NodeID{2, 4}, false}} {
		respond(m, change(3+int64(offset), c.voters...))
		if n.electable() != c.electable {
			t.Errorf("voters %v appended, the set before is committed: electable %v, want %v", c.voters, n.electable(), c.electable)
		}
		n.Step(n.now, m.flushed())
		m.take()
	}
}

// TestPR32VotersMayChangeByMoreThanOne: a replica that slept through several changes sees them as one step. The rule that binds
// leaders does not bind readers (KAFKA-17973, C-247).
func TestPR32VotersMayChangeByMoreThanOne(t *testing.T) {
	m, n := followerOf(t)
	control := Batch{BaseOffset: 3, LastOffset: 3, Epoch: 7, Bytes: 10, Control: []ControlRecord{Voters{testVoters(2, 4, 5)}}}
	respond(m, FetchResponse{Batches: []Batch{control}, HighWatermark: 3})
	n.Step(n.now, m.flushed())
	m.take()
	if s := n.Status(); s.IsVoter || len(s.Voters) != 3 || !n.electable() {
		t.Errorf("before the commit: %+v, electable %v", s, n.electable())
	}
	respond(m, FetchResponse{HighWatermark: 4})
	if n.electable() || n.role != Follower {
		t.Errorf("%s, electable %v, although its removal is committed", n.role, n.electable())
	}
	// The same from a checkpoint.
	cfg := testConfig(3, nil)
	cfg.Bootstrap = []Destination{{ID: -2, Host: "n2", Port: 9093}}
	cfg.Log = LogState{Start: 9, End: 9, Snapshot: &OffsetAndEpoch{9, 6}, Control: []ControlAt{{9, KRaftVersion{1}}, {9, Voters{testVoters(2, 4, 5)}}}}
	if n, err := New(cfg, 0); err != nil || n.Status().IsVoter || n.electable() {
		t.Errorf("from a checkpoint: %v", err)
	}
}
