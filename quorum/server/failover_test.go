package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load is writers that append one record after the other, each with keys of its own and values that count up.
type load struct {
	c       *cluster
	writers sync.WaitGroup
	stop    chan struct{}
	acked   [][]time.Time // by writer: when the n-th append was acknowledged
}

func (c *cluster) load(writers int) *load {
	l := &load{c: c, stop: make(chan struct{}), acked: make([][]time.Time, writers)}
	client := c.client()
	for w := range writers {
		l.writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				err := client.ProduceSync(ctx, keyed(strconv.Itoa(w), strconv.Itoa(n))).FirstErr()
				cancel()
				if err != nil {
					c.t.Errorf("writer %d, append %d: %v", w, n, err)
					return
				}
				l.acked[w] = append(l.acked[w], time.Now())
			}
		})
	}
	return l
}

// end stops the writers and checks what the log holds: each writer's values in order, every one once.
func (l *load) end() (longestGap time.Duration) {
	l.c.t.Helper()
	close(l.stop)
	l.writers.Wait()
	total := 0
	for _, acks := range l.acked {
		total += len(acks)
	}
	next := make([]int, len(l.acked))
	for _, r := range l.c.readAll(total) {
		w, _ := strconv.Atoi(string(r.Key))
		if n, _ := strconv.Atoi(string(r.Value)); n != next[w] {
			l.c.t.Fatalf("writer %d: value %d at offset %d, expected %d: lost, doubled or out of order", w, n, r.Offset, next[w])
		}
		next[w]++
	}
	for w, acks := range l.acked {
		if next[w] != len(acks) {
			l.c.t.Errorf("writer %d: %d acknowledged, %d in the log", w, len(acks), next[w])
		}
	}
	return l.longestGap(time.Time{}, time.Now())
}

// longestGap is the longest time between two acknowledgements from one instant to another; only after the end.
func (l *load) longestGap(from, to time.Time) (longest time.Duration) {
	var last time.Time
	for _, at := range slices.SortedFunc(slices.Values(slices.Concat(l.acked...)), time.Time.Compare) {
		if at.Before(from) || at.After(to) {
			continue
		}
		if !last.IsZero() {
			longest = max(longest, at.Sub(last))
		}
		last = at
	}
	return longest
}

// appendsGoOn waits until some hundred more are committed.
func (c *cluster) appendsGoOn() {
	c.t.Helper()
	var before int64 = -1
	c.await("appends to go on", func() bool {
		var high int64
		for _, m := range c.members {
			if m.cancel == nil {
				continue
			}
			if s := c.status(m); s != nil {
				high = max(high, s.HighWatermark)
			}
		}
		if before < 0 {
			before = high
		}
		return high > before+200
	})
}

func TestKillOfTheLeaderUnderLoad(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	before := c.status(leader)
	l := c.load(4)
	c.appendsGoOn()
	c.killMember(leader)
	c.appendsGoOn()
	c.start(leader)
	next := c.leader()
	c.appendsGoOn()
	gap := l.end()
	t.Logf("longest gap %v", gap)
	if s := c.status(next); s.Epoch <= before.Epoch {
		t.Errorf("epoch %d after the kill, %d before", s.Epoch, before.Epoch)
	}
	if gap > 2*time.Second {
		t.Errorf("longest gap without an acknowledged append is %v: nobody noticed the refused connection", gap)
	}
}

func TestStopOfTheLeaderUnderLoad(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	before := c.status(leader)
	l := c.load(4)
	c.appendsGoOn()
	c.stop(leader)
	c.start(leader)
	next := c.leader()
	c.appendsGoOn()
	gap := l.end()
	t.Logf("longest gap %v", gap)
	s := c.status(next)
	if s.Epoch != before.Epoch+1 {
		t.Errorf("epoch %d after a graceful stop, want %d: one election", s.Epoch, before.Epoch+1)
	}
	if h := s.Handoff; h == nil || h.Target != s.NodeID || h.To != s.NodeID {
		t.Errorf("the successor tells of handoff %+v, want itself as target", h)
	}
	if gap > time.Second {
		t.Errorf("longest gap without an acknowledged append is %v", gap)
	}
}

func TestFollowersStopWithoutAnElection(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	before := c.status(leader)
	for _, m := range c.members {
		if m != leader {
			c.stop(m)
			c.start(m)
			c.leader()
		}
	}
	if s := c.status(leader); s.Role != "Leader" || s.Epoch != before.Epoch {
		t.Errorf("leader is %s in epoch %d after the others' restarts, want Leader in %d", s.Role, s.Epoch, before.Epoch)
	}
}

func TestObserverServesReads(t *testing.T) {
	c := newCluster(t, 3, 1, "client.read.replicas=observers")
	c.leader()
	client := c.client()
	for i := range 50 {
		c.append(client, keyed("k", fmt.Sprint(i)))
	}
	observer := c.members[3]
	c.await("the observer to have all", func() bool { return c.status(observer).HighWatermark >= 50 })
	before := c.metric(observer, `quorum_requests_total{listener="CLIENT",request="Fetch"}`)
	got := c.readAll(50, kgo.Rack("somewhere"))
	if len(got) != 50 {
		t.Fatalf("read %d records", len(got))
	}
	if after := c.metric(observer, `quorum_requests_total{listener="CLIENT",request="Fetch"}`); after <= before {
		t.Errorf("the observer served %v fetches before and %v after the read: nobody was sent to it", before, after)
	}
}

// A consumer is sent to the member of its own rack (KIP-392).
func TestConsumersReadInTheirRack(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	client := c.client()
	for i := range 20 {
		c.append(client, keyed("k", fmt.Sprint(i)))
	}
	near := c.members[0]
	if near == leader {
		near = c.members[1]
	}
	c.await("the follower to have all", func() bool { return c.status(near).HighWatermark >= 20 })
	const sample = `quorum_requests_total{listener="CLIENT",request="Fetch"}`
	before := c.metric(near, sample)
	c.readAll(20, kgo.Rack(fmt.Sprintf("rack-%d", near.id)))
	if after := c.metric(near, sample); after <= before {
		t.Errorf("member %d served %v fetches before and %v after a read from its rack", near.id, before, after)
	}
}

// A client that comes while nobody leads waits for the quorum rather than giving up: it needs a producer id first.
func TestProducerThatComesWhileNobodyLeads(t *testing.T) {
	c := newCluster(t, 3, 0)
	c.leader()
	for _, m := range c.members[1:] {
		c.killMember(m)
	}
	c.await("the member to be alone", func() bool { return !c.status(c.members[0]).Ready })
	client := c.client()
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done <- client.ProduceSync(ctx, keyed("k", "v")).FirstErr()
	}()
	c.await("the client to ask for a producer id", func() bool {
		return c.metric(c.members[0], `quorum_requests_total{listener="CLIENT",request="InitProducerID"}`) > 0
	})
	c.start(c.members[1])
	if err := <-done; err != nil {
		t.Errorf("append: %v", err)
	}
	c.readAll(1)
}
