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
	voter   bool // it is one, was one, or may become one; else it is configured as an observer for good
	founder bool // its bootstrap checkpoint names the first voters
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
	slowUntil   time.Duration // fsyncs of the log take longer
	fsync       time.Duration // … and so much longer all fsyncs, also those that the process waits for
	uneven      bool          // … or only on average
	wallOff     time.Duration // how wrong its calendar is

	// of the process that runs
	replica  *replica.Replica
	clock    clock
	tickAt   time.Duration
	ticks    int // of this second
	allTicks int // of all processes
	peers    []*caller
	requests map[raft.RequestID]*exchange
	lastID   raft.RequestID
	jobs     []*replica.Job
	flushing bool          // an fsync runs, or its outcome is on the way
	waits    func()        // what it does when the fsyncs that it waits for are done; nil: it waits for none
	stepped  time.Duration // when its last step was
	stopping bool          // it was asked to stop
	ended    bool          // the replica has stopped; the process only waits for that fsync
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

// plannedVoters is the first voter set.
func (w *world) plannedVoters() raft.VoterSet {
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

// format makes an empty disk a member's directory. Who comes later than the first voters learns from the log who votes.
func (m *member) format() {
	m.disk = newDisk(vfs.NewMem(), m.w.plant)
	m.disk.onState = func(s raft.ElectionState) { m.w.oracle.persisted(m, s) }
	m.disk.onCheckpoint = func(name string) { m.w.oracle.named(m, name) }
	m.disk.covered = m.w.oracle.covered
	o := storage.FormatOptions{
		ClusterID: clusterID, NodeID: m.id, DirectoryID: m.key.DirectoryID,
		KRaftVersion: m.w.plan.kraftVersion, Timestamp: 1_700_000_000_000,
	}
	if m.founder = has(m.w.initial, m.key); m.founder && o.KRaftVersion > 0 {
		o.InitialVoters = m.w.initial
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
			AutoJoin:        p.autoJoin && m.voter,
			ElectionTimeout: p.electionTimeout, FetchTimeout: p.fetchTimeout, ElectionBackoffMax: time.Second,
			RequestTimeout: p.requestTimeout, RetryBackoff: p.retryBackoff, AppendLinger: p.linger,
			FetchMaxWait: p.fetchMaxWait, FetchMaxBytes: p.fetchMaxBytes, SnapshotMaxBytes: p.snapshots.maxBytes, MaxPending: 1000,
			Rand: newDice(m.dice.Uint64(), "raft").Rand,
		},
		Producers:      state.Options{MaxProducers: 1000, Expiration: 24 * time.Hour},
		Snapshots:      p.snapshots.options(),
		MaxParkedReads: 100,
		Wall:           func() time.Time { return time.UnixMilli(1_700_000_000_000).Add(m.w.now + m.wallOff) },
	}
	if p.kraftVersion == 0 {
		c.Raft.StaticVoters = m.w.initial
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
	m.held, m.jobs, m.waits = nil, nil, nil
	m.tickAt, m.ticks, m.pausedUntil, m.flushing, m.stopping, m.ended = -1, 0, 0, false, false, false
	m.requests = map[raft.RequestID]*exchange{}
	m.seen = newSeen()
	m.connect()
	options := storage.Options{ClusterID: clusterID, NodeID: m.id, SegmentBytes: m.w.plan.segmentBytes, Reserve: diskReserve, Ballast: m.w.plan.ballast}
	m.disk.untold = m.w.plan.untold
	m.disk.failed = nothing
	r, err := replica.Open(m.disk, dataDir, options, m.config(), m.clock.read(m.w.now))
	if err != nil && m.disk.full && errors.Is(err, storage.ErrDiskFull) {
		m.up = false
		m.disk.release()
		m.w.trace.note(m.w, "node %d does not start: %v", m.id, err)
		m.w.in(500*time.Millisecond, m.start)
		return
	}
	if err != nil {
		m.up = false
		m.w.violate("RecoversFromCrash", "node %d does not start: %v", m.id, err)
		return
	}
	m.replica = r
	m.w.oracle.started(m)
	m.finish(0, r.Start(m.clock.read(m.w.now)), "starts, process %d", m.life)
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
	m.replica, m.waits = nil, nil
	for _, k := range m.peers {
		k.dead = true
	}
}

// stopped is a process that has done all that a graceful stop asks for.
func (m *member) stopped() {
	m.ended = true
	for _, job := range m.jobs {
		job.Cancel()
	}
	if m.flushing || len(m.jobs) > 0 { // it must not be closed under an fsync, or a job
		m.alone(m.w.now+time.Millisecond, m.stopped)
		return
	}
	if err := m.replica.Close(); err != nil && m.disk.failed == nothing && !m.disk.full {
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
