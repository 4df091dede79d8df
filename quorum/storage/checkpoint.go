package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// checkpointName is <end offset>-<epoch>.checkpoint; the end offset is exclusive (KIP-630). 0-0 is the bootstrap
// checkpoint: local to the directory, never replicated (KIP-853).
func checkpointName(id raft.OffsetAndEpoch) string {
	return fmt.Sprintf("%020d-%010d.checkpoint", id.Offset, id.Epoch)
}

func parseCheckpointName(name string) (raft.OffsetAndEpoch, bool) {
	digits, ok := strings.CutSuffix(name, ".checkpoint")
	if !ok || len(digits) != 31 || digits[20] != '-' {
		return raft.OffsetAndEpoch{}, false
	}
	offset, err1 := strconv.ParseInt(digits[:20], 10, 64)
	epoch, err2 := strconv.ParseInt(digits[21:], 10, 32)
	if err1 != nil || err2 != nil || offset < 0 || epoch < 0 {
		return raft.OffsetAndEpoch{}, false
	}
	return raft.OffsetAndEpoch{Offset: offset, Epoch: raft.Epoch(epoch)}, true
}

// bootstrapCheckpoint is the content of a 0-0 checkpoint: head with kraft.version and voters, foot. kraft.version 0 has
// neither record, and without voters there is no Voters record.
func bootstrapCheckpoint(timestamp int64, kraftVersion int16, voters raft.VoterSet) []byte {
	head := []record.Control{{Type: record.TypeSnapshotHeader, LastContainedLogTimestamp: timestamp}}
	if kraftVersion >= 1 {
		head = append(head, record.Control{Type: record.TypeKRaftVersion, Record: raft.KRaftVersion{Version: kraftVersion}})
		if len(voters) > 0 {
			head = append(head, record.Control{Type: record.TypeVoters, Record: raft.Voters{Set: voters}})
		}
	}
	foot := record.Control{Type: record.TypeSnapshotFooter}
	return slices.Concat(
		record.EncodeControls(0, 0, timestamp, head...),
		record.EncodeControls(int64(len(head)), 0, timestamp, foot))
}

// CheckpointInfo describes a finished checkpoint.
type CheckpointInfo struct {
	ID        raft.OffsetAndEpoch
	Size      int64 // bytes of the file
	Records   int64 // of the topic that it holds, tombstones too; -1: an older one, not read by this process
	Timestamp int64 // of the last record of the log that it covers, milliseconds since 1970; -1 with Records
}

// Errors of reading and making checkpoints. Test with errors.Is.
var (
	ErrNoCheckpoint = errors.New("no such checkpoint")              // never was, or is cleaned away
	ErrPosition     = errors.New("position is not in the file")     // below 0, or at or beyond its size
	ErrNothingNew   = errors.New("the newest checkpoint covers it") // nothing to compact
	ErrCanceled     = errors.New("compaction was canceled")         // by Cancel
)

// checkpoint is a finished one. Only the newest is ever read as part of the topic; of older ones no more is known than
// what FetchSnapshot needs.
type checkpoint struct {
	CheckpointInfo
	view                              // its data batches; no step: not known
	maxTimestamp int64                // of them
	controls     []raft.ControlRecord // KRaftVersion and Voters

	// guarded by checkpoints.mu
	asked bool         // a FetchSnapshot has read it since the last BeginClean
	aged  bool         // BeginClean has seen it:
	seen  raft.Instant // first
	until raft.Instant // it stays until then, since somebody reads it
}

// placed puts the control records at the last offset that the checkpoint covers: the log goes on behind it, and may be cut
// back to there. For the bootstrap checkpoint that is -1.
func (c *checkpoint) placed() []raft.ControlAt {
	var placed []raft.ControlAt
	for _, r := range c.controls {
		placed = append(placed, raft.ControlAt{Offset: c.ID.Offset - 1, Record: r})
	}
	return placed
}

// walk calls fn for the data batches from offset on, up to upTo.
func (c *checkpoint) walk(from, upTo int64, fn func(record.Batch) error) error {
	_, err := c.view.walk(from, upTo, fn)
	return err
}

// maxIndex bounds the index of a checkpoint, in entries: however large it grows, an entry then stands for more bytes.
const maxIndex = 4096

// inspection checks the batches of a checkpoint as they come by and notes where they are.
//
// A checkpoint is a control batch whose first record is a SnapshotHeader, data batches, and a control batch that ends with
// a SnapshotFooter. Data lies below the offset of its name, in order, and so do epochs. The control batches are not part
// of that order: the first one has offset 0, and takes more of them if there are voters, which data may have as well. The
// last one is at the offset of the name where we write it, and where it comes to lie where Kafka does.
type inspection struct {
	checkpoint
	batches int
	after   int64      // offset after the first batch
	epoch   raft.Epoch // of the last data batch
	sum     uint32     // CRC-32C of all before the next batch
	footer  bool
	heard   func(record.Batch) // of data batches, or nil
}

func inspect(id raft.OffsetAndEpoch) *inspection {
	return &inspection{checkpoint: checkpoint{CheckpointInfo: CheckpointInfo{ID: id}, maxTimestamp: -1, view: view{step: indexInterval}}}
}

// add takes note of the next batch.
func (i *inspection) add(b record.Batch) error {
	position := i.Size
	i.Size += int64(b.Size)
	i.batches++
	defer func() { i.sum = crc32.Update(i.sum, castagnoli, b.Raw) }()
	bad := func(format string, args ...any) error {
		return fmt.Errorf("position %d: %w: %s", position, record.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	switch {
	case i.footer:
		return bad("a batch follows the SnapshotFooter")
	case b.IsControl():
		return i.control(b, bad)
	case i.batches == 1:
		return bad("it does not begin with a SnapshotHeader")
	case b.BaseOffset < i.next:
		return bad("batch at offset %d follows offset %d", b.BaseOffset, i.next-1)
	case b.Epoch < i.epoch || b.Epoch > i.ID.Epoch:
		return bad("batch at offset %d has epoch %d, the one before %d", b.BaseOffset, b.Epoch, i.epoch)
	case b.NextOffset() > i.ID.Offset && i.ID != raft.OffsetAndEpoch{}: // the bootstrap checkpoint may hold data, too
		return bad("batch at offset %d ends at %d", b.BaseOffset, b.LastOffset())
	}
	if n := len(i.index); n == 0 || position-i.index[n-1].position >= i.step {
		i.index = append(i.index, indexEntry{offset: b.BaseOffset, position: position, maxBefore: i.maxTimestamp})
	}
	if len(i.index) == maxIndex {
		for k := range maxIndex / 2 {
			i.index[k] = i.index[2*k]
		}
		i.index, i.step = i.index[:maxIndex/2], 2*i.step
	}
	i.next, i.size, i.epoch = b.NextOffset(), i.Size, b.Epoch
	i.Records += int64(b.Count)
	if b.Count > 0 {
		i.maxTimestamp = max(i.maxTimestamp, b.MaxTimestamp)
	}
	if i.heard != nil {
		i.heard(b)
	}
	return nil
}

func (i *inspection) control(b record.Batch, bad func(string, ...any) error) error {
	controls, err := record.DecodeControls(b)
	if err != nil {
		return fmt.Errorf("position %d: %w", i.Size-int64(b.Size), err)
	}
	first := i.batches == 1
	if b.Epoch < 0 || b.Epoch > i.ID.Epoch {
		return bad("control batch has epoch %d", b.Epoch)
	}
	switch header := controls[0].Type == record.TypeSnapshotHeader; {
	case first && !header:
		return bad("it begins with %s, not with a SnapshotHeader", controls[0].Type)
	case first && b.BaseOffset != 0:
		return bad("it begins at offset %d, not 0", b.BaseOffset)
	case first:
		i.after = b.NextOffset()
		i.Timestamp = controls[0].LastContainedLogTimestamp
		i.from, i.size = i.Size, i.Size
	}
	for _, c := range controls {
		if c.Record != nil {
			i.controls = append(i.controls, c.Record)
		}
	}
	last := controls[len(controls)-1]
	i.footer = last.Type == record.TypeSnapshotFooter
	switch {
	case last.Summed && last.Sum != i.sum:
		return bad("CRC of all before it is %08x, the SnapshotFooter says %08x", i.sum, last.Sum)
	case first:
	case !i.footer:
		return bad("%s between its batches", controls[0].Type)
	case b.BaseOffset != i.ID.Offset && b.BaseOffset != max(i.after, i.next):
		return bad("SnapshotFooter at offset %d", b.BaseOffset)
	}
	return nil
}

// end says whether it was whole.
func (i *inspection) end() error {
	if !i.footer {
		return fmt.Errorf("position %d: %w: it does not end with a SnapshotFooter", i.Size, record.ErrCorrupt)
	}
	return nil
}

// all reads a whole file. Its errors are record's, where the content is to blame.
func (i *inspection) all(f vfs.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	sc := scanner{file: f, size: size}
	for {
		at := sc.position
		b, err := sc.next()
		switch {
		case errors.Is(err, io.EOF):
			return i.end()
		case err != nil:
			return fmt.Errorf("position %d: %w", at, err)
		}
		if err := i.add(b); err != nil {
			return err
		}
	}
}

// damaged reports whether an error says that bytes are not what they should be, rather than that they could not be read.
func damaged(err error) bool {
	return errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrShort)
}

// checkpoints are those of an open directory.
type checkpoints struct {
	mu   sync.Mutex
	list []*checkpoint // ascending; the last is the newest. Not the bootstrap checkpoint
}

// newest is for a reader, who lets go of the file when done; nil if there is none.
func (c *checkpoints) newest() *checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		return nil
	}
	newest := c.list[len(c.list)-1]
	newest.file.hold()
	return newest
}

// covering is newest if that covers the offset, else nil.
func (c *checkpoints) covering(offset int64) *checkpoint {
	newest := c.newest()
	if newest != nil && offset >= newest.ID.Offset {
		newest.file.release()
		return nil
	}
	return newest
}

// add lists a checkpoint. It is false if there is a newer one.
func (c *checkpoints) add(fresh *checkpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.list); n > 0 {
		newest := c.list[n-1]
		switch order := fresh.ID.Compare(newest.ID); {
		case order < 0:
			return false
		case order == 0: // written once more
			newest.file.release()
			c.list = c.list[:n-1]
		}
	}
	c.list = append(slices.Clip(c.list), fresh)
	return true
}

// Checkpoints lists the finished checkpoints, ascending, without the bootstrap checkpoint 0-0. Any goroutine may call it.
func (d *Dir) Checkpoints() []CheckpointInfo {
	d.checkpoints.mu.Lock()
	defer d.checkpoints.mu.Unlock()
	var infos []CheckpointInfo
	for _, c := range d.checkpoints.list {
		infos = append(infos, c.CheckpointInfo)
	}
	return infos
}

// ReadCheckpoint reads bytes of a checkpoint's file as a FetchSnapshot asks for them: at most maxBytes, or MaxSize, from
// position on, into buf if it has the room. size is that of the whole file. ErrNoCheckpoint if there is none with that id,
// or no more; ErrPosition if position is below 0, or not below size. Who goes on reading keeps the checkpoint (see
// BeginClean). Any goroutine may call it.
func (d *Dir) ReadCheckpoint(buf []byte, id raft.OffsetAndEpoch, position int64, maxBytes int) (data []byte, size int64, err error) {
	found, n, err := d.askFor(id, position, maxBytes)
	if err != nil {
		return nil, found.Size, err
	}
	defer found.file.release()
	data, err = readAt(found.view, buf, position, n)
	return data, found.Size, err
}

// FindCheckpoint is ReadCheckpoint for who sends the bytes on, to be checked by who gets them. It reads nothing.
func (d *Dir) FindCheckpoint(id raft.OffsetAndEpoch, position int64, maxBytes int) (s *Section, size int64, err error) {
	found, n, err := d.askFor(id, position, maxBytes)
	if err != nil {
		return nil, found.Size, err
	}
	return &Section{io.NewSectionReader(found.file.File, position, int64(n)), found.file}, found.Size, nil
}

// askFor returns a checkpoint, whose file the caller lets go of, and how many of its bytes are to be read. With an error
// there is nothing to let go of, and no more to know than the size.
func (d *Dir) askFor(id raft.OffsetAndEpoch, position int64, maxBytes int) (found checkpoint, n int, err error) {
	c := &d.checkpoints
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(c *checkpoint) bool { return c.ID == id })
	if i < 0 {
		return checkpoint{}, 0, fmt.Errorf("checkpoint %s: %w", checkpointName(id), ErrNoCheckpoint)
	}
	c.list[i].asked = true
	found = *c.list[i]
	if position < 0 || position >= found.Size {
		return found, 0, fmt.Errorf("checkpoint %s at position %d of %d: %w", checkpointName(id), position, found.Size, ErrPosition)
	}
	found.file.hold()
	return found, int(min(int64(min(max(maxBytes, 0), record.MaxSize)), found.Size-position)), nil
}

// load opens the checkpoints of a directory and returns the newest one that is whole, or the bootstrap checkpoint, or nil.
// Damaged ones are named: an older one may do, if the log covers the rest. Others' damage is for those who read them.
func (c *checkpoints) load(fsys vfs.FS, dir string, names []string) (base *checkpoint, bad []Damaged, err error) {
	ids, bootstrap := listCheckpoints(names)
	for _, id := range slices.Backward(ids) {
		name := path.Join(dir, checkpointName(id))
		p, err := openCheckpoint(fsys, name, id, base == nil)
		switch {
		case damaged(err):
			bad = append(bad, Damaged{File: name, Reason: err.Error()})
			continue
		case errors.Is(err, record.ErrUnknown):
			return nil, nil, fault(UnknownRecord, "%s: %v", name, err)
		case err != nil:
			return nil, nil, ioFault(err)
		}
		if c.list = slices.Insert(c.list, 0, p); base == nil {
			base = p
		}
	}
	if base != nil || !bootstrap {
		return base, bad, nil
	}
	name := path.Join(dir, checkpointName(raft.OffsetAndEpoch{}))
	base, err = openCheckpoint(fsys, name, raft.OffsetAndEpoch{}, true)
	switch {
	case errors.Is(err, record.ErrUnknown):
		return nil, nil, fault(UnknownRecord, "%s: %v", name, err)
	case damaged(err):
		return nil, nil, fault(StateFileCorrupt, "%s: %v", name, err)
	case err != nil:
		return nil, nil, ioFault(err)
	}
	base.file.release()
	return base, bad, nil
}

// below takes out what ends before offset and is not the newest.
func (c *checkpoints) below(offset int64) (gone []*checkpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.list)-1 && c.list[n].ID.Offset < offset {
		n++
	}
	gone, c.list = c.list[:n], slices.Clone(c.list[n:])
	return gone
}

// close lets go of all files.
func (c *checkpoints) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.list {
		p.file.release()
	}
	c.list = nil
}

// listCheckpoints finds checkpoints by name, ascending; bootstrap says whether 0-0 is among the names.
func listCheckpoints(names []string) (ids []raft.OffsetAndEpoch, bootstrap bool) {
	for _, name := range names {
		switch id, ok := parseCheckpointName(name); {
		case !ok:
		case id == raft.OffsetAndEpoch{}:
			bootstrap = true
		default:
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, raft.OffsetAndEpoch.Compare)
	return ids, bootstrap
}

// openCheckpoint opens a file and, if whole, reads it from head to foot.
func openCheckpoint(fsys vfs.FS, name string, id raft.OffsetAndEpoch, whole bool) (*checkpoint, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	c := &checkpoint{CheckpointInfo: CheckpointInfo{ID: id, Records: -1, Timestamp: -1}}
	if whole {
		i := inspect(id)
		if err := i.all(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		c = &i.checkpoint
	} else if c.Size, err = f.Size(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c.file, c.name = share(f), name
	return c, nil
}
