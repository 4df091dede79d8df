package storage

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

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

// readCheckpoint checks a checkpoint from head to foot and returns the control records in it that the core wants.
func readCheckpoint(fsys vfs.FS, name string) ([]raft.ControlRecord, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	var controls []raft.ControlRecord
	var first, last record.ControlType
	var next int64
	sc := scanner{file: f, size: size}
	for {
		at := sc.position
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && b.BaseOffset < next {
			err = fmt.Errorf("%w: batch at offset %d follows offset %d", record.ErrCorrupt, b.BaseOffset, next-1)
		}
		var cs []record.Control
		if err == nil && b.IsControl() {
			cs, err = record.DecodeControls(b)
		}
		if err != nil {
			return nil, fmt.Errorf("position %d: %w", at, err)
		}
		next, last = b.NextOffset(), 0
		for _, c := range cs {
			if at == 0 && first == 0 {
				first = c.Type
			}
			last = c.Type
			if c.Record != nil {
				controls = append(controls, c.Record)
			}
		}
	}
	if first != record.TypeSnapshotHeader || last != record.TypeSnapshotFooter {
		return nil, fmt.Errorf("%w: it does not begin with a SnapshotHeader and end with a SnapshotFooter", record.ErrCorrupt)
	}
	return controls, nil
}

// checkpoints is what a directory has of them.
type checkpoints struct {
	bootstrap bool                  // 0-0 is there
	ids       []raft.OffsetAndEpoch // the others, ascending
}

func listCheckpoints(names []string) checkpoints {
	var c checkpoints
	for _, name := range names {
		switch id, ok := parseCheckpointName(name); {
		case !ok:
		case id == raft.OffsetAndEpoch{}:
			c.bootstrap = true
		default:
			c.ids = append(c.ids, id)
		}
	}
	slices.SortFunc(c.ids, raft.OffsetAndEpoch.Compare)
	return c
}

// load returns the control records that the log builds on: those of the newest checkpoint that is whole, which is
// dropped from the list with all newer ones if it is not, or of the bootstrap checkpoint.
func (c *checkpoints) load(fsys vfs.FS, dir string) ([]raft.ControlAt, error) {
	at := int64(-1)
	var id raft.OffsetAndEpoch
	var controls []raft.ControlRecord
	for n := len(c.ids); n > 0 && at < 0; n-- {
		id = c.ids[n-1]
		records, err := readCheckpoint(fsys, path.Join(dir, checkpointName(id)))
		switch {
		case errors.Is(err, record.ErrCorrupt), errors.Is(err, record.ErrShort):
			c.ids = c.ids[:n-1] // an older one may do, if the log covers the rest
		case errors.Is(err, record.ErrUnknown):
			return nil, fault(UnknownRecord, "%s: %v", path.Join(dir, checkpointName(id)), err)
		case err != nil:
			return nil, ioFault(err)
		default:
			at, controls = id.Offset, records
		}
	}
	if at < 0 && c.bootstrap {
		name := path.Join(dir, checkpointName(raft.OffsetAndEpoch{}))
		var err error
		controls, err = readCheckpoint(fsys, name)
		switch {
		case errors.Is(err, record.ErrUnknown):
			return nil, fault(UnknownRecord, "%s: %v", name, err)
		case errors.Is(err, record.ErrCorrupt), errors.Is(err, record.ErrShort):
			return nil, fault(StateFileCorrupt, "%s: %v", name, err)
		case err != nil:
			return nil, ioFault(err)
		}
	}
	var placed []raft.ControlAt
	for _, r := range controls {
		placed = append(placed, raft.ControlAt{Offset: at, Record: r})
	}
	return placed, nil
}
