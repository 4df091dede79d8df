package storage

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// What the core has decided to append must get onto the disk, or the process ends. It decides by the free space that it
// was told of, and that can be wrong: a quota that statfs does not show, a neighbour that was faster. So the directory
// keeps a file that is there for its room alone, the ballast. When a write finds none, the ballast is removed and the
// write made once more; until the ballast has found room again, nothing new is taken on (see Free).
//
// What the ballast holds means nothing. A neighbour may be faster here, too: then the process ends as if there were none.

// DefaultBallast holds the largest group of batches, and what the file system needs to note where it lies.
const DefaultBallast = MaxGroup + fullBytes

// HasBallast reports whether the ballast is there, or none is wanted.
func (d *Dir) HasBallast() bool { return d.ballast }

// findBallast sees to the ballast at the start. One that is there stays as it is, also if it is longer than it need be.
func (d *Dir) findBallast(names []string) error {
	there := slices.Contains(names, ballastFile)
	if d.o.Ballast <= 0 {
		if d.ballast = true; there {
			return d.removeBallast()
		}
		return nil
	}
	if there {
		info, err := d.fs.Stat(d.file(ballastFile))
		if err != nil {
			return err
		}
		if d.ballast = info.Size >= d.o.Ballast; d.ballast {
			return nil
		}
	}
	return d.provideBallast()
}

// ProvideBallast looks for room for the ballast if it is not there. HasBallast tells whether there was enough.
func (d *Dir) ProvideBallast() error {
	if d.ballast {
		return nil
	}
	if err := d.Log.failure(); err != nil {
		return err
	}
	return d.Log.fail(d.provideBallast())
}

func (d *Dir) provideBallast() error {
	free, unknown := d.fs.FreeSpace(d.path)
	if d.refused = false; unknown == nil && free < d.o.Ballast {
		return nil
	}
	err := d.allocateBallast()
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) { // also of the fsync: nothing was in it
		d.refused = unknown != nil || free >= 2*d.o.Ballast
		if err := d.fs.Remove(d.file(ballastFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	d.ballast = err == nil
	return err
}

func (d *Dir) allocateBallast() (err error) {
	name := d.file(ballastFile)
	f, err := d.fs.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if closing := f.Close(); closing != nil && err == nil {
			err = &vfs.SyncError{Path: name, Err: closing}
		}
	}()
	if err := f.Allocate(d.o.Ballast); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return &vfs.SyncError{Path: name, Err: err}
	}
	return d.syncLogDir()
}

// ReleaseBallast gives the room of the ballast to whatever is written next. It is false if there is none.
func (d *Dir) ReleaseBallast() (bool, error) {
	if err := d.Log.failure(); err != nil || !d.ballast || d.o.Ballast <= 0 {
		return false, err
	}
	d.ballast = false
	if err := d.removeBallast(); err != nil {
		return false, d.Log.fail(err)
	}
	return true, nil
}

// removeBallast also syncs the removal: some file systems do not give the room to anybody else before.
func (d *Dir) removeBallast() error {
	if err := d.fs.Remove(d.file(ballastFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.syncLogDir()
}
