package vfs

import (
	"errors"
	"io"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// F_OFD_GETLK and F_OFD_SETLK of fcntl(2), which package syscall does not name.
const (
	fOFDGetLock = 36
	fOFDSetLock = 37
)

// lockFile takes an open file description lock. Java's FileChannel.lock is a POSIX record lock, which conflicts with it:
// a Kafka process and ours exclude each other. Unlike a POSIX lock it also excludes a second holder in this process.
func lockFile(f *os.File) error {
	err := syscall.FcntlFlock(f.Fd(), fOFDSetLock, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return ErrLocked
	}
	return err
}

// isLocked asks who stands in the way of a lock, without taking it.
func isLocked(f *os.File) (bool, error) {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	err := syscall.FcntlFlock(f.Fd(), fOFDGetLock, &lock)
	return lock.Type != syscall.F_UNLCK, err
}

func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EINVAL): // what a file system says that does not know the flag
		err = errors.ErrUnsupported
	}
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
}

func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		}
		return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
	}
}

func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(min(st.Bavail*uint64(st.Bsize), math.MaxInt64)), nil
}
