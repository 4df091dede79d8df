package server

import (
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// view is what others may see of the loop without asking it: a snapshot after a round of events. It never changes once
// it is published.
type view struct {
	raft.Status
	now          raft.Instant // of the snapshot
	shown        int64        // high watermark as clients see it
	counts       replica.Counts
	snapshots    replica.SnapshotStatus
	belowReserve bool
	table        *wire.MemberTable

	leaderContact raft.Instant // last Fetch answer of the leader without an error; -1: never
	caughtUp      bool         // has once had all that the leader had committed
	queue         int          // events that wait for the loop
	stopping      bool

	fetchTimeout int64 // nanoseconds, as raft.Instant counts
}

// epochCommitted reports whether this member leads and may tell clients what is committed.
func (v *view) epochCommitted() bool {
	return v.Role == raft.Leader && v.Status.HighWatermark > v.EpochStart
}

// leaderForClients is the leader that clients are sent to. A leader that has resigned knows nobody better than itself,
// but must not be asked again.
func (v *view) leaderForClients() raft.NodeID {
	if v.Leader == v.Self.ID && v.Role != raft.Leader {
		return raft.None
	}
	return v.Leader
}

// hint sends a client to the leader's listener of that name.
func (v *view) hint(listener string) wire.LeaderHint {
	leader := v.leaderForClients()
	h := wire.LeaderHint{Leader: leader, Epoch: v.Election.Epoch, Node: wire.Node{ID: leader}}
	if leader == raft.None {
		return h
	}
	if n, ok := node(v.table, leader, listener); ok {
		h.Node = n
	} else if p, ok := raft.Find(v.LeaderEndpoints, listener); ok {
		h.Node.Host, h.Node.Port = p.Host, p.Port
	}
	return h
}

// silent names the voters that a leader has not heard of for as long as it may stay in office without a majority.
func (v *view) silent(now raft.Instant) []string {
	var names []string
	for _, p := range v.Progress {
		if p.Key != v.Self && v.Voters.Contains(p.Key) && p.LastFetch <= now-raft.Instant(v.fetchTimeout*3/2) {
			names = append(names, p.Key.String())
		}
	}
	return names
}

// ready says whether a client finds here what it may expect, and if not, why.
func (v *view) ready() (bool, string) {
	switch {
	case v.stopping:
		return false, "the member is stopping"
	case v.Role == raft.Leader && !v.epochCommitted():
		return false, "leads, but nothing of its epoch is committed yet"
	case v.Role == raft.Leader:
		return true, "" // below its reserve, too: it is read from, and would have handed over if another could store more
	case v.belowReserve:
		return false, "its disk is below the reserve: it stores nothing more"
	case v.Leader == raft.None || v.Role != raft.Follower:
		return false, "no leader is known"
	case v.leaderContact < 0:
		return false, "has not fetched from the leader yet"
	case v.now-v.leaderContact > raft.Instant(2*v.fetchTimeout):
		return false, "cannot fetch from the leader"
	case !v.caughtUp:
		return false, "is catching up with the leader"
	}
	return true, ""
}
