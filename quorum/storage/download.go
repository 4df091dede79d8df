package storage

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// partial is a checkpoint that is being written.
type partial struct {
	d    *Dir
	id   raft.OffsetAndEpoch
	name string   // of the partial file
	file vfs.File // nil once it is closed
	size int64
	done bool // it has its own name, or is removed
}

// newPartial makes the file. Open removes those that a crash leaves behind: see leftover.
func (d *Dir) newPartial(id raft.OffsetAndEpoch, suffix string) (*partial, error) {
	if err := d.Log.failure(); err != nil {
		return nil, err
	}
	name := d.file(checkpointName(id) + suffix)
	f, err := d.fs.Create(name)
	if err != nil {
		return nil, d.Log.fail(err)
	}
	return &partial{d: d, id: id, name: name, file: f}, nil
}

// write adds bytes at the end, or none at all. It leaves room for a vote even on a disk that is full otherwise.
func (p *partial) write(data []byte) error {
	l := p.d.Log
	if err := l.failure(); err != nil {
		return err
	}
	if spare := min(spareBytes, p.d.o.Reserve/2); spare > 0 {
		free, err := p.d.fs.FreeSpace(p.d.path)
		if err != nil {
			return l.fail(err)
		}
		if free < int64(len(data))+spare {
			return fmt.Errorf("write %s at %d: %w: %d bytes are left", p.name, p.size, ErrDiskFull, free)
		}
	}
	if _, err := p.file.WriteAt(data, p.size); err != nil {
		if undo := p.file.Truncate(p.size); undo != nil {
			return l.fail(fault(DiskIOError, "write %s at %d: %v; cutting it back: %v", p.name, p.size, err, undo))
		}
		return l.fail(fmt.Errorf("write %s at %d: %w", p.name, p.size, err))
	}
	p.size += int64(len(data))
	return nil
}

// spareBytes is what a checkpoint leaves of the reserve, at most.
const spareBytes = 1 << 20

// finish makes the file durable under its own name and lists it. The file is gone if that fails.
func (p *partial) finish(c *checkpoint) error {
	if err := p.publish(c); err != nil {
		p.discard()
		return p.d.Log.fail(err)
	}
	p.done = true
	if !p.d.checkpoints.add(c) {
		c.file.release()
		return errors.Join(ErrNothingNew, p.d.Log.fail(p.d.fs.Remove(c.name)))
	}
	return nil
}

func (p *partial) publish(c *checkpoint) error {
	if err := p.d.Log.failure(); err != nil {
		return err
	}
	if err := p.file.Protect(); err != nil {
		return err
	}
	if err := p.file.Sync(); err != nil {
		return &vfs.SyncError{Path: p.name, Err: err}
	}
	// Closed before the rename: see vfs.WriteFileAtomic.
	f := p.file
	p.file = nil
	if err := f.Close(); err != nil {
		return &vfs.SyncError{Path: p.name, Err: err}
	}
	c.name = p.d.file(checkpointName(p.id))
	if err := p.d.fs.Rename(p.name, c.name); err != nil {
		return err
	}
	if err := p.d.fs.SyncDir(p.d.Log.dir); err != nil {
		return &vfs.SyncError{Path: p.d.Log.dir, Err: err}
	}
	open, err := p.d.fs.Open(c.name)
	if err != nil {
		return err
	}
	c.file = share(open)
	return nil
}

// discard removes the file, as far as that is possible: what stays, Open removes.
func (p *partial) discard() {
	if p.done {
		return
	}
	p.done = true
	if p.file != nil {
		_ = p.file.Close()
	}
	_ = p.d.fs.Remove(p.name)
}

// Download is a checkpoint that arrives in pieces. It has one owner, who ends it by Install or Discard.
type Download struct {
	p       *partial
	checked *checkpoint // by Verify
}

// BeginDownload makes an empty partial file. One that a crash leaves behind is removed by Open.
func (d *Dir) BeginDownload(id raft.OffsetAndEpoch) (*Download, error) {
	if id.Offset <= 0 || id.Epoch < 0 {
		return nil, fmt.Errorf("download checkpoint %s: want an offset above 0", checkpointName(id))
	}
	p, err := d.newPartial(id, ".part")
	if err != nil {
		return nil, err
	}
	return &Download{p: p}, nil
}

// Size is how many bytes have come: the position to ask for next.
func (w *Download) Size() int64 { return w.p.size }

// Append adds the next bytes. On ErrDiskFull Size tells how many are there, and it may be tried again.
func (w *Download) Append(data []byte) error { return w.p.write(data) }

// Verify checks the whole file and syncs it. It returns its KRaftVersion and Voters, placed at the last offset that the
// checkpoint covers. onBatch, if not nil, hears of its data batches, empty ones too, in order; what it heard counts only if
// Verify succeeds. It may run on another goroutine, beside everything else but Close and the owner's other calls on this
// Download.
//
// Bytes that are no such checkpoint are record.ErrCorrupt, record.ErrShort or record.ErrUnknown.
func (w *Download) Verify(onBatch func(record.Batch)) ([]raft.ControlAt, error) {
	i := inspect(w.p.id)
	i.heard = onBatch
	if err := i.all(w.p.file); err != nil {
		if !damaged(err) && !errors.Is(err, record.ErrUnknown) {
			err = w.p.d.Log.fail(err)
		}
		return nil, fmt.Errorf("checkpoint %s as it came: %w", checkpointName(w.p.id), err)
	}
	if err := w.p.file.Sync(); err != nil {
		return nil, w.p.d.Log.fail(&vfs.SyncError{Path: w.p.name, Err: err})
	}
	w.checked = &i.checkpoint
	return i.placed(), nil
}

// Discard removes the partial file. After Install it does nothing.
func (w *Download) Discard() { w.p.discard() }

// Install lists a verified download among the checkpoints, durably. If it replaces the log, that is cut whole: it starts and
// ends at the checkpoint's offset, nothing is known of epochs, what is committed is at least that, and older checkpoints
// are removed. A crash in between is mended by Open, which finds a log that the checkpoint cannot have been made of. The
// owner calls it; a Flush that is under way is waited for.
func (d *Dir) Install(w *Download, replaces bool) error {
	if w.checked == nil {
		panic("a checkpoint was installed unverified")
	}
	if err := w.p.finish(w.checked); err != nil || !replaces {
		return err
	}
	id := w.p.id
	if err := d.Log.startAt(id.Offset); err != nil {
		return d.Log.fail(err)
	}
	gone := d.checkpoints.below(id.Offset)
	return (&Cleaning{d: d, checkpoints: gone}).Run()
}

// startAt replaces the log by an empty one.
func (l *Log) startAt(offset int64) error {
	if err := l.failure(); err != nil {
		return err
	}
	l.cleanMu.Lock()
	defer l.cleanMu.Unlock()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	fresh := &segment{base: offset, next: offset, name: path.Join(l.dir, segmentName(offset)), maxTimestamp: -1}
	l.mu.Lock()
	gone := slices.Concat(l.doomed, l.segments)
	l.doomed, l.segments = nil, []*segment{fresh} // readers first, and an old one may have its name
	l.epochs, l.epochsStale = nil, true
	l.flushed, l.unsynced, l.dirty, l.newFile = offset, 0, offset, false
	l.committed.mark = max(l.committed.mark, offset)
	l.generation++
	l.mu.Unlock()
	if err := l.remove(gone); err != nil {
		return err
	}
	made, err := l.create(offset)
	if err != nil { // also if the disk is full: there is no log now
		return fault(DiskIOError, "begin the log at offset %d: %v", offset, err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return &vfs.SyncError{Path: l.dir, Err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh.file = made.file
	return nil
}
