package raft

import (
	"slices"
	"time"
)

// A leader leaves office by itself for four reasons besides a silent majority: its process is asked to stop, its disk is
// nearly full, or far slower than the others', or the voters have committed a set without it. All begin a handoff. One
// whose disk is full before its epoch is open resigns.

// defaultShutdownTimeout bounds a Shutdown that names no time.
const defaultShutdownTimeout = 5 * time.Second

// onReserve: a full leader refuses appends and hands over to a voter that has room; a full follower drops what it gets and
// campaigns last. Space back means service back.
func (n *Node) onReserve(r Reserve) {
	was := n.belowReserve
	n.belowReserve, n.full = r.Below || r.Full, r.Full
	if was && !n.belowReserve {
		n.endPatience()
	}
	if n.role == Leader {
		n.leader.handoffRetry = n.now
	}
	if n.full {
		n.stopCampaign()
	}
	if !n.belowReserve {
		n.fetch.notBefore = min(n.fetch.notBefore, n.now)
		return
	}
	q := &n.proposals
	q.held = slices.DeleteFunc(q.held, func(p proposal) bool {
		if p.control != nil {
			return false
		}
		q.heldBytes -= p.bytes
		n.answer(p.id, ProposeResult{Header: n.clientHeader(KafkaStorageError), BaseOffset: Unknown})
		return true
	})
}

// endPatience shortens a timer that was drawn while others were to go first.
func (n *Node) endPatience() {
	switch {
	case !n.electable() || n.role == Leader:
	case n.role == Follower:
		n.follower.timeout = min(n.follower.timeout, n.fetchTimeout())
	default:
		n.election = min(n.election, n.randomElectionTimeout())
	}
}

// unsuited is from when on the leader's disk makes it hand over to anybody fit; Never if it does not. A disk is slow if a
// flush has run for a fetch timeout, while a majority of the others had all of it on disk in a third of the time. Without
// such a majority nobody would be better; and of disks that are all slow one is rarely three times as slow as the rest.
func (l *leaderState) unsuited(n *Node) Instant {
	switch {
	case n.belowReserve:
		return n.now
	case n.flushing && n.flushed < n.log.end && n.highWatermark == n.log.end:
		return n.flushBegan.Add(max(n.cfg.FetchTimeout, slowFactor*time.Duration(l.overtaken-n.flushBegan)))
	}
	return Never
}

// slowFactor is how many times as long as the others' a leader's flush must take before it hands over.
const slowFactor = 3

// stopCampaign ends a candidacy that could not be used: the winner opens its epoch by a record. The vote stays given.
func (n *Node) stopCampaign() {
	switch n.role {
	case Prospective:
		n.losePreVote(false)
	case Candidate:
		n.becomeUnattached(n.state.Epoch, None)
	case Unattached, Follower, Leader, Resigned:
	}
}

// onShutdown begins a graceful stop. Only a leader has anything to do first.
func (n *Node) onShutdown(s Shutdown) {
	timeout := s.Timeout
	if timeout <= 0 {
		timeout = defaultShutdownTimeout
	}
	if n.stopped {
		return
	}
	if n.stopping {
		n.shutdown = min(n.shutdown, n.now.Add(timeout))
		return
	}
	n.stopping = true
	n.shutdown = n.now.Add(timeout)
	if t := &n.transfer; t.active() {
		t.deadline, t.maxPause = min(t.deadline, n.now.Add(timeout/2)), min(t.maxPause, timeout/2)
	}
}

// mustLeave reports whether the leader's office ends. A stopping leader waits until its epoch is settled: its votes may have
// been under way when it was asked to stop, and a voter change that is under way is its to finish.
func (n *Node) mustLeave() bool {
	switch {
	case n.removed():
		return true
	case n.role != Leader || n.alone():
		return false
	}
	unopened := n.full && n.log.end == n.leader.epochStart
	return unopened || n.stopping && n.leader.change == nil && n.voters.offset() < n.highWatermark
}

// leave hands over, or resigns at once if nobody is fit to take over.
func (n *Node) leave() {
	limit := n.cfg.FetchTimeout
	if n.stopping {
		limit = max(time.Duration(n.shutdown-n.now)/2, time.Millisecond)
	}
	target, why := n.pickTarget(Handoff{Target: NoReplica})
	if why == "" {
		n.beginTransfer(Handoff{CatchUpTimeout: limit, MaxPause: min(limit, defaultMaxPause)}, target)
		return
	}
	n.refuseTransfer(0, NoReplica, why)
	n.becomeResigned(n.leader.successors(n, nil))
}

// maybeStop lets the process exit: an observer, a follower or a sole voter at once; a former leader when its last parked
// write is answered and the gap is measured; anybody when time is up.
func (n *Node) maybeStop() {
	if !n.stopping || n.stopped {
		return
	}
	expired := n.now >= n.shutdown
	if !expired {
		switch {
		case n.role == Leader && !n.alone():
			return
		case n.electable() && !n.alone() && n.role != Follower:
			return // nobody leads yet: our vote may be needed
		case len(n.proposals.held) > 0 || len(n.proposals.appended) > 0:
			return
		case n.transfer.status.Phase == HandoffResigned && n.transfer.status.From == n.cfg.Self.ID && n.role == Follower:
			return
		}
	}
	if n.role == Leader && !n.alone() {
		n.becomeResigned(n.leader.successors(n, nil)) // out of time, but not without a word
		n.sendEnd()
	}
	n.proposals.failAll(n)
	n.shutdown = Never
	n.stopped = true
	n.ready.Stopped = true
}
