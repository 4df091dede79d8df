package sim

import (
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// clock is the monotonic clock of one process: it starts anywhere and runs a little too fast or too slow. The world's own
// time is a Duration since the world began.
type clock struct {
	origin time.Duration // world's time when the process started
	base   raft.Instant  // what the clock showed then
	ppm    int64         // a million if it is right
}

// read is what the clock shows at that time of the world.
func (c clock) read(now time.Duration) raft.Instant {
	return c.base + raft.Instant(int64(now-c.origin)/1000*c.ppm/1000)
}

// when is the first time of the world at which the clock shows at least i.
func (c clock) when(i raft.Instant) time.Duration {
	left := int64(i - c.base)
	if left <= 0 {
		return c.origin
	}
	t := c.origin + time.Duration((left*1000+c.ppm-1)/c.ppm*1000)
	for c.read(t) < i {
		t += time.Microsecond
	}
	return t
}
