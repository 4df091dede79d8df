package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/state"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Config is all that a Replica is told at birth.
type Config struct {
	Raft           raft.Config // State and Log are taken from the directory
	Producers      state.Options
	Snapshots      Snapshots
	MaxParkedReads int // more are answered at once with what is there
	// Beside hands reads of clients to the driver as Range and Search, to be done on other goroutines, rather than doing
	// them within Step, and many records as a Section of their file.
	Beside bool
	// Wall is the calendar: time of control batches, nothing else. A simulation hands in its own.
	Wall func() time.Time
}

// committedEvery is how often the committed file is renewed at most.
const committedEvery = time.Second

// Replica is one member: core, directory and producer state.
type Replica struct {
	cfg       Config
	dir       *storage.Dir
	log       *storage.Log // of dir
	node      *raft.Node
	producers *state.Producers

	now raft.Instant // of the Step under way
	out Output       // of the Step under way

	// What the core said last, kept so that a read or an append need not ask for a whole Status.
	leads          bool // is Leader, and may append
	leader         raft.NodeID
	epoch          raft.Epoch
	epochCommitted bool // leads, and the epoch's first record is below the high watermark

	shown      int64 // high watermark as clients see it: never falls while the process lives
	generation uint64
	flush      *Flush // outstanding

	fetched   map[raft.Correlation][]byte // validated bytes whose summaries the core is deciding on
	proposals map[raft.RequestID]*proposal
	// nextTimeout is no later than the first proposal to time out.
	nextTimeout raft.Instant
	reads       []parkedRead
	barriers    map[raft.RequestID]struct{}

	idEpoch   raft.Epoch // leader epoch that idCounter belongs to
	idCounter uint32

	snapshots snapshots

	committed     int64 // what the directory was told is committed
	nextCommitted raft.Instant

	reserve   raft.Reserve // how much room the disk has
	untold    bool         // the core hears of it with the next event
	persisted bool         // quorum-state was written in this Step, or in the last
	telling   bool         // the core hears of that with the next event
	nextSpace raft.Instant // when to look again at the latest, below the reserve
	regain    raft.Instant // no attempt before to have the ballast back
}

// Open opens the directory and starts a replica on it. Reading the log, which the producer state is rebuilt from, may
// take a while. Errors that end the process are *storage.Fault.
func Open(fsys vfs.FS, path string, options storage.Options, cfg Config, now raft.Instant) (*Replica, error) {
	r := &Replica{
		cfg:         cfg,
		now:         now,
		leader:      raft.None,
		nextTimeout: raft.Never,
		producers:   state.New(cfg.Producers, 0),
		fetched:     map[raft.Correlation][]byte{},
		proposals:   map[raft.RequestID]*proposal{},
		barriers:    map[raft.RequestID]struct{}{},
	}
	options.OnBatch = func(b record.Batch) { remember(r.producers, now, b.Header) }
	dir, err := storage.Open(fsys, path, options)
	if err != nil {
		return nil, err
	}
	r.dir, r.log = dir, dir.Log
	// What was below the high watermark once is for ever: clients may read up to there before a leader is known.
	r.shown = r.log.Committed()
	if newest := dir.LogState().Snapshot; newest != nil {
		r.shown = max(r.shown, newest.Offset)
	}
	r.committed = r.shown
	r.producers.Committed(r.shown)

	meta := dir.Meta()
	r.cfg.Raft.ClusterID = meta.ClusterID
	r.cfg.Raft.Self = raft.ReplicaKey{ID: meta.NodeID, DirectoryID: meta.DirectoryID}
	r.cfg.Raft.State = dir.ElectionState()
	r.cfg.Raft.Log = dir.LogState()
	r.regain = now.Add(spaceEvery) // the directory has just tried
	r.cfg.Raft.Reserve = r.lookAtSpace()
	if r.node, err = raft.New(r.cfg.Raft, now); err != nil {
		dir.Abandon()
		return nil, err
	}
	r.snapshots.at = now
	r.countSnapshots()
	r.snapshotsChanged()
	return r, nil
}

// Start returns the work a fresh replica has before anything happens to it. It is called once, before the first Step.
func (r *Replica) Start(now raft.Instant) Output { return r.Step(now, Tick{}) }

// Deadline is the instant of the next Tick.
func (r *Replica) Deadline() raft.Instant {
	if r.persisted || r.untold {
		return r.now // the core wants to know how long it took, and that the disk has refused a write
	}
	next := min(r.node.Deadline(), r.nextRead(), r.nextTimeout, r.snapshotDeadline())
	if r.shown > r.committed {
		next = min(next, r.nextCommitted)
	}
	if r.reserve.Below {
		next = min(next, r.nextSpace) // nothing else may happen that would notice the space
	}
	return next
}

// Step lets one event happen.
func (r *Replica) Step(now raft.Instant, event Event) Output {
	r.now, r.out = now, Output{}
	r.telling, r.persisted = r.persisted, false
	switch e := event.(type) {
	case Tick:
		r.checkSpace()
		r.feed(raft.Deadline{})
	case Core:
		r.beforeAppend()
		r.feed(e.Event)
	case Fetched:
		r.receive(e)
	case Produce:
		r.produce(e)
	case InitProducer:
		r.initProducer(e)
	case Read:
		r.read(e)
	case ListOffsets:
		r.listOffsets(e)
	case EpochEnd:
		r.epochEnd(e)
	case Flushed:
		r.flushed(e)
	case FetchedSnapshot:
		r.receiveSnapshot(e)
	case Done:
		e.Job.done(e.Err)
	default:
		panic(fmt.Sprintf("replica: unknown event %T", event))
	}
	if r.telling {
		r.telling = false
		r.feed(raft.Persisted{})
	}
	r.timeOutProposals()
	r.releaseReads(false)
	r.keepSnapshots()
	r.keepCommitted()
	out := r.out
	r.out = Output{}
	return out
}

// feed hands an event to the core and does the work that comes of it.
func (r *Replica) feed(event raft.Event) {
	events := make([]raft.Event, 0, 3)
	if r.telling {
		r.telling = false
		events = append(events, raft.Persisted{})
	}
	if r.untold {
		r.untold = false
		events = append(events, r.reserve)
	}
	// Nothing is sent between one of these and the next: each would be of another moment.
	r.node.Step(r.now, append(events, event)...)
	for r.out.Fatal == nil && r.node.HasReady() {
		rd := r.node.Ready()
		r.perform(rd)
		r.node.Advance()
		if s := &r.snapshots; s.lost {
			s.lost = false
			r.discard()
			r.node.Step(r.now, raft.SnapshotVerified{Snapshot: rd.Chunk.Snapshot, Failed: true})
		}
	}
}

// perform does the work of one Ready in the order that package raft demands.
func (r *Replica) perform(rd raft.Ready) {
	if rd.Fatal != nil {
		r.fail(rd.Fatal)
		return
	}
	if err := r.write(rd); err != nil {
		r.fail(fatalOf("", err))
		return
	}
	r.observe(rd)
	if rd.Flush {
		r.startFlush()
	}
	for _, a := range rd.Answers {
		r.complete(a)
	}
	r.out.Sends = append(r.out.Sends, rd.Sends...)
	r.out.Stopped = r.out.Stopped || rd.Stopped
}

// write makes durable what must be, and brings the log to where the core has it.
func (r *Replica) write(rd raft.Ready) error {
	if rd.Persist != nil {
		s := r.node.Status()
		if err := r.insist(func() error { return r.dir.WriteElectionState(*rd.Persist, s.KRaftVersion, s.Voters) }); err != nil {
			return fmt.Errorf("write quorum-state: %w", err)
		}
		r.persisted = true
	}
	if err := r.downloading(rd); err != nil {
		return err
	}
	if rd.Truncate != nil {
		if err := r.truncate(*rd.Truncate); err != nil {
			return fmt.Errorf("truncate the log to offset %d: %w", rd.Truncate.Offset, err)
		}
	}
	if rd.EpochStart != nil {
		if err := r.log.AssignEpoch(*rd.EpochStart); err != nil {
			return fmt.Errorf("begin epoch %d: %w", rd.EpochStart.Epoch, err)
		}
	}
	for _, a := range rd.Appends {
		if err := r.append(a); err != nil {
			return fmt.Errorf("append at offset %d: %w", a.Base, err)
		}
	}
	return nil
}

// append writes one batch group at the log's end.
func (r *Replica) append(a raft.Append) error {
	var raw []byte
	switch {
	case a.Control != nil:
		raw = record.EncodeControl(a.Base, a.Epoch, r.cfg.Wall().UnixMilli(), a.Control...)
	case a.Count > 0:
		raw = firstBatches(r.fetched[a.Fetched], a.Count)
	default:
		p := r.proposals[a.Proposal]
		raw, p.bytes = p.bytes, nil
		record.Stamp(raw, a.Base, a.Epoch)
	}
	if err := r.insist(func() error { return r.log.Append(r.now, raw) }); err != nil {
		return err
	}
	r.snapshots.since += int64(len(raw))
	for h, err := range record.Headers(raw) {
		if err != nil {
			return err
		}
		remember(r.producers, r.now, h)
	}
	return nil
}

// remember lets the producer state follow what was appended.
func remember(producers *state.Producers, now raft.Instant, h record.Header) {
	if h.ProducerID >= 0 && !h.IsControl() {
		producers.Append(now, producerBatch(h))
	}
}

// firstBatches is the first n batches in raw.
func firstBatches(raw []byte, n int) []byte {
	size := 0
	for range n {
		h, err := record.ParseHeader(raw[size:])
		if err != nil {
			panic(fmt.Sprintf("fetched bytes, validated before: %v", err))
		}
		size += h.Size
	}
	return raw[:size]
}

func producerBatch(h record.Header) state.Batch {
	return state.Batch{
		ProducerID:    h.ProducerID,
		ProducerEpoch: h.ProducerEpoch,
		BaseSequence:  h.BaseSequence,
		Records:       h.LastOffsetDelta + 1,
		BaseOffset:    h.BaseOffset,
		LastOffset:    h.LastOffset(),
	}
}

// truncate cuts the log, and everything that follows it. What is committed the core refuses to cut, and the log what was
// committed before a restart.
func (r *Replica) truncate(t raft.Truncate) error {
	r.generation = t.Generation
	if err := r.log.Truncate(t.Offset); err != nil {
		return err
	}
	if r.producers.Truncate(t.Offset) {
		return nil
	}
	return r.rebuildProducers()
}

// rebuildProducers reads the newest snapshot and the log behind it. All ages start anew.
func (r *Replica) rebuildProducers() error {
	r.producers = state.New(r.cfg.Producers, r.snapshots.newest.ID.Offset)
	err := r.dir.Walk(0, r.log.End(), func(b record.Batch) error {
		remember(r.producers, r.now, b.Header)
		return nil
	})
	r.producers.Committed(r.shown)
	return err
}

// observe notes who leads and how far the log is committed, and completes what waited for that.
func (r *Replica) observe(rd raft.Ready) {
	v := r.node.Status()
	r.leads = v.Role == raft.Leader
	moved := r.epoch != v.Election.Epoch
	r.leader, r.epoch = v.Leader, v.Election.Epoch
	r.epochCommitted = r.leads && v.HighWatermark > v.EpochStart
	grown := rd.HighWatermark > r.shown
	if grown {
		r.shown = rd.HighWatermark
		r.producers.Committed(r.shown)
	}
	if grown || moved {
		r.releaseReads(true)
	}
}

// complete turns a core's answer into the driver's.
func (r *Replica) complete(a raft.Answer) {
	switch result := a.Result.(type) {
	case raft.FetchResponse:
		r.answerFetch(a.ID, result)
	case raft.FetchSnapshotResponse:
		r.answerSnapshot(a.ID, result)
	case raft.ProposeResult:
		r.proposed(a.ID, result)
	case raft.BarrierResult:
		r.barrierDone(a.ID, result)
	default:
		r.answer(a.ID, a.Result)
	}
}

// answerFetch adds the records to a peer's Fetch answer.
func (r *Replica) answerFetch(id raft.RequestID, f raft.FetchResponse) {
	result := FetchResult{FetchResponse: f, Records: []byte{}}
	if f.End > f.Offset {
		var found storage.Records
		var err error
		if r.cfg.Beside {
			found, err = r.log.Find(f.Offset, f.MaxBytes, f.End)
		} else {
			found.Bytes, err = r.log.Read(nil, f.Offset, f.MaxBytes, f.End)
		}
		if err != nil {
			r.fail(fatalOf("read the log", err))
			return
		}
		result.Records, result.Section = found.Bytes, found.Section
	}
	r.answer(id, result)
}

// Status is the core's view of this member. It shares nothing with the Replica.
func (r *Replica) Status() raft.Status { return r.node.Status() }

// Leads reports whether this member leads, and its epoch. It is what a driver asks after every Step.
func (r *Replica) Leads() (bool, raft.Epoch) { return r.leads, r.epoch }

// HighWatermark is what clients see: unlike the core's it is known from before, and never falls.
func (r *Replica) HighWatermark() int64 { return r.shown }

// Dir is the replica's directory, for what may be asked beside the loop (see package storage).
func (r *Replica) Dir() *storage.Dir { return r.dir }

// BelowReserve reports whether the disk has less free space than its reserve.
func (r *Replica) BelowReserve() bool { return r.reserve.Below }

// Counts are what waits in the replica.
func (r *Replica) Counts() Counts {
	return Counts{Proposals: len(r.proposals), Reads: len(r.reads), Producers: r.producers.Len()}
}

// Counts are the lengths of the replica's own queues.
type Counts struct {
	Proposals int // appends, and repeats of appends, that are not answered yet
	Reads     int // parked client reads
	Producers int // idempotent producers that are remembered
}

// Close ends a replica that is not needed any more: the log is flushed and what is committed is noted. No flush and no job
// may be outstanding.
func (r *Replica) Close() error {
	r.discard()
	_, err := r.log.Flush()
	r.dir.MarkCommitted(r.now, r.shown)
	return errors.Join(err, r.dir.Close())
}

// Abandon lets go of the directory as a crash would.
func (r *Replica) Abandon() { r.dir.Abandon() }

// header is the answer's head for what is decided here.
func (r *Replica) header(code raft.ErrorCode) raft.Header {
	h := raft.Header{Error: code, Epoch: r.epoch, Leader: r.leader}
	if code == raft.NotLeaderOrFollower || code == raft.FencedLeaderEpoch {
		h.LeaderEndpoints = r.node.Status().LeaderEndpoints
	}
	return h
}

// topicStart is the first offset that clients may ask for. A compacted topic begins where it always has: what compaction
// has passed over is not missing.
func (r *Replica) topicStart() int64 {
	if r.cfg.Snapshots.Opaque {
		return r.log.Start()
	}
	return 0
}

func (r *Replica) answer(id raft.RequestID, result any) {
	r.out.Answers = append(r.out.Answers, Answer{ID: id, Result: result})
}

func (r *Replica) fail(f *raft.Fatal) {
	if r.out.Fatal == nil {
		r.out.Fatal = f
	}
}
