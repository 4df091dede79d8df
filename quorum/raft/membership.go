package raft

import (
	"fmt"
	"slices"
)

// voterHistory holds every voter set and kraft.version that the log teaches, with its offset, so that a truncation undoes
// them. A set is in force as soon as it is appended, committed or not (KIP-853).
type voterHistory struct {
	static   VoterSet
	sets     []votersAt
	versions []versionAt
}

type votersAt struct {
	offset int64
	set    VoterSet
}

type versionAt struct {
	offset  int64
	version int16
}

func newVoterHistory(cfg Config) (voterHistory, error) {
	h := voterHistory{static: cfg.StaticVoters}
	for _, c := range cfg.Log.Control {
		h.add(c.Offset, c.Record)
	}
	for _, s := range h.sets {
		if _, err := NewVoterSet(s.set...); err != nil {
			return h, fmt.Errorf("voters at offset %d: %w", s.offset, err)
		}
	}
	return h, nil
}

func (h *voterHistory) add(offset int64, r ControlRecord) {
	switch r := r.(type) {
	case Voters:
		h.sets = append(h.sets, votersAt{offset, r.Set})
	case KRaftVersion:
		h.versions = append(h.versions, versionAt{offset, r.Version})
	case LeaderChange:
	}
}

func (h *voterHistory) truncate(end int64) {
	h.sets = slices.DeleteFunc(h.sets, func(s votersAt) bool { return s.offset >= end })
	h.versions = slices.DeleteFunc(h.versions, func(v versionAt) bool { return v.offset >= end })
}

// current is the set in force. Static voters count at kraft.version 0 only: their entries have no directory id, so from
// version 1 on they would make a voter of a replica that lost its disk.
func (h *voterHistory) current() VoterSet {
	if len(h.sets) == 0 {
		if h.version() > 0 {
			return nil
		}
		return h.static
	}
	return h.sets[len(h.sets)-1].set
}

// offset is where the current set stands in the log; -1 for one of the bootstrap checkpoint or the configuration.
func (h *voterHistory) offset() int64 {
	if len(h.sets) == 0 {
		return -1
	}
	return h.sets[len(h.sets)-1].offset
}

func (h *voterHistory) version() int16 {
	if len(h.versions) == 0 {
		return 0
	}
	return h.versions[len(h.versions)-1].version
}

// controlAppended learns from a control batch that is being appended.
func (n *Node) controlAppended(b Batch) bool {
	for i, r := range b.Control {
		if v, ok := r.(KRaftVersion); ok && (v.Version < n.cfg.KRaft.Min || v.Version > n.cfg.KRaft.Max) {
			n.fatal(InconsistentState, "the log raises kraft.version to %d at offset %d: this version supports %d to %d",
				v.Version, b.BaseOffset+int64(i), n.cfg.KRaft.Min, n.cfg.KRaft.Max)
			return false
		}
		n.voters.add(b.BaseOffset+int64(i), r)
	}
	return true
}

// changeAppended notes where the record of the pending voter change stands.
func (l *leaderState) changeAppended(n *Node) {
	if l.change != nil && l.change.offset == recordHeld {
		l.change.offset = n.voters.offset()
	}
}

// votersChanged follows the newest voter set after an append or a truncation.
func (n *Node) votersChanged() {
	set := n.voters.current()
	n.isVoter = set.Contains(n.cfg.Self)
	if l := n.leader; l != nil && !sameSet(l.set, set) {
		l.track(n)
	}
}

func sameSet(a, b VoterSet) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// sameVoter reports whether two entries say the same; the order of endpoints means nothing.
func sameVoter(a, b Voter) bool {
	if a.Key != b.Key || a.KRaft != b.KRaft || len(a.Endpoints) != len(b.Endpoints) {
		return false
	}
	for _, e := range a.Endpoints {
		if !slices.Contains(b.Endpoints, e) {
			return false
		}
	}
	return true
}

// ownEntry is what this replica's entry in the voter set should say.
func (n *Node) ownEntry() Voter {
	return Voter{Key: n.cfg.Self, Endpoints: n.cfg.Endpoints, KRaft: n.cfg.KRaft}
}

// openingRecords are the first records of a leader's epoch, in one control batch. The first leader of a quorum copies
// kraft.version and the voters from the bootstrap checkpoint into the log, and each leader corrects its own entry.
func (n *Node) openingRecords(granting []NodeID) []ControlRecord {
	set := n.voters.current()
	change := LeaderChange{Leader: n.cfg.Self.ID, Granting: granting}
	for _, v := range set {
		change.Voters = append(change.Voters, v.Key.ID)
	}
	records := []ControlRecord{change}
	if n.voters.version() < 1 {
		return records
	}
	own, _ := set.ByID(n.cfg.Self.ID)
	if n.voters.offset() >= 0 && sameVoter(own, n.ownEntry()) {
		return records
	}
	return append(records, KRaftVersion{n.voters.version()}, Voters{replaceVoter(set, n.ownEntry())})
}

func replaceVoter(set VoterSet, entry Voter) VoterSet {
	set = slices.Clone(set)
	for i, v := range set {
		if v.Key.ID == entry.Key.ID {
			set[i] = entry
		}
	}
	return set
}

// voterChange is the one change of the voter set that may be under way.
type voterChange struct {
	id       RequestID
	voter    Voter
	offset   int64 // of its record; Unknown while the new endpoint is being probed
	deadline Instant
}

func (c *voterChange) appended() bool { return c.offset != Unknown }

// onUpdateVoter lets a voter correct its endpoints and kraft.version range. The new endpoint is probed before the record
// is appended, since a set is in force at once: an address nobody can reach would make the next election impossible.
func (n *Node) onUpdateVoter(id RequestID, r UpdateRaftVoterRequest) {
	fail := func(code ErrorCode) { n.answer(id, UpdateRaftVoterResponse{n.header(code)}) }
	if code := n.refuseCluster(r.ClusterID); code != NoError {
		n.answer(id, UpdateRaftVoterResponse{topError(code)})
		return
	}
	if code := n.refuseLeaderRPC(r.Epoch); code != NoError {
		fail(code)
		return
	}
	version := n.voters.version()
	endpoint, reachable := Find(r.Voter.Endpoints, n.cfg.Listener)
	current, known := n.voters.current().ByID(r.Voter.Key.ID)
	switch v := r.Voter; {
	case v.Key.ID < 0 || version > 0 && v.Key.DirectoryID.IsZero() || v.KRaft.Min < 0 || v.KRaft.Max < v.KRaft.Min || !reachable:
		fail(InvalidRequest)
	case version == 0:
		fail(NoError) // static voters: there is no set to correct, and nothing needs to be known before an upgrade
	case n.leader.change != nil || n.transfer.active() || n.highWatermark == Unknown || n.voters.offset() >= n.highWatermark:
		fail(RequestTimedOut) // one change at a time, and none before the epoch is settled
	case !known || current.Key != v.Key:
		fail(VoterNotFound)
	case version < v.KRaft.Min || version > v.KRaft.Max:
		fail(InvalidRequest)
	case sameVoter(current, v):
		fail(NoError)
	default:
		c := n.conn(v.Key.ID)
		if !n.idle(c) {
			fail(RequestTimedOut)
			return
		}
		n.transmit(c, endpoint, ApiVersionsRequest{})
		n.leader.change = &voterChange{id: id, voter: v, offset: Unknown, deadline: n.now.Add(n.cfg.RequestTimeout)}
	}
}

// onApiVersions ends the probe of a new endpoint; r is nil if it failed.
func (n *Node) onApiVersions(c *conn, r *ApiVersionsResponse) {
	if n.role != Leader || n.leader.change == nil || n.leader.change.appended() || n.leader.change.voter.Key.ID != c.id {
		return
	}
	l := n.leader
	change := l.change
	switch v := change.voter; {
	case r == nil || r.Error != NoError || n.voters.offset() >= n.highWatermark || n.transfer.active():
		n.endVoterChange(RequestTimedOut)
	case r.KRaft == nil || *r.KRaft != v.KRaft:
		n.endVoterChange(InvalidRequest)
	default:
		q := &n.proposals
		q.held = append(q.held, proposal{control: []ControlRecord{Voters{replaceVoter(n.voters.current(), v)}}})
		if len(q.held) == 1 {
			q.lingerUntil = n.now
		}
		// The answer comes before the commit: the voter's next Fetch may be what commits it.
		n.answer(change.id, UpdateRaftVoterResponse{n.header(NoError)})
		change.offset = recordHeld
		if p := l.voter(v.Key); p != nil {
			l.markSeen(n, p)
		}
	}
}

// recordHeld is the offset of a voter change whose record waits for the flush before it.
const recordHeld int64 = 1<<63 - 1

// voterChangeCommitted ends the change whose record is below the high watermark.
func (n *Node) voterChangeCommitted() {
	if c := n.leader.change; c != nil && c.appended() && c.offset < n.highWatermark {
		n.leader.change = nil
	}
}

// endVoterChange forgets the change. If its record was appended already it stays, and may still be committed.
func (n *Node) endVoterChange(code ErrorCode) {
	if c := n.leader.change; !c.appended() {
		n.answer(c.id, UpdateRaftVoterResponse{n.header(code)})
	}
	n.leader.change = nil
}

// sendUpdateVoter tells the leader when the voter set has us wrong. It goes before a Fetch, once the leader's epoch is
// committed (before that it could only refuse), and then at most every two fetch timeouts.
func (n *Node) sendUpdateVoter() bool {
	f := &n.follower
	if n.role != Follower || !n.isVoter || f.updated || n.voters.version() < 1 || !f.hasFetched {
		return false
	}
	if own, _ := n.voters.current().ByID(n.cfg.Self.ID); sameVoter(own, n.ownEntry()) {
		return false
	}
	start, ok := n.log.startOf(n.state.Epoch)
	if !ok || n.highWatermark <= start {
		return false
	}
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
	n.transmit(c, e, UpdateRaftVoterRequest{ClusterID: n.clusterID, Epoch: n.state.Epoch, Voter: n.ownEntry()})
	return true
}

func (n *Node) onUpdateVoterResponse(c *conn, r UpdateRaftVoterResponse) {
	if r.Error == NoError {
		r.Error, r.TopError = r.TopError, NoError // this RPC has one error code for both levels
	}
	if r.Error == InvalidRequest { // our endpoints are not to the leader's liking: no reason to die
		n.backOff(c)
		return
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
	default:
		n.backOff(c)
	}
}

// refuseMembership answers requests to add or remove voters. Kafka's tools send no cluster id, which is accepted here.
func (n *Node) refuseMembership(cluster *string, what string) (ErrorCode, string) {
	if cluster != nil && *cluster != n.cfg.ClusterID {
		return InconsistentClusterID, fmt.Sprintf("cluster id %s: this is cluster %s", *cluster, n.cfg.ClusterID)
	}
	return UnsupportedVersion, what + " is not supported yet"
}
