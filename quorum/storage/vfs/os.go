package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Allocate writes zeros where the file system cannot be asked for room alone.
func (f osFile) Allocate(size int64) error {
	err := allocate(f.File, size)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	at, err := f.Size()
	zeros := make([]byte, min(max(0, size-at), 1<<20))
	for ; at < size && err == nil; at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
	}
	return err
}

func (f osFile) Protect() error { return f.Chmod(0o400) }

func (osFS) open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (o osFS) Open(name string) (File, error)          { return o.open(name, os.O_RDONLY) }
func (o osFS) OpenReadWrite(name string) (File, error) { return o.open(name, os.O_RDWR) }
func (o osFS) Create(name string) (File, error) {
	return o.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Exchange(a, b string) error   { return exchange(a, b) }
func (osFS) Remove(name string) error     { return os.Remove(name) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: st.Size(), Dir: st.IsDir()}, nil
}

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o750) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (osFS) Locked(name string) (bool, error) {
	f, err := os.Open(filepath.Clean(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return isLocked(f)
}

func (osFS) FreeSpace(dir string) (int64, error) { return freeSpace(dir) }
