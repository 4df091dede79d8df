package raft

import (
	"slices"
	"time"
)

// resignedState is what a leader that left office still does: it tells the other voters.
type resignedState struct {
	successors []ReplicaKey
	told       []NodeID // voters that answered
	again      Instant  // when to name the next successor, if nobody has been heard of
}

// successorPatience is how long a resigned leader waits for a sign of its successor before it names the next one first.
const successorPatience = 150 * time.Millisecond

func newResignedState(n *Node, successors []ReplicaKey) resignedState {
	r := resignedState{successors: successors, again: Never}
	if len(successors) > 1 {
		r.again = n.now.Add(successorPatience)
	}
	return r
}

// hearLeader checks a message of a leader to a voter, and takes in that it leads.
func (n *Node) hearLeader(cluster *string, epoch Epoch, leader NodeID, endpoints []Endpoint) (Header, bool) {
	if code := n.refuseCluster(cluster); code != NoError {
		return topError(code), true
	}
	if code := n.refuseVoterRPC(epoch, leader); code != NoError {
		return n.header(code), true
	}
	if len(endpoints) == 0 {
		endpoints = n.endpointsOf(leader)
	}
	n.observe(epoch, leader, endpoints)
	return Header{}, false
}

func (n *Node) onBegin(r BeginQuorumEpochRequest) Header {
	if h, refused := n.hearLeader(r.ClusterID, r.Epoch, r.Leader, r.Endpoints); refused {
		return h
	}
	switch {
	case n.ready.Fatal != nil || n.state.Leader != r.Leader:
	case n.role == Prospective && len(n.leaderEndpoints) > 0:
		n.becomeFollower(n.state.Epoch, r.Leader, n.leaderEndpoints) // it is there after all: no need to wait out the timer
	case n.role == Follower:
		n.leaderHeard()
	}
	if !n.isMe(r.Voter) {
		return n.header(InvalidVoterKey) // the leader is adopted all the same
	}
	return n.header(NoError)
}

// onEnd hears that the leader resigns. Leader id and vote of the epoch stay as they are; what changes is only that
// pre-votes are not refused any more, and when this replica campaigns.
func (n *Node) onEnd(r EndQuorumEpochRequest) Header {
	if h, refused := n.hearLeader(r.ClusterID, r.Epoch, r.Leader, r.Endpoints); refused {
		return h
	}
	if n.ready.Fatal != nil || n.state.Leader != r.Leader || n.state.Epoch != r.Epoch || r.Leader == n.cfg.Self.ID {
		return n.header(NoError)
	}
	place := slices.IndexFunc(r.Successors, func(k ReplicaKey) bool { return k.ID == n.cfg.Self.ID && n.isMe(k) })
	if place == 0 {
		n.transfer.succeed(n, r)
	}
	switch {
	case place == 0 && n.mayElect() && (n.role == Follower || n.role == Prospective):
		// The resigning leader vouches for our log, so a pre-vote could only cost a round trip.
		if n.role == Follower {
			n.becomeProspective(causeResign)
		}
		n.campaign.retries = fastRetries
		if n.role == Prospective {
			n.becomeCandidate()
		}
	case n.role == Follower:
		n.follower.hasFetched = false
		n.follower.cause = causeResign
		n.follower.timeout = min(n.follower.timeout, n.now.Add(n.successorDelay(place, len(r.Successors))))
	}
	return n.header(NoError)
}

// successorDelay spreads the voters after a resignation: Kafka's formula for those on the list. Without a list (the leader
// restarted) they start by rank, so that they do not all collide.
func (n *Node) successorDelay(place, count int) time.Duration {
	longest := n.cfg.ElectionBackoffMax
	switch {
	case count == 0:
		return time.Duration(n.rank()) * n.cfg.RetryBackoff
	case place == 0:
		return 0
	case place < 0:
		return longest
	case count > 32 || place > 32:
		return longest
	}
	ms := longest.Milliseconds() >> (count - 1) << (place - 1)
	return min(longest, time.Duration(ms)*time.Millisecond)
}

// rank is this voter's place among the voters other than the leader, by id. The last one is a replica whose disk is below
// its reserve.
func (n *Node) rank() int {
	voters := n.voters.current()
	if n.belowReserve {
		return len(voters)
	}
	rank := 0
	for _, v := range voters {
		if v.Key.ID < n.cfg.Self.ID && v.Key.ID != n.state.Leader {
			rank++
		}
	}
	return rank
}

// sendBegin announces the leader, and later reminds voters that have not fetched for half a fetch timeout: a voter that
// restarted may know the leader's id but not where it is.
func (l *leaderState) sendBegin(n *Node) {
	if n.now < l.begin {
		return
	}
	period := n.cfg.FetchTimeout / 2
	l.begin = n.now.Add(period)
	for i, v := range l.set {
		p := &l.voters[i]
		if v.Key.ID == n.cfg.Self.ID || p.lastFetch != Instant(Unknown) && n.now < p.lastFetch.Add(period) {
			continue
		}
		n.sendToVoter(v, BeginQuorumEpochRequest{
			ClusterID: n.clusterID, Voter: v.Key, Leader: n.cfg.Self.ID, Epoch: n.state.Epoch, Endpoints: n.cfg.Endpoints,
		})
	}
	l.forgetObservers(n.now)
}

// sendEnd tells the other voters that the leader resigned, until each has answered.
func (n *Node) sendEnd() {
	r := &n.resigned
	if n.now >= r.again {
		r.successors = append(slices.Clone(r.successors[1:]), r.successors[0])
		r.told = nil
		r.again = n.now.Add(successorPatience)
		clear(n.conns) // what was sent with the old order in mind is over
		n.conns = n.conns[:0]
	}
	for _, v := range n.voters.current() {
		if v.Key.ID == n.cfg.Self.ID || slices.Contains(r.told, v.Key.ID) {
			continue
		}
		n.sendToVoter(v, EndQuorumEpochRequest{
			ClusterID: n.clusterID, Leader: n.cfg.Self.ID, Epoch: n.state.Epoch, Successors: r.successors, Endpoints: n.cfg.Endpoints,
		})
	}
	if n.role == Resigned {
		n.wake(r.again)
	}
}

func (n *Node) onEndResponse(c *conn, r EndQuorumEpochResponse) {
	if !n.takes(c, &r.Header) || n.role != Resigned {
		return
	}
	if r.Error != NoError {
		n.backOff(c)
		return
	}
	n.resigned.told = append(n.resigned.told, c.id)
}

// send lets the current role send what is due.
func (n *Node) send() {
	switch n.role {
	case Unattached, Follower:
		n.sendFetch()
	case Prospective, Candidate:
		n.sendVotes()
		n.sendFetch()
	case Leader:
		n.leader.sendBegin(n)
	case Resigned:
		n.sendEnd()
		n.sendFetch() // who is no voter any more is not told who leads
	}
}
