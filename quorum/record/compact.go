package record

import "encoding/binary"

// Compact appends b to dst with only the records that keep wants, as Kafka's log cleaner rewrites a batch: offsets,
// timestamps, epoch and producer fields stay what they were, so there may be gaps, or no record at all. The records are
// written unpacked.
//
// A batch that holds a tombstone and has no delete horizon yet gets the given one (milliseconds since 1970). The format
// has no field of its own for it: it takes the place of the base timestamp, and the records' deltas count from there.
func Compact(dst []byte, b Batch, horizon int64, keep func(Record) bool) ([]byte, Header, error) {
	tombstone := false
	if !b.HasDeleteHorizon() {
		for r, err := range b.Records() {
			if err != nil {
				return dst, Header{}, err
			}
			tombstone = tombstone || r.Value == nil
		}
	}
	out, h, err := compact(dst, b, keep, horizon, tombstone)
	if err == nil && tombstone && h.Size > MaxSize {
		// No room for longer deltas. The tombstones stay until the batch has shrunk.
		out, h, err = compact(dst, b, keep, 0, false)
	}
	return out, h, err
}

func compact(dst []byte, b Batch, keep func(Record) bool, horizon int64, setHorizon bool) ([]byte, Header, error) {
	h := b.Header
	h.Attributes &^= attrCodec
	if setHorizon {
		h.Attributes |= attrDeleteHorizon
		h.BaseTimestamp = horizon
	}
	h.Count = 0
	var latest int64
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	for r, err := range b.Records() {
		if err != nil {
			return dst[:start], Header{}, err
		}
		if !keep(r) {
			continue
		}
		delta := r.Timestamp - h.BaseTimestamp
		dst = binary.AppendVarint(dst, int64(1+varintLen(delta)+len(r.tail)))
		dst = binary.AppendVarint(append(dst, 0), delta)
		dst = append(dst, r.tail...)
		if latest = max(latest, r.Timestamp); h.Count == 0 {
			latest = r.Timestamp
		}
		h.Count++
	}
	switch {
	case h.Count > 0:
		h.MaxTimestamp = latest
	case setHorizon: // nothing left that it is for
		h.Attributes, h.BaseTimestamp = b.Attributes&^attrCodec, b.BaseTimestamp
	}
	h.Size = len(dst) - start
	h.CRC = putHeader(dst[start:], h)
	return dst, h, nil
}
