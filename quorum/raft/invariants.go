package raft

import "fmt"

// before is what a step is compared with.
type before struct {
	state         ElectionState
	role          Role
	highWatermark int64
	committed     int64
}

func (n *Node) observeState() before {
	return before{state: n.state, role: n.role, highWatermark: n.highWatermark, committed: n.committed}
}

// broken ends everything over a bug: here or in the driver.
func (n *Node) broken(format string, args ...any) {
	panic(fmt.Sprintf("raft invariant: "+format+" (node %s, %s, %+v, log end %d, flushed %d, high watermark %d)",
		append(args, n.cfg.Self, n.role, n.state, n.log.end, n.flushed, n.highWatermark)...))
}

// check panics if a step did what no step may do: a bug here, never the world's fault. It is cheap and always on; what
// costs more stands behind the build tag "invariants".
func (n *Node) check(b before) {
	if n.ready.Fatal != nil {
		return
	}
	fail := n.broken
	now := n.state
	switch {
	case now.Epoch < b.state.Epoch:
		fail("epoch fell from %d", b.state.Epoch)
	case now.Epoch == b.state.Epoch && b.state.Leader != None && now.Leader != b.state.Leader:
		fail("leader of epoch %d changed from %d", now.Epoch, b.state.Leader)
	case now.Epoch == b.state.Epoch && b.state.Voted.ID != None && now.Voted != b.state.Voted && n.role != Leader && now.Leader != n.cfg.Self.ID:
		fail("second vote in epoch %d after %s", now.Epoch, b.state.Voted)
	case (n.role == Leader || n.role == Resigned) && now.Leader != n.cfg.Self.ID:
		fail("%s of an epoch that another leads", n.role)
	case (n.leader != nil) != (n.role == Leader):
		fail("leader state and role disagree")
	case n.role == Leader && now.Epoch == b.state.Epoch && b.role == Resigned:
		fail("led an epoch again after resigning")
	case n.role == Follower && (now.Leader == None || now.Leader == n.cfg.Self.ID):
		fail("follows nobody")
	case !n.electable() && (n.role == Prospective || n.role == Candidate):
		fail("an observer took part in elections")
	case n.full && (n.role == Prospective || n.role == Candidate):
		fail("campaigned without room to open an epoch")
	case n.removed() && !n.transfer.active():
		fail("leads on, although the set of offset %d without it is committed", n.voters.offset())
	case n.flushed > n.log.end:
		fail("more flushed than written")
	case n.highWatermark > n.log.end || n.committed > n.log.end:
		fail("committed %d beyond the log", n.committed)
	case n.committed < b.committed:
		fail("committed offset fell from %d", b.committed)
	case n.role == b.role && n.highWatermark < b.highWatermark && now.Epoch == b.state.Epoch:
		fail("high watermark fell from %d", b.highWatermark)
	case n.log.start > 0 && (n.log.earliest == nil || n.log.earliest.Offset != n.log.start):
		fail("the log begins at %d without a snapshot that ends there", n.log.start)
	case n.log.latest != nil && n.log.latest.Offset > n.committed:
		fail("the snapshot %+v is not committed", *n.log.latest)
	case n.download != nil && n.role != Follower:
		fail("downloads a snapshot without following anybody")
	case n.role == Leader && n.highWatermark != Unknown && n.highWatermark <= n.leader.epochStart:
		fail("committed without a record of its own epoch, which starts at %d", n.leader.epochStart)
	}
	if !expensiveInvariants {
		return
	}
	fetches := 0
	for _, c := range n.conns {
		_, fetch := c.request.(FetchRequest)
		_, snapshot := c.request.(FetchSnapshotRequest)
		if (fetch || snapshot) && c.correlation != 0 {
			fetches++
		}
	}
	if fetches > 1 {
		fail("%d fetches in flight", fetches)
	}
	for i := 1; i < len(n.log.epochs); i++ {
		if p, e := n.log.epochs[i-1], n.log.epochs[i]; e.Epoch <= p.Epoch || e.Offset <= p.Offset {
			fail("epochs out of order: %v", n.log.epochs)
		}
	}
	for i := 1; i < len(n.proposals.appended); i++ {
		if n.proposals.appended[i].last < n.proposals.appended[i-1].last {
			fail("appended proposals out of order")
		}
	}
	for _, s := range n.voters.sets {
		if s.offset >= n.log.end {
			fail("a voter set of offset %d outlived its record", s.offset)
		}
	}
	if l := n.leader; l != nil && !sameSet(l.set, n.voters.current()) {
		fail("progress is kept of an old voter set")
	}
}
