package record

import (
	"encoding/binary"
	"iter"
)

// Record is one record of a batch. Its slices are those of the batch, or of the buffer it was unpacked to.
type Record struct {
	Offset    int64
	Timestamp int64  // milliseconds since 1970
	Key       []byte // nil: no key
	Value     []byte // nil: a tombstone

	headers     []byte
	headerCount int
	tail        []byte // encoded, from the offset delta on
}

// RecordHeader is a name and value that a producer attached to a record.
type RecordHeader struct {
	Key   string
	Value []byte // nil: null
}

// Headers decodes the record's headers.
func (r Record) Headers() []RecordHeader {
	if r.headerCount == 0 {
		return nil
	}
	hs := make([]RecordHeader, 0, r.headerCount) // each takes two bytes at least: checked by parseRecord
	c := cursor{p: r.headers}
	for range r.headerCount {
		key := c.bytes()
		hs = append(hs, RecordHeader{Key: string(key), Value: c.bytes()})
	}
	return hs
}

// Records walks the records of b, which are unpacked to at most MaxDecoded bytes. The first error ends the walk.
// For an uncompressed batch nothing is allocated.
func (b Batch) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		p, err := decode(b.Codec(), b.Raw[HeaderSize:], MaxDecoded)
		if err != nil {
			yield(Record{}, err)
			return
		}
		last := int64(-1)
		for i := range b.Count {
			r, n, err := parseRecord(p, b.Header)
			if err == nil && r.Offset-b.BaseOffset <= last {
				err = corrupt("offset delta %d after %d", r.Offset-b.BaseOffset, last)
			}
			if err != nil {
				yield(Record{}, corruptAt(i, err))
				return
			}
			last = r.Offset - b.BaseOffset
			p = p[n:]
			if !yield(r, nil) {
				return
			}
		}
		if len(p) > 0 {
			yield(Record{}, corrupt("%d bytes after the last of %d records", len(p), b.Count))
		}
	}
}

func corruptAt(i int32, err error) error { return corrupt("record %d: %v", i, err) }

// parseRecord reads the record that p begins with and returns how many bytes it takes.
func parseRecord(p []byte, h Header) (Record, int, error) {
	length, n := binary.Varint(p)
	if n <= 0 || length < 0 || length > int64(len(p)-n) {
		return Record{}, 0, corrupt("length %d in %d bytes", length, len(p))
	}
	c := cursor{p: p[n : n+int(length)]}
	c.skip(1) // attributes: unused
	timestamp := c.varint()
	tail := c.p
	delta := c.varint()
	r := Record{Offset: h.BaseOffset + delta, Timestamp: h.BaseTimestamp + timestamp, Key: c.bytes(), Value: c.bytes(), tail: tail}
	if h.Attributes&attrLogAppendTime != 0 {
		r.Timestamp = h.MaxTimestamp
	}
	count := c.varint()
	switch {
	case c.bad:
		return Record{}, 0, corrupt("cut off or with a bad length inside")
	case delta < 0 || delta > int64(h.LastOffsetDelta):
		return Record{}, 0, corrupt("offset delta %d, the batch ends at %d", delta, h.LastOffsetDelta)
	case count < 0 || count > int64(len(c.p)/2):
		return Record{}, 0, corrupt("%d headers in %d bytes", count, len(c.p))
	}
	r.headers, r.headerCount = c.p, int(count)
	for range count {
		if key := c.bytes(); key == nil {
			return Record{}, 0, corrupt("header without a name")
		}
		c.bytes()
	}
	if c.bad || len(c.p) > 0 {
		return Record{}, 0, corrupt("%d bytes left over, or headers cut off", len(c.p))
	}
	return r, n + int(length), nil
}

// cursor reads record fields; after a bad one it yields zeros and says so once, at the end.
type cursor struct {
	p   []byte
	bad bool
}

func (c *cursor) skip(n int) {
	if n > len(c.p) {
		c.bad, c.p = true, nil
		return
	}
	c.p = c.p[n:]
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.p)
	if n <= 0 {
		c.bad, c.p = true, nil
		return 0
	}
	c.p = c.p[n:]
	return v
}

// bytes reads a length and as many bytes; length -1 is nil.
func (c *cursor) bytes() []byte {
	n := c.varint()
	if c.bad || n == -1 {
		return nil
	}
	if n < -1 || n > int64(len(c.p)) {
		c.bad, c.p = true, nil
		return nil
	}
	b := c.p[:n:n]
	c.p = c.p[n:]
	return b
}
