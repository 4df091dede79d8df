package vfs

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"syscall"
)

// Op is a kind of call.
type Op string

// The calls that a hook sees.
const (
	OpOpen      Op = "open"
	OpCreate    Op = "create"
	OpRename    Op = "rename"
	OpExchange  Op = "exchange"
	OpRemove    Op = "remove"
	OpList      Op = "list"
	OpStat      Op = "stat"
	OpMkdir     Op = "mkdir"
	OpSyncDir   Op = "syncdir"
	OpLock      Op = "lock"
	OpFreeSpace Op = "statfs"
	OpRead      Op = "read"
	OpWrite     Op = "write"
	OpTruncate  Op = "truncate"
	OpAllocate  Op = "allocate"
	OpSync      Op = "sync"
	OpProtect   Op = "chmod"
)

// Writes reports whether the call changes the disk, or what of it survives a crash.
func (o Op) Writes() bool {
	return slices.Contains([]Op{OpCreate, OpRename, OpExchange, OpRemove, OpMkdir, OpSyncDir, OpWrite, OpTruncate, OpAllocate, OpSync, OpProtect}, o)
}

// Call is one call about to be made.
type Call struct {
	Op     Op
	Path   string // of a rename: the new name; of an exchange: the second
	Offset int64  // of a read or write; of a truncation or an allocation: the new size
	Size   int    // of a read or write
}

// ShortWrite as a hook's error lets the first N bytes of a write through and then fails with Err.
type ShortWrite struct { //nolint:errname // an instruction to the wrapper before it is an error
	N   int
	Err error
}

func (e *ShortWrite) Error() string { return e.Err.Error() }
func (e *ShortWrite) Unwrap() error { return e.Err }

// Hook is asked before every call; an error is returned instead of making it. It may block (a slow disk) and may be
// called from several goroutines.
type Hook func(Call) error

// WithFaults returns fsys with a hook before every call.
func WithFaults(fsys FS, hook Hook) FS { return &faulty{fsys, hook} }

// FailAt fails the nth call (from 1) of those that match; all match if none is given.
func FailAt(n int64, err error, match func(Call) bool) Hook {
	var seen atomic.Int64
	return func(c Call) error {
		if (match == nil || match(c)) && seen.Add(1) == n {
			return err
		}
		return nil
	}
}

// ReadOnly is the hook of a volume that was remounted read-only.
func ReadOnly(c Call) error {
	if c.Op.Writes() || c.Op == OpLock {
		return syscall.EROFS
	}
	return nil
}

type faulty struct {
	fsys FS
	hook Hook
}

func (f *faulty) ask(c Call) error { return pathError(string(c.Op), c.Path, f.hook(c)) }

func (f *faulty) wrap(op Op, name string, open func(string) (File, error)) (File, error) {
	if err := f.ask(Call{Op: op, Path: name}); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, f: f, name: name}, nil
}

func (f *faulty) Open(name string) (File, error) { return f.wrap(OpOpen, name, f.fsys.Open) }
func (f *faulty) OpenReadWrite(name string) (File, error) {
	return f.wrap(OpOpen, name, f.fsys.OpenReadWrite)
}
func (f *faulty) Create(name string) (File, error) { return f.wrap(OpCreate, name, f.fsys.Create) }

func (f *faulty) Rename(from, to string) error {
	if err := f.ask(Call{Op: OpRename, Path: to}); err != nil {
		return err
	}
	return f.fsys.Rename(from, to)
}

func (f *faulty) Exchange(a, b string) error {
	if err := f.ask(Call{Op: OpExchange, Path: b}); err != nil {
		return err
	}
	return f.fsys.Exchange(a, b)
}

func (f *faulty) Remove(name string) error {
	if err := f.ask(Call{Op: OpRemove, Path: name}); err != nil {
		return err
	}
	return f.fsys.Remove(name)
}

func (f *faulty) List(dir string) ([]string, error) {
	if err := f.ask(Call{Op: OpList, Path: dir}); err != nil {
		return nil, err
	}
	return f.fsys.List(dir)
}

func (f *faulty) Stat(name string) (Info, error) {
	if err := f.ask(Call{Op: OpStat, Path: name}); err != nil {
		return Info{}, err
	}
	return f.fsys.Stat(name)
}

func (f *faulty) MkdirAll(dir string) error {
	if err := f.ask(Call{Op: OpMkdir, Path: dir}); err != nil {
		return err
	}
	return f.fsys.MkdirAll(dir)
}

func (f *faulty) SyncDir(dir string) error {
	if err := f.ask(Call{Op: OpSyncDir, Path: dir}); err != nil {
		return err
	}
	return f.fsys.SyncDir(dir)
}

func (f *faulty) Lock(name string) (io.Closer, error) {
	if err := f.ask(Call{Op: OpLock, Path: name}); err != nil {
		return nil, err
	}
	return f.fsys.Lock(name)
}

func (f *faulty) Locked(name string) (bool, error) { return f.fsys.Locked(name) }

func (f *faulty) FreeSpace(dir string) (int64, error) {
	if err := f.ask(Call{Op: OpFreeSpace, Path: dir}); err != nil {
		return 0, err
	}
	return f.fsys.FreeSpace(dir)
}

type faultyFile struct {
	File
	f    *faulty
	name string
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.f.ask(Call{Op: OpRead, Path: f.name, Offset: off, Size: len(p)}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.f.ask(Call{Op: OpWrite, Path: f.name, Offset: off, Size: len(p)})
	if short, ok := errors.AsType[*ShortWrite](err); ok {
		n, werr := f.File.WriteAt(p[:min(short.N, len(p))], off)
		return n, errors.Join(werr, err)
	}
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.f.ask(Call{Op: OpTruncate, Path: f.name, Offset: size}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Allocate(size int64) error {
	if err := f.f.ask(Call{Op: OpAllocate, Path: f.name, Offset: size}); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

func (f *faultyFile) Sync() error {
	if err := f.f.ask(Call{Op: OpSync, Path: f.name}); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Protect() error {
	if err := f.f.ask(Call{Op: OpProtect, Path: f.name}); err != nil {
		return err
	}
	return f.File.Protect()
}
