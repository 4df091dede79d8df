package raft

import (
	"fmt"
	"testing"
	"time"
)

// trio is three voters in one process: messages are handed over at once, flushes end as soon as asked for.
type trio struct {
	members []*member
	queue   []packet
	acked   int
	nextID  RequestID
	served  map[RequestID]packet
}

func newTrio(b *testing.B) *trio {
	t := &trio{served: map[RequestID]packet{}}
	set := testVoters(0, 1, 2)
	for i := range 3 {
		cfg := testConfig(NodeID(i), set)
		cfg.FetchMaxBytes, cfg.MaxPending = 8<<20, 10000
		m := newMember(cfg, dynamic(set))
		if err := m.boot(0); err != nil {
			b.Fatal(err)
		}
		t.members = append(t.members, m)
		t.take(m)
	}
	m := t.members[0]
	m.node.Step(m.node.election, Deadline{})
	t.take(m)
	t.settle()
	if m.node.role != Leader {
		b.Fatal(m.node.role)
	}
	return t
}

// take is the leanest driver: no log, only the order of effects.
func (t *trio) take(m *member) {
	n := m.node
	for n.HasReady() {
		r := n.Ready()
		from := m.cfg.Self.ID
		for _, a := range r.Answers {
			switch v := a.Result.(type) {
			case ProposeResult:
				if v.Error == NoError {
					t.acked++
				}
			case FetchResponse:
				p := t.served[a.ID]
				delete(t.served, a.ID)
				if v.End > v.Offset {
					v.Batches = []Batch{{BaseOffset: v.Offset, LastOffset: v.End - 1, Epoch: n.state.Epoch, Bytes: 100}}
				}
				t.queue = append(t.queue, packet{from: from, to: p.from, corr: p.corr, response: v})
			case Response:
				p := t.served[a.ID]
				delete(t.served, a.ID)
				t.queue = append(t.queue, packet{from: from, to: p.from, corr: p.corr, response: v})
			}
		}
		for _, s := range r.Sends {
			if s.To.ID >= 0 {
				t.queue = append(t.queue, packet{from: from, to: s.To.ID, corr: s.Correlation, request: s.Request})
			}
		}
		flush, end := r.Flush, n.log.end
		n.Advance()
		if flush {
			n.Step(n.now, Flushed{End: end, Generation: n.generation})
		}
	}
}

func (t *trio) settle() {
	for len(t.queue) > 0 {
		p := t.queue[0]
		t.queue = t.queue[1:]
		m := t.members[p.to]
		switch {
		case p.response != nil:
			m.node.Step(m.node.now, Outcome{Correlation: p.corr, Response: p.response})
		case isProbe(p.request):
			t.queue = append(t.queue, packet{from: p.to, to: p.from, corr: p.corr, response: ApiVersionsResponse{KRaft: &VersionRange{0, 1}}})
		default:
			t.nextID++
			t.served[t.nextID] = p
			m.node.Step(m.node.now, Inbound{ID: t.nextID, Conn: ConnID(p.from), Request: p.request})
		}
		t.take(m)
	}
}

// BenchmarkProposeCommit is one write from Propose to its answer, three voters and their messages included.
func BenchmarkProposeCommit(b *testing.B) {
	for _, window := range []int{1, 64} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			t := newTrio(b)
			leader := t.members[0]
			b.ReportAllocs()
			id, start := RequestID(1<<40), t.acked
			for done := 0; b.Loop(); done++ {
				id++
				leader.node.Step(leader.node.now, Propose{ID: id, Records: 1, Bytes: 100})
				if done%window == window-1 {
					t.take(leader)
					t.settle()
				}
			}
			t.take(leader)
			t.settle()
			if got := t.acked - start; got != int(id-1<<40) {
				b.Fatalf("%d of %d acknowledged", got, id-1<<40)
			}
		})
	}
}

// BenchmarkStep is the leader's share of an idle follower's fetch: parked, then answered.
func BenchmarkStep(b *testing.B) {
	m, n := leaderOf(b)
	var r Request = FetchRequest{
		ClusterID: testCluster, Replica: testKey(3), Epoch: n.state.Epoch, Offset: n.log.end, LastFetchedEpoch: n.log.lastEpoch(),
		HighWatermark: n.highWatermark, MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20,
	}
	_ = m
	b.ReportAllocs()
	for b.Loop() {
		n.Step(n.now, Inbound{ID: 3, Conn: 3, Request: r})
		n.Ready()
		n.Advance()
	}
}

func BenchmarkStatus(b *testing.B) {
	_, n := leaderOf(b)
	b.ReportAllocs()
	for b.Loop() {
		n.Status()
	}
}
