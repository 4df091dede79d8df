package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/config"
)

// PR-25: the leader stops dead, without an end of any connection, and another process takes its place, at its name but at
// another address. Of the two other voters one is down, so that it takes the one that is left and the newcomer to go on: who
// waits for an answer of the dead address has to look the name up again. Both lead and follow again within six seconds.
func TestPR25ReplacedLeaderAtAnotherAddress(t *testing.T) {
	withinBestOf3(t, 6*time.Second, func(t *testing.T) time.Duration {
		var old hungHost
		var moved atomic.Bool
		var asked atomic.Int32 // for the name, after the move
		c := &cluster{t: t}
		c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			switch {
			case address != c.members[0].listeners[config.Controller]:
			case moved.Load():
				asked.Add(1)
			default:
				return old.dial(ctx, network, address)
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		t.Cleanup(old.close)
		c.form(3, 0)
		leader := c.members[0]
		leader.dial = old.dial
		c.killMember(leader) // and from now on what it dials hangs with it
		c.start(leader)
		c.lead(leader)
		c.killMember(c.members[2])
		client := c.client()
		c.append(client, keyed("k", "before"))
		before := c.status(leader)

		began := time.Now()
		old.hangs.Store(true)
		c.killMember(leader)
		leader.dial = nil
		moved.Store(true)
		c.start(leader)
		after := c.status(c.leader())
		c.append(client, keyed("k", "after"))
		took := time.Since(began)
		t.Logf("whole again after %v, epoch %d to %d, the name was looked up %d times", took, before.Epoch, after.Epoch, asked.Load())
		if asked.Load() == 0 {
			t.Error("nobody looked the name up again")
		}
		c.await("the Fetch of the other voter to be given up", func() bool { return old.left.Load() > 0 })
		return took
	})
}

// hungHost passes connections on until it hangs. Then nothing passes any more, and no end of a connection either.
type hungHost struct {
	hangs  atomic.Bool
	left   atomic.Int32 // connections that were given up from outside since it hangs
	mu     sync.Mutex
	conns  []net.Conn
	copies sync.WaitGroup
}

func (h *hungHost) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	outside, err := new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	if err != nil {
		return nil, err
	}
	inside, err := l.Accept()
	if err == nil && !h.hangs.Load() {
		var host net.Conn
		if host, err = new(net.Dialer).DialContext(ctx, network, address); err == nil {
			h.keep(host)
			h.copies.Go(func() { h.pass(inside, host) })
			h.copies.Go(func() { h.pass(host, inside) })
		}
	}
	if err != nil {
		outside.Close()
		return nil, err
	}
	h.keep(inside)
	return outside, nil
}

func (h *hungHost) keep(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, c)
}

// pass copies until the host hangs. From then on it reads what comes from outside, to see the end of it.
func (h *hungHost) pass(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		hangs := h.hangs.Load()
		switch {
		case err == nil && !hangs:
			_, _ = to.Write(buf[:n]) // an error comes up where it is read
		case err != nil && !hangs:
			to.Close()
			return
		case err != nil:
			h.left.Add(1)
			return
		}
	}
}

func (h *hungHost) close() {
	h.mu.Lock()
	for _, c := range h.conns {
		c.Close()
	}
	h.mu.Unlock()
	h.copies.Wait()
}
