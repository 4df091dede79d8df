package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Builder makes one batch: New, Append for each record, Build. Its zero value is not usable.
type Builder struct {
	h       Header
	codec   Codec
	records []byte
}

// NewBuilder starts a batch whose first record has the given time (milliseconds since 1970).
func NewBuilder(timestamp int64, codec Codec) *Builder {
	return &Builder{codec: codec, h: Header{
		Attributes: int16(codec), BaseTimestamp: timestamp, MaxTimestamp: timestamp,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
	}}
}

// Producer marks the batch as an idempotent producer's.
func (b *Builder) Producer(id int64, epoch int16, sequence int32) *Builder {
	b.h.ProducerID, b.h.ProducerEpoch, b.h.BaseSequence = id, epoch, sequence
	return b
}

// Append adds a record. A nil key is no key, a nil value a tombstone.
func (b *Builder) Append(timestamp int64, key, value []byte, headers ...RecordHeader) *Builder {
	delta := timestamp - b.h.BaseTimestamp
	size := 1 + varintLen(delta) + varintLen(int64(b.h.Count)) + bytesLen(key) + bytesLen(value) + varintLen(int64(len(headers)))
	for _, h := range headers {
		size += varintLen(int64(len(h.Key))) + len(h.Key) + bytesLen(h.Value)
	}
	p := binary.AppendVarint(b.records, int64(size))
	p = append(p, 0)
	p = binary.AppendVarint(p, delta)
	p = binary.AppendVarint(p, int64(b.h.Count))
	p = appendBytes(appendBytes(p, key), value)
	p = binary.AppendVarint(p, int64(len(headers)))
	for _, h := range headers {
		p = append(binary.AppendVarint(p, int64(len(h.Key))), h.Key...)
		p = appendBytes(p, h.Value)
	}
	b.records = p
	b.h.Count++
	b.h.MaxTimestamp = max(b.h.MaxTimestamp, timestamp)
	return b
}

// Count is the number of records so far, Size the bytes that Build would make of them without compression.
func (b *Builder) Count() int { return int(b.h.Count) }

// Size is how many bytes the batch takes if nothing is compressed.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// Build returns the batch. An empty one, or one over MaxSize (ErrTooLarge), is refused.
func (b *Builder) Build(base int64, epoch raft.Epoch) ([]byte, error) {
	if b.h.Count == 0 {
		return nil, errors.New("build batch: no record")
	}
	records, err := encode(b.codec, b.records)
	if err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	if len(records) > MaxSize-HeaderSize {
		return nil, fmt.Errorf("build batch of %d bytes, limit %d: %w", HeaderSize+len(records), MaxSize, ErrTooLarge)
	}
	h := b.h
	h.BaseOffset, h.Epoch, h.LastOffsetDelta = base, epoch, h.Count-1
	return appendBatch(make([]byte, 0, HeaderSize+len(records)), h, records), nil
}

// Empty makes a batch without records for one offset. Clients that read it go on behind it.
func Empty(offset int64, epoch raft.Epoch, timestamp int64) []byte {
	h := NewBuilder(timestamp, None).h
	h.BaseOffset, h.Epoch = offset, epoch
	return appendBatch(nil, h, nil)
}

// appendBatch writes header and records; Size and CRC are computed.
func appendBatch(p []byte, h Header, records []byte) []byte {
	start := len(p)
	p = append(append(p, make([]byte, HeaderSize)...), records...)
	putHeader(p[start:], h)
	return p
}

// putHeader fills in the header of the batch that is p, and returns its CRC.
func putHeader(p []byte, h Header) uint32 {
	be := binary.BigEndian
	be.PutUint64(p, uint64(h.BaseOffset))
	be.PutUint32(p[8:], uint32(len(p)-lengthEnd))
	be.PutUint32(p[12:], uint32(h.Epoch))
	p[16] = Magic
	be.PutUint16(p[21:], uint16(h.Attributes))
	be.PutUint32(p[23:], uint32(h.LastOffsetDelta))
	be.PutUint64(p[27:], uint64(h.BaseTimestamp))
	be.PutUint64(p[35:], uint64(h.MaxTimestamp))
	be.PutUint64(p[43:], uint64(h.ProducerID))
	be.PutUint16(p[51:], uint16(h.ProducerEpoch))
	be.PutUint32(p[53:], uint32(h.BaseSequence))
	be.PutUint32(p[57:], uint32(h.Count))
	crc := crc32.Checksum(p[crcStart:], castagnoli)
	be.PutUint32(p[17:], crc)
	return crc
}

func varintLen(v int64) int {
	n, u := 1, uint64(v<<1)^uint64(v>>63)
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

func appendBytes(p, b []byte) []byte {
	if b == nil {
		return append(p, 1) // zigzag of -1
	}
	return append(binary.AppendVarint(p, int64(len(b))), b...)
}
