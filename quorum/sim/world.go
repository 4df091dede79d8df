package sim

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// world is one run: its time, and everything in it.
type world struct {
	plan  plan
	plant *plant
	now   time.Duration
	queue queue
	seq   uint64

	members []*member // voters, observers, spares; a member's place is its host number
	admin   *admin
	asked   []asked
	healed  []bool // by host, once the world is
	initial raft.VoterSet
	graves  []grave
	clients []*client
	net     *network
	oracle  *oracle
	history history
	trace   *trace // nil: nobody reads it

	// The faults of now; a healed world has none.
	loss, duplicate float64
	chaotic         bool

	events  int
	counts  counts
	failure *violation
}

// counts tell what a run has seen, so that a test can say that something was tested.
type counts struct {
	faults    [faultKinds]int
	marks     [markCount]int
	elections int
	committed int // batches
	acked     int
	reads     int

	operations int // that histories held
	unknown    int // histories that porcupine gave up on

	commitAfter time.Duration // the longest that a healed quorum took to commit a new append
}

func (c *counts) add(o counts) {
	for k := range c.faults {
		c.faults[k] += o.faults[k]
	}
	for k := range c.marks {
		c.marks[k] += o.marks[k]
	}
	c.elections += o.elections
	c.committed += o.committed
	c.acked += o.acked
	c.reads += o.reads
	c.operations += o.operations
	c.unknown += o.unknown
	c.commitAfter = max(c.commitAfter, o.commitAfter)
}

// violation is an invariant that did not hold.
type violation struct {
	invariant string
	message   string
	at        time.Duration
}

func (v *violation) Error() string {
	return fmt.Sprintf("%s, %v into the run: %s", v.invariant, v.at.Round(time.Microsecond), v.message)
}

func newWorld(p plan, bug *plant, t *trace) *world {
	w := &world{plan: p, plant: bug, trace: t, loss: p.loss, duplicate: p.duplicate}
	w.net = newNetwork(w, p.voters+p.observers+p.spares+p.clients+1)
	w.oracle = newOracle(w)
	for i := range p.voters {
		w.members = append(w.members, newMember(w, raft.NodeID(i), i, true))
	}
	for i := range p.observers {
		w.members = append(w.members, newMember(w, raft.NodeID(1000+i), p.voters+i, false))
	}
	w.initial = w.plannedVoters()
	for i := range p.spares {
		w.members = append(w.members, newMember(w, raft.NodeID(p.voters+i), len(w.members), true))
	}
	for i := range p.clients {
		w.clients = append(w.clients, newClient(w, i))
	}
	w.admin = newAdmin(w, len(w.members)+len(w.clients))
	return w
}

// run is the whole of it: chaos, then the healed world's duty.
func (w *world) run() *violation {
	w.boot()
	w.startChaos()
	w.until(w.plan.chaos)
	w.calm()
	if w.failure == nil {
		w.history.check(w)
	}
	return w.failure
}

// boot formats all directories and starts all processes, not quite at once.
func (w *world) boot() {
	d := newDice(w.plan.seed, "boot")
	for _, m := range w.members {
		m.format()
		w.in(d.between(0, 50*time.Millisecond), m.start)
	}
	for _, c := range w.clients {
		w.in(d.between(0, time.Second), c.turn)
	}
	w.in(time.Second, w.sweep)
}

// sweep looks once a second for what should have happened and has not.
func (w *world) sweep() {
	for _, m := range w.members {
		w.oracle.looksForForgotten(m)
	}
	w.in(time.Second, w.sweep)
}

// at lets something happen at that time.
func (w *world) at(t time.Duration, do func()) {
	w.seq++
	w.queue.push(event{at: max(t, w.now), seq: w.seq, do: do})
}

func (w *world) in(d time.Duration, do func()) { w.at(w.now+d, do) }

// until lets time pass.
func (w *world) until(t time.Duration) {
	w.untilIs(t, func() bool { return false })
}

// untilIs lets time pass until a condition holds, but not beyond t.
func (w *world) untilIs(t time.Duration, done func() bool) bool {
	for w.failure == nil && !done() {
		if len(w.queue) == 0 || w.queue[0].at > t {
			w.now = t
			return done()
		}
		e := w.queue.pop()
		w.now = max(w.now, e.at)
		if e.to != nil {
			if e.to.life != e.life || !e.to.up {
				continue
			}
			if e.to.paused() {
				e.to.held = append(e.to.held, e)
				continue
			}
		}
		w.happen(e)
	}
	return w.failure == nil
}

// happen runs one event. A panic is the assertion of some package: also a finding.
func (w *world) happen(e event) {
	defer func() {
		p := recover()
		if d, ok := p.(died); ok {
			w.diedAtDisk(d.d)
		} else if p != nil {
			w.violate("NoIllegalState", "panic: %v\n%s", p, debug.Stack())
		}
	}()
	w.events++
	e.do()
}

// diedAtDisk is a process that died between two calls on its disk.
func (w *world) diedAtDisk(d *disk) {
	for _, m := range w.members {
		if m.disk == d {
			power := m.io.chance(0.5)
			w.saw(diedInside)
			w.trace.member(m, "dies inside a step, power cut %v", power)
			m.die(power)
			w.in(m.io.about(w.plan.down), m.start)
		}
	}
}

// violate ends the run. The first violation counts.
func (w *world) violate(invariant, format string, args ...any) {
	if w.failure == nil && !slices.Contains(w.oracle.deaf, invariant) {
		w.failure = &violation{invariant: invariant, message: fmt.Sprintf(format, args...), at: w.now}
		w.trace.note(w, "VIOLATION %v", w.failure)
	}
}
