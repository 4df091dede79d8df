package transport

import (
	"sync"
	"time"
)

// budget counts bytes up to a bound. Who asks for more than is left waits; first come, first served, so that a large
// request is not passed by small ones for ever.
type budget struct {
	mu      sync.Mutex
	limited bool
	free    int64
	waiting []*claim
}

type claim struct {
	bytes   int64
	granted chan struct{}
}

func (b *budget) init(bytes int64) { b.limited, b.free = bytes > 0, bytes }

// acquire takes n bytes. It reports false if cancel was closed first.
func (b *budget) acquire(n int, cancel <-chan struct{}) bool {
	if !b.limited {
		return true
	}
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= int64(n) {
		b.free -= int64(n)
		b.mu.Unlock()
		return true
	}
	c := &claim{bytes: int64(n), granted: make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	select {
	case <-c.granted:
		return true
	case <-cancel:
		b.withdraw(c)
		return false
	}
}

func (b *budget) withdraw(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == c {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.grant()
			return
		}
	}
	b.free += c.bytes // granted in the meantime
	b.grant()
}

func (b *budget) release(n int) {
	if !b.limited {
		return
	}
	b.mu.Lock()
	b.free += int64(n)
	b.grant()
	b.mu.Unlock()
}

func (b *budget) grant() {
	for len(b.waiting) > 0 && b.free >= b.waiting[0].bytes {
		c := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.free -= c.bytes
		close(c.granted)
	}
}

// pacer spreads events over time: at most perSecond of them at once, then one each 1/perSecond.
type pacer struct {
	perSecond int
	full      time.Time // when all tokens are back
}

// take uses one token and returns how long to wait for it.
func (p *pacer) take(now time.Time) time.Duration {
	if p.perSecond <= 0 {
		return 0
	}
	if p.full.Before(now) {
		p.full = now
	}
	p.full = p.full.Add(time.Second / time.Duration(p.perSecond))
	return p.full.Sub(now) - time.Second
}
