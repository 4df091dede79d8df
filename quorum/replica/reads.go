package replica

import (
	"fmt"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// parkedRead is a client's Fetch that waits for more records.
type parkedRead struct {
	request Read
	until   raft.Instant
}

// read answers a client's Fetch, or parks it.
func (r *Replica) read(e Read) {
	if r.tryRead(e, false) {
		return
	}
	if e.MaxWait <= 0 || len(r.reads) >= r.cfg.MaxParkedReads {
		r.tryRead(e, true)
		return
	}
	r.reads = append(r.reads, parkedRead{request: e, until: r.now.Add(e.MaxWait)})
}

// releaseReads completes every parked read that has enough by now, or has waited long enough.
func (r *Replica) releaseReads(grown bool) {
	r.reads = slices.DeleteFunc(r.reads, func(p parkedRead) bool {
		late := p.until <= r.now
		return (late || grown) && r.tryRead(p.request, late)
	})
}

// tryRead answers if there is something to say: an error, enough records or, if last, whatever is there.
func (r *Replica) tryRead(e Read, last bool) bool {
	result := ReadResult{HighWatermark: r.shown, LogStart: r.topicStart(), Records: []byte{}}
	if result.Error = r.checkRead(e); result.Error != raft.NoError {
		result.Header = r.header(result.Error)
		r.answer(e.ID, result)
		return true
	}
	if e.Offset < r.shown && r.cfg.Beside && e.MinBytes <= 1 {
		result.Range = r.rangeOf(e)
		r.answer(e.ID, result)
		return true
	}
	if e.Offset < r.shown {
		records, err := r.rangeOf(e).Read()
		if err != nil {
			r.fail(fatalOf("read the log", err))
			return true
		}
		if len(records) > 0 {
			result.Records = records
		}
	}
	if len(result.Records) < e.MinBytes && !last {
		return false
	}
	r.answer(e.ID, result)
	return true
}

// checkRead decides whether a read makes sense here and now.
//
// Beyond the high watermark that is shown here lies either nothing, or what another member has shown already: a client
// comes with such an offset from a member that is ahead, or from the last leader while the new one has committed nothing
// yet. It must wait, not reset to the log's end, so it gets OFFSET_NOT_AVAILABLE. Only a leader whose epoch has committed
// knows where the log ends and may say OFFSET_OUT_OF_RANGE.
func (r *Replica) checkRead(e Read) raft.ErrorCode {
	if code := r.checkEpoch(e.LeaderEpoch); code != raft.NoError {
		return code
	}
	switch {
	case e.Offset < r.topicStart():
		return raft.OffsetOutOfRange
	case e.Offset <= r.shown:
		return raft.NoError
	case r.leads && r.epochCommitted && e.Offset > r.log.End():
		return raft.OffsetOutOfRange
	default:
		return raft.OffsetNotAvailable
	}
}

// checkEpoch compares the epoch a client believes in with ours. Clients that do not say send a negative one.
func (r *Replica) checkEpoch(believed raft.Epoch) raft.ErrorCode {
	switch {
	case believed < 0 || believed == r.epoch:
		return raft.NoError
	case believed < r.epoch:
		return raft.FencedLeaderEpoch
	default:
		return raft.UnknownLeaderEpoch
	}
}

// nextRead is when the first parked read has waited long enough.
func (r *Replica) nextRead() raft.Instant {
	next := raft.Never
	for _, p := range r.reads {
		next = min(next, p.until)
	}
	return next
}

// listOffsets answers at the leader only. The log's end needs proof that nobody else leads by now.
func (r *Replica) listOffsets(e ListOffsets) {
	if code := r.checkEpoch(e.LeaderEpoch); code != raft.NoError {
		r.answer(e.ID, ListOffsetsResult{Header: r.header(code), Offset: raft.Unknown, Timestamp: -1, Epoch: -1})
		return
	}
	if !r.leads {
		r.answer(e.ID, ListOffsetsResult{Header: r.header(raft.NotLeaderOrFollower), Offset: raft.Unknown, Timestamp: -1, Epoch: -1})
		return
	}
	switch {
	case e.Timestamp == Earliest:
		r.answer(e.ID, ListOffsetsResult{Header: r.header(raft.NoError), Offset: r.topicStart(), Timestamp: -1, Epoch: -1})
	case e.Timestamp == Latest:
		r.barriers[e.ID] = struct{}{}
		r.feed(raft.Barrier{ID: e.ID})
	case !r.epochCommitted:
		// What is below the high watermark is not known yet.
		r.answer(e.ID, ListOffsetsResult{Header: r.header(raft.OffsetNotAvailable), Offset: raft.Unknown, Timestamp: -1, Epoch: -1})
	default:
		r.offsetByTime(e)
	}
}

// barrierDone completes ListOffsets(Latest).
func (r *Replica) barrierDone(id raft.RequestID, b raft.BarrierResult) {
	delete(r.barriers, id)
	result := ListOffsetsResult{Header: b.Header, Offset: raft.Unknown, Timestamp: -1, Epoch: -1}
	if b.Error == raft.NoError {
		// The shown one may be ahead of a new leader's: the core answers only once its epoch has committed.
		result.Offset = max(b.HighWatermark, r.shown)
		result.Epoch = r.epoch
	}
	r.answer(id, result)
}

// epochEnd tells where an epoch ended, so that a client can find out that its position was cut off.
func (r *Replica) epochEnd(e EpochEnd) {
	result := EpochEndResult{Header: r.header(raft.NoError), Epoch: -1, End: raft.Unknown}
	switch code := r.checkEpoch(e.LeaderEpoch); {
	case code != raft.NoError:
		result.Header = r.header(code)
	case !r.leads:
		result.Header = r.header(raft.NotLeaderOrFollower)
	default:
		if p, known := r.log.EndOffsetForEpoch(e.Epoch); known {
			result.Epoch, result.End = p.Epoch, p.Offset
		}
	}
	r.answer(e.ID, result)
}

// offsetByTime finds the first record that is at least as young as asked.
func (r *Replica) offsetByTime(e ListOffsets) {
	search := &Search{topic: r.dir, timestamp: e.Timestamp, end: r.shown}
	if r.cfg.Snapshots.Opaque {
		search.topic = r.log
	}
	if r.cfg.Beside {
		r.answer(e.ID, ListOffsetsResult{Header: r.header(raft.NoError), Search: search})
		return
	}
	offset, timestamp, epoch, err := search.Run()
	if err != nil {
		r.fail(fatalOf("find an offset by time", err))
		return
	}
	r.answer(e.ID, ListOffsetsResult{Header: r.header(raft.NoError), Offset: offset, Timestamp: timestamp, Epoch: epoch})
}

// Range is a read that was granted but not done: it takes a disk's time, which the replica's owner need not wait for.
// Below the high watermark nothing ever changes, so it may be done at any time, on any goroutine, until Close.
type Range struct {
	read        func(buf []byte, offset int64, maxBytes int, upTo int64) ([]byte, error)
	find        func(offset int64, maxBytes int, upTo int64) (storage.Records, error)
	offset, end int64
	maxBytes    int
}

// rangeOf reads the topic as clients see it: the newest snapshot and the log behind it or, if nothing is compacted, the log.
func (r *Replica) rangeOf(e Read) *Range {
	g := &Range{read: r.dir.ReadFrom, find: r.dir.FindFrom, offset: e.Offset, end: r.shown, maxBytes: e.MaxBytes}
	if r.cfg.Snapshots.Opaque {
		g.read, g.find = r.log.Read, r.log.Find
	}
	return g
}

// Read returns the batches.
func (g *Range) Read() ([]byte, error) {
	records, err := g.read(nil, g.offset, g.maxBytes, g.end)
	if err != nil {
		return nil, fmt.Errorf("read the log at offset %d: %w", g.offset, err)
	}
	return records, nil
}

// Find is Read for who can send the batches from where they lie.
func (g *Range) Find() (storage.Records, error) {
	found, err := g.find(g.offset, g.maxBytes, g.end)
	if err != nil {
		return storage.Records{}, fmt.Errorf("read the log at offset %d: %w", g.offset, err)
	}
	return found, nil
}

// Search is a search by time that was granted but not done, as Range is a read.
type Search struct {
	topic interface {
		OffsetForTimestamp(timestamp, upTo int64) (storage.Position, bool, error)
		MaxTimestamp(upTo int64) (storage.Position, bool, error)
	}
	timestamp, end int64
}

// Run finds the first record that is at least as young as asked, or the first of the youngest for MaxTimestamp. Offset
// is Unknown if there is none.
func (s *Search) Run() (offset, timestamp int64, epoch raft.Epoch, err error) {
	var p storage.Position
	var found bool
	if s.timestamp == MaxTimestamp {
		p, found, err = s.topic.MaxTimestamp(s.end)
	} else {
		p, found, err = s.topic.OffsetForTimestamp(s.timestamp, s.end)
	}
	if err != nil || !found {
		return raft.Unknown, -1, -1, err
	}
	return p.Offset, p.Timestamp, p.Epoch, nil
}
