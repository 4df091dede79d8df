package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// The time that a healed quorum has, by the world's clock.
const (
	commitWithin   = 10 * time.Second // O6: a new append commits
	slowPatience   = 30 * time.Second // … longer where votes took long to write down: that is remembered until the next
	convergeWithin = 10 * time.Second // all logs are equal, and all clients have their answers
	restFor        = 10 * time.Second // O5: then nothing happens
)

// calm ends the chaos for a random majority of the voters, and everybody may be in it. The rest stays dead, cut off, or
// able to send but not to receive: none of that may disturb the others. Then the quorum must be live.
func (w *world) calm() {
	if w.failure != nil {
		return
	}
	d := newDice(w.plan.seed, "calm")
	w.chaotic = false
	w.loss, w.duplicate = 0, 0
	p := &w.plan // a healed world is also quick: who is far behind must have a chance
	p.delayMean, p.flushMean, p.flushLate = min(p.delayMean, 2*time.Millisecond), min(p.flushMean, 2*time.Millisecond), min(p.flushLate, 2*time.Millisecond)
	p.down = min(p.down, 200*time.Millisecond) // who yet dies of an fsync that failed before is started again soon
	healed := w.chooseHealed(d)
	w.healed = healed
	late := w.now // when the last has arrived that anybody sent who is not healed
	for i := range w.members {
		if !healed[i] {
			late = max(late, w.net.sent[i])
		}
	}
	w.net.heal(func(host int) bool { return host >= len(w.members) || healed[host] })
	for i, m := range w.members {
		m.pausedUntil, m.slowUntil, m.fsync = 0, 0, 0
		m.disk.crashIn, m.disk.failSync = 0, nothing
		m.waited()
		m.disk.drain()
		m.resume()
		if healed[i] {
			m.backToWork()
			continue
		}
		how := d.IntN(3)
		if how == 2 && !w.allPreVote() {
			how = 1 // without pre-votes, who is deaf topples leaders (PR-22): that is what KIP-996 is for
		}
		w.trace.note(w, "node %d is left %s", m.id, [...]string{"dead", "cut off", "deaf"}[how])
		if how == 0 {
			m.die(true)
			m.life++ // no restart that was under way
			m.barred = true
			continue
		}
		aside := how == 1 && p.aside
		for j, o := range w.members {
			if j != i && (o.voter || !aside || !healed[j]) {
				w.net.cut(j, i, time.Hour)
				if how == 1 {
					w.net.cut(i, j, time.Hour)
				}
			}
		}
		if aside {
			w.trace.note(w, "node %d still sees the observers", m.id)
		}
		for _, c := range w.clients {
			w.net.cut(c.host, i, time.Hour)
			w.net.cut(i, c.host, time.Hour)
		}
		m.backToWork()
	}
	w.trace.note(w, "the world heals for %v", healed)

	start := w.now
	for _, c := range w.clients {
		c.closed = true
	}
	probe, limit := w.clients[0], commitWithin
	if w.plan.every[changeVoters] > 0 && !w.allPreVote() {
		// One that was removed and does not know it campaigns, too, and needs the votes of more than a voter does. Without
		// pre-votes each campaign that cannot succeed costs an epoch and the others' patience.
		limit *= 2
	}
	if slices.ContainsFunc(w.members, func(m *member) bool { return healed[m.host] && m.stopping }) {
		limit += stopTimeout // it was asked to before, and until it has it may be the one whose log is needed
	}
	if w.plan.every[slowDisks] > 0 {
		limit += slowPatience
	}
	if !w.untilIs(start+limit, func() bool { return w.probed(probe) }) {
		switch {
		case w.failure != nil:
		case w.leaderless():
			w.saw(nobodyElectable)
		default:
			w.violate("CommitsAfterHealing", "no append committed within %v: %s", limit, w.situation())
		}
		return
	}
	w.counts.commitAfter = w.now - start
	if !w.untilIs(w.now+convergeWithin, func() bool { return w.converged(healed) }) {
		if w.failure == nil {
			w.violate("ValuesNotStuck", "logs or clients have not come to rest within %v: %s", convergeWithin, w.situation())
		}
		return
	}
	if w.plan.every[changeVoters] > 0 && !w.reconfigures(healed) {
		return
	}
	if w.until(max(late, w.now)); !w.untilIs(w.now+convergeWithin, func() bool { return w.converged(healed) }) {
		if w.failure == nil {
			w.violate("ValuesNotStuck", "what was under way for long has arrived, and logs have not come to rest within %v: %s", convergeWithin, w.situation())
		}
		return
	}
	leader := w.leader()
	if slices.ContainsFunc(w.members, func(m *member) bool { return healed[m.host] && w.lockedOut(m, leader) }) {
		return // it campaigns on, and the next that is made a voter brings the quorum to its epoch
	}
	epoch := leader.seen.epoch
	w.until(w.now + restFor)
	if w.failure != nil {
		return
	}
	for i, m := range w.members {
		if healed[i] && m.seen.epoch != epoch {
			w.violate("QuietAtRest", "without any fault node %d went from epoch %d to %d: %s", m.id, epoch, m.seen.epoch, w.situation())
		}
	}
}

// reconfigures changes the voters of the healed quorum once more: that must be possible, whatever changes were under way.
func (w *world) reconfigures(healed []bool) bool {
	var change raft.Request
	var asking bool
	done := false
	w.untilIs(w.now+commitWithin, func() bool {
		leader := w.leader()
		if leader == nil || asking || done {
			return done
		}
		if r, ok := change.(raft.RemoveRaftVoterRequest); change == nil || ok && r.Voter == leader.key { // it follows no more
			if change = w.admin.sensible(leader, healed); change == nil {
				done = true // a sole voter, and nobody to add
				return true
			}
		}
		asking = true
		w.admin.ask(leader, change, func(code raft.ErrorCode) {
			// Both say that it is so, perhaps by an earlier answer that got lost.
			done = code == raft.NoError || code == raft.DuplicateVoter || code == raft.VoterNotFound
			w.in(200*time.Millisecond, func() { asking = false })
		})
		return false
	})
	if !done && w.failure == nil {
		w.violate("ReconfigurationNotStuck", "%s has not been granted within %v: %s", about{change}, commitWithin, w.situation())
	}
	if w.failure == nil && !w.untilIs(w.now+convergeWithin, func() bool { return w.converged(healed) }) && w.failure == nil {
		w.violate("ReconfigurationNotStuck", "not all members have taken in %s within %v: %s", about{change}, convergeWithin, w.situation())
	}
	return w.failure == nil
}

func (w *world) allPreVote() bool {
	return !slices.ContainsFunc(w.members, func(m *member) bool { return m.voter && m.release < kip996 })
}

// lockedOut reports whether a member was removed as a voter, does not know it, and has campaigned beyond the leader's epoch. No
// leader answers it (UNKNOWN_LEADER_EPOCH) until the quorum's epoch has passed its own. Where all know pre-votes a campaign
// that cannot succeed opens no epoch, and this is a failure like any other.
func (w *world) lockedOut(m, leader *member) bool {
	return !w.allPreVote() && m.seen.epoch > leader.seen.epoch && !has(w.votersOf(leader), m.key)
}

// chooseHealed picks a majority of the voters, of each set that may be in force, and all observers but some.
func (w *world) chooseHealed(d dice) []bool {
	healed := make([]bool, len(w.members))
	least := w.plan.voters/2 + 1
	order := d.Perm(w.plan.voters)
	some := least + d.IntN(w.plan.voters-least+1)
	for n, i := range order {
		healed[i] = n < some || !w.canElect(healed)
	}
	for i := w.plan.voters; i < len(healed); i++ {
		healed[i] = d.chance(0.8) || w.members[i].voter && !w.canElect(healed)
	}
	return healed
}

// backToWork starts a process that is down, and one that is stopping as soon as it is.
func (m *member) backToWork() {
	m.downFor = 0
	if !m.up {
		m.start()
	}
}

// probed sends appends until one that began in the healed world is acknowledged.
func (w *world) probed(c *client) bool {
	if c.probe == nil {
		if c.producer < 0 {
			c.askID()
			return false
		}
		if c.mayAppend() {
			c.beginAppend()
			c.probe = c.window[len(c.window)-1]
		}
		return false
	}
	return !slices.Contains(c.window, c.probe)
}

// converged reports whether all healed members hold the same log, know all of it as committed, and no client waits.
func (w *world) converged(healed []bool) bool {
	leader := w.leader()
	if leader == nil {
		return false
	}
	switch leader.replica.Status().Handoff.Phase {
	case raft.HandoffConverging, raft.HandoffPausing, raft.HandoffResigned:
		return false // asked for in the chaos
	case raft.HandoffNone, raft.HandoffSucceeded, raft.HandoffAborted, raft.HandoffFailed:
	}
	for _, c := range w.clients {
		if c.idempotent && len(c.window) > 0 || c.reading != nil {
			return false
		}
	}
	end := leader.disk.log.end
	for i, m := range w.members {
		if !healed[i] || w.lockedOut(m, leader) {
			continue
		}
		if !m.up || m.stopping || m == leader && !m.seen.voter || m.disk.log.end != end || m.seen.highWatermark != end || m.seen.leader != leader.id || m.seen.epoch != leader.seen.epoch {
			return false
		}
	}
	return true
}

// situation tells where everybody is, for a liveness failure.
func (w *world) situation() string {
	var b strings.Builder
	for _, m := range w.members {
		b.WriteString("\n  " + m.situation())
	}
	for _, c := range w.clients {
		b.WriteString("\n  " + c.situation())
	}
	return b.String()
}

func (m *member) situation() string {
	if !m.up {
		return fmt.Sprintf("node %d is down, its log ends at %d", m.id, m.disk.log.end)
	}
	s := &m.seen
	return fmt.Sprintf("node %d: %v of epoch %d (voter %v of %v), leader %d, log end %d, flushed %d, high watermark %d", m.id, s.role, s.epoch, s.voter, ids(s.voters), s.leader, m.disk.log.end, m.disk.log.durableEnd(), s.highWatermark)
}

func (c *client) situation() string {
	return fmt.Sprintf("client %d: producer id %d, %d appends open, reading %v, thinks node %d leads", c.id, c.producer, len(c.window), c.reading != nil, c.w.members[c.leader.at].id)
}
