package raft

import (
	"slices"
	"time"
)

// followerState is what a replica keeps while it follows one leader.
type followerState struct {
	epoch   Epoch
	timeout Instant       // fetch timer: voters campaign when it ends
	touch   Instant       // with a flush still running: when to tell the leader that we are there
	cause   electionCause // what a campaign started by it would be called
	// hasFetched: the leader answered us, so we refuse pre-votes (KIP-996). A sign that it is gone clears it.
	hasFetched bool
	failover   bool    // fast failover was used up in this epoch
	update     Instant // when a request about the voter set may be sent (again)
	updated    bool    // this leader knows our endpoints and directory
}

// fetchState paces fetching, whoever it goes to. At most one Fetch is in flight in total.
type fetchState struct {
	to          NodeID
	correlation Correlation // in flight; 0: none
	epoch       Epoch       // of the request in flight
	misses      int         // fetches in a row that brought nothing
	notBefore   Instant
	asking      Instant // until then others are asked who leads: the leader has let a whole request timeout pass
	stalled     bool    // observer only: the next batch does not fit beside what is unsynced
	probe       bool    // the next one is to find out the leader's newest snapshot
	probing     bool    // the one in flight is
	touching    bool    // the one in flight was sent beside a flush, from the durable end
	durable     int64   // … as it was then
}

// fetchTimeout is when a silent leader is given up. All followers of an idle leader hear from it last at nearly the same
// moment, so their timers are set apart by rank: else they would campaign together and split the vote. Below the disk
// reserve a replica lets others go first.
func (n *Node) fetchTimeout() Instant {
	t := n.cfg.FetchTimeout
	if n.belowReserve {
		t *= 2
	}
	if n.electable() {
		t += time.Duration(n.rank()) * n.cfg.RetryBackoff
	}
	return n.now.Add(t)
}

// sendFetch sends the next Fetch as soon as it may: a Fetch offset is an acknowledgement, so the log must be durable up to
// it, unless this replica can never be a voter.
//
// A disk may take longer for a flush than leader and follower wait for one another. So meanwhile a follower asks now and
// then for what it has already, from its durable end: that acknowledges nothing new, and tells both that the other is there.
func (n *Node) sendFetch() {
	f := &n.fetch
	if f.correlation != 0 {
		c := n.conn(f.to)
		if c.correlation == f.correlation && n.now < c.timeout {
			n.wake(c.timeout)
			return
		}
		c.correlation, c.request = 0, nil
		f.correlation = 0
		if c.id == n.state.Leader {
			f.asking = n.now.Add(n.cfg.ElectionTimeout)
		}
		n.backOff(c)
		n.fetchMissed(f.misses > 0)
	}
	if n.sendMembership() {
		return
	}
	touching := n.flushed < n.log.end && n.download == nil && (!n.cfg.ObserverOnly || n.isVoter || f.stalled)
	switch {
	case touching && n.role != Follower:
		return // Flushed comes
	case touching && n.now < n.follower.touch:
		n.wake(n.follower.touch)
		return
	case !touching:
		f.stalled = false
	}
	if n.now < f.notBefore {
		n.wake(f.notBefore)
		return
	}
	c, e, ok := n.fetchTarget()
	if !ok {
		return
	}
	f.to, f.epoch = c.id, n.state.Epoch
	f.durable = n.flushed
	f.touching, f.probing = touching, f.probe && !touching
	f.probe = f.probe && touching
	n.transmit(c, e, n.nextFetch())
	f.correlation = c.correlation
	n.wake(c.timeout) // an observer may have no other timer
}

// leadersTurn reports whether the next Fetch goes to the known leader. While nothing comes it takes turns with the bootstrap
// servers: a leader whose machine is gone never answers again, and to an observer nobody announces the next one. A server
// that did not answer ends no turn while others have not failed: a stale connection ends at once, and a leader that is
// gone costs a whole request timeout. After one of those, servers are asked for as long as an election takes: the next
// leader is found as soon as there is one, and so is another way to a leader that is there.
func (n *Node) leadersTurn() bool {
	f := &n.fetch
	switch {
	case f.misses == 0 || len(n.cfg.Bootstrap) == 0:
		return true
	case f.to == n.state.Leader:
		return false
	case n.conn(f.to).failures == 0:
		return n.now >= f.asking
	}
	leader, _ := Find(n.leaderEndpoints, n.cfg.Listener)
	return !slices.ContainsFunc(n.cfg.Bootstrap, func(s Destination) bool {
		return n.conn(s.ID).failures == 0 && (s.Host != leader.Host || s.Port != leader.Port)
	})
}

// failureWeight is how many answers that tell nothing a failure is worth: it may take a whole request timeout.
const failureWeight = 4

// fetchTarget is the leader, if it is known and it is its turn, else a bootstrap server: any replica tells who leads.
func (n *Node) fetchTarget() (*conn, Endpoint, bool) {
	if n.role == Follower && n.leadersTurn() {
		if e, ok := Find(n.leaderEndpoints, n.cfg.Listener); ok {
			c := n.conn(n.state.Leader)
			if n.idle(c) {
				return c, e, true
			}
			if c.correlation != 0 {
				return nil, Endpoint{}, false // one request in flight: wait for its outcome
			}
		}
	}
	servers := n.cfg.Bootstrap
	if len(servers) == 0 {
		return nil, Endpoint{}, false
	}
	// The one that failed least: while some machines are gone, chance alone may choose them many times in a row. But one
	// that answers and knows no leader, since it is cut off itself, is not asked for ever: others may be back.
	first, failures := n.cfg.Rand.IntN(len(servers)), 0
	leader, _ := Find(n.leaderEndpoints, n.cfg.Listener)
	var best *Destination
	for i := range servers {
		s := &servers[(first+i)%len(servers)]
		c := n.conn(s.ID)
		failed := failureWeight*c.failures + c.barren
		if s.Host == leader.Host && s.Port == leader.Port {
			failed += n.fetch.misses // under its other name
		}
		if n.idle(c) && (best == nil || failed < failures) {
			best, failures = s, failed
		}
	}
	if best == nil {
		return nil, Endpoint{}, false
	}
	return n.conn(best.ID), Endpoint{Name: n.cfg.Listener, Host: best.Host, Port: best.Port}, true
}

// fetchMissed paces a replica whose fetch brought nothing new. The first failure of the leader is followed by a try at a
// bootstrap server at once; after that each miss waits a little longer.
func (n *Node) fetchMissed(wait bool) {
	f := &n.fetch
	f.misses++
	if wait {
		f.notBefore = n.now.Add(n.backoff(f.misses))
	}
}

// leaderHeard ends a follower's turn at the bootstrap servers: the leader is there, and misses our fetches. One that is in
// flight to a server is given up. Its machine may be gone, and until the request timeout says so the leader would have
// lost its majority.
func (n *Node) leaderHeard() {
	f := &n.fetch
	f.misses, n.conn(n.state.Leader).notBefore = 0, n.now
	if f.correlation != 0 && f.to != n.state.Leader {
		c := n.conn(f.to)
		c.correlation, c.request = 0, nil
		f.correlation = 0
	}
}

func (n *Node) onFetchFailure(c *conn, failure Failure) {
	again := n.fetch.misses > 0
	n.fetch.correlation = 0
	n.fetchMissed(again)
	if failure == Refused && n.role == Follower && c.id == n.state.Leader {
		n.leaderGone()
	}
}

// onConnectionLost serves fast failover only.
func (n *Node) onConnectionLost(l ConnectionLost) {
	if l.Refused && n.role == Follower && l.Peer == n.state.Leader {
		n.leaderGone()
	}
}

// leaderGone starts fast failover: the leader's process has ended and nothing listens in its place. Voters start by rank,
// so that one of them is through before the next begins. Once an epoch: a leader that only we cannot reach stays leader.
func (n *Node) leaderGone() {
	f := &n.follower
	if f.failover {
		return
	}
	f.failover = true
	f.hasFetched = false
	if !n.electable() {
		return
	}
	f.cause = causeFailover
	n.campaign.retries = fastRetries
	f.timeout = min(f.timeout, n.now.Add(time.Duration(n.rank())*n.cfg.RetryBackoff))
	if n.mayElect() && n.now >= f.timeout {
		n.becomeProspective(causeFailover)
	}
}

// fetchAnswered ends the Fetch or FetchSnapshot in flight, and reports whether its answer is one of the leader that we
// follow.
func (n *Node) fetchAnswered(c *conn, correlation Correlation, h *Header) bool {
	if n.fetch.correlation != correlation {
		return false
	}
	n.fetch.correlation = 0
	role, epoch, leader := n.role, n.state.Epoch, n.state.Leader
	if !n.onCommon(c, h) {
		if n.role != role || n.state.Epoch != epoch || n.ready.Fatal != nil {
			return false // it brought news
		}
		c.barren++
		if h.Error == NotLeaderOrFollower && role == Follower && c.id == leader && h.Epoch == epoch {
			// Our leader serves this epoch no more. We stop trusting it, and do not run after it.
			n.follower.hasFetched = false
			n.follower.cause = causeResign
			n.backOff(c)
		}
		n.fetchMissed(true)
		return false
	}
	if n.role != role || n.state.Epoch != epoch {
		return false // a bootstrap server turned out to be the leader: the next Fetch goes to it under its own id
	}
	if n.role != Follower {
		c.barren++
		n.fetchMissed(true)
		return false
	}
	return true
}

// leaderAnswered restarts the patience with a leader that has given a good answer.
func (n *Node) leaderAnswered() {
	n.follower.timeout = n.fetchTimeout()
	n.follower.touch = n.now.Add(n.cfg.FetchTimeout / 4)
	n.follower.cause = causeTimer
	n.follower.hasFetched = true
	n.campaign.retries = 0
}

func (n *Node) onFetchResponse(c *conn, correlation Correlation, r FetchResponse) {
	if !n.fetchAnswered(c, correlation, &r.Header) {
		return
	}
	switch {
	case r.Error != NoError:
		c.barren++
		n.backOff(c)
		n.fetchMissed(true)
		return
	case n.fetch.probing:
		n.fetch.misses = 0
		n.learnt(r.Snapshot)
	case r.Snapshot != nil:
		if n.fetch.touching && n.log.holds(*r.Snapshot) {
			n.fetch.misses = 0 // the leader has cleaned up to a point between the durable end and the end
			break
		}
		if !n.offered(*r.Snapshot) {
			n.fetchMissed(true) // it makes no sense, and a leader that says such things shall not be trusted for ever
			return
		}
		n.fetch.misses = 0
	case r.Diverging != nil:
		before := n.log.position()
		n.truncate(n.log.cut(*r.Diverging))
		if n.log.position() == before {
			n.fetchMissed(true) // it makes no sense; at least it must not spin
		} else {
			n.fetch.misses = 0
		}
	case n.fetch.touching:
		// The records are here already. The leader has the same as we up to the offset that it was asked for. What is beyond
		// may be another leader's, also if it has been flushed since.
		n.fetch.misses = 0
		if r.HighWatermark >= 0 {
			n.follow(min(r.HighWatermark, max(n.fetch.durable, n.highWatermark)))
		}
	default:
		n.fetch.misses = 0
		n.appendFetched(correlation, r.Batches)
		if r.HighWatermark >= 0 {
			n.follow(min(n.log.end, r.HighWatermark))
		}
	}
	if n.ready.Fatal == nil {
		n.leaderAnswered()
	}
}

// appendFetched takes the leading batches that continue the log. It stops at the first that does not: bytes that the
// leader was just overwriting, or that a newer leader wrote, must not be believed.
func (n *Node) appendFetched(correlation Correlation, batches []Batch) {
	if len(batches) == 0 {
		return
	}
	if n.belowReserve {
		n.fetch.notBefore = n.now.Add(n.cfg.FetchTimeout / 2) // still there, but cannot store anything
		return
	}
	a := Append{Fetched: correlation, Base: n.log.end}
	end, epoch, size := n.log.end, n.log.lastEpoch(), 0
	for _, b := range batches {
		if b.BaseOffset < end || b.LastOffset < b.BaseOffset || b.Epoch < epoch || b.Epoch > n.fetch.epoch {
			break
		}
		if n.unsynced+size+b.Bytes > maxGroup && n.unsynced+size > 0 {
			n.fetch.stalled = true // observer only: nobody else fetches with anything unsynced
			break
		}
		if !n.controlAppended(b) {
			return
		}
		n.log.assign(b.Epoch, b.BaseOffset)
		end, epoch, size = b.LastOffset+1, b.Epoch, size+b.Bytes
		a.Count++
	}
	if a.Count == 0 {
		if !n.fetch.stalled {
			n.fetchMissed(true)
		}
		return
	}
	a.Base = batches[0].BaseOffset
	a.Last, a.Epoch = end-1, epoch
	n.append(a, size)
	n.votersChanged()
}

// follow moves a follower's high watermark.
func (n *Node) follow(to int64) {
	switch {
	case to < n.highWatermark:
		n.fatal(InconsistentState, "leader %d of epoch %d lowers the high watermark from %d to %d", n.state.Leader, n.state.Epoch, n.highWatermark, to)
	case to > n.highWatermark:
		n.raiseHighWatermark(to)
	}
}
