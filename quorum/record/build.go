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

// appendBatch writes header and records; Size and CRC are computed.
func appendBatch(p []byte, h Header, records []byte) []byte {
	start := len(p)
	be := binary.BigEndian
	p = be.AppendUint64(p, uint64(h.BaseOffset))
	p = be.AppendUint32(p, uint32(HeaderSize-lengthEnd+len(records)))
	p = be.AppendUint32(p, uint32(h.Epoch))
	p = append(p, Magic, 0, 0, 0, 0)
	p = be.AppendUint16(p, uint16(h.Attributes))
	p = be.AppendUint32(p, uint32(h.LastOffsetDelta))
	p = be.AppendUint64(p, uint64(h.BaseTimestamp))
	p = be.AppendUint64(p, uint64(h.MaxTimestamp))
	p = be.AppendUint64(p, uint64(h.ProducerID))
	p = be.AppendUint16(p, uint16(h.ProducerEpoch))
	p = be.AppendUint32(p, uint32(h.BaseSequence))
	p = be.AppendUint32(p, uint32(h.Count))
	p = append(p, records...)
	be.PutUint32(p[start+17:], crc32.Checksum(p[start+crcStart:], castagnoli))
	return p
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
