package sim

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// planted is a bug that an implementation could have, put between a replica and its world. It must be found within that
// many seeds, by one of the invariants named.
type planted struct {
	name    string
	within  int
	finds   []string
	plant   func() *plant
	arrange func(*plan) // makes sure that the bug has a chance
}

// plantedBugs: who tests the tester? Each entry says in its name what the code would do wrong.
var plantedBugs = []planted{
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
		name: "the leader counts itself before its fsync", within: 20, finds: []string{"MajorityReachedHighWatermark", "FlushedIsDurable"},
		plant: func() *plant {
			var leader *member
			return &plant{
				answer: func(m *member, _ *replica.Answer) {
					if m.seen.role == raft.Leader {
						leader = m
					}
				},
				noSyncOf: func(d *disk, name string) bool { return leader != nil && leader.disk == d && isSegment(name) },
			}
		},
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
		name: "votes do not look at the log", within: 100, finds: []string{"LeaderHasAllAckedValues", "NoTruncationBelowHW", "NoIllegalState", "NoLogDivergence"},
		plant: func() *plant {
			return &plant{receive: func(_ *member, r raft.Request) raft.Request {
				if v, ok := r.(raft.VoteRequest); ok && v.Last.Epoch >= 0 {
					if v.Last = (raft.OffsetAndEpoch{Offset: 1 << 40, Epoch: v.Epoch - 1}); v.PreVote {
						v.Last.Epoch = v.Epoch
					}
					return v
				}
				return r
			}}
		},
		arrange: func(p *plan) { p.voters = max(p.voters, 3) },
	},
	{
		name: "a follower acknowledges what it has not flushed", within: 5, finds: []string{"FlushedIsDurable"},
		plant: func() *plant {
			return &plant{send: func(m *member, s *raft.Send) {
				if f, ok := s.Request.(raft.FetchRequest); ok && m.voter && f.Offset > 0 {
					f.Offset++
					s.Request = f
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
			return &plant{clientAnswer: func(m *member, request replica.Event) any {
				if l, ok := request.(replica.ListOffsets); ok && l.Timestamp == replica.Latest && m.seen.role == raft.Leader && m.seen.highWatermark >= 0 {
					return replica.ListOffsetsResult{Offset: m.seen.highWatermark}
				}
				return nil
			}}
		},
		arrange: func(p *plan) {
			p.voters, p.clients, p.loss, p.delayMean = 3, 4, 0, time.Millisecond
			p.think, p.operations = 10*time.Millisecond, 600
			p.every = [faultKinds]time.Duration{}
			p.every[isolate] = 4 * time.Second
		},
	},
	{
		name: "a connection carries a second Fetch before the first is answered", within: 400, finds: []string{"Linearizable"},
		plant: func() *plant { return &plant{pipelined: true, script: staleFetches} },
		arrange: func(p *plan) {
			p.chaos = 12 * time.Second
			p.voters, p.observers, p.clients, p.delayMean, p.loss, p.driftPPM, p.wire = 3, 0, 4, time.Millisecond, 0, 0, false
			p.electionTimeout, p.fetchTimeout, p.requestTimeout, p.fetchMaxWait = 100*time.Millisecond, 500*time.Millisecond, 3*time.Second, 450*time.Millisecond
			p.every = [faultKinds]time.Duration{}
			p.fetchMaxBytes, p.duplicate, p.linger, p.window = 1<<20, 0, 0, 1
			p.think, p.flushMean, p.flushLate, p.operations = 20*time.Millisecond, 0, 0, 500
		},
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

// TestPlantedBugsAreFound runs each bug until it is found.
func TestPlantedBugsAreFound(t *testing.T) {
	for _, bug := range plantedBugs {
		t.Run(strings.ReplaceAll(bug.name, " ", "_"), func(t *testing.T) {
			if testing.Short() && bug.within > 200 {
				t.Skip("takes many seeds")
			}
			for i := range uint64(bug.within) {
				p := draw(7_000_000 + i)
				p.chaos = min(p.chaos, 12e9)
				if bug.arrange != nil {
					bug.arrange(&p)
				}
				v := newWorld(p, bug.plant(), nil).run()
				if v == nil {
					continue
				}
				if !slices.Contains(bug.finds, v.invariant) {
					t.Fatalf("seed %d: found by %v; want one of %v", p.seed, v, bug.finds)
				}
				first, _, _ := strings.Cut(v.message, "\n")
				t.Logf("found with seed %d of %d by %s: %s", i+1, bug.within, v.invariant, first)
				return
			}
			t.Errorf("not found with %d seeds", bug.within)
		})
	}
}

// staleFetches brings about, again and again, what that bug needs: one follower stops hearing its leader, campaigns in vain
// since the other still does, and fetches again on the old connection, slowly. Then the other is cut off as well and wins,
// with the vote of the first. Then the old leader gets that Fetch.
func staleFetches(w *world) {
	d := newDice(w.plan.seed, "stale fetches")
	var again func()
	again = func() {
		if !w.chaotic {
			return
		}
		if l := w.leader(); l != nil {
			a, b := w.members[(l.host+1)%3], w.members[(l.host+2)%3]
			w.net.cut(l.host, a.host, time.Second)
			slow := &w.net.links[a.host][l.host]
			slow.slowUntil, slow.slowBy = w.now+time.Second, 400*time.Millisecond
			w.in(d.between(200*time.Millisecond, 350*time.Millisecond), func() {
				if !w.chaotic {
					return
				}
				w.net.cut(l.host, b.host, time.Second)
				w.net.cut(b.host, l.host, time.Second)
			})
		}
		w.in(d.between(2*time.Second, 3*time.Second), again)
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
