package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// trace writes one line for each event, in columns: time, replica, role (U P C L F R as in raft; O: an observer that
// follows; -: dead), epoch, log end, durable end, high watermark, event. A nil trace costs nothing.
type trace struct {
	out  io.Writer
	hash uint64
}

func newTrace(out io.Writer) *trace { return &trace{out: out} }

const traceHead = "        time  node    epoch    end  flush     hw  event\n"

func (t *trace) member(m *member, format string, args ...any) {
	if t == nil {
		return
	}
	role, s := m.letter(), &m.seen
	t.line(fmt.Sprintf("%12s %5d %s %5d %6d %6d %6d  %s\n", stamp(m.w.now), m.id, role, s.epoch, m.disk.log.end, m.disk.log.durableEnd(), s.highWatermark, fmt.Sprintf(format, args...)))
}

func (t *trace) client(c *client, format string, args ...any) {
	if t == nil {
		return
	}
	t.line(fmt.Sprintf("%12s %5s %31s %s\n", stamp(c.w.now), fmt.Sprintf("c%d", c.id), "", fmt.Sprintf(format, args...)))
}

func (t *trace) note(w *world, format string, args ...any) {
	if t == nil {
		return
	}
	t.line(fmt.Sprintf("%12s %5s %31s %s\n", stamp(w.now), "*", "", fmt.Sprintf(format, args...)))
}

func (t *trace) line(s string) {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x%s", t.hash, s)
	t.hash = h.Sum64()
	if t.out != nil {
		_, _ = io.WriteString(t.out, s)
	}
}

func stamp(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }

// letter shows a member's role in one column.
func (m *member) letter() string {
	switch {
	case !m.up:
		return "-"
	case m.seen.role == raft.Follower && !m.seen.voter:
		return "O"
	}
	return m.seen.role.String()[:1]
}

// about names a request or answer in a few words, if anybody reads them.
type about struct{ message any }

func (a about) String() string { return describe(a.message) }

func describe(v any) string {
	switch r := v.(type) {
	case raft.VoteRequest:
		kind := "Vote"
		if r.PreVote {
			kind = "PreVote"
		}
		return fmt.Sprintf("%s{epoch %d, last %d@%d}", kind, r.Epoch, r.Last.Offset, r.Last.Epoch)
	case raft.FetchRequest:
		return fmt.Sprintf("Fetch{epoch %d, offset %d@%d, hw %d}", r.Epoch, r.Offset, r.LastFetchedEpoch, r.HighWatermark)
	case raft.FetchSnapshotRequest:
		return fmt.Sprintf("FetchSnapshot{epoch %d, id %d@%d, position %d}", r.Epoch, r.Snapshot.Offset, r.Snapshot.Epoch, r.Position)
	case raft.FetchSnapshotResponse:
		return fmt.Sprintf("FetchSnapshot answer{%s, position %d of %d}", head(r.Header), r.Position, r.Size)
	case raft.BeginQuorumEpochRequest:
		return fmt.Sprintf("BeginQuorumEpoch{epoch %d}", r.Epoch)
	case raft.EndQuorumEpochRequest:
		return fmt.Sprintf("EndQuorumEpoch{epoch %d, successors %v}", r.Epoch, r.Successors)
	case raft.VoteResponse:
		return fmt.Sprintf("Vote answer{%s, granted %v}", head(r.Header), r.Granted)
	case raft.FetchResponse:
		s := fmt.Sprintf("Fetch answer{%s, hw %d", head(r.Header), r.HighWatermark)
		if r.Diverging != nil {
			s += fmt.Sprintf(", diverging %d@%d", r.Diverging.Offset, r.Diverging.Epoch)
		}
		if r.Snapshot != nil {
			s += fmt.Sprintf(", snapshot %d@%d", r.Snapshot.Offset, r.Snapshot.Epoch)
		}
		return s + "}"
	case raft.BeginQuorumEpochResponse:
		return fmt.Sprintf("BeginQuorumEpoch answer{%s}", head(r.Header))
	case raft.EndQuorumEpochResponse:
		return fmt.Sprintf("EndQuorumEpoch answer{%s}", head(r.Header))
	}
	return describeChange(v)
}

func describeClient(v any) string {
	switch r := v.(type) {
	case replica.ProduceResult:
		return fmt.Sprintf("answer{%s, offset %d}", head(r.Header), r.BaseOffset)
	case replica.ReadResult:
		return fmt.Sprintf("answer{%s, hw %d, %d bytes}", head(r.Header), r.HighWatermark, len(r.Records))
	case replica.ListOffsetsResult:
		return fmt.Sprintf("answer{%s, offset %d}", head(r.Header), r.Offset)
	case replica.InitProducerResult:
		return fmt.Sprintf("answer{%s, producer %d}", head(r.Header), r.ProducerID)
	}
	return fmt.Sprintf("%T%+v", v, v)
}

func head(h raft.Header) string {
	s := fmt.Sprintf("leader %d of epoch %d", h.Leader, h.Epoch)
	if h.Error != 0 || h.TopError != 0 {
		s = fmt.Sprintf("error %d, ", h.Error+h.TopError) + s
	}
	return s
}
