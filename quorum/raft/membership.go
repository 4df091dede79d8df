package raft

import (
	"fmt"
	"slices"
	"time"
)

// Changes of the voter set, on the leader (KIP-853). Each adds, removes or rewrites one voter, so that the majorities of the
// old set and the new one overlap; and there is one at a time, since two such steps together may not.

// change is the one change of the voter set that may be under way.
type change struct {
	id       RequestID
	kind     ChangeKind
	voter    Voter    // of a removal only the key, of an upgrade nothing
	voters   VoterSet // of an upgrade: the set that the static voters become
	early    bool     // answered when it is appended
	offset   int64    // of its record; Unknown before it has one
	held     bool     // the record waits for a place in the log
	deadline Instant
}

// refusal says why a request cannot be granted; the zero refusal is none.
type refusal struct {
	code    ErrorCode
	message string
}

func refuse(code ErrorCode, format string, args ...any) refusal {
	return refusal{code, fmt.Sprintf(format, args...)}
}

func (n *Node) onAddVoter(id RequestID, r AddRaftVoterRequest) {
	n.onChange(r.ClusterID, &change{id: id, kind: ChangeAdd, voter: Voter{Key: r.Voter, Endpoints: r.Endpoints}, early: !r.AckWhenCommitted})
}

func (n *Node) onRemoveVoter(id RequestID, r RemoveRaftVoterRequest) {
	n.onChange(r.ClusterID, &change{id: id, kind: ChangeRemove, voter: Voter{Key: r.Voter}})
}

// onUpdateVoter lets a voter correct its endpoints and kraft.version range.
func (n *Node) onUpdateVoter(id RequestID, r UpdateRaftVoterRequest) {
	if code := n.refuseCluster(r.ClusterID); code != NoError {
		n.answer(id, UpdateRaftVoterResponse{topError(code)})
		return
	}
	c := &change{id: id, kind: ChangeUpdate, voter: r.Voter, early: true}
	if code := n.refuseLeaderRPC(r.Epoch); code != NoError {
		n.answerChange(c, refusal{code: code})
		return
	}
	n.onChange(r.ClusterID, c)
}

// onChange begins a change of one voter, or says why not.
func (n *Node) onChange(cluster *string, c *change) {
	why := n.refuseChange(cluster, c)
	switch {
	case why.code != NoError:
	case c.kind == ChangeRemove: // there is nothing to probe
		n.beginChange(c)
		n.hold(c)
		return
	case c.kind == ChangeUpdate && n.upToDate(c.voter):
		n.updated(c)
		n.answerChange(c, refusal{})
		return
	default:
		why = n.probe(c)
	}
	if why.code != NoError {
		n.answerChange(c, why)
	}
}

// updated counts a voter's word on itself for check-quorum, as Kafka does. One that gets into the log starts a new window
// anyway.
func (n *Node) updated(c *change) {
	if p := n.leader.voter(c.voter.Key); p != nil {
		n.leader.markSeen(n, p)
	}
}

// upToDate reports whether an update would change nothing.
func (n *Node) upToDate(v Voter) bool {
	if n.voters.version() == 0 {
		known, ok := n.leader.known.ByID(v.Key.ID)
		return v.Key.DirectoryID.IsZero() || ok && sameVoter(known, v) // one without a directory cannot be upgraded anyway
	}
	current, _ := n.voters.current().ByID(v.Key.ID)
	return sameVoter(current, v)
}

// refuseChange judges a change of one voter before anything is done for it. Kafka's tools send no cluster id, which is
// accepted here.
func (n *Node) refuseChange(cluster *string, c *change) refusal {
	if cluster != nil && *cluster != n.cfg.ClusterID {
		return refuse(InconsistentClusterID, "cluster id %s: this is cluster %s", *cluster, n.cfg.ClusterID)
	}
	if why := n.refuseNonLeader(); why.code != NoError {
		return why
	}
	key, version := c.voter.Key, n.voters.version()
	switch {
	case key.ID < 0:
		return refuse(InvalidRequest, "node id %d: want 0 or more", key.ID)
	case key.DirectoryID.IsZero() && (version > 0 || c.kind != ChangeUpdate):
		return refuse(InvalidRequest, "node %d has no directory id: want that of its metadata log directory", key.ID)
	}
	if c.kind != ChangeRemove {
		if _, ok := Find(c.voter.Endpoints, n.cfg.Listener); !ok {
			return refuse(InvalidRequest, "node %d has no endpoint for listener %s, where the voters reach each other", key.ID, n.cfg.Listener)
		}
	}
	if c.kind == ChangeUpdate {
		if r := c.voter.KRaft; r.Min < 0 || r.Max < r.Min || version < r.Min || version > r.Max {
			return refuse(InvalidRequest, "node %d supports kraft.version %d to %d: the quorum's is %d", key.ID, r.Min, r.Max, version)
		}
	} else if version < 1 {
		return refuse(UnsupportedVersion, "kraft.version is 0: upgrade it to 1 (kafka-features upgrade --feature kraft.version=1) before voters are added or removed")
	}
	if why := n.refuseNow(c.kind); why.code != NoError {
		return why
	}
	return n.refuseVoter(c)
}

// refuseVoter compares a change with the voters in force.
func (n *Node) refuseVoter(c *change) refusal {
	key, set := c.voter.Key, n.voters.current()
	switch current, known := set.ByID(key.ID); {
	case c.kind == ChangeAdd && known && current.Key == key:
		return refuse(DuplicateVoter, "node %s is a voter already", key)
	case c.kind == ChangeAdd && known:
		return refuse(DuplicateVoter, "node %d is a voter with directory id %s: remove that one before its id is used again", key.ID, current.Key.DirectoryID)
	case c.kind != ChangeAdd && !known:
		return refuse(VoterNotFound, "node %d is no voter", key.ID)
	case c.kind != ChangeAdd && current.Key != key && !current.Key.DirectoryID.IsZero():
		return refuse(VoterNotFound, "node %d is a voter with directory id %s, not %s", key.ID, current.Key.DirectoryID, key.DirectoryID)
	case c.kind == ChangeRemove && len(set) == 1:
		return refuse(VoterNotFound, "node %d is the last voter: add another before it is removed", key.ID)
	case c.kind == ChangeAdd:
		return n.refuseNewcomer(key)
	}
	return refusal{}
}

func (n *Node) refuseNonLeader() refusal {
	switch leader := n.clientHeader(NoError).Leader; {
	case n.role == Leader:
		return refusal{}
	case leader != None:
		return refuse(NotLeaderOrFollower, "node %d does not lead: ask node %d, the leader of epoch %d", n.cfg.Self.ID, leader, n.state.Epoch)
	}
	return refuse(NotLeaderOrFollower, "node %d does not lead, nor does it know who does: ask again when a leader is elected", n.cfg.Self.ID)
}

// refuseNow says why the leader can begin no change at this moment; a later request may succeed.
func (n *Node) refuseNow(kind ChangeKind) refusal {
	switch c := n.leader.change; {
	case c != nil && !c.yields(kind):
		return refuse(RequestTimedOut, "another change is under way: %s; try again when it is done", c)
	case n.highWatermark == Unknown:
		return refuse(RequestTimedOut, "epoch %d has not committed its first record yet: try again", n.state.Epoch)
	case n.voters.offset() >= n.highWatermark:
		return refuse(RequestTimedOut, "the voter set at offset %d is not committed yet, the high watermark is %d: it needs %d of its %d voters",
			n.voters.offset(), n.highWatermark, n.voters.current().Majority(), len(n.voters.current()))
	case n.transfer.active():
		return refuse(RequestTimedOut, "the lead is being handed over to node %d: ask it", n.transfer.status.Target.ID)
	}
	return refusal{}
}

// refuseNewcomer says why a replica is not fit to become a voter. A new voter counts at once, and until it has caught up
// every commit may have to wait for it. So it must have had all of the log a fetch timeout ago or later, unlike in Kafka,
// where once in its life is enough.
func (n *Node) refuseNewcomer(key ReplicaKey) refusal {
	i, known := n.leader.observer(key)
	if !known {
		return refuse(RequestTimedOut, "node %s has not fetched from this leader: start it as an observer and wait until it has caught up", key)
	}
	switch p := &n.leader.observers[i]; {
	case slices.ContainsFunc(n.leader.parked, func(f parkedFetch) bool { return f.replica == key && n.now < f.deadline }):
		// It waits for more at this moment, for as long as it asked to.
	case n.now > p.lastFetch.Add(n.cfg.FetchTimeout):
		return refuse(RequestTimedOut, "node %s has not fetched for %v: want at most %v", key, time.Duration(n.now-p.lastFetch).Round(time.Millisecond), n.cfg.FetchTimeout)
	case p.lastCaughtUp == Instant(Unknown) || n.now > p.lastCaughtUp.Add(n.cfg.FetchTimeout):
		return refuse(RequestTimedOut, "node %s is %d offsets behind and had not all of the log within the last %v: wait until it has caught up", key, n.log.end-p.end, n.cfg.FetchTimeout)
	}
	return refusal{}
}

// probe asks the voter's endpoint for its kraft.version range. Only what answers may enter a voter set, which is in force
// at once: an address nobody can reach would make the next election impossible (KAFKA-20661).
func (n *Node) probe(c *change) refusal {
	e, _ := Find(c.voter.Endpoints, n.cfg.Listener)
	to := n.conn(c.voter.Key.ID)
	if !n.idle(to) {
		return refuse(RequestTimedOut, "node %d is being asked something else: try again", c.voter.Key.ID)
	}
	n.beginChange(c)
	if c.kind == ChangeUpdate {
		c.deadline = min(c.deadline, n.now.Add(n.cfg.FetchTimeout/2)) // the voter's next Fetch waits behind its request
	}
	n.transmit(to, e, ApiVersionsRequest{})
	return refusal{}
}

// onApiVersions ends the probe of an endpoint; r is nil if it failed.
func (n *Node) onApiVersions(from *conn, r *ApiVersionsResponse) {
	if n.role != Leader || n.leader.change == nil {
		return
	}
	c := n.leader.change
	if !c.probing() || c.voter.Key.ID != from.id {
		return
	}
	key, version := c.voter.Key, n.voters.version()
	e, _ := Find(c.voter.Endpoints, n.cfg.Listener)
	switch {
	case r == nil:
		n.endChange(refuse(RequestTimedOut, "node %d cannot be reached at %s:%d", key.ID, e.Host, e.Port))
	case r.Error != NoError:
		n.endChange(refuse(RequestTimedOut, "node %d at %s:%d answers ApiVersions with error %d", key.ID, e.Host, e.Port, r.Error))
	case r.KRaft == nil:
		n.endChange(refuse(InvalidRequest, "node %d at %s:%d does not offer kraft.version: it can only be an observer (observer.only=true) or is too old", key.ID, e.Host, e.Port))
	case version < r.KRaft.Min || version > r.KRaft.Max:
		n.endChange(refuse(InvalidRequest, "node %d at %s:%d supports kraft.version %d to %d: the quorum's is %d", key.ID, e.Host, e.Port, r.KRaft.Min, r.KRaft.Max, version))
	case c.kind == ChangeUpdate && *r.KRaft != c.voter.KRaft:
		n.endChange(refuse(InvalidRequest, "node %d says kraft.version %v, what answers at %s:%d says %v", key.ID, c.voter.KRaft, e.Host, e.Port, *r.KRaft))
	case version == 0:
		n.leader.known = n.leader.known.with(c.voter) // static voters: kept for an upgrade
		n.updated(c)
		n.endChange(refusal{})
	default:
		c.voter.KRaft = *r.KRaft
		if c.kind == ChangeAdd {
			if why := n.refuseNewcomer(key); why.code != NoError {
				n.endChange(why)
				return
			}
		}
		n.hold(c)
	}
}

// yields reports whether the change makes way for one of another kind. What a person asks for goes before a voter's own
// correction that is still being probed: one with an unreachable address comes again and again.
func (c *change) yields(to ChangeKind) bool {
	return c.kind == ChangeUpdate && to != ChangeUpdate && c.probing()
}

func (c *change) probing() bool { return c.offset == Unknown && !c.held }

func (n *Node) beginChange(c *change) {
	if n.leader.change != nil {
		n.endChange(refusal{code: RequestTimedOut})
	}
	c.offset = Unknown
	c.deadline = n.now.Add(n.cfg.RequestTimeout)
	n.leader.change = c
}

// hold puts the record of the change before the writes that wait for a place in the log. The flush of the last group may
// keep it waiting.
func (n *Node) hold(c *change) {
	set := n.voters.current()
	var records []ControlRecord
	switch c.kind {
	case ChangeAdd, ChangeUpdate:
		records = []ControlRecord{Voters{set.with(c.voter)}}
	case ChangeRemove:
		records = []ControlRecord{Voters{set.without(c.voter.Key.ID)}}
	case ChangeUpgrade:
		records = []ControlRecord{KRaftVersion{1}, Voters{c.voters}}
	}
	c.held = true
	n.proposals.jump(records)
}

// changeAppended notes that the record of the change stands in the log, and answers those who need not wait for the commit:
// a voter's next Fetch may be what commits its update.
func (n *Node) changeAppended() {
	c := n.leader.change
	if c == nil || !c.held {
		return
	}
	c.held, c.offset = false, n.voters.offset()
	if c.early {
		n.answerChange(c, refusal{})
	}
}

// changeCommitted ends the change whose record is below the high watermark.
func (n *Node) changeCommitted() {
	if c := n.leader.change; c != nil && c.offset != Unknown && c.offset < n.highWatermark {
		n.endChange(refusal{})
	}
}

// endChange forgets the change and says how it went. A record without a place in the log is withdrawn, so that nothing
// comes of a change that was called off; one that has its place stays there, and may be committed later.
func (n *Node) endChange(why refusal) {
	c := n.leader.change
	n.leader.change = nil
	if c.held {
		n.proposals.withdraw()
	}
	if c.offset != Unknown && c.early {
		return // answered before
	}
	n.answerChange(c, why)
}

// changeTimedOut ends the change at its deadline.
func (n *Node) changeTimedOut() {
	switch c := n.leader.change; {
	case c.offset != Unknown:
		n.endChange(refuse(RequestTimedOut, "%s is in the log at offset %d but was not committed within %v: it may be yet, look at the voters", c, c.offset, n.cfg.RequestTimeout))
	case c.held:
		n.endChange(refuse(RequestTimedOut, "the disk of node %d took no record within %v: nothing was changed", n.cfg.Self.ID, n.cfg.RequestTimeout))
	default:
		e, _ := Find(c.voter.Endpoints, n.cfg.Listener)
		n.endChange(refuse(RequestTimedOut, "node %d did not answer at %s:%d within %v: nothing was changed", c.voter.Key.ID, e.Host, e.Port, n.cfg.RequestTimeout))
	}
}

// abandonChange answers for the change of a leader that has left office.
func (n *Node) abandonChange(c *change) {
	switch {
	case c == nil || c.offset != Unknown && c.early:
	case c.offset != Unknown:
		n.answerChange(c, refuse(NotLeaderOrFollower, "node %d lost the lead before %s was committed: it may be yet, look at the voters", n.cfg.Self.ID, c))
	default:
		n.answerChange(c, refuse(NotLeaderOrFollower, "node %d lost the lead: nothing was changed", n.cfg.Self.ID))
	}
}

func (n *Node) answerChange(c *change, why refusal) {
	switch c.kind {
	case ChangeAdd:
		n.answer(c.id, AddRaftVoterResponse{Error: why.code, Message: why.message})
	case ChangeRemove:
		n.answer(c.id, RemoveRaftVoterResponse{Error: why.code, Message: why.message})
	case ChangeUpdate:
		n.answer(c.id, UpdateRaftVoterResponse{n.header(why.code)}) // it has no field for a message
	case ChangeUpgrade:
		n.answer(c.id, UpgradeResult{Error: why.code, Message: why.message})
	}
}

func (c *change) String() string {
	switch c.kind {
	case ChangeAdd:
		return "the addition of voter " + c.voter.Key.String()
	case ChangeRemove:
		return "the removal of voter " + c.voter.Key.String()
	case ChangeUpdate:
		return "an update of voter " + c.voter.Key.String()
	case ChangeUpgrade:
	}
	return "the upgrade of kraft.version"
}

// onUpgrade raises kraft.version from 0 to 1. The static voters have told this leader who they are; from then on the set
// is what the log says, and what the configuration says is ignored on every node.
func (n *Node) onUpgrade(u UpgradeKRaft) {
	c := &change{id: u.ID, kind: ChangeUpgrade, voter: Voter{Key: NoReplica}}
	current := n.voters.version()
	why := n.refuseNonLeader()
	switch {
	case why.code != NoError:
	case u.ExpectEpoch != 0 && u.ExpectEpoch != n.state.Epoch:
		why = refuse(NotLeaderOrFollower, "epoch is %d, expected %d", n.state.Epoch, u.ExpectEpoch)
	case u.Version == current:
		n.answerChange(c, refusal{})
		return
	case u.Version < current:
		why = refuse(InvalidUpdateVersion, "kraft.version is %d and cannot go back to %d", current, u.Version)
	case u.Version > min(n.cfg.KRaft.Max, 1):
		why = refuse(InvalidUpdateVersion, "kraft.version %d: node %d supports up to %d", u.Version, n.cfg.Self.ID, min(n.cfg.KRaft.Max, 1))
	default:
		if why = n.refuseNow(c.kind); why.code == NoError {
			c.voters, why = n.upgradedVoters(u.Version)
		}
	}
	if why.code != NoError {
		n.answerChange(c, why)
		return
	}
	n.beginChange(c)
	n.hold(c)
}

// upgradedVoters is the voter set that the static voters become: each with what it told this leader of itself.
func (n *Node) upgradedVoters(version int16) (VoterSet, refusal) {
	var set VoterSet
	for _, v := range n.voters.current() {
		entry, known := n.leader.known.ByID(v.Key.ID)
		if v.Key.ID == n.cfg.Self.ID {
			entry, known = n.ownEntry(), !n.cfg.Self.DirectoryID.IsZero()
		}
		switch {
		case !known:
			return nil, refuse(InvalidUpdateVersion, "node %d has not told its directory id to this leader: it must run, have one, and support kraft.version %d", v.Key.ID, version)
		case version < entry.KRaft.Min || version > entry.KRaft.Max:
			return nil, refuse(InvalidUpdateVersion, "node %d supports kraft.version %d to %d: want %d", v.Key.ID, entry.KRaft.Min, entry.KRaft.Max, version)
		}
		set = append(set, entry)
	}
	return set, refusal{}
}
