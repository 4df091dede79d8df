package server

import (
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// status is what /v1/status shows of a view.
func (s *server) status(v *view) status.Member {
	ready, reason := v.ready()
	m := status.Member{
		NodeID:       int32(v.Self.ID),
		DirectoryID:  directoryID(v.Self.DirectoryID),
		ClusterID:    s.codecs.controller.ClusterID,
		Version:      Version,
		Revision:     s.cfg.Revision,
		ObserverOnly: s.cfg.ObserverOnly,

		Ready:  ready,
		Reason: reason,

		Role:    v.Role.String(),
		IsVoter: v.IsVoter,
		Epoch:   int32(v.Election.Epoch),
		Leader:  leaderStatus(v),

		LogStartOffset:  v.LogStart,
		LogEndOffset:    v.LogEnd.Offset,
		FlushedOffset:   v.FlushedEnd,
		HighWatermark:   v.Status.HighWatermark,
		EpochStart:      v.EpochStart,
		EpochCommitted:  v.epochCommitted(),
		KRaftVersion:    v.KRaftVersion,
		VotersOffset:    v.VotersOffset,
		VotersCommitted: v.VotersOffset < v.Status.HighWatermark,
		VoterChange:     voterChange(v),
		FetchTimeoutMs:  s.cfg.FetchTimeout.Milliseconds(),
		UptimeMs:        time.Since(s.began).Milliseconds(),
		LeaderContactMs: s.contactAge(v),
		PendingAppends:  v.PendingAppends,
		ParkedFetches:   v.ParkedFetches + v.counts.Reads,
		Voters:          s.replicas(v, true),
		Observers:       s.replicas(v, false),
		Snapshot:        snapshotStatus(v),
		Download:        downloadStatus(v),
		Handoff:         s.handoffStatus(v),
		Disk:            s.disk(v),
	}
	return m
}

func leaderStatus(v *view) *status.Leader {
	if v == nil || v.Leader == raft.None {
		return nil
	}
	l := &status.Leader{NodeID: int32(v.Leader), Epoch: int32(v.Election.Epoch)}
	for _, m := range v.table.Members {
		if m.Key.ID == v.Leader {
			l.Endpoints = endpoints(m.Listeners)
			return l
		}
	}
	l.Endpoints = endpoints(v.LeaderEndpoints)
	return l
}

func endpoints(all []raft.Endpoint) []status.Endpoint {
	out := make([]status.Endpoint, 0, len(all))
	for _, e := range all {
		out = append(out, status.Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
	}
	return out
}

func (s *server) contactAge(v *view) int64 {
	switch {
	case v.Role == raft.Leader:
		return 0
	case v.leaderContact < 0:
		return -1
	}
	return s.age(v.leaderContact)
}

// age is in milliseconds, -1 for never.
func (s *server) age(at raft.Instant) int64 {
	if at < 0 {
		return -1
	}
	return max(time.Duration(s.now()-at).Milliseconds(), 0)
}

// replicas lists the voters, or the observers, by node id. Only a leader knows how far they are, and who observes.
func (s *server) replicas(v *view, voters bool) []status.Replica {
	out := []status.Replica{}
	seen := map[raft.ReplicaKey]bool{}
	for _, p := range v.Progress {
		if v.Voters.Contains(p.Key) != voters {
			continue
		}
		seen[p.Key] = true
		r := s.replicaOf(v, p.Key)
		r.LogEndOffset = p.LogEnd
		r.LastFetchMs, r.LastCaughtUpMs = s.age(p.LastFetch), s.age(p.LastCaughtUp)
		if p.LogEnd >= 0 {
			r.Lag = max(v.LogEnd.Offset-p.LogEnd, 0)
		}
		if p.Key == v.Self {
			r.LastFetchMs, r.LastCaughtUpMs = 0, 0
		}
		out = append(out, r)
	}
	if voters {
		for _, e := range v.Voters {
			if !slices.ContainsFunc(out, func(r status.Replica) bool { return r.NodeID == int32(e.Key.ID) }) {
				out = append(out, s.replicaOf(v, e.Key))
			}
		}
	}
	slices.SortFunc(out, func(a, b status.Replica) int { return int(a.NodeID) - int(b.NodeID) })
	return out
}

func (s *server) replicaOf(v *view, key raft.ReplicaKey) status.Replica {
	r := status.Replica{
		NodeID: int32(key.ID), DirectoryID: directoryID(key.DirectoryID),
		LogEndOffset: -1, Lag: -1, LastFetchMs: -1, LastCaughtUpMs: -1,
	}
	for _, m := range v.table.Members {
		if m.Key.ID == key.ID {
			r.Endpoints, r.Rack, r.BelowReserve = endpoints(m.Listeners), m.Rack, m.BelowReserve
		}
	}
	return r
}

func voterChange(v *view) *status.VoterChange {
	c := v.VoterChange
	if c == nil {
		return nil
	}
	out := &status.VoterChange{Kind: string(c.Kind), Offset: c.Offset}
	if c.Kind != raft.ChangeUpgrade {
		out.Voter = &status.ReplicaKey{NodeID: int32(c.Voter.ID), DirectoryID: directoryID(c.Voter.DirectoryID)}
	}
	return out
}

func directoryID(id raft.UUID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

func (s *server) handoffStatus(v *view) *status.Handoff {
	h := v.Handoff
	if h.Phase == raft.HandoffNone {
		return nil
	}
	out := &status.Handoff{
		ID: s.handoffID(h.ID), Phase: string(h.Phase), From: int32(h.From), Target: int32(h.Target.ID), To: int32(h.To),
		FromEpoch: int32(h.FromEpoch), ToEpoch: int32(h.ToEpoch), Message: h.Message,
		Converge: status.Duration(h.Converge), WriteGap: status.Duration(h.WriteGap), MeasuredBy: h.MeasuredBy,
	}
	if h.To == raft.None {
		out.ToEpoch = -1
	}
	return out
}

func (s *server) disk(v *view) status.Disk {
	d := status.Disk{FreeBytes: -1, ReserveBytes: s.cfg.ReserveBytes, BelowReserve: v.belowReserve, Full: v.Full, LogBytes: s.replica.Dir().Log.Size()}
	if free, err := s.FS.FreeSpace(s.cfg.LogDir); err == nil {
		d.FreeBytes = free
	}
	return d
}
