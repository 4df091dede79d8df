package raft

// The become… functions are the only place where the role changes. Transitions (KIP-595, KIP-996):
//
//	any         --higher epoch, leader unknown-->            Unattached
//	any         --higher epoch or same without a leader-->   Follower
//	Unattached  --election timer-->  Prospective  --majority of pre-votes-->  Candidate  --majority of votes-->  Leader
//	Prospective --rejected or timed out-->  Follower (leader and endpoint known) or Unattached
//	Candidate   --election timer-->  Prospective
//	Follower    --fetch timer, or the leader resigned or died-->  Prospective
//	Leader      --silent majority, handoff, shutdown, own removal-->  Resigned
//	Resigned    --election timer-->  Unattached of the next epoch, or of the same if it is no voter any more

// electionCause is why a campaign began.
type electionCause uint8

const (
	causeTimer electionCause = iota
	causeResign
	causeFailover
)

// campaign outlives the roles that it passes through.
type campaign struct {
	cause electionCause
	// retries is how many lost rounds may be tried again after a short delay: the leader is known to be gone, so others
	// are about to notice, and waiting out a full timer would be wrong.
	retries int
}

// discoveryDelay is how many retry back-offs a voter gives an election before it asks bootstrap servers who leads.
const discoveryDelay = 5

// fastRetries bounds the short delays of one campaign, so that a replica that alone cannot reach the leader soon waits
// like everybody else.
const fastRetries = 10

// start chooses the role after a restart.
func (n *Node) start() {
	switch s := n.state; {
	case s.Epoch < n.log.lastEpoch():
		n.state = ElectionState{Epoch: n.log.lastEpoch(), Leader: None, Voted: NoReplica}
		n.role, n.election = Unattached, n.unattachedTimer()
	case s.Leader == n.cfg.Self.ID && s.Leader != None:
		// It must not lead on in that epoch: unflushed records may be gone, and their offsets must not be used twice. Nor
		// may it forget that it led: it voted for itself, and must vote for nobody else there.
		n.role, n.election = Unattached, Never
		if n.electable() {
			n.becomeResigned(nil)
		}
	case s.Voted.ID == n.cfg.Self.ID && s.Voted.ID != None && n.electable() && !n.full && s.Leader == None &&
		(s.Voted.DirectoryID.IsZero() || s.Voted.DirectoryID == n.cfg.Self.DirectoryID):
		n.standForElection()
	case s.Leader != None && len(n.endpointsOf(s.Leader)) > 0:
		n.becomeFollower(s.Epoch, s.Leader, n.endpointsOf(s.Leader))
	default:
		n.role, n.election = Unattached, n.unattachedTimer()
		n.fetch = fetchState{notBefore: n.now}
	}
	if n.alone() && !n.full {
		switch n.role {
		case Candidate:
			n.maybeWin()
		case Unattached, Follower, Resigned:
			n.becomeProspective(causeTimer)
		case Prospective, Leader:
		}
	}
}

// setRole changes the role and forgets what belonged to the old one. The election state is already that of the new.
func (n *Node) setRole(r Role) {
	old := n.role
	n.role = r
	clear(n.conns)
	n.conns = n.conns[:0]
	n.tally = tally{}
	n.fetch = fetchState{}
	n.dropDownload()
	if old == Leader && r != Leader {
		n.leaveOffice()
	}
}

func (n *Node) unattachedTimer() Instant {
	if !n.electable() {
		return Never
	}
	return n.randomElectionTimeout()
}

// observe takes in an epoch, and perhaps its leader, that a message told. Lower epochs are not news.
func (n *Node) observe(epoch Epoch, leader NodeID, endpoints []Endpoint) {
	leaderless := leader == None
	if leader != None && leader == n.cfg.Self.ID && (epoch > n.state.Epoch || epoch == n.state.Epoch && n.state.Leader != leader) {
		if n.electable() {
			n.fatal(InconsistentState, "a peer says that this node leads epoch %d, which it does not know of (own epoch %d): its quorum-state was lost or another process uses node id %d",
				epoch, n.state.Epoch, leader)
			return
		}
		leader, endpoints = None, nil // it means our predecessor, whose directory is gone
	}
	switch {
	case epoch > n.state.Epoch && leaderless && !n.electable():
		// An observer elects nobody, so an epoch without a leader is no news to it. And it could be locked out: a candidate
		// that is cut off for good, but not from us, would leave us in an epoch that the quorum's leader does not know
		// (UNKNOWN_LEADER_EPOCH), and unlike a voter we cannot bring the quorum there. One that is a voter and does not know
		// it yet goes to that epoch when it is asked for its vote.
	case epoch > n.state.Epoch && leader != None && len(endpoints) > 0:
		n.becomeFollower(epoch, leader, endpoints)
	case epoch > n.state.Epoch:
		n.becomeUnattached(epoch, leader)
	case epoch < n.state.Epoch || leader == None || leader == n.cfg.Self.ID:
	case n.state.Leader == None && len(endpoints) > 0:
		n.becomeFollower(epoch, leader, endpoints)
	case n.state.Leader == None:
		// Only its id is known: remember it, so that nobody else is believed to lead this epoch, and look for it.
		n.state.Leader = leader
		if n.role == Prospective || n.role == Candidate {
			n.becomeUnattached(epoch, leader)
		}
	case n.state.Leader != leader:
		n.fatal(InconsistentState, "two leaders in epoch %d: node %d is known, a peer names node %d", epoch, n.state.Leader, leader)
	case n.role == Unattached && len(endpoints) > 0:
		n.becomeFollower(epoch, leader, endpoints)
	case n.role == Follower && len(endpoints) > len(n.leaderEndpoints):
		n.leaderEndpoints = endpoints
	case n.role == Prospective && len(endpoints) > len(n.leaderEndpoints):
		n.leaderEndpoints = endpoints
	}
}

// becomeUnattached adopts an epoch without a reachable leader. In the same epoch, leader and vote stay.
func (n *Node) becomeUnattached(epoch Epoch, leader NodeID) {
	if epoch > n.state.Epoch {
		n.state = ElectionState{Epoch: epoch, Leader: leader, Voted: NoReplica}
		n.campaign = campaign{}
	}
	switch n.role {
	case Unattached, Prospective, Candidate, Resigned: // the patience already used up counts
	case Leader, Follower:
		n.election = n.randomElectionTimeout()
	}
	if !n.electable() {
		n.election = Never
	}
	n.setRole(Unattached)
	n.leaderEndpoints = nil
	if n.electable() {
		// An election is under way and its winner will announce itself: look for a leader only if none does.
		n.fetch.notBefore = n.now.Add(discoveryDelay * n.cfg.RetryBackoff)
	}
	n.noteLeader()
}

// becomeProspective asks for pre-votes. Nothing durable changes, and a known leader stays known.
func (n *Node) becomeProspective(cause electionCause) {
	n.campaign.cause = cause
	n.setRole(Prospective)
	n.tally = newTally(n.voters.current(), n.cfg.Self)
	n.election = n.randomElectionTimeout()
	n.fetch.notBefore = n.now.Add(discoveryDelay * n.cfg.RetryBackoff)
	n.maybeWin()
}

// becomeCandidate opens a new epoch with a vote for itself.
func (n *Node) becomeCandidate() {
	n.state = ElectionState{Epoch: n.state.Epoch + 1, Leader: None, Voted: n.cfg.Self}
	n.leaderEndpoints = nil
	n.standForElection()
	switch n.campaign.cause {
	case causeTimer:
		n.elections.Timer++
	case causeResign:
		n.elections.Resign++
	case causeFailover:
		n.elections.FastFailover++
	}
	n.maybeWin()
}

// standForElection asks for votes in the epoch that is its own. Its patience may be long, on a disk that is slow or nearly
// full; once elections usually end it looks for a leader beside: one that it is no voter of will never announce itself.
func (n *Node) standForElection() {
	n.setRole(Candidate)
	n.tally = newTally(n.voters.current(), n.cfg.Self)
	n.election = n.randomElectionTimeout()
	n.fetch.notBefore = n.now.Add(2 * n.cfg.ElectionTimeout)
}

// becomeLeader opens its epoch in the log. Its first batch is a control batch; until that is committed the high watermark
// is unknown, whatever was known before.
func (n *Node) becomeLeader() {
	granting := n.tally.granting()
	n.state = ElectionState{Epoch: n.state.Epoch, Leader: n.cfg.Self.ID, Voted: NoReplica}
	n.leaderEndpoints = n.cfg.Endpoints
	n.setRole(Leader)
	n.campaign = campaign{}
	n.highWatermark = Unknown
	start := n.log.end
	n.log.assign(n.state.Epoch, start)
	n.ready.EpochStart = &OffsetAndEpoch{Offset: start, Epoch: n.state.Epoch}
	n.leader = newLeaderState(n, start)
	n.proposals.open(n, n.openingRecords(granting))
	n.noteLeader()
}

// becomeFollower follows a leader. The vote of the epoch stays recorded.
func (n *Node) becomeFollower(epoch Epoch, leader NodeID, endpoints []Endpoint) {
	if epoch > n.state.Epoch {
		n.state = ElectionState{Epoch: epoch, Leader: leader, Voted: NoReplica}
	}
	n.state.Leader = leader
	n.leaderEndpoints = endpoints
	n.campaign = campaign{}
	n.setRole(Follower)
	n.follower = followerState{
		timeout:  n.fetchTimeout(),
		touch:    n.now.Add(n.cfg.FetchTimeout / 4),
		update:   n.now,
		failover: n.follower.failover && n.follower.epoch == epoch,
		epoch:    epoch,
	}
	n.noteLeader()
}

// becomeResigned ends an office without opening an epoch. The epoch still counts as led by this node.
func (n *Node) becomeResigned(successors []ReplicaKey) {
	n.setRole(Resigned)
	n.election = n.randomElectionTimeout()
	n.resigned = newResignedState(n, successors)
	n.fetch.notBefore = n.now.Add(2 * n.cfg.ElectionTimeout) // as a candidate
	if !n.electable() {
		n.fetch.notBefore = n.now.Add(discoveryDelay * n.cfg.RetryBackoff)
	}
	n.noteLeader()
}

// losePreVote gives up a pre-vote round: back to the leader if there is one to go to.
func (n *Node) losePreVote(timedOut bool) {
	if n.state.Leader != None && len(n.leaderEndpoints) > 0 {
		n.becomeFollower(n.state.Epoch, n.state.Leader, n.leaderEndpoints)
		return
	}
	n.becomeUnattached(n.state.Epoch, n.state.Leader)
	if timedOut && n.mayElect() {
		n.becomeProspective(causeTimer)
		return
	}
	n.election = n.randomElectionTimeout()
}

// noteLeader acts on a leader becoming known: writes that were never appended go there.
func (n *Node) noteLeader() {
	if n.role == Follower {
		n.proposals.redirect(n)
	}
}
