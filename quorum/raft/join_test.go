package raft

import (
	"testing"
)

// TestAutoJoinIsAskedFor: only who is told to joins by itself, and only if it may become a voter (C-245).
func TestAutoJoinIsAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		log    []ControlRecord // beside the voters 2 and 3
		joins  bool
	}{
		"told to":              {func(*Config) {}, nil, true},
		"not told":             {func(c *Config) { c.AutoJoin = false }, nil, false},
		"an observer for ever": {func(c *Config) { c.ObserverOnly = true }, nil, false},
		"without identity":     {func(c *Config) { c.Self = NoReplica }, nil, false},
		"was a voter":          {func(*Config) {}, []ControlRecord{Voters{testVoters(2, 3, 4)}, Voters{testVoters(2, 3)}}, false},
		"kraft.version 0":      {func(c *Config) { c.StaticVoters = static(testVoters(2, 3)) }, nil, false},
		"is a voter":           {func(c *Config) { c.Endpoints = c.Endpoints[1:] }, []ControlRecord{Voters{testVoters(2, 3, 4)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := testVoters(2, 3)
			cfg := testConfig(4, set)
			cfg.AutoJoin = true
			c.change(&cfg)
			bootstrap, records := []ControlAt{{-1, KRaftVersion{1}}}, []ControlRecord{LeaderChange{Leader: 2}, KRaftVersion{1}, Voters{set}}
			if cfg.StaticVoters != nil {
				bootstrap, records = nil, records[:1]
			}
			m := newMember(cfg, bootstrap)
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			ask(t, m, BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(4), Leader: 2, Epoch: 7, Endpoints: testEndpoints(2)})
			joined := func(out takeover) bool {
				for _, s := range out.sends {
					if r, ok := s.Request.(AddRaftVoterRequest); ok {
						return r.Voter == testKey(4) && !r.AckWhenCommitted && s.To.ID == 2
					}
				}
				return false
			}
			records = append(records, c.log...)
			last := int64(len(records) - 1)
			if joined(respond(m, FetchResponse{HighWatermark: Unknown, Batches: []Batch{{BaseOffset: 0, LastOffset: last, Epoch: 7, Bytes: 10, Control: records}}})) {
				t.Fatal("asked before the leader's epoch was settled")
			}
			if m.flushing {
				m.node.Step(m.node.now, m.flushed())
				m.take()
			}
			if got := joined(respond(m, FetchResponse{HighWatermark: last + 1})); got != c.joins {
				t.Errorf("asked to join: %v, want %v", got, c.joins)
			}
		})
	}
}

// TestUnsupportedUpdateDoesNotHoldUpFetching: a leader that is too old to hear of voters is still there to fetch from.
func TestUnsupportedUpdateDoesNotHoldUpFetching(t *testing.T) {
	m, n := followerOf(t)
	respond(m, FetchResponse{HighWatermark: 3, Batches: []Batch{batch(3, 7)}})
	n.Step(n.now, m.flushed())
	m.take()
	out := respond(m, FetchResponse{HighWatermark: 4})
	if len(out.sends) != 1 {
		t.Fatalf("sends %+v", out.sends)
	}
	if _, ok := out.sends[0].Request.(UpdateRaftVoterRequest); !ok {
		t.Fatalf("sends %T, want UpdateRaftVoter", out.sends[0].Request)
	}
	n.Step(n.now, Outcome{Correlation: out.sends[0].Correlation, Failure: UnsupportedByPeer})
	out = m.take()
	if len(out.sends) != 1 || out.sends[0].To.ID != 2 {
		t.Fatalf("sends %+v, want a Fetch to the leader", out.sends)
	}
}
