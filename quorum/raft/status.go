package raft

import "slices"

// Status returns a copy of what humans, metrics and the driver may want to know.
func (n *Node) Status() Status {
	s := Status{
		Role: n.role, Self: n.cfg.Self, IsVoter: n.isVoter, Election: n.state,
		Leader: n.state.Leader, LeaderEndpoints: slices.Clone(n.knownEndpoints()),
		LogStart: n.log.start, LogEnd: n.log.position(), FlushedEnd: n.flushed,
		HighWatermark: n.highWatermark, EpochStart: Unknown,
		Voters: slices.Clone(n.voters.current()), VotersOffset: n.voters.offset(), KRaftVersion: n.voters.version(),
		Handoff:        n.transfer.status,
		PendingAppends: len(n.proposals.held) + len(n.proposals.appended),
		Elections:      n.elections,
		BelowReserve:   n.belowReserve, Stopping: n.stopping,
	}
	if n.role == Resigned {
		s.Leader, s.LeaderEndpoints = None, nil // nobody serves this epoch any more
	}
	if n.needSnapshot != nil {
		s.NeedsSnapshot = new(*n.needSnapshot)
	}
	if l := n.leader; l != nil {
		s.EpochStart, s.ParkedFetches = l.epochStart, len(l.parked)
		voters, observers := l.describe(n)
		s.Progress = slices.Concat(voters, observers)
	}
	return s
}
