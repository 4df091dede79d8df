package storage

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Kind is what a file of a member's directory is. Its name tells.
type Kind string

// The kinds of files. Those with a fixed name are called by it.
const (
	KindMeta       Kind = metaFile
	KindState      Kind = stateFile
	KindEpochs     Kind = epochFile
	KindPartition  Kind = partitionFile
	KindCommitted  Kind = committedFile
	KindSegment    Kind = "segment"
	KindCheckpoint Kind = "checkpoint"
	KindProducers  Kind = "producer snapshot" // Kafka's <20 digits>.snapshot
	KindSpare      Kind = "room for the next quorum-state"
	KindBallast    Kind = "room for when the disk is full"
	KindLock       Kind = "lock"
	KindLeftover   Kind = "leftover" // of an interrupted write, or waiting to be deleted; the next start removes it
	KindKafka      Kind = "of Kafka" // an index, or a list of offsets: derived, never read here
	KindUnknown    Kind = "unknown"
)

// KindOf tells the kind of a file by the last part of its name.
func KindOf(name string) Kind {
	switch name {
	case metaFile, stateFile, epochFile, partitionFile, committedFile:
		return Kind(name)
	case spareFile:
		return KindSpare
	case ballastFile:
		return KindBallast
	case lockFile:
		return KindLock
	case "bootstrap.checkpoint": // Kafka before 4.4 kept the first records of its metadata here
		return KindCheckpoint
	}
	if _, ok := parseSegmentName(name); ok {
		return KindSegment
	}
	if _, ok := parseCheckpointName(name); ok {
		return KindCheckpoint
	}
	if leftover(name) {
		return KindLeftover
	}
	switch ext := path.Ext(strings.TrimSuffix(name, ".deleted")); {
	case ext == ".snapshot" && ext == path.Ext(name):
		return KindProducers
	case slices.Contains([]string{".index", ".timeindex", ".txnindex", ".snapshot", ".kafka_cleanshutdown"}, ext),
		strings.HasSuffix(name, "-offset-checkpoint"):
		return KindKafka
	}
	return KindUnknown
}

// content is the kind of what is in a file: that of a leftover is the kind it was to have, or had.
func content(name string) Kind {
	kind := KindOf(name)
	for _, suffix := range []string{".tmp", ".deleted", ".part"} {
		if rest, ok := strings.CutSuffix(name, suffix); ok && kind == KindLeftover {
			return content(rest)
		}
	}
	return kind
}

// Part is a stretch of a file with a meaning of its own: one batch, all of a small file, or bytes that mean nothing.
type Part struct {
	Position, Bytes int64
	// Value is a record.Batch, valid only during the call; a Meta; a State; a raft.UUID, the topic id; []raft.OffsetAndEpoch,
	// the epochs; or raft.OffsetAndEpoch, what is committed. It is nil for bytes that mean nothing.
	Value any
	// Err is what is wrong with it by itself or after what comes before it in the file. Value may be there all the same.
	Err error
}

// State is the content of quorum-state.
type State struct {
	raft.ElectionState
	Version int16         // of the file's format
	Voters  []raft.NodeID // version 0 only
}

// Readable reports whether Inspect knows what is in a file of this name. Of others it says nothing.
func Readable(name string) bool {
	switch content(path.Base(name)) {
	case KindSpare, KindBallast, KindLock, KindLeftover, KindKafka, KindUnknown:
		return false
	default:
		return true
	}
}

// Inspect reads a file, whose kind its name tells, and hands all of it to visit, part by part, from its first byte to its
// last; damage does not end it. A file of batches is never held in memory. Nothing is locked or changed. The error is
// one of reading, or visit's.
func Inspect(fsys vfs.FS, name string, visit func(Part) error) error {
	base := path.Base(name)
	if !Readable(base) {
		return nil
	}
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	kind := content(base)
	if kind == KindSegment || kind == KindCheckpoint {
		w := walker{file: f, size: size, visit: visit, expect: expect{next: -1, epoch: -1}}
		if kind == KindCheckpoint {
			w.snap, w.next = new(snapshot), 0
		}
		for _, suffix := range []string{"", ".tmp", ".deleted"} {
			name := strings.TrimSuffix(base, suffix)
			if id, ok := parseCheckpointName(name); ok {
				w.snap.id = &id
			}
			if base, ok := parseSegmentName(name); ok {
				w.next = base
			}
		}
		return w.run()
	}
	if size > maxSmallFile {
		return visit(Part{Bytes: size, Err: fmt.Errorf("%d bytes, want at most %d", size, maxSmallFile)})
	}
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	p := Part{Bytes: int64(len(b))}
	p.Value, p.Err = parseSmall(kind, b)
	if unexpected, ok := errors.AsType[*unexpectedByteError](p.Err); ok {
		p.Position = unexpected.position
		p.Bytes -= p.Position
	}
	return visit(p)
}

// maxSmallFile bounds what is read at once: a leader-epoch-checkpoint of a million epochs is smaller.
const maxSmallFile = 32 << 20

func parseSmall(kind Kind, b []byte) (any, error) {
	switch kind {
	case KindMeta:
		m, err := decodeMeta(b)
		if err != nil {
			return nil, err
		}
		return m, exactMeta(b)
	case KindState:
		return parseState(b)
	case KindPartition:
		id, err := decodePartition(b)
		if err != nil {
			return nil, err
		}
		return id, exact(b, encodePartition(id))
	case KindProducers:
		return nil, checkProducers(b)
	case KindCommitted:
		p, err := decodeCommitted(b)
		if err != nil {
			return nil, err
		}
		return p, exact(b, encodeCommitted(p))
	default:
		entries, err := decodeEpochs(b)
		if err != nil {
			return nil, err
		}
		if len(b) == 0 {
			return entries, nil
		}
		return entries, exact(b, encodeEpochs(entries))
	}
}

func parseState(b []byte) (any, error) {
	election, err := decodeQuorumState(b)
	if err != nil {
		return nil, err
	}
	var more struct {
		Version int16     `json:"data_version"`
		Voters  []voterV0 `json:"currentVoters"`
	}
	if err := json.Unmarshal(b, &more); err != nil {
		return nil, err
	}
	s := State{ElectionState: election, Version: more.Version}
	var voters raft.VoterSet // in the order of the file
	for _, v := range more.Voters {
		if v.VoterID == nil || *v.VoterID < 0 || slices.Contains(s.Voters, *v.VoterID) {
			return s, errors.New("currentVoters: want different ids from 0")
		}
		s.Voters = append(s.Voters, *v.VoterID)
		voters = append(voters, raft.Voter{Key: raft.ReplicaKey{ID: *v.VoterID}})
	}
	if !bytes.Contains(b, []byte(stateSum)) {
		return s, exact(b, plainQuorumState(election, s.Version, voters))
	}
	want := encodeQuorumState(election, s.Version, voters)
	if !bytes.HasSuffix(b, []byte(" ")) { // as it was written before it had a spare
		want = bytes.TrimRight(want, " ")
	}
	return s, exact(b, want)
}

// unexpectedByteError is the first difference between a small file and what would be written for its meaning: a reader may not
// mind, but no writer made it so.
type unexpectedByteError struct {
	position  int64
	got, want string
}

func (e *unexpectedByteError) Error() string {
	return fmt.Sprintf("%s, want %s: nobody writes it so", e.got, e.want)
}

// exact compares a file with what would be written for it.
func exact(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	show := func(b []byte) string {
		if at == len(b) {
			return "the end"
		}
		return fmt.Sprintf("%q", b[at:min(len(b), at+12)])
	}
	return &unexpectedByteError{int64(at), show(got), show(want)}
}

// exactMeta allows what Kafka and we write: comments, then each key once, in any order.
func exactMeta(b []byte) error {
	var comments, keys []string
	at := int64(0)
	for line := range strings.Lines(string(b)) {
		key, _, _ := strings.Cut(line, "=")
		switch {
		case !strings.HasSuffix(line, "\n"):
			return &unexpectedByteError{at + int64(len(line)), "the end", "a new line"}
		case strings.IndexFunc(line[:len(line)-1], func(r rune) bool { return r < ' ' || r > '~' }) >= 0:
			return &unexpectedByteError{at, fmt.Sprintf("%q", line), "ASCII"}
		case line[0] == '#' && len(keys) == 0:
			comments = append(comments, line)
		case !slices.Contains([]string{"version", "cluster.id", "node.id", "directory.id"}, key), slices.Contains(keys, key):
			return &unexpectedByteError{at, fmt.Sprintf("%q", line), "each of version, cluster.id, node.id and directory.id once"}
		default:
			keys = append(keys, key)
		}
		at += int64(len(line))
	}
	// Kafka writes an empty comment and the time, we our checksum, which was compared already. Whoever edits the file takes
	// that line away, as the error says; no single changed byte does.
	n := len(comments)
	if n == 0 || n == 1 && strings.HasPrefix(comments[0], textSum) {
		return nil
	}
	if n == 2 && comments[0] == "#\n" {
		if _, err := time.Parse("#Mon Jan _2 15:04:05 MST 2006\n", comments[1]); err == nil {
			return nil
		}
	}
	return &unexpectedByteError{0, fmt.Sprintf("%q", comments), "an empty comment and one with the time, or a checksum"}
}

// checkProducers checks the one thing that is known of Kafka's file: version 1, CRC-32C of what follows it.
func checkProducers(b []byte) error {
	if len(b) < 10 || binary.BigEndian.Uint16(b) != 1 {
		return fmt.Errorf("%d bytes of an unknown version, want at least 10 of version 1", len(b))
	}
	if sum, want := crc32.Checksum(b[6:], castagnoli), binary.BigEndian.Uint32(b[2:]); sum != want {
		return fmt.Errorf("CRC is %08x, the file says %08x", sum, want)
	}
	return nil
}

// walker reads a file of batches, also beyond damage.
type walker struct {
	file  io.ReaderAt
	size  int64
	visit func(Part) error
	snap  *snapshot // nil in a log
	expect
	scratch []byte
}

// expect is what the next batch has to continue.
type expect struct {
	next  int64      // offset; -1: any
	epoch raft.Epoch // of the batch before; -1: none
	at    int64      // position of the batch before
}

// snapshot is what is known of a checkpoint while it is read. A Kafka controller numbers the records of one from 0, without
// a gap, all in the epoch of its name; a compacted one keeps the offsets and epochs that its batches had in the log.
type snapshot struct {
	id         *raft.OffsetAndEpoch // by its name
	head, last record.ControlType   // first and latest record
	gaps       bool
	odd        *Part // the first batch of another epoch than the name's
	sum        uint32
	torn       bool // the sum is not of all bytes
}

func (w *walker) run() error {
	sc := scanner{file: w.file, size: w.size}
	for {
		at := sc.position
		b, err := sc.next()
		p := Part{Position: at}
		switch {
		case errors.Is(err, io.EOF):
			return w.end()
		case errors.Is(err, record.ErrShort), errors.Is(err, record.ErrCorrupt):
			to, err2 := w.resync(at)
			if err2 != nil {
				return err2
			}
			p.Bytes, p.Err = to-at, w.explain(at, to, err)
			sc = scanner{file: w.file, size: w.size, position: to, buf: sc.buf}
			w.next, w.at = -1, at
			if w.snap != nil {
				w.snap.last, w.snap.torn = 0, true
			}
		case err != nil:
			return fmt.Errorf("at position %d: %w", at, err)
		default:
			p.Bytes, p.Value = int64(b.Size), b
			p.Err = cmp.Or(w.follows(at, b), w.holds(at, b))
			if w.snap != nil {
				w.snap.sum = crc32.Update(w.snap.sum, castagnoli, b.Raw)
			}
			w.next, w.epoch, w.at = b.NextOffset(), b.Epoch, at
			if p.Err != nil {
				w.next = -1 // one complaint is enough
			}
		}
		if err := w.visit(p); err != nil {
			return err
		}
	}
}

// errOutOfPlace is wrapped by what is wrong with a batch that is whole: it does not go on where the one before ends.
var errOutOfPlace = errors.New("batch is out of place")

func outOfPlace(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errOutOfPlace, fmt.Sprintf(format, args...))
}

// follows compares a whole batch with the one before it: what its checksum does not cover.
func (w *walker) follows(at int64, b record.Batch) error {
	gap := w.next >= 0 && b.BaseOffset != w.next
	if s := w.snap; s != nil && s.id != nil {
		if b.Epoch != s.id.Epoch && s.odd == nil {
			s.odd = &Part{Position: at, Bytes: int64(b.Size), Err: outOfPlace("epoch %d in a checkpoint of epoch %d", b.Epoch, s.id.Epoch)}
		}
		switch {
		case b.Epoch > s.id.Epoch, b.IsControl() && b.Epoch != s.id.Epoch:
			return s.odd.Err
		case gap && b.IsControl() && b.BaseOffset == s.id.Offset, // the foot
			// The head's offsets are its own, and the log may have had others from 0 on.
			gap && !b.IsControl() && (b.BaseOffset > w.next || w.at == 0) && b.NextOffset() <= s.id.Offset:
			s.gaps, gap = true, false
		}
	}
	switch {
	case gap && w.epoch < 0:
		return outOfPlace("base offset %d, want %d", b.BaseOffset, w.next)
	case gap: // whichever of the two has changed
		return outOfPlace("base offset %d, want %d after the batch at position %d", b.BaseOffset, w.next, w.at)
	case b.Epoch < 0, b.Epoch < w.epoch && (w.snap == nil || w.at > 0):
		return outOfPlace("epoch %d after epoch %d at position %d", b.Epoch, w.epoch, w.at)
	}
	return nil
}

// holds reads the records of a batch.
func (w *walker) holds(at int64, b record.Batch) error {
	s := w.snap
	if !b.IsControl() {
		if s != nil {
			s.last = 0
		}
		for _, err := range b.Records() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	controls, err := record.DecodeControls(b)
	if err != nil {
		return err
	}
	for _, c := range controls {
		switch {
		case s == nil && c.Record == nil:
			return fmt.Errorf("offset %d: %s in a log", c.Offset, c.Type)
		case s == nil:
			continue
		case at == 0 && s.head == 0:
			s.head = c.Type
			if c.Type != record.TypeSnapshotHeader {
				return fmt.Errorf("offset %d: a checkpoint begins with %s, want SnapshotHeader", c.Offset, c.Type)
			}
		case s.last == record.TypeSnapshotFooter, c.Type == record.TypeSnapshotHeader:
			return fmt.Errorf("offset %d: %s after %s", c.Offset, c.Type, cmp.Or(s.last, s.head))
		case c.Summed && c.Sum != s.sum && !s.torn:
			s.last = c.Type
			return fmt.Errorf("CRC of all before it is %08x, the SnapshotFooter says %08x: some batch has another offset or epoch than it had", s.sum, c.Sum)
		}
		s.last = c.Type
	}
	return nil
}

// end complains of what only the whole of a checkpoint shows.
func (w *walker) end() error {
	s := w.snap
	switch {
	case s == nil:
		return nil
	case s.head == 0 && s.last != 0:
		return w.visit(Part{Err: errors.New("the checkpoint begins without a SnapshotHeader")})
	case s.last != record.TypeSnapshotFooter:
		return w.visit(Part{Position: w.size, Err: errors.New("the checkpoint ends without a SnapshotFooter")})
	case s.odd != nil && !s.gaps:
		return w.visit(*s.odd)
	}
	return nil
}

// resync finds where a whole batch begins again after damage at a position: right behind the damaged one, if its length
// is as it was, else wherever one has its checksum. It is the end of the file if there is none.
func (w *walker) resync(at int64) (int64, error) {
	if h, err := w.header(at); err == nil {
		if to := at + int64(h.Size); to == w.size || w.whole(to) {
			return to, nil
		}
	}
	buf := make([]byte, min(scanBuffer, w.size-at))
	for from := at + 1; from+record.HeaderSize <= w.size; from += int64(len(buf) - record.HeaderSize + 1) {
		n, err := w.file.ReadAt(buf[:min(int64(len(buf)), w.size-from)], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("at position %d: %w", from, err)
		}
		for i := range max(0, n-record.HeaderSize+1) {
			if buf[i+16] != record.Magic {
				continue // most bytes are not the seventeenth of a batch
			}
			if h, err := record.ParseHeader(buf[i:n]); err == nil && h.BaseOffset >= max(0, w.next) && w.whole(from+int64(i)) {
				return from + int64(i), nil
			}
		}
	}
	return w.size, nil
}

// header reads that of a batch.
func (w *walker) header(at int64) (record.Header, error) {
	var b [record.HeaderSize]byte
	n, err := w.file.ReadAt(b[:], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return record.Header{}, err
	}
	return record.ParseHeader(b[:n])
}

// whole reports whether an undamaged batch begins at a position. What cannot be read is none; the walk will meet it.
func (w *walker) whole(at int64) bool {
	h, err := w.header(at)
	if err != nil || int64(h.Size) > w.size-at {
		return false
	}
	if cap(w.scratch) < h.Size {
		w.scratch = make([]byte, h.Size)
	}
	n, err := w.file.ReadAt(w.scratch[:h.Size], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	_, err = record.Parse(w.scratch[:n])
	return err == nil
}

// explain adds to the error of a damaged stretch what a person asks next.
func (w *walker) explain(at, to int64, err error) error {
	zeros := true
	buf := make([]byte, min(to-at, scanBuffer))
	for from := at; zeros && from < to; from += int64(len(buf)) {
		n, err := w.file.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		if n == 0 && err != nil {
			break
		}
		zeros = !slices.ContainsFunc(buf[:n], func(b byte) bool { return b != 0 })
	}
	switch {
	case zeros:
		return fmt.Errorf("%w: %d zero bytes", record.ErrCorrupt, to-at)
	case to < w.size:
		return fmt.Errorf("%w; whole batches go on at position %d", err, to)
	}
	return err
}
