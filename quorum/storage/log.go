package storage

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Log is the log of an open directory: segments of record batches, and the first offset of each epoch.
// See the package's comment for who may call what.
type Log struct {
	fs  vfs.FS
	dir string // <dir>/<topic>-0
	o   Options

	buf     []byte          // the owner's: gathers the batches of one write
	headers []record.Header // … and what they say

	// cleanMu makes those who remove segments from the log's beginning exclude one another. Taken before flushMu.
	cleanMu sync.Mutex

	// flushMu makes fsyncs exclude one another and what must not run beside one: closing and cutting files.
	// Taken before mu.
	flushMu sync.Mutex

	// mu guards what follows, and the fields of segments that say so. It is held for moments, never over I/O.
	mu         sync.RWMutex
	segments   []*segment // at least one, ascending, each beginning where the one before ends
	doomed     []*segment // before the log's start: their files are yet to be removed, the oldest first
	epochs     []raft.OffsetAndEpoch
	flushed    int64 // all before this offset is on disk
	unsynced   int64 // bytes appended after it
	dirty      int64 // base of the first segment that may hold unsynced bytes
	newFile    bool  // a segment was made whose directory entry is not synced
	generation int   // counts truncations
	failed     error // the first fatal fault: nothing works after it
	// epochsStale: leader-epoch-checkpoint does not say what epochs says
	epochsStale bool

	committed committed
}

// Start is the first offset that the log still has.
func (l *Log) Start() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segments[0].base
}

// End is the offset after the last record.
func (l *Log) End() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.active().next
}

// FlushedEnd is the offset up to which (exclusive) everything is on disk.
func (l *Log) FlushedEnd() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.flushed
}

// LastEpoch is the epoch of the last record, or the one assigned after it; 0 if there is none.
func (l *Log) LastEpoch() raft.Epoch {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lastEpoch()
}

// Size is the length of all segments together, in bytes.
func (l *Log) Size() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for _, s := range l.segments {
		n += s.size
	}
	return n
}

// Segments is how many files the log has.
func (l *Log) Segments() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.segments)
}

// keepBuffer is how large a write's buffer may be to be kept for the next.
const keepBuffer = 1 << 20

// sizeFrom is the length of the segments that reach beyond offset, and of the last.
func (l *Log) sizeFrom(offset int64) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for _, s := range l.segments {
		if s.next > offset || s == l.active() {
			n += s.size
		}
	}
	return n
}

// sizeWithin is the length of the segments that lie between two offsets.
func (l *Log) sizeWithin(from, to int64) (n int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.segments[:len(l.segments)-1] {
		if s.base >= from && s.next <= to {
			n += s.size
		}
	}
	return n
}

func (l *Log) active() *segment { return l.segments[len(l.segments)-1] }

func (l *Log) lastEpoch() raft.Epoch {
	if n := len(l.epochs); n > 0 {
		return l.epochs[n-1].Epoch
	}
	return 0
}

// fail remembers the first fatal fault, so that nothing is tried after it. Other errors pass through.
func (l *Log) fail(err error) error {
	err = ioFault(err)
	if _, ok := errors.AsType[*Fault](err); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.failed == nil {
			l.failed = err
		}
	}
	return err
}

func (l *Log) failure() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.failed
}

// Append writes whole batches, already stamped with their base offsets and epochs, at the end of the log. It does not
// sync them, except where more than MaxGroup bytes would be unsynced otherwise. New epochs are assigned (see AssignEpoch).
// now is the append clock, which rolls segments by age.
//
// On ErrDiskFull the last group is undone and End tells how far it came; nothing is lost and the log stays usable. Batches
// that do not continue the log are a bug of the caller: it panics.
func (l *Log) Append(now raft.Instant, batches ...[]byte) error {
	if err := l.failure(); err != nil {
		return err
	}
	for len(batches) > 0 {
		n, size := 1, len(batches[0])
		for n < len(batches) && size+len(batches[n]) <= MaxGroup {
			size += len(batches[n])
			n++
		}
		if err := l.appendGroup(now, size, batches[:n]); err != nil {
			return err
		}
		batches = batches[n:]
	}
	return nil
}

func (l *Log) appendGroup(now raft.Instant, size int, batches [][]byte) error {
	l.mu.RLock()
	full := l.unsynced > 0 && l.unsynced+int64(size) > MaxGroup
	end, epoch := l.active().next, l.lastEpoch()
	l.mu.RUnlock()
	// Grown to MaxGroup once by a burst, it would stay so for ever.
	if cap(l.buf) > keepBuffer && size < keepBuffer {
		l.buf = nil
	}
	if full {
		if _, err := l.Flush(); err != nil {
			return err
		}
	}
	data := batches[0]
	if len(batches) > 1 {
		l.buf = l.buf[:0]
		for _, b := range batches {
			l.buf = append(l.buf, b...)
		}
		data = l.buf
	}
	headers, err := l.continues(data, end, epoch)
	if err != nil {
		panic(fmt.Sprintf("append at offset %d epoch %d: %v", end, epoch, err))
	}
	if err := l.rollIfDue(now, int64(size)); err != nil {
		return err
	}
	s := l.active()
	if !s.aged {
		s.since, s.aged = now, true
	}
	if _, err := s.file.WriteAt(data, s.size); err != nil {
		return l.cutBack(s, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range headers {
		if h.Epoch > epoch { // not before it is written: a group that found no room may be tried again
			epoch = h.Epoch
			l.assignEpoch(raft.OffsetAndEpoch{Offset: h.BaseOffset, Epoch: epoch})
		}
		s.grow(h)
	}
	l.unsynced += int64(len(data))
	return nil
}

// continues checks that data is whole batches that continue the log and returns their headers.
func (l *Log) continues(data []byte, end int64, epoch raft.Epoch) ([]record.Header, error) {
	headers, size := l.headers[:0], 0
	for h, err := range record.Headers(data) {
		switch {
		case err != nil:
			return nil, err
		case h.BaseOffset != end:
			return nil, fmt.Errorf("batch has base offset %d", h.BaseOffset)
		case h.Epoch < epoch:
			return nil, fmt.Errorf("batch has epoch %d", h.Epoch)
		}
		end, epoch = h.NextOffset(), h.Epoch
		headers = append(headers, h)
		size += h.Size
	}
	l.headers = headers
	if size != len(data) || size == 0 {
		return nil, fmt.Errorf("%d of %d bytes are whole batches", size, len(data))
	}
	return headers, nil
}

// cutBack undoes a write that failed, however far it came. If that fails too, the log's end is unknown: fatal.
func (l *Log) cutBack(s *segment, cause error) error {
	if err := s.file.Truncate(s.size); err != nil {
		return l.fail(fault(DiskIOError, "write %s at %d: %v; cutting it back: %v", s.name, s.size, cause, err))
	}
	return l.fail(cause)
}

// rollIfDue begins a new segment if the active one is too large to take size bytes more, or too old.
func (l *Log) rollIfDue(now raft.Instant, size int64) error {
	s := l.active()
	tooOld := s.aged && time.Duration(now-s.since) >= l.o.SegmentAge
	if s.size == 0 || s.size+size <= l.o.SegmentBytes && !tooOld {
		return nil
	}
	// Not worth a failure: the next one is at most a second away. A fault is remembered by itself.
	if err := l.writeCommitted(); err != nil && !errors.Is(err, ErrDiskFull) {
		return err
	}
	fresh, err := l.create(s.next)
	if err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, fresh)
	l.newFile = true // its entry is synced by the next Flush, as its bytes are
	return nil
}

// create makes an empty segment. Its directory entry is not synced.
func (l *Log) create(base int64) (*segment, error) {
	name := path.Join(l.dir, segmentName(base))
	f, err := l.fs.Create(name)
	if err != nil {
		return nil, err
	}
	return &segment{base: base, next: base, name: name, file: share(f), maxTimestamp: -1}, nil
}

// Flush makes everything durable that was appended before it began, and returns the offset up to which that is. It may
// run beside reads and appends; two at a time wait for one another. After an error nothing is known and nothing is tried
// again.
func (l *Log) Flush() (end int64, err error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	return l.flush()
}

func (l *Log) flush() (end int64, err error) {
	l.mu.Lock()
	if l.failed != nil {
		defer l.mu.Unlock()
		return 0, l.failed
	}
	end = l.active().next
	if l.unsynced == 0 && !l.newFile {
		l.flushed = end
		defer l.mu.Unlock()
		return end, nil
	}
	var dirty []*segment
	for _, s := range l.segments {
		if s.base >= l.dirty {
			defer s.file.hold().release() // cleaning may take it out meanwhile
			dirty = append(dirty, s)
		}
	}
	bytes, newFile, generation, last := l.unsynced, l.newFile, l.generation, l.active().base
	l.newFile = false
	l.mu.Unlock()

	for _, s := range dirty {
		if err := s.file.Sync(); err != nil {
			return 0, l.fail(&vfs.SyncError{Path: s.name, Err: err})
		}
	}
	if newFile {
		if err := l.fs.SyncDir(l.dir); err != nil {
			return 0, l.fail(&vfs.SyncError{Path: l.dir, Err: err})
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if generation != l.generation {
		panic("log truncated during a flush") // flushMu keeps them apart
	}
	l.flushed, l.dirty = end, last
	l.unsynced -= bytes
	return end, nil
}

// Truncate cuts the log so that it ends at offset, which must be a batch's base offset, and syncs the cut. The epochs
// that begin at or after it are forgotten. It waits for a running Flush. Truncating to the end or beyond only drops
// epochs that no record followed.
func (l *Log) Truncate(offset int64) error {
	if err := l.failure(); err != nil {
		return err
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()

	l.mu.Lock()
	n := len(l.epochs)
	for n > 0 && l.epochs[n-1].Offset >= offset {
		n--
	}
	if n < len(l.epochs) {
		l.epochs, l.epochsStale = slices.Clip(l.epochs[:n]), true
	}
	end, committed := l.active().next, max(l.committed.mark, l.segments[0].base)
	l.mu.Unlock()
	if offset >= end {
		return nil
	}
	if offset < committed {
		// The core checks the high watermark of this process; the mark also knows that of the ones before.
		return l.fail(fault(TruncationBelowHW, "asked to cut the log to offset %d, but %d is committed; %s holds what a majority has lost", offset, committed, l.dir))
	}
	keep := len(l.segments) - 1
	for l.segments[keep].base > offset {
		keep--
	}
	s := l.segments[keep]
	v := s.view()
	position, err := boundary(v, offset)
	v.file.release()
	if err != nil {
		return l.fail(err)
	}
	// Readers first: they must not be sent to what is about to go.
	l.mu.Lock()
	gone, kept := l.segments[keep+1:], l.segments[:keep]
	l.segments = slices.Clip(l.segments[:keep+1])
	s.shrink(position, offset)
	l.flushed = min(l.flushed, offset)
	l.generation++
	l.mu.Unlock()
	if err := l.cut(s, gone); err != nil {
		return l.fail(err)
	}
	for _, s := range kept { // what stays may not be synced yet either
		if s.base < l.dirty {
			continue
		}
		if err := s.file.Sync(); err != nil {
			return l.fail(&vfs.SyncError{Path: s.name, Err: err})
		}
	}
	if l.newFile {
		if err := l.fs.SyncDir(l.dir); err != nil {
			return l.fail(&vfs.SyncError{Path: l.dir, Err: err})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushed, l.unsynced, l.dirty, l.newFile = offset, 0, s.base, false
	return nil
}

// cut removes segments, last first, and shortens the one that stays. Each step is synced before the next: after a crash
// the log is a prefix of what it was, never one with a hole, and no stale bytes lie behind new ones.
func (l *Log) cut(s *segment, gone []*segment) error {
	if err := l.remove(gone); err != nil {
		return err
	}
	if err := s.file.Truncate(s.size); err != nil {
		return fault(DiskIOError, "cut %s to %d: %v", s.name, s.size, err)
	}
	if err := s.file.Sync(); err != nil {
		return &vfs.SyncError{Path: s.name, Err: err}
	}
	return nil
}

// remove removes segments, last first, each removal durable before the next.
func (l *Log) remove(gone []*segment) error {
	for _, g := range slices.Backward(gone) {
		g.file.release()
		if err := l.fs.Remove(g.name); err != nil {
			return fault(DiskIOError, "remove segment: %v", err)
		}
		if err := l.fs.SyncDir(l.dir); err != nil {
			return &vfs.SyncError{Path: l.dir, Err: err}
		}
	}
	return nil
}

// boundary finds the position of the batch that begins at offset.
func boundary(v view, offset int64) (int64, error) {
	if offset == v.next {
		return v.size, nil
	}
	sc := scanner{file: v.file, size: v.size, position: v.position(offset)}
	for {
		at := sc.position
		b, err := sc.next()
		switch {
		case err != nil:
			return 0, fault(LogCorrupt, "%s at position %d: %v", v.name, at, err)
		case b.BaseOffset == offset:
			return at, nil
		case b.BaseOffset > offset || b.NextOffset() > offset:
			return 0, fault(InconsistentState, "asked to cut %s to offset %d, which is inside the batch %d-%d", v.name, offset, b.BaseOffset, b.LastOffset())
		}
	}
}

// close closes the files. A clean close makes everything durable first.
func (l *Log) close(clean bool) error {
	var err error
	if clean {
		if _, err = l.Flush(); err == nil {
			if err = l.writeCommitted(); errors.Is(err, ErrDiskFull) {
				err = nil // the next start knows of less, and reads more: no reason to end in any other way
			}
		}
	}
	l.committed.writing.Lock()
	defer l.committed.writing.Unlock()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	for _, s := range l.segments {
		s.file.release()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.doomed {
		s.file.release()
	}
	l.doomed = nil
	if l.failed == nil {
		l.failed = errClosed
	}
	return err
}

var errClosed = errors.New("the log is closed")
