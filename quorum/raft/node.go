package raft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// maxGroup bounds what may lie in the log unsynced: one batch group (also Kafka's largest batch).
	maxGroup = 8 << 20
	// maxHeld bounds the bytes that wait for a place in the log, whether anybody still waits for their answer or not.
	maxHeld = 8 * maxGroup
	// observerSession is how long the leader remembers an observer that does not fetch.
	observerSession = 5 * time.Minute
	// parkTime is how long writes wait for the next leader once this one has left office.
	parkTime = 3 * time.Second
	// maxParkedFetches bounds readers without an identity; a replica has at most one fetch parked.
	maxParkedFetches = 1024
)

// Node is one replica. It is not safe for concurrent use: one goroutine owns it.
type Node struct {
	cfg       Config
	clusterID *string
	now       Instant // of the current Step

	role    Role
	state   ElectionState // what quorum-state holds once the pending Persist is done
	saved   ElectionState // what the last Persist said
	isVoter bool          // by the newest voter set, committed or not

	log        logHistory
	flushed    int64  // the log is durable up to here
	generation uint64 // number of truncations
	flushing   bool
	flushBegan Instant
	unsynced   int // bytes appended since the last flush ended
	inFlush    int // of them, those that the flush in flight covers

	persistBegan Instant
	persistTook  time.Duration // the last one; 0: no time to speak of

	voters        voterHistory
	highWatermark int64 // Unknown on a new leader until its epoch start commits
	committed     int64 // the largest high watermark ever known here; what lies below is never truncated

	// Leader as others reach it: what messages told, else its entry in the voter set. Empty if only its id is known.
	leaderEndpoints []Endpoint
	election        Instant // election timer of Unattached, Prospective, Candidate, Resigned; Never for observers

	follower  followerState // Follower
	fetch     fetchState    // Follower, Unattached, Prospective; Resigned once removed
	download  *download     // Follower; nil: none
	tally     tally         // Prospective, Candidate
	campaign  campaign
	leader    *leaderState // Leader, else nil
	resigned  resignedState
	proposals proposals
	transfer  transfer

	conns           []conn
	lastCorrelation Correlation

	belowReserve bool
	full         bool    // and without room even to open an epoch
	shutdown     Instant // when to stop at the latest; Never if nobody asked
	stopping     bool
	stopped      bool
	elections    ElectionCounts

	deadline Instant
	ready    Ready
	taken    bool // Ready was handed out and not yet advanced
	dead     bool // a Fatal was handed out: the node does nothing any more
}

// New returns a Node that has just started with what storage recovered. The first Ready holds the start-up work.
func New(cfg Config, now Instant) (*Node, error) {
	history, err := newLogHistory(cfg.Log)
	if err != nil {
		return nil, err
	}
	voters, err := newVoterHistory(cfg)
	if err != nil {
		return nil, err
	}
	if err := cfg.validate(voters); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, clusterID: &cfg.ClusterID, now: now,
		state: cfg.State, log: history, flushed: history.end,
		voters: voters, highWatermark: Unknown, committed: Unknown,
		election: Never, shutdown: Never, deadline: Never,
		belowReserve: cfg.Reserve.Below || cfg.Reserve.Full, full: cfg.Reserve.Full,
	}
	n.proposals.parkUntil = Never
	n.proposals.lingerUntil = Never
	if s := history.latest; s != nil {
		n.highWatermark, n.committed = s.Offset, s.Offset
	}
	n.isVoter = voters.current().Contains(cfg.Self)
	n.cfg.SnapshotMaxBytes = cmp.Or(cfg.SnapshotMaxBytes, cfg.FetchMaxBytes)
	if len(n.cfg.Bootstrap) == 0 {
		for i, v := range cfg.StaticVoters {
			if e, ok := Find(v.Endpoints, cfg.Listener); ok {
				n.cfg.Bootstrap = append(n.cfg.Bootstrap, Destination{ID: NodeID(-2 - i), Host: e.Host, Port: e.Port})
			}
		}
	}
	if own, ok := Find(cfg.Endpoints, cfg.Listener); ok {
		n.cfg.Bootstrap = slices.DeleteFunc(slices.Clone(n.cfg.Bootstrap), func(d Destination) bool { return d.Host == own.Host && d.Port == own.Port })
	}
	n.saved.Epoch = -1 // write the start-up state back, whatever it is
	n.start()
	n.settle()
	if n.ready.Fatal != nil {
		return nil, errors.New(n.ready.Fatal.Message)
	}
	return n, nil
}

// Step tells the node what happened. The driver calls Ready, does its work and calls Advance before the next Step. Of
// several events at one moment all are known before anything is done about them.
func (n *Node) Step(now Instant, events ...Event) {
	if n.taken {
		panic("raft: Step before Advance: the work of the last Ready is not done")
	}
	if n.dead {
		return
	}
	before := n.observeState()
	n.now = max(n.now, now)
	for _, ev := range events {
		n.happen(ev)
	}
	n.settle()
	n.check(before)
}

func (n *Node) happen(ev Event) {
	switch ev := ev.(type) {
	case Inbound:
		n.onInbound(ev)
	case Outcome:
		n.onOutcome(ev)
	case ConnectionLost:
		n.onConnectionLost(ev)
	case Deadline:
		n.onDeadline()
	case Propose:
		n.onPropose(ev)
	case Await:
		n.onAwait(ev)
	case Flushed:
		n.onFlushed(ev)
	case Persisted:
		n.onPersisted()
	case Barrier:
		n.onBarrier(ev)
	case Handoff:
		n.onHandoff(ev)
	case Shutdown:
		n.onShutdown(ev)
	case Reserve:
		n.onReserve(ev)
	case UpgradeKRaft:
		n.onUpgrade(ev)
	case SnapshotCreated:
		n.onSnapshotCreated(ev)
	case Cleaned:
		n.onCleaned(ev)
	case LearnSnapshot:
		n.onLearnSnapshot()
	case SnapshotVerified:
		n.onSnapshotVerified(ev)
	default:
		panic(fmt.Sprintf("raft: unknown event %T", ev))
	}
}

// settle brings everything that follows from an event to rest: what waits for an offset, a flush or a moment, then what
// must be sent, then the instant of the next wake-up.
func (n *Node) settle() {
	if n.ready.Fatal != nil {
		n.dead, n.deadline = true, Never
		return
	}
	n.deadline = Never
	n.driveTransfer()
	n.releaseHeld()
	n.finishProposals()
	n.startFlush()
	n.send()
	n.maybeStop()
	if n.ready.Fatal != nil {
		n.dead, n.deadline = true, Never
		return
	}
	n.wakeForTimers()
	if n.state != n.saved {
		n.saved = n.state
		n.ready.Persist, n.persistBegan = new(n.state), n.now
	}
}

// wake makes sure that the next Deadline is not later than at.
func (n *Node) wake(at Instant) { n.deadline = min(n.deadline, at) }

// wakeForTimers adds the timers of the current role. A timer without an action here must not count: it would spin.
func (n *Node) wakeForTimers() {
	switch n.role {
	case Unattached, Prospective, Candidate, Resigned:
		if n.mayElect() || n.role == Prospective || n.role == Resigned && !n.stopping && !n.electable() {
			n.wake(n.election)
		}
	case Follower:
		if n.mayElect() {
			n.wake(n.follower.timeout)
		}
	case Leader:
		n.leader.wake(n)
	}
	n.wake(n.proposals.parkUntil)
	n.wake(n.shutdown)
}

// mayElect reports whether an expired timer may start an election: not one of an observer, not while stopping, not without
// room to open an epoch, and not while the log's tail is not on disk, which no vote is asked for (sendVotes). Its timers run
// on meanwhile, so once nothing is in the way it goes at once.
func (n *Node) mayElect() bool {
	return n.electable() && !n.stopping && !n.full && n.flushed == n.log.end
}

// onDeadline acts on every timer that has expired.
func (n *Node) onDeadline() {
	if n.now >= n.proposals.parkUntil {
		n.giveUpParked()
	}
	switch n.role {
	case Unattached:
		if n.mayElect() && n.now >= n.election {
			n.becomeProspective(causeTimer)
		}
	case Prospective:
		if n.now >= n.election {
			n.losePreVote(true)
		}
	case Candidate:
		if n.mayElect() && n.now >= n.election {
			n.becomeProspective(n.campaign.cause)
		}
	case Resigned:
		switch {
		case n.now < n.election || n.stopping:
		case n.mayElect():
			n.becomeUnattached(n.state.Epoch+1, None)
			n.becomeProspective(causeTimer)
		case !n.electable():
			n.becomeUnattached(n.state.Epoch, n.state.Leader) // removed: whoever leads next is found by fetching
		}
	case Follower:
		if n.mayElect() && n.now >= n.follower.timeout {
			n.becomeProspective(n.follower.cause)
		}
	case Leader:
		n.leader.onDeadline(n)
	}
}

// onInbound serves a request of a peer, by any role.
func (n *Node) onInbound(in Inbound) {
	switch r := in.Request.(type) {
	case VoteRequest:
		n.answer(in.ID, n.onVote(r))
	case BeginQuorumEpochRequest:
		n.answer(in.ID, BeginQuorumEpochResponse{n.onBegin(r)})
	case EndQuorumEpochRequest:
		n.answer(in.ID, EndQuorumEpochResponse{n.onEnd(r)})
	case FetchRequest:
		n.onFetch(in.ID, in.Conn, r)
	case FetchSnapshotRequest:
		n.answer(in.ID, n.onFetchSnapshot(r))
	case UpdateRaftVoterRequest:
		n.onUpdateVoter(in.ID, r)
	case AddRaftVoterRequest:
		n.onAddVoter(in.ID, r)
	case RemoveRaftVoterRequest:
		n.onRemoveVoter(in.ID, r)
	case DescribeQuorumRequest:
		n.answer(in.ID, n.describe())
	case ApiVersionsRequest: // only ever sent; a driver answers it without the core
		n.answer(in.ID, ApiVersionsResponse{Error: UnsupportedVersion})
	default:
		panic(fmt.Sprintf("raft: unknown request %T", r))
	}
}

func (n *Node) answer(id RequestID, result any) {
	n.ready.Answers = append(n.ready.Answers, Answer{ID: id, Result: result})
}

// header fills what all responses to peers carry. A resigned replica names itself here, as Kafka does: it is the leader
// of its epoch for ever, though it serves nothing.
func (n *Node) header(code ErrorCode) Header {
	return Header{Error: code, Epoch: n.state.Epoch, Leader: n.state.Leader, LeaderEndpoints: n.knownEndpoints()}
}

// knownEndpoints are all listeners known of the leader. A message may have told fewer than the voter set holds.
func (n *Node) knownEndpoints() []Endpoint {
	switch n.state.Leader {
	case None:
		return nil
	case n.cfg.Self.ID:
		return n.cfg.Endpoints
	}
	if set := n.endpointsOf(n.state.Leader); len(set) > len(n.leaderEndpoints) {
		return set
	}
	return n.leaderEndpoints
}

// refuseCluster judges the cluster id of a peer's request.
func (n *Node) refuseCluster(id *string) ErrorCode {
	switch {
	case id == nil && n.cfg.RequireID:
		return InvalidRequest
	case id != nil && *id != n.cfg.ClusterID:
		return InconsistentClusterID
	}
	return NoError
}

// topError is the header of an answer that says nothing else.
func topError(code ErrorCode) Header { return Header{TopError: code, Leader: None} }

func (n *Node) fatal(reason FatalReason, format string, args ...any) {
	if n.ready.Fatal == nil {
		n.ready.Fatal = &Fatal{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
}

// onFlushed takes note of what is durable. Votes for the high watermark, fetches and acknowledgements wait for it.
func (n *Node) onFlushed(f Flushed) {
	if n.flushing {
		n.flushing = false
		n.persistTook = min(n.persistTook, 2*time.Duration(n.now-n.flushBegan)) // it is two fsyncs, and the disk may be faster by now
		n.unsynced, n.inFlush = n.unsynced-n.inFlush, 0
	}
	if f.Generation != n.generation {
		return // the log was cut since: its end then says nothing about the log of now
	}
	if end := min(f.End, n.log.end); end > n.flushed {
		n.flushed = end
		if n.flushed == n.log.end {
			n.unsynced = 0
		}
		if n.role == Leader {
			n.advance()
		}
	}
}

// longestPersist bounds what is believed of how long a Persist took, two fsyncs: the machine may have slept meanwhile.
const longestPersist = 10 * time.Second

// onPersisted restarts the patience with others that began before a vote, or who leads, was on disk. Nobody could be asked
// or heard until then; and what took us a while to write down takes others as long (randomElectionTimeout,
// resetCheckQuorum), or each candidate would give up before it could be answered, for ever. Once the disk is quick again
// that is over.
func (n *Node) onPersisted() {
	before := n.persistTook
	n.persistTook = min(time.Duration(n.now-n.persistBegan), longestPersist)
	if n.persistTook < n.cfg.RetryBackoff {
		if n.persistTook = 0; before > 0 {
			n.endPatience()
		}
		return
	}
	for i := range n.conns {
		if n.conns[i].correlation != 0 {
			n.conns[i].timeout = n.now.Add(n.cfg.RequestTimeout)
		}
	}
	switch n.role {
	case Unattached, Prospective, Candidate, Resigned:
		if n.election != Never {
			n.election = n.randomElectionTimeout()
		}
	case Follower:
		n.follower.timeout = n.fetchTimeout()
	case Leader:
		n.leader.resetCheckQuorum(n)
	}
}

// startFlush asks for a flush if there is something to flush and none is running. It runs beside everything else.
func (n *Node) startFlush() {
	if !n.flushing && n.flushed < n.log.end {
		n.flushing, n.inFlush, n.flushBegan = true, n.unsynced, n.now
		n.ready.Flush = true
	}
}

// append books batches that the Ready will write. Their epochs are assigned already.
func (n *Node) append(a Append, bytes int) {
	n.log.end = a.Last + 1
	n.unsynced += bytes
	n.ready.Appends = append(n.ready.Appends, a)
}

// truncate cuts the log, and the voter sets learnt from what is cut.
func (n *Node) truncate(end int64) {
	if len(n.ready.Appends) > 0 {
		panic("raft: Truncate after Appends in one Ready: the driver must call Ready after each Step")
	}
	if end < n.committed {
		n.fatal(TruncationBelowHW, "leader %d of epoch %d asks to truncate the log to offset %d, below the high watermark %d: committed records would be lost",
			n.state.Leader, n.state.Epoch, end, n.committed)
		return
	}
	if before := n.log.position(); end >= before.Offset {
		n.log.truncate(end) // at most an epoch whose leader never wrote goes: the checkpoint must forget it as well
		if n.log.position() == before {
			return
		}
	} else {
		n.log.truncate(end)
	}
	n.generation++
	n.ready.Truncate = &Truncate{Offset: end, Generation: n.generation}
	n.flushed = min(n.flushed, end)
	if n.flushed == n.log.end {
		n.unsynced, n.inFlush = 0, 0
	}
	n.voters.truncate(end)
	n.votersChanged()
	n.failTruncated(end)
}

// raiseHighWatermark publishes a new high watermark.
func (n *Node) raiseHighWatermark(to int64) {
	n.highWatermark = to
	n.committed = max(n.committed, to)
}

// HasReady reports whether Ready would hold any work.
func (n *Node) HasReady() bool {
	r := &n.ready
	return r.Persist != nil || r.Discard || r.Chunk != nil || r.Verify || r.Install != nil || r.Truncate != nil || r.EpochStart != nil || len(r.Appends) > 0 || r.Flush ||
		len(r.Answers) > 0 || len(r.Sends) > 0 || r.Stopped || r.Fatal != nil || r.HighWatermark != n.highWatermark
}

// Ready hands over the pending work. Its slices are valid until Advance.
func (n *Node) Ready() Ready {
	n.taken = true
	n.ready.HighWatermark = n.highWatermark
	return n.ready
}

// Advance tells that the work of the last Ready is done; its flush need only have begun.
func (n *Node) Advance() {
	n.taken = false
	r := &n.ready
	clear(r.Appends)
	clear(r.Answers)
	clear(r.Sends)
	n.ready = Ready{Appends: r.Appends[:0], Answers: r.Answers[:0], Sends: r.Sends[:0], HighWatermark: r.HighWatermark}
}

// Deadline is the instant at which Step(now, Deadline{}) is due; Never if no timer with an action runs.
func (n *Node) Deadline() Instant { return n.deadline }

// randomElectionTimeout draws an election timer. A replica whose disk is below its reserve is more patient while there are
// others: it campaigns last, but it does campaign. A vote must be on disk at its giver's, so there is time for that, too.
func (n *Node) randomElectionTimeout() Instant {
	least := n.cfg.ElectionTimeout + 2*n.persistTook
	t := least + time.Duration(n.cfg.Rand.Int64N(int64(least)))
	if n.belowReserve && !n.alone() {
		t *= 4
	}
	return n.now.Add(t)
}
