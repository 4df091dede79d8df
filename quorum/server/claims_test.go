package server

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// MB-11: what is taken for two processes, and above all what is not.
func TestMB11Claims(t *testing.T) {
	one, wiped := raft.ReplicaKey{ID: 1, DirectoryID: raft.UUID{1}}, raft.ReplicaKey{ID: 1, DirectoryID: raft.UUID{9}}
	other := raft.ReplicaKey{ID: 2, DirectoryID: raft.UUID{2}}
	type fetch struct {
		conn raft.ConnID
		key  raft.ReplicaKey // none: the connection closes
	}
	gone := raft.ReplicaKey{}
	repeat := func(n int, f ...fetch) (all []fetch) {
		for range n {
			all = append(all, f...)
		}
		return all
	}
	bootstrap := repeat(5, fetch{1, one})
	for i := range raft.ConnID(20) { // asked now and then, and never on the same connection
		bootstrap = append(bootstrap, fetch{10 + i, one}, fetch{1, one}, fetch{1, one})
	}
	kept := repeat(10, append(repeat(5, fetch{1, one}), fetch{9, one})...) // a bootstrap server's connection, after each silence
	var restarts []fetch
	for i := range raft.ConnID(20) { // the leader has not seen the end of any of them
		restarts = append(restarts, fetch{i, one}, fetch{i, one}, fetch{i, raft.ReplicaKey{ID: 1, DirectoryID: raft.UUID{byte(i)}}})
	}
	tests := map[string]struct {
		fetches  []fetch
		conflict bool
	}{
		"one connection": {repeat(10, fetch{1, one}), false},
		"two replicas":   {repeat(10, fetch{1, one}, fetch{2, other}), false},
		"a new connection, the old one is silent": {append(repeat(5, fetch{1, one}), repeat(5, fetch{2, one})...), false},
		"a request was still under way":           {append(repeat(5, fetch{1, one}), fetch{2, one}, fetch{1, one}, fetch{2, one}, fetch{2, one}), false},
		"bootstrap servers":                       {bootstrap, false},
		"a bootstrap server's is kept":            {kept, false},
		"restarts":                                {restarts, false},
		"the disk was lost":                       {append(repeat(5, fetch{1, one}), repeat(5, fetch{2, wiped})...), false},
		"connections that end":                    {repeat(9, fetch{1, one}, fetch{2, one}, fetch{1, gone}), false},
		"two processes by turns":                  {repeat(3, fetch{1, one}, fetch{2, one}), true},
		"one of them is faster":                   {repeat(3, fetch{1, one}, fetch{2, one}, fetch{2, one}, fetch{2, one}), true},
		"on two disks":                            {repeat(3, fetch{1, one}, fetch{2, wiped}), true},
		"three":                                   {repeat(4, fetch{1, one}, fetch{2, one}, fetch{3, wiped}), true},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			all, conflicts, now := newClaims(2*time.Second), 0, raft.Instant(0)
			for _, f := range c.fetches {
				now = now.Add(400 * time.Millisecond)
				if f.key == gone {
					all.closed(f.conn)
				} else if _, rival := all.fetched(now, f.conn, "", f.key); rival != nil {
					conflicts++
				}
			}
			if conflicts > 0 != c.conflict {
				t.Errorf("%d conflicts in %v", conflicts, c.fetches)
			}
			for _, f := range c.fetches {
				all.closed(f.conn)
			}
			if len(all.byConn)+len(all.last) > 0 {
				t.Errorf("%d claims of connections that are closed", len(all.byConn)+len(all.last))
			}
		})
	}
}

// MB-11: when a second process runs with a voter's node id, on a disk of its own or on a copy of the voter's, the leader says
// so, and where both are.
func TestMB11TwinsAreNamed(t *testing.T) {
	for name, message := range map[string]string{"another disk": "Two processes run with one node id", "a copy": "Two processes run on one directory"} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, 0)
			c.mayErr = true
			leader := c.leader()
			l := c.load(1)
			voter := c.members[0]
			if voter == leader {
				voter = c.members[1]
			}
			c.stop(voter)
			twin := c.newMember(voter.id)
			twin.dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
			if name == "a copy" {
				if err := os.CopyFS(twin.dir, os.DirFS(voter.dir)); err != nil {
					t.Fatal(err)
				}
			} else {
				c.formatEmpty(twin)
			}
			c.start(voter)
			c.start(twin)
			c.leader()
			c.await("the leader to count conflicts", func() bool { return c.metric(leader, "quorum_replica_key_conflicts_total") > 0 })
			said := leader.said.with("level=ERROR")
			if len(said) == 0 || !strings.Contains(said[0], message) || !strings.Contains(said[0], "=127.0.0.1:") || !strings.Contains(said[0], "=127.0.0.2:") {
				t.Errorf("the leader said %q, want %q and both addresses", said, message)
			}
			l.end()
		})
	}
}
