package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/state"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

const (
	clusterID = "simulated-cluster-id00"
	listener  = "CONTROLLER"
	port      = 9093
)

// member is one machine with its disk, and the process on it while it runs.
type member struct {
	w       *world
	id      raft.NodeID
	host    int
	voter   bool // by plan
	release release
	key     raft.ReplicaKey
	disk    *disk
	dice    dice // of the processes; each start takes a seed from it
	io      dice // of the disk

	powered     bool // the machine is on
	barred      bool // for good
	up          bool // the process runs
	life        int  // number of the process
	pausedUntil time.Duration
	held        []event       // what would have happened in the pause
	downFor     time.Duration // after a graceful stop
	slowUntil   time.Duration // fsyncs take longer

	// of the process that runs
	replica  *replica.Replica
	clock    clock
	tickAt   time.Duration
	ticks    int // of this second
	allTicks int // of all processes
	peers    []*caller
	requests map[raft.RequestID]*exchange
	lastID   raft.RequestID
	flushing bool // an fsync runs, or its outcome is on the way
	stopping bool // it was asked to stop
	ended    bool // the replica has stopped; the process only waits for that fsync
	seen     seen
}

func newMember(w *world, id raft.NodeID, host int, voter bool) *member {
	m := &member{
		w: w, id: id, host: host, voter: voter, powered: true,
		dice: newDice(w.plan.seed, fmt.Sprintf("member %d", id)),
		io:   newDice(w.plan.seed, fmt.Sprintf("disk %d", id)),
	}
	m.key = raft.ReplicaKey{ID: id, DirectoryID: m.newDirectoryID()}
	m.release = kip1166
	if w.plan.wire {
		oldest := kip853
		if w.plan.kraftVersion == 0 {
			oldest = kip595
		}
		m.release = oldest + release(newDice(w.plan.seed, fmt.Sprintf("release of %d", id)).IntN(int(kip1166-oldest)+1))
	}
	return m
}

func (m *member) newDirectoryID() raft.UUID {
	var u raft.UUID
	for i := range u {
		u[i] = byte(m.dice.Uint32())
	}
	return u
}

func (m *member) endpoints() []raft.Endpoint {
	return []raft.Endpoint{{Name: listener, Host: fmt.Sprintf("q-%d", m.id), Port: port}}
}

// voterSet is the quorum as it was planned.
func (w *world) voterSet() raft.VoterSet {
	var voters []raft.Voter
	for _, m := range w.members {
		if m.voter {
			v := raft.Voter{Key: m.key, Endpoints: m.endpoints(), KRaft: raft.VersionRange{Max: 1}}
			if w.plan.kraftVersion == 0 {
				v.Key.DirectoryID, v.KRaft = raft.UUID{}, raft.VersionRange{}
			}
			voters = append(voters, v)
		}
	}
	set, err := raft.NewVoterSet(voters...)
	if err != nil {
		panic(err)
	}
	return set
}

// format makes an empty disk a member's directory.
func (m *member) format() {
	m.disk = newDisk(vfs.NewMem(), m.w.plant)
	m.disk.onState = func(s raft.ElectionState) { m.w.oracle.persisted(m, s) }
	o := storage.FormatOptions{
		ClusterID: clusterID, NodeID: m.id, DirectoryID: m.key.DirectoryID,
		KRaftVersion: m.w.plan.kraftVersion, Timestamp: 1_700_000_000_000,
	}
	if m.voter && o.KRaftVersion > 0 {
		o.InitialVoters = m.w.voterSet()
	}
	if err := errors.Join(m.disk.MkdirAll(dataDir), m.disk.SyncDir("/")); err != nil { // the volume's root
		panic(err)
	}
	if err := storage.Format(m.disk, dataDir, o); err != nil {
		m.w.violate("NoIllegalState", "format of node %d: %v", m.id, err)
	}
}

// config is what the process is told at birth.
func (m *member) config() replica.Config {
	p := &m.w.plan
	c := replica.Config{
		Raft: raft.Config{
			Self: m.key, ClusterID: clusterID, RequireID: true,
			Endpoints: m.endpoints(), Listener: listener, KRaft: raft.VersionRange{Max: 1},
			ObserverOnly:    !m.voter,
			ElectionTimeout: p.electionTimeout, FetchTimeout: p.fetchTimeout, ElectionBackoffMax: time.Second,
			RequestTimeout: p.requestTimeout, RetryBackoff: p.retryBackoff, AppendLinger: p.linger,
			FetchMaxWait: p.fetchMaxWait, FetchMaxBytes: p.fetchMaxBytes, MaxPending: 1000,
			Rand: newDice(m.dice.Uint64(), "raft").Rand,
		},
		Producers:      state.Options{MaxProducers: 1000, Expiration: 24 * time.Hour},
		MaxParkedReads: 100,
		Wall:           func() time.Time { return time.UnixMilli(1_700_000_000_000).Add(m.w.now) },
	}
	if p.kraftVersion == 0 {
		c.Raft.StaticVoters = m.w.voterSet()
	}
	for i, o := range m.w.members {
		if o.voter {
			e := o.endpoints()[0]
			c.Raft.Bootstrap = append(c.Raft.Bootstrap, raft.Destination{ID: raft.NodeID(-2 - i), Host: e.Host, Port: e.Port})
		}
	}
	if b := m.w.plant; b != nil && b.producers != nil {
		b.producers(&c.Producers)
	}
	return c
}

// start runs a process on the disk as it is.
func (m *member) start() {
	if m.up || m.barred {
		return
	}
	d := m.dice
	m.powered, m.up = true, true
	m.life++
	drift := int64(0)
	if most := m.w.plan.driftPPM; most > 0 {
		drift = int64(d.IntN(2*most+1) - most)
	}
	m.clock = clock{origin: m.w.now, base: raft.Instant(1 + d.Int64N(int64(1000*time.Hour))), ppm: 1_000_000 + drift}
	m.held = nil
	m.tickAt, m.ticks, m.pausedUntil, m.flushing, m.stopping, m.ended = -1, 0, 0, false, false, false
	m.requests = map[raft.RequestID]*exchange{}
	m.seen = newSeen()
	m.connect()
	options := storage.Options{ClusterID: clusterID, NodeID: m.id, SegmentBytes: m.w.plan.segmentBytes}
	m.disk.failed = false
	r, err := replica.Open(m.disk, dataDir, options, m.config(), m.clock.read(m.w.now))
	if err != nil {
		m.up = false
		m.w.violate("RecoversFromCrash", "node %d does not start: %v", m.id, err)
		return
	}
	m.replica = r
	m.w.oracle.started(m)
	m.finish(r.Start(m.clock.read(m.w.now)), "starts, process %d", m.life)
}

// connect prepares the connections of a new process: one to each member under its node id, and one under its number among
// the bootstrap servers, as package transport keeps them.
func (m *member) connect() {
	n := len(m.w.members)
	single := m.w.plant == nil || !m.w.plant.pipelined
	m.peers = make([]*caller, 2*n)
	for i, to := range m.w.members {
		m.peers[i] = &caller{n: m.w.net, from: m.host, to: to, timeout: m.w.plan.requestTimeout, single: single}
		m.peers[i].lost = func(refused bool) {
			m.whenAwake(func() {
				m.step(replica.Core{Event: raft.ConnectionLost{Peer: to.id, Refused: refused}}, "connection to %d lost, refused %v", to.id, refused)
			})
		}
		m.peers[n+i] = &caller{n: m.w.net, from: m.host, to: to, timeout: m.w.plan.requestTimeout, single: single}
	}
}

// peer is the connection to a destination of the core.
func (m *member) peer(d raft.Destination) *caller {
	to := m.w.byName(d.Host)
	switch {
	case to == nil || to == m:
		return nil
	case d.ID < 0:
		return m.peers[len(m.w.members)+to.host]
	}
	return m.peers[to.host]
}

// step lets one event happen to the process.
func (m *member) step(e replica.Event, format string, args ...any) {
	if m.ended {
		return
	}
	m.finish(m.replica.Step(m.clock.read(m.w.now), e), format, args...)
}

// finish checks what a step has done and carries out what it asks for.
func (m *member) finish(out replica.Output, format string, args ...any) {
	if out.Fatal != nil && m.disk.failed && out.Fatal.Reason == raft.FatalReason(storage.DiskIOError) {
		m.w.trace.member(m, "ends with %s", out.Fatal.Reason)
		m.w.saw(fsyncFailed)
		m.die(m.io.chance(0.3))
		m.w.in(m.io.about(m.w.plan.down), m.start)
		return
	}
	if m.disk.failed && !m.flushing {
		m.w.violate("FsyncErrorIsFatal", "node %d goes on after an fsync failed", m.id)
	}
	if out.Fatal != nil {
		m.w.violate("NoIllegalState", "node %d ended with %s: %s", m.id, out.Fatal.Reason, out.Fatal.Message)
		return
	}
	m.w.oracle.look(m)
	m.w.trace.member(m, format, args...)
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

func (m *member) paused() bool { return m.pausedUntil > m.w.now }

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
	took := m.io.about(p.flushMean)
	if m.slowUntil > m.w.now {
		took += m.io.about(300 * time.Millisecond)
	}
	m.flushing = true
	m.alone(m.w.now+took, func() {
		err := f.Run()
		m.w.trace.member(m, "flush done")
		m.alone(m.w.now+m.io.between(0, p.flushLate), func() {
			m.flushing = false
			m.step(replica.Flushed{Flush: f, Err: err}, "flushed")
		})
	})
}

// serve takes in a request that came over a connection.
func (m *member) serve(x *exchange) {
	m.lastID++
	id := m.lastID
	m.requests[id] = x
	switch p := x.payload.(type) {
	case raft.ApiVersionsRequest: // answered without the core
		answer := raft.ApiVersionsResponse{KRaft: &raft.VersionRange{Max: 1}}
		if !m.voter {
			answer.KRaft = nil
		}
		delete(m.requests, id)
		x.reply(answer)
	case raft.Request:
		if b := m.w.plant; b != nil && b.receive != nil {
			p = b.receive(m, p)
		}
		m.step(replica.Core{Event: raft.Inbound{ID: id, Conn: x.conn.id, Request: p}}, "<- %d: %s", m.w.hostName(x.conn.dialer), describe(p))
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
		m.w.trace.member(m, "-> c%d: %s for %s", x.conn.dialer-len(m.w.members), describe(a.Result), call.what)
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
		m.w.violate("NoIllegalState", "node %d sends %s to %+v", m.id, describe(s.Request), s.To)
		return
	}
	to := peer.to
	m.w.oracle.sends(m, s)
	m.w.trace.member(m, "-> %d: %s", to.id, describe(s.Request)+bootstrap(s.To))
	life := m.life
	x := &exchange{payload: s.Request, outcome: func(answer any, f raft.Failure) {
		if !m.up || m.life != life {
			return
		}
		m.whenAwake(func() { m.outcome(to, s, answer, f) })
	}}
	if m.w.plan.wire {
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
		m.step(replica.Core{Event: raft.Outcome{Correlation: s.Correlation, Failure: f}}, "request to %d failed (%d): %s", to.id, f, describe(s.Request))
	case replica.FetchResult:
		e := replica.Fetched{Correlation: s.Correlation, Response: r.FetchResponse, Records: append([]byte(nil), r.Records...)}
		e.Response.Offset, e.Response.End, e.Response.MaxBytes = 0, 0, 0 // not on the wire
		if b := m.w.plant; b != nil && b.fetched != nil {
			b.fetched(m, &e)
		}
		m.step(e, "<- %d: %s, %d bytes", to.id, describe(r.FetchResponse), len(r.Records))
	case raft.Response:
		m.step(replica.Core{Event: raft.Outcome{Correlation: s.Correlation, Response: r}}, "<- %d: %s", to.id, describe(r))
	default:
		m.w.violate("NoIllegalState", "node %d answers %s with a %T", to.id, describe(s.Request), answer)
	}
}

// die ends the process at once. Power says whether the machine goes down with it.
func (m *member) die(power bool) {
	if !m.up {
		return
	}
	before := m.disk.state
	m.disk.release()
	m.end()
	if power {
		m.powered = false
	}
	m.w.net.gone(m)
	if power {
		m.disk.powerCut(m.io, oneOf(m.io, 0, 0, 0.5, 0.9))
	}
	if b := m.w.plant; b != nil && b.afterCrash != nil {
		b.afterCrash(m, before)
	}
}

// end forgets the process.
func (m *member) end() {
	m.up = false
	m.replica = nil
	for _, k := range m.peers {
		k.dead = true
	}
}

// stopped is a process that has done all that a graceful stop asks for.
func (m *member) stopped() {
	m.ended = true
	if m.flushing { // it must not be closed under an fsync
		m.alone(m.w.now+time.Millisecond, m.stopped)
		return
	}
	if err := m.replica.Close(); err != nil && !m.disk.failed {
		m.w.violate("RecoversFromCrash", "node %d does not close: %v", m.id, err)
	}
	m.disk.release()
	m.w.trace.member(m, "stopped")
	m.w.saw(stoppedGracefully)
	m.end()
	m.w.net.gone(m)
	m.w.in(m.downFor, m.start)
}

func (w *world) byName(host string) *member {
	for _, m := range w.members {
		if m.endpoints()[0].Host == host {
			return m
		}
	}
	return nil
}

// hostName is the node id of a member's host; clients are counted on from 2000.
func (w *world) hostName(host int) int {
	if host < len(w.members) {
		return int(w.members[host].id)
	}
	return 2000 + host - len(w.members)
}
