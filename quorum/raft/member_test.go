package raft

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// testBatch is a batch as the test members store it: the payload is a name.
type testBatch struct {
	Batch
	payload string
}

// member is a Node with a log in memory whose flush takes as long as the test wants. It keeps the driver's contract.
type member struct {
	cfg   Config
	host  string // where it listens
	node  *Node
	state ElectionState // quorum-state
	log   []testBatch
	// durable is what a crash leaves. A truncation is not durable by itself.
	durable    []testBatch
	generation uint64
	bootstrap  []ControlAt
	logStart   int64

	snapshots []testSnapshot // ascending; durable
	download  *testSnapshot
	verifying bool
	files     map[Correlation]testSnapshot

	flushing  bool
	flushLog  []testBatch // what the running flush will have made durable
	flushEnd  int64
	flushGen  uint64
	kept      map[Correlation][]testBatch
	payloads  map[RequestID]string
	counted   int64 // the high watermark that was last looked at
	countedBy *Node
	inForce   VoterSet
	joining   Instant // when it was last asked for as a voter
	disks     byte    // lost
	checked   int     // batches of the log that were compared with what is committed
}

// takeover is what a Ready leaves to the world outside.
type takeover struct {
	ready   Ready
	answers []Answer // fetch responses hold their batches
	sends   []Send
	batches map[int][]testBatch // by index in answers
	files   map[int]testSnapshot
}

func testEndpoints(id NodeID) []Endpoint {
	return []Endpoint{{"CLIENT", "n" + strconv.Itoa(int(id)), 9092}, {"CONTROLLER", "n" + strconv.Itoa(int(id)), 9093}}
}

func testDirectory(id NodeID) UUID { return UUID{0: 0x10, 15: byte(id)} }

func testKey(id NodeID) ReplicaKey { return ReplicaKey{ID: id, DirectoryID: testDirectory(id)} }

func testVoters(ids ...NodeID) VoterSet {
	var voters []Voter
	for _, id := range ids {
		// As kafka-storage format writes it: only the controller listener.
		voters = append(voters, Voter{Key: testKey(id), Endpoints: testEndpoints(id)[1:], KRaft: VersionRange{0, 1}})
	}
	set, err := NewVoterSet(voters...)
	if err != nil {
		panic(err)
	}
	return set
}

func testConfig(id NodeID, voters VoterSet) Config {
	cfg := Config{
		Self: testKey(id), ClusterID: "test", RequireID: true,
		Endpoints: testEndpoints(id), Listener: "CONTROLLER", KRaft: VersionRange{0, 1},
		ElectionTimeout: time.Second, FetchTimeout: 2 * time.Second, ElectionBackoffMax: time.Second,
		RequestTimeout: 2 * time.Second, RetryBackoff: 20 * time.Millisecond,
		FetchMaxWait: 500 * time.Millisecond, FetchMaxBytes: 1 << 20, MaxPending: 100,
		Rand:  rand.New(rand.NewPCG(7, uint64(id))),
		State: ElectionState{Leader: None, Voted: NoReplica},
	}
	for i, v := range voters {
		e, _ := Find(v.Endpoints, "CONTROLLER")
		cfg.Bootstrap = append(cfg.Bootstrap, Destination{ID: NodeID(-2 - i), Host: e.Host, Port: e.Port})
	}
	return cfg
}

func dynamic(voters VoterSet) []ControlAt {
	return []ControlAt{{-1, KRaftVersion{1}}, {-1, Voters{voters}}}
}

func newMember(cfg Config, bootstrap []ControlAt) *member {
	return &member{cfg: cfg, host: "n" + strconv.Itoa(int(cfg.Self.ID)), state: cfg.State, bootstrap: bootstrap}
}

// boot starts the node from what is on disk.
func (m *member) boot(now Instant) error {
	cfg := m.cfg
	cfg.State = m.state
	cfg.Log = LogState{Control: slices.Clone(m.bootstrap)}
	m.recoverSnapshots(&cfg.Log)
	for _, b := range m.log {
		if b.LastOffset < cfg.Log.Start {
			continue
		}
		if n := len(cfg.Log.Epochs); n == 0 || cfg.Log.Epochs[n-1].Epoch != b.Epoch {
			cfg.Log.Epochs = append(cfg.Log.Epochs, OffsetAndEpoch{b.BaseOffset, b.Epoch})
		}
		for i, c := range b.Control {
			if s := cfg.Log.Snapshot; s != nil && b.BaseOffset < s.Offset {
				continue
			}
			cfg.Log.Control = append(cfg.Log.Control, ControlAt{b.BaseOffset + int64(i), c})
		}
	}
	cfg.Log.End = m.end()
	m.durable = slices.Clone(m.log)
	m.generation, m.flushing, m.checked = 0, false, 0
	m.download, m.verifying, m.files = nil, false, map[Correlation]testSnapshot{}
	m.kept, m.payloads = map[Correlation][]testBatch{}, map[RequestID]string{}
	var err error
	m.node, err = New(cfg, now)
	return err
}

func (m *member) end() int64 {
	if len(m.log) == 0 {
		return 0
	}
	return m.log[len(m.log)-1].LastOffset + 1
}

func endOfBatches(log []testBatch) int64 {
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].LastOffset + 1
}

// take does the work of one Ready, in the order of its fields.
func (m *member) take() takeover {
	r := m.node.Ready()
	defer m.node.Advance()
	out := takeover{ready: r, batches: map[int][]testBatch{}, files: map[int]testSnapshot{}}
	out.ready.Appends = slices.Clone(r.Appends)
	if r.Fatal != nil {
		return out
	}
	if r.Persist != nil {
		m.state = *r.Persist
	}
	m.takeSnapshotWork(r)
	if t := r.Truncate; t != nil {
		i := slices.IndexFunc(m.log, func(b testBatch) bool { return b.LastOffset >= t.Offset })
		if i >= 0 {
			if m.log[i].BaseOffset < t.Offset {
				panic(fmt.Sprintf("truncation to %d cuts batch %+v", t.Offset, m.log[i]))
			}
			m.log = slices.Clone(m.log[:i])
		}
		m.generation = t.Generation
	}
	for _, a := range r.Appends {
		if a.Base < m.end() {
			panic(fmt.Sprintf("append at %d to a log that ends at %d", a.Base, m.end()))
		}
		switch {
		case a.Control != nil:
			m.log = append(m.log, testBatch{Batch{a.Base, a.Last, a.Epoch, 100, a.Control}, fmt.Sprintf("control-%d-%d", a.Epoch, a.Base)})
		case a.Fetched != 0:
			m.log = append(m.log, m.kept[a.Fetched][:a.Count]...)
			if m.end() != a.Last+1 {
				panic("fetched batches do not end where the core says")
			}
		default:
			m.log = append(m.log, testBatch{Batch{a.Base, a.Last, a.Epoch, 10, nil}, m.payloads[a.Proposal]})
		}
	}
	clear(m.kept)
	if r.Flush {
		if m.flushing {
			panic("second flush while one is running")
		}
		m.flushing = true
		m.flushLog, m.flushEnd, m.flushGen = slices.Clip(m.log), m.end(), m.generation // a truncation copies
	}
	out.answers, out.sends = slices.Clone(r.Answers), slices.Clone(r.Sends)
	for i, a := range out.answers {
		if f, ok := a.Result.(FetchResponse); ok && f.End > f.Offset {
			out.batches[i] = m.read(f.Offset, f.End, f.MaxBytes)
		}
		if f, ok := a.Result.(FetchSnapshotResponse); ok && f.Error == NoError && f.TopError == NoError {
			out.answers[i].Result, out.files[i] = m.readSnapshot(f)
		}
	}
	for _, s := range out.sends {
		if f, ok := s.Request.(FetchRequest); ok && !m.cfg.ObserverOnly && f.Offset > endOfBatches(m.durable) {
			panic(fmt.Sprintf("node %d acknowledges offset %d but only %d is on disk", m.cfg.Self.ID, f.Offset, endOfBatches(m.durable)))
		}
		if v, ok := s.Request.(VoteRequest); ok && !v.PreVote && v.Last.Offset > endOfBatches(m.durable) {
			panic(fmt.Sprintf("node %d asks for votes with a log that ends at %d but only %d is on disk", m.cfg.Self.ID, v.Last.Offset, endOfBatches(m.durable)))
		}
	}
	return out
}

func (m *member) read(from, end int64, maxBytes int) []testBatch {
	if from < m.start() {
		panic(fmt.Sprintf("reads at %d, the log begins at %d", from, m.start()))
	}
	var out []testBatch
	size := 0
	start, _ := slices.BinarySearchFunc(m.log, from, func(b testBatch, from int64) int { return cmp.Compare(b.BaseOffset, from) })
	for _, b := range m.log[start:] {
		if b.LastOffset >= end || len(out) > 0 && size+b.Bytes > maxBytes {
			break
		}
		out = append(out, b)
		size += b.Bytes
	}
	return out
}

// flushed ends the running flush and tells the node.
func (m *member) flushed() Flushed {
	m.flushing = false
	if m.start() <= m.flushEnd { // else a snapshot has replaced that log
		m.durable = m.flushLog
	}
	return Flushed{End: m.flushEnd, Generation: m.flushGen}
}

// crash loses what is not on disk; of the rest of the log a prefix may have made it by luck.
func (m *member) crash(luck *rand.Rand) {
	keep := m.durable
	if luck != nil && len(m.log) > len(m.durable) && slices.EqualFunc(m.log[:len(m.durable)], m.durable, sameBatch) {
		keep = m.log[:len(m.durable)+luck.IntN(len(m.log)-len(m.durable)+1)]
	}
	m.log = slices.Clone(keep)
	m.node = nil
}

func sameBatch(a, b testBatch) bool {
	return a.BaseOffset == b.BaseOffset && a.LastOffset == b.LastOffset && a.Epoch == b.Epoch && a.payload == b.payload
}
