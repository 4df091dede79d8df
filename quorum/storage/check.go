package storage

import (
	"sync/atomic"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Check reads a checkpoint from head to foot to see whether it is still what it was. Who serves one to others does not look
// at its bytes; they do, but then all they can do is to ask again.
type Check struct {
	d        *Dir
	of       checkpoint
	canceled atomic.Bool
}

// BeginCheck holds the checkpoint; who gets no error calls Run. Any goroutine may call it. ErrNoCheckpoint if there is none
// with that id, or no more.
func (d *Dir) BeginCheck(id raft.OffsetAndEpoch) (*Check, error) {
	of, _, err := d.askFor(id, 0, 0)
	if err != nil {
		return nil, err
	}
	return &Check{d: d, of: of}, nil
}

// Run does it, on any goroutine, beside everything else but Close. Damage is LOG_CORRUPT, after which the directory does
// nothing any more: Open knows what can stand in for a damaged checkpoint. ErrCanceled is no fault.
func (c *Check) Run() error {
	defer c.of.file.release()
	err := inspect(c.of.ID).all(cancelable{c.of.file, &c.canceled})
	switch {
	case c.canceled.Load():
		return ErrCanceled
	case damaged(err):
		err = fault(LogCorrupt, "%s, which others are served, is damaged: %v; the next start does without it if an older one and the log can stand in", c.of.name, err)
	}
	return c.d.Log.fail(err)
}

// Cancel makes a running Run return soon, with ErrCanceled. Any goroutine may call it.
func (c *Check) Cancel() { c.canceled.Store(true) }

type cancelable struct {
	vfs.File
	canceled *atomic.Bool
}

func (c cancelable) ReadAt(p []byte, off int64) (int, error) {
	if c.canceled.Load() {
		return 0, ErrCanceled
	}
	return c.File.ReadAt(p, off)
}
