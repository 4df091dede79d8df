package raft

// What a follower does for the voter set: a voter tells the leader when its own entry is wrong, and an observer with AutoJoin
// asks to be made a voter. Both go before a Fetch, one at a time, and not more often than every two fetch timeouts.

// sendMembership sends what is due, if anything.
func (n *Node) sendMembership() bool {
	if n.role != Follower || !n.follower.hasFetched || n.cfg.Self.ID == None {
		return false
	}
	r := n.membershipRequest()
	if r == nil {
		return false
	}
	// Before the leader's epoch is committed it could only refuse, and our voter set may be an old one.
	start, ok := n.log.startOf(n.state.Epoch)
	if !ok || n.highWatermark <= start {
		return false
	}
	f := &n.follower
	if n.now < f.update {
		n.wake(f.update)
		return false
	}
	e, ok := Find(n.leaderEndpoints, n.cfg.Listener)
	c := n.conn(n.state.Leader)
	if !ok || !n.idle(c) {
		return false
	}
	f.update = n.now.Add(2 * n.cfg.FetchTimeout)
	n.transmit(c, e, r)
	return true
}

// membershipRequest is what the leader should hear from this follower; nil if nothing.
func (n *Node) membershipRequest() Request {
	entry, known := n.voters.current().ByID(n.cfg.Self.ID)
	switch version := n.voters.version(); {
	case n.isVoter && version == 0:
		// Static voters have no entry to correct. But the leader must know who we are before kraft.version can be raised.
		if n.follower.updated || n.cfg.Self.DirectoryID.IsZero() {
			return nil
		}
	case n.isVoter:
		if n.follower.updated || sameVoter(entry, n.ownEntry()) {
			return nil
		}
	case version == 0 || !n.cfg.AutoJoin || n.cfg.ObserverOnly || n.voters.had(n.cfg.Self):
		// One that was a voter with this directory was removed by somebody, who would not like to see it back (KAFKA-19850).
		return nil
	case known:
		// Our place, under the directory of a disk that we lost.
		return RemoveRaftVoterRequest{ClusterID: n.clusterID, Voter: entry.Key}
	default:
		// The answer comes when the record is appended: our next Fetch may be what commits it.
		return AddRaftVoterRequest{ClusterID: n.clusterID, Voter: n.cfg.Self, Endpoints: n.cfg.Endpoints}
	}
	return UpdateRaftVoterRequest{ClusterID: n.clusterID, Epoch: n.state.Epoch, Voter: n.ownEntry()}
}

func (n *Node) onUpdateVoterResponse(c *conn, r UpdateRaftVoterResponse) {
	if r.Error == NoError {
		r.Error, r.TopError = r.TopError, NoError // this RPC has one error code for both levels
	}
	if r.Error == InvalidRequest {
		return // our endpoints are not to the leader's liking: no reason to die
	}
	if !n.onCommon(c, &r.Header) || n.role != Follower {
		return
	}
	switch r.Error {
	case NoError:
		// The record comes with the next fetches; if it is lost with its leader, the next one is told.
		n.follower.updated = true
		n.follower.hasFetched = true
		n.follower.timeout = n.fetchTimeout()
	case UnsupportedVersion:
		n.follower.updated = true
		n.follower.timeout = n.fetchTimeout()
	case RequestTimedOut: // another change is under way, which takes a moment
		n.follower.update = min(n.follower.update, n.now.Add(n.cfg.FetchTimeout/4))
	default: // again when it is time; the next Fetch need not wait for that
	}
}
