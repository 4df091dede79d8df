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
