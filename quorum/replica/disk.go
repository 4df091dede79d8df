package replica

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// Flush is one fsync of the log, for the driver to run beside the Replica.
type Flush struct {
	log        *storage.Log
	generation uint64
	end        int64
}

// Run makes durable what was appended before it began. It may be called on any goroutine, once.
func (f *Flush) Run() (err error) {
	f.end, err = f.log.Flush()
	return err
}

func (r *Replica) startFlush() {
	if r.flush != nil {
		panic("the core asked for a second flush beside the first")
	}
	r.flush = &Flush{log: r.log, generation: r.generation}
	r.out.Flush = r.flush
}

// flushed takes in the outcome of the outstanding flush. After a failed fsync nobody knows what is on the disk, and
// asking again would be answered with success: so it is fatal.
func (r *Replica) flushed(e Flushed) {
	if e.Flush != r.flush {
		panic("a flush was reported that is not outstanding")
	}
	r.flush = nil
	if e.Err != nil {
		r.fail(fatalOf("flush the log", e.Err))
		return
	}
	r.checkSpace()
	r.feed(raft.Flushed{End: e.Flush.end, Generation: e.Flush.generation})
}

// receive checks the bytes that a Fetch of ours brought, tells the core where they lie, and keeps them until it decided.
//
// The bytes may be bad without anybody being wrong: the sender may have been truncating while it sent (KAFKA-18723).
// So nothing at or behind the first bad batch is believed, and the next Fetch asks again. A control record of a kind we
// do not know is another thing: skipping it would make two logs with one history, so the process ends.
func (r *Replica) receive(e Fetched) {
	r.beforeAppend()
	batches, size, err := record.Fetched(e.Records)
	if errors.Is(err, record.ErrUnknown) {
		r.fail(&raft.Fatal{Reason: raft.FatalReason(storage.UnknownRecord), Message: fmt.Sprintf("the leader sent %v; a newer version of quorum can read it", err)})
		return
	}
	if err == nil && len(batches) > 0 {
		if batches[0].BaseOffset >= r.log.End() {
			err = r.continues(batches[0])
		}
		if err != nil || batches[0].BaseOffset < r.log.End() { // the latter came before, and is being flushed
			batches, size = nil, 0
		}
	}
	if err != nil {
		r.out.Dropped = append(r.out.Dropped, fmt.Errorf("records of a Fetch in epoch %d: %w", r.epoch, err))
	}
	e.Response.Batches = batches
	r.fetched[e.Correlation] = e.Records[:size]
	r.feed(raft.Outcome{Correlation: e.Correlation, Response: e.Response})
	delete(r.fetched, e.Correlation)
}

// continues checks that a fetched batch may follow what the log holds. The core judges the leader's word; this is about
// bytes, which whoever speaks for the leader may have mixed up.
func (r *Replica) continues(b raft.Batch) error {
	if end, epoch := r.log.End(), r.log.LastEpoch(); b.BaseOffset != end || b.Epoch < epoch {
		return fmt.Errorf("batch at offset %d epoch %d does not continue the log, which ends at offset %d epoch %d", b.BaseOffset, b.Epoch, end, epoch)
	}
	return nil
}

// fatalOf turns an error of the directory into the end of the process.
func fatalOf(doing string, err error) *raft.Fatal {
	var f *storage.Fault
	switch {
	case errors.As(err, &f):
		return &raft.Fatal{Reason: raft.FatalReason(f.Token), Message: f.Message}
	case errors.Is(err, storage.ErrDiskFull):
		return &raft.Fatal{Reason: DiskFull, Message: fmt.Sprintf("%s: %v; nothing acknowledged is lost, free some space", doing, err)}
	default:
		return &raft.Fatal{Reason: raft.FatalReason(storage.DiskIOError), Message: fmt.Sprintf("%s: %v", doing, err)}
	}
}

// beforeAppend looks at the disk if what follows may be appended at once, before the core decides on that: the disk may
// have been filled by somebody else a moment ago. Beside a flush nothing is appended.
func (r *Replica) beforeAppend() {
	if r.flush == nil {
		r.checkSpace()
	}
}

// checkSpace lets the core hear when the disk falls below its reserve, or is above it again.
func (r *Replica) checkSpace() {
	r.nextSpace = r.now.Add(spaceEvery)
	before := r.reserve
	if before == r.lookAtSpace() {
		return
	}
	r.untold, r.snapshots.clean = true, r.now // a reader need not keep what it kept above the reserve
	if before.Full {
		if err := r.dir.ProvideSpare(); err != nil {
			r.fail(fatalOf("make room for the next vote", err))
		}
	}
}

// lookAtSpace notes how much room there is. If that cannot be told, the write itself will tell.
func (r *Replica) lookAtSpace() raft.Reserve {
	had := r.dir.HasBallast()
	if !had && r.now >= r.regain {
		r.regain = r.now.Add(spaceEvery)
		if err := r.dir.ProvideBallast(); err != nil {
			r.fail(fatalOf("make room for when the disk is full", err))
		}
	}
	switch space, err := r.dir.Free(); {
	case err == nil:
		r.moreRoom(space.Free, r.reserve.Below && !space.Below)
		r.reserve = raft.Reserve{Below: space.Below, Full: space.Full}
	case !r.dir.HasBallast():
		r.reserve = raft.Reserve{Below: true, Full: true}
	case !had:
		r.reserve = raft.Reserve{}
	}
	return r.reserve
}

// insist writes what must be written. If the disk is full, the ballast makes room for it, and the core hears of it with the
// next event. A snapshot that is being made would take that room before.
func (r *Replica) insist(write func() error) error {
	err := write()
	if !errors.Is(err, storage.ErrDiskFull) {
		return err
	}
	if m := r.snapshots.making; m != nil {
		m.Cancel()
	}
	released, unreleased := r.dir.ReleaseBallast()
	if !released {
		return cmp.Or(unreleased, err)
	}
	r.regain, r.untold = r.now.Add(spaceEvery), true
	r.reserve = raft.Reserve{Below: true, Full: true} // until the next look
	return write()
}

// spaceEvery is how often a member without room looks for some, if nothing else happens.
const spaceEvery = time.Second

// keepCommitted tells the directory how far the log is committed, so that recovery knows what cannot be a torn tail.
func (r *Replica) keepCommitted() {
	if r.shown <= r.committed || r.now < r.nextCommitted {
		return
	}
	r.nextCommitted = r.now.Add(committedEvery)
	r.out.WriteCommitted = r.dir.MarkCommitted(r.now, r.shown)
	r.committed = min(r.shown, r.log.FlushedEnd()) // no more than that is noted
}
