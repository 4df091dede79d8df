package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Dir is an open directory of a member.
type Dir struct {
	Log *Log

	checkpoints checkpoints
	compacting  atomic.Bool

	fs       vfs.FS
	path     string
	o        Options
	lock     io.Closer
	meta     Meta
	state    raft.ElectionState
	stateRaw []byte // content of quorum-state
	ballast  bool   // is there, or none is wanted
	refused  bool   // there was none for it, though statfs had said so
	logState raft.LogState
	recovery Recovery
}

// lockPoll is how often a locked directory is tried again, up to Options.LockGrace.
const lockPoll = 50 * time.Millisecond

// Open checks whose directory it is, locks it, reads the whole log, mends what a crash may leave behind, and makes what
// is left durable. Nothing is written to a directory that is not formatted or belongs to somebody else. Errors are
// *Fault, or ErrDiskFull.
func Open(fsys vfs.FS, dir string, o Options) (*Dir, error) {
	o = o.withDefaults()
	d := &Dir{fs: fsys, path: dir, o: o}
	var err error
	if d.meta, err = ReadMeta(fsys, dir); err != nil {
		return nil, err
	}
	if err := checkIDs(dir, d.meta, o.ClusterID, o.NodeID, raft.UUID{}); err != nil {
		return nil, err
	}
	if d.lock, err = acquire(fsys, path.Join(dir, lockFile), o); err != nil {
		return nil, err
	}
	if err := d.load(); err != nil {
		d.Abandon()
		return nil, ioFault(err)
	}
	return d, nil
}

func (o Options) withDefaults() Options {
	if o.Topic == "" {
		o.Topic = DefaultTopic
	}
	if o.TopicID.IsZero() {
		o.TopicID = DefaultTopicID
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 1 << 30
	}
	if o.SegmentAge <= 0 {
		o.SegmentAge = 7 * 24 * time.Hour
	}
	if o.Sleep == nil {
		o.Sleep = time.Sleep //nolint:forbidigo // the default of an option
	}
	return o
}

func acquire(fsys vfs.FS, name string, o Options) (io.Closer, error) {
	for waited := time.Duration(0); ; waited += lockPoll {
		lock, err := fsys.Lock(name)
		switch {
		case err == nil:
			return lock, nil
		case !errors.Is(err, vfs.ErrLocked):
			err = ioFault(err)
			if IsToken(err, NotWritable) {
				return nil, fault(NotWritable, "%s, as user id %d", errors.Unwrap(err), os.Getuid())
			}
			return nil, err
		case waited >= o.LockGrace:
			return nil, fault(DirLocked, "%s is held by another process; waited %v for it", name, o.LockGrace)
		}
		o.Sleep(lockPoll)
	}
}

func (d *Dir) file(name string) string { return path.Join(d.path, d.o.Topic+"-0", name) }

// refuseOtherTopic stops a member whose directory holds the log of another topic and none of the one configured: it
// would start as a new replica beside its own data, and under an identity that may have voted.
func (d *Dir) refuseOtherTopic(logDir string) error {
	if there, err := vfs.Exists(d.fs, logDir); there || err != nil {
		return err
	}
	names, err := d.fs.List(d.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		topic, ok := strings.CutSuffix(name, "-0")
		if !ok {
			continue
		}
		for _, of := range []string{stateFile, checkpointName(raft.OffsetAndEpoch{})} {
			there, err := vfs.Exists(d.fs, path.Join(d.path, name, of))
			if err != nil {
				return err
			}
			if there {
				return fault(TopicNameMismatch, "%s holds the log of topic %s, configured is topic.name=%s", d.path, topic, d.o.Topic)
			}
		}
	}
	return nil
}

// load reads everything below the lock.
func (d *Dir) load() error {
	logDir := path.Join(d.path, d.o.Topic+"-0")
	if err := d.refuseOtherTopic(logDir); err != nil {
		return err
	}
	if err := makeDirs(d.fs, d.path, logDir); err != nil {
		return err
	}
	names, err := d.sweep(logDir)
	if err != nil {
		return err
	}
	if d.meta.DirectoryID.IsZero() {
		if err := d.assignDirectoryID(); err != nil {
			return err
		}
	}
	base, bad, err := d.checkpoints.load(d.fs, logDir, names)
	if err != nil {
		return err
	}
	var controls []raft.ControlAt
	if base != nil {
		controls = base.placed()
	}
	firstRun, err := d.readState(names)
	if err != nil {
		return err
	}
	if firstRun {
		// Before the first segment: a log without quorum-state is a directory that lost its vote.
		if err := d.WriteElectionState(d.state, latestVersion(controls), latestVoters(controls)); err != nil {
			return err
		}
	}
	if err := d.checkPartition(); err != nil {
		return err
	}
	d.Log = &Log{fs: d.fs, dir: logDir, o: d.o}
	r := recoverer{log: d.Log, recovery: &d.recovery, bad: bad, controls: controls}
	if base != nil && base.ID.Offset > 0 {
		r.snapshot = base
	}
	if err := r.run(names); err != nil {
		return err
	}
	if err := d.dropCheckpoints(bad); err != nil {
		return err
	}
	if err := d.provideSpare(); err != nil {
		return err
	}
	if err := d.findBallast(names); err != nil {
		return err
	}
	d.logState = r.state()
	if infos := d.Checkpoints(); len(infos) > 0 {
		d.logState.Earliest, d.logState.Snapshot = &infos[0].ID, &infos[len(infos)-1].ID
	}
	if d.o.OnBatch == nil {
		return nil
	}
	return d.Walk(0, d.Log.End(), func(b record.Batch) error {
		d.o.OnBatch(b)
		return nil
	})
}

// dropCheckpoints removes the damaged checkpoints, now that the log is found to do without them, and those that it does not
// reach down to.
func (d *Dir) dropCheckpoints(bad []Damaged) error {
	d.recovery.Damaged = bad
	var gone []string
	for _, b := range bad {
		gone = append(gone, b.File)
	}
	for _, c := range d.checkpoints.below(d.Log.Start()) {
		c.file.release()
		gone = append(gone, c.name)
	}
	if len(gone) == 0 {
		return nil
	}
	for _, name := range gone {
		if err := d.fs.Remove(name); err != nil {
			return err
		}
		d.recovery.Removed = append(d.recovery.Removed, name)
	}
	if err := d.fs.SyncDir(d.Log.dir); err != nil {
		return &vfs.SyncError{Path: d.Log.dir, Err: err}
	}
	return nil
}

// sweep removes what interrupted writes left behind, makes the rest of both directories durable, and lists the log's.
// Without the sync, a file that a killed process renamed into place could be read now and be gone after a power cut.
func (d *Dir) sweep(logDir string) ([]string, error) {
	var kept []string
	for _, dir := range []string{d.path, logDir} {
		names, err := d.fs.List(dir)
		if err != nil {
			return nil, err
		}
		kept = kept[:0]
		for _, name := range names {
			if !leftover(name) {
				kept = append(kept, name)
				continue
			}
			if err := d.fs.Remove(path.Join(dir, name)); err != nil {
				return nil, err
			}
			d.recovery.Removed = append(d.recovery.Removed, path.Join(dir, name))
		}
		if err := d.fs.SyncDir(dir); err != nil {
			return nil, &vfs.SyncError{Path: dir, Err: err}
		}
	}
	return kept, nil
}

// leftover knows our temporary files (of quorum-state there is none: see spare.go), and Kafka's partial snapshots and files
// renamed for deletion.
func leftover(name string) bool {
	switch strings.TrimSuffix(name, ".tmp") {
	case metaFile, epochFile, committedFile, partitionFile:
		return strings.HasSuffix(name, ".tmp")
	}
	for _, kind := range []string{".checkpoint.tmp", ".checkpoint.part", ".checkpoint.deleted", ".log.deleted", ".index.deleted", ".timeindex.deleted"} {
		if strings.HasSuffix(name, kind) {
			return true
		}
	}
	return false
}

// assignDirectoryID completes a meta.properties from before directory ids, as Kafka does.
func (d *Dir) assignDirectoryID() error {
	id, err := NewDirectoryID(d.o.Random)
	if err != nil {
		return err
	}
	d.meta.DirectoryID = id
	return vfs.WriteFileAtomic(d.fs, path.Join(d.path, metaFile), encodeMeta(d.meta))
}

// readState reads quorum-state. It may only be missing where nothing has run yet.
func (d *Dir) readState(names []string) (firstRun bool, err error) {
	name := d.file(stateFile)
	d.state = raft.ElectionState{Leader: raft.None, Voted: raft.NoReplica}
	raw, err := vfs.ReadFile(d.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		if i := slices.IndexFunc(names, provesRun); i >= 0 {
			return false, fault(StateFileCorrupt, "%s is missing beside %s: this member may have voted in an epoch that nothing here remembers; it can only come back with a new directory", name, names[i])
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if d.state, err = decodeQuorumState(raw); err != nil {
		return false, fault(StateFileCorrupt, "%s (%d bytes): %v", name, len(raw), err)
	}
	d.stateRaw = raw
	return false, nil
}

// checkPartition writes partition.metadata if it is missing, and compares the topic id if not.
func (d *Dir) checkPartition() error {
	name := d.file(partitionFile)
	b, err := vfs.ReadFile(d.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return vfs.WriteFileAtomic(d.fs, name, encodePartition(d.o.TopicID))
	}
	if err != nil {
		return err
	}
	id, err := decodePartition(b)
	if err != nil {
		return fault(StateFileCorrupt, "%s: %v", name, err)
	}
	if id != d.o.TopicID {
		return fault(TopicIDMismatch, "%s says topic id %s, configured is topic.id=%s", name, id, d.o.TopicID)
	}
	return nil
}

// Meta is the directory's identity.
func (d *Dir) Meta() Meta { return d.meta }

// ElectionState is what quorum-state holds; epoch 0, no leader and no vote in a new directory.
func (d *Dir) ElectionState() raft.ElectionState { return d.state }

// LogState is the log as Open found it, for the core.
func (d *Dir) LogState() raft.LogState { return d.logState }

// Recovery tells what Open did.
func (d *Dir) Recovery() Recovery { return d.recovery }

// WriteElectionState replaces quorum-state and returns once that is durable. Its format follows kraft.version: 0 writes
// version 0, which has no directory ids and names the voters. On an error the state may or may not be on disk: the caller
// must not act on it. A full disk has room for it (see spare.go), or leaves the old state in place: ErrDiskFull.
func (d *Dir) WriteElectionState(s raft.ElectionState, kraftVersion int16, voters raft.VoterSet) error {
	if d.Log != nil {
		if err := d.Log.failure(); err != nil {
			return err
		}
	}
	raw := encodeQuorumState(s, kraftVersion, voters)
	if !bytes.Equal(raw, d.stateRaw) {
		if err := d.writeState(raw); err != nil {
			err = fmt.Errorf("write %s: %w", d.file(stateFile), err)
			if d.Log != nil {
				return d.Log.fail(err)
			}
			return ioFault(err)
		}
	}
	d.state, d.stateRaw = s, raw
	return nil
}

// Free tells how much space is left, and whether that is below the reserve that appends should leave free for
// quorum-state and the small files. Without its ballast a directory is below it, whatever the file system says is free; and
// full, if by that there was plenty of room for the ballast, and there was none: a quota, say.
func (d *Dir) Free() (Space, error) {
	free, err := d.fs.FreeSpace(d.path)
	if err != nil {
		return Space{}, ioFault(err)
	}
	reserve := d.o.Reserve
	if !d.ballast {
		reserve = max(reserve, d.o.Ballast)
	}
	full := free <= min(fullBytes, reserve/4) || d.refused
	return Space{Free: free, Below: full || free < reserve || !d.ballast, Full: full}, nil
}

// fullBytes holds some control records, each of which may take a block of the largest size in use.
const fullBytes = 64 << 10

// Close ends cleanly: what was appended is flushed, the file committed is written, the lock given up.
func (d *Dir) Close() error {
	err := d.Log.close(true)
	d.checkpoints.close()
	return errors.Join(err, d.lock.Close())
}

// Abandon lets go of the directory as a killed process does: nothing is flushed or written.
func (d *Dir) Abandon() {
	if d.Log != nil {
		_ = d.Log.close(false)
	}
	d.checkpoints.close()
	_ = d.lock.Close()
}
