package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// ErrOffset says that an offset is not in the log: before its start, or after its end.
var ErrOffset = errors.New("offset is not in the log")

// find returns the segment that holds offset, and the log's end.
func (l *Log) find(offset int64) (v view, end int64, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	end = l.active().next
	switch {
	case l.failed != nil:
		return view{}, 0, l.failed
	case offset < l.segments[0].base || offset > end:
		return view{}, 0, fmt.Errorf("offset %d, log is [%d, %d): %w", offset, l.segments[0].base, end, ErrOffset)
	}
	n := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].base > offset })
	return l.segments[n-1].view(), end, nil
}

// Read returns whole batches, from the one that holds offset on: at most maxBytes, but at least one batch, and none that
// reaches beyond upTo (exclusive); maxBytes counts as MaxSize at most. Nothing there to read is an empty slice; an offset outside the log is ErrOffset.
// The bytes are put into buf if it has the room, else into a new slice, and are the caller's. Fewer bytes than possible
// may come at the end of a segment. Their CRCs have been checked: damage is a Fault (LOG_CORRUPT).
func (l *Log) Read(buf []byte, offset int64, maxBytes int, upTo int64) ([]byte, error) {
	v, end, err := l.find(offset)
	if err != nil {
		return nil, err
	}
	upTo = min(upTo, end)
	if offset >= upTo {
		return buf[:0], nil
	}
	// The first batch begins at most an index interval (and a batch) after position: read some more for it.
	maxBytes = min(maxBytes, record.MaxSize)
	position := v.position(offset)
	size := min(int64(max(maxBytes, record.HeaderSize))+indexInterval, v.size-position)
	for {
		data, err := readAt(v, buf, position, int(size))
		if err != nil {
			return nil, err
		}
		from, to, need, err := window(data, offset, maxBytes, upTo)
		if err != nil {
			return nil, fault(LogCorrupt, "%s at position %d: %v", v.name, position+int64(to), err)
		}
		if need == 0 {
			return data[from:to], nil
		}
		position, size = position+int64(from), int64(need)
		if position+size > v.size {
			return nil, fault(LogCorrupt, "%s at position %d: batch of %d bytes reaches beyond the segment's end %d", v.name, position, need, v.size)
		}
	}
}

// window finds what a Read may return in data, which begins with a batch: from the batch that holds offset to the last
// that fits. If not even that batch is whole in data, need is its size and from is where it begins. Before its header is
// whole, need is a header's size.
func window(data []byte, offset int64, maxBytes int, upTo int64) (from, to, need int, err error) {
	from = -1
	for to < len(data) {
		h, err := record.ParseHeader(data[to:])
		short := errors.Is(err, record.ErrShort)
		switch {
		case short && from >= 0:
			return from, to, 0, nil
		case short:
			return to, 0, record.HeaderSize, nil
		case err != nil:
			return 0, to, 0, err
		case h.NextOffset() <= offset:
			if to+h.Size > len(data) {
				// A batch before ours ends beyond what was read: go on from there.
				return to, 0, h.Size + record.HeaderSize, nil
			}
			to += h.Size
			continue
		case h.NextOffset() > upTo && from >= 0:
			return from, to, 0, nil
		case h.NextOffset() > upTo:
			return to, to, 0, nil
		case from >= 0 && to+h.Size-from > maxBytes:
			return from, to, 0, nil
		case to+h.Size > len(data) && from >= 0:
			return from, to, 0, nil
		case to+h.Size > len(data):
			return to, 0, h.Size, nil
		}
		if _, err := record.Parse(data[to:]); err != nil {
			return 0, to, 0, err
		}
		if from < 0 {
			from = to
		}
		to += h.Size
	}
	if from < 0 { // a batch ended where the data does
		return to, 0, record.HeaderSize, nil
	}
	return from, to, 0, nil
}

func readAt(v view, buf []byte, position int64, size int) ([]byte, error) {
	if cap(buf) < size {
		buf = make([]byte, size)
	}
	data := buf[:size]
	n, err := v.file.ReadAt(data, position)
	if n < size {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, ioFault(fmt.Errorf("read %s at position %d: %w", v.name, position, err))
	}
	return data, nil
}

// Walk calls fn for each batch from the one that holds from on, up to upTo (exclusive), CRC checked. A batch is valid
// only during the call. The first error of fn ends the walk and is returned.
func (l *Log) Walk(from, upTo int64, fn func(record.Batch) error) error {
	for from < upTo {
		v, end, err := l.find(from)
		if err != nil {
			return err
		}
		if upTo = min(upTo, end); from >= upTo {
			return nil
		}
		sc := scanner{file: v.file, size: v.size, position: v.position(from)}
		for from < upTo && from < v.next {
			at := sc.position
			b, err := sc.next()
			switch {
			case errors.Is(err, record.ErrShort), errors.Is(err, record.ErrCorrupt), errors.Is(err, io.EOF):
				return fault(LogCorrupt, "%s at position %d: %v", v.name, at, err)
			case err != nil:
				return ioFault(err)
			case b.NextOffset() <= from:
				continue
			case b.NextOffset() > upTo:
				return nil
			}
			if err := fn(b); err != nil {
				return err
			}
			from = b.NextOffset()
		}
	}
	return nil
}

// errFound ends a walk.
var errFound = errors.New("found")

// OffsetForTimestamp answers ListOffsets by time: the first record below upTo whose timestamp is at or after the given
// one (milliseconds since 1970). It is false if there is none.
func (l *Log) OffsetForTimestamp(timestamp, upTo int64) (Position, bool, error) {
	from := l.firstAfter(timestamp)
	var p Position
	err := l.Walk(from, upTo, func(b record.Batch) error {
		if b.MaxTimestamp < timestamp {
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

// MaxTimestamp answers ListOffsets for the latest time: the first record below upTo that has the largest timestamp.
func (l *Log) MaxTimestamp(upTo int64) (Position, bool, error) {
	largest := int64(math.MinInt64)
	if err := l.Walk(l.Start(), upTo, func(b record.Batch) error {
		if b.Count > 0 {
			largest = max(largest, b.MaxTimestamp)
		}
		return nil
	}); err != nil || largest == math.MinInt64 {
		return Position{}, false, err
	}
	return l.OffsetForTimestamp(largest, upTo)
}

// firstAfter returns an offset at or before the first record with that timestamp or a later one.
func (l *Log) firstAfter(timestamp int64) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.segments {
		if s.maxTimestamp < timestamp {
			continue
		}
		n := sort.Search(len(s.index), func(i int) bool { return s.index[i].maxBefore >= timestamp })
		if n == 0 {
			return s.base
		}
		return s.index[n-1].offset
	}
	return l.active().next
}
