package storage

import (
	"path"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// AssignEpoch notes that an epoch begins at an offset and returns once leader-epoch-checkpoint says so on disk: a new
// leader calls it before it writes, Append for the batches of a new epoch. An epoch that is the latest already, and began
// no later, is left alone; entries that contradict the new one are removed.
func (l *Log) AssignEpoch(p raft.OffsetAndEpoch) error {
	if err := l.failure(); err != nil {
		return err
	}
	l.mu.Lock()
	if n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch == p.Epoch && l.epochs[n-1].Offset <= p.Offset {
		l.mu.Unlock()
		return nil
	}
	before := l.epochs
	l.epochs = assign(slices.Clone(l.epochs), p)
	l.mu.Unlock()
	if err := l.fail(l.writeEpochs()); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.epochs = before
		return err
	}
	return nil
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

// writeEpochs is called by the owner alone.
func (l *Log) writeEpochs() error {
	l.mu.RLock()
	data := encodeEpochs(l.epochs)
	l.mu.RUnlock()
	if err := vfs.WriteFileAtomic(l.fs, path.Join(l.dir, epochFile), data); err != nil {
		return err
	}
	l.epochsStale = false
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
