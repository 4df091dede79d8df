package storage

import (
	"bytes"
	"io"
	"sync"

	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// Records are whole batches that were found in the log: few are there as Bytes, more are left where they lie.
type Records struct {
	Bytes   []byte
	Section *Section // in place of Bytes
}

// Size is the length of the batches together.
func (r Records) Size() int {
	if r.Section != nil {
		return int(r.Section.Size())
	}
	return len(r.Bytes)
}

// Section is a part of a file of batches, of a segment or a checkpoint. The file stays open until Close, though it be
// removed meanwhile. What a truncation cuts off is missing at its end, or other bytes stand there: that is never below the
// high watermark, and a follower, which alone reads above it, looks at what it gets. Outer gives the file itself, for the
// kernel to send from.
type Section struct {
	*io.SectionReader
	file *shared
}

// Close lets go of the file.
func (s *Section) Close() { s.file.release() }

// copyBelow is how many bytes are left in place: to send fewer from the file costs more calls than it saves.
const copyBelow = 64 << 10

// Find is Read for who sends the batches on. They are checked all the same, in a buffer that the next Find uses again: a
// member whose disk rots is to end, not to feed its followers what they must refuse for ever.
func (l *Log) Find(offset int64, maxBytes int, upTo int64) (Records, error) {
	v, _, err := l.find(offset)
	if err != nil {
		return Records{}, err
	}
	defer v.file.release()
	return v.records(offset, maxBytes, upTo)
}

// scratch are buffers of *[]byte to check batches in.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

func (v view) records(offset int64, maxBytes int, upTo int64) (Records, error) {
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	// Room is made here, so that it is kept.
	if room := int(min(v.room(maxBytes), v.size)); cap(*buf) < room {
		*buf = make([]byte, room)
	}
	data, position, err := v.read(*buf, offset, maxBytes, upTo)
	switch {
	case err != nil:
		return Records{}, err
	case len(data) < copyBelow:
		return Records{Bytes: bytes.Clone(data)}, nil
	}
	return Records{Section: &Section{io.NewSectionReader(v.file.File, position, int64(len(data))), v.file.hold()}}, nil
}

// room is how many bytes a read of that many looks at, unless its first batch is larger.
func (v view) room(maxBytes int) int64 {
	// The first batch begins at most a step (and a batch) after its index entry: read some more for it.
	return int64(max(min(maxBytes, record.MaxSize), record.HeaderSize)) + min(v.step, readAhead)
}
