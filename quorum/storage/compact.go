package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// CompactOptions say what a compaction takes in.
type CompactOptions struct {
	UpTo            int64               // the high watermark: no batch beyond it is taken
	Now             int64               // milliseconds since 1970: what delete horizons are made of and compared with
	DeleteRetention time.Duration       // how long a tombstone stays after the first checkpoint that holds it (delete.retention.ms)
	LiveProducer    func(id int64) bool // called from Run; false: its empty batches may go. nil: all are live
	KeyMemory       int                 // bytes for the keys of the log behind; 0: 6 MiB
}

// Compaction makes a checkpoint out of the newest one and the log behind it, as Kafka's log cleaner makes a segment: of each
// key the newest record stays, at its offset. It streams. What it holds in memory is the hashes of the keys that the log
// behind holds, and which batches of a producer are its last.
type Compaction struct {
	d        *Dir
	o        CompactOptions
	base     *checkpoint // nil: the first one
	from     int64       // where the log behind begins
	canceled atomic.Bool

	// what survey finds
	id           raft.OffsetAndEpoch
	timestamp    int64
	kraftVersion *raft.KRaftVersion
	voters       *raft.Voters
	keys         offsets
	producers    map[int64]*[keptBatches]int64 // base offsets of the last batches of each, ascending
}

// keptBatches is how many batches of a live producer stay recognisable, if need be with no record in them: as many as
// quorum/state remembers, so that a member that starts from a checkpoint knows as much as one that does not.
const keptBatches = 5

// BeginCompaction fixes the newest checkpoint as what the next one is made from. The owner calls it. ErrNothingNew if
// there is no batch to take in. One at a time; who gets no error calls Run.
func (d *Dir) BeginCompaction(o CompactOptions) (*Compaction, error) {
	if err := d.Log.failure(); err != nil {
		return nil, err
	}
	if o.KeyMemory == 0 {
		o.KeyMemory = 6 << 20
	}
	o.UpTo = min(o.UpTo, d.Log.FlushedEnd()) // else a crash could leave the log shorter than its checkpoint
	c := &Compaction{d: d, o: o, base: d.checkpoints.newest(), producers: map[int64]*[keptBatches]int64{}}
	if c.base != nil {
		c.from = c.base.ID.Offset
	}
	if o.UpTo <= c.from {
		c.release()
		return nil, ErrNothingNew
	}
	if !d.compacting.CompareAndSwap(false, true) {
		panic("a compaction began beside another")
	}
	return c, nil
}

func (c *Compaction) release() {
	if c.base != nil {
		c.base.file.release()
	}
}

// Cancel makes a running Run return soon, with ErrCanceled. Any goroutine may call it.
func (c *Compaction) Cancel() { c.canceled.Store(true) }

// Run makes the checkpoint: its id is the end of the last batch taken, a batch boundary at or below UpTo. It may run on
// another goroutine beside everything else but Close. If the log behind has more keys than the memory holds, it takes in
// as many batches as fit; the rest is for the next compaction. On any error nothing is left behind. ErrDiskFull may be
// tried again later; ErrCanceled and ErrNothingNew (a download was faster) are no faults.
func (c *Compaction) Run() (CheckpointInfo, error) {
	defer c.d.compacting.Store(false)
	defer c.release()
	if err := c.survey(); err != nil {
		return CheckpointInfo{}, err
	}
	p, err := c.d.newPartial(c.id, ".tmp")
	if err != nil {
		return CheckpointInfo{}, err
	}
	defer p.discard()
	w := &compactWriter{partial: p, seen: inspect(c.id)}
	if err := c.write(w); err != nil {
		return CheckpointInfo{}, err
	}
	if c.d.covered(c.from) { // a download was faster
		return CheckpointInfo{}, ErrNothingNew
	}
	// The log must be known to be committed so far before it is compacted so far: else damage below the checkpoint's end could
	// pass for a torn tail, and the log for one that the checkpoint replaces.
	if err := c.d.Log.noteCommitted(c.id.Offset); err != nil {
		return CheckpointInfo{}, err
	}
	if err := p.finish(&w.seen.checkpoint); err != nil {
		return CheckpointInfo{}, err
	}
	return w.seen.CheckpointInfo, nil
}

// each calls fn for the batches of the base, then for those of the log behind it up to upTo.
func (c *Compaction) each(upTo int64, fn func(record.Batch) error) error {
	step := func(b record.Batch) error {
		if c.canceled.Load() {
			return ErrCanceled
		}
		return fn(b)
	}
	if c.base != nil {
		if err := c.base.walk(0, c.from, step); err != nil {
			return err
		}
	}
	err := c.d.Log.Walk(c.from, upTo, step)
	if errors.Is(err, ErrOffset) {
		return ErrNothingNew // the log was replaced by a newer checkpoint
	}
	return err
}

// errFull ends a survey.
var errFull = errors.New("no memory for more keys")

// survey finds the newest offset of each key in the log behind, how far the memory lets it go, what is in force there, and
// the last batches of the producers.
func (c *Compaction) survey() error {
	if c.base != nil {
		for _, r := range c.base.controls {
			c.inForce(r)
		}
	}
	// In the log every offset is a record's: there are no more keys than that.
	c.keys = newOffsets(c.o.UpTo-c.from, c.o.KeyMemory)
	err := c.each(c.o.UpTo, func(b record.Batch) error {
		if b.BaseOffset >= c.from {
			if err := c.learn(b); err != nil {
				return err
			}
			c.id = raft.OffsetAndEpoch{Offset: b.NextOffset(), Epoch: b.Epoch}
			c.timestamp = b.MaxTimestamp
		}
		if b.ProducerID >= 0 && !b.IsControl() {
			c.lastOf(b.Header)
		}
		return nil
	})
	if err == nil && c.id.Offset == 0 {
		return ErrNothingNew // the high watermark is inside a batch
	}
	if errors.Is(err, errFull) {
		return nil
	}
	return err
}

// learn takes in a batch of the log, or none of it.
func (c *Compaction) learn(b record.Batch) error {
	if b.IsControl() {
		records, err := record.DecodeControl(b)
		if err != nil {
			return fault(UnknownRecord, "%s: batch at offset %d: %v", c.d.Log.dir, b.BaseOffset, err)
		}
		for _, r := range records {
			c.inForce(r)
		}
		return nil
	}
	if !c.keys.room(int(b.Count)) {
		if c.id.Offset > 0 {
			return errFull
		}
		c.keys.grow(min(int(b.Count), record.MaxDecoded/smallestRecord)) // a batch is taken whole
	}
	for r, err := range b.Records() {
		if err != nil {
			return fault(LogCorrupt, "%s: batch at offset %d: %v", c.d.Log.dir, b.BaseOffset, err)
		}
		if r.Key != nil {
			c.keys.set(r.Key, r.Offset)
		}
	}
	return nil
}

// smallestRecord is what one takes at least, in bytes.
const smallestRecord = 7

func (c *Compaction) inForce(r raft.ControlRecord) {
	switch r := r.(type) {
	case raft.KRaftVersion:
		c.kraftVersion = &r
	case raft.Voters:
		c.voters = &r
	case raft.LeaderChange: // every leader writes its own
	}
}

func (c *Compaction) lastOf(h record.Header) {
	last := c.producers[h.ProducerID]
	if last == nil {
		if c.o.LiveProducer != nil && !c.o.LiveProducer(h.ProducerID) {
			return
		}
		last = new([keptBatches]int64)
		c.producers[h.ProducerID] = last
	}
	copy(last[:], last[1:])
	last[keptBatches-1] = h.BaseOffset
}

// write makes the checkpoint's content.
func (c *Compaction) write(w *compactWriter) error {
	head := []record.Control{{Type: record.TypeSnapshotHeader, LastContainedLogTimestamp: c.timestamp}}
	if c.kraftVersion != nil && c.kraftVersion.Version >= 1 {
		head = append(head, record.Control{Type: record.TypeKRaftVersion, Record: *c.kraftVersion})
		if c.voters != nil {
			head = append(head, record.Control{Type: record.TypeVoters, Record: *c.voters})
		}
	}
	if err := w.add(record.EncodeControls(0, c.id.Epoch, c.timestamp, head...)); err != nil {
		return err
	}
	var scratch []byte
	horizon := c.o.Now + c.o.DeleteRetention.Milliseconds()
	err := c.each(c.id.Offset, func(b record.Batch) error {
		if b.IsControl() {
			return nil // what is in force stands in the header
		}
		expired := b.HasDeleteHorizon() && b.BaseTimestamp <= c.o.Now
		out, h, err := record.Compact(scratch[:0], b, horizon, func(r record.Record) bool {
			if r.Key == nil {
				return true
			}
			newest, ok := c.keys.get(r.Key)
			return (!ok || newest <= r.Offset) && (r.Value != nil || !expired)
		})
		if err != nil {
			return fault(LogCorrupt, "%s: batch at offset %d: %v", c.d.Log.dir, b.BaseOffset, err)
		}
		if cap(out) <= keepBuffer {
			scratch = out
		}
		if h.Count == 0 && !c.isLast(h) {
			return nil
		}
		return w.add(out)
	})
	if err != nil {
		return err
	}
	foot := record.Control{Type: record.TypeSnapshotFooter, Sum: w.seen.sum, Summed: true}
	if err := w.add(record.EncodeControls(c.id.Offset, c.id.Epoch, c.timestamp, foot)); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.seen.end()
}

// isLast reports whether a batch is among the last of a live producer.
func (c *Compaction) isLast(h record.Header) bool {
	last := c.producers[h.ProducerID]
	return h.ProducerID >= 0 && last != nil && h.BaseOffset >= last[0]
}

// compactWriter gathers batches into larger writes, and checks them as a reader would.
type compactWriter struct {
	*partial
	seen     *inspection
	buf      []byte
	unsynced int
}

const (
	// writeBuffer is how much is gathered before it is written.
	writeBuffer = 256 << 10
	// syncEvery is how much is written before it is synced. All of it at the end would hold up the log's own fsyncs.
	syncEvery = 8 << 20
)

func (w *compactWriter) add(raw []byte) error {
	b, err := record.Parse(raw)
	if err == nil {
		err = w.seen.add(b)
	}
	if err != nil {
		panic(fmt.Sprintf("checkpoint %s: %v", w.name, err)) // nobody could read it
	}
	if len(w.buf)+len(raw) > writeBuffer {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(raw) > writeBuffer {
		return w.write(raw)
	}
	w.buf = append(w.buf, raw...)
	return nil
}

func (w *compactWriter) flush() error {
	buf := w.buf
	w.buf = w.buf[:0]
	if len(buf) == 0 {
		return nil
	}
	return w.write(buf)
}

func (w *compactWriter) write(p []byte) error {
	if err := w.partial.write(p); err != nil {
		return err
	}
	if w.unsynced += len(p); w.unsynced < syncEvery {
		return nil
	}
	w.unsynced = 0
	if err := w.file.Sync(); err != nil {
		return w.d.Log.fail(&vfs.SyncError{Path: w.name, Err: err})
	}
	return nil
}

// offsets is a hash table from keys to offsets of a fixed size. It knows keys by 128 bits of their SHA-256: two keys that
// share them cannot be found, not even on purpose.
type offsets struct {
	slots []slot // a power of two
	used  int
}

type slot struct {
	high, low uint64
	next      int64 // offset + 1; 0: free
}

const slotBytes = 24

// newOffsets makes room for that many keys, or as many as the memory holds.
func newOffsets(keys int64, memory int) offsets {
	most := 1 << (bits.Len(uint(max(memory/slotBytes, 16))) - 1)
	n := 16
	for n < most && int64(n-n/8) < keys {
		n *= 2
	}
	return offsets{slots: make([]slot, n)}
}

// room reports whether that many more keys fit. An eighth stays free, so that searches are short.
func (o *offsets) room(keys int) bool { return o.used+keys <= len(o.slots)-len(o.slots)/8 }

// grow makes room in an empty table.
func (o *offsets) grow(keys int) {
	*o = offsets{slots: make([]slot, 1<<bits.Len(uint(keys+keys/4+16)))}
}

func (o *offsets) find(key []byte) (*slot, slot) {
	sum := sha256.Sum256(key)
	want := slot{high: binary.LittleEndian.Uint64(sum[:]), low: binary.LittleEndian.Uint64(sum[8:])}
	mask := uint64(len(o.slots) - 1)
	for i := want.high & mask; ; i = (i + 1) & mask {
		if s := &o.slots[i]; s.next == 0 || s.high == want.high && s.low == want.low {
			return s, want
		}
	}
}

func (o *offsets) set(key []byte, offset int64) {
	s, want := o.find(key)
	if s.next == 0 {
		o.used++
	}
	want.next = offset + 1
	*s = want
}

func (o *offsets) get(key []byte) (offset int64, ok bool) {
	s, _ := o.find(key)
	return s.next - 1, s.next > 0
}
