package raft

import "slices"

type ballot uint8

const (
	undecided ballot = iota
	granted
	rejected
)

// tally counts the answers of one round, one for each voter of the set that was in force when it began.
type tally struct {
	voters  VoterSet
	ballots []ballot
	gone    []bool // the last attempt to reach that voter failed
}

// newTally begins with our own vote, if it counts: one that is on its way out of the voters needs a majority of the others.
func newTally(voters VoterSet, self ReplicaKey) tally {
	t := tally{voters: voters, ballots: make([]ballot, len(voters)), gone: make([]bool, len(voters))}
	if voters.Contains(self) {
		t.ballots[t.index(self.ID)] = granted
	}
	return t
}

func (t *tally) index(id NodeID) int {
	return slices.IndexFunc(t.voters, func(v Voter) bool { return v.Key.ID == id })
}

func (t *tally) count(b ballot) int {
	c := 0
	for _, x := range t.ballots {
		if x == b {
			c++
		}
	}
	return c
}

func (t *tally) won() bool { return t.count(granted) >= t.voters.Majority() }

// lost reports whether those that may still grant are too few for a majority.
func (t *tally) lost() bool { return len(t.voters)-t.count(rejected) < t.voters.Majority() }

// hopeless is lost, with voters that cannot be reached right now counted as rejecting.
func (t *tally) hopeless() bool {
	open := 0
	for i, b := range t.ballots {
		if b == granted || b == undecided && !t.gone[i] {
			open++
		}
	}
	return open < t.voters.Majority()
}

func (t *tally) granting() []NodeID {
	var ids []NodeID
	for i, b := range t.ballots {
		if b == granted {
			ids = append(ids, t.voters[i].Key.ID)
		}
	}
	return ids
}

// maybeWin moves on as soon as a majority said yes. A sole voter passes from Prospective to Leader without any message.
func (n *Node) maybeWin() {
	if !n.tally.won() {
		return
	}
	switch n.role {
	case Prospective:
		n.becomeCandidate()
	case Candidate:
		n.becomeLeader()
	case Unattached, Leader, Follower, Resigned:
	}
}

// refuseVoterRPC is the check that Vote, BeginQuorumEpoch and EndQuorumEpoch share.
func (n *Node) refuseVoterRPC(epoch Epoch, sender NodeID) ErrorCode {
	switch {
	case epoch < n.state.Epoch:
		return FencedLeaderEpoch
	case sender < 0:
		return InvalidRequest
	}
	return NoError
}

// isMe reports whether the receiver that a request names is this replica. Old versions name none.
func (n *Node) isMe(k ReplicaKey) bool {
	return k.ID < 0 || k.ID == n.cfg.Self.ID && (k.DirectoryID.IsZero() || k.DirectoryID == n.cfg.Self.DirectoryID)
}

func (n *Node) onVote(r VoteRequest) VoteResponse {
	if code := n.refuseCluster(r.ClusterID); code != NoError {
		return VoteResponse{Header: topError(code)}
	}
	last := r.Last.Epoch
	if r.Last.Offset < 0 || last < 0 || last > r.Epoch || last == r.Epoch && !r.PreVote {
		return VoteResponse{Header: n.header(InvalidRequest)}
	}
	if code := n.refuseVoterRPC(r.Epoch, r.Replica.ID); code != NoError {
		return VoteResponse{Header: n.header(code)}
	}
	if r.Epoch > n.state.Epoch {
		if !n.electable() && (r.PreVote || !n.isMe(r.Voter) || r.Last.Compare(n.log.position()) < 0) {
			return n.voteAside(r)
		}
		n.becomeUnattached(r.Epoch, None)
	}
	if !n.isMe(r.Voter) {
		return VoteResponse{Header: n.header(InvalidVoterKey)}
	}
	grants := n.grants(r)
	if grants && !r.PreVote && n.state.Voted.ID == None {
		n.state.Voted = r.Replica
		if n.electable() {
			n.election = n.randomElectionTimeout()
		}
	}
	return VoteResponse{Header: n.header(NoError), Granted: grants}
}

// voteAside answers an observer's word on a later epoch without entering it. Only a vote that it gives takes it there: if
// the candidate then failed for good, the quorum might never hear of that epoch, and while a voter can lead it there, an
// observer is locked out (UNKNOWN_LEADER_EPOCH). The answer is of the asker's epoch, so that it counts.
func (n *Node) voteAside(r VoteRequest) VoteResponse {
	h := Header{Epoch: r.Epoch, Leader: None}
	if !n.isMe(r.Voter) {
		h.Error = InvalidVoterKey
		return VoteResponse{Header: h}
	}
	return VoteResponse{Header: h, Granted: r.PreVote && n.grants(r)}
}

// grants decides on a vote of our own epoch. Nothing changes here: a pre-vote leaves no trace, not even in a timer.
func (n *Node) grants(r VoteRequest) bool {
	if n.cfg.Self.ID == None {
		return false // a reader without identity could not remember whom it voted for
	}
	upToDate := r.Last.Compare(n.log.position()) >= 0
	if r.PreVote {
		switch n.role {
		case Leader:
			return false
		case Follower:
			// A silent leader has no protection either: a replica without timers, since it has not heard that it is a voter by
			// now, must not be the one that keeps it in office.
			return (!n.follower.hasFetched || n.now >= n.follower.timeout) && upToDate
		case Unattached, Prospective, Candidate, Resigned:
			return upToDate
		}
	}
	switch voted := n.state.Voted; {
	case n.role != Unattached && n.role != Prospective:
		return false
	case voted.ID != None:
		// The log is looked at again, unlike in Kafka: a candidate that lost power since may ask again with less.
		return voted.ID == r.Replica.ID && (voted.DirectoryID.IsZero() || voted.DirectoryID == r.Replica.DirectoryID) && upToDate
	case n.state.Leader != None:
		return false
	}
	return upToDate
}

// sendVotes asks every voter that has not answered yet, until the round is decided.
func (n *Node) sendVotes() {
	if n.role == Candidate && n.tally.lost() {
		return // it waits out its timer
	}
	pre := n.role == Prospective
	if !pre && n.flushed < n.log.end {
		// Flushed comes. Votes are given to a log, and this candidacy survives a restart: if its tail did not, it would win
		// with the votes that the longer log got, and committed records would be lost.
		return
	}
	epoch := n.state.Epoch
	for i, v := range n.tally.voters {
		if n.tally.ballots[i] == undecided {
			n.sendToVoter(v, VoteRequest{ClusterID: n.clusterID, Voter: v.Key, Replica: n.cfg.Self, Epoch: epoch, Last: n.log.position(), PreVote: pre})
		}
	}
}

func (n *Node) onVoteResponse(c *conn, r VoteResponse) {
	if r.TopError == UnsupportedVersion && n.role == Prospective {
		n.becomeCandidate() // that peer knows no pre-vote (KIP-996): do without
		return
	}
	if !n.takes(c, &r.Header) || n.role != Prospective && n.role != Candidate {
		return
	}
	i := n.tally.index(c.id)
	if i < 0 || r.Error != NoError {
		n.backOff(c) // an error is no rejection: ask again
		return
	}
	n.tally.gone[i] = false
	switch {
	case r.Granted:
		n.tally.ballots[i] = granted
		n.maybeWin()
	case n.role == Prospective && n.campaign.retries > 0:
		// The leader is known to be gone, and this voter is about to notice as well.
		n.campaign.retries--
		c.notBefore = n.now.Add(n.shortDelay())
	default:
		n.tally.ballots[i] = rejected
		if n.role == Prospective && n.tally.lost() {
			n.losePreVote(false)
			return
		}
		n.hasten()
	}
}

func (n *Node) onVoteFailure(c *conn, f Failure) {
	if f == UnsupportedByPeer && n.role == Prospective {
		n.becomeCandidate()
		return
	}
	if i := n.tally.index(c.id); i >= 0 && (f == Refused || f == Disconnected) {
		n.tally.gone[i] = true
		n.hasten()
	}
}

// hasten shortens the wait of a candidate that cannot win any more, if the leader is known to be gone: then the others
// campaign as well, and a full timer would only add to the outage.
func (n *Node) hasten() {
	if n.role != Candidate || n.campaign.retries == 0 || n.persistTook > 0 || !n.tally.hopeless() {
		return
	}
	if at := n.now.Add(n.cfg.RetryBackoff + n.shortDelay()); at < n.election {
		n.campaign.retries--
		n.election = at
	}
}
