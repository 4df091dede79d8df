package raft

import (
	"fmt"
	"slices"
	"time"
)

// voterAsked is a voter change that somebody asked for and that is not answered yet.
type voterAsked struct {
	key     ReplicaKey
	add     bool
	settled bool // the answer comes when it is committed
}

// changeVoters lets an administrator, who knows no more than the replica that is asked, add or remove a voter, or a disk
// fail. Like a sane one it never lets go of more voters than a set in force can do without.
func (w *world) changeVoters() error {
	if !w.faults {
		return nil
	}
	w.after(time.Duration(w.rng.Int64N(int64(time.Second))), w.changeVoters)
	if w.rng.IntN(4) == 0 {
		return w.loseDisk(w.members[w.rng.IntN(len(w.members))])
	}
	m := w.members[w.rng.IntN(len(w.members))]
	for _, o := range w.members {
		if o.node != nil && o.node.role == Leader && w.rng.IntN(10) > 0 {
			m = o
		}
	}
	if m.node == nil {
		return nil
	}
	set, id := m.node.voters.current(), w.newID()
	if len(set) == 0 {
		return nil
	}
	if w.rng.IntN(2) == 0 {
		o := w.members[w.rng.IntN(len(w.members))]
		asked := voterAsked{key: o.cfg.Self, add: true, settled: w.rng.IntN(3) > 0}
		w.admin[id], o.joining = asked, w.now
		return w.step(m, Inbound{ID: id, Request: AddRaftVoterRequest{Voter: o.cfg.Self, Endpoints: o.cfg.Endpoints, AckWhenCommitted: asked.settled}})
	}
	v := set[w.rng.IntN(len(set))]
	if w.rng.IntN(3) == 0 && m.node.isVoter {
		v, _ = set.ByID(m.cfg.Self.ID)
	}
	if rest := set.without(v.Key.ID); w.alive(rest, NoReplica) < rest.Majority() {
		return nil
	}
	w.admin[id] = voterAsked{key: v.Key, settled: true}
	return w.step(m, Inbound{ID: id, Request: RemoveRaftVoterRequest{Voter: v.Key}})
}

// voterAnswer checks that a change that is said to be committed is.
func (w *world) voterAnswer(m *member, asked voterAsked, r Response) error {
	var code ErrorCode
	switch r := r.(type) {
	case AddRaftVoterResponse:
		code = r.Error
	case RemoveRaftVoterResponse:
		code = r.Error
	default:
		return fmt.Errorf("a voter change was answered with %T", r)
	}
	w.logf("%d answers the change of %+v: %+v", m.cfg.Self.ID, asked, r)
	switch {
	case code != NoError:
		return nil
	case asked.add:
		w.stats.Added++
	case asked.key == m.cfg.Self:
		w.stats.SelfRemoved++
	default:
		w.stats.Removed++
	}
	if !asked.settled {
		return nil
	}
	if set := w.committedVoters(); set.Contains(asked.key) != asked.add {
		return fmt.Errorf("node %d says that the change of %+v is committed, but the voters are %v", m.cfg.Self.ID, asked, set)
	}
	return nil
}

// loseDisk lets a member start anew with an empty directory.
func (w *world) loseDisk(m *member) error {
	if w.now < m.joining.Add(5*time.Second) {
		return nil // it may be on its way into a voter set
	}
	for _, set := range w.sets() {
		if w.alive(set, m.cfg.Self) < set.Majority() {
			return nil
		}
	}
	id := m.cfg.Self.ID
	w.logf("%d loses its disk", id)
	w.stats.LostDisks++
	node := m.node
	m.crash(nil)
	m.disks++
	m.cfg.Self.DirectoryID[1] = m.disks
	m.log, m.durable, m.snapshots, m.logStart, m.state = nil, nil, nil, 0, ElectionState{Leader: None, Voted: NoReplica}
	m.bootstrap = []ControlAt{{-1, KRaftVersion{1}}}
	m.cfg.AutoJoin = w.rng.IntN(2) == 0
	if node != nil {
		w.breakConnections(id, node)
	}
	w.after(time.Duration(w.rng.Int64N(int64(3*time.Second))), func() error { return w.restart(m) })
	return nil
}

// sets are the voter sets that are or may become in force: the newest committed one, and all newer ones on any disk.
func (w *world) sets() []VoterSet {
	committed, offset := w.newestVoters(w.committed)
	sets := []VoterSet{committed}
	for _, m := range w.members {
		for _, log := range [][]testBatch{m.log, m.durable} {
			for _, b := range log {
				if set := votersIn(b); set != nil && b.LastOffset > offset {
					sets = append(sets, set)
				}
			}
		}
	}
	return sets
}

func (w *world) committedVoters() VoterSet {
	set, _ := w.newestVoters(w.committed)
	return set
}

func (w *world) newestVoters(log []testBatch) (VoterSet, int64) {
	for _, b := range slices.Backward(log) {
		if set := votersIn(b); set != nil {
			return set, b.LastOffset
		}
	}
	return w.bootstrap, -1
}

func votersIn(b testBatch) VoterSet {
	for _, c := range b.Control {
		if v, ok := c.(Voters); ok {
			return v.Set
		}
	}
	return nil
}

// alive counts the voters of a set whose disk is not lost; without counts as lost.
func (w *world) alive(set VoterSet, without ReplicaKey) int {
	alive := 0
	for _, v := range set {
		if v.Key != without && slices.ContainsFunc(w.members, func(m *member) bool { return m.cfg.Self == v.Key }) {
			alive++
		}
	}
	return alive
}

// inspectCommit checks that what a leader commits is on the disks of a majority of its voters. A disk that was lost in the
// meantime may have had it.
func (w *world) inspectCommit(m *member, appends []Append) error {
	n := m.node
	sets := []VoterSet{n.voters.current()}
	if slices.ContainsFunc(appends, func(a Append) bool { return a.Control != nil }) {
		sets = append(sets, m.inForce) // the high watermark may have risen just before the new set was appended
	}
	m.inForce = sets[0]
	if n.role != Leader || n.highWatermark <= m.counted && m.countedBy == n {
		return nil
	}
	m.counted, m.countedBy = n.highWatermark, n
	i := slices.IndexFunc(m.log, func(b testBatch) bool { return b.LastOffset == n.highWatermark-1 })
	if i < 0 {
		return nil
	}
	stored := func(v Voter) bool {
		o := slices.IndexFunc(w.members, func(o *member) bool { return o.cfg.Self == v.Key })
		return o < 0 || len(w.members[o].durable) > i && sameBatch(w.members[o].durable[i], m.log[i])
	}
	if slices.ContainsFunc(sets, func(set VoterSet) bool {
		return len(slices.DeleteFunc(slices.Clone(set), func(v Voter) bool { return !stored(v) })) >= set.Majority()
	}) {
		return nil
	}
	return fmt.Errorf("leader %d commits up to offset %d in epoch %d, which too few of its voters have on disk: %v", m.cfg.Self.ID, n.highWatermark, n.state.Epoch, sets[0])
}
