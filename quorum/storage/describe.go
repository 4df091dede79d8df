package storage

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Describe writes what a member's directory holds, file by file and batch by batch, without locking or changing it. It
// goes on after damage, which it describes; the error is the first one it met.
func Describe(w io.Writer, fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		full := path.Join(dir, name)
		info, err := fsys.Stat(full)
		if err == nil && info.Dir {
			var inside []string
			if inside, err = fsys.List(full); err == nil {
				for _, name := range inside {
					errs = append(errs, DescribeFile(w, fsys, path.Join(full, name)))
				}
			}
			errs = append(errs, err)
			continue
		}
		errs = append(errs, err, DescribeFile(w, fsys, full))
	}
	return errors.Join(errs...)
}

// DescribeFile is Describe for one file, whose kind its name tells.
func DescribeFile(w io.Writer, fsys vfs.FS, name string) error {
	base := path.Base(name)
	_, isSegment := parseSegmentName(base)
	_, isCheckpoint := parseCheckpointName(base)
	var err error
	switch {
	case isSegment || isCheckpoint:
		err = describeBatches(w, fsys, name)
	case slices.Contains([]string{metaFile, stateFile, epochFile, committedFile, partitionFile}, base):
		err = describeText(w, fsys, name, base)
	default:
		fmt.Fprintf(w, "%s: not read\n", base)
	}
	if err != nil {
		fmt.Fprintf(w, "  damaged: %v\n", err)
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func describeText(w io.Writer, fsys vfs.FS, name, base string) error {
	fmt.Fprintf(w, "%s\n", base)
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	switch base {
	case metaFile:
		m, err := decodeMeta(b)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  clusterId: %s nodeId: %d directoryId: %s\n", m.ClusterID, m.NodeID, m.DirectoryID)
	case stateFile:
		s, err := decodeQuorumState(b)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  epoch: %d leader: %d voted: %s\n", s.Epoch, s.Leader, s.Voted)
	case partitionFile:
		id, err := decodePartition(b)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  topicId: %s\n", id)
	case committedFile:
		p, err := decodeCommitted(b)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  epoch: %d offset: %d\n", p.Epoch, p.Offset)
	default:
		entries, err := decodeEpochs(b)
		if err != nil {
			return err
		}
		for _, e := range entries {
			fmt.Fprintf(w, "  epoch: %d offset: %d\n", e.Epoch, e.Offset)
		}
	}
	return nil
}

func describeBatches(w io.Writer, fsys vfs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n", path.Base(name))
	sc := scanner{file: f, size: size}
	for {
		at := sc.position
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("position %d of %d: %w", at, size, err)
		}
		fmt.Fprintf(w, "  position: %d %s\n", at, DescribeBatch(b))
		if !b.IsControl() {
			continue
		}
		controls, err := record.DecodeControls(b)
		if err != nil {
			return fmt.Errorf("position %d: %w", at, err)
		}
		for _, c := range controls {
			fmt.Fprintf(w, "    offset: %d %s\n", c.Offset, describeControl(c))
		}
	}
}

// DescribeBatch is one line on a batch.
func DescribeBatch(b record.Batch) string {
	var s strings.Builder
	fmt.Fprintf(&s, "offsets: %d-%d epoch: %d records: %d bytes: %d time: %d crc: %08x", b.BaseOffset, b.LastOffset(), b.Epoch, b.Count, b.Size, b.MaxTimestamp, b.CRC)
	if b.Codec() != record.None {
		fmt.Fprintf(&s, " codec: %s", b.Codec())
	}
	if b.ProducerID >= 0 {
		fmt.Fprintf(&s, " producer: %d epoch: %d sequences: %d-%d", b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.LastSequence())
	}
	if b.IsControl() {
		s.WriteString(" control")
	}
	return s.String()
}

func describeControl(c record.Control) string {
	switch r := c.Record.(type) {
	case raft.LeaderChange:
		return fmt.Sprintf("%s leader: %d voters: %v granting: %v", c.Type, r.Leader, r.Voters, r.Granting)
	case raft.KRaftVersion:
		return fmt.Sprintf("%s %d", c.Type, r.Version)
	case raft.Voters:
		var s strings.Builder
		s.WriteString(c.Type.String())
		for _, v := range r.Set {
			fmt.Fprintf(&s, " %s", v.Key)
			for _, e := range v.Endpoints {
				fmt.Fprintf(&s, " %s://%s:%d", e.Name, e.Host, e.Port)
			}
			fmt.Fprintf(&s, " kraft.version: %d-%d", v.KRaft.Min, v.KRaft.Max)
		}
		return s.String()
	}
	if c.Type == record.TypeSnapshotHeader {
		return fmt.Sprintf("%s lastContainedLogTimestamp: %d", c.Type, c.LastContainedLogTimestamp)
	}
	return c.Type.String()
}
