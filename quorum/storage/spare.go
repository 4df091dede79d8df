package storage

import (
	"errors"
	"io/fs"
	"path"
	"syscall"

	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// A member must be able to vote on a disk on which others have left not a byte. So quorum-state is never written into new
// space: there is a second file of the same length, the spare, whose bytes are written over and synced, and then the two
// exchange their names. What was quorum-state is the spare of the next vote; no moment comes in which its room is free
// for somebody else to take. Writing over bytes that have a place needs no space on ext4 and XFS. It may on a file system
// that never writes in place (btrfs, ZFS); there a full disk is an error here, as it was.
//
// What the spare holds means nothing.

// writeState replaces quorum-state, and returns once that is durable. If the disk is full, the old one stays.
func (d *Dir) writeState(raw []byte) error {
	if err := d.writeSpare(raw); err != nil {
		return err
	}
	err := d.fs.Exchange(d.file(spareFile), d.file(stateFile))
	taken := errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) // the first one, or not on this file system
	if taken {
		err = d.fs.Rename(d.file(spareFile), d.file(stateFile))
	}
	if err != nil {
		return err
	}
	if err := d.syncLogDir(); err != nil || !taken {
		return err
	}
	return d.provideSpare()
}

// ProvideSpare makes room for the next vote that nobody else can take, if there was none for that before.
func (d *Dir) ProvideSpare() error { return d.Log.fail(d.provideSpare()) }

// provideSpare makes the spare if it is not there, or not of use; without room there is none.
func (d *Dir) provideSpare() error {
	info, err := d.fs.Stat(d.file(spareFile))
	if err == nil && info.Size > 0 && info.Size%stateGrain == 0 {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = d.writeSpare(make([]byte, stateGrain))
	if err == nil {
		return d.syncLogDir()
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) { // also of the fsync: nothing was in it
		if err = d.fs.Remove(d.file(spareFile)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// writeSpare writes over the spare, or makes it, and syncs it. Its directory entry is not synced.
func (d *Dir) writeSpare(raw []byte) (err error) {
	name := d.file(spareFile)
	f, err := d.fs.OpenReadWrite(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = d.fs.Create(name)
	}
	if err != nil {
		return err
	}
	defer func() { // before it gets another name: see vfs.WriteFileAtomic
		if closing := f.Close(); closing != nil && err == nil {
			err = &vfs.SyncError{Path: name, Err: closing}
		}
	}()
	if _, err := f.WriteAt(raw, 0); err != nil {
		return err
	}
	if size, err := f.Size(); err != nil {
		return err
	} else if size > int64(len(raw)) {
		if err := f.Truncate(int64(len(raw))); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return &vfs.SyncError{Path: name, Err: err}
	}
	return nil
}

func (d *Dir) syncLogDir() error {
	dir := path.Dir(d.file(stateFile))
	if err := d.fs.SyncDir(dir); err != nil {
		return &vfs.SyncError{Path: dir, Err: err}
	}
	return nil
}
