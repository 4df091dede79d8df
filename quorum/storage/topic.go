package storage

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// What clients see is one topic: what the newest checkpoint covers comes from there, the rest from the log.

// ReadFrom is Read over the topic. The first batch may begin beyond offset, since compaction leaves gaps, and may be
// without records: a producer's last, or one that only says that nothing is left before the checkpoint's end. Without the
// latter a client that reads to the end would wait for ever for what compaction has dropped. An offset below 0 or beyond
// the log's end is ErrOffset. Any goroutine may call it.
func (d *Dir) ReadFrom(buf []byte, offset int64, maxBytes int, upTo int64) ([]byte, error) {
	v, c, err := d.find(offset)
	if err != nil {
		return nil, err
	}
	defer v.file.release()
	data, _, err := v.read(buf, offset, maxBytes, upTo)
	if err == nil && len(data) == 0 && c.endsBefore(upTo) {
		data = c.last()
	}
	return data, err
}

// FindFrom is Find over the topic: it finds what ReadFrom reads.
func (d *Dir) FindFrom(offset int64, maxBytes int, upTo int64) (Records, error) {
	v, c, err := d.find(offset)
	if err != nil {
		return Records{}, err
	}
	defer v.file.release()
	r, err := v.records(offset, maxBytes, upTo)
	if err == nil && r.Size() == 0 && c.endsBefore(upTo) {
		r.Bytes = c.last()
	}
	return r, err
}

// find returns the file that holds offset of the topic, and the checkpoint that it is of, nil for the log's.
func (d *Dir) find(offset int64) (view, *checkpoint, error) {
	if offset < 0 {
		return view{}, nil, fmt.Errorf("offset %d: %w", offset, ErrOffset)
	}
	for {
		if c := d.checkpoints.covering(offset); c != nil {
			return c.view, c, nil
		}
		v, _, err := d.Log.find(offset)
		if errors.Is(err, ErrOffset) && d.covered(offset) {
			continue // cleaned away since we looked: there is a newer checkpoint
		}
		return v, nil, err
	}
}

// endsBefore reports whether upTo is at or behind the end of what a checkpoint covers. There may be none.
func (c *checkpoint) endsBefore(upTo int64) bool { return c != nil && c.ID.Offset <= upTo }

// last is a batch without records that ends where the checkpoint does.
func (c *checkpoint) last() []byte { return record.Empty(c.ID.Offset-1, c.ID.Epoch, c.Timestamp) }

// covered reports whether the newest checkpoint covers the offset.
func (d *Dir) covered(offset int64) bool {
	infos := d.Checkpoints()
	return len(infos) > 0 && offset < infos[len(infos)-1].ID.Offset
}

// Walk calls fn for each batch of the topic from the one that holds from on, up to upTo (exclusive): those of the newest
// checkpoint, empty ones too, then the log's, control batches too. A batch is valid only during the call. The first error
// of fn ends the walk and is returned. Any goroutine may call it.
func (d *Dir) Walk(from, upTo int64, fn func(record.Batch) error) error {
	step := func(b record.Batch) error {
		if err := fn(b); err != nil {
			return err
		}
		from = b.NextOffset()
		return nil
	}
	for {
		if c := d.checkpoints.covering(from); c != nil {
			err := c.walk(from, upTo, step)
			c.file.release()
			if err != nil || upTo <= c.ID.Offset {
				return err
			}
			from = c.ID.Offset
		}
		err := d.Log.Walk(from, upTo, step)
		if !errors.Is(err, ErrOffset) || !d.covered(from) {
			return err
		}
	}
}

// Uncovered is how many bytes of log lie behind the newest checkpoint, to an index step: what a compaction would read.
func (d *Dir) Uncovered() int64 {
	var from int64
	if infos := d.Checkpoints(); len(infos) > 0 {
		from = infos[len(infos)-1].ID.Offset
	}
	l := d.Log
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for _, s := range l.segments {
		switch {
		case s.base >= from:
			n += s.size
		case s.next > from:
			n += s.size - position(s.index, 0, from)
		}
	}
	return n
}

// errFound ends a walk.
var errFound = errors.New("found")

// OffsetForTimestamp answers ListOffsets by time: the first record of the topic below upTo whose timestamp is at or after
// the given one (milliseconds since 1970). It is false if there is none.
func (d *Dir) OffsetForTimestamp(timestamp, upTo int64) (Position, bool, error) {
	return firstAt(d.Walk, d.firstAfter(timestamp), timestamp, upTo)
}

// MaxTimestamp answers ListOffsets for the latest time: the first record below upTo that has the largest timestamp.
func (d *Dir) MaxTimestamp(upTo int64) (Position, bool, error) {
	largest, err := maxTimestamp(d.Walk, 0, upTo)
	if err != nil || largest == math.MinInt64 {
		return Position{}, false, err
	}
	return d.OffsetForTimestamp(largest, upTo)
}

type walk func(from, upTo int64, fn func(record.Batch) error) error

func firstAt(walk walk, from, timestamp, upTo int64) (p Position, found bool, err error) {
	err = walk(from, upTo, func(b record.Batch) error {
		if b.Count == 0 || b.MaxTimestamp < timestamp {
			return nil
		}
		for r, err := range b.Records() {
			if err != nil {
				return fault(LogCorrupt, "batch at offset %d: %v", b.BaseOffset, err)
			}
			if r.Timestamp >= timestamp {
				p = Position{Offset: r.Offset, Timestamp: r.Timestamp, Epoch: b.Epoch}
				return errFound
			}
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return p, true, nil
	}
	return Position{}, false, err
}

func maxTimestamp(walk walk, from, upTo int64) (int64, error) {
	largest := int64(math.MinInt64)
	err := walk(from, upTo, func(b record.Batch) error {
		if b.Count > 0 {
			largest = max(largest, b.MaxTimestamp)
		}
		return nil
	})
	return largest, err
}

// firstAfter returns an offset at or before the first record of the topic with that timestamp or a later one.
func (d *Dir) firstAfter(timestamp int64) int64 {
	var from int64
	if c := d.checkpoints.newest(); c != nil {
		c.file.release()
		if c.maxTimestamp >= timestamp {
			return after(c.index, 0, timestamp)
		}
		from = c.ID.Offset
	}
	return max(from, d.Log.firstAfter(timestamp))
}

// after searches an index by time; base is the offset before its first entry.
func after(index []indexEntry, base, timestamp int64) int64 {
	n := sort.Search(len(index), func(i int) bool { return index[i].maxBefore >= timestamp })
	if n == 0 {
		return base
	}
	return index[n-1].offset
}
