package record

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Mode is topic.mode: what the log makes of keys.
type Mode uint8

// The modes.
const (
	Keyed  Mode = iota // every record has a key, a null value is a tombstone; the log can be compacted
	Opaque             // records are kept as they come
)

func (m Mode) String() string { return [...]string{"keyed", "opaque"}[m] }

// Error codes that only the checks of a client's batch need.
const (
	MessageTooLarge  raft.ErrorCode = 10
	UnsupportedCodec raft.ErrorCode = 76
)

// Rejection says why a client's batch is not appended: the code for its Produce answer, the record (-1: the batch as a
// whole) and a sentence.
type Rejection struct { //nolint:errname // it reads as what it is
	Code   raft.ErrorCode
	Record int
	Reason string
}

func (r *Rejection) Error() string {
	if r.Record < 0 {
		return r.Reason
	}
	return fmt.Sprintf("record %d: %s", r.Record, r.Reason)
}

func reject(code raft.ErrorCode, format string, args ...any) error {
	return &Rejection{Code: code, Record: -1, Reason: fmt.Sprintf(format, args...)}
}

// CheckProduce checks the records field of a Produce request: exactly one whole batch that may be appended as it is.
// Compressed records are unpacked to be checked, and kept packed. Any error is a *Rejection.
func CheckProduce(p []byte, mode Mode) (Batch, error) {
	b, err := produced(p)
	if err != nil {
		return Batch{}, err
	}
	switch {
	case b.IsControl():
		return Batch{}, reject(raft.InvalidRecord, "control batches are the quorum's own")
	case b.IsTransactional():
		return Batch{}, reject(raft.InvalidRecord, "transactions are not supported")
	case b.Attributes&^attrCodec != 0:
		return Batch{}, reject(raft.InvalidRecord, "batch attributes %#x: only a codec and create time are allowed", b.Attributes)
	case b.Count == 0 || b.Count != b.LastOffsetDelta+1:
		return Batch{}, reject(raft.InvalidRecord, "batch of %d records has last offset delta %d", b.Count, b.LastOffsetDelta)
	case b.ProducerID >= 0 && (b.ProducerEpoch < 0 || b.BaseSequence < 0):
		return Batch{}, reject(raft.InvalidRecord, "producer id %d with epoch %d, sequence %d", b.ProducerID, b.ProducerEpoch, b.BaseSequence)
	case b.Codec() > Zstd:
		return Batch{}, reject(UnsupportedCodec, "%s: want none, gzip, snappy, lz4 or zstd", b.Codec())
	}
	n := 0
	for r, err := range b.Records() {
		switch {
		case errors.Is(err, ErrTooLarge):
			return Batch{}, reject(MessageTooLarge, "%v", err)
		case err != nil:
			return Batch{}, reject(raft.CorruptMessage, "%v", err)
		case r.Offset-b.BaseOffset != int64(n):
			return Batch{}, &Rejection{Code: raft.InvalidRecord, Record: n, Reason: fmt.Sprintf("offset delta %d", r.Offset-b.BaseOffset)}
		case mode == Keyed && r.Key == nil:
			return Batch{}, &Rejection{Code: raft.InvalidRecord, Record: n, Reason: "has no key, which topic.mode=keyed demands"}
		}
		n++
	}
	return b, nil
}

// produced parses the one batch in p, naming old formats and sizes for what they are.
func produced(p []byte) (Batch, error) {
	if len(p) < HeaderSize {
		return Batch{}, reject(raft.CorruptMessage, "%d bytes are no record batch", len(p))
	}
	if p[16] < Magic {
		return Batch{}, reject(raft.InvalidRecord, "message format %d, want %d", p[16], Magic)
	}
	if n := int64(binary.BigEndian.Uint32(p[8:])) + lengthEnd; n > MaxSize && len(p) > MaxSize {
		return Batch{}, reject(MessageTooLarge, "batch of %d bytes, limit %d", n, MaxSize)
	}
	b, err := Parse(p)
	switch {
	case errors.Is(err, ErrShort):
		return Batch{}, reject(raft.CorruptMessage, "batch is longer than the %d bytes sent", len(p))
	case err != nil:
		return Batch{}, reject(raft.CorruptMessage, "%v", err)
	case b.Size != len(p):
		return Batch{}, reject(raft.InvalidRecord, "%d bytes after the batch: one batch a request", len(p)-b.Size)
	}
	return b, nil
}
