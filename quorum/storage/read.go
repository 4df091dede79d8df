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
// reaches beyond upTo (exclusive); maxBytes counts as MaxSize at most. Nothing there to read is an empty slice; an offset
// outside the log is ErrOffset. The bytes are put into buf if it has the room, else into a new slice, and are the caller's.
// Fewer bytes than possible may come at the end of a segment. Their CRCs have been checked: damage is a Fault
// (LOG_CORRUPT).
func (l *Log) Read(buf []byte, offset int64, maxBytes int, upTo int64) ([]byte, error) {
	v, end, err := l.find(offset)
	if err != nil {
		return nil, err
	}
	defer v.file.release()
	data, _, err := v.read(buf, offset, maxBytes, min(upTo, end))
	return data, err
}

// read returns the batches and the position of the first.
func (v view) read(buf []byte, offset int64, maxBytes int, upTo int64) ([]byte, int64, error) {
	if offset >= min(upTo, v.next) {
		return buf[:0], 0, nil
	}
	maxBytes = min(maxBytes, record.MaxSize)
	position := v.position(offset)
	size := min(v.room(maxBytes), v.size-position)
	for {
		data, err := readAt(v, buf, position, int(size))
		if err != nil {
			return nil, 0, err
		}
		from, to, need, err := window(data, offset, maxBytes, upTo)
		if err != nil {
			return nil, 0, fault(LogCorrupt, "%s at position %d: %v", v.name, position+int64(to), err)
		}
		if need == 0 {
			return data[from:to], position + int64(from), nil
		}
		position, size = position+int64(from), int64(need)
		if position+size > v.size {
			return nil, 0, fault(LogCorrupt, "%s at position %d: batch of %d bytes reaches beyond the segment's end %d", v.name, position, need, v.size)
		}
		if v.step > readAhead { // it may be far yet
			size = min(max(size, readAhead), v.size-position)
		}
	}
}

// readAhead is how many bytes are read at once to look for a batch.
const readAhead = 256 << 10

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
		upTo = min(upTo, end)
		from, err = v.walk(from, upTo, fn)
		v.file.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// walk is Walk over one file, and returns where to go on. That is upTo if a batch reaches beyond it.
func (v view) walk(from, upTo int64, fn func(record.Batch) error) (int64, error) {
	sc := scanner{file: v.file, size: v.size, position: v.position(from)}
	for from < min(upTo, v.next) {
		at := sc.position
		b, err := sc.next()
		switch {
		case errors.Is(err, record.ErrShort), errors.Is(err, record.ErrCorrupt), errors.Is(err, io.EOF):
			return from, fault(LogCorrupt, "%s at position %d: %v", v.name, at, err)
		case err != nil:
			return from, ioFault(err)
		case b.NextOffset() <= from:
			continue
		case b.NextOffset() > upTo:
			return upTo, nil
		}
		if err := fn(b); err != nil {
			return from, err
		}
		from = b.NextOffset()
	}
	return from, nil
}

// OffsetForTimestamp is Dir.OffsetForTimestamp over the log alone.
func (l *Log) OffsetForTimestamp(timestamp, upTo int64) (Position, bool, error) {
	return firstAt(l.Walk, l.firstAfter(timestamp), timestamp, upTo)
}

// MaxTimestamp is Dir.MaxTimestamp over the log alone.
func (l *Log) MaxTimestamp(upTo int64) (Position, bool, error) {
	largest, err := maxTimestamp(l.Walk, l.Start(), upTo)
	if err != nil || largest == math.MinInt64 {
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
		return after(s.index, s.base, timestamp)
	}
	return l.active().next
}
