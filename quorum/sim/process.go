package sim

import (
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// step lets one event happen to the process.
func (m *member) step(e replica.Event, format string, args ...any) {
	if m.ended {
		return
	}
	before := m.disk.syncs
	out := m.replica.Step(m.clock.read(m.w.now), e)
	m.finish(m.disk.syncs-before, out, format, args...)
}

// finish checks what a step has done, which waited for some fsyncs, and carries out what it asks for.
func (m *member) finish(syncs int, out replica.Output, format string, args ...any) {
	if out.Fatal != nil && m.disk.failed != nothing && out.Fatal.Reason == raft.FatalReason(storage.DiskIOError) {
		m.w.trace.member(m, "ends with %s", out.Fatal.Reason)
		m.w.saw(fsyncFailed)
		if m.disk.failed != aSegment {
			m.w.saw(voteNotSynced)
		}
		m.die(m.io.chance(0.3))
		m.w.in(m.io.about(m.w.plan.down), m.start)
		return
	}
	if out.Fatal != nil && m.disk.full && out.Fatal.Reason == replica.DiskFull {
		m.w.trace.member(m, "ends with %s", out.Fatal.Reason)
		m.die(false)
		m.w.in(m.io.about(m.w.plan.down), m.start)
		return
	}
	if told := !m.flushing || m.disk.failed != aSegment; m.disk.failed != nothing && told {
		m.w.violate("FsyncErrorIsFatal", "node %d goes on after an fsync failed", m.id)
	}
	if out.Fatal != nil {
		m.w.violate("NoIllegalState", "node %d ended with %s: %s", m.id, out.Fatal.Reason, out.Fatal.Message)
		return
	}
	m.w.oracle.look(m)
	m.w.trace.member(m, format, args...)
	m.stepped = m.w.now
	if took := time.Duration(syncs) * m.slowness(); took > 0 {
		m.w.trace.member(m, "waits %v for the disk", took)
		m.waits = func() { m.carryOut(out) }
		life := m.life
		m.w.in(took, func() {
			if m.up && m.life == life {
				m.waited()
			}
		})
		return
	}
	m.carryOut(out)
}

// longestFsync is less than what a healed world has to come to rest: one that began before is not cut short.
const longestFsync = 5 * time.Second

// slowness draws how much longer than usual an fsync takes.
func (m *member) slowness() time.Duration {
	switch {
	case m.fsync == 0:
		return 0
	case m.uneven:
		return min(m.io.about(m.fsync), longestFsync)
	}
	return m.io.between(m.fsync*9/10, m.fsync*11/10)
}

// waited goes on with what the process was about to do when it began to wait for its disk.
func (m *member) waited() {
	if goOn := m.waits; goOn != nil {
		m.waits, m.pausedUntil = nil, max(m.pausedUntil, m.w.now)
		goOn()
		m.resume()
	}
}

// carryOut does what a step asks for.
func (m *member) carryOut(out replica.Output) {
	for _, a := range out.Answers {
		if b := m.w.plant; b != nil && b.answer != nil {
			b.answer(m, &a)
		}
		m.answer(a)
	}
	for _, s := range out.Sends {
		m.send(s)
	}
	if out.Flush != nil {
		m.flush(out.Flush)
	}
	for _, job := range out.Jobs {
		m.run(job)
	}
	if out.Stopped {
		m.stopped()
		return
	}
	m.schedule()
}

// schedule sees to the next tick.
func (m *member) schedule() {
	deadline := m.replica.Deadline()
	if deadline == raft.Never {
		m.tickAt = -1
		return
	}
	at := max(m.clock.when(deadline), m.w.now)
	if at == m.tickAt {
		return
	}
	m.tickAt = at
	m.w.seq++
	m.w.queue.push(event{at: at, seq: m.w.seq, to: m, life: m.life, tick: true, do: func() {
		if m.tickAt != at {
			return // the deadline has moved since
		}
		m.tickAt = -1
		m.countTick(at)
		m.step(replica.Tick{}, "tick")
	}})
}

// countTick finds timers that expire without effect (PR-20).
func (m *member) countTick(at time.Duration) {
	m.allTicks++
	if second := at / time.Second; second != m.seen.second {
		m.seen.second, m.ticks = second, 0
	}
	if m.ticks++; m.ticks > 2000 {
		m.w.violate("NoBusyLoop", "node %d, a %v: %d ticks in one second", m.id, m.seen.role, m.ticks)
	}
}

// alone lets something happen to this process, if it is still the same by then.
func (m *member) alone(at time.Duration, do func()) {
	m.w.seq++
	m.w.queue.push(event{at: max(at, m.w.now), seq: m.w.seq, do: do, to: m, life: m.life})
}

// whenAwake does something now, or as soon as the process is not paused any more.
func (m *member) whenAwake(do func()) {
	switch {
	case !m.up:
	case m.paused():
		m.held = append(m.held, event{to: m, life: m.life, do: do})
	default:
		do()
	}
}

func (m *member) paused() bool { return m.pausedUntil > m.w.now || m.waits != nil }

// pause stops the process for a while; what happens to it meanwhile waits.
func (m *member) pause(d time.Duration) {
	m.pausedUntil = max(m.pausedUntil, m.w.now+d)
	m.w.in(d, m.resume)
}

// resume lets happen what waited, in order, but deadlines last.
func (m *member) resume() {
	if m.paused() {
		return
	}
	held := m.held
	m.held = nil
	for _, ticks := range []bool{false, true} {
		for _, e := range held {
			if e.tick == ticks {
				m.w.seq++
				e.at, e.seq = m.w.now, m.w.seq
				m.w.queue.push(e)
			}
		}
	}
}

// flush runs an fsync that takes its time, and lets the process hear of it later still.
func (m *member) flush(f *replica.Flush) {
	p := &m.w.plan
	took, told := m.io.about(p.flushMean)+m.slowness(), time.Duration(0)
	if m.slowUntil > m.w.now {
		if stall := min(m.io.about(p.stall), 4*time.Second); p.stallTold {
			told = stall
		} else {
			took += stall
		}
	}
	m.flushing = true
	cut := m.disk.cut
	m.alone(m.w.now+took, func() {
		err := f.Run()
		m.w.trace.member(m, "flush done")
		m.alone(m.w.now+told+m.io.between(0, p.flushLate), func() {
			m.flushing = false
			if m.disk.cut > cut {
				m.w.saw(flushedTooLate)
			}
			m.step(replica.Flushed{Flush: f, Err: err}, "flushed")
		})
	})
}

// serve takes in a request that came over a connection.
func (m *member) serve(x *exchange) {
	m.lastID++
	id := m.lastID
	m.requests[id], x.served = x, m.w.now
	switch p := x.payload.(type) {
	case raft.ApiVersionsRequest: // answered without the core
		answer := raft.ApiVersionsResponse{KRaft: &raft.VersionRange{Max: 1}}
		if !m.voter {
			answer.KRaft = nil
		}
		delete(m.requests, id)
		x.reply(answer)
	case raft.Request:
		if refusal := m.w.strands(m, p); refusal != nil {
			delete(m.requests, id)
			x.reply(refusal)
			return
		}
		if b := m.w.plant; b != nil && b.receive != nil {
			p = b.receive(m, p)
		}
		m.w.oracle.heard(m, p)
		m.step(replica.Core{Event: raft.Inbound{ID: id, Conn: x.conn.id, Request: p}}, "<- %d: %s", m.w.hostName(x.conn.dialer), about{p})
	case clientCall:
		e := p.event(id)
		if b := m.w.plant; b != nil && b.clientAnswer != nil {
			if result := b.clientAnswer(m, e); result != nil {
				delete(m.requests, id)
				m.w.oracle.answers(m, x, result)
				defer x.reply(result)
			}
		}
		m.step(e, "<- c%d: %s", x.conn.dialer-len(m.w.members), p.what)
		x.waited = !x.done
	}
}

// answer sends an answer back over the connection that the request came on.
func (m *member) answer(a replica.Answer) {
	x := m.requests[a.ID]
	if x == nil {
		m.w.oracle.local(a)
		return
	}
	delete(m.requests, a.ID)
	m.w.oracle.answers(m, x, a.Result)
	if call, ok := x.payload.(clientCall); ok {
		m.w.trace.member(m, "-> c%d: %s for %s", x.conn.dialer-len(m.w.members), about{a.Result}, call.what)
	}
	x.reply(a.Result)
}

// send delivers a request of the core.
func (m *member) send(s raft.Send) {
	if b := m.w.plant; b != nil && b.send != nil {
		b.send(m, &s)
	}
	peer := m.peer(s.To)
	if peer == nil {
		m.w.violate("NoIllegalState", "node %d sends %s to %+v", m.id, about{s.Request}, s.To)
		return
	}
	to := peer.to
	m.w.oracle.sends(m, s)
	if b := m.w.plant; b != nil && b.swallows != nil && b.swallows(m, &s) {
		return
	}
	m.w.trace.member(m, "-> %d: %s%s", to.id, about{s.Request}, bootstrap(s.To))
	life := m.life
	x := &exchange{payload: s.Request, outcome: func(answer any, f raft.Failure) {
		if !m.up || m.life != life {
			return
		}
		m.whenAwake(func() { m.outcome(to, s, answer, f) })
	}}
	if _, probe := s.Request.(raft.ApiVersionsRequest); m.w.plan.wire && !probe {
		if x.payload, x.spoken = m.speak(to, s.Request); x.spoken == nil {
			m.w.in(0, func() { x.outcome(nil, raft.UnsupportedByPeer) })
			return
		}
	}
	peer.exchange(x)
}

// bootstrap marks what goes to a bootstrap server in the trace.
func bootstrap(d raft.Destination) string {
	if d.ID < 0 {
		return " by bootstrap"
	}
	return ""
}

// outcome tells the core what became of its request.
func (m *member) outcome(to *member, s raft.Send, answer any, f raft.Failure) {
	m.seen.outcome(s.Correlation)
	switch r := answer.(type) {
	case nil:
		m.step(replica.Core{Event: raft.Outcome{Correlation: s.Correlation, Failure: f}}, "request to %d failed (%d): %s", to.id, f, about{s.Request})
	case replica.FetchResult:
		e := replica.Fetched{Correlation: s.Correlation, Response: r.FetchResponse, Records: append([]byte(nil), r.Records...)}
		e.Response.Offset, e.Response.End, e.Response.MaxBytes = 0, 0, 0 // not on the wire
		if b := m.w.plant; b != nil && b.fetched != nil {
			b.fetched(m, &e)
		}
		m.step(e, "<- %d: %s, %d bytes", to.id, about{r.FetchResponse}, len(r.Records))
	case replica.SnapshotResult:
		e := replica.FetchedSnapshot{Correlation: s.Correlation, Response: r.FetchSnapshotResponse, Data: append([]byte(nil), r.Data...)}
		if b := m.w.plant; b != nil && b.chunk != nil && len(e.Data) > 0 {
			b.chunk(e.Data)
		}
		m.step(e, "<- %d: %s, %d bytes", to.id, about{r.FetchSnapshotResponse}, len(r.Data))
	case raft.Response:
		m.step(replica.Core{Event: raft.Outcome{Correlation: s.Correlation, Response: r}}, "<- %d: %s", to.id, about{r})
	default:
		m.w.violate("NoIllegalState", "node %d answers %s with a %T", to.id, about{s.Request}, answer)
	}
}
