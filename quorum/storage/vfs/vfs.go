// Package vfs is the file system as storage sees it: little enough that a test can lose power, run out of space or fail
// an fsync at any call.
//
// OS is the real one, NewMem one in memory that can be cloned as it might look after a power cut, WithFaults injects
// errors, and Mount shows parts of one file system under other paths, as a container's volume mounts do.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
)

// File is an open file. Reads may run beside writes; one writer at a time.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync returns once content and size are on stable storage. After an error the state of the unsynced bytes is
	// unknown and a second Sync proves nothing: the kernel reports a lost page once.
	Sync() error
	// Truncate sets the size.
	Truncate(size int64) error
	// Allocate makes the file that long at least, with a place on the disk for every byte: to write over them needs no more
	// space. What is new reads as zeros. Without room for all of it some may be there.
	Allocate(size int64) error
	// Size is the size in bytes.
	Size() (int64, error)
	// Protect makes the file read-only for whoever opens it from now on. It may still be renamed and removed.
	Protect() error
}

// Info is what Stat tells.
type Info struct {
	Size int64
	Dir  bool
}

// FS is a file system. Paths are slash separated. Errors match io/fs's sentinels (fs.ErrNotExist, …) and syscall errnos.
type FS interface {
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing.
	OpenReadWrite(name string) (File, error)
	// Create makes an empty file, open for reading and writing; an existing one is cut to nothing.
	Create(name string) (File, error)
	// Rename moves a file over whatever has the new name. Durable after SyncDir of the directory.
	Rename(from, to string) error
	// Exchange swaps the names of two files of a directory, both or neither: what had the one has the other. Durable after
	// SyncDir. errors.ErrUnsupported where the file system cannot do that.
	Exchange(a, b string) error
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	Stat(name string) (Info, error)
	// MkdirAll makes a directory and its parents.
	MkdirAll(dir string) error
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive advisory lock on a file, made if need be. It fails with ErrLocked at once if another
	// holder has it; the lock ends with Close, or with the process.
	Lock(name string) (io.Closer, error)
	// Locked reports whether somebody holds that lock. It takes nothing and makes no file.
	Locked(name string) (bool, error)
	// FreeSpace is the number of bytes that may still be written below dir.
	FreeSpace(dir string) (int64, error)
}

// ErrLocked says that somebody else holds the lock.
var ErrLocked = errors.New("locked by another process")

// Exists reports whether name is there; an error is one that leaves the question open.
func Exists(fsys FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadFile returns the content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, 0, 1<<62)) // not by Size: devices and pipes have none
}

// WriteFile writes a file in place, with no promise of durability.
func WriteFile(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}

// SyncError is an error of an fsync, of a file or of a directory: what was written before it may be lost.
type SyncError struct {
	Path string
	Err  error
}

func (e *SyncError) Error() string { return "fsync " + e.Path + ": " + e.Err.Error() }
func (e *SyncError) Unwrap() error { return e.Err }

// WriteFileAtomic replaces a file so that after a crash it holds the old content or the new, and once this returns, the
// new: written to name.tmp, synced, closed, renamed, directory synced. Errors of the syncs are *SyncError.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return errors.Join(err, f.Close(), fsys.Remove(tmp)) // a full disk should not keep half a file
	}
	if err := f.Sync(); err != nil {
		return &SyncError{Path: tmp, Err: errors.Join(err, f.Close())}
	}
	// Closed before the rename: some file systems refuse to rename an open file (KAFKA-14273).
	if err := f.Close(); err != nil {
		return &SyncError{Path: tmp, Err: err}
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	if err := fsys.SyncDir(path.Dir(name)); err != nil {
		return &SyncError{Path: path.Dir(name), Err: err}
	}
	return nil
}
