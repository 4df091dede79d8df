package raft

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	clusterSeed  = flag.Uint64("cluster.seed", 0, "run TestCluster with this seed only, and print its trace")
	clusterSeeds = flag.Uint64("cluster.seeds", 50, "how many seeds TestCluster runs")
	clusterFirst = flag.Uint64("cluster.first", 1, "the first of them")
)

// TestCluster runs whole quorums on lossy, slow, reordering networks with crashes that lose what was not flushed, while voters
// are added, removed, and lose their disks. It checks that an epoch has one leader, that logs agree below the high watermark,
// which is on the disks of a majority of the newest voter set, that an acknowledged write is never lost, that a barrier is
// never behind, that a voter change answered as committed is, and that with all faults healed a write commits.
func TestCluster(t *testing.T) {
	if *clusterSeed != 0 {
		w := newWorld(*clusterSeed)
		w.trace = true
		if err := w.run(); err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds := *clusterSeeds
	if testing.Short() {
		seeds = min(seeds, 15)
	}
	stats := worldStats{}
	for seed := *clusterFirst; seed < *clusterFirst+seeds; seed++ {
		w := newWorld(seed)
		if err := w.run(); err != nil {
			t.Fatalf("%v\nreproduce: go test ./quorum/raft -run TestCluster -cluster.seed=%d", err, seed)
		}
		stats.add(w.stats)
	}
	t.Logf("%d seeds: %+v", seeds, stats)
	if stats.Acked == 0 || stats.Crashes == 0 || stats.Handoffs == 0 || stats.Barriers == 0 || stats.Truncations == 0 || stats.Installed == 0 ||
		stats.Added == 0 || stats.Joined == 0 || stats.Removed == 0 || stats.SelfRemoved == 0 || stats.LostDisks == 0 {
		t.Errorf("the test tested too little: %+v", stats)
	}
}

type worldStats struct {
	Steps, Elections, Crashes, Acked, Refused, Handoffs, Barriers, Truncations, Snapshots, Installed int

	Added, Joined, Removed, SelfRemoved, LostDisks int
}

func (s *worldStats) add(o worldStats) {
	s.Steps += o.Steps
	s.Elections += o.Elections
	s.Crashes += o.Crashes
	s.Acked += o.Acked
	s.Refused += o.Refused
	s.Handoffs += o.Handoffs
	s.Barriers += o.Barriers
	s.Truncations += o.Truncations
	s.Added += o.Added
	s.Joined += o.Joined
	s.Removed += o.Removed
	s.SelfRemoved += o.SelfRemoved
	s.LostDisks += o.LostDisks
	s.Snapshots += o.Snapshots
	s.Installed += o.Installed
}

type occurrence struct {
	at  Instant
	seq int
	do  func() error
}

type link struct{ from, to NodeID }

type world struct {
	rng     *rand.Rand
	now     Instant
	seq     int
	queue   []occurrence // sorted by time
	members []*member    // node is nil while it is down
	stats   worldStats
	trace   bool
	faults  bool
	quiet   bool // no client

	symmetric bool          // all messages take as long
	looks     func(*member) // after each step, if a test wants to

	bootstrap VoterSet
	admin     map[RequestID]voterAsked

	cut         map[link]bool
	outstanding map[link]Correlation
	conns       map[link]ConnID
	nextConn    ConnID
	nextID      RequestID
	served      map[RequestID]servedRequest

	leaders   map[Epoch]NodeID
	committed []testBatch // below the largest high watermark seen
	acked     map[string]int64
	ackedEnd  int64
	barriers  map[RequestID]int64
	loss      float64
	delay     time.Duration
}

// servedRequest is where an answer goes.
type servedRequest struct {
	from, to NodeID
	corr     Correlation
	node     *Node // of the sender when it sent
}

func newWorld(seed uint64) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 1)), faults: true,
		admin: map[RequestID]voterAsked{}, cut: map[link]bool{}, outstanding: map[link]Correlation{}, conns: map[link]ConnID{},
		served: map[RequestID]servedRequest{}, leaders: map[Epoch]NodeID{}, acked: map[string]int64{}, barriers: map[RequestID]int64{},
	}
	w.loss = []float64{0, 0.01, 0.1}[w.rng.IntN(3)]
	w.delay = []time.Duration{time.Millisecond, 5 * time.Millisecond, 50 * time.Millisecond}[w.rng.IntN(3)]
	voters := 1 + w.rng.IntN(5)
	var ids []NodeID
	for i := range voters {
		ids = append(ids, NodeID(i))
	}
	set := testVoters(ids...)
	w.bootstrap = set
	observers := w.rng.IntN(4)
	for i := range observers {
		ids = append(ids, NodeID(voters+i))
	}
	everybody := testVoters(ids...) // who may be asked for the leader
	for i := range voters + observers {
		cfg := testConfig(NodeID(i), everybody)
		cfg.Rand = rand.New(rand.NewPCG(seed, uint64(100+i)))
		cfg.FetchMaxBytes = 150 + w.rng.IntN(1000)
		cfg.SnapshotMaxBytes = 50 + w.rng.IntN(1000)
		bootstrap := dynamic(set)
		if i >= voters {
			bootstrap = []ControlAt{{-1, KRaftVersion{1}}}
			cfg.ObserverOnly = w.rng.IntN(3) == 0
			cfg.AutoJoin = w.rng.IntN(3) == 0
		}
		w.members = append(w.members, newMember(cfg, bootstrap))
	}
	return w
}

func (w *world) after(d time.Duration, do func() error) {
	w.seq++
	o := occurrence{w.now.Add(d), w.seq, do}
	i, _ := slices.BinarySearchFunc(w.queue, o, func(a, b occurrence) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
	w.queue = slices.Insert(w.queue, i, o)
}

func newRand(a, b uint64) *rand.Rand { return rand.New(rand.NewPCG(a, b)) }

func (w *world) latency() time.Duration {
	if w.symmetric {
		return w.delay
	}
	return w.delay/2 + time.Duration(w.rng.Int64N(int64(w.delay)))
}

func (w *world) logf(format string, args ...any) {
	if w.trace {
		fmt.Fprintf(os.Stdout, "%8.1fms "+format+"\n", append([]any{float64(w.now) / 1e6}, args...)...)
	}
}

func (w *world) run() error {
	for _, m := range w.members {
		if err := m.boot(0); err != nil {
			return err
		}
		if err := w.take(m); err != nil {
			return err
		}
	}
	w.after(time.Second, w.client)
	w.after(2*time.Second, w.fault)
	w.after(2*time.Second, w.changeVoters)
	if err := w.until(Instant(20 * time.Second)); err != nil {
		return err
	}
	return w.healed()
}

func (w *world) until(end Instant) error {
	for w.now < end {
		next, who := end, (*member)(nil)
		for _, m := range w.members {
			if m.node != nil && m.node.Deadline() < next {
				next, who = m.node.Deadline(), m
			}
		}
		if len(w.queue) > 0 && w.queue[0].at <= next {
			o := w.queue[0]
			w.queue = w.queue[1:]
			w.now = max(w.now, o.at)
			if err := o.do(); err != nil {
				return err
			}
			continue
		}
		w.now = max(w.now, next)
		if who != nil {
			if err := w.step(who, Deadline{}); err != nil {
				return err
			}
			if who.node != nil && who.node.Deadline() <= w.now {
				return fmt.Errorf("node %d spins: deadline %d at %d, %+v", who.cfg.Self.ID, who.node.Deadline(), w.now, who.node.Status())
			}
		}
	}
	w.now = end
	return nil
}

func (w *world) step(m *member, ev Event) error {
	if m.node == nil {
		return nil
	}
	w.stats.Steps++
	m.node.Step(w.now, ev)
	return w.take(m)
}

func (w *world) take(m *member) error {
	id := m.cfg.Self.ID
	out := m.take()
	r := out.ready
	if r.Fatal != nil {
		return fmt.Errorf("node %d: %s: %s", id, r.Fatal.Reason, r.Fatal.Message)
	}
	if r.Truncate != nil {
		w.stats.Truncations++
	}
	if w.looks != nil {
		w.looks(m)
	}
	if r.Persist != nil {
		w.logf("%d persist %+v", id, *r.Persist)
	}
	if err := w.inspect(m); err != nil {
		return err
	}
	if err := w.inspectCommit(m, r.Appends); err != nil {
		return err
	}
	if r.Verify {
		node, file := m.node, m.download
		w.after(time.Duration(w.rng.Int64N(int64(time.Second))), func() error {
			if m.node != node || m.download != file {
				return nil
			}
			return w.step(m, m.verified(w.rng.IntN(10) == 0))
		})
	}
	if i := r.Install; i != nil && i.Replaces {
		w.stats.Installed++
	}
	if r.Flush {
		node := m.node
		w.after(time.Duration(w.rng.Int64N(int64(20*time.Millisecond))), func() error {
			if m.node != node {
				return nil
			}
			return w.step(m, m.flushed())
		})
	}
	for i, a := range out.answers {
		if err := w.answer(m, a, out.batches[i], out.files[i]); err != nil {
			return err
		}
	}
	for _, s := range out.sends {
		w.send(m, s)
	}
	return nil
}

// inspect checks the safety properties that one replica can break.
func (w *world) inspect(m *member) error {
	n := m.node
	if n.role == Leader {
		if other, ok := w.leaders[n.state.Epoch]; ok && other != m.cfg.Self.ID {
			return fmt.Errorf("two leaders in epoch %d: %d and %d", n.state.Epoch, other, m.cfg.Self.ID)
		}
		if _, ok := w.leaders[n.state.Epoch]; !ok {
			w.leaders[n.state.Epoch] = m.cfg.Self.ID
			w.stats.Elections++
			w.logf("%d leads epoch %d", m.cfg.Self.ID, n.state.Epoch)
			// Leader completeness: all that was ever committed is in its log.
			for i, b := range w.committed {
				if i >= len(m.log) || !sameBatch(b, m.log[i]) {
					return fmt.Errorf("leader %d of epoch %d lacks committed batch %+v", m.cfg.Self.ID, n.state.Epoch, b)
				}
			}
		}
	}
	for ; m.checked < len(m.log) && m.log[m.checked].LastOffset < n.highWatermark; m.checked++ {
		b := m.log[m.checked]
		if m.checked == len(w.committed) {
			w.committed = append(w.committed, b)
		} else if !sameBatch(w.committed[m.checked], b) {
			return fmt.Errorf("node %d has %+v below its high watermark %d, another has %+v", m.cfg.Self.ID, b, n.highWatermark, w.committed[m.checked])
		}
	}
	return nil
}

func (w *world) answer(m *member, a Answer, batches []testBatch, file testSnapshot) error {
	switch r := a.Result.(type) {
	case ProposeResult:
		payload := m.payloads[a.ID]
		delete(m.payloads, a.ID)
		if r.Error != NoError {
			w.stats.Refused++
			if r.Leader == m.cfg.Self.ID && m.node.role != Leader {
				return fmt.Errorf("node %d, %s, names itself to a client", r.Leader, m.node.role)
			}
			return nil
		}
		w.stats.Acked++
		w.acked[payload] = r.BaseOffset
		w.ackedEnd = max(w.ackedEnd, r.BaseOffset+1)
		i, ok := slices.BinarySearchFunc(w.committed, r.BaseOffset, func(b testBatch, base int64) int { return cmp.Compare(b.BaseOffset, base) })
		if !ok || w.committed[i].payload != payload {
			return fmt.Errorf("node %d acknowledged %s at %d, which is not committed", m.cfg.Self.ID, payload, r.BaseOffset)
		}
		if endOfBatches(m.durable) <= r.BaseOffset {
			return fmt.Errorf("node %d acknowledged %s at %d before its own disk had it", m.cfg.Self.ID, payload, r.BaseOffset)
		}
	case BarrierResult:
		if r.Error == NoError {
			w.stats.Barriers++
			if r.HighWatermark < w.barriers[a.ID] {
				return fmt.Errorf("barrier at node %d says %d, but %d was acknowledged before it began", m.cfg.Self.ID, r.HighWatermark, w.barriers[a.ID])
			}
		}
	case HandoffAccepted:
		if r.Refusal == "" {
			w.stats.Handoffs++
		}
	case Response:
		if asked, ok := w.admin[a.ID]; ok {
			delete(w.admin, a.ID)
			return w.voterAnswer(m, asked, r)
		}
		w.respond(m, a.ID, r, batches, file)
	default:
		return fmt.Errorf("answer %T", a.Result)
	}
	return nil
}

func (w *world) respond(m *member, id RequestID, r Response, batches []testBatch, file testSnapshot) {
	to := w.served[id]
	delete(w.served, id)
	sender := w.members[to.from]
	if w.drop(m.cfg.Self.ID, to.from) {
		return
	}
	w.after(w.latency(), func() error {
		if sender.node != to.node || sender.node == nil {
			return nil
		}
		if w.outstanding[link{to.from, to.to}] == to.corr {
			delete(w.outstanding, link{to.from, to.to})
		}
		if f, ok := r.(FetchResponse); ok {
			f.Batches = nil
			for _, b := range batches {
				f.Batches = append(f.Batches, b.Batch)
			}
			sender.kept[to.corr] = batches
			r = f
		}
		sender.files[to.corr] = file
		return w.step(sender, Outcome{Correlation: to.corr, Response: r})
	})
}

func (w *world) drop(from, to NodeID) bool {
	return w.cut[link{from, to}] || w.faults && w.rng.Float64() < w.loss
}

func (w *world) send(m *member, s Send) {
	from := m.cfg.Self.ID
	var to NodeID
	if _, err := fmt.Sscanf(s.To.Host, "n%d", &to); err != nil {
		panic(err)
	}
	l := link{from, to}
	if _, busy := w.outstanding[l]; busy || w.conns[l] == 0 {
		w.nextConn++ // rule 6: a new connection
		w.conns[l] = w.nextConn
	}
	w.outstanding[l] = s.Correlation
	conn, sender, target := w.conns[l], m.node, w.members[to]
	if _, ok := s.Request.(AddRaftVoterRequest); ok {
		m.joining = w.now
		w.stats.Joined++
	}
	if target.node == nil && !w.cut[l] { // refused at once
		w.after(w.latency(), func() error {
			if m.node != sender {
				return nil
			}
			return w.step(m, Outcome{Correlation: s.Correlation, Failure: Refused})
		})
		return
	}
	if w.drop(from, to) {
		return
	}
	w.after(w.latency(), func() error {
		if target.node == nil {
			return nil
		}
		if _, ok := s.Request.(ApiVersionsRequest); ok {
			id := RequestID(1<<40) + w.newID()
			w.served[id] = servedRequest{from, to, s.Correlation, sender}
			answer := ApiVersionsResponse{KRaft: &VersionRange{0, 1}}
			if target.cfg.ObserverOnly {
				answer.KRaft = nil
			}
			w.respond(target, id, answer, nil, testSnapshot{})
			return nil
		}
		id := w.newID()
		w.served[id] = servedRequest{from, to, s.Correlation, sender}
		return w.step(target, Inbound{ID: id, Conn: conn, Request: s.Request})
	})
}

func (w *world) newID() RequestID { w.nextID++; return w.nextID }

// client proposes, asks for barriers and hands over, at whoever believes to lead (or not).
func (w *world) client() error {
	if w.quiet {
		return nil
	}
	w.after(time.Duration(w.rng.Int64N(int64(30*time.Millisecond))), w.client)
	m := w.members[w.rng.IntN(len(w.members))]
	for _, o := range w.members {
		if o.node != nil && o.node.role == Leader && w.rng.IntN(10) > 0 {
			m = o
			if w.rng.IntN(2) == 0 {
				break
			}
		}
	}
	if m.node == nil {
		return nil
	}
	id := w.newID()
	switch k := w.rng.IntN(100); {
	case k < 2 && w.faults:
		return w.step(m, Handoff{ID: id, Target: ReplicaKey{ID: NodeID(w.rng.IntN(len(w.members)+1) - 1)}})
	case k < 20:
		w.barriers[id] = w.ackedEnd
		return w.step(m, Barrier{ID: id})
	}
	m.payloads[id] = fmt.Sprintf("p%d", id)
	return w.step(m, Propose{ID: id, Records: 1 + int32(w.rng.IntN(3)), Bytes: 10})
}

func (w *world) fault() error {
	if !w.faults {
		return nil
	}
	w.after(time.Duration(w.rng.Int64N(int64(2*time.Second))), w.fault)
	m := w.members[w.rng.IntN(len(w.members))]
	switch k := w.rng.IntN(14); {
	case k >= 10:
		return w.snapshot(m)
	case k < 4:
		if m.node == nil {
			return nil
		}
		w.logf("%d crashes", m.cfg.Self.ID)
		w.stats.Crashes++
		node := m.node
		m.crash(w.rng)
		w.breakConnections(m.cfg.Self.ID, node)
		w.after(time.Duration(w.rng.Int64N(int64(3*time.Second))), func() error { return w.restart(m) })
	case k < 8:
		o := w.members[w.rng.IntN(len(w.members))]
		a, b := m.cfg.Self.ID, o.cfg.Self.ID
		w.cut[link{a, b}] = true
		both := w.rng.IntN(3) > 0
		if both {
			w.cut[link{b, a}] = true
		}
		w.after(time.Duration(w.rng.Int64N(int64(4*time.Second))), func() error {
			delete(w.cut, link{a, b})
			delete(w.cut, link{b, a})
			return nil
		})
	case k < 9:
		for _, o := range w.members { // alone
			w.cut[link{m.cfg.Self.ID, o.cfg.Self.ID}] = true
			w.cut[link{o.cfg.Self.ID, m.cfg.Self.ID}] = true
		}
		w.after(time.Duration(w.rng.Int64N(int64(5*time.Second))), func() error { clear(w.cut); return nil })
	default:
		below := w.rng.IntN(3) == 0
		return w.step(m, Reserve{Below: below, Full: below && w.rng.IntN(2) == 0})
	}
	return nil
}

func (w *world) breakConnections(id NodeID, dead *Node) {
	for _, o := range w.members {
		if o.node == nil {
			continue
		}
		l := link{o.cfg.Self.ID, id}
		delete(w.conns, l)
		if c, ok := w.outstanding[l]; ok {
			delete(w.outstanding, l)
			node := o.node
			w.after(w.latency(), func() error {
				if o.node != node {
					return nil
				}
				if err := w.step(o, Outcome{Correlation: c, Failure: Disconnected}); err != nil {
					return err
				}
				return w.step(o, ConnectionLost{Peer: id, Refused: w.members[id].node == nil})
			})
		}
	}
	for l := range w.outstanding {
		if l.from == id {
			delete(w.outstanding, l)
		}
	}
}

func (w *world) restart(m *member) error {
	if m.node != nil {
		return nil
	}
	w.logf("%d restarts", m.cfg.Self.ID)
	if err := m.boot(w.now); err != nil {
		return err
	}
	return w.take(m)
}

// healed ends all faults and wants service back.
func (w *world) healed() error {
	w.faults = false
	clear(w.cut)
	w.logf("healed")
	for _, m := range w.members {
		if err := w.restart(m); err != nil {
			return err
		}
		if err := w.step(m, Reserve{}); err != nil {
			return err
		}
	}
	if err := w.until(w.now + Instant(10*time.Second)); err != nil {
		return err
	}
	acked, epoch := w.stats.Acked, w.epoch()
	if err := w.until(w.now + Instant(5*time.Second)); err != nil {
		return err
	}
	if w.stats.Acked == acked {
		return fmt.Errorf("no write was acknowledged in 5 s although all faults were healed 10 s before: %s", w.summary())
	}
	for e := epoch; e < w.epoch(); e++ {
		// One that was removed may still have waited for a successor to catch up. It alone has a reason to go.
		leader, led := w.leaders[e]
		if !led || w.committedVoters().Contains(w.members[leader].cfg.Self) {
			return fmt.Errorf("the epoch grew from %d to %d without a fault, though nobody had removed the leader of %d", epoch, w.epoch(), e)
		}
	}
	for payload, offset := range w.acked {
		if i, ok := slices.BinarySearchFunc(w.committed, offset, func(b testBatch, base int64) int { return cmp.Compare(b.BaseOffset, base) }); !ok || w.committed[i].payload != payload {
			return fmt.Errorf("acknowledged write %s at %d was lost", payload, offset)
		}
	}
	w.quiet = true
	for range 100 { // a replica that fetches one batch at a time may be far behind
		if err := w.until(w.now + Instant(time.Second)); err != nil {
			return err
		}
		if !slices.ContainsFunc(w.members, func(m *member) bool { return m.node.highWatermark != w.committed[len(w.committed)-1].LastOffset+1 }) {
			return nil
		}
	}
	return fmt.Errorf("not all replicas reached the end of the log: %s", w.summary())
}

func (w *world) epoch() Epoch {
	e := Epoch(0)
	for _, m := range w.members {
		e = max(e, m.node.state.Epoch)
	}
	return e
}

func (w *world) summary() string {
	var b strings.Builder
	for _, m := range w.members {
		if m.node == nil {
			continue
		}
		n := m.node
		fmt.Fprintf(&b, "\n  %d %s %+v end %+v flushed %d hw %d", m.cfg.Self.ID, n.role, n.state, n.log.position(), n.flushed, n.highWatermark)
	}
	return b.String()
}
