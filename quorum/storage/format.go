package storage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Format makes dir a member's directory: the bootstrap checkpoint first, meta.properties last, so that an interrupted
// format is no format and can be run again. On a formatted directory it succeeds and changes nothing if the ids are the
// same, and fails with the Fault that names the difference if not. A directory that holds a log but no meta.properties
// is never formatted.
func Format(fsys vfs.FS, dir string, o FormatOptions) error {
	o, err := o.resolved()
	if err != nil {
		return fmt.Errorf("format %s: %w", dir, err)
	}
	switch meta, err := ReadMeta(fsys, dir); {
	case err == nil && o.IgnoreFormatted:
		return nil
	case err == nil:
		return checkIDs(dir, meta, o.ClusterID, o.NodeID, o.DirectoryID)
	case !IsToken(err, NotFormatted):
		return err
	}
	logDir := path.Join(dir, o.topicDir())
	names, err := fsys.List(logDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ioFault(err)
	}
	if i := slices.IndexFunc(names, provesRun); i >= 0 {
		return fault(StateFileCorrupt, "%s holds %s but %s has no %s: it is not formatted over a log", logDir, names[i], dir, metaFile)
	}
	if o.DirectoryID.IsZero() {
		if o.DirectoryID, err = NewDirectoryID(o.Random); err != nil {
			return err
		}
	}
	if err := makeDirs(fsys, dir, logDir); err != nil {
		return ioFault(err)
	}
	checkpoint := bootstrapCheckpoint(o.Timestamp, o.KRaftVersion, o.InitialVoters)
	if err := vfs.WriteFileAtomic(fsys, path.Join(logDir, checkpointName(raft.OffsetAndEpoch{})), checkpoint); err != nil {
		return ioFault(err)
	}
	meta := Meta{ClusterID: o.ClusterID, NodeID: o.NodeID, DirectoryID: o.DirectoryID}
	return ioFault(vfs.WriteFileAtomic(fsys, path.Join(dir, metaFile), encodeMeta(meta)))
}

// resolved fills in what follows from the rest and refuses what contradicts itself.
func (o FormatOptions) resolved() (FormatOptions, error) {
	if o.ClusterID == "" {
		return o, errors.New("no cluster id")
	}
	if o.NodeID < 0 {
		return o, fmt.Errorf("node id %d, want a number from 0", o.NodeID)
	}
	if o.KRaftVersion < 0 || o.KRaftVersion > 1 {
		return o, fmt.Errorf("kraft.version %d, want 0 or 1", o.KRaftVersion)
	}
	if reserved(o.DirectoryID) && !o.DirectoryID.IsZero() {
		return o, fmt.Errorf("directory id %s is reserved", o.DirectoryID)
	}
	if len(o.InitialVoters) > 0 {
		if o.KRaftVersion == 0 {
			return o, errors.New("initial controllers need kraft.version 1; static voters belong into controller.quorum.voters")
		}
		self, ok := o.InitialVoters.ByID(o.NodeID)
		if !ok {
			return o, fmt.Errorf("node id %d is not among the initial controllers", o.NodeID)
		}
		for _, v := range o.InitialVoters {
			if v.Key.DirectoryID.IsZero() || reserved(v.Key.DirectoryID) {
				return o, fmt.Errorf("initial controller %d has directory id %s, which is reserved", v.Key.ID, v.Key.DirectoryID)
			}
		}
		if o.DirectoryID.IsZero() {
			o.DirectoryID = self.Key.DirectoryID
		}
		if o.DirectoryID != self.Key.DirectoryID {
			return o, fmt.Errorf("directory id %s, but the initial controllers give node %d the id %s", o.DirectoryID, o.NodeID, self.Key.DirectoryID)
		}
	}
	return o, nil
}

func (o FormatOptions) topicDir() string {
	if o.Topic == "" {
		return DefaultTopic + "-0"
	}
	return o.Topic + "-0"
}

// makeDirs makes both directories so that their entries survive a crash. The parent of dir is only touched if dir is new:
// it may be a mount point that is not ours to open.
func makeDirs(fsys vfs.FS, dir, logDir string) error {
	there, err := vfs.Exists(fsys, dir)
	if err != nil {
		return err
	}
	if err := fsys.MkdirAll(logDir); err != nil {
		return err
	}
	if !there {
		if err := fsys.SyncDir(path.Dir(dir)); err != nil {
			return &vfs.SyncError{Path: path.Dir(dir), Err: err}
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return &vfs.SyncError{Path: dir, Err: err}
	}
	return nil
}

// provesRun reports whether a file of the log directory is only there once a process has run on it.
func provesRun(name string) bool {
	_, segment := parseSegmentName(name)
	return segment || name == epochFile || name == stateFile || name == committedFile
}

// NewDirectoryID makes a random directory id (a version 4 UUID) whose text does not begin with "-", which tools would
// take for a flag. A nil reader is crypto/rand.
func NewDirectoryID(random io.Reader) (raft.UUID, error) {
	if random == nil {
		random = rand.Reader
	}
	for {
		var u raft.UUID
		if _, err := io.ReadFull(random, u[:]); err != nil {
			return u, fmt.Errorf("random directory id: %w", err)
		}
		u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
		if u.String()[0] != '-' {
			return u, nil
		}
	}
}

// ReadMeta reads meta.properties. If there is none, the error is the Fault NOT_FORMATTED.
func ReadMeta(fsys vfs.FS, dir string) (Meta, error) {
	name := path.Join(dir, metaFile)
	b, err := vfs.ReadFile(fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Meta{}, fault(NotFormatted, "%s has no %s: run `quorum format` first", dir, metaFile)
	case err != nil:
		return Meta{}, ioFault(err)
	}
	m, err := decodeMeta(b)
	if err != nil {
		return Meta{}, fault(StateFileCorrupt, "%s: %v", name, err)
	}
	return m, nil
}

// checkIDs compares a directory's ids with those wanted; an empty, negative or zero one is not compared.
func checkIDs(dir string, m Meta, clusterID string, nodeID raft.NodeID, directoryID raft.UUID) error {
	switch {
	case clusterID != "" && m.ClusterID != clusterID:
		return fault(ClusterIDMismatch, "%s belongs to cluster %s, configured is %s", dir, m.ClusterID, clusterID)
	case nodeID >= 0 && m.NodeID != nodeID:
		return fault(NodeIDMismatch, "%s belongs to node %d, configured is node.id=%d", dir, m.NodeID, nodeID)
	case !directoryID.IsZero() && m.DirectoryID != directoryID:
		return fault(DirectoryMismatch, "%s has directory id %s, wanted is %s", dir, m.DirectoryID, directoryID)
	}
	return nil
}
