package server

import (
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/config"
)

// MB-15: a member starts whatever its list of servers says, and says once how that differs from the voters.
func TestMB15BootstrapServersThatAreNotTheVoters(t *testing.T) {
	c := newCluster(t, 3, 0)
	c.leader()
	m := c.members[0]
	var voters []string
	for _, m := range c.members {
		voters = append(voters, m.listeners[config.Controller])
	}
	own, other := c.voters[0].Key.String(), c.voters[2].Key.String()
	const message = "Bootstrap servers are others than the voters"
	if said := m.said.with(message); len(said) > 0 {
		t.Errorf("with the voters themselves: %q", said)
	}
	for _, list := range []struct {
		servers []string
		want    []string // of the line; none: no line
	}{
		{[]string{voters[2], voters[1], voters[0]}, nil},
		{[]string{"127.0.0.1:1"}, nil}, // may stand for all
		{voters[:2], []string{"unlisted=[" + other + "]", "strangers=[]"}},
		{voters[1:2], []string{"unlisted=\"[" + own + " " + other + "]\"", "strangers=[]"}},
		{append(voters[:3:3], "127.0.0.1:1", "nowhere.invalid:9093"), []string{"unlisted=[]", "strangers=\"[127.0.0.1:1 nowhere.invalid:9093]\""}},
	} {
		c.stop(m)
		m.bootstrap = list.servers
		before := len(m.said.with(message))
		c.start(m)
		c.leader()
		lines := m.said.with(message)[before:]
		if len(lines) > 1 || len(lines) == 0 != (list.want == nil) {
			t.Errorf("with %v: %q", list.servers, lines)
		}
		for _, line := range lines {
			for _, want := range append(list.want, "level=INFO") {
				if !strings.Contains(line, want) {
					t.Errorf("with %v: want %q in %q", list.servers, want, line)
				}
			}
		}
		if s := c.status(m); voterIDs(s) != "0 1 2" {
			t.Errorf("with %v: voters %s", list.servers, voterIDs(s))
		}
	}
}

// B-20: a leader that gives up for want of a majority names the voters that went silent, and only then.
func TestB20SilentVotersAreNamed(t *testing.T) {
	c := newCluster(t, 3, 1, "controller.quorum.fetch.timeout.ms=500", "controller.quorum.fetch.max.wait.ms=100")
	const message = "Gave up the lead"
	first := c.leader()
	other := c.members[0]
	if other == first {
		other = c.members[1]
	}
	c.lead(other)
	leader := c.leader()
	if said := first.said.with(message); len(said) > 0 {
		t.Errorf("after a handoff: %q", said)
	}
	var silent []string
	for i, m := range c.members[:3] {
		if m != leader {
			c.killMember(m)
			silent = append(silent, c.voters[i].Key.String())
		}
	}
	c.await("the leader to give up", func() bool { s := c.status(leader); return s != nil && s.Role != "Leader" })
	said := leader.said.with(message)
	if want := "silent=\"[" + strings.Join(silent, " ") + "]\""; len(said) != 1 || !strings.Contains(said[0], want) {
		t.Errorf("the leader said %q, want %s", said, want)
	}
}
