package storage

import (
	"path"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// AssignEpoch notes that an epoch begins at an offset: a new leader calls it before it writes, Append for the batches of a
// new epoch. An epoch that is the latest already, and began no later, is left alone; entries that contradict the new one
// are removed.
//
// It does not wait for the disk. Nothing of ours relies on leader-epoch-checkpoint: Open takes the epochs from the log, and
// quorum-state remembers the epoch itself. The file is for Kafka and its tools, and follows with WriteCommitted, a second
// later at most. In an election two fsyncs on the new leader and two on each follower would stand between clients and
// their answers.
func (l *Log) AssignEpoch(p raft.OffsetAndEpoch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	l.assignEpoch(p)
	return nil
}

// assignEpoch is AssignEpoch for who holds mu.
func (l *Log) assignEpoch(p raft.OffsetAndEpoch) {
	if n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch == p.Epoch && l.epochs[n-1].Offset <= p.Offset {
		return
	}
	l.epochs, l.epochsStale = assign(slices.Clone(l.epochs), p), true
}

// assign adds an entry at the end, after removing from there all that are not before it.
func assign(epochs []raft.OffsetAndEpoch, p raft.OffsetAndEpoch) []raft.OffsetAndEpoch {
	if n := len(epochs); n > 0 && epochs[n-1].Epoch == p.Epoch && epochs[n-1].Offset <= p.Offset {
		return epochs
	}
	for n := len(epochs); n > 0 && (epochs[n-1].Epoch >= p.Epoch || epochs[n-1].Offset >= p.Offset); n-- {
		epochs = epochs[:n-1]
	}
	return append(epochs, p)
}

// writeEpochs writes leader-epoch-checkpoint if it is behind. The caller holds committed.writing, or is alone.
func (l *Log) writeEpochs() error {
	l.mu.Lock()
	stale, data := l.epochsStale, encodeEpochs(l.epochs)
	l.epochsStale = false
	l.mu.Unlock()
	if !stale {
		return nil
	}
	if err := vfs.WriteFileAtomic(l.fs, path.Join(l.dir, epochFile), data); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.epochsStale = true
		return err
	}
	return nil
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest epoch at or below e that the log knows and the offset where
// it ends. An epoch below the first gets that epoch itself, ending where the first begins. It is false for one above
// the last, or if there is none.
func (l *Log) EndOffsetForEpoch(e raft.Epoch) (raft.OffsetAndEpoch, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := len(l.epochs)
	switch {
	case n == 0 || e > l.epochs[n-1].Epoch:
		return raft.OffsetAndEpoch{}, false
	case e == l.epochs[n-1].Epoch:
		return raft.OffsetAndEpoch{Offset: l.active().next, Epoch: e}, true
	case e < l.epochs[0].Epoch:
		return raft.OffsetAndEpoch{Offset: l.epochs[0].Offset, Epoch: e}, true
	}
	i := 0
	for l.epochs[i+1].Epoch <= e {
		i++
	}
	return raft.OffsetAndEpoch{Offset: l.epochs[i+1].Offset, Epoch: l.epochs[i].Epoch}, true
}

// epochBefore is the epoch of the record before offset; 0 if there is none.
func epochBefore(epochs []raft.OffsetAndEpoch, offset int64) raft.Epoch {
	for _, e := range slices.Backward(epochs) {
		if e.Offset < offset {
			return e.Epoch
		}
	}
	return 0
}
