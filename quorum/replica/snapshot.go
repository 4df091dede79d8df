package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/state"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// Snapshots says when snapshots are made and how long they are kept. Ages go by this member's own clock.
type Snapshots struct {
	// Opaque: none are made, since nothing here knows what a record replaces. The leader's are learnt instead, so that the
	// log can be cleaned behind them.
	Opaque bool

	// Bytes of the log since the last one; 0: never for that. It takes half as much as the last one has, at least: a large one
	// that were made anew for every little more would be all that the disk does.
	Bytes    int64
	Interval time.Duration // since the last one, if there is anything new; 0: never for that

	DeleteRetention time.Duration // of a tombstone, from the first snapshot that holds it

	RetentionBytes int64         // of log and snapshots together; 0: no limit. The newest snapshot always stays
	Retention      time.Duration // of a snapshot; 0: no limit
}

const (
	cleanEvery    = time.Minute
	checkEvery    = time.Minute     // at most, of what is served
	snapshotRetry = time.Minute     // after one could not be made, for want of room or of anything new
	snapshotPause = 5 * time.Second // … at least, however much room there is again
	readPatience  = 4               // as many may be made while one is downloaded
)

// snapshots is how things stand.
type snapshots struct {
	newest   storage.CheckpointInfo // ID.Offset 0: there is none
	count    int
	at       raft.Instant  // when this process learnt of the newest
	age      time.Duration // how old that was then
	since    int64         // bytes of the log behind it, or somewhat more
	notUntil raft.Instant  // no attempt before
	worth    int64         // free bytes that are worth an earlier one, since the last found no room; 0: none are
	clean    raft.Instant  // when to look for what can go

	making *Job // outstanding

	served    bool         // one that is served is being checked
	checkNext raft.Instant // no such check before

	download *storage.Download
	checking *Job // outstanding: the download's, or that of one that was given up
	given    bool // up, while it is checked
	lost     bool // the chunk of this Ready could not be stored
	heard    *state.Producers
}

// Job is work that takes a disk's time. It may be run once, on any goroutine, beside everything else; the driver reports
// its end as Done. Close waits for no job: there must not be any.
type Job struct {
	Name   string // of what is done, for people: snapshot, verify, check or clean
	run    func() error
	cancel func()
	done   func(error)
}

// Run does the work.
func (j *Job) Run() error { return j.run() }

// Cancel asks it to end soon, on any goroutine. It can be too late.
func (j *Job) Cancel() {
	if j.cancel != nil {
		j.cancel()
	}
}

// countSnapshots takes note of which there are.
func (r *Replica) countSnapshots() {
	s := &r.snapshots
	all := r.dir.Checkpoints()
	s.count, s.since = len(all), r.dir.Uncovered()
	if s.count > 0 && all[s.count-1].ID != s.newest.ID {
		s.newest, s.at = all[s.count-1], r.now
		// Nothing tells when another process has made it, but what it covers was appended before.
		s.age = max(0, r.cfg.Wall().Sub(time.UnixMilli(s.newest.Timestamp)))
	}
}

// keepSnapshots makes, learns of and cleans snapshots when it is time.
func (r *Replica) keepSnapshots() {
	if r.out.Fatal != nil || r.out.Stopped {
		return
	}
	if r.now >= r.cleanDue() {
		r.snapshots.clean = r.now.Add(cleanEvery)
		r.clean()
	}
	if r.now < r.snapshotDue() {
		return
	}
	r.snapshots.notUntil = r.now.Add(snapshotRetry)
	if r.cfg.Snapshots.Opaque {
		r.feed(raft.LearnSnapshot{})
		return
	}
	r.makeSnapshot()
}

// growth is how much log makes the next one due, behind one of that size.
func (o *Snapshots) growth(size int64) int64 { return max(o.Bytes, size/2) }

// snapshotDue is when the next snapshot is to be made, as things are now.
func (r *Replica) snapshotDue() raft.Instant {
	s, o := &r.snapshots, &r.cfg.Snapshots
	if s.making != nil || r.node.Settled() <= s.newest.ID.Offset {
		return raft.Never
	}
	switch due := s.at.Add(o.Interval); {
	case o.Bytes > 0 && (s.since >= o.growth(s.newest.Size) || r.reserve.Below): // with a snapshot, a full disk can be cleaned
		return s.notUntil
	case o.Interval > 0:
		return max(due, s.notUntil)
	}
	return raft.Never
}

// cleanDue is when to look for what can go; never while there cannot be anything, or while the next snapshot is made of it.
func (r *Replica) cleanDue() raft.Instant {
	s := &r.snapshots
	if s.making != nil || s.count < 2 && r.log.Start() >= s.newest.ID.Offset {
		return raft.Never
	}
	return s.clean
}

// snapshotDeadline is when keepSnapshots has something to do.
func (r *Replica) snapshotDeadline() raft.Instant { return min(r.snapshotDue(), r.cleanDue()) }

// makeSnapshot begins to compact what is committed, and on our own disk, into the next snapshot.
func (r *Replica) makeSnapshot() {
	live := r.producers.Live(r.now)
	c, err := r.dir.BeginCompaction(storage.CompactOptions{
		UpTo:            r.node.Settled(),
		Now:             r.cfg.Wall().UnixMilli(),
		DeleteRetention: r.cfg.Snapshots.DeleteRetention,
		LiveProducer:    func(id int64) bool { return live[id] },
	})
	switch {
	case errors.Is(err, storage.ErrNothingNew):
		return
	case err != nil:
		r.fail(fatalOf("make a snapshot", err))
		return
	}
	job := &Job{Name: "snapshot", cancel: c.Cancel}
	var made storage.CheckpointInfo
	job.run = func() (err error) {
		made, err = c.Run()
		return err
	}
	job.done = func(err error) {
		r.snapshots.making = nil
		if err != nil {
			r.unmade("make a snapshot", err)
			return
		}
		r.snapshots.notUntil = r.now
		r.feed(raft.SnapshotCreated{Snapshot: made.ID})
		r.snapshotsChanged()
		if r.snapshots.newest.ID == made.ID {
			r.snapshots.age = 0
		}
	}
	r.snapshots.making = job
	r.out.Jobs = append(r.out.Jobs, job)
}

// unmade judges why a snapshot did not come to be. Want of room is no reason to end: there may be some later.
func (r *Replica) unmade(doing string, err error) {
	s := &r.snapshots
	s.notUntil = r.now.Add(snapshotRetry)
	if space, unknown := r.dir.Free(); errors.Is(err, storage.ErrDiskFull) && unknown == nil {
		s.worth = space.Free + space.Free/4 + 1
	}
	for _, harmless := range []error{storage.ErrCanceled, storage.ErrNothingNew, storage.ErrDiskFull} {
		if errors.Is(err, harmless) {
			return
		}
	}
	r.fail(fatalOf(doing, err))
}

// moreRoom brings the next attempt forward if the last found no room and there is clearly more now.
func (r *Replica) moreRoom(free int64, aboveReserve bool) {
	s := &r.snapshots
	if s.worth == 0 || free < s.worth && !aboveReserve {
		return
	}
	s.worth = 0
	s.notUntil = s.notUntil.Add(snapshotPause - snapshotRetry)
}

// snapshotsChanged follows a new snapshot: what it makes superfluous can go.
func (r *Replica) snapshotsChanged() {
	r.countSnapshots()
	r.snapshots.clean = r.now
}

// clean takes out what retention lets go. Below the reserve only the newest snapshot stays.
//
// Beyond retention one older snapshot stays while it is downloaded, if no more log must stay for that than the snapshot has
// bytes, and what four more take. The first is what is appended during a download that is faster than the appends; the second
// lets a small snapshot reach a member that is slower for a while. Who is slower still begins with the newest in the end, or
// would hold the log up for ever.
func (r *Replica) clean() {
	s, o := &r.snapshots, &r.cfg.Snapshots
	options := storage.CleanOptions{
		Now: r.now, HighWatermark: r.node.Settled(), MaxBytes: o.RetentionBytes, MaxAge: o.Retention,
		ReadBytes: s.newest.Size + readPatience*o.growth(s.newest.Size),
	}
	if r.reserve.Below {
		options.MaxBytes, options.ReadBytes = 1, 0
	}
	c := r.dir.BeginClean(options)
	if c == nil {
		return
	}
	r.countSnapshots()
	if r.log.Start() > 0 {
		r.feed(raft.Cleaned{Earliest: r.dir.Checkpoints()[0].ID})
	}
	r.out.Jobs = append(r.out.Jobs, &Job{Name: "clean", run: c.Run, done: func(err error) {
		if err != nil {
			r.fail(fatalOf("clean the log", err))
		}
	}})
}

// receiveSnapshot takes in the bytes that a FetchSnapshot of ours brought.
func (r *Replica) receiveSnapshot(e FetchedSnapshot) {
	e.Response.Bytes = len(e.Data)
	r.fetched[e.Correlation] = e.Data
	r.feed(raft.Outcome{Correlation: e.Correlation, Response: e.Response})
	delete(r.fetched, e.Correlation)
}

// downloading does what the core decided about the download of a snapshot.
func (r *Replica) downloading(rd raft.Ready) error {
	if rd.Discard {
		r.discard()
	}
	if rd.Chunk != nil {
		if err := r.store(rd.Chunk); err != nil {
			return err
		}
	}
	if rd.Verify && !r.snapshots.lost {
		r.verify(rd.Chunk.Snapshot)
	}
	if rd.Install != nil {
		return r.install(rd.Install)
	}
	return nil
}

// discard gives the download up. One that is being checked is removed afterwards.
func (r *Replica) discard() {
	s := &r.snapshots
	if s.checking != nil {
		s.given = true
	} else if s.download != nil {
		s.download.Discard()
	}
	s.download = nil
}

// store adds a chunk to the download. Want of room ends the download, not the process.
func (r *Replica) store(c *raft.Chunk) (err error) {
	s := &r.snapshots
	if c.Position == 0 {
		if s.checking != nil { // one that was given up has not come to rest yet
			s.lost = true
			return nil
		}
		s.download, err = r.dir.BeginDownload(c.Snapshot)
	}
	if err == nil {
		err = s.download.Append(r.fetched[c.Fetched])
	}
	if errors.Is(err, storage.ErrDiskFull) {
		s.lost = true
		return nil
	}
	return err
}

// verify begins to check a download that is whole. What it says of producers is taken in on the way.
func (r *Replica) verify(id raft.OffsetAndEpoch) {
	s := &r.snapshots
	w, began := s.download, r.now
	job := &Job{Name: "verify"}
	var control []raft.ControlAt
	producers := state.New(r.cfg.Producers, id.Offset)
	job.run = func() (err error) {
		control, err = w.Verify(func(b record.Batch) { remember(producers, began, b.Header) })
		return err
	}
	job.done = func(err error) {
		given := s.given
		s.checking, s.given = nil, false
		if given {
			w.Discard()
			return
		}
		switch {
		case errors.Is(err, record.ErrUnknown):
			r.fail(&raft.Fatal{Reason: raft.FatalReason(storage.UnknownRecord), Message: fmt.Sprintf("the leader's snapshot: %v; a newer version of quorum can read it", err)})
			return
		case errors.Is(err, record.ErrCorrupt), errors.Is(err, record.ErrShort):
			r.out.Dropped = append(r.out.Dropped, err)
		case err != nil && !errors.Is(err, storage.ErrDiskFull):
			r.fail(fatalOf("check a snapshot", err))
			return
		}
		s.heard = producers
		r.feed(raft.SnapshotVerified{Snapshot: id, Failed: err != nil, Control: control})
		s.heard = nil
	}
	s.checking = job
	r.out.Jobs = append(r.out.Jobs, job)
}

// install puts a checked download into place. If it replaces the log, the producers are those that it tells of.
func (r *Replica) install(i *raft.Install) error {
	s := &r.snapshots
	if m := s.making; m != nil {
		m.Cancel() // the log that it reads is about to go, or it would make what is there already
	}
	w := s.download
	s.download = nil
	if err := r.dir.Install(w, i.Replaces); err != nil {
		return fmt.Errorf("install the snapshot of offset %d: %w", i.Snapshot.Offset, err)
	}
	if i.Replaces {
		r.generation = i.Generation
		r.producers = s.heard
		r.producers.Committed(i.Snapshot.Offset)
	}
	r.snapshotsChanged()
	return nil
}

// answerSnapshot adds the bytes, and the whole file's size, to a peer's FetchSnapshot answer, or says why there are none.
func (r *Replica) answerSnapshot(id raft.RequestID, f raft.FetchSnapshotResponse) {
	result := SnapshotResult{FetchSnapshotResponse: f}
	if f.TopError != raft.NoError || f.Error != raft.NoError {
		r.answer(id, result)
		return
	}
	var err error
	if r.cfg.Beside {
		if result.Section, result.Size, err = r.dir.FindCheckpoint(f.Snapshot, f.Position, f.Bytes); err == nil {
			result.Bytes = int(result.Section.Size())
		}
	} else {
		result.Data, result.Size, err = r.dir.ReadCheckpoint(nil, f.Snapshot, f.Position, f.Bytes)
		result.Bytes = len(result.Data)
	}
	refuse := func(code raft.ErrorCode) {
		f.Header.Error = code
		r.answer(id, SnapshotResult{FetchSnapshotResponse: raft.FetchSnapshotResponse{Header: f.Header}})
	}
	switch {
	case errors.Is(err, storage.ErrNoCheckpoint):
		refuse(raft.SnapshotNotFound)
	case errors.Is(err, storage.ErrPosition):
		refuse(raft.PositionOutOfRange)
	case err != nil:
		r.fail(fatalOf("read a snapshot", err))
	default:
		r.answer(id, result)
		if f.Position == 0 {
			r.checkServed(f.Snapshot)
		}
	}
}

// checkServed looks whether a snapshot is whole that somebody begins to download. One that has rotted would be asked for
// again and again, in vain, until the next one is made of it, and that fails. So the process ends: the next takes what
// stands in for it and makes a new one, and another voter leads meanwhile.
func (r *Replica) checkServed(id raft.OffsetAndEpoch) {
	s := &r.snapshots
	if s.served || r.now < s.checkNext {
		return
	}
	check, err := r.dir.BeginCheck(id)
	if err != nil {
		return // cleaned away meanwhile
	}
	s.served, s.checkNext = true, r.now.Add(checkEvery)
	r.out.Jobs = append(r.out.Jobs, &Job{Name: "check", run: check.Run, cancel: check.Cancel, done: func(err error) {
		s.served = false
		if err != nil && !errors.Is(err, storage.ErrCanceled) {
			r.fail(fatalOf("check a snapshot", err))
		}
	}})
}

// Snapshots tells of the snapshots here.
func (r *Replica) Snapshots() SnapshotStatus {
	s := &r.snapshots
	return SnapshotStatus{Newest: s.newest, Count: s.count, At: s.at, Age: s.age, LogBytes: s.since}
}

// SnapshotStatus is how things stand with the snapshots.
type SnapshotStatus struct {
	Newest storage.CheckpointInfo // ID.Offset is 0 if there is none
	Count  int
	At     raft.Instant // when this process made it, got it or found it
	// Age is how old it was then: 0 of one that was made here, else since the last record that it covers, as far as that
	// record's timestamp and the calendar can be believed.
	Age      time.Duration
	LogBytes int64 // of the log behind it, about
}
