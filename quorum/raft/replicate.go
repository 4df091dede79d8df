package raft

import "slices"

// progress is what the leader knows of one replica.
type progress struct {
	key          ReplicaKey
	end          int64 // its fetch offset: all before it is on its disk; Unknown if it has not fetched
	lastFetch    Instant
	leaderEnd    int64   // our log end when it first asked for that offset
	asked        Instant // … which was then
	lastCaughtUp Instant
	fetches      uint64 // valid ones
	seen         bool   // fetched since check-quorum was last satisfied
	belowReserve bool

	// For barriers: the newest answer's connection and the barrier clock at that moment, and the clock that a later Fetch
	// on that connection confirmed.
	conn      ConnID
	answered  uint64
	confirmed uint64
}

func newProgress(key ReplicaKey) progress {
	return progress{key: key, end: Unknown, lastFetch: Instant(Unknown), lastCaughtUp: Instant(Unknown)}
}

// parkedFetch waits for records, a higher high watermark, or its deadline.
type parkedFetch struct {
	id       RequestID
	conn     ConnID
	replica  ReplicaKey
	offset   int64
	maxBytes int
	deadline Instant
}

type waitingBarrier struct {
	id    RequestID
	clock uint64
}

// leaderState is what only a leader has.
type leaderState struct {
	epochStart int64 // offset of the first record of its epoch
	groupStart int64 // where the newest batch group begins
	set        VoterSet
	voters     []progress // in the order of set
	own        int        // our place among them; -1 for a leader on its way out
	observers  []progress // by key

	checkQuorum Instant // resign then, unless a majority fetches before
	begin       Instant // next round of BeginQuorumEpoch

	parked   []parkedFetch
	scratch  []parkedFetch
	barriers []waitingBarrier // by clock
	clock    uint64           // counts barriers
	change   *change
	known    VoterSet // at kraft.version 0: what the voters told of themselves

	overtaken    Instant // when a majority without us had all of the log on disk; it means nothing unless we have not
	handoffRetry Instant // below the disk reserve, or on a slow disk: when to try a handoff again
	values       []int64
}

func newLeaderState(n *Node, epochStart int64) *leaderState {
	l := &leaderState{epochStart: epochStart, groupStart: epochStart, begin: n.now, handoffRetry: n.now, checkQuorum: Never}
	l.track(n)
	return l
}

// track follows the newest voter set: replicas keep their progress when they become voters or stop being such.
func (l *leaderState) track(n *Node) {
	old, voters := slices.Concat(l.voters, l.observers), len(l.voters)
	l.set = n.voters.current()
	l.voters, l.observers = make([]progress, len(l.set)), nil
	for i, v := range l.set {
		l.voters[i] = newProgress(v.Key)
	}
	for i, p := range old {
		if v := l.voterIndex(p.key); v >= 0 {
			if i >= voters {
				p.end = Unknown // what it acknowledged as an observer need not be on its disk (observer.only)
			}
			l.voters[v] = p
		} else if p.lastFetch != Instant(Unknown) {
			l.observers = append(l.observers, p)
		}
	}
	slices.SortFunc(l.observers, func(a, b progress) int { return a.key.Compare(b.key) })
	l.own = -1
	if n.isVoter {
		l.own = l.voterIndex(n.cfg.Self)
	}
	l.values = make([]int64, len(l.set))
	l.resetCheckQuorum(n) // those who count are others now; a sole voter may have got company, or has lost it
}

// voterIndex finds a voter by key; an entry without a directory id matches by id alone.
func (l *leaderState) voterIndex(k ReplicaKey) int {
	return slices.IndexFunc(l.set, func(v Voter) bool {
		return v.Key.ID == k.ID && (v.Key.DirectoryID.IsZero() || v.Key.DirectoryID == k.DirectoryID)
	})
}

func (l *leaderState) voter(k ReplicaKey) *progress {
	if i := l.voterIndex(k); i >= 0 {
		return &l.voters[i]
	}
	return nil
}

// replica finds or starts the progress of a fetching replica; nil for a reader without an id.
func (l *leaderState) replica(n *Node, k ReplicaKey) (p *progress, voter bool) {
	if p := l.voter(k); p != nil {
		return p, true
	}
	if k.ID < 0 {
		return nil, false
	}
	i, known := l.observer(k)
	if !known {
		// One that comes with a new directory at each restart would fill the books with its own ghosts.
		l.observers = slices.DeleteFunc(l.observers, func(p progress) bool { return p.key.ID == k.ID && n.now >= p.lastFetch.Add(n.cfg.FetchTimeout) })
		i, _ = l.observer(k)
		l.observers = slices.Insert(l.observers, i, newProgress(k))
	}
	return &l.observers[i], false
}

// observer finds an observer's place, where it is or would be.
func (l *leaderState) observer(k ReplicaKey) (place int, known bool) {
	return slices.BinarySearchFunc(l.observers, k, func(p progress, k ReplicaKey) int { return p.key.Compare(k) })
}

func (l *leaderState) forgetObservers(now Instant) {
	l.observers = slices.DeleteFunc(l.observers, func(p progress) bool { return now >= p.lastFetch.Add(observerSession) })
}

func (l *leaderState) resetCheckQuorum(n *Node) {
	l.checkQuorum = Never
	if !n.alone() {
		l.checkQuorum = n.now.Add(n.cfg.FetchTimeout * 3 / 2)
		if n.highWatermark == Unknown {
			l.checkQuorum = l.checkQuorum.Add(2 * n.persistTook) // they write down who leads before they fetch
		}
	}
	for i := range l.voters {
		l.voters[i].seen = false
	}
}

// markSeen counts a voter's sign of life. Once a majority, the leader included, has given one, the window starts anew.
func (l *leaderState) markSeen(n *Node, p *progress) {
	p.seen = true
	seen := 0
	for i := range l.voters {
		if l.voters[i].seen || i == l.own {
			seen++
		}
	}
	if seen >= l.set.Majority() {
		l.resetCheckQuorum(n)
	}
}

func (l *leaderState) wake(n *Node) {
	n.wake(l.checkQuorum)
	n.wake(l.begin)
	for i := range l.parked {
		n.wake(l.parked[i].deadline)
	}
	if l.change != nil {
		n.wake(l.change.deadline)
	}
	if at := l.unsuited(n); at != Never && !n.transfer.active() && !n.alone() {
		n.wake(max(at, l.handoffRetry))
	}
	if len(n.proposals.held) > 0 && !n.full && !n.flushing && !n.transfer.pausing() {
		n.wake(n.proposals.lingerUntil)
	}
}

func (l *leaderState) onDeadline(n *Node) {
	for i := 0; i < len(l.parked); {
		if n.now >= l.parked[i].deadline {
			f := l.parked[i]
			l.parked = slices.Delete(l.parked, i, i+1)
			l.serve(n, f)
			continue
		}
		i++
	}
	if l.change != nil && n.now >= l.change.deadline {
		n.changeTimedOut()
	}
	if n.now >= l.checkQuorum {
		// No successor is to be expected on this side of the cut, so nothing waits for one.
		n.becomeResigned(l.successors(n, nil))
		n.proposals.failAll(n)
	}
}

// successors orders the other voters for EndQuorumEpoch: those asked for first, the rest by how much of the log they have.
func (l *leaderState) successors(n *Node, first []ReplicaKey) []ReplicaKey {
	rest := make([]*progress, 0, len(l.voters))
	for i := range l.voters {
		if l.voters[i].key.ID != n.cfg.Self.ID {
			rest = append(rest, &l.voters[i])
		}
	}
	slices.SortStableFunc(rest, compareForSuccession)
	var keys []ReplicaKey
	for _, k := range first {
		if i := l.voterIndex(k); i >= 0 && k.ID != n.cfg.Self.ID && !slices.Contains(keys, l.set[i].Key) {
			keys = append(keys, l.set[i].Key)
		}
	}
	for _, p := range rest {
		if key := l.set[l.voterIndex(p.key)].Key; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// onFetch serves a Fetch. A valid one acknowledges all before its offset.
func (n *Node) onFetch(id RequestID, from ConnID, r FetchRequest) {
	if code := n.refuseCluster(r.ClusterID); code != NoError {
		n.answer(id, FetchResponse{Header: topError(code), HighWatermark: Unknown})
		return
	}
	code := n.refuseLeaderRPC(r.Epoch)
	if r.MaxWait < 0 || r.Offset < 0 || r.LastFetchedEpoch < 0 || r.LastFetchedEpoch > r.Epoch {
		code = InvalidRequest
	}
	if code == NoError && r.Replica.ID == n.cfg.Self.ID {
		code = InvalidRequest // a twin with our node id, whatever its directory
	}
	if code != NoError {
		n.answer(id, FetchResponse{Header: n.header(code), HighWatermark: Unknown})
		return
	}
	l := n.leader
	diverging, snapshot := n.log.validate(r.Offset, r.LastFetchedEpoch)
	if diverging != nil || snapshot != nil {
		n.answer(id, FetchResponse{Header: n.header(NoError), HighWatermark: n.highWatermark, LogStart: n.log.start, Diverging: diverging, Snapshot: snapshot})
		return
	}
	f := parkedFetch{id: id, conn: from, replica: r.Replica, offset: r.Offset, maxBytes: r.MaxBytes, deadline: n.now.Add(r.MaxWait)}
	p, voter := l.replica(n, r.Replica)
	wanted := false
	if p != nil {
		l.booked(n, p, r, from)
		l.supersede(n, r.Replica)
		if voter {
			l.markSeen(n, p)
			n.advance()
			l.finishBarriers(n)
			wanted = p.confirmed < l.newestBarrier()
		}
	}
	switch {
	case r.Offset < n.log.end, r.HighWatermark < n.highWatermark, r.MaxWait == 0, wanted, len(l.parked) >= maxParkedFetches:
		l.serve(n, f)
	default:
		l.parked = append(l.parked, f)
	}
}

// refuseLeaderRPC is the check of requests that only a leader serves. Unlike votes they move nobody to a higher epoch.
func (n *Node) refuseLeaderRPC(epoch Epoch) ErrorCode {
	switch {
	case epoch < n.state.Epoch:
		return FencedLeaderEpoch
	case epoch > n.state.Epoch:
		return UnknownLeaderEpoch
	case n.role != Leader:
		return NotLeaderOrFollower
	}
	return NoError
}

// supersede answers an older parked fetch of a replica that comes again, perhaps on another connection.
func (l *leaderState) supersede(n *Node, k ReplicaKey) {
	if i := slices.IndexFunc(l.parked, func(f parkedFetch) bool { return f.replica == k }); i >= 0 {
		f := l.parked[i]
		l.parked = slices.Delete(l.parked, i, i+1)
		l.serve(n, f)
	}
}

// booked notes what a valid fetch tells about a replica. Its offset may go back: disks get lost.
func (l *leaderState) booked(n *Node, p *progress, r FetchRequest, from ConnID) {
	switch {
	case r.Offset >= n.log.end:
		p.lastCaughtUp = n.now
	case p.lastFetch != Instant(Unknown) && r.Offset >= p.leaderEnd:
		p.lastCaughtUp = max(p.lastCaughtUp, p.asked)
	}
	if r.Offset != p.end { // who asks again, since it is not done with its flush, has come as far as it first asked for
		p.leaderEnd, p.asked = n.log.end, n.now
	}
	p.key = r.Replica
	p.end, p.lastFetch = r.Offset, n.now
	p.belowReserve = r.BelowReserve
	p.fetches++
	if p.answered > 0 && p.conn == from {
		p.confirmed = max(p.confirmed, p.answered)
	}
}

// serve answers a fetch with what there is now.
func (l *leaderState) serve(n *Node, f parkedFetch) {
	if p := l.voter(f.replica); p != nil {
		p.conn, p.answered = f.conn, l.clock
	}
	n.answer(f.id, FetchResponse{
		Header: n.header(NoError), HighWatermark: n.highWatermark, LogStart: n.log.start,
		Offset: f.offset, End: n.log.end, MaxBytes: f.maxBytes,
	})
}

// serveParked completes every parked fetch: there are new records, or the high watermark rose.
func (l *leaderState) serveParked(n *Node) {
	l.parked, l.scratch = l.scratch[:0], l.parked
	for _, f := range l.scratch {
		l.serve(n, f)
	}
}

// advance recomputes the high watermark and completes what waited for it.
func (n *Node) advance() {
	l := n.leader
	for i := range l.voters {
		l.values[i] = l.voters[i].end
		if i == l.own {
			l.values[i] = n.flushed
		}
	}
	to := commitPoint(n.highWatermark, l.epochStart, l.values)
	if to == n.highWatermark {
		return
	}
	n.raiseHighWatermark(to)
	l.overtaken = n.now
	n.changeCommitted()
	l.serveParked(n)
}

// leaveOffice fails what waits for a leader. The role and the election state are already those of after.
func (n *Node) leaveOffice() {
	l := n.leader
	n.leader = nil
	n.highWatermark = n.committed
	for _, f := range l.parked {
		n.answer(f.id, FetchResponse{Header: n.header(NotLeaderOrFollower), HighWatermark: Unknown})
	}
	for _, b := range l.barriers {
		n.answer(b.id, BarrierResult{Header: n.clientHeader(NotLeaderOrFollower), HighWatermark: Unknown})
	}
	n.abandonChange(l.change)
	n.proposals.park(n)
	n.transfer.leftOffice(n)
}

// onBarrier asks for proof of leadership. A Fetch counts only if it follows, on the same connection, an answer that left
// after the barrier came: one that merely arrives later may have been sent before its sender voted for another.
func (n *Node) onBarrier(b Barrier) {
	switch {
	case n.role != Leader:
		n.answer(b.ID, BarrierResult{Header: n.clientHeader(NotLeaderOrFollower), HighWatermark: Unknown})
		return
	case n.highWatermark == Unknown:
		n.answer(b.ID, BarrierResult{Header: n.clientHeader(OffsetNotAvailable), HighWatermark: Unknown})
		return
	}
	l := n.leader
	l.clock++
	l.barriers = append(l.barriers, waitingBarrier{id: b.ID, clock: l.clock})
	l.nudge(n, nil)
	l.finishBarriers(n)
}

// nudge completes the parked fetches of the voters, or of one of them, so that they fetch again at once.
func (l *leaderState) nudge(n *Node, only *progress) {
	for i := 0; i < len(l.parked); {
		if p := l.voter(l.parked[i].replica); p == nil || only != nil && p != only {
			i++
			continue
		}
		f := l.parked[i]
		l.parked = slices.Delete(l.parked, i, i+1)
		l.serve(n, f)
	}
}

func (l *leaderState) newestBarrier() uint64 {
	if len(l.barriers) == 0 {
		return 0
	}
	return l.barriers[len(l.barriers)-1].clock
}

func (l *leaderState) finishBarriers(n *Node) {
	if len(l.barriers) == 0 {
		return
	}
	for i := range l.voters {
		l.values[i] = int64(l.voters[i].confirmed)
		if i == l.own {
			l.values[i] = int64(l.clock)
		}
	}
	reached := uint64(quorumValue(l.values))
	done := 0
	for done < len(l.barriers) && l.barriers[done].clock <= reached {
		n.answer(l.barriers[done].id, BarrierResult{Header: n.clientHeader(NoError), HighWatermark: n.highWatermark})
		done++
	}
	l.barriers = slices.Delete(l.barriers, 0, done)
}

// clientHeader is the header of an answer to a client: a replica that does not lead never names itself.
func (n *Node) clientHeader(code ErrorCode) Header {
	h := n.header(code)
	if h.Leader == n.cfg.Self.ID && n.role != Leader {
		h.Leader, h.LeaderEndpoints = None, nil
	}
	return h
}

// describe lists every replica's progress (DescribeQuorum).
func (n *Node) describe() DescribeQuorumResponse {
	if n.role != Leader {
		return DescribeQuorumResponse{Error: NotLeaderOrFollower, Leader: None, Epoch: n.state.Epoch, HighWatermark: Unknown}
	}
	replicas, voters := n.leader.describe(n)
	return DescribeQuorumResponse{
		Leader: n.cfg.Self.ID, Epoch: n.state.Epoch, HighWatermark: n.highWatermark,
		Voters: replicas[:voters:voters], Observers: replicas[voters:], Nodes: slices.Clone(n.leader.set),
	}
}

// describe lists the replicas: the voters, whose number it returns, then the observers by key. One of them is the leader.
func (l *leaderState) describe(n *Node) (replicas []ReplicaProgress, voters int) {
	own := ReplicaProgress{Key: n.cfg.Self, LogEnd: n.log.end, LastFetch: n.now, LastCaughtUp: n.now, BelowReserve: n.belowReserve}
	replicas = make([]ReplicaProgress, 0, len(l.voters)+len(l.observers)+1)
	for i := range l.voters {
		if i == l.own {
			replicas = append(replicas, own)
			continue
		}
		replicas = append(replicas, l.voters[i].describe())
	}
	voters = len(replicas)
	for i := range l.observers {
		if n.now < l.observers[i].lastFetch.Add(observerSession) {
			replicas = append(replicas, l.observers[i].describe())
		}
	}
	if l.own < 0 {
		replicas = append(replicas, own)
		slices.SortFunc(replicas[voters:], func(a, b ReplicaProgress) int { return a.Key.Compare(b.Key) })
	}
	return replicas, voters
}

func (p *progress) describe() ReplicaProgress {
	return ReplicaProgress{Key: p.key, LogEnd: p.end, LastFetch: p.lastFetch, LastCaughtUp: p.lastCaughtUp, BelowReserve: p.belowReserve}
}
