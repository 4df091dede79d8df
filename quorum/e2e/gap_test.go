//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// What a client may see at most, as the median of many runs on a machine that is calm: where clients hardly wait while
// nothing happens. On a busy one the figures are printed and not judged.
const (
	killGap = 100 * time.Millisecond
	stopGap = 30 * time.Millisecond
	calmGap = 15 * time.Millisecond
)

// judge prints both distributions and compares the median with the goal.
func judge(t *testing.T, what string, calm, gaps []time.Duration, goal time.Duration) {
	t.Helper()
	quiet := distribution(t, "as long before it, without a fault", calm)
	median := distribution(t, what, gaps)
	switch {
	case quiet > calmGap:
		t.Logf("the machine is busy: without a fault clients waited %v already, so the goal of %v is not judged", quiet, goal)
	case median > goal:
		t.Errorf("%s: median gap %v, want at most %v", what, median, goal)
	}
}

// The leader is killed under load. The others hear of it by the refused connection and elect at once.
func TestKillOfTheLeader(t *testing.T) {
	q := start(t, 3)
	q.settled()
	l := begin(t, q.bootstrap(), *writers)
	var gaps, calm []time.Duration
	for i := range *runs {
		leader, before := q.settled()
		began := time.Now()
		l.run(*steady)
		from := time.Now()
		calm = append(calm, l.longestGap(began, from))
		leader.kill()
		l.run(*steady)
		gap := l.longestGap(from, time.Now())
		gaps = append(gaps, gap)
		q.explain(gap, from)
		leader.start()
		_, after := q.settled()
		if after.Epoch <= before.Epoch || after.NodeID == before.NodeID {
			t.Errorf("run %d: node %d in epoch %d, then node %d in epoch %d", i, before.NodeID, before.Epoch, after.NodeID, after.Epoch)
		}
		t.Logf("run %d: node %d killed, gap %v, epoch %d to %d", i, before.NodeID, gap, before.Epoch, after.Epoch)
	}
	l.end()
	judge(t, "SIGKILL of the leader", calm, gaps, killGap)
}

// The leader is told to stop under load. It hands over: one election, won by the successor it preferred.
func TestStopOfTheLeader(t *testing.T) {
	q := start(t, 3)
	q.settled()
	l := begin(t, q.bootstrap(), *writers)
	var gaps, calm []time.Duration
	for i := range *runs {
		leader, before := q.settled()
		began := time.Now()
		l.run(*steady)
		from := time.Now()
		calm = append(calm, l.longestGap(began, from))
		leader.terminate()
		l.run(*steady)
		gap := l.longestGap(from, time.Now())
		gaps = append(gaps, gap)
		q.explain(gap, from)
		leader.start()
		_, after := q.settled()
		if after.Epoch != before.Epoch+1 {
			t.Errorf("run %d: epoch %d, then %d: want one election", i, before.Epoch, after.Epoch)
		}
		h := after.Handoff
		if h == nil || h.From != before.NodeID || h.Target != after.NodeID || h.ToEpoch != after.Epoch {
			t.Errorf("run %d: node %d leads epoch %d and tells of handoff %+v: want itself as the preferred successor of node %d", i, after.NodeID, after.Epoch, h, before.NodeID)
			continue
		}
		t.Logf("run %d: node %d stopped, gap %v (the successor measured %v), epoch %d to %d", i, before.NodeID, gap, h.WriteGap, before.Epoch, after.Epoch)
	}
	l.end()
	judge(t, "SIGTERM of the leader", calm, gaps, stopGap)
}
