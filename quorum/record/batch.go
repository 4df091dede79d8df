// Package record is Kafka's record batch v2 and the control records of KRaft, as bytes.
//
// It works on byte slices it does not own and keeps nothing: Batch and Record point into the slice they were parsed
// from. Every length is checked against what is there before it is used. The package has no I/O and logs nothing.
//
// Reading order: batch.go (header, walking), records.go (records inside), compress.go, control.go, build.go, produce.go
// (what a client may append).
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Sizes of a batch, in bytes.
const (
	HeaderSize = 61      // fixed fields before the first record
	MaxSize    = 8 << 20 // whole batch; Kafka's limit for the metadata log
	lengthEnd  = 12      // base offset and length: not counted by the length field
	crcStart   = 21      // first byte under the CRC
)

// Magic is the only record format there is here.
const Magic = 2

// Attributes of a batch.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of reading batches. Test with errors.Is.
var (
	ErrShort   = errors.New("batch is not whole")  // more bytes might complete it
	ErrCorrupt = errors.New("batch is damaged")    // no more bytes will mend it
	ErrUnknown = errors.New("record is not known") // whole and undamaged, but of a kind that must not be skipped
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Header is the fixed part of a batch.
type Header struct {
	BaseOffset      int64
	Size            int        // whole batch, in bytes
	Epoch           raft.Epoch // partitionLeaderEpoch; not under the CRC
	CRC             uint32     // CRC-32C of all that follows it
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64 // milliseconds since 1970, of the producer; with a delete horizon: that
	MaxTimestamp    int64
	ProducerID      int64 // -1: not an idempotent producer
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32 // records; fewer than offsets only where compaction left gaps
}

// LastOffset is the offset of the last record that was ever in the batch.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is the offset after the batch.
func (h Header) NextOffset() int64 { return h.LastOffset() + 1 }

// LastSequence is the sequence number of the last record; sequences wrap from 2^31-1 to 0.
func (h Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return h.BaseSequence
	}
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & 0x7fffffff)
}

// Codec tells how the records are compressed.
func (h Header) Codec() Codec { return Codec(h.Attributes & attrCodec) }

// IsControl reports whether the batch holds control records, which clients skip.
func (h Header) IsControl() bool { return h.Attributes&attrControl != 0 }

// IsTransactional reports whether the batch belongs to a transaction.
func (h Header) IsTransactional() bool { return h.Attributes&attrTransactional != 0 }

// HasDeleteHorizon reports whether BaseTimestamp is the instant from which tombstones may go (KIP-534).
func (h Header) HasDeleteHorizon() bool { return h.Attributes&attrDeleteHorizon != 0 }

// ParseHeader reads the header of the batch that p begins with. The batch itself may be longer than p: compare Size.
// ErrShort means that p ends inside the header, ErrCorrupt that no batch can begin so. The CRC is not checked.
func ParseHeader(p []byte) (Header, error) {
	if len(p) < lengthEnd+5 { // length and magic tell most garbage apart
		return Header{}, ErrShort
	}
	length := int32(binary.BigEndian.Uint32(p[8:]))
	if length < HeaderSize-lengthEnd || length > MaxSize-lengthEnd {
		return Header{}, corrupt("length field %d, want %d to %d", length, HeaderSize-lengthEnd, MaxSize-lengthEnd)
	}
	if p[16] != Magic {
		return Header{}, corrupt("magic %d, want %d", p[16], Magic)
	}
	if len(p) < HeaderSize {
		return Header{}, ErrShort
	}
	h := Header{
		BaseOffset:      int64(binary.BigEndian.Uint64(p)),
		Size:            int(length) + lengthEnd,
		Epoch:           raft.Epoch(binary.BigEndian.Uint32(p[12:])),
		CRC:             binary.BigEndian.Uint32(p[17:]),
		Attributes:      int16(binary.BigEndian.Uint16(p[21:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(p[23:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(p[27:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(p[35:])),
		ProducerID:      int64(binary.BigEndian.Uint64(p[43:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(p[51:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(p[53:])),
		Count:           int32(binary.BigEndian.Uint32(p[57:])),
	}
	switch {
	case h.BaseOffset < 0:
		return Header{}, corrupt("base offset %d", h.BaseOffset)
	case h.LastOffsetDelta < 0 || h.BaseOffset > 1<<63-2-int64(h.LastOffsetDelta):
		return Header{}, corrupt("last offset delta %d at base offset %d", h.LastOffsetDelta, h.BaseOffset)
	case h.Count < 0 || int64(h.Count) > int64(h.LastOffsetDelta)+1:
		return Header{}, corrupt("%d records in %d offsets", h.Count, int64(h.LastOffsetDelta)+1)
	}
	return h, nil
}

// Batch is one whole batch whose CRC matched. It shares memory with the slice it was parsed from.
type Batch struct {
	Header
	Raw []byte // exactly Size bytes
}

// Parse reads and checks the batch that p begins with, CRC included. See ParseHeader for the errors.
func Parse(p []byte) (Batch, error) {
	h, err := ParseHeader(p)
	if err != nil {
		return Batch{}, err
	}
	if len(p) < h.Size {
		return Batch{}, ErrShort
	}
	b := Batch{Header: h, Raw: p[:h.Size:h.Size]}
	if sum := crc32.Checksum(b.Raw[crcStart:], castagnoli); sum != h.CRC {
		return Batch{}, corrupt("CRC is %08x, header at offset %d says %08x", sum, h.BaseOffset, h.CRC)
	}
	return b, nil
}

// All walks the batches in p. A trailing partial batch ends the walk in silence, as the end of a Fetch response may;
// damage is yielded as the last element's error. Nothing is allocated for intact batches.
func All(p []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(p) > 0 {
			b, err := Parse(p)
			if errors.Is(err, ErrShort) {
				return
			}
			if !yield(b, err) || err != nil {
				return
			}
			p = p[b.Size:]
		}
	}
}

// Headers walks the headers of the whole batches in p like All, without reading their records or CRC: for bytes that
// were checked before.
func Headers(p []byte) iter.Seq2[Header, error] {
	return func(yield func(Header, error) bool) {
		for len(p) > 0 {
			h, err := ParseHeader(p)
			if errors.Is(err, ErrShort) || err == nil && len(p) < h.Size {
				return
			}
			if !yield(h, err) || err != nil {
				return
			}
			p = p[h.Size:]
		}
	}
}

// Stamp writes base offset and epoch into a whole batch, in place: what a leader adds to a client's batch. Neither is
// under the CRC, so the batch stays as its producer sealed it.
func Stamp(raw []byte, base int64, epoch raft.Epoch) {
	binary.BigEndian.PutUint64(raw, uint64(base))
	binary.BigEndian.PutUint32(raw[12:], uint32(epoch))
}

// Summary is what the core needs to know of a batch; control records are decoded. An unknown control record is
// ErrUnknown: whoever skipped it would diverge (kraft.version governs new ones).
func Summary(b Batch) (raft.Batch, error) {
	s := raft.Batch{BaseOffset: b.BaseOffset, LastOffset: b.LastOffset(), Epoch: b.Epoch, Bytes: b.Size}
	if b.IsControl() {
		var err error
		if s.Control, err = DecodeControl(b); err != nil {
			return raft.Batch{}, err
		}
	}
	return s, nil
}

// Fetched checks the records of a Fetch response: the whole batches in p, which must continue one another, as the core
// wants to hear of them, and how many bytes they take. A trailing partial batch is left out. On damage it returns the
// batches before it along with the error; a driver that follows Kafka appends none of them and fetches again.
func Fetched(p []byte) (batches []raft.Batch, size int, err error) {
	for b, err := range All(p) {
		if err != nil {
			return batches, size, fmt.Errorf("at byte %d: %w", size, err)
		}
		if n := len(batches); n > 0 && (b.BaseOffset != batches[n-1].LastOffset+1 || b.Epoch < batches[n-1].Epoch) {
			return batches, size, fmt.Errorf("at byte %d: %w", size, corrupt("batch at offset %d epoch %d follows offset %d epoch %d",
				b.BaseOffset, b.Epoch, batches[n-1].LastOffset, batches[n-1].Epoch))
		}
		s, err := Summary(b)
		if err != nil {
			return batches, size, fmt.Errorf("at byte %d: %w", size, err)
		}
		batches = append(batches, s)
		size += b.Size
	}
	return batches, size, nil
}
