package raft

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// testSnapshot is a snapshot as the test members keep it: the batches that it covers, and the control records among them.
// A member that installs one keeps those batches below its log's start, to be compared, but never serves them.
type testSnapshot struct {
	id      OffsetAndEpoch
	log     []testBatch
	control []ControlAt
}

// size gives a snapshot a length in bytes that no chunk size divides.
func (s testSnapshot) size() int64 { return 30*int64(len(s.log)) + 7 }

// start is where the log begins.
func (m *member) start() int64 {
	if m.node == nil {
		return 0
	}
	return m.node.log.start
}

// recoverSnapshots tells what storage would of the snapshots: which there are, and where the log begins.
func (m *member) recoverSnapshots(l *LogState) {
	if len(m.snapshots) == 0 {
		return
	}
	first, last := &m.snapshots[0], &m.snapshots[len(m.snapshots)-1]
	l.Earliest, l.Snapshot, l.Start = &first.id, &last.id, m.logStart
	l.Control = slices.Clone(last.control)
}

func (m *member) takeSnapshotWork(r Ready) {
	if r.Discard {
		m.download, m.verifying = nil, false
	}
	if c := r.Chunk; c != nil {
		if c.Position == 0 {
			m.download = new(m.files[c.Fetched])
			m.download.id = c.Snapshot // of a response out of nothing there is no file
		}
		if m.download == nil || m.download.id != c.Snapshot {
			panic(fmt.Sprintf("a chunk of %+v at %d without those before it", c.Snapshot, c.Position))
		}
	}
	clear(m.files)
	m.verifying = m.verifying || r.Verify
	i := r.Install
	if i == nil {
		return
	}
	s := *m.download
	m.download = nil
	m.snapshots = append(m.snapshots, s)
	if !i.Replaces {
		return
	}
	if s.log == nil {
		s.log = []testBatch{{Batch{0, s.id.Offset - 1, s.id.Epoch, 10, nil}, "made up"}}
	}
	m.snapshots, m.logStart, m.generation, m.checked = []testSnapshot{s}, s.id.Offset, i.Generation, min(m.checked, len(s.log))
	m.log, m.durable = slices.Clone(s.log), slices.Clone(s.log)
}

// readSnapshot answers a granted FetchSnapshot as a driver does.
func (m *member) readSnapshot(f FetchSnapshotResponse) (FetchSnapshotResponse, testSnapshot) {
	i := slices.IndexFunc(m.snapshots, func(s testSnapshot) bool { return s.id == f.Snapshot })
	switch {
	case i < 0:
		f.Error = SnapshotNotFound
		return f, testSnapshot{}
	case f.Position >= m.snapshots[i].size():
		f.Error = PositionOutOfRange
		return f, testSnapshot{}
	}
	f.Size = m.snapshots[i].size()
	f.Bytes = int(min(int64(f.Bytes), f.Size-f.Position))
	return f, m.snapshots[i]
}

func (m *member) verified(failed bool) SnapshotVerified {
	m.verifying = false
	v := SnapshotVerified{Snapshot: m.download.id, Failed: failed}
	if !failed {
		v.Control = m.download.control
	}
	return v
}

// snapshotAt makes a snapshot that ends at a batch boundary.
func (m *member) snapshotAt(end int64) (SnapshotCreated, bool) {
	s := testSnapshot{}
	control := slices.Clone(m.bootstrap)
	if n := len(m.snapshots); n > 0 {
		control = slices.Clone(m.snapshots[n-1].control)
	}
	for _, b := range m.log {
		if b.LastOffset >= end {
			break
		}
		s.log = append(s.log, b)
		for _, c := range b.Control {
			control = append(control, ControlAt{b.BaseOffset, c})
		}
	}
	if len(s.log) == 0 {
		return SnapshotCreated{}, false
	}
	last := s.log[len(s.log)-1]
	s.id = OffsetAndEpoch{last.LastOffset + 1, last.Epoch}
	if n := len(m.snapshots); n > 0 && m.snapshots[n-1].id.Offset >= s.id.Offset {
		return SnapshotCreated{}, false
	}
	for _, c := range control { // the newest of each kind
		switch c.Record.(type) {
		case KRaftVersion, Voters:
			s.control = slices.DeleteFunc(s.control, func(o ControlAt) bool { return fmt.Sprintf("%T", o.Record) == fmt.Sprintf("%T", c.Record) })
			s.control = append(s.control, ControlAt{s.id.Offset - 1, c.Record})
		case LeaderChange:
		}
	}
	m.snapshots = append(m.snapshots, s)
	return SnapshotCreated{s.id}, true
}

// clean keeps the newest snapshots only, and the log behind them.
func (m *member) clean(keep int) (Cleaned, bool) {
	if len(m.snapshots) == 0 {
		return Cleaned{}, false
	}
	m.snapshots = slices.Clone(m.snapshots[max(len(m.snapshots)-keep, 0):])
	m.logStart = m.snapshots[0].id.Offset
	return Cleaned{m.snapshots[0].id}, true
}

// snapshot lets a member of a world make a snapshot, clean its log, or look for the leader's newest.
func (w *world) snapshot(m *member) error {
	if m.node == nil {
		return nil
	}
	if w.rng.IntN(4) == 0 {
		return w.step(m, LearnSnapshot{})
	}
	settled := m.node.Settled()
	if c, ok := m.snapshotAt(settled - w.rng.Int64N(max(settled/4, 1))); ok {
		w.stats.Snapshots++
		w.logf("%d makes snapshot %+v", m.cfg.Self.ID, c.Snapshot)
		if err := w.step(m, c); err != nil {
			return err
		}
	}
	if w.rng.IntN(2) == 0 {
		if c, ok := m.clean(1 + w.rng.IntN(2)); ok {
			w.logf("%d cleans up to %+v", m.cfg.Self.ID, c.Earliest)
			return w.step(m, c)
		}
	}
	return nil
}

// snapshotCommand runs the commands of scripts that are about snapshots:
//
//	snapshot node=N [end=N]   the member makes one of what is settled, or up to that offset
//	clean node=N [keep=N]     … keeps only that many of them (1), and cuts the log at its start
//	vanish node=N             … its snapshots are gone, though nobody told the core
//	learn node=N              the node shall find out the leader's newest
//	unverified node=N         the download turns out to be damaged
//	fetchsnapshot node=N from=N epoch=N id=OFFSET@EPOCH [position=N] [max=N] [cluster=C]   out of nothing
//	chunk node=N [id=…] [position=N] [bytes=N] [size=N] [error=N]      answers the FetchSnapshot in flight
//	offer node=N id=OFFSET@EPOCH       answers the Fetch in flight
func (s *script) snapshotCommand(t *testing.T, d *datadriven.TestData) bool {
	m := s.chosen(t, d)[0]
	switch d.Cmd {
	case "snapshot":
		end := m.node.Settled()
		d.MaybeScanArgs(t, "end", &end)
		if c, ok := m.snapshotAt(end); ok {
			s.printf("%d: snapshot %d@%d", m.cfg.Self.ID, c.Snapshot.Offset, c.Snapshot.Epoch)
			s.step(m, c)
		}
	case "clean":
		keep := 1
		d.MaybeScanArgs(t, "keep", &keep)
		c, _ := m.clean(keep)
		s.printf("%d: log starts at %d", m.cfg.Self.ID, c.Earliest.Offset)
		s.step(m, c)
	case "vanish":
		m.snapshots = nil
	case "learn":
		s.step(m, LearnSnapshot{})
	case "unverified":
		s.step(m, m.verified(true))
	case "fetchsnapshot":
		s.fetchSnapshot(t, d, m)
	case "chunk":
		s.chunk(t, d, m)
	case "offer":
		r := FetchResponse{Header: Header{Epoch: m.node.state.Epoch, Leader: m.node.state.Leader}, HighWatermark: Unknown, Snapshot: new(position(t, d, "id"))}
		s.step(m, Outcome{Correlation: s.takeFetch(m), Response: r})
	default:
		return false
	}
	return true
}

// takeFetch forgets the Fetch or FetchSnapshot in flight and returns its number.
func (s *script) takeFetch(m *member) Correlation {
	c := m.node.fetch.correlation
	s.net = slices.DeleteFunc(s.net, func(p packet) bool { return p.sender == m.node && p.corr == c })
	return c
}

func (s *script) fetchSnapshot(t *testing.T, d *datadriven.TestData, m *member) {
	cluster, from := "test", int32(0)
	r := FetchSnapshotRequest{ClusterID: &cluster, Snapshot: position(t, d, "id"), MaxBytes: 1 << 20}
	d.ScanArgs(t, "from", &from)
	d.ScanArgs(t, "epoch", (*int32)(&r.Epoch))
	d.MaybeScanArgs(t, "position", &r.Position)
	d.MaybeScanArgs(t, "max", &r.MaxBytes)
	d.MaybeScanArgs(t, "cluster", &cluster)
	r.Replica = testKey(NodeID(from))
	s.nextID++
	s.names[s.nextID] = fmt.Sprintf("snapshot fetch of %d", from)
	s.step(m, Inbound{ID: s.nextID, Conn: ConnID(from), Request: r})
}

func (s *script) chunk(t *testing.T, d *datadriven.TestData, m *member) {
	asked := m.node.conn(m.node.fetch.to).request.(FetchSnapshotRequest)
	r := FetchSnapshotResponse{
		Header:   Header{Epoch: m.node.state.Epoch, Leader: m.node.state.Leader},
		Snapshot: asked.Snapshot, Position: asked.Position, Bytes: 10, Size: 100,
	}
	if d.HasArg("id") {
		r.Snapshot = position(t, d, "id")
	}
	d.MaybeScanArgs(t, "position", &r.Position)
	d.MaybeScanArgs(t, "bytes", &r.Bytes)
	d.MaybeScanArgs(t, "size", &r.Size)
	code := 0
	d.MaybeScanArgs(t, "error", &code)
	r.Error = ErrorCode(code)
	s.step(m, Outcome{Correlation: s.takeFetch(m), Response: r})
}

func (s *script) showSnapshotWork(r Ready, show func(format string, args ...any)) {
	if r.Discard {
		show("discard the download")
	}
	if c := r.Chunk; c != nil {
		show("chunk of %d@%d at %d", c.Snapshot.Offset, c.Snapshot.Epoch, c.Position)
	}
	if r.Verify {
		show("verify the download")
	}
	if i := r.Install; i != nil {
		show("install %d@%d, replaces the log: %v", i.Snapshot.Offset, i.Snapshot.Epoch, i.Replaces)
	}
}

func (m *member) describeSnapshots() string {
	if len(m.snapshots) == 0 {
		return ""
	}
	var ids []string
	for _, s := range m.snapshots {
		ids = append(ids, fmt.Sprintf("%d@%d", s.id.Offset, s.id.Epoch))
	}
	return fmt.Sprintf("start=%d snapshots=%s ", m.node.log.start, strings.Join(ids, ","))
}
