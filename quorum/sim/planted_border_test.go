package sim

import (
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// borderBugs are put between a replica and its world, where the disk, the network, the clients and time are.
var borderBugs = []planted{
	{
		name: "quorum-state is sent before it is durable", within: 20, finds: []string{"PersistedBeforeSent", "MonotonicEpoch"},
		plant: func() *plant {
			return &plant{dirUnsynced: func(_ string, newState bool) bool { return newState }}
		},
	},
	{
		name: "the vote is forgotten in a crash", within: 200, finds: []string{"OneVotePerEpoch", "SingleLeader"},
		plant: func() *plant {
			return &plant{afterCrash: func(m *member, _ *raft.ElectionState) {
				if s := m.disk.state; s != nil && s.Voted.ID != raft.None {
					m.rewriteState(raft.ElectionState{Epoch: s.Epoch, Leader: raft.None, Voted: raft.NoReplica})
				}
			}}
		},
		arrange: func(p *plan) { // elections that collide, and crashes in their midst
			p.voters, p.delayMean, p.down, p.loss = 5, 150*time.Millisecond, 30*time.Millisecond, 0
			p.every[powerCut], p.every[kill] = 400*time.Millisecond, 400*time.Millisecond
		},
	},
	{
		name: "quorum-state is lost in a crash", within: 40, finds: []string{"MonotonicEpoch", "OneVotePerEpoch", "SingleLeader", "UniquePosition", "RecoversFromCrash", "NoIllegalState"},
		plant: func() *plant {
			return &plant{afterCrash: func(m *member, _ *raft.ElectionState) {
				if m.disk.state != nil {
					m.rewriteState(raft.ElectionState{Leader: raft.None, Voted: raft.NoReplica})
				}
			}}
		},
		arrange: func(p *plan) { p.every[powerCut] = p.chaos / 6 },
	},
	{
		name: "fsync of the log returns before it is done", within: 5, finds: []string{"FlushedIsDurable", "MajorityReachedHighWatermark"},
		plant: func() *plant { return &plant{noSync: isSegment} },
	},
	{
		name: "a truncation is not carried out", within: 100, finds: []string{"UniquePosition", "NoIllegalState", "NoLogDivergence", "RecoversFromCrash", "LeaderHasAllAckedValues"},
		plant: func() *plant { return &plant{noTruncate: func(string) bool { return true }} },
	},
	{
		name: "an append is answered before it is committed", within: 20, finds: []string{"AckedOnce"},
		plant: func() *plant {
			return &plant{clientAnswer: func(m *member, request replica.Event) any {
				if p, ok := request.(replica.Produce); ok && m.seen.role == raft.Leader {
					_ = p
					return replica.ProduceResult{BaseOffset: m.disk.log.end}
				}
				return nil
			}}
		},
	},
	{
		name: "a retry is appended again", within: 40, finds: []string{"AckedOnce"},
		plant: func() *plant { return &plant{clientBatch: withoutProducer} },
	},
	{
		name: "every vote is granted", within: 40, finds: []string{"OneVotePerEpoch", "SingleLeader", "PersistedBeforeSent"},
		plant: func() *plant {
			return &plant{answer: func(_ *member, a *replica.Answer) {
				if v, ok := a.Result.(raft.VoteResponse); ok && v.Error == raft.NoError && v.TopError == raft.NoError && !v.Granted {
					v.Granted = true
					a.Result = v
				}
			}}
		},
	},
	{
		name: "observers count for the high watermark", within: 40, finds: []string{"MajorityReachedHighWatermark", "NoIllegalState"},
		plant: func() *plant {
			return &plant{receive: func(m *member, r raft.Request) raft.Request {
				if f, ok := r.(raft.FetchRequest); ok && f.Replica.ID >= 1000 {
					f.Replica = m.w.members[(m.host+1)%m.w.plan.voters].key
					return f
				}
				return r
			}}
		},
		arrange: func(p *plan) { p.voters, p.observers = 3, 2 },
	},
	{
		name: "the latest offset is told without proof of leadership", within: 60, finds: []string{"Linearizable"},
		plant: func() *plant {
			return &plant{script: staleFetches, clientAnswer: func(m *member, request replica.Event) any {
				if l, ok := request.(replica.ListOffsets); ok && l.Timestamp == replica.Latest && m.seen.role == raft.Leader && m.seen.highWatermark >= 0 {
					return replica.ListOffsetsResult{Offset: m.seen.highWatermark}
				}
				return nil
			}}
		},
		arrange: staleFetchPlan,
	},
	{
		name: "a connection carries a second Fetch before the first is answered", within: 150, finds: []string{"Linearizable"},
		plant:   func() *plant { return &plant{pipelined: true, script: staleFetches} },
		arrange: staleFetchPlan,
	},
	{
		name: "clients see what is not committed", within: 40, finds: []string{"CommittedPrefix", "Linearizable"},
		plant: func() *plant {
			return &plant{clientAnswer: func(m *member, request replica.Event) any {
				r, ok := request.(replica.Read)
				if !ok || r.Offset >= m.disk.log.end {
					return nil
				}
				result := replica.ReadResult{HighWatermark: m.disk.log.end}
				for _, b := range m.disk.log.batches {
					if b.last >= r.Offset {
						result.Records = append(result.Records, b.raw...)
					}
				}
				return result
			}}
		},
	},
	{
		name: "recovery cuts a batch that was durable", within: 60, finds: []string{"LeaderHasAllAckedValues", "MajorityReachedHighWatermark", "NoTruncationBelowHW", "NoIllegalState", "UniquePosition", "RecoversFromCrash", "NoLogDivergence"},
		plant: func() *plant {
			return &plant{afterCrash: func(m *member, _ *raft.ElectionState) { m.cutLastBatch() }}
		},
		arrange: func(p *plan) { p.voters, p.every[powerCutAll] = 3, p.chaos/5 },
	},
	{
		name: "a disk that was lost keeps its directory id", within: 100, finds: []string{"OneVotePerEpoch", "MonotonicEpoch", "LeaderHasAllAckedValues", "SingleLeader", "NoIllegalState", "UniquePosition", "NoLogDivergence", "MajorityReachedHighWatermark"},
		plant: func() *plant {
			return &plant{afterCrash: func(m *member, _ *raft.ElectionState) {
				if m.voter {
					m.format()
				}
			}}
		},
		arrange: func(p *plan) { p.voters, p.every[powerCut], p.every[kill] = 3, p.chaos/8, p.chaos/8 },
	},
}

func staleFetchPlan(p *plan) {
	p.chaos, p.spares = 12*time.Second, 0
	p.voters, p.observers, p.clients, p.delayMean, p.loss, p.driftPPM, p.wire = 3, 0, 4, time.Millisecond, 0, 0, false
	p.electionTimeout, p.fetchTimeout, p.requestTimeout, p.fetchMaxWait = 100*time.Millisecond, 500*time.Millisecond, 3*time.Second, 450*time.Millisecond
	p.every = [faultKinds]time.Duration{}
	p.fetchMaxBytes, p.duplicate, p.linger, p.window = 1<<20, 0, 0, 1
	p.think, p.flushMean, p.flushLate, p.operations = 20*time.Millisecond, 0, 0, 500
}

// staleFetches brings about, again and again, a leader that does not know of the next one. A follower's fetches are held
// up on their way to it; the follower campaigns in vain, since the other one still hears the leader, and fetches again.
// Then the other one is cut off as well, and one of them wins with the other's vote. A client appends there; then another
// asks the old leader for the latest offset, and both fetches arrive.
func staleFetches(w *world) {
	d := newDice(w.plan.seed, "stale fetches")
	writer, reader := w.clients[0], w.clients[1]
	writer.closed, reader.closed = true, true // they do what they are told here
	patience := w.plan.fetchTimeout
	var again func()
	again = func() {
		l := w.leader()
		if !w.chaotic || l == nil {
			return
		}
		a, b := w.members[(l.host+1)%3], w.members[(l.host+2)%3]
		w.net.cut(a.host, l.host, 2*patience+d.between(50*time.Millisecond, 100*time.Millisecond))
		w.in(patience+50*time.Millisecond, func() {
			w.net.cut(l.host, b.host, 2*patience)
			w.net.cut(b.host, l.host, 2*patience)
		})
		var wrote bool
		var follow func()
		follow = func() {
			successor := w.leader()
			switch {
			case !w.chaotic || successor == nil:
				return
			case successor == l:
			case !wrote && writer.producer < 0:
				writer.leader.at = successor.host
				writer.askID()
			case !wrote && writer.mayAppend():
				writer.leader.at, wrote = successor.host, true
				writer.beginAppend()
			case wrote && len(writer.window) == 0 && reader.reading == nil:
				reader.asked.at = l.host
				reader.beginRead()
				return
			}
			w.in(2*time.Millisecond, follow)
		}
		w.in(patience, follow)
		w.in(d.between(4*patience, 6*patience), again)
	}
	w.in(time.Second, again)
}

// rewriteState puts another quorum-state onto the disk of a dead process.
func (m *member) rewriteState(s raft.ElectionState) {
	name := dataDir + "/__cluster_metadata-0/quorum-state"
	b := []byte(`{"leaderId":-1,"leaderEpoch":` + strconv.Itoa(int(s.Epoch)) + `,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`)
	if m.w.plan.kraftVersion == 0 {
		b = []byte(`{"clusterId":"","leaderId":-1,"leaderEpoch":` + strconv.Itoa(int(s.Epoch)) + `,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}`)
	}
	if err := vfs.WriteFileAtomic(m.disk.mem, name, b); err != nil {
		panic(err)
	}
	m.disk.rescan()
}

// cutLastBatch shortens the log of a dead process by a batch.
func (m *member) cutLastBatch() {
	l := &m.disk.log
	if len(l.batches) == 0 {
		return
	}
	b := l.batches[len(l.batches)-1]
	f, err := m.disk.mem.OpenReadWrite(b.segment)
	if err != nil {
		panic(err)
	}
	if err := f.Truncate(b.position); err != nil {
		panic(err)
	}
	if err := f.Sync(); err != nil {
		panic(err)
	}
	m.disk.rescan()
}

// withoutProducer makes a batch look as if its sender were not idempotent.
func withoutProducer(raw []byte) []byte {
	binary.BigEndian.PutUint64(raw[43:], 1<<64-1)
	binary.BigEndian.PutUint16(raw[51:], 1<<16-1)
	binary.BigEndian.PutUint32(raw[53:], 1<<32-1)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	if _, err := record.Parse(raw); err != nil {
		panic(err)
	}
	return raw
}
