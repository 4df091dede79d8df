package storage

import (
	"path"
	"sync"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// committedEvery is how often the file committed is written at most while the log grows.
const committedEvery = time.Second

// committed is the position that Open may rely on: everything before it was committed and synced, so damage there is
// rot. The file is written at roll, at a clean stop and about once a second.
type committed struct {
	writing sync.Mutex // one writer of the file at a time; taken before Log.mu

	// guarded by Log.mu
	mark    int64 // newest high watermark, cut at the flushed end
	wrote   int64 // what the file says
	wroteAt raft.Instant
	timed   bool // wroteAt is set
}

// MarkCommitted takes note of the high watermark; what is not synced yet is not counted. It is true if the file committed
// is due: the caller then calls WriteCommitted, at a time and on a goroutine of its choice.
func (d *Dir) MarkCommitted(now raft.Instant, highWatermark int64) (due bool) {
	l := d.Log
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.committed
	c.mark = max(c.mark, min(highWatermark, l.flushed))
	if c.mark == c.wrote || c.timed && time.Duration(now-c.wroteAt) < committedEvery {
		return false
	}
	c.wroteAt, c.timed = now, true
	return true
}

// Committed is the newest offset that MarkCommitted counted, in this process or before it: all before it is committed
// and on disk.
func (l *Log) Committed() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.committed.mark
}

// WriteCommitted writes the file committed if the mark has moved, and leader-epoch-checkpoint if an epoch has come or gone.
// It may run beside everything else.
func (d *Dir) WriteCommitted() error { return d.Log.writeCommitted() }

// noteCommitted writes the file committed with at least that offset.
func (l *Log) noteCommitted(offset int64) error {
	l.mu.Lock()
	l.committed.mark = max(l.committed.mark, offset)
	l.mu.Unlock()
	return l.writeCommitted()
}

func (l *Log) writeCommitted() error {
	l.committed.writing.Lock()
	defer l.committed.writing.Unlock()
	l.mu.RLock()
	p := raft.OffsetAndEpoch{Offset: l.committed.mark, Epoch: epochBefore(l.epochs, l.committed.mark)}
	wrote, failed := l.committed.wrote, l.failed
	l.mu.RUnlock()
	if failed != nil {
		return failed
	}
	if err := l.writeEpochs(); err != nil {
		return l.fail(err)
	}
	if p.Offset <= wrote {
		return nil
	}
	if err := vfs.WriteFileAtomic(l.fs, path.Join(l.dir, committedFile), encodeCommitted(p)); err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed.wrote = p.Offset
	return nil
}
