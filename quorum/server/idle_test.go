package server

import (
	flags "flag"
	"syscall"
	"testing"
	"time"
)

var idleFor = flags.Duration("idle", 3*time.Second, "how long TestPR20IdleMembersAreIdle watches, each of two times")

// PR-20: who has nothing to do does next to nothing: leader, followers and observer, and then a voter and an observer that have
// no leader.
func TestPR20IdleMembersAreIdle(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	idle := func(what string) {
		t.Helper()
		watched, share := *idleFor, 0.02 // of a core, each
		if watched >= time.Minute {
			share = 0.01 // what begins and ends with it counts for less
		}
		running := 0
		for _, m := range c.members {
			if m.cancel != nil {
				running++
			}
		}
		before := processorTime(t)
		time.Sleep(watched) // what they do meanwhile is what is measured
		used := processorTime(t) - before
		t.Logf("%s: %d members took %v of processor time in %v", what, running, used, watched)
		if most := time.Duration(float64(running) * share * float64(watched)); used > most {
			t.Errorf("%s: %d members took %v of processor time in %v, want %v at most", what, running, used, watched, most)
		}
		for _, m := range c.members {
			if m.cancel != nil {
				c.await("an idle ratio of 0.95", func() bool { return c.metric(m, "kafka_server_raft_metrics_poll_idle_ratio_avg") > 0.95 })
			}
		}
	}
	idle("with a leader")
	kept := 0
	for _, m := range c.members[:3] {
		if m == leader || kept > 0 {
			c.killMember(m)
		} else {
			kept++
		}
	}
	idle("without a leader")
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
