package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// disk is the file system of one member. It watches the calls that package storage makes and so knows, without asking
// anybody, what the log holds, what of it would survive a power cut, and what quorum-state says.
type disk struct {
	vfs.FS
	mem *vfs.Mem
	log shadow

	// quorum-state as it was last renamed into place, and as a power cut would leave it.
	state, durableState *raft.ElectionState
	stateSynced         bool                     // the bytes of state are on disk, if perhaps not yet under its name
	spareSynced         bool                     // … and those of what is to become quorum-state next
	onState             func(raft.ElectionState) // hears of each new durable content

	checkpoints  []raft.OffsetAndEpoch // with their names, the bootstrap checkpoint not among them
	onCheckpoint func(name string)     // hears of each that gets its name
	covered      func(offset int64) []*batch

	lock io.Closer // the process has it
	cuts int       // batches truncated since the oracle looked last
	cut  int       // truncations of this process's time

	// Faults that are about to happen.
	crashIn  int    // the process dies at this many changing calls from now; 0: it does not
	failSync syncOf // the next fsync of that fails
	failed   syncOf // one has failed: the process must end
	full     bool   // there is little room, or none
	untold   bool   // … and nobody is told

	syncs int // fsyncs that went well
	// poison holds, for each file whose fsync failed, the position from which on the kernel believes the pages to be
	// clean: another fsync succeeds and does nothing, until they are written again.
	poison map[string]int64

	plant *plant
}

func newDisk(mem *vfs.Mem, p *plant) *disk {
	return &disk{FS: mem, mem: mem, poison: map[string]int64{}, plant: p}
}

// syncOf is what an fsync makes durable.
type syncOf int

const (
	nothing    syncOf = iota
	aSegment          // of the log
	aVote             // what is to become quorum-state
	aVotesName        // the directory, in which quorum-state has just got its name
)

// died is the panic by which a process dies in the midst of a step, between two calls on its disk.
type died struct{ d *disk }

// change is about to be made to the disk.
func (d *disk) change() {
	if d.crashIn > 0 {
		if d.crashIn--; d.crashIn == 0 {
			panic(died{d})
		}
	}
}

// fill leaves room for that many bytes, until drain.
func (d *disk) fill(room int64) {
	const plenty = 1 << 40
	d.mem.SetCapacity(plenty)
	free, err := d.mem.FreeSpace("/")
	if err != nil {
		panic(err)
	}
	d.mem.SetCapacity(plenty - free + max(room, 1)) // 0 would be no limit
	d.full = true
}

func (d *disk) drain() {
	d.mem.SetCapacity(0)
	d.full = false
}

// FreeSpace may not know of a quota.
func (d *disk) FreeSpace(name string) (int64, error) {
	free, err := d.FS.FreeSpace(name)
	if d.full && d.untold {
		free += 1 << 40
	}
	return free, err
}

// diskReserve is how much room a member wants to keep free.
const diskReserve = 4 << 10

// release lets go of what a process that died held.
func (d *disk) release() {
	if d.lock != nil {
		_ = d.lock.Close()
	}
	d.lock, d.crashIn, d.failSync, d.failed = nil, 0, nothing, nothing
}

func (d *disk) Lock(name string) (io.Closer, error) {
	l, err := d.FS.Lock(name)
	d.lock = l
	return l, err
}

// powerCut replaces the disk by what is left of it: each unsynced sector or directory entry with that probability.
func (d *disk) powerCut(dice dice, survives float64) {
	d.mem = d.mem.CrashClone(dice.Rand, survives)
	d.FS = d.mem
	d.rescan()
}

// rescan reads what a disk holds that nobody writes to: all of it counts as durable.
func (d *disk) rescan() {
	d.log = shadow{}
	d.state, d.durableState, d.checkpoints = nil, nil, nil
	clear(d.poison)
	tops, err := d.mem.List(dataDir)
	if err != nil {
		return
	}
	for _, top := range tops {
		dir := path.Join(dataDir, top)
		names, err := d.mem.List(dir)
		if err != nil {
			continue // a file
		}
		for _, name := range names { // sorted: segments in the order of their offsets
			switch full := path.Join(dir, name); {
			case isSegment(full):
				if b, err := vfs.ReadFile(d.mem, full); err == nil {
					if len(d.log.segments) == 0 {
						d.log.adopt(d.covered(segmentBase(full)))
					}
					d.log.rescan(full, b)
				}
			case isCheckpoint(full):
				d.checkpoints = append(d.checkpoints, checkpointID(full))
			case isState(full):
				d.readState(full)
				d.durableState = d.state
			}
		}
	}
	d.stateSynced, d.spareSynced = true, true
}

func isSegment(name string) bool { return strings.HasSuffix(name, ".log") }
func isState(name string) bool   { return path.Base(name) == "quorum-state" }
func isSpare(name string) bool   { return path.Base(name) == "quorum-state.tmp" }

// readState parses quorum-state on its own, so that a mistake in package storage is not repeated here.
func (d *disk) readState(name string) {
	b, err := vfs.ReadFile(d.mem, name)
	if err != nil {
		return
	}
	var f struct {
		LeaderID    raft.NodeID `json:"leaderId"`
		LeaderEpoch raft.Epoch  `json:"leaderEpoch"`
		VotedID     raft.NodeID `json:"votedId"`
		VotedDir    string      `json:"votedDirectoryId"`
	}
	if json.Unmarshal(b, &f) != nil {
		return
	}
	s := raft.ElectionState{Epoch: f.LeaderEpoch, Leader: f.LeaderID, Voted: raft.ReplicaKey{ID: f.VotedID}}
	if f.VotedDir != "" {
		s.Voted.DirectoryID, _ = raft.ParseUUID(f.VotedDir)
	}
	d.state = &s
}

func (d *disk) file(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &watchedFile{File: f, d: d, name: name}, nil
}

func (d *disk) Open(name string) (vfs.File, error) { return d.FS.Open(name) }

func (d *disk) OpenReadWrite(name string) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name)
	return d.file(name, f, err)
}

func (d *disk) Create(name string) (vfs.File, error) {
	d.change()
	f, err := d.FS.Create(name)
	if err == nil && isSegment(name) {
		if base := segmentBase(name); base > d.log.end { // a checkpoint has replaced the log
			d.log.adopt(d.covered(base))
		}
		d.log.create(name)
	}
	return d.file(name, f, err)
}

func (d *disk) Rename(from, to string) error {
	d.change()
	if err := d.FS.Rename(from, to); err != nil {
		return err
	}
	if isSegment(from) {
		d.log.remove(from)
	}
	if isState(to) {
		d.replaceState(to)
	}
	if isCheckpoint(to) {
		d.checkpoints = append(d.checkpoints, checkpointID(to))
		if d.onCheckpoint != nil {
			d.onCheckpoint(to)
		}
	}
	return nil
}

func (d *disk) Exchange(a, b string) error {
	d.change()
	if err := d.FS.Exchange(a, b); err != nil {
		return err
	}
	if isState(b) {
		d.replaceState(b)
	}
	return nil
}

// replaceState sees what was the spare get the name quorum-state.
func (d *disk) replaceState(name string) {
	d.readState(name)
	d.stateSynced, d.spareSynced = d.spareSynced, d.stateSynced
}

func (d *disk) Remove(name string) error {
	d.change()
	if err := d.FS.Remove(name); err != nil {
		return err
	}
	if isSegment(name) {
		d.log.remove(name)
	}
	if isCheckpoint(name) {
		d.checkpoints = slices.DeleteFunc(d.checkpoints, func(id raft.OffsetAndEpoch) bool { return id == checkpointID(name) })
	}
	return nil
}

func (d *disk) SyncDir(dir string) error {
	d.change()
	if d.plant.keepsDirUnsynced(dir, d.state != d.durableState) {
		return nil
	}
	if d.failSync == aVotesName && d.state != d.durableState {
		d.failSync, d.failed = nothing, aVotesName
		return syscall.EIO
	}
	if err := d.FS.SyncDir(dir); err != nil {
		return err
	}
	d.syncs++
	d.log.syncDir(dir)
	if d.state != d.durableState && d.stateSynced && strings.HasSuffix(dir, "-0") {
		d.durableState = d.state
		if d.onState != nil {
			d.onState(*d.state)
		}
	}
	return nil
}

// watchedFile is a file that is open for writing.
type watchedFile struct {
	vfs.File
	d    *disk
	name string
}

func (f *watchedFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.change()
	if from, ok := f.d.poison[f.name]; ok && off <= from {
		delete(f.d.poison, f.name) // the pages are dirty again
	}
	if isSpare(f.name) {
		f.d.spareSynced = false
	}
	same := isSegment(f.name) && f.holds(p, off)
	n, err := f.File.WriteAt(p, off)
	if isSegment(f.name) && !same {
		f.d.log.write(f.name, off, p[:n])
	}
	return n, err
}

// holds reports whether the file has these bytes there. Recovery writes its last group again as it is, in pieces of any
// size: that changes nothing, nor what of it is durable.
func (f *watchedFile) holds(p []byte, off int64) bool {
	if size, err := f.Size(); err != nil || off+int64(len(p)) > size {
		return false
	}
	old := make([]byte, len(p))
	_, err := f.ReadAt(old, off)
	return (err == nil || errors.Is(err, io.EOF)) && bytes.Equal(old, p)
}

func (f *watchedFile) Truncate(size int64) error {
	f.d.change()
	if f.d.plant.skipsTruncate(f.name) {
		return nil
	}
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	if isSegment(f.name) {
		if n := len(f.d.log.batches); n > 0 {
			f.d.log.truncate(f.name, size)
			f.d.cut++
			f.d.cuts += n - len(f.d.log.batches)
		}
	}
	return nil
}

func (f *watchedFile) Allocate(size int64) error {
	f.d.change()
	return f.File.Allocate(size)
}

func (f *watchedFile) Sync() error {
	f.d.change()
	switch {
	case f.d.failSync == aSegment && isSegment(f.name):
		f.d.poison[f.name] = f.d.log.segment(f.name).synced
		f.d.failSync, f.d.failed = nothing, aSegment
		return syscall.EIO
	case f.d.failSync == aVote && isSpare(f.name):
		f.d.poison[f.name] = 0
		f.d.failSync, f.d.failed = nothing, aVote
		return syscall.EIO
	}
	if _, ok := f.d.poison[f.name]; ok {
		return nil
	}
	if f.d.plant.skipsSync(f.name) {
		return nil
	}
	if err := f.File.Sync(); err != nil {
		return err
	}
	f.d.syncs++
	if isSpare(f.name) {
		f.d.spareSynced = true
	}
	if isSegment(f.name) {
		size, err := f.Size()
		if err != nil {
			return err
		}
		f.d.log.sync(f.name, size)
	}
	return nil
}

// dataDir is where every member keeps its directory.
const dataDir = "/data"

// where names a batch for people.
func (b *batch) where() string {
	return fmt.Sprintf("batch %d..%d of epoch %d", b.base, b.last, b.epoch)
}

// find returns the batch that holds offset, or nil.
func find(batches []*batch, offset int64) *batch {
	i, ok := slices.BinarySearchFunc(batches, offset, func(b *batch, o int64) int {
		switch {
		case b.last < o:
			return -1
		case b.base > o:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return batches[i]
}
