package sim

import (
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// faultKind is one way in which the world is unkind.
type faultKind int

// The faults. All of them can be survived: no majority ever loses what it has synced.
const (
	kill         faultKind = iota // a process drops dead; what it wrote is in the page cache
	powerCut                      // a machine loses power, and what was not synced
	powerCutAll                   // all of them do, at once
	stop                          // a process is asked to stop
	handoff                       // the leader is asked to hand over
	pause                         // a process does not run for a while
	cutOneWay                     // one direction between two members
	cutPair                       // both directions: with three voters, a chain
	isolate                       // one member from all
	deafen                        // one member hears nothing, but is heard
	split                         // members in two halves
	slowLink                      // one direction between two members
	reset                         // connections end
	crashAtDisk                   // a process dies, or its machine loses power, between two calls on its disk
	failSync                      // an fsync fails
	slowDisk                      // fsyncs of one member take long
	loseObserver                  // an observer loses its disk and comes back under a new directory id
	cutClient                     // a client from one member
	fullDisk                      // a disk has little room, or none
	clockJump                     // the calendar of a machine jumps
	loseVoter                     // a voter loses its disk and comes back under a new directory id; never a majority
	changeVoters                  // somebody adds or removes a voter, one thing at a time
	changeRashly                  // somebody asks for several changes at once
	upgrade                       // kraft.version goes from 0 to 1: voters by record from now on
	slowDisks                     // all fsyncs of most members take long, also those that the process waits for
	skipped                       // (not drawn: a fault found nobody to happen to)
	faultKinds   = int(skipped)
)

func (k faultKind) String() string {
	return [...]string{
		"kill", "power cut", "power cut of all", "stop", "handoff", "pause", "one-way cut", "cut pair", "isolation", "deafness",
		"split", "slow link", "reset", "crash at a disk call", "failed fsync", "slow disk", "lost observer", "cut client", "full disk",
		"clock jump", "lost voter", "voter change", "rash changes", "upgrade", "slow disks", "skipped",
	}[k]
}

// startChaos begins all kinds of faults that the plan has.
func (w *world) startChaos() {
	w.chaotic = true
	if w.plant != nil && w.plant.script != nil {
		w.plant.script(w)
	}
	for i, every := range w.plan.every {
		if every > 0 {
			k := faultKind(i)
			d := newDice(w.plan.seed, "chaos "+k.String())
			w.in(d.about(every), func() { w.again(d, k, every) })
		}
	}
}

func (w *world) again(d dice, k faultKind, every time.Duration) {
	if !w.chaotic {
		return
	}
	if w.strike(d, k) {
		w.counts.faults[k]++
	}
	w.in(d.about(every), func() { w.again(d, k, every) })
}

// strike lets one fault happen, if there is somebody to happen to.
func (w *world) strike(d dice, k faultKind) bool {
	m := w.members[d.IntN(len(w.members))]
	o := w.members[d.IntN(len(w.members))]
	long := d.about(oneOf(d, 200*time.Millisecond, time.Second, 4*time.Second))
	if leader := w.leader(); leader != nil && d.chance(0.4) {
		m = leader // most of what can go wrong goes wrong at the leader
	}
	switch k {
	case kill, powerCut:
		if !m.up {
			return false
		}
		w.trace.member(m, "%v", k)
		m.die(k == powerCut)
		w.in(d.about(w.plan.down), m.start)
	case powerCutAll:
		for _, m := range w.members {
			m.die(true)
			w.in(d.about(w.plan.down), m.start)
		}
		w.trace.note(w, "%v", k)
	case stop:
		return m.gracefulStop(long)
	case handoff:
		return w.handOver(d)
	case pause:
		m.pause(long)
		w.trace.member(m, "paused for %v", long)
	case cutOneWay:
		w.net.cut(m.host, o.host, long)
		w.trace.note(w, "%d -> %d cut for %v", m.id, o.id, long)
	case cutPair:
		w.net.cut(m.host, o.host, long)
		w.net.cut(o.host, m.host, long)
		w.trace.note(w, "%d <-> %d cut for %v", m.id, o.id, long)
	case isolate, deafen:
		for _, other := range w.members {
			w.net.cut(other.host, m.host, long)
			if k == isolate {
				w.net.cut(m.host, other.host, long)
			}
		}
		w.trace.note(w, "%v of %d for %v", k, m.id, long)
	case split:
		side := make([]bool, len(w.members))
		for i := range side {
			side[i] = d.chance(0.5)
		}
		for i := range side {
			for j := range side {
				if side[i] != side[j] {
					w.net.cut(i, j, long)
				}
			}
		}
		w.trace.note(w, "%v into %v for %v", k, side, long)
	case slowLink:
		l := &w.net.links[m.host][o.host]
		l.slowUntil, l.slowBy = w.now+long, d.between(20*time.Millisecond, 800*time.Millisecond)
		w.trace.note(w, "%d -> %d slow by %v for %v", m.id, o.id, l.slowBy, long)
	case reset:
		for _, c := range w.net.conns {
			if c.listener == m && !c.closed {
				w.net.reset(c)
			}
		}
		w.trace.note(w, "connections to %d reset", m.id)
	case crashAtDisk:
		if !m.up {
			return false
		}
		m.disk.crashIn = 1 + d.IntN(12)
	case failSync:
		if !m.up {
			return false
		}
		m.disk.failSync = aSegment
		if w.plan.votesFail {
			m.disk.failSync = oneOf(d, aSegment, aVote, aVotesName)
		}
	case slowDisk:
		m.slowUntil = w.now + long
		w.trace.member(m, "slow disk for %v", long)
	case loseObserver:
		if m = o; m.voter {
			return false
		}
		m.loseDisk()
		w.in(long, m.start)
	case cutClient:
		c := w.clients[d.IntN(len(w.clients))]
		w.net.cut(c.host, m.host, long)
		if d.chance(0.5) {
			w.net.cut(m.host, c.host, long)
		}
	case fullDisk:
		m.disk.fill(oneOf[int64](d, 0, 300, diskReserve/2, diskReserve+500))
		w.trace.member(m, "disk is full for %v", long)
		w.in(long, func() { m.disk.drain() })
	case clockJump:
		m.wallOff += d.between(-48*time.Hour, 48*time.Hour)
		w.trace.member(m, "calendar is %v off", m.wallOff)
	case loseVoter:
		if !m.voter || !w.canLose(m) {
			return false
		}
		m.loseDisk()
		w.in(long, m.start)
	case changeVoters:
		return w.admin.careful()
	case changeRashly:
		return w.admin.rash()
	case upgrade:
		m = w.leader()
		if m == nil || m.paused() {
			return false
		}
		m.lastID++
		m.step(replica.Core{Event: raft.UpgradeKRaft{ID: m.lastID, Version: 1}}, "asked to raise kraft.version")
	case slowDisks:
		fsync := oneOf(d, 100*time.Millisecond, 500*time.Millisecond, 1200*time.Millisecond, 2500*time.Millisecond)
		uneven := d.chance(0.5)
		for _, m := range w.members {
			if d.chance(0.8) {
				m.fsync, m.uneven = fsync, uneven
			}
		}
		w.trace.note(w, "disks are slow by %v (uneven: %v) for %v", fsync, uneven, 4*long)
		w.in(4*long, func() {
			for _, m := range w.members {
				m.fsync = 0
			}
		})
	case skipped:
	}
	return true
}

// leader is the member that leads the newest epoch, if any does.
func (w *world) leader() *member {
	var best *member
	for _, m := range w.members {
		if m.up && m.seen.role == raft.Leader && (best == nil || m.seen.epoch > best.seen.epoch) {
			best = m
		}
	}
	return best
}

// gracefulStop asks a process to stop, and starts it again a while after it has.
func (m *member) gracefulStop(downFor time.Duration) bool {
	if !m.up || m.paused() {
		return false
	}
	m.downFor, m.stopping = downFor, true
	asked, life := m.w.now, m.life
	m.w.in(2*stopTimeout, func() {
		if m.up && m.life == life && !m.ended && m.pausedUntil < asked && m.waits == nil {
			m.w.violate("StopsInTime", "node %d was asked to stop %v ago, with a time limit of %v: %s", m.id, 2*stopTimeout, stopTimeout, m.situation())
		}
	})
	m.step(replica.Core{Event: raft.Shutdown{Timeout: stopTimeout}}, "asked to stop")
	return true
}

const stopTimeout = 5 * time.Second

// handOver asks the leader to hand over, to anybody or to somebody.
func (w *world) handOver(d dice) bool {
	m := w.leader()
	if m == nil || m.paused() {
		return false
	}
	e := raft.Handoff{Target: raft.NoReplica, MaxPause: 250 * time.Millisecond, CatchUpTimeout: d.between(100*time.Millisecond, 3*time.Second), DryRun: d.chance(0.1)}
	if d.chance(0.5) {
		e.Target = w.members[d.IntN(len(w.members))].key
	}
	m.lastID++
	e.ID = m.lastID
	m.step(replica.Core{Event: e}, "asked to hand over to %v", e.Target.ID)
	return true
}
