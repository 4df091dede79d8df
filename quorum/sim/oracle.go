package sim

import (
	"bytes"
	"slices"
	"sort"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// oracle checks the invariants after every event. It knows everything and forgets nothing.
//
//	SingleLeader            an epoch never has two leaders, by quorum-state files, roles and messages, nor one leader twice
//	MonotonicEpoch          a member's epoch never falls, restarts included
//	OneVotePerEpoch         a vote, once given or written, is never given to another in that epoch, restarts included
//	PersistedBeforeSent     no message tells an epoch, vote or leadership that a power cut could take back
//	UniquePosition          (offset, epoch) names one batch for ever, and the same batches before it
//	MonotonicHighWatermark  it never falls within a process, nor what clients are shown
//	MajorityReachedHighWatermark  what is committed stands durably on a majority of the voters in force where it was committed
//	EpochStartFirst         a new leader takes nothing for committed before the first record of its epoch is
//	NoLogDivergence         below their high watermarks all logs are equal, for ever
//	NoTruncationBelowHW     no log ends below its own high watermark
//	LeaderHasAllAckedValues a new leader has all that was committed by earlier ones
//	FlushedIsDurable        no fetch offset of a voter, no log end that a vote is asked for, and no flushed end, exceeds what is durable
//	OneFetchInFlight        a follower waits for one Fetch at a time; one to another server it gives up for its leader
//	AckedOnce               an acknowledged append stands where the answer said; none is doubled, or out of its producer's order
//	CommittedPrefix         clients read what is committed, and nothing else
//	StatesMatchRoles        an observer never campaigns or leads
//	OneChangeAtATime        voter sets that follow each other in a log differ by one voter; a leader appends one only when the
//	                        one before, and its own epoch's first record, are committed
//	VotersFollowLog         the voters and the kraft.version a member goes by are those of the newest such records in its log
//	EveryRequestAnswered    what one member asks another is answered, if only to say no, in the time that was allowed for it
type oracle struct {
	w       *world
	deaf    []string // invariants that are not looked at (planted_test.go)
	leaders map[raft.Epoch]raft.NodeID
	offices map[raft.Epoch]bool // epochs that had a leader in office
	votes   map[ballot]raft.NodeID
	// chains holds the chain of every batch that ever stood in any log, by base offset and epoch.
	chains map[raft.OffsetAndEpoch]uint64
	// committed is every batch that was ever below a high watermark, and committedIn the epoch whose leader brought it
	// there: often a later one than its own.
	committed   []*batch
	committedIn []raft.Epoch
	producers   map[int64]int32 // next sequence of each producer among the committed
	values      map[string]place
	offsets     map[string][]int64 // where the committed records of each key stand
	// For statistics: who won, and who had resigned in whose favour.
	elections    []election
	resignations map[raft.Epoch]resignation
}

type election struct {
	epoch  raft.Epoch
	leader raft.NodeID
	at     time.Duration
}

// resignation is the first EndQuorumEpoch of a leader.
type resignation struct {
	leader, successor raft.NodeID
	at                time.Duration
}

// place is where a value was committed, and when.
type place struct {
	offset int64
	at     time.Duration
}

type ballot struct {
	voter raft.ReplicaKey
	epoch raft.Epoch
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, leaders: map[raft.Epoch]raft.NodeID{}, offices: map[raft.Epoch]bool{}, votes: map[ballot]raft.NodeID{},
		chains: map[raft.OffsetAndEpoch]uint64{}, producers: map[int64]int32{}, values: map[string]place{}, offsets: map[string][]int64{},
		resignations: map[raft.Epoch]resignation{},
	}
}

// seen is what the oracle remembers of a process.
type seen struct {
	role          raft.Role
	voter         bool
	voters        raft.VoterSet // by its own word, as compared with its log last
	known         int64         // the largest high watermark it ever knew
	sets          int
	versions      int
	votersIn      *batch
	epoch         raft.Epoch
	leader        raft.NodeID
	highWatermark int64
	handoff       raft.HandoffPhase
	belowReserve  bool
	full          bool
	ballast       bool
	voted         raft.NodeID
	shown         int64
	segments      int
	logStart      int64
	download      *raft.DownloadStatus
	checked       int // batches below the high watermark that were compared
	second        time.Duration
	fetch         fetchSeen
}

// fetchSeen is the Fetch that a process waits for. Every change of role forgets it; a replica that looks for a leader may
// pass through several roles in one step, so only a follower's is believed.
type fetchSeen struct {
	correlation raft.Correlation // 0: none
	to          raft.NodeID
	until       raft.Instant
}

func newSeen() seen { return seen{leader: raft.None, voted: raft.None, highWatermark: raft.Unknown} }

func (s *seen) outcome(c raft.Correlation) {
	if s.fetch.correlation == c {
		s.fetch = fetchSeen{}
	}
}

// local takes an answer to something that the simulation asked without a connection.
func (o *oracle) local(a replica.Answer) {
	if h, ok := a.Result.(raft.HandoffAccepted); ok && h.Refusal != "" {
		o.w.saw(handoffRefused)
	}
}

// committedEnd is the offset up to which anything was ever committed.
func (o *oracle) committedEnd() int64 {
	if n := len(o.committed); n > 0 {
		return o.committed[n-1].last + 1
	}
	return 0
}

// started looks at a process that has just read its directory.
func (o *oracle) started(m *member) {
	m.disk.log.grown, m.disk.cuts = 0, 0
	if m.replica.Dir().Recovery().Torn.Bytes > 0 {
		o.w.saw(tornTail)
	}
	switch m.replica.Status().Role {
	case raft.Candidate:
		o.w.saw(candidateRestarted)
	case raft.Resigned:
		o.w.saw(leaderRestarted)
	case raft.Unattached, raft.Prospective, raft.Leader, raft.Follower:
	}
	m.seen.shown = m.replica.HighWatermark()
	if m.seen.shown > o.committedEnd() {
		o.w.violate("MajorityReachedHighWatermark", "node %d starts with high watermark %d, committed is %d", m.id, m.seen.shown, o.committedEnd())
	}
}

// look checks a member after something happened to it.
func (o *oracle) look(m *member) {
	st := m.replica.Status()
	before := m.seen
	s := &m.seen
	s.role, s.epoch, s.leader, s.highWatermark = st.Role, st.Election.Epoch, st.Election.Leader, st.HighWatermark
	if s.voter = has(o.w.votersOf(m), m.key); s.voter != st.IsVoter {
		o.w.violate("VotersFollowLog", "node %d takes itself for a voter: %v; by its log it is one: %v", m.id, st.IsVoter, s.voter)
	}

	if s.handoff = st.Handoff.Phase; s.handoff != before.handoff {
		switch s.handoff {
		case raft.HandoffSucceeded:
			o.w.saw(handoffSucceeded)
		case raft.HandoffAborted:
			o.w.saw(handoffAborted)
		case raft.HandoffNone, raft.HandoffConverging, raft.HandoffPausing, raft.HandoffResigned, raft.HandoffFailed:
		}
	}
	if st.BelowReserve && !before.belowReserve {
		o.w.saw(belowReserve)
	}
	if st.Full && !before.full {
		o.w.saw(noRoomForEpoch)
	}
	s.voted = st.Election.Voted.ID
	if st.Full && before.full && s.voted != raft.None && s.voted != m.id && (s.voted != before.voted || s.epoch != before.epoch) {
		o.w.saw(votedWithoutRoom)
	}
	s.belowReserve, s.full, s.ballast = st.BelowReserve, st.Full, m.replica.Dir().HasBallast()
	if before.ballast && !s.ballast {
		o.w.saw(ballastReleased)
	}
	if s.epoch < before.epoch {
		o.w.violate("MonotonicEpoch", "node %d fell from epoch %d to %d", m.id, before.epoch, s.epoch)
	}
	if s.role != before.role || s.epoch != before.epoch || s.leader != before.leader {
		s.fetch = fetchSeen{}
	}
	if s.leader != raft.None {
		o.leads(m, s.leader, s.epoch, "believes in")
	}
	s.known = max(s.known, s.highWatermark)
	if !s.voter && s.role != raft.Unattached && s.role != raft.Follower && !o.leaving(m) {
		o.w.violate("StatesMatchRoles", "node %d is no voter, yet a %v", m.id, s.role)
	}
	if s.role == raft.Leader && !s.voter && (before.voter || before.role != raft.Leader) {
		o.w.saw(leftInOffice)
	}
	if d := m.disk.durableState; d == nil || d.Epoch != s.epoch {
		o.w.violate("MonotonicEpoch", "node %d is in epoch %d, its quorum-state says %+v", m.id, s.epoch, d)
	}
	if s.role == raft.Leader && (before.role != raft.Leader || before.epoch != s.epoch) {
		o.elected(m)
	}
	if s.role == raft.Leader && s.highWatermark != raft.Unknown && s.highWatermark <= st.EpochStart {
		o.w.violate("EpochStartFirst", "node %d, new leader of epoch %d, shows high watermark %d before its epoch's first record at %d has committed", m.id, s.epoch, s.highWatermark, st.EpochStart)
	}
	o.lookAtLog(m, &st)
	o.lookAtVoters(m, &st)
	o.lookAtHighWatermark(m, before)
	o.lookAtLogStart(m, &st, before.role)
}

// leaving reports whether a member may act as a voter though its log's newest set lacks it: an earlier one has it, and it
// does not know that the newest is committed; or it led, and its office has an end.
func (o *oracle) leaving(m *member) bool {
	l := &m.disk.log
	n := len(l.sets)
	if n == 0 {
		return false
	}
	had := m.founder
	for _, b := range l.sets[:n-1] {
		had = had || has(b.voters, m.key)
	}
	return had && (l.sets[n-1].last >= m.seen.known || m.seen.role == raft.Leader || m.seen.role == raft.Resigned)
}

// leads notes who leads an epoch.
func (o *oracle) leads(m *member, leader raft.NodeID, epoch raft.Epoch, how string) {
	known, ok := o.leaders[epoch]
	if !ok {
		o.leaders[epoch] = leader
	} else if known != leader {
		o.w.violate("SingleLeader", "epoch %d: node %d %s leader %d, others know leader %d", epoch, m.id, how, leader, known)
	}
}

// elected checks a new leader's log.
func (o *oracle) elected(m *member) {
	o.w.counts.elections++
	o.elections = append(o.elections, election{m.seen.epoch, m.id, o.w.now})
	o.leads(m, m.id, m.seen.epoch, "became")
	if o.offices[m.seen.epoch] {
		o.w.violate("SingleLeader", "node %d takes office in epoch %d again", m.id, m.seen.epoch)
	}
	o.offices[m.seen.epoch] = true
	// A candidate may win belatedly, when a later epoch has committed already: only what earlier ones did counts.
	n := sort.Search(len(o.committed), func(i int) bool { return o.committedIn[i] >= m.seen.epoch })
	if n == 0 {
		return
	}
	if b := o.committed[n-1]; !held(m, b) {
		o.w.violate("LeaderHasAllAckedValues", "node %d leads epoch %d without the committed %s; its log ends at %d", m.id, m.seen.epoch, b.where(), m.disk.log.end)
	}
}

func held(m *member, b *batch) bool {
	ok, _ := m.disk.log.holds(b)
	return ok
}

// lookAtLog takes in what was appended, and checks what the replica says about its log.
func (o *oracle) lookAtLog(m *member, st *raft.Status) {
	l := &m.disk.log
	if m.disk.cuts > 0 {
		m.disk.cuts = 0
		o.w.saw(truncated)
	}
	if n := len(l.segments); n > m.seen.segments && m.seen.segments > 0 {
		o.w.saw(segmentRolled)
	}
	m.seen.segments = len(l.segments)
	if len(l.sets) < m.seen.sets {
		o.w.saw(setUndone)
	}
	m.seen.sets = len(l.sets)
	for ; l.grown < len(l.batches); l.grown++ {
		b := l.batches[l.grown]
		at := raft.OffsetAndEpoch{Offset: b.base, Epoch: b.epoch}
		if known, ok := o.chains[at]; !ok {
			o.chains[at] = b.chain
		} else if known != b.chain {
			o.w.violate("UniquePosition", "node %d has another %s, or another batch before it, than some log had", m.id, b.where())
		}
		if l.grown > 0 && (l.batches[l.grown-1].epoch > b.epoch || l.batches[l.grown-1].last+1 != b.base) {
			o.w.violate("UniquePosition", "node %d appended %s after %s", m.id, b.where(), l.batches[l.grown-1].where())
		}
		if b.voters != nil {
			o.changes(m, st, b)
		}
	}
	if st.LogEnd.Offset != l.end {
		o.w.violate("NoIllegalState", "node %d says its log ends at %d, on disk it ends at %d", m.id, st.LogEnd.Offset, l.end)
	}
	if st.FlushedEnd > l.durableEnd() {
		o.w.violate("FlushedIsDurable", "node %d counts on offset %d being flushed, durable is %d", m.id, st.FlushedEnd, l.durableEnd())
	}
}

// changes checks a batch that changes the voters on its way into a log.
func (o *oracle) changes(m *member, st *raft.Status, b *batch) {
	l := &m.disk.log
	i := slices.Index(l.sets, b)
	var before *batch
	var set raft.VoterSet
	switch {
	case i > 0:
		before = l.sets[i-1]
		set = before.voters
	case m.founder || o.w.plan.kraftVersion == 0:
		set = o.w.initial
	default:
		return // the first that it hears of
	}
	if n := differences(set, b.voters); n > 1 {
		o.w.violate("OneChangeAtATime", "node %d has voters %v after %v in %s", m.id, b.voters, set, b.where())
	}
	if m.seen.role != raft.Leader || b.epoch != m.seen.epoch || b.base == st.EpochStart {
		return
	}
	if o.w.plan.kraftVersion == 0 && before == nil {
		o.w.saw(upgraded)
	}
	for _, g := range o.w.graves {
		for _, v := range b.voters {
			if v.Key.ID == g.key.ID && v.Key != g.key && !has(set, v.Key) {
				o.w.saw(votedInAgain)
			}
		}
	}
	if hw := m.seen.highWatermark; hw <= st.EpochStart || before != nil && before.last >= hw {
		o.w.violate("OneChangeAtATime", "node %d changes the voters to %v in %s; its high watermark is %d, its epoch starts at %d, the last set stands in %v", m.id, b.voters, b.where(), hw, st.EpochStart, before)
	}
}

// lookAtVoters compares the voters, and the kraft.version, that a member goes by with the log that it goes by.
func (o *oracle) lookAtVoters(m *member, st *raft.Status) {
	s, newest := &m.seen, m.disk.log.newestSet()
	if version := o.w.versionOf(m); st.KRaftVersion != version {
		o.w.violate("VotersFollowLog", "node %d goes by kraft.version %d, its log says %d", m.id, st.KRaftVersion, version)
	}
	if n := len(m.disk.log.versions); n < s.versions {
		o.w.saw(upgradeUndone)
	}
	s.versions = len(m.disk.log.versions)
	if sameSet(s.voters, st.Voters) && s.votersIn == newest {
		return
	}
	s.voters, s.votersIn = st.Voters, newest
	if set := o.w.votersOf(m); !slices.EqualFunc(st.Voters, set, func(a, b raft.Voter) bool { return a.Key == b.Key && slices.Equal(a.Endpoints, b.Endpoints) }) {
		o.w.violate("VotersFollowLog", "node %d goes by the voters %v, its log says %v", m.id, st.Voters, set)
	}
}

func sameSet(a, b raft.VoterSet) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// lookAtHighWatermark compares what became committed with what was committed before anywhere.
func (o *oracle) lookAtHighWatermark(m *member, before seen) {
	s := &m.seen
	// A new leader forgets the high watermark until its epoch commits (PR-02), and remembers it again as a follower.
	lost := s.highWatermark == raft.Unknown && s.role == raft.Leader
	if s.highWatermark < before.highWatermark && !lost {
		o.w.violate("MonotonicHighWatermark", "node %d, a %v of epoch %d: from %d to %d", m.id, s.role, s.epoch, before.highWatermark, s.highWatermark)
	}
	if shown := m.replica.HighWatermark(); shown < s.shown {
		o.w.violate("MonotonicHighWatermark", "node %d showed clients %d, now %d", m.id, s.shown, shown)
	} else {
		s.shown = shown
	}
	hw := max(s.highWatermark, s.shown)
	l := &m.disk.log
	if hw > l.end {
		o.w.violate("NoTruncationBelowHW", "node %d: high watermark %d, its log ends at %d", m.id, hw, l.end)
		return
	}
	for ; s.checked < len(l.batches) && l.batches[s.checked].last < hw; s.checked++ {
		o.commit(m, before.voters, s.checked, l.batches[s.checked])
	}
	if s.checked < len(l.batches) && l.batches[s.checked].base < hw {
		o.w.violate("NoIllegalState", "node %d: high watermark %d lies inside %s", m.id, hw, l.batches[s.checked].where())
	}
	if s.checked > 0 && (s.checked > len(l.batches) || l.batches[s.checked-1].chain != o.committed[s.checked-1].chain) {
		o.w.violate("NoTruncationBelowHW", "node %d has changed its log below its high watermark %d", m.id, hw)
	}
}

// commit is the n-th batch of a log passing below a high watermark. It counts under the newest voters, or under those before
// the step: it may append new ones after it has counted.
func (o *oracle) commit(m *member, earlier raft.VoterSet, n int, b *batch) {
	if n < len(o.committed) {
		if c := o.committed[n]; c.chain != b.chain {
			o.w.violate("NoLogDivergence", "node %d has %s below its high watermark, others committed %s", m.id, b.where(), c.where())
		}
		return
	}
	voters := o.w.votersOf(m)
	if copies := o.w.copies(voters, b); copies < voters.Majority() && (len(earlier) == 0 || o.w.copies(earlier, b) < earlier.Majority()) {
		o.w.violate("MajorityReachedHighWatermark", "node %d takes %s for committed, %d of %d voters hold it durably", m.id, b.where(), copies, len(voters))
	}
	o.committed, o.committedIn = append(o.committed, b), append(o.committedIn, m.seen.epoch)
	o.w.counts.committed++
	if b.voters != nil && m.seen.role == raft.Leader && !has(b.voters, m.key) {
		o.w.saw(leaderRemoved)
	}
	if b.IsControl() {
		return
	}
	if b.ProducerID >= 0 {
		if next := o.producers[b.ProducerID]; b.BaseSequence != next {
			o.w.violate("AckedOnce", "%s of producer %d has sequence %d, want %d: doubled, lost or out of order", b.where(), b.ProducerID, b.BaseSequence, next)
		}
		o.producers[b.ProducerID] = b.BaseSequence + b.Count
	}
	for offset, r := range records(b.raw) {
		if first, ok := o.values[r.value]; ok {
			o.w.violate("AckedOnce", "%q stands at offset %d and again at %d", r.value, first.offset, b.base+int64(offset))
		}
		o.values[r.value] = place{b.base + int64(offset), o.w.now}
		o.recordAt(r.key, b.base+int64(offset))
	}
}

// persisted hears of every durable content of quorum-state.
func (o *oracle) persisted(m *member, s raft.ElectionState) {
	if s.Leader != raft.None {
		o.leads(m, s.Leader, s.Epoch, "wrote down")
	}
	if s.Voted.ID != raft.None {
		o.votesFor(m, s.Epoch, s.Voted.ID, "wrote down")
	}
}

func (o *oracle) votesFor(m *member, epoch raft.Epoch, candidate raft.NodeID, how string) {
	key := ballot{m.key, epoch}
	known, ok := o.votes[key]
	if !ok {
		o.votes[key] = candidate
	} else if known != candidate {
		o.w.violate("OneVotePerEpoch", "node %d %s a vote for %d in epoch %d, it had voted for %d", m.id, how, candidate, epoch, known)
	}
}

// sends checks a request on its way out.
func (o *oracle) sends(m *member, s raft.Send) {
	durable := m.disk.durableState
	switch r := s.Request.(type) {
	case raft.VoteRequest:
		if r.PreVote {
			return
		}
		o.votesFor(m, r.Epoch, m.id, "asks for votes, hence gave itself")
		if durable == nil || durable.Epoch != r.Epoch || durable.Voted.ID != m.id {
			o.w.violate("PersistedBeforeSent", "node %d campaigns in epoch %d, its quorum-state says %+v", m.id, r.Epoch, durable)
		}
		// The candidacy survives a power cut: so must the log that it is based on.
		if end := m.disk.log.durableEnd(); r.Last.Offset > end {
			o.w.violate("FlushedIsDurable", "node %d campaigns in epoch %d with a log that ends at %d, durable is %d", m.id, r.Epoch, r.Last.Offset, end)
		}
	case raft.BeginQuorumEpochRequest:
		if durable == nil || durable.Epoch != r.Epoch || durable.Leader != m.id {
			o.w.violate("PersistedBeforeSent", "node %d announces itself in epoch %d, its quorum-state says %+v", m.id, r.Epoch, durable)
		}
	case raft.EndQuorumEpochRequest:
		if _, ok := o.resignations[r.Epoch]; !ok && len(r.Successors) > 0 {
			o.resignations[r.Epoch] = resignation{m.id, r.Successors[0].ID, o.w.now}
		}
	case raft.FetchRequest:
		o.fetches(m, s, r)
	case raft.UpdateRaftVoterRequest, raft.AddRaftVoterRequest, raft.RemoveRaftVoterRequest, raft.ApiVersionsRequest: // promise nothing
	case raft.FetchSnapshotRequest:
		o.waits(m, s)
	case raft.DescribeQuorumRequest:
		o.w.violate("NoIllegalState", "node %d sends a %T", m.id, r)
	}
}

func (o *oracle) fetches(m *member, send raft.Send, r raft.FetchRequest) {
	if durable := m.disk.durableState; durable == nil || durable.Epoch != r.Epoch {
		o.w.violate("PersistedBeforeSent", "node %d fetches in epoch %d, its quorum-state says %+v", m.id, r.Epoch, durable)
	}
	if end := m.disk.log.durableEnd(); m.voter && r.Offset > end {
		o.w.violate("FlushedIsDurable", "node %d fetches from offset %d, durable is %d", m.id, r.Offset, end)
	}
	if m.voter && r.Replica.ID == m.id && r.Offset < m.disk.log.end {
		o.w.saw(keptInTouch)
	}
	o.waits(m, send)
}

// waits notes that a member waits for the answer to a Fetch or FetchSnapshot.
func (o *oracle) waits(m *member, send raft.Send) {
	s, f := &m.seen, m.seen.fetch
	now := m.clock.read(m.stepped) // it may have waited for its disk since, which the core knows only of some waits
	if f.correlation != 0 && now < f.until && s.role == raft.Follower {
		o.w.violate("OneFetchInFlight", "node %d sends Fetch %d, it still waits for %d", m.id, send.Correlation, f.correlation)
	}
	s.fetch = fetchSeen{correlation: send.Correlation, to: send.To.ID, until: now.Add(o.w.plan.requestTimeout)}
}

// heard is a request that a member takes in. Its leader's announcement ends its wait for another server.
func (o *oracle) heard(m *member, r raft.Request) {
	s := &m.seen
	if b, ok := r.(raft.BeginQuorumEpochRequest); ok && b.Epoch == s.epoch && b.Leader == s.leader && s.fetch.to != s.leader {
		s.fetch = fetchSeen{}
	}
}

// looksForForgotten finds requests of other members that wait for their answers longer than they may.
func (o *oracle) looksForForgotten(m *member) {
	if !m.up || m.paused() || m.ended {
		return
	}
	for id, x := range m.requests {
		r, ok := x.payload.(raft.Request)
		if !ok {
			continue // clients are patient
		}
		var patience time.Duration
		switch r := r.(type) {
		case raft.FetchRequest:
			patience = r.MaxWait
		case raft.UpdateRaftVoterRequest, raft.AddRaftVoterRequest, raft.RemoveRaftVoterRequest:
			patience = o.w.plan.requestTimeout
		default: // answered at once
		}
		if waited := o.w.now - max(x.served, m.pausedUntil); waited > 100*time.Millisecond+patience*5/4 { // the slowest clock
			o.w.violate("EveryRequestAnswered", "node %d has not answered request %d after %v: %s", m.id, id, waited, about{r})
			return
		}
	}
}

// answers checks an answer on its way out.
func (o *oracle) answers(m *member, x *exchange, result any) {
	switch r := result.(type) {
	case raft.VoteResponse:
		request := x.payload.(raft.VoteRequest)
		o.markVote(m, request, r)
		if !r.Granted || request.PreVote {
			return
		}
		o.votesFor(m, request.Epoch, request.Replica.ID, "gave")
		if d := m.disk.durableState; d == nil || d.Epoch != request.Epoch || d.Voted.ID != request.Replica.ID {
			o.w.violate("PersistedBeforeSent", "node %d votes for %d in epoch %d, its quorum-state says %+v", m.id, request.Replica.ID, request.Epoch, d)
		}
	case replica.FetchResult:
		if r.Diverging != nil {
			o.w.saw(diverging)
		}
	case replica.ProduceResult:
		op := x.payload.(clientCall).operation.(*appendOp)
		switch r.Error {
		case raft.NoError:
			o.acked(m, op, r.BaseOffset)
		case raft.RequestTimedOut:
			o.w.saw(appendTimedOut)
		case raft.KafkaStorageError:
			o.w.saw(appendWithoutRoom)
		default: // promises nothing
		}
	case replica.ReadResult:
		if r.Error == raft.OffsetNotAvailable {
			o.w.saw(notAvailable)
		}
		o.reads(m, x.payload.(clientCall).offset, r)
	case replica.ListOffsetsResult:
		switch {
		case r.Error == raft.NoError:
			o.w.saw(barrierAnswered)
		case x.waited && r.Error == raft.NotLeaderOrFollower:
			o.w.saw(barrierRefused)
		}
		if r.Error == raft.NoError && r.Offset > o.committedEnd() {
			o.w.violate("CommittedPrefix", "node %d names offset %d as the latest, committed is %d", m.id, r.Offset, o.committedEnd())
		}
	}
}

func (o *oracle) markVote(m *member, request raft.VoteRequest, r raft.VoteResponse) {
	switch voted, ok := o.votes[ballot{m.key, request.Epoch}]; {
	case r.Granted || r.Error != raft.NoError:
	case request.PreVote:
		o.w.saw(preVoteRefused)
	case ok && voted != request.Replica.ID:
		o.w.saw(votedTwiceAsked)
	default:
		o.w.saw(voteRefused)
	}
}

// acked is a positive answer to an append.
func (o *oracle) acked(m *member, op *appendOp, base int64) {
	if m.seen.role != raft.Leader {
		o.w.saw(ackedAfterOffice)
	}
	if op.acked++; op.acked > 1 {
		o.w.saw(appendRepeated)
	}
	b := find(o.committed, base)
	switch {
	case b == nil:
		o.w.violate("AckedOnce", "node %d acknowledged %s at offset %d, committed is %d", m.id, op, base, o.committedEnd())
	case b.base != base || !bytes.Equal(b.raw[21:], op.raw[21:]): // base offset, epoch and CRC stand before the attributes
		o.w.violate("AckedOnce", "node %d acknowledged %s at offset %d, where %s stands", m.id, op, base, b.where())
	}
}

// reads checks what a client gets to see.
func (o *oracle) reads(m *member, offset int64, r replica.ReadResult) {
	if r.Error != raft.NoError {
		return
	}
	if r.HighWatermark > o.committedEnd() {
		o.w.violate("CommittedPrefix", "node %d shows high watermark %d, committed is %d", m.id, r.HighWatermark, o.committedEnd())
	}
	for raw := range batchesOf(r.Records) {
		b := find(o.committed, raw.BaseOffset)
		switch {
		case b == nil:
			o.w.violate("CommittedPrefix", "node %d gave a client offset %d, committed is %d", m.id, raw.BaseOffset, o.committedEnd())
			return
		case offset > raw.LastOffset():
			o.w.violate("CommittedPrefix", "node %d was asked for offset %d and gave %s", m.id, offset, b.where())
			return
		}
		why := o.unlike(raw, o.committedEnd())
		if why == "" {
			why = o.skipped(offset, raw.BaseOffset, o.committedEnd())
		}
		if why != "" {
			o.w.violate("CommittedPrefix", "node %d was asked for offset %d and gave a client something else than %s: %s", m.id, offset, b.where(), why)
			return
		}
		if raw.BaseOffset > offset || !bytes.Equal(b.raw, raw.Raw) {
			o.w.saw(compactedRead)
		}
		offset = raw.NextOffset()
	}
}
