package vfs

import (
	"errors"
	"math"
	"os"
	"syscall"
)

// lockFile takes a BSD lock: it excludes our own processes, not Kafka's, whose Java lock is another kind.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// isLocked tries a shared lock, which a moment's start of a member may meet, and which it then waits for.
func isLocked(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func exchange(a, b string) error {
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: errors.ErrUnsupported}
}

func allocate(f *os.File, _ int64) error {
	return &os.PathError{Op: "allocate", Path: f.Name(), Err: errors.ErrUnsupported}
}

func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(min(st.Bavail*uint64(st.Bsize), math.MaxInt64)), nil
}
