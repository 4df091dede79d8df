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
	past     bool // a set that was forgotten had this replica
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

// mayCount reports whether key is in a set that may be in force on some replica: the newest of those known to be committed
// and all later ones.
func (h *voterHistory) mayCount(key ReplicaKey, committed int64) bool {
	for _, s := range slices.Backward(h.sets) {
		if s.set.Contains(key) {
			return true
		}
		if s.offset < committed {
			break
		}
	}
	return false
}

// had reports whether a set before the one in force had this replica. One that this process has forgotten since, because a
// snapshot covers it, counts; those from before its start do not.
func (h *voterHistory) had(self ReplicaKey) bool {
	return h.past || holdsVoter(h.sets[:max(len(h.sets)-1, 0)], self)
}

func holdsVoter(sets []votersAt, key ReplicaKey) bool {
	return slices.ContainsFunc(sets, func(s votersAt) bool { return s.set.Contains(key) })
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

// votersChanged follows the newest voter set after an append or a truncation.
func (n *Node) votersChanged() {
	set := n.voters.current()
	n.isVoter = set.Contains(n.cfg.Self)
	if l := n.leader; l != nil && !sameSet(l.set, set) {
		l.track(n)
	}
}

// electable reports whether this replica takes part in elections: a voter does, and so does one that was a voter until a
// record that may not be committed yet. That record may stand nowhere else but here, and then the others cannot do without
// this log: their set still asks for our vote, and we must refuse it to their shorter logs. So we campaign under the newest
// set, whose majority we are no part of, to bring them the record (Ongaro's thesis, 4.2.2).
func (n *Node) electable() bool {
	return n.isVoter || n.voters.mayCount(n.cfg.Self, n.committed)
}

// alone reports whether this replica is the only voter.
func (n *Node) alone() bool { return n.isVoter && len(n.voters.current()) == 1 }

// removed reports whether this leader has committed a voter set without itself, so that its office ends.
func (n *Node) removed() bool {
	return n.role == Leader && !n.isVoter && n.voters.offset() < n.highWatermark
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
	if n.voters.offset() >= 0 && (!n.isVoter || sameVoter(own, n.ownEntry())) {
		return records // one that is on its way out must not put itself back
	}
	return append(records, KRaftVersion{n.voters.version()}, Voters{set.with(n.ownEntry())})
}
