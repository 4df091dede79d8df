package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// recoverer reads a log from its first byte to its last and decides what its end is.
type recoverer struct {
	log      *Log
	recovery *Recovery
	snapshot *checkpoint      // the newest that is whole, or nil
	bad      []Damaged        // checkpoints that are not
	controls []raft.ControlAt // from the checkpoint; those of the log are added

	safe   raft.OffsetAndEpoch // content of the file committed
	epochs []raft.OffsetAndEpoch
	next   int64 // end of what was read
}

// damage is the first place where the log does not go on.
type damage struct {
	segment  int
	position int64
	reason   error
}

func (r *recoverer) run(names []string) error {
	l := r.log
	// Whatever fails, the caller closes what is open: the segments must be reachable.
	if err := r.readCommitted(); err != nil {
		return err
	}
	for _, name := range names { // sorted, and so are the bases
		base, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		s := &segment{base: base, next: base, name: path.Join(l.dir, name), maxTimestamp: -1}
		f, err := l.fs.OpenReadWrite(s.name)
		if err != nil {
			return err
		}
		s.file = share(f)
		l.segments = append(l.segments, s)
	}
	bad, err := r.scan()
	if err != nil {
		return err
	}
	if err := r.judge(bad); err != nil {
		return err
	}
	if bad != nil {
		if err := r.cut(*bad); err != nil {
			return err
		}
	}
	if err := r.begin(); err != nil {
		return err
	}
	if err := r.settle(); err != nil {
		return err
	}
	return r.writeEpochs()
}

func (r *recoverer) readCommitted() error {
	name := path.Join(r.log.dir, committedFile)
	b, err := vfs.ReadFile(r.log.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.safe, err = decodeCommitted(b); err != nil {
		return fault(StateFileCorrupt, "%s: %v", name, err)
	}
	return nil
}

// scan reads the segments, filling in their indexes, the epochs and the control records, up to the first damage.
func (r *recoverer) scan() (*damage, error) {
	l := r.log
	for i, s := range l.segments {
		size, err := s.file.Size()
		if err != nil {
			return nil, err
		}
		if i == 0 {
			r.next = s.base
		}
		if s.base != r.next {
			return &damage{segment: i, reason: fmt.Errorf("the segment begins at offset %d, the one before ends at %d", s.base, r.next)}, nil
		}
		sc := scanner{file: s.file, size: size}
		for {
			at := sc.position
			b, err := sc.next()
			switch {
			case errors.Is(err, io.EOF):
			case errors.Is(err, record.ErrShort), errors.Is(err, record.ErrCorrupt):
				return &damage{segment: i, position: at, reason: err}, nil
			case err != nil:
				return nil, fmt.Errorf("read %s at position %d: %w", s.name, at, err)
			case b.BaseOffset != r.next:
				return &damage{segment: i, position: at, reason: fmt.Errorf("batch has base offset %d, want %d", b.BaseOffset, r.next)}, nil
			case b.Epoch < 0:
				return &damage{segment: i, position: at, reason: fmt.Errorf("batch has epoch %d", b.Epoch)}, nil
			case len(r.epochs) > 0 && b.Epoch < r.epochs[len(r.epochs)-1].Epoch:
				return &damage{segment: i, position: at, reason: fmt.Errorf("batch has epoch %d after epoch %d", b.Epoch, r.epochs[len(r.epochs)-1].Epoch)}, nil
			}
			if err != nil {
				break
			}
			if err := r.take(s, at, b); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// take adds a good batch.
func (r *recoverer) take(s *segment, at int64, b record.Batch) error {
	summary, err := record.Summary(b)
	switch {
	case errors.Is(err, record.ErrUnknown):
		return fault(UnknownRecord, "%s at position %d: %v", s.name, at, err)
	case err != nil:
		return fault(LogCorrupt, "%s at position %d, offset %d: %v", s.name, at, b.BaseOffset, err)
	}
	for i, c := range summary.Control {
		if _, ok := c.(raft.LeaderChange); ok {
			continue
		}
		if r.snapshot != nil && b.BaseOffset < r.snapshot.ID.Offset {
			continue // the snapshot's word counts up to its offset
		}
		r.controls = append(r.controls, raft.ControlAt{Offset: b.BaseOffset + int64(i), Record: c})
	}
	s.grow(b.Header)
	r.epochs = assign(r.epochs, raft.OffsetAndEpoch{Offset: b.BaseOffset, Epoch: b.Epoch})
	r.next = b.NextOffset()
	r.recovery.Batches++
	r.recovery.Bytes += int64(b.Size)
	return nil
}

// judge tells a torn tail, which only a write that was never synced can leave, from rot and loss, which are faults.
func (r *recoverer) judge(bad *damage) error {
	l := r.log
	end := r.next
	if r.snapshotAhead() {
		end = r.snapshot.ID.Offset
	}
	if bad == nil {
		if end < r.safe.Offset {
			return fault(LogCorrupt, "%s ends at offset %d, but all before offset %d was committed and synced", l.dir, end, r.safe.Offset)
		}
		return r.judgeStart()
	}
	s := l.segments[bad.segment]
	var behind int64
	for i, s := range l.segments[bad.segment:] {
		size, err := s.file.Size()
		if err != nil {
			return err
		}
		if behind += size; i == 0 {
			behind -= bad.position
		}
	}
	switch {
	case r.next < r.safe.Offset:
		return fault(LogCorrupt, "%s at position %d, offset %d: %v; all before offset %d was committed and synced, nothing was cut", s.name, bad.position, r.next, bad.reason, r.safe.Offset)
	case behind > MaxGroup:
		return fault(LogCorrupt, "%s at position %d, offset %d: %v; %d bytes follow, more than one write leaves unsynced (%d), nothing was cut", s.name, bad.position, r.next, bad.reason, behind, MaxGroup)
	}
	return r.judgeStart()
}

func (r *recoverer) judgeStart() error {
	l := r.log
	// No epoch: when that was noted, the record before had been cleaned away. But the removal of its segment may be undone.
	if r.safe.Epoch > 0 && len(l.segments) > 0 && r.safe.Offset > l.segments[0].base && r.safe.Offset <= r.next {
		if e := epochBefore(r.epochs, r.safe.Offset); e != r.safe.Epoch {
			return fault(LogCorrupt, "%s holds epoch %d before offset %d, where epoch %d was committed", l.dir, e, r.safe.Offset, r.safe.Epoch)
		}
	}
	if len(l.segments) == 0 || l.segments[0].base == 0 {
		return nil
	}
	why := []string{fmt.Sprintf("%s starts at offset %d and needs a checkpoint from there on", l.dir, l.segments[0].base)}
	switch {
	case r.snapshot == nil:
		why[0] += ", but there is none"
	case r.snapshot.ID.Offset < l.segments[0].base:
		why[0] += fmt.Sprintf(", but the newest ends at %d", r.snapshot.ID.Offset)
	default:
		return nil
	}
	for _, d := range r.bad {
		why = append(why, fmt.Sprintf("%s is damaged: %s", d.File, d.Reason))
	}
	return fault(SnapshotMissing, "%s", strings.Join(why, "; "))
}

// cut removes the torn tail.
func (r *recoverer) cut(bad damage) error {
	l := r.log
	keep := bad.segment
	if l.segments[keep].base != r.next && bad.position == 0 {
		keep-- // a segment beyond the log's end; there is one before it, which ends there
	}
	s := l.segments[keep]
	torn := &r.recovery.Torn
	torn.File, torn.Position, torn.Offset, torn.Reason = s.name, s.size, r.next, bad.reason.Error()
	for _, s := range l.segments[keep:] {
		size, err := s.file.Size()
		if err != nil {
			return err
		}
		torn.Bytes += size - s.size
	}
	gone := l.segments[keep+1:]
	l.segments = l.segments[:keep+1]
	return l.cut(s, gone)
}

// snapshotAhead reports a crash between the arrival of a snapshot and the removal of the log it replaces (KIP-630): the log
// ends before the snapshot does, or has another record there. The order of votes would not do: a tail that was never
// committed may be of a later epoch than the snapshot, and what is left of it would lie before a snapshot that covers it.
func (r *recoverer) snapshotAhead() bool {
	switch s := r.log.segments; {
	case r.snapshot == nil:
		return false
	case len(s) == 0 || r.snapshot.ID.Offset > r.next:
		return true
	case r.snapshot.ID.Offset <= s[0].base:
		return false // it was replaced, or the snapshot is missing that it builds on
	}
	return epochBefore(r.epochs, r.snapshot.ID.Offset) != r.snapshot.ID.Epoch
}

// begin makes the first segment of an empty log: at 0, or where a snapshot ends that is ahead of the log.
func (r *recoverer) begin() error {
	l := r.log
	if r.snapshotAhead() {
		gone := l.segments
		l.segments = nil
		if err := l.remove(gone); err != nil {
			return err
		}
		r.next, r.epochs, r.controls = r.snapshot.ID.Offset, nil, r.snapshot.placed()
	}
	if len(l.segments) > 0 {
		return nil
	}
	s, err := l.create(r.next)
	if err != nil {
		return err
	}
	l.segments = []*segment{s}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return &vfs.SyncError{Path: l.dir, Err: err}
	}
	return nil
}

// settle makes durable what was read. A process that was killed may have left bytes that only the page cache holds; one
// that exited over a failed fsync has left pages that the kernel believes to be clean, so that an fsync alone would prove
// nothing. So the last group is written once more, as it is, and synced. After a clean stop there is nothing to do.
func (r *recoverer) settle() error {
	l := r.log
	l.flushed, l.epochs = r.next, r.epochs
	l.committed.mark, l.committed.wrote = r.safe.Offset, r.safe.Offset
	l.dirty = l.active().base
	r.recovery.Segments = len(l.segments)
	if r.safe.Offset == r.next {
		return nil
	}
	left := int64(MaxGroup)
	buf := make([]byte, max(1, min(scanBuffer, l.Size())))
	for _, s := range slices.Backward(l.segments) {
		if left == 0 {
			break
		}
		from := max(0, s.size-left)
		left -= s.size - from
		for at := from; at < s.size; at += int64(len(buf)) {
			part := buf[:min(int64(len(buf)), s.size-at)]
			if _, err := s.file.ReadAt(part, at); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read %s at position %d: %w", s.name, at, err)
			}
			if _, err := s.file.WriteAt(part, at); err != nil {
				return fmt.Errorf("write %s at position %d: %w", s.name, at, err)
			}
		}
		if err := s.file.Sync(); err != nil {
			return &vfs.SyncError{Path: s.name, Err: err}
		}
	}
	return nil
}

// writeEpochs replaces leader-epoch-checkpoint if it does not say what the log says: after a truncation it may hold more,
// after a crash less, and Kafka leaves it empty at first.
func (r *recoverer) writeEpochs() error {
	b, err := vfs.ReadFile(r.log.fs, path.Join(r.log.dir, epochFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := decodeEpochs(b)
	if err == nil && slices.Equal(entries, r.epochs) {
		return nil
	}
	r.recovery.EpochsRebuilt = true
	r.log.epochsStale = true
	if err := r.log.writeEpochs(); err != nil && !errors.Is(ioFault(err), ErrDiskFull) { // it follows with WriteCommitted
		return err
	}
	return nil
}

// state is the result in the core's words, without the checkpoints.
func (r *recoverer) state() raft.LogState {
	return raft.LogState{Start: r.log.segments[0].base, End: r.next, Epochs: slices.Clone(r.epochs), Control: r.controls}
}

func latestVersion(controls []raft.ControlAt) int16 {
	for _, c := range slices.Backward(controls) {
		if v, ok := c.Record.(raft.KRaftVersion); ok {
			return v.Version
		}
	}
	return 0
}

func latestVoters(controls []raft.ControlAt) raft.VoterSet {
	for _, c := range slices.Backward(controls) {
		if v, ok := c.Record.(raft.Voters); ok {
			return v.Set
		}
	}
	return nil
}
