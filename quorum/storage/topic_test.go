package storage_test

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

var histories = flag.Uint64("histories", 1000, "how many random lives TestCompactedTopicEqualsTheModel runs")

// entry is a record as a client sees it.
type entry struct {
	offset, timestamp int64
	key               string
	value             string // "": a tombstone
}

// topic is the model: all that was ever appended.
type topic struct {
	entries []entry
	batches map[int64][]record.Header // of each producer
	epochs  map[int64]raft.Epoch      // of each offset
	next    int64

	covered  int64           // what the newest checkpoint covers
	horizons map[int64]int64 // of the tombstones that have been in a checkpoint
	dropped  map[int64]bool  // tombstones that are gone for good
}

func newTopic() *topic {
	return &topic{batches: map[int64][]record.Header{}, epochs: map[int64]raft.Epoch{}, horizons: map[int64]int64{}, dropped: map[int64]bool{}}
}

// compact is what a compaction up to an offset does.
func (m *topic) compact(upTo, now int64, retention time.Duration) {
	m.covered = upTo
	for _, e := range m.entries {
		if e.offset >= upTo || e.value != "" {
			continue
		}
		if h, ok := m.horizons[e.offset]; !ok {
			m.horizons[e.offset] = now + retention.Milliseconds()
		} else if h <= now {
			m.dropped[e.offset] = true
		}
	}
}

// visible lists what a client sees that reads from an offset to another.
func (m *topic) visible(from, upTo int64) []entry {
	newest := map[string]int64{}
	for _, e := range m.entries {
		if e.offset < m.covered {
			newest[e.key] = e.offset
		}
	}
	var seen []entry
	for _, e := range m.entries {
		hidden := e.offset < m.covered && (newest[e.key] != e.offset || m.dropped[e.offset])
		if e.offset >= from && e.offset < upTo && !hidden {
			seen = append(seen, e)
		}
	}
	return seen
}

// history is a random life of a directory, with the model beside it.
type history struct {
	t     *testing.T
	rng   *rand.Rand
	disk  *vfs.Mem
	o     storage.Options
	d     *storage.Dir
	m     *topic
	epoch raft.Epoch
	clock raft.Instant // of appends
	now   int64        // milliseconds since 1970
	seq   map[int64]int32
	set   raft.VoterSet // in force at the end

	compactions int
	reader      reader
}

const retention = 24 * time.Hour

func (h *history) append() {
	if h.rng.IntN(8) == 0 { // a leader begins, or the voters change
		h.epoch++
		h.elect()
		control := []raft.ControlRecord{raft.LeaderChange{Leader: 1, Voters: []raft.NodeID{1}, Granting: []raft.NodeID{1}}}
		if h.m.next == 0 || h.rng.IntN(2) == 0 {
			h.set = slices.Clone(h.set)
			h.set[0].Endpoints = []raft.Endpoint{{Name: "CONTROLLER", Host: fmt.Sprintf("q-%d", h.m.next), Port: 9093}}
			control = append(control, raft.KRaftVersion{Version: 1}, raft.Voters{Set: h.set})
		}
		h.put(record.EncodeControl(h.m.next, h.epoch, h.now, control...))
		return
	}
	b := record.NewBuilder(h.now, record.Codec(h.rng.IntN(5)))
	n := 1 + h.rng.IntN(4)
	if producer := int64(h.rng.IntN(4)); producer > 0 {
		b.Producer(producer, 0, h.seq[producer])
		h.seq[producer] += int32(n)
	}
	for i := range n {
		e := entry{offset: h.m.next + int64(i), timestamp: h.now + h.rng.Int64N(50) - 25, key: fmt.Sprintf("key-%d", h.rng.IntN(12))}
		var value []byte
		if h.rng.IntN(4) > 0 {
			value = fmt.Appendf(nil, "%d-%0*d", e.offset, h.rng.IntN(100), 0)
		}
		e.value = string(value)
		b.Append(e.timestamp, []byte(e.key), value)
		h.m.entries = append(h.m.entries, e)
	}
	raw, err := b.Build(h.m.next, h.epoch)
	if err != nil {
		h.t.Fatal(err)
	}
	h.put(raw)
}

// elect writes down who leads the epoch.
func (h *history) elect() {
	if err := h.d.WriteElectionState(raft.ElectionState{Epoch: h.epoch, Leader: 1, Voted: raft.NoReplica}, 1, nil); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) put(raw []byte) {
	header, err := record.ParseHeader(raw)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.d.Log.Append(h.clock, raw); err != nil {
		h.t.Fatal(err)
	}
	if header.ProducerID >= 0 {
		h.m.batches[header.ProducerID] = append(h.m.batches[header.ProducerID], header)
	}
	h.m.epochs[header.BaseOffset] = header.Epoch
	h.m.next = header.NextOffset()
}

// compact makes a checkpoint, in several passes if the keys are given little memory.
func (h *history) compact() {
	upTo := mustFlush(h.t, h.d)
	if upTo > 0 && h.rng.IntN(2) == 0 {
		upTo = h.rng.Int64N(upTo)
	}
	o := storage.CompactOptions{UpTo: upTo, Now: h.now, DeleteRetention: retention, KeyMemory: 1 << (9 + h.rng.IntN(12))}
	for {
		c, err := h.d.BeginCompaction(o)
		if errors.Is(err, storage.ErrNothingNew) {
			return
		}
		if err != nil {
			h.t.Fatal(err)
		}
		info, err := c.Run()
		if errors.Is(err, storage.ErrNothingNew) { // upTo is inside a batch
			return
		}
		if err != nil {
			h.t.Fatal(err)
		}
		if _, boundary := h.m.epochs[info.ID.Offset]; !boundary && info.ID.Offset != h.m.next || info.ID.Offset > upTo {
			h.t.Fatalf("compaction up to %d made %v, which is no batch's end at or below it", upTo, info.ID)
		}
		h.compactions++
		h.m.compact(info.ID.Offset, h.now, retention)
		if want := int64(len(h.m.visible(0, info.ID.Offset))); info.Records != want {
			h.t.Fatalf("checkpoint %v says that it has %d records, want %d", info.ID, info.Records, want)
		}
	}
}

func (h *history) reopen() {
	if h.rng.IntN(2) == 0 {
		mustClose(h.t, h.d)
	} else {
		h.d.Abandon()
	}
	var heard []record.Header
	o := h.o
	o.OnBatch = func(b record.Batch) { heard = append(heard, b.Header) }
	h.d = open(h.t, h.disk, o)
	h.checkProducers(heard)
	h.checkVoters(h.d.LogState().Control)
}

// checkProducers: whoever hears the batches knows the last five of each producer.
func (h *history) checkProducers(heard []record.Header) {
	h.t.Helper()
	if !slices.IsSortedFunc(heard, func(a, b record.Header) int { return cmp.Compare(a.BaseOffset, b.BaseOffset) }) {
		h.t.Fatalf("batches out of order: %+v", heard)
	}
	for id, batches := range h.m.batches {
		for _, want := range batches[max(0, len(batches)-5):] {
			i := slices.IndexFunc(heard, func(g record.Header) bool { return g.BaseOffset == want.BaseOffset })
			if i < 0 {
				h.t.Fatalf("the batch of producer %d at offset %d is not heard of", id, want.BaseOffset)
			}
			if g := heard[i]; g.ProducerID != id || g.ProducerEpoch != want.ProducerEpoch || g.BaseSequence != want.BaseSequence || g.LastSequence() != want.LastSequence() {
				h.t.Fatalf("batch of producer %d: %+v, was %+v", id, g, want)
			}
		}
	}
}

func (h *history) checkVoters(control []raft.ControlAt) {
	h.t.Helper()
	for _, c := range slices.Backward(control) {
		v, ok := c.Record.(raft.Voters)
		if !ok {
			continue
		}
		if fmt.Sprint(v.Set) != fmt.Sprint(h.set) {
			h.t.Fatalf("voters %v, want %v", v.Set, h.set)
		}
		return
	}
	h.t.Fatal("no voters")
}

// clean lets retention at it, with limits so low that something must go now and then.
func (h *history) clean() {
	o := storage.CleanOptions{Now: h.clock, HighWatermark: h.d.Log.FlushedEnd(), MaxBytes: 1 + h.rng.Int64N(8000)}
	if h.rng.IntN(3) == 0 {
		o.MaxAge = time.Duration(h.rng.Int64N(int64(48 * time.Hour)))
	}
	before := h.d.Checkpoints()
	if c := h.d.BeginClean(o); c != nil {
		if err := c.Run(); err != nil {
			h.t.Fatal(err)
		}
	}
	after := h.d.Checkpoints()
	if len(before) > 0 && (len(after) == 0 || after[len(after)-1] != before[len(before)-1]) {
		h.t.Fatalf("the newest checkpoint went: %v, then %v", before, after)
	}
	if start := h.d.Log.Start(); start > 0 && (len(after) == 0 || start > after[0].ID.Offset) {
		h.t.Fatalf("the log starts at %d, checkpoints %v", start, after)
	}
}

// catchUp gives another directory the newest checkpoint in pieces, and the log behind it; that one goes on in this one's
// place.
func (h *history) catchUp() {
	infos := h.d.Checkpoints()
	if len(infos) == 0 {
		return
	}
	id := infos[len(infos)-1].ID
	disk := formatted(h.t)
	follower := open(h.t, disk, h.o)
	w, err := follower.BeginDownload(id)
	if err != nil {
		h.t.Fatal(err)
	}
	var buf []byte
	for {
		var size int64
		if buf, size, err = h.d.ReadCheckpoint(buf, id, w.Size(), 1+h.rng.IntN(3000)); err != nil {
			h.t.Fatal(err)
		}
		if err := w.Append(buf); err != nil {
			h.t.Fatal(err)
		}
		if w.Size() == size {
			break
		}
	}
	var heard []record.Header
	controls, err := w.Verify(func(b record.Batch) { heard = append(heard, b.Header) })
	if err != nil {
		h.t.Fatal(err)
	}
	if h.rng.IntN(3) == 0 { // it dies before the log is replaced
		if err := follower.Install(w, false); err != nil {
			h.t.Fatal(err)
		}
		follower.Abandon()
		o := h.o
		heard = nil
		o.OnBatch = func(b record.Batch) { heard = append(heard, b.Header) }
		follower = open(h.t, disk, o)
		controls = follower.LogState().Control
	} else if err := follower.Install(w, true); err != nil {
		h.t.Fatal(err)
	}
	if start, end := follower.Log.Start(), follower.Log.End(); start != id.Offset || end != id.Offset || follower.Log.FlushedEnd() != end || follower.Log.Committed() > end {
		h.t.Fatalf("after %v the log is [%d, %d)", id, start, end)
	}
	mustFlush(h.t, h.d)
	if err := h.d.Log.Walk(id.Offset, h.d.Log.End(), func(b record.Batch) error {
		heard = append(heard, b.Header)
		if b.IsControl() {
			records, err := record.DecodeControl(b)
			if err != nil {
				return err
			}
			for _, r := range records {
				controls = append(controls, raft.ControlAt{Offset: b.BaseOffset, Record: r})
			}
		}
		return follower.Log.Append(h.clock, bytes.Clone(b.Raw))
	}); err != nil {
		h.t.Fatal(err)
	}
	mustFlush(h.t, follower)
	h.checkProducers(heard)
	h.checkVoters(controls)
	h.d.Abandon()
	h.disk, h.d = disk, follower
	h.elect()
}

// read reads from an offset to the end, or to a limit, as a client does.
func (h *history) read(from, upTo int64) []entry {
	h.t.Helper()
	var seen []entry
	var buf []byte
	for at := from; at < upTo; {
		var err error
		maxBytes := 1 + h.rng.IntN(2000)
		if buf, err = h.d.ReadFrom(buf, at, maxBytes, upTo); err != nil {
			h.t.Fatalf("read from %d below %d: %v", at, upTo, err)
		}
		if len(buf) == 0 {
			h.t.Fatalf("a client that reads up to %d is stuck at %d, checkpoint at %d, log [%d, %d)", upTo, at, h.m.covered, h.d.Log.Start(), h.d.Log.End())
		}
		entries, next := h.parse(buf, at)
		seen = append(seen, entries...)
		at = next
	}
	return seen
}

func (h *history) parse(p []byte, from int64) (seen []entry, next int64) {
	h.t.Helper()
	next = from
	for b, err := range record.All(p) {
		if err != nil {
			h.t.Fatal(err)
		}
		if b.BaseOffset < next && next > from || b.NextOffset() <= from || h.m.epochs[b.BaseOffset] != b.Epoch && b.NextOffset() != h.m.covered {
			h.t.Fatalf("read from %d: batch %d-%d epoch %d, want epoch %d", from, b.BaseOffset, b.LastOffset(), b.Epoch, h.m.epochs[b.BaseOffset])
		}
		next = b.NextOffset()
		if b.IsControl() {
			if b.BaseOffset < h.m.covered {
				h.t.Fatalf("clients are shown the control batch at %d of a checkpoint", b.BaseOffset)
			}
			continue
		}
		for r, err := range b.Records() {
			if err != nil {
				h.t.Fatal(err)
			}
			if r.Offset >= from {
				seen = append(seen, entry{r.Offset, r.Timestamp, string(r.Key), string(r.Value)})
			}
		}
	}
	return seen, next
}

// reader is a client that reads a bit now and then, whatever happens in between.
type reader struct {
	next  int64
	state map[string]string
}

func (r *reader) poll(h *history, maxBytes int) bool {
	p, err := h.d.ReadFrom(nil, r.next, maxBytes, h.d.Log.FlushedEnd())
	if err != nil {
		h.t.Fatal(err)
	}
	if len(p) == 0 {
		return false
	}
	entries, next := h.parse(p, r.next)
	for _, e := range entries {
		if r.next = next; e.value == "" {
			delete(r.state, e.key)
		} else {
			r.state[e.key] = e.value
		}
	}
	r.next = next
	return true
}

func (h *history) check() {
	h.t.Helper()
	upTo := mustFlush(h.t, h.d)
	if h.rng.IntN(3) == 0 && upTo > h.m.covered {
		upTo = h.m.covered + h.rng.Int64N(upTo-h.m.covered+1)
		for ; upTo < h.m.next; upTo++ {
			if _, boundary := h.m.epochs[upTo]; boundary {
				break
			}
		}
	}
	for _, from := range []int64{0, h.rng.Int64N(upTo + 1), h.rng.Int64N(upTo + 1), min(h.m.covered, upTo)} {
		got, want := h.read(from, upTo), h.m.visible(from, upTo)
		if !slices.Equal(got, want) {
			h.t.Fatalf("read from %d below %d, checkpoint at %d:\n%v\nwant\n%v", from, upTo, h.m.covered, got, want)
		}
	}
	timestamp := h.now - h.rng.Int64N(200)
	p, found, err := h.d.OffsetForTimestamp(timestamp, upTo)
	if err != nil {
		h.t.Fatal(err)
	}
	visible := h.m.visible(0, upTo)
	i := slices.IndexFunc(visible, func(e entry) bool { return e.timestamp >= timestamp })
	if i >= 0 && (!found || p.Offset > visible[i].offset) || found && p.Timestamp < timestamp {
		h.t.Fatalf("first record at time %d: %+v %v, want %+v", timestamp, p, found, visible[max(i, 0)])
	}
}

// TestCompactedTopicEqualsTheModel (ST-11): whatever was put, overwritten, deleted, compacted, cleaned, downloaded and
// reopened, a client that reads from anywhere sees the newest record of each key at its offset, and then the log.
func TestCompactedTopicEqualsTheModel(t *testing.T) {
	n, compactions := *histories, 0
	if testing.Short() {
		n = min(n, 100)
	}
	for seed := range n {
		compactions += runHistory(t, seed)
	}
	t.Logf("%d histories, %d compactions", n, compactions)
}

func runHistory(t *testing.T, seed uint64) int {
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 11))
	h := &history{
		t: t, rng: rng, disk: formatted(t), o: opts, m: newTopic(), epoch: 1, now: 1_800_000_000_000,
		seq: map[int64]int32{}, set: voters(), reader: reader{state: map[string]string{}},
	}
	h.o.SegmentBytes = 300 + rng.Int64N(4000)
	h.d = open(t, h.disk, h.o)
	h.elect()
	h.put(record.EncodeControl(0, 1, h.now, raft.LeaderChange{Leader: 1}, raft.KRaftVersion{Version: 1}, raft.Voters{Set: h.set}))
	slow := rng.IntN(2) == 0 // some clients sleep longer than tombstones stay
	for range 60 {
		step := rng.Int64N(20_000)
		if slow && rng.IntN(10) == 0 {
			step = rng.Int64N(2 * retention.Milliseconds())
		}
		h.now += step
		h.clock += raft.Instant(step * int64(time.Millisecond))
		switch n := rng.IntN(100); {
		case n < 60:
			h.append()
		case n < 72:
			h.compact()
		case n < 78:
			h.clean()
		case n < 82:
			h.reopen()
		case n < 85:
			h.catchUp()
		case n < 92:
			h.check()
		default:
			mustFlush(t, h.d)
			h.reader.poll(h, 1+rng.IntN(1000))
		}
	}
	h.check()
	for h.reader.poll(h, 1+rng.IntN(1000)) {
	}
	final := map[string]string{}
	for _, e := range h.m.entries {
		if e.value == "" {
			delete(final, e.key)
		} else {
			final[e.key] = e.value
		}
	}
	if !slow && !maps.Equal(h.reader.state, final) {
		t.Fatalf("a client that read all along has\n%v\nwant\n%v", h.reader.state, final)
	}
	mustClose(t, h.d)
	r, err := storage.Verify(h.disk, dataDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Severity != storage.Note {
			t.Fatalf("verify: %s", f)
		}
	}
	return h.compactions
}
