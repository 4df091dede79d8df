package raft

import (
	"slices"
	"time"
)

// conn is what the core remembers of its requests to one destination. At most one is in flight. Every change of role
// forgets all of it, so that late outcomes find no correlation and are ignored.
type conn struct {
	id          NodeID
	correlation Correlation // of the request in flight; 0: none
	request     Request     // in flight
	timeout     Instant     // of the request in flight
	notBefore   Instant     // backing off
	failures    int         // in a row
	barren      int         // fetches of this role that were answered and told nothing
}

// backoffSteps bounds how often the back-off of a failing destination doubles: with Kafka's 20 ms it ends at 200 ms, and a
// voter without any peer stays below 50 steps a second.
const backoffSteps = 10

func (n *Node) backoff(failures int) time.Duration {
	return min(n.cfg.RetryBackoff<<min(failures-1, 8), backoffSteps*n.cfg.RetryBackoff)
}

// shortDelay draws the pause before a lost fast election is tried again.
func (n *Node) shortDelay() time.Duration {
	return n.cfg.RetryBackoff/4 + time.Duration(n.cfg.Rand.Int64N(int64(n.cfg.RetryBackoff)))
}

func (n *Node) conn(id NodeID) *conn {
	for i := range n.conns {
		if n.conns[i].id == id {
			return &n.conns[i]
		}
	}
	n.conns = append(n.conns, conn{id: id})
	return &n.conns[len(n.conns)-1]
}

// idle reports whether a request may be sent now. If not, it sees to it that the node wakes up when one may.
func (n *Node) idle(c *conn) bool {
	if c.correlation != 0 {
		if n.now < c.timeout {
			n.wake(c.timeout)
			return false
		}
		c.correlation, c.request = 0, nil // an outcome that comes now is late
	}
	if n.now < c.notBefore {
		n.wake(c.notBefore)
		return false
	}
	return true
}

// transmit sends a request to a node or bootstrap server whose conn is idle.
func (n *Node) transmit(c *conn, e Endpoint, r Request) {
	n.lastCorrelation++
	c.correlation, c.request, c.timeout = n.lastCorrelation, r, n.now.Add(n.cfg.RequestTimeout)
	n.wake(c.timeout)
	n.ready.Sends = append(n.ready.Sends, Send{Correlation: c.correlation, To: Destination{ID: c.id, Host: e.Host, Port: e.Port}, Request: r})
}

func (n *Node) backOff(c *conn) {
	c.failures++
	c.notBefore = n.now.Add(n.backoff(c.failures))
}

// onOutcome finds the request that an outcome belongs to; unknown correlations are late and mean nothing.
func (n *Node) onOutcome(o Outcome) {
	i := slices.IndexFunc(n.conns, func(c conn) bool { return c.correlation == o.Correlation })
	if i < 0 || o.Correlation == 0 {
		return
	}
	c := &n.conns[i]
	request := c.request
	c.correlation, c.request = 0, nil
	if o.Response == nil {
		n.onFailure(c, request, o.Failure)
		return
	}
	c.failures, c.notBefore = 0, 0
	switch r := o.Response.(type) {
	case VoteResponse:
		n.onVoteResponse(c, r)
	case FetchResponse:
		n.onFetchResponse(c, o.Correlation, r)
	case FetchSnapshotResponse:
		n.onFetchSnapshotResponse(c, o.Correlation, r)
	case BeginQuorumEpochResponse:
		n.onCommon(c, &r.Header)
	case EndQuorumEpochResponse:
		n.onEndResponse(c, r)
	case UpdateRaftVoterResponse:
		n.onUpdateVoterResponse(c, r)
	case AddRaftVoterResponse, RemoveRaftVoterResponse:
		// How it went shows in the log. If nothing does, the request is repeated, no matter why.
	case ApiVersionsResponse:
		n.onApiVersions(c, &r)
	default: // requests of these kinds are never sent yet
		n.backOff(c)
	}
}

func (n *Node) onFailure(c *conn, request Request, f Failure) {
	n.backOff(c)
	switch request.(type) {
	case VoteRequest:
		n.onVoteFailure(c, f)
	case FetchRequest, FetchSnapshotRequest:
		n.onFetchFailure(c, f)
	case ApiVersionsRequest:
		n.onApiVersions(c, nil)
	case UpdateRaftVoterRequest, AddRaftVoterRequest, RemoveRaftVoterRequest:
		if f == UnsupportedByPeer {
			n.follower.updated = true // an older leader: it will never want to know
			c.failures, c.notBefore = 0, 0
		}
	default: // the back-off is all
	}
}

// onCommon applies the rules that hold for every response, and reports whether its own handler should look at it: the
// response is of our epoch and carries no error that was dealt with here.
func (n *Node) onCommon(c *conn, h *Header) bool {
	switch {
	case h.TopError == ClusterAuthorization, h.Error == ClusterAuthorization: // UpdateRaftVoter has one code for both levels
		n.fatal(NotAuthorized, "node %d refuses our requests: CLUSTER_AUTHORIZATION_FAILED", c.id)
		return false
	case h.TopError != NoError:
		n.backOff(c)
		return false
	}
	if h.Epoch < n.state.Epoch || h.Error == UnknownLeaderEpoch {
		return false
	}
	endpoints := h.LeaderEndpoints
	if len(endpoints) == 0 {
		endpoints = n.endpointsOf(h.Leader)
	}
	if h.Epoch > n.state.Epoch || h.Error == FencedLeaderEpoch || h.Error == NotLeaderOrFollower {
		n.observe(h.Epoch, h.Leader, endpoints)
		return false
	}
	n.observe(h.Epoch, h.Leader, endpoints)
	switch {
	case h.Error == BrokerNotAvailable:
		n.backOff(c)
	case h.Error == InvalidRequest:
		n.fatal(InconsistentState, "node %d refuses our request as INVALID_REQUEST: it and node %d do not agree on the protocol", c.id, n.cfg.Self.ID)
	case h.Error != InvalidVoterKey:
		return true
	}
	return false
}

// takes is onCommon for requests that are repeated until they are answered: who changes nothing by its answer, since it knows
// of less than we, or is another replica by now, would say the same at once.
func (n *Node) takes(c *conn, h *Header) bool {
	role, epoch := n.role, n.state.Epoch
	if n.onCommon(c, h) {
		return true
	}
	if n.role == role && n.state.Epoch == epoch && c.failures == 0 {
		n.backOff(c)
	}
	return false
}

// sendToVoter sends to another voter at the endpoint that the voter set names.
func (n *Node) sendToVoter(v Voter, r Request) {
	e, ok := Find(v.Endpoints, n.cfg.Listener)
	if c := n.conn(v.Key.ID); ok && n.idle(c) {
		n.transmit(c, e, r)
	}
}

// endpointsOf looks a node up in the voter set.
func (n *Node) endpointsOf(id NodeID) []Endpoint {
	if id == None {
		return nil
	}
	v, _ := n.voters.current().ByID(id)
	return v.Endpoints
}
