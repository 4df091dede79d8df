package raft

// Status returns what humans, metrics and the driver may want to know. It is cheap enough for every step: voter sets and
// endpoints are never changed once built, so it shares them.
func (n *Node) Status() Status {
	s := Status{
		Role: n.role, Self: n.cfg.Self, IsVoter: n.isVoter, Election: n.state,
		Leader: n.state.Leader, LeaderEndpoints: n.knownEndpoints(),
		LogStart: n.log.start, LogEnd: n.log.position(), FlushedEnd: n.flushed,
		HighWatermark: n.highWatermark, EpochStart: Unknown, Snapshot: n.log.latest,
		Voters: n.voters.current(), VotersOffset: n.voters.offset(), KRaftVersion: n.voters.version(),
		Handoff:        n.transfer.status,
		PendingAppends: len(n.proposals.held) + len(n.proposals.appended),
		Elections:      n.elections,
		BelowReserve:   n.belowReserve, Full: n.full, Stopping: n.stopping,
	}
	if n.state.Leader == n.cfg.Self.ID && n.role != Leader {
		s.Leader, s.LeaderEndpoints = None, nil // nobody serves this epoch any more
	}
	if d := n.download; d != nil {
		s.Download = &DownloadStatus{Snapshot: d.id, Position: d.position, Size: d.size}
	}
	if l := n.leader; l != nil {
		s.EpochStart, s.ParkedFetches = l.epochStart, len(l.parked)
		s.Progress, _ = l.describe(n)
		if c := l.change; c != nil {
			s.VoterChange = &VoterChange{Kind: c.kind, Voter: c.voter.Key, Offset: c.offset}
		}
	}
	return s
}
