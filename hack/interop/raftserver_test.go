//go:build interop

package interop

import (
	"syscall"
	"testing"
)

// What kafka.tools.TestRaftServer takes for granted.
const performanceClusterID = "AAAAAAAAAAAAAAAAAAAAAA"

// Members of ours and of Kafka's elect and replicate, whoever has the majority. Each side's leaders are killed and
// stopped, and all end up with the same bytes.
func TestOursAndKafkasReplicateTheSameBytes(t *testing.T) {
	for _, run := range []struct {
		name    string
		dynamic bool
		voters  []kind
	}{
		{"two of Kafka's and one of ours", false, []kind{ours, raftServer, raftServer}},
		{"one of Kafka's and two of ours", false, []kind{ours, ours, raftServer}},
		{"two of Kafka's and one of ours at kraft.version 1", true, []kind{ours, raftServer, raftServer}},
	} {
		t.Run(run.name, func(t *testing.T) {
			c := newCluster(t, run.dynamic, run.voters...)
			c.start(c.members...)
			c.advance(1000)
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				for _, side := range []kind{raftServer, ours} {
					c.lead(side)
					c.lose(signal)
					c.advance(1000)
				}
			}
			for _, side := range []kind{raftServer, ours} {
				c.lead(side)
				c.loseTail()
				c.advance(1000)
			}
			c.lead(ours)
			c.describe()
			c.equal(c.advance(1000), 1<<20)
		})
	}
}

// One of ours follows three of Kafka's, across the loss of their leaders.
func TestOursObservesKafkasRaftServers(t *testing.T) {
	for run, dynamic := range map[string]bool{"static": false, "formatted by our quorum format": true} {
		t.Run(run, func(t *testing.T) {
			c := newCluster(t, dynamic, raftServer, raftServer, raftServer)
			c.start(c.members...)
			m := c.join(9, ours, true)
			c.start(m)
			c.advance(2000)
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				c.lose(signal)
				c.restart(m)
				c.advance(2000)
			}
			c.loseTail()
			c.advance(2000)
			c.followed(m)
			c.equal(c.advance(2000), 1<<20)
		})
	}
}
