package sim

import (
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// grave is the log of a voter that lost its disk: what it held when it did.
type grave struct {
	key raft.ReplicaKey
	log shadow
}

// is reports whether a voter's entry names that replica.
func is(v raft.Voter, key raft.ReplicaKey) bool {
	return v.Key.ID == key.ID && (v.Key.DirectoryID.IsZero() || v.Key.DirectoryID == key.DirectoryID)
}

// has reports whether a set has that replica. It looks for itself: this file is part of what watches package raft.
func has(set raft.VoterSet, key raft.ReplicaKey) bool {
	return slices.ContainsFunc(set, func(v raft.Voter) bool { return is(v, key) })
}

// newestSet is the batch that holds the voters in force, nil if none does.
func (l *shadow) newestSet() *batch {
	if n := len(l.sets); n > 0 {
		return l.sets[n-1]
	}
	return nil
}

// votersOf is the set that a member's log puts in force.
func (w *world) votersOf(m *member) raft.VoterSet {
	switch newest := m.disk.log.newestSet(); {
	case newest != nil:
		return newest.voters
	case m.founder || w.plan.kraftVersion == 0:
		return w.initial
	}
	return nil
}

// versionOf is the kraft.version that a member's log puts in force.
func (w *world) versionOf(m *member) int16 {
	if n := len(m.disk.log.versions); n > 0 {
		return m.disk.log.versions[n-1].version
	}
	return w.plan.kraftVersion // of the bootstrap checkpoint
}

// setsInForce are all sets by which some member may act: the newest of each log, what lies before an uncommitted one, what
// was asked for a moment ago, and what a leader is about to append because a replica asked it to (auto-join).
func (w *world) setsInForce() []raft.VoterSet {
	sets := []raft.VoterSet{}
	for _, a := range w.asked {
		if a.until >= w.now {
			sets = append(sets, a.set)
		}
	}
	for _, m := range w.members {
		sets = append(sets, w.votersOf(m), m.pendingSet())
		l := &m.disk.log
		for n := len(l.sets); n > 0 && l.sets[n-1].last >= w.oracle.committedEnd(); n-- {
			if n > 1 {
				sets = append(sets, l.sets[n-2].voters)
			} else {
				sets = append(sets, w.initial)
			}
		}
	}
	return slices.DeleteFunc(sets, func(s raft.VoterSet) bool { return len(s) == 0 })
}

// pendingSet is the set that a leader's change under way would put in force; nil if there is none.
func (m *member) pendingSet() raft.VoterSet {
	if !m.up {
		return nil
	}
	switch c := m.replica.Status().VoterChange; {
	case c == nil:
		return nil
	case c.Kind == raft.ChangeAdd:
		return append(slices.Clone(m.w.votersOf(m)), raft.Voter{Key: c.Voter})
	case c.Kind == raft.ChangeRemove:
		return slices.DeleteFunc(slices.Clone(m.w.votersOf(m)), func(v raft.Voter) bool { return v.Key == c.Voter })
	}
	return nil
}

// holder is the member that a voter's entry names, nil if that disk is lost.
func (w *world) holder(v raft.Voter) *member {
	for _, m := range w.members {
		if is(v, m.key) {
			return m
		}
	}
	return nil
}

// logOf is what a voter holds, or held when it lost its disk.
func (w *world) logOf(v raft.Voter) *shadow {
	if m := w.holder(v); m != nil {
		return &m.disk.log
	}
	for i := range w.graves {
		if is(v, w.graves[i].key) {
			return &w.graves[i].log
		}
	}
	return nil
}

// copies is how many of the voters hold a batch durably, or did when they lost their disks.
func (w *world) copies(voters raft.VoterSet, b *batch) (n int) {
	for _, v := range voters {
		if l := w.logOf(v); l != nil {
			if _, durably := l.holds(b); durably {
				n++
			}
		}
	}
	return n
}

// majority reports whether in each set that may be in force those who are chosen are one.
func (w *world) majority(chosen func(*member) bool) bool {
	for _, set := range w.setsInForce() {
		n := 0
		for _, v := range set {
			if m := w.holder(v); m != nil && chosen(m) {
				n++
			}
		}
		if n < set.Majority() {
			return false
		}
	}
	return true
}

// leaderless reports whether the logs that are left let nobody be elected, however long anybody tries. It takes a disk that
// was lost in the midst of a change of voters: what only its voter had appended stands with members that are no voters by
// their own logs, and who stands for election needs the vote of one of those, since its newer set has them, and has less
// than they. A majority of each set is there, and still no rule of Raft makes a leader of it: that is for people to repair.
func (w *world) leaderless() bool {
	if len(w.graves) == 0 {
		return false
	}
	for _, m := range w.members {
		if !w.healed[m.host] {
			continue
		}
		set, votes := w.votersOf(m), 0
		for _, v := range set {
			if h := w.holder(v); h != nil && w.healed[h.host] && h.disk.log.position().Compare(m.disk.log.position()) <= 0 {
				votes++
			}
		}
		stands := has(set, m.key) || m.seen.role != raft.Unattached && m.seen.role != raft.Follower
		if stands && votes >= set.Majority() {
			return false
		}
	}
	return true
}

func (w *world) canElect(healed []bool) bool {
	return w.majority(func(m *member) bool { return healed[m.host] })
}

// canLose reports whether a majority would still have its disks without that one's.
func (w *world) canLose(m *member) bool {
	return w.majority(func(o *member) bool { return o != m })
}

// loseDisk takes a member's disk away: it comes back empty, under a new directory id.
func (m *member) loseDisk() {
	m.w.graves = append(m.w.graves, grave{m.key, m.disk.log})
	m.die(true)
	m.key.DirectoryID = m.newDirectoryID()
	m.format()
	m.w.trace.member(m, "lost its disk")
}
