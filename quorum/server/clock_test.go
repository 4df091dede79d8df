package server

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/config"
)

// PR-37: one member's calendar jumps, the leader's or a follower's. Nobody votes, appends go on, and no age or lag that anybody
// shows is negative or more than an hour.
func TestPR37AgesWithACalendarThatIsOff(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	follower := c.members[0]
	if follower == leader {
		follower = c.members[1]
	}
	producer := c.client()
	c.append(producer, keyed("k", "v"))
	before := c.status(leader)
	sane := func(m *testMember, what string, seconds float64) {
		t.Helper()
		if seconds != -1 && (seconds < 0 || seconds > 3600) { // -1: not known
			t.Errorf("member %d, calendars off by %v and %v: %s is %v s", m.id, time.Duration(leader.wall.Load()), time.Duration(follower.wall.Load()), what, seconds)
		}
	}
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 10 * 365 * 24 * time.Hour, 0} {
		for _, off := range []*testMember{leader, follower} {
			off.wall.Store(int64(2 * jump)) // a jump by more than what is sane
			c.append(producer, keyed("k", "v"))
			for _, m := range c.members {
				ages := 0
				_, metrics := c.health(m, "/metrics")
				for line := range strings.Lines(metrics) {
					name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
					if family, _, _ := strings.Cut(name, "{"); strings.HasSuffix(family, "_seconds") || strings.HasSuffix(family, "_lag_offsets") {
						seconds, err := strconv.ParseFloat(value, 64)
						if err != nil {
							t.Fatalf("metric %s: %v", line, err)
						}
						sane(m, name, seconds)
						ages++
					}
				}
				if ages == 0 {
					t.Fatalf("member %d has no metric of an age", m.id)
				}
				s := c.status(m)
				sane(m, "leaderContactMs", max(float64(s.LeaderContactMs)/1000, -1))
				for _, r := range append(s.Voters, s.Observers...) {
					for what, ms := range map[string]int64{"lastFetchMs": r.LastFetchMs, "lastCaughtUpMs": r.LastCaughtUpMs, "lag": r.Lag * 1000} {
						if ms >= 0 {
							sane(m, what, float64(ms)/1000)
						}
					}
				}
			}
			q, err := new(client.Client).DescribeQuorum(t.Context(), []string{leader.listeners[config.Controller]})
			if err != nil {
				t.Fatal(err)
			}
			sane(leader, "MaxFollowerLagTimeMs", float64(q.MaxFollowerLagTimeMs)/1000)
		}
	}
	if after := c.status(leader); after.Role != "Leader" || after.Epoch != before.Epoch || after.HighWatermark < before.HighWatermark+8 {
		t.Errorf("%s of epoch %d, high watermark %d; was Leader of %d, at %d", after.Role, after.Epoch, after.HighWatermark, before.Epoch, before.HighWatermark)
	}
}
