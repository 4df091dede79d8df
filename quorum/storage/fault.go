package storage

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Token names a fault of the directory in one upper-case word, as the process writes it to its termination log.
type Token string

// The faults of a directory.
const (
	NotFormatted      Token = "NOT_FORMATTED"       // no meta.properties: see `quorum format`
	DirLocked         Token = "DIR_LOCKED"          // another process has the directory open
	ClusterIDMismatch Token = "CLUSTER_ID_MISMATCH" // the directory is of another cluster
	NodeIDMismatch    Token = "NODE_ID_MISMATCH"    // … of another node
	DirectoryMismatch Token = "DIRECTORY_ID_MISMATCH"
	TopicIDMismatch   Token = "TOPIC_ID_MISMATCH"
	TopicNameMismatch Token = "TOPIC_NAME_MISMATCH"
	StateFileCorrupt  Token = "STATE_FILE_CORRUPT"  // quorum-state, meta.properties, committed: damaged, or missing where it must not be
	LogCorrupt        Token = "LOG_CORRUPT"         // damage that is no torn tail
	SnapshotMissing   Token = "SNAPSHOT_MISSING"    // the log starts above 0 and no checkpoint covers what is before
	UnknownRecord     Token = "UNKNOWN_RECORD"      // a control record of a newer kind
	DiskIOError       Token = "DISK_IO_ERROR"       // fsync failed, or a write that could not be undone
	TruncationBelowHW Token = "TRUNCATION_BELOW_HW" // a leader's log lacks what was committed here
	InconsistentState Token = "INCONSISTENT_STATE"  // a cut that no correct peer asks for
	NotWritable       Token = "NOT_WRITABLE"        // permission denied, or a read-only file system
)

// Fault is an error that ends the process: nothing that it could do itself would help. Message is one sentence that
// names file, value and what was expected.
type Fault struct { //nolint:errname // the process ends with it: Kafka's word for that is fault
	Token   Token
	Message string
	Err     error // cause, or nil
}

func (f *Fault) Error() string { return string(f.Token) + ": " + f.Message }
func (f *Fault) Unwrap() error { return f.Err }

// ErrDiskFull says that a write found no space and was undone: nothing is appended, the log is as it was, and the same
// write may succeed later.
var ErrDiskFull = errors.New("no space left on the disk")

func fault(t Token, format string, args ...any) *Fault {
	f := &Fault{Token: t, Message: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			f.Err = err
		}
	}
	return f
}

// ioFault turns an error of the file system into what the caller can act on: ErrDiskFull if a write found no space,
// else a Fault. An fsync that fails is always fatal, whatever the reason.
func ioFault(err error) error {
	var f *Fault
	var sync *vfs.SyncError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return err
	case errors.As(err, &sync):
		return fault(DiskIOError, "%v", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fault(NotWritable, "%v", err)
	}
	return fault(DiskIOError, "%v", err)
}

// IsToken reports whether err is, or wraps, a Fault with that token.
func IsToken(err error, t Token) bool {
	var f *Fault
	return errors.As(err, &f) && f.Token == t
}
