package raft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs the stories in testdata/*.txt. After a wanted change run
// go test ./quorum/raft -run Scripts -rewrite and read the diff. Commands:
//
//	quorum voters=N observers=N [static] [pending=N] [fetchbytes=N] [snapshotbytes=N]   a new quorum: voters 1…N, observers 11…, all formatted, none started
//	… joinable | autojoin     … whose observers may become voters | ask for it
//	… static directories      … whose static voters have a directory id
//	… leader=N                … and started, with that leader, and let settle
//	log node=N epochs=(…)     one record of each of these epochs stands in the log before the start
//	start [node=(…)] [full]   boot members (all); full: there is no room on their disks
//	run MS [quiet]            let time pass: timers, messages and flushes happen as they come (1 ms each way)
//	tick node=N               jump to the node's deadline and give it
//	deliver [max=N] [drop=(…)] [quiet]   hand over what is in flight until nothing is, without time passing; drop loses messages from and to these nodes
//	lose                      forget all messages in flight
//	hold / release            flushes wait / finish again; release node=N finishes one
//	propose node=N id=NAME [records=N] [bytes=N]
//	crash node=N              unflushed data is gone; peers' connections are refused
//	cut a=(…) b=(…), heal     messages between a and b get lost
//	await node=N id=NAME offset=N   a duplicate waits for its original
//	handoff node=N [target=N] [dry] [pause=MS] [catchup=MS] [epoch=N]
//	add node=N voter=N [early] | remove node=N voter=N   asks node to change the voters; early: the answer may come before the commit
//	upgrade node=N [version=N]   of kraft.version
//	format node=N             a new disk: another directory id, no voters known
//	shutdown, barrier, reserve node=N [below | full]
//	gone node=N peer=N        the node's connection to peer ended and dialling it is refused
//	forge node=N diverging=OFFSET@EPOCH | hw=N | notleader   answers the node's fetch in flight
//	vote node=N from=N epoch=N last=OFFSET@EPOCH [pre]       a vote request out of nothing
//	fetch node=N from=N epoch=N offset=N last=N wait=MS [hw=N] [cluster=C]  a fetch out of nothing
//	endpoints node=N host=H [wrong]  the node's advertised host changes (at its next start); wrong: nobody listens there
//	state                     role, election state, log end, flushed, high watermark of all
//	handoff-status node=N     the newest handoff as that node saw it
//	voters node=N             the voter set in force
//	iterations ms=N           does the quorum stay quiet? counts steps
//	progress node=N           what the leader knows of the others
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, s.run)
	})
}

type packet struct {
	from, to NodeID
	corr     Correlation
	sender   *Node
	request  Request
	response Response
	batches  []testBatch
	file     testSnapshot
	host     string // dialled, of a request
	failure  Failure
	arrives  Instant
}

type script struct {
	members []*member
	down    map[NodeID]bool
	now     Instant
	net     []packet
	held    bool
	cut     map[link]bool
	served  map[RequestID]packet
	names   map[RequestID]string
	nextID  RequestID
	hw      map[NodeID]int64
	quiet   bool
	steps   int
	out     strings.Builder
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.out.Reset()
	s.quiet = d.HasArg("quiet")
	switch d.Cmd {
	case "quorum":
		s.create(t, d)
	case "start":
		for _, m := range s.chosen(t, d) {
			m.cfg.Reserve.Full = d.HasArg("full")
			s.boot(t, m)
		}
	case "run":
		ms, err := strconv.Atoi(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		s.elapse(s.now.Add(time.Duration(ms) * time.Millisecond))
	case "tick":
		m := s.chosen(t, d)[0]
		s.now = max(s.now, m.node.Deadline())
		s.step(m, Deadline{})
		if at := m.node.Deadline(); at <= s.now {
			t.Fatalf("node %d spins", m.cfg.Self.ID)
		}
	case "deliver":
		s.deliver(t, d)
	case "lose":
		s.net = nil
	case "hold":
		s.held = true
	case "release":
		s.held = d.HasArg("node")
		for _, m := range s.chosen(t, d) {
			if m.node != nil && m.flushing {
				s.step(m, m.flushed())
			}
			if m.node != nil && m.verifying {
				s.step(m, m.verified(false))
			}
		}
	case "propose":
		id, p := s.newID(t, d), Propose{Records: 1, Bytes: 10}
		d.MaybeScanArgs(t, "records", &p.Records)
		d.MaybeScanArgs(t, "bytes", &p.Bytes)
		p.ID = id
		m := s.chosen(t, d)[0]
		m.payloads[id] = s.names[id]
		s.step(m, p)
	case "await":
		a := Await{ID: s.newID(t, d)}
		d.ScanArgs(t, "offset", &a.BaseOffset)
		a.LastOffset = a.BaseOffset
		s.step(s.chosen(t, d)[0], a)
	case "barrier":
		s.step(s.chosen(t, d)[0], Barrier{ID: s.newID(t, d)})
	case "handoff":
		h, target, pause, catchUp := Handoff{ID: s.newID(t, d), Target: NoReplica, DryRun: d.HasArg("dry")}, int32(None), 0, 0
		d.MaybeScanArgs(t, "target", &target)
		d.MaybeScanArgs(t, "pause", &pause)
		d.MaybeScanArgs(t, "catchup", &catchUp)
		d.MaybeScanArgs(t, "epoch", (*int32)(&h.ExpectEpoch))
		h.Target.ID, h.MaxPause, h.CatchUpTimeout = NodeID(target), time.Duration(pause)*time.Millisecond, time.Duration(catchUp)*time.Millisecond
		s.step(s.chosen(t, d)[0], h)
	case "add", "remove", "upgrade":
		s.changeVoters(t, d)
	case "format":
		for _, m := range s.chosen(t, d) {
			m.cfg.Self.DirectoryID[1]++
			m.log, m.snapshots, m.logStart, m.state, m.bootstrap = nil, nil, 0, ElectionState{Leader: None, Voted: NoReplica}, []ControlAt{{-1, KRaftVersion{1}}}
		}
	case "shutdown":
		s.step(s.chosen(t, d)[0], Shutdown{})
	case "reserve":
		s.step(s.chosen(t, d)[0], Reserve{Below: d.HasArg("below"), Full: d.HasArg("full")})
	case "gone":
		var peer int32
		d.ScanArgs(t, "peer", &peer)
		s.step(s.chosen(t, d)[0], ConnectionLost{Peer: NodeID(peer), Refused: true})
	case "crash":
		for _, m := range s.chosen(t, d) {
			m.crash(nil)
			s.down[m.cfg.Self.ID] = true
		}
	case "cut":
		for _, a := range s.ids(t, d, "a") {
			for _, b := range s.ids(t, d, "b") {
				s.cut[link{a, b}], s.cut[link{b, a}] = true, true
			}
		}
	case "heal":
		clear(s.cut)
	case "forge":
		s.forge(t, d)
	case "vote":
		s.vote(t, d)
	case "voters":
		st := s.chosen(t, d)[0].node.Status()
		for _, v := range st.Voters {
			s.printf("%d: %v", v.Key.ID, v.Endpoints)
		}
		if c := st.VoterChange; c != nil {
			s.printf("%s of %d under way, offset %d", c.Kind, c.Voter.ID, c.Offset)
		}
	case "iterations":
		var ms int
		d.ScanArgs(t, "ms", &ms)
		m, before := s.chosen(t, d)[0], s.steps
		s.quiet = true
		s.elapse(s.now.Add(time.Duration(ms) * time.Millisecond))
		s.printf("%d: fewer than 50 steps a second: %v", m.cfg.Self.ID, (s.steps-before)*1000/ms < 50)
	case "log":
		m := s.chosen(t, d)[0]
		for i, e := range s.ids(t, d, "epochs") {
			m.log = append(m.log, testBatch{Batch{int64(i), int64(i), Epoch(e), 10, nil}, fmt.Sprintf("%d@%d", i, e)})
			m.state.Epoch = Epoch(e)
		}
	case "fetch":
		s.fetch(t, d)
	case "endpoints":
		var host string
		d.ScanArgs(t, "host", &host)
		m := s.chosen(t, d)[0]
		if !d.HasArg("wrong") {
			m.host = host
		}
		m.cfg.Endpoints = slices.Clone(m.cfg.Endpoints)
		for i := range m.cfg.Endpoints {
			m.cfg.Endpoints[i].Host = host
		}
	case "state":
		s.quiet = false
		for _, m := range s.members {
			s.state(m)
		}
	case "handoff-status":
		s.handoffStatus(s.chosen(t, d)[0])
	case "progress":
		for _, p := range s.chosen(t, d)[0].node.Status().Progress {
			s.printf("%d: end=%d fetched=%s caught-up=%s", p.Key.ID, p.LogEnd, s.age(p.LastFetch), s.age(p.LastCaughtUp))
		}
	default:
		if !s.snapshotCommand(t, d) {
			t.Fatalf("unknown command %s", d.Cmd)
		}
	}
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

func (s *script) printf(format string, args ...any) {
	fmt.Fprintf(&s.out, format+"\n", args...)
}

func (s *script) age(i Instant) string {
	if i == Instant(Unknown) {
		return "never"
	}
	return fmt.Sprintf("%v ago", time.Duration(s.now-i).Round(time.Millisecond))
}

func (s *script) create(t *testing.T, d *datadriven.TestData) {
	voters, observers := 3, 0
	d.MaybeScanArgs(t, "voters", &voters)
	d.MaybeScanArgs(t, "observers", &observers)
	*s = script{
		down: map[NodeID]bool{}, cut: map[link]bool{}, served: map[RequestID]packet{},
		names: map[RequestID]string{}, hw: map[NodeID]int64{}, quiet: s.quiet,
	}
	var ids []NodeID
	for i := range voters {
		ids = append(ids, NodeID(i+1))
	}
	set := testVoters(ids...)
	for i := range voters + observers {
		id := NodeID(i + 1)
		if i >= voters {
			id = NodeID(11 + i - voters)
		}
		cfg := testConfig(id, set)
		bootstrap := dynamic(set)
		if i >= voters {
			bootstrap, cfg.AutoJoin = []ControlAt{{-1, KRaftVersion{1}}}, d.HasArg("autojoin")
			cfg.ObserverOnly = !cfg.AutoJoin && !d.HasArg("joinable")
		}
		if d.HasArg("static") {
			bootstrap, cfg.StaticVoters = nil, static(set)
			if !d.HasArg("directories") {
				cfg.Self.DirectoryID = UUID{}
			}
		}
		d.MaybeScanArgs(t, "pending", &cfg.MaxPending)
		d.MaybeScanArgs(t, "fetchbytes", &cfg.FetchMaxBytes)
		d.MaybeScanArgs(t, "snapshotbytes", &cfg.SnapshotMaxBytes)
		s.members = append(s.members, newMember(cfg, bootstrap))
		s.down[id], s.hw[id] = true, Unknown
	}
	if leader := s.ids(t, d, "leader"); len(leader) > 0 {
		s.quiet = true
		for _, m := range s.members {
			s.boot(t, m)
		}
		m := s.member(leader[0])
		s.now = m.node.Deadline()
		for m.node.role == Unattached {
			s.now = max(s.now, m.node.election)
			s.step(m, Deadline{})
		}
		s.elapse(s.now.Add(9 * time.Second))
		s.out.Reset()
		s.state(m)
	}
}

func (s *script) ids(t *testing.T, d *datadriven.TestData, key string) []NodeID {
	var ids []NodeID
	for _, a := range d.CmdArgs {
		if a.Key != key {
			continue
		}
		for i := range a.Vals {
			var id int32
			a.Scan(t, i, &id)
			ids = append(ids, NodeID(id))
		}
	}
	return ids
}

func (s *script) chosen(t *testing.T, d *datadriven.TestData) []*member {
	ids := s.ids(t, d, "node")
	if len(ids) == 0 {
		return s.members
	}
	var out []*member
	for _, id := range ids {
		out = append(out, s.member(id))
	}
	return out
}

func (s *script) member(id NodeID) *member {
	i := slices.IndexFunc(s.members, func(m *member) bool { return m.cfg.Self.ID == id })
	return s.members[i]
}

func (s *script) newID(t *testing.T, d *datadriven.TestData) RequestID {
	s.nextID++
	name := d.Cmd
	d.MaybeScanArgs(t, "id", &name)
	s.names[s.nextID] = name
	return s.nextID
}

func (s *script) boot(t *testing.T, m *member) {
	if err := m.boot(s.now); err != nil {
		t.Fatal(err)
	}
	s.down[m.cfg.Self.ID] = false
	s.hw[m.cfg.Self.ID] = m.node.highWatermark
	if s.quiet {
		s.take(m)
		return
	}
	s.printf("%d: starts as %s", m.cfg.Self.ID, s.election(m))
	s.take(m)
}

func (s *script) election(m *member) string {
	n := m.node
	out := fmt.Sprintf("%s epoch=%d", n.role, n.state.Epoch)
	if !n.isVoter && (n.role == Leader || n.role == Resigned || n.electable()) {
		out = "(removed) " + out
	}
	if n.state.Leader != None {
		out += fmt.Sprintf(" leader=%d", n.state.Leader)
	}
	if n.state.Voted.ID != None {
		out += fmt.Sprintf(" voted=%d", n.state.Voted.ID)
	}
	return out
}

func (s *script) state(m *member) {
	if s.down[m.cfg.Self.ID] {
		s.printf("%d: down", m.cfg.Self.ID)
		return
	}
	n := m.node
	var log []string
	for _, b := range m.log {
		if b.LastOffset < n.log.start {
			continue
		}
		name := b.payload
		if b.Control != nil {
			name = fmt.Sprintf("[%d]", b.Epoch)
		}
		log = append(log, name)
	}
	s.printf("%d: %s end=%d@%d flushed=%d hw=%d %s%s", m.cfg.Self.ID, s.election(m), n.log.end, n.log.lastEpoch(), n.flushed, n.highWatermark, m.describeSnapshots(), strings.Join(log, " "))
}

func (s *script) handoffStatus(m *member) {
	h := m.node.Status().Handoff
	s.printf("%d: %s from=%d target=%d to=%d epochs=%d..%d gap=%v converge=%v by=%s %s", m.cfg.Self.ID, h.Phase, h.From, h.Target.ID, h.To, h.FromEpoch, h.ToEpoch, h.WriteGap, h.Converge, h.MeasuredBy, h.Message)
}

func (s *script) step(m *member, ev Event) {
	if m.node == nil {
		return
	}
	s.steps++
	was, epoch := m.node.role, m.node.state.Epoch
	m.node.Step(s.now, ev)
	if n := m.node; n.role != was || n.state.Epoch != epoch {
		s.printf("%d: %s -> %s", m.cfg.Self.ID, was, s.election(m))
	}
	s.take(m)
}

func (s *script) take(m *member) {
	id := m.cfg.Self.ID
	was := m.flushing
	out := m.take()
	r := out.ready
	if r.Fatal != nil {
		s.printf("%d: FATAL %s: %s", id, r.Fatal.Reason, r.Fatal.Message)
		s.down[id], m.node = true, nil
		return
	}
	loud := func(format string, args ...any) { s.printf("%d: "+format, append([]any{id}, args...)...) }
	show := func(format string, args ...any) {
		if !s.quiet {
			loud(format, args...)
		}
	}
	if r.Persist != nil {
		show("persist epoch=%d leader=%d voted=%d", r.Persist.Epoch, r.Persist.Leader, r.Persist.Voted.ID)
	}
	s.showSnapshotWork(r, show)
	if r.Truncate != nil {
		show("truncate to %d", r.Truncate.Offset)
	}
	if r.EpochStart != nil {
		show("epoch %d starts at %d", r.EpochStart.Epoch, r.EpochStart.Offset)
	}
	for _, a := range r.Appends {
		what := m.payloads[a.Proposal]
		switch {
		case a.Fetched != 0:
			what = fmt.Sprintf("%d fetched", a.Count)
		case a.Control != nil:
			what = ""
			for _, c := range a.Control {
				what += strings.TrimPrefix(fmt.Sprintf("%T ", c), "raft.")
			}
		}
		show("append %d..%d epoch=%d %s", a.Base, a.Last, a.Epoch, strings.TrimSpace(what))
	}
	if r.Flush && !was && s.held {
		show("flush begins")
	}
	if hw := r.HighWatermark; hw != s.hw[id] {
		show("high watermark %d", hw)
		s.hw[id] = hw
	}
	for i, a := range out.answers {
		if p, ok := s.served[a.ID]; ok {
			delete(s.served, a.ID)
			show("-> %d %s", p.from, describe(a.Result, out.batches[i]))
			s.net = append(s.net, packet{from: id, to: p.from, corr: p.corr, sender: p.sender, response: a.Result.(Response), batches: out.batches[i], file: out.files[i], arrives: s.now.Add(time.Millisecond)})
			continue
		}
		loud("answer %s %s", s.names[a.ID], describe(a.Result, nil))
	}
	for _, x := range out.sends {
		to := x.To.ID
		if to < 0 {
			v, _ := strconv.Atoi(strings.TrimPrefix(x.To.Host, "n"))
			to = NodeID(v)
		}
		show("-> %d %s", to, describe(x.Request, nil))
		s.net = append(s.net, packet{from: id, to: to, corr: x.Correlation, sender: m.node, request: x.Request, host: x.To.Host, arrives: s.now.Add(time.Millisecond)})
	}
	if r.Stopped {
		loud("stopped")
	}
}

// elapse lets time pass until end.
func (s *script) elapse(end Instant) {
	for steps := 0; ; steps++ {
		if steps > 100000 {
			panic("script does not come to rest")
		}
		if !s.held && s.flushOne() {
			continue
		}
		next, who := end, (*member)(nil)
		for _, m := range s.members {
			if m.node != nil && m.node.Deadline() < next {
				next, who = m.node.Deadline(), m
			}
		}
		at := -1
		for i, p := range s.net {
			if p.arrives <= next && (at < 0 || p.arrives < s.net[at].arrives) {
				at = i
			}
		}
		switch {
		case at >= 0:
			p := s.net[at]
			s.net = slices.Delete(s.net, at, at+1)
			s.now = max(s.now, p.arrives)
			s.arrive(p)
		case who != nil:
			s.now = max(s.now, next)
			s.step(who, Deadline{})
		default:
			s.now = end
			return
		}
	}
}

func (s *script) flushOne() bool {
	for _, m := range s.members {
		if m.node != nil && m.flushing {
			s.step(m, m.flushed())
			return true
		}
		if m.node != nil && m.verifying {
			s.step(m, m.verified(false))
			return true
		}
	}
	return false
}

func (s *script) deliver(t *testing.T, d *datadriven.TestData) {
	drop := s.ids(t, d, "drop")
	left := 1000
	d.MaybeScanArgs(t, "max", &left)
	for ; left > 0; left-- {
		if !s.held && s.flushOne() {
			continue
		}
		if len(s.net) == 0 {
			return
		}
		p := s.net[0]
		s.net = s.net[1:]
		if slices.Contains(drop, p.to) || slices.Contains(drop, p.from) {
			continue
		}
		s.arrive(p)
	}
	if left == 0 && !d.HasArg("max") {
		t.Fatal("messages without end")
	}
}

func (s *script) arrive(p packet) {
	if s.cut[link{p.from, p.to}] {
		return
	}
	to := s.member(p.to)
	switch {
	case p.response != nil || p.failure != NoFailure:
		if to.node == nil || to.node != p.sender {
			return
		}
		if f, ok := p.response.(FetchResponse); ok {
			f.Batches = nil
			for _, b := range p.batches {
				f.Batches = append(f.Batches, b.Batch)
			}
			to.kept[p.corr] = p.batches
			p.response = f
		}
		to.files[p.corr] = p.file
		s.step(to, Outcome{Correlation: p.corr, Response: p.response, Failure: p.failure})
	case to.node == nil || p.host != to.host:
		s.net = append(s.net, packet{from: p.to, to: p.from, corr: p.corr, sender: p.sender, failure: Refused, arrives: s.now})
	case isProbe(p.request):
		offer := ApiVersionsResponse{KRaft: &VersionRange{0, 1}}
		if to.cfg.ObserverOnly {
			offer.KRaft = nil
		}
		s.net = append(s.net, packet{from: p.to, to: p.from, corr: p.corr, sender: p.sender, response: offer, arrives: s.now.Add(time.Millisecond)})
	default:
		s.nextID++
		s.served[s.nextID] = p
		s.step(to, Inbound{ID: s.nextID, Conn: ConnID(p.from)<<8 | ConnID(p.to), Request: p.request})
	}
}

func isProbe(r Request) bool { _, ok := r.(ApiVersionsRequest); return ok }

func (s *script) changeVoters(t *testing.T, d *datadriven.TestData) {
	m, id, voter, version := s.chosen(t, d)[0], s.newID(t, d), int32(0), 1
	d.MaybeScanArgs(t, "voter", &voter)
	d.MaybeScanArgs(t, "version", &version)
	s.names[id] = strings.TrimSpace(fmt.Sprintf("%s %s", d.Cmd, strings.TrimPrefix(strconv.Itoa(int(voter)), "0")))
	switch d.Cmd {
	case "upgrade":
		s.step(m, UpgradeKRaft{ID: id, Version: int16(version)})
	case "add":
		o := s.member(NodeID(voter))
		s.step(m, Inbound{ID: id, Request: AddRaftVoterRequest{Voter: o.cfg.Self, Endpoints: o.cfg.Endpoints, AckWhenCommitted: !d.HasArg("early")}})
	case "remove":
		v, ok := m.node.voters.current().ByID(NodeID(voter))
		if !ok {
			v.Key = testKey(NodeID(voter))
		}
		s.step(m, Inbound{ID: id, Request: RemoveRaftVoterRequest{Voter: v.Key}})
	}
}

func (s *script) forge(t *testing.T, d *datadriven.TestData) {
	m := s.chosen(t, d)[0]
	corr := m.node.fetch.correlation
	s.net = slices.DeleteFunc(s.net, func(p packet) bool { return p.sender == m.node && p.corr == corr })
	r := FetchResponse{Header: Header{Epoch: m.node.state.Epoch, Leader: m.node.state.Leader}, HighWatermark: Unknown}
	d.MaybeScanArgs(t, "hw", &r.HighWatermark)
	if d.HasArg("diverging") {
		r.Diverging = new(position(t, d, "diverging"))
	}
	if d.HasArg("snapshot") {
		r.Snapshot = new(position(t, d, "snapshot"))
	}
	if d.HasArg("notleader") {
		r.Error = NotLeaderOrFollower
	}
	s.step(m, Outcome{Correlation: corr, Response: r})
}

func position(t *testing.T, d *datadriven.TestData, key string) OffsetAndEpoch {
	var text string
	d.ScanArgs(t, key, &text)
	var p OffsetAndEpoch
	if _, err := fmt.Sscanf(text, "%d@%d", &p.Offset, (*int32)(&p.Epoch)); err != nil {
		t.Fatal(err)
	}
	return p
}

func (s *script) vote(t *testing.T, d *datadriven.TestData) {
	m := s.chosen(t, d)[0]
	cluster := "test"
	r := VoteRequest{ClusterID: &cluster, Voter: m.cfg.Self, Last: position(t, d, "last"), PreVote: d.HasArg("pre")}
	var from int32
	d.ScanArgs(t, "from", &from)
	d.ScanArgs(t, "epoch", (*int32)(&r.Epoch))
	r.Replica = testKey(NodeID(from))
	s.nextID++
	s.names[s.nextID] = "vote"
	s.step(m, Inbound{ID: s.nextID, Request: r})
}

func (s *script) fetch(t *testing.T, d *datadriven.TestData) {
	cluster, from, wait := "test", int32(0), 0
	r := FetchRequest{ClusterID: &cluster, HighWatermark: NoHighWatermark, MaxBytes: 1 << 20}
	d.ScanArgs(t, "from", &from)
	d.ScanArgs(t, "epoch", (*int32)(&r.Epoch))
	d.ScanArgs(t, "offset", &r.Offset)
	d.ScanArgs(t, "last", (*int32)(&r.LastFetchedEpoch))
	d.ScanArgs(t, "wait", &wait)
	d.MaybeScanArgs(t, "hw", &r.HighWatermark)
	d.MaybeScanArgs(t, "cluster", &cluster)
	if cluster == "none" {
		r.ClusterID = nil
	}
	r.Replica, r.MaxWait = testKey(NodeID(from)), time.Duration(wait)*time.Millisecond
	s.nextID++
	s.names[s.nextID] = fmt.Sprintf("fetch of %d", from)
	s.step(s.chosen(t, d)[0], Inbound{ID: s.nextID, Conn: ConnID(from), Request: r})
}

var errorNames = map[ErrorCode]string{
	NoError: "NONE", NotLeaderOrFollower: "NOT_LEADER_OR_FOLLOWER", FencedLeaderEpoch: "FENCED_LEADER_EPOCH",
	UnknownLeaderEpoch: "UNKNOWN_LEADER_EPOCH", InvalidRequest: "INVALID_REQUEST", OffsetNotAvailable: "OFFSET_NOT_AVAILABLE",
	InvalidVoterKey: "INVALID_VOTER_KEY", RequestTimedOut: "REQUEST_TIMED_OUT", VoterNotFound: "VOTER_NOT_FOUND",
	SnapshotNotFound: "SNAPSHOT_NOT_FOUND", PositionOutOfRange: "POSITION_OUT_OF_RANGE", UnknownServerError: "UNKNOWN_SERVER_ERROR",
	KafkaStorageError: "KAFKA_STORAGE_ERROR", ThrottlingQuotaExceeded: "THROTTLING_QUOTA_EXCEEDED", InconsistentClusterID: "INCONSISTENT_CLUSTER_ID",
	UnsupportedVersion: "UNSUPPORTED_VERSION", DuplicateVoter: "DUPLICATE_VOTER", InvalidUpdateVersion: "INVALID_UPDATE_VERSION", RecordBatchTooLarge: "RECORD_BATCH_TOO_LARGE",
}

func header(h Header) string {
	code := h.Error
	if h.TopError != NoError {
		code = h.TopError
	}
	out := errorNames[code]
	if code == NoError {
		out = ""
	}
	if h.Leader != None && code != NoError {
		out += fmt.Sprintf(" leader=%d epoch=%d", h.Leader, h.Epoch)
	}
	return out
}

func changeOutcome(code ErrorCode, message string) string {
	return strings.TrimSpace(errorNames[code] + " " + message)
}

// describe is the one notation for messages and answers.
func describe(x any, batches []testBatch) string {
	switch r := x.(type) {
	case VoteRequest:
		kind := "Vote"
		if r.PreVote {
			kind = "PreVote"
		}
		return fmt.Sprintf("%s epoch=%d last=%d@%d", kind, r.Epoch, r.Last.Offset, r.Last.Epoch)
	case VoteResponse:
		if r.Error == NoError && r.TopError == NoError {
			return fmt.Sprintf("granted=%v", r.Granted)
		}
		return "vote " + header(r.Header)
	case BeginQuorumEpochRequest:
		return fmt.Sprintf("BeginQuorumEpoch epoch=%d leader=%d", r.Epoch, r.Leader)
	case BeginQuorumEpochResponse:
		return strings.TrimSpace("begin ok " + header(r.Header))
	case EndQuorumEpochRequest:
		var ids []string
		for _, k := range r.Successors {
			ids = append(ids, strconv.Itoa(int(k.ID)))
		}
		return fmt.Sprintf("EndQuorumEpoch epoch=%d successors=[%s]", r.Epoch, strings.Join(ids, " "))
	case EndQuorumEpochResponse:
		return strings.TrimSpace("end ok " + header(r.Header))
	case FetchRequest:
		return fmt.Sprintf("Fetch epoch=%d offset=%d last=%d hw=%d", r.Epoch, r.Offset, r.LastFetchedEpoch, r.HighWatermark)
	case FetchResponse:
		out := header(r.Header)
		switch {
		case out != "":
			return "fetched " + out
		case r.Diverging != nil:
			return fmt.Sprintf("fetched diverging=%d@%d", r.Diverging.Offset, r.Diverging.Epoch)
		case r.Snapshot != nil:
			return fmt.Sprintf("fetched snapshot=%d@%d", r.Snapshot.Offset, r.Snapshot.Epoch)
		case len(batches) == 0:
			return fmt.Sprintf("fetched nothing hw=%d", r.HighWatermark)
		}
		return fmt.Sprintf("fetched %d..%d hw=%d", batches[0].BaseOffset, batches[len(batches)-1].LastOffset, r.HighWatermark)
	case FetchSnapshotRequest:
		return fmt.Sprintf("FetchSnapshot epoch=%d id=%d@%d position=%d max=%d", r.Epoch, r.Snapshot.Offset, r.Snapshot.Epoch, r.Position, r.MaxBytes)
	case FetchSnapshotResponse:
		if out := header(r.Header); out != "" {
			return "snapshot " + out
		}
		return fmt.Sprintf("snapshot %d@%d bytes %d..%d of %d", r.Snapshot.Offset, r.Snapshot.Epoch, r.Position, r.Position+int64(r.Bytes), r.Size)
	case UpdateRaftVoterRequest:
		return fmt.Sprintf("UpdateRaftVoter epoch=%d voter=%d at %s", r.Epoch, r.Voter.Key.ID, r.Voter.Endpoints[0].Host)
	case UpdateRaftVoterResponse:
		return strings.TrimSpace("update ok " + header(r.Header))
	case AddRaftVoterRequest:
		return fmt.Sprintf("AddRaftVoter %s", r.Voter)
	case AddRaftVoterResponse:
		return changeOutcome(r.Error, r.Message)
	case RemoveRaftVoterRequest:
		return fmt.Sprintf("RemoveRaftVoter %s", r.Voter)
	case RemoveRaftVoterResponse:
		return changeOutcome(r.Error, r.Message)
	case UpgradeResult:
		return changeOutcome(r.Error, r.Message)
	case ApiVersionsRequest:
		return "ApiVersions"
	case ProposeResult:
		if r.Error == NoError {
			return fmt.Sprintf("NONE offset=%d", r.BaseOffset)
		}
		return header(r.Header)
	case BarrierResult:
		if r.Error == NoError {
			return fmt.Sprintf("NONE hw=%d", r.HighWatermark)
		}
		return header(r.Header)
	case HandoffAccepted:
		if r.Refusal != "" {
			return "refused: " + r.Refusal
		}
		return fmt.Sprintf("accepted target=%d epoch=%d", r.Target.ID, r.Epoch)
	}
	return fmt.Sprintf("%T%+v", x, x)
}
