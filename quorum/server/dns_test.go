package server

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// Names that come late, as they do when a whole cluster boots: first there are none, then the name server is ill. No
// member gives up, none says it is ready, and the quorum forms as soon as the names are there (DN-02).
func TestDN02LateNamesAreWaitedFor(t *testing.T) {
	const absent, ill, there = 0, 1, 2
	var names, asked atomic.Int32
	c := &cluster{t: t, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		asked.Add(1)
		switch names.Load() {
		case absent:
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}}
		case ill:
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "server misbehaving", Name: address, IsTemporary: true}}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	c.form(3, 1)
	for _, state := range []int32{absent, ill} {
		names.Store(state)
		already := asked.Load()
		c.await("members to go on asking", func() bool { return asked.Load() > already+40 })
		for _, m := range c.members {
			if code, why := c.health(m, "/readyz"); code != http.StatusServiceUnavailable {
				t.Errorf("member %d: /readyz answers %d %q without names, want 503", m.id, code, why)
			}
			select {
			case <-m.stopped:
				t.Fatalf("member %d ended: %v", m.id, m.err)
			default:
			}
		}
	}

	names.Store(there)
	began := time.Now()
	c.leader()
	c.await("every member to be ready", func() bool {
		for _, m := range c.members {
			if code, _ := c.health(m, "/readyz"); code != http.StatusOK {
				return false
			}
		}
		return true
	})
	t.Logf("ready %s after the names came", time.Since(began))
}
