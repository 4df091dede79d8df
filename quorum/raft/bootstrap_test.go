package raft

import (
	"testing"
	"time"
)

// TestMB15BootstrapListsAreOnlyForDiscovery: whoever stands in a member's bootstrap list, fewer than the voters, more,
// strangers or nobody that is there, the voters are those of its log, and it follows their leader.
func TestMB15BootstrapListsAreOnlyForDiscovery(t *testing.T) {
	for name, hosts := range map[string][]string{
		"itself alone":     {"n1"},
		"one of three":     {"n2"},
		"five":             {"n1", "n2", "n3", "n4", "n5"},
		"nobody there":     {"gone-1", "gone-2"},
		"an unknown one":   {"n2", "stranger"},
		"a name for all":   {"all", "all"},
		"all but the rest": {"n3"},
	} {
		t.Run(name, func(t *testing.T) {
			set := testVoters(1, 2, 3)
			m := newMember(testConfig(1, set), dynamic(set))
			m.cfg.Bootstrap = nil
			for i, host := range hosts {
				m.cfg.Bootstrap = append(m.cfg.Bootstrap, Destination{ID: NodeID(-2 - i), Host: host, Port: 9093})
			}
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			n := m.node
			if s := n.Status(); len(s.Voters) != 3 || !s.IsVoter {
				t.Fatalf("voters %v", s.Voters)
			}
			// Nobody on the list answers: it campaigns among the voters all the same.
			var asked []NodeID
			for n.role == Unattached && n.now < Instant(10*time.Second) {
				n.Step(n.Deadline(), Deadline{})
				asked = votesAskedOf(m.take(), true)
			}
			if n.role != Prospective || len(asked) != 2 || asked[0] != 2 || asked[1] != 3 {
				t.Errorf("%s asked %v, want pre-votes of 2 and 3", n.role, asked)
			}
			ask(t, m, begin(3, 1, testEndpoints(3)))
			if n.role != Follower || n.fetch.to != 3 {
				t.Errorf("%s fetches from %d, want from the leader", n.role, n.fetch.to)
			}
		})
	}
}
