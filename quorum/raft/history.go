package raft

import (
	"fmt"
	"slices"
)

// logHistory is the shape of a log: its bounds and which epoch wrote what. It decides where two logs part.
type logHistory struct {
	start, end int64
	// epochs holds, ascending, each epoch with its first offset. The last one may start at end: a leader's epoch exists
	// before its first record does.
	epochs           []OffsetAndEpoch
	latest, earliest *OffsetAndEpoch // newest and oldest snapshot other than 0-0
}

func newLogHistory(l LogState) (logHistory, error) {
	h := logHistory{start: l.Start, end: l.End, epochs: slices.Clone(l.Epochs), latest: l.Snapshot, earliest: l.Earliest}
	if l.Start < 0 || l.End < l.Start {
		return h, fmt.Errorf("log: start %d and end %d are no range", l.Start, l.End)
	}
	if h.latest == nil && h.start > 0 {
		return h, fmt.Errorf("log: starts at %d but there is no snapshot", l.Start)
	}
	if h.earliest == nil {
		h.earliest = h.latest
	}
	if h.start > 0 {
		// The files of a log may begin somewhat earlier, but what epoch ended there only the snapshot tells.
		h.start = max(h.start, h.earliest.Offset)
	}
	if h.latest != nil && h.latest.Offset > h.end {
		return h, fmt.Errorf("log: ends at %d, before the snapshot of offset %d", l.End, h.latest.Offset)
	}
	for i, e := range h.epochs {
		if e.Offset > h.end || i > 0 && (e.Epoch <= h.epochs[i-1].Epoch || e.Offset <= h.epochs[i-1].Offset) {
			return h, fmt.Errorf("log: epoch %d at offset %d is out of order or beyond the end %d", e.Epoch, e.Offset, h.end)
		}
	}
	return h, nil
}

// lastEpoch is the newest epoch; of the snapshot if the log is empty; 0 if there is nothing at all.
func (h *logHistory) lastEpoch() Epoch {
	if len(h.epochs) > 0 {
		return h.epochs[len(h.epochs)-1].Epoch
	}
	if h.latest != nil {
		return h.latest.Epoch
	}
	return 0
}

// position is the end of the log as votes and fetches tell it.
func (h *logHistory) position() OffsetAndEpoch {
	return OffsetAndEpoch{Offset: h.end, Epoch: h.lastEpoch()}
}

// assign lets epoch begin at start. What a later truncation of another epoch left behind at or after it goes away.
func (h *logHistory) assign(epoch Epoch, start int64) {
	if n := len(h.epochs); n > 0 && h.epochs[n-1].Epoch == epoch && h.epochs[n-1].Offset <= start {
		return
	}
	for n := len(h.epochs); n > 0 && (h.epochs[n-1].Epoch >= epoch || h.epochs[n-1].Offset >= start); n-- {
		h.epochs = h.epochs[:n-1]
	}
	h.epochs = append(h.epochs, OffsetAndEpoch{Offset: start, Epoch: epoch})
}

// truncate cuts the log to end. It also drops the epoch of a leader that never wrote: its start is at the end.
func (h *logHistory) truncate(end int64) {
	h.end = min(h.end, end)
	for n := len(h.epochs); n > 0 && h.epochs[n-1].Offset >= end; n-- {
		h.epochs = h.epochs[:n-1]
	}
}

// startOf returns the first offset of exactly that epoch.
func (h *logHistory) startOf(epoch Epoch) (int64, bool) {
	for i := len(h.epochs) - 1; i >= 0 && h.epochs[i].Epoch >= epoch; i-- {
		if h.epochs[i].Epoch == epoch {
			return h.epochs[i].Offset, true
		}
	}
	return 0, false
}

// at returns the epoch of the record at offset.
func (h *logHistory) at(offset int64) (Epoch, bool) {
	if offset < h.start || offset >= h.end {
		return 0, false
	}
	for _, e := range slices.Backward(h.epochs) {
		if e.Offset <= offset {
			return e.Epoch, true
		}
	}
	return 0, false
}

// epochBefore returns the epoch of the record before an offset of the log, or of its end.
func (h *logHistory) epochBefore(offset int64) Epoch {
	if epoch, ok := h.at(offset - 1); ok {
		return epoch
	}
	if offset == h.start && h.earliest != nil {
		return h.earliest.Epoch
	}
	return 0
}

// endOf returns the largest epoch not above the given one, and where it ends. An epoch above all others is unknown: then
// the answer is the log's own end.
func (h *logHistory) endOf(epoch Epoch) OffsetAndEpoch {
	n := len(h.epochs)
	if n == 0 || epoch >= h.epochs[n-1].Epoch {
		return h.position()
	}
	if epoch < h.epochs[0].Epoch {
		return OffsetAndEpoch{Offset: h.epochs[0].Offset, Epoch: epoch}
	}
	for i := n - 2; ; i-- {
		if h.epochs[i].Epoch <= epoch {
			return OffsetAndEpoch{Offset: h.epochs[i+1].Offset, Epoch: h.epochs[i].Epoch}
		}
	}
}

// validate judges the position of a fetcher. Both results nil: its log is a prefix of ours.
func (h *logHistory) validate(offset int64, epoch Epoch) (diverging, snapshot *OffsetAndEpoch) {
	switch {
	case offset == 0 && h.latest != nil: // how a reader learns of it, and shorter than the log for one that has nothing
		return nil, h.latest
	case h.start == 0 && offset == 0:
		return nil, nil
	}
	// A whole log can judge every position. Kafka would send a snapshot even then, to whoever missed the epoch in which it
	// was made.
	if s := h.earliest; h.start > 0 && (offset < h.start || offset == h.start && epoch != s.Epoch || epoch < s.Epoch) {
		return nil, h.latest
	}
	end := h.endOf(epoch)
	if s := h.earliest; s != nil && end.Offset == s.Offset && end.Epoch == epoch {
		end = *s
	}
	if end.Epoch != epoch || end.Offset < offset {
		return &end, nil
	}
	return nil, nil
}

// cut answers where to truncate when the leader says that its log parts from ours: d is the leader's end of the newest
// epoch not above ours. Several rounds may be needed; each lowers (end, last epoch).
func (h *logHistory) cut(d OffsetAndEpoch) int64 {
	if d.Epoch == 0 {
		return min(d.Offset, h.end)
	}
	own := h.endOf(d.Epoch)
	if own.Epoch == d.Epoch {
		return min(own.Offset, d.Offset)
	}
	return own.Offset
}
