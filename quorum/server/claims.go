package server

import (
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// claims is who says to be whom: for each connection that replicas fetch on, the key that is claimed there. By it the leader
// tells one replica that has connected anew from two processes that run with one node id.
//
// That an older connection is still open says nothing: its other end may have gone without a word. But a replica has one
// request under way at a time and does not go back to a connection that it gave up, so that one request at most still comes
// from there. To a bootstrap server it does go back, if it is Kafka's, but not before it has waited for its leader in vain. So
// if of two connections each has come back twice after the other, and soon, they are of two processes.
type claims struct {
	patience time.Duration // a replica's, with a silent leader
	byConn   map[raft.ConnID]*claim
	last     map[raft.NodeID]*claim // whose Fetch came last for that node
}

type claim struct {
	key     raft.ReplicaKey
	remote  string
	heard   raft.Instant // its last Fetch
	returns int          // how often in a row it soon fetched again after another
	rival   *claim       // that was reported last
}

func newClaims(patience time.Duration) claims {
	return claims{patience: patience, byConn: map[raft.ConnID]*claim{}, last: map[raft.NodeID]*claim{}}
}

// fetched notes a Fetch. If it contradicts the claim of another process, rival is that.
func (c *claims) fetched(now raft.Instant, conn raft.ConnID, remote string, key raft.ReplicaKey) (mine, rival *claim) {
	mine = c.byConn[conn]
	before := c.last[key.ID]
	switch {
	case mine == nil || mine.key != key:
		c.closed(conn)
		mine = &claim{key: key, remote: remote}
		c.byConn[conn] = mine
	case before == nil || before == mine:
	case now >= mine.heard.Add(c.patience):
		mine.returns = 0
	default:
		mine.returns++
		if min(mine.returns, before.returns) >= 2 {
			rival = before
		}
	}
	mine.heard, c.last[key.ID] = now, mine
	return mine, rival
}

func (c *claims) closed(conn raft.ConnID) {
	gone := c.byConn[conn]
	if gone == nil {
		return
	}
	delete(c.byConn, conn)
	if c.last[gone.key.ID] == gone {
		delete(c.last, gone.key.ID)
	}
}

// claimed notes a Fetch of a replica, and says so if somebody else fetches as that one, too.
func (s *server) claimed(conn raft.ConnID, remote string, key raft.ReplicaKey) {
	mine, rival := s.claims.fetched(s.now(), conn, remote, key)
	if rival == nil {
		return
	}
	s.metrics.keyConflicts.Add(1)
	if mine.rival == rival || rival.rival == mine {
		return // said already
	}
	mine.rival, rival.rival = rival, mine
	if mine.key == rival.key {
		s.Log.Error("Two processes run on one directory or its copy: stop one, for both may vote", "member", key.String(),
			"peer", remote, "rival", rival.remote)
		return
	}
	s.Log.Error("Two processes run with one node id: stop one", "member", key.String(), "peer", remote,
		"otherMember", rival.key.String(), "rival", rival.remote)
}
