package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// sector is the grain at which a power cut tears a write, in bytes.
const sector = 512

// Mem is a file system in memory that remembers what was synced and what was not. Safe for concurrent use.
type Mem struct {
	mu       sync.Mutex
	root     *node
	locked   map[*node]bool
	used     int64
	capacity int64 // bytes that files may hold; 0: no limit
}

// NewMem makes an empty file system.
func NewMem() *Mem {
	return &Mem{root: newDir(), locked: map[*node]bool{}}
}

// SetCapacity limits how many bytes all files hold together; writes beyond it are cut short with ENOSPC. 0: no limit.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// node is a file or a directory.
type node struct {
	dir bool

	// a directory: its entries now, as of the last SyncDir, and what happened in between
	entries map[string]*node
	synced  map[string]*node
	pending []change

	// a file: its content now; its size at the last Sync; and the sectors of then that were overwritten or cut since
	data       []byte
	syncedSize int64
	undo       map[int64][]byte
	dropped    map[int64]bool // sectors that Sync leaves out: see DropDirty
	readOnly   bool
}

// change is one operation on a directory: the entries it set (nil: removed). A crash keeps all of it or nothing.
type change map[string]*node

func newDir() *node { return &node{dir: true, entries: map[string]*node{}, synced: map[string]*node{}} }

func (n *node) apply(c change) {
	set(n.entries, c)
	n.pending = append(n.pending, c)
}

func set(entries map[string]*node, c change) {
	for name, child := range c {
		if child == nil {
			delete(entries, name)
		} else {
			entries[name] = child
		}
	}
}

// CrashClone returns the disk as a machine might find it that lost power now and came up again: what was synced is
// there; each unsynced sector, size or directory entry is there with the given probability. At 0 only what was synced
// survives, at 1 everything does. The clone holds no locks and everything in it counts as synced.
func (m *Mem) CrashClone(rng *rand.Rand, probability float64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{survives: func() bool { return probability >= 1 || rng.Float64() < probability }, rng: rng, done: map[*node]*node{}}
	out := &Mem{root: c.clone(m.root), locked: map[*node]bool{}, capacity: m.capacity}
	for _, n := range c.done {
		out.used += int64(len(n.data))
	}
	return out
}

type crash struct {
	survives func() bool
	rng      *rand.Rand
	done     map[*node]*node // an inode may be found under two names
}

func (c *crash) clone(n *node) *node {
	if twin, ok := c.done[n]; ok {
		return twin
	}
	twin := &node{dir: n.dir}
	c.done[n] = twin
	if !n.dir {
		twin.data, twin.readOnly = c.content(n), n.readOnly
		twin.syncedSize = int64(len(twin.data))
		return twin
	}
	entries := maps.Clone(n.synced)
	for _, ch := range n.pending {
		if c.survives() {
			set(entries, ch)
		}
	}
	twin.entries = map[string]*node{}
	for _, name := range slices.Sorted(maps.Keys(entries)) { // sorted: the random numbers must fall the same way each time
		twin.entries[name] = c.clone(entries[name])
	}
	twin.synced = maps.Clone(twin.entries)
	return twin
}

func (c *crash) content(n *node) []byte {
	size := int64(len(n.data))
	if size != n.syncedSize && !c.survives() {
		size = n.syncedSize
		if c.survives() { // the size went half way
			low, high := min(n.syncedSize, int64(len(n.data))), max(n.syncedSize, int64(len(n.data)))
			size = low + c.rng.Int64N(high-low+1)
		}
	}
	data := make([]byte, size)
	for start := int64(0); start < size; start += sector {
		end := min(start+sector, size)
		old, changed := n.undo[start]
		if !changed && end <= n.syncedSize && end <= int64(len(n.data)) {
			copy(data[start:end], n.data[start:end])
			continue
		}
		if !changed { // a sector that grew: its old content is a prefix of the new
			old = n.data[min(start, int64(len(n.data))):min(max(start, n.syncedSize), end, int64(len(n.data)))]
		}
		if c.survives() && start < int64(len(n.data)) {
			copy(data[start:end], n.data[start:])
		} else {
			copy(data[start:end], old)
		}
	}
	return data
}

// DropDirty does to a file what Linux does when an fsync fails: the sectors that were not synced can still be read, but
// count as clean, so that a later Sync leaves them out unless they are written again.
func (m *Mem) DropDirty(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return pathError("drop", name, err)
	}
	n.dropped = map[int64]bool{}
	size := int64(len(n.data))
	for start := int64(0); start < size; start += sector {
		_, changed := n.undo[start]
		if !changed && min(start+sector, size) > n.syncedSize {
			if n.undo == nil {
				n.undo = map[int64][]byte{}
			}
			n.undo[start] = slices.Clone(n.data[start:max(start, n.syncedSize)])
			changed = true
		}
		if changed {
			n.dropped[start] = true
		}
	}
	return nil
}

// Rot flips a bit of a file, as a disk may at any time: whoever has it open sees that, too.
func (m *Mem) Rot(name string, at int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err == nil && (at < 0 || at >= int64(len(n.data))) {
		err = io.EOF
	}
	if err == nil {
		n.data[at] ^= 1
	}
	return pathError("rot", name, err)
}

// remember saves the sectors of [from, to) as they were at the last Sync, if they are still so.
func (n *node) remember(from, to int64) {
	for start := from - from%sector; start < min(to, n.syncedSize); start += sector {
		if _, ok := n.undo[start]; ok {
			continue
		}
		if n.undo == nil {
			n.undo = map[int64][]byte{}
		}
		n.undo[start] = slices.Clone(n.data[start:min(start+sector, n.syncedSize)])
	}
}

func (m *Mem) find(name string) (*node, error) {
	n := m.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			continue
		}
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		next := n.entries[part]
		if next == nil {
			return nil, fs.ErrNotExist
		}
		n = next
	}
	return n, nil
}

func (m *Mem) parent(name string) (*node, string, error) {
	name = path.Clean("/" + name)
	d, err := m.find(path.Dir(name))
	if err == nil && !d.dir {
		err = syscall.ENOTDIR
	}
	return d, path.Base(name), err
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (m *Mem) open(name string, write bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err == nil && n.dir {
		err = syscall.EISDIR
	}
	if err == nil && write && n.readOnly {
		err = syscall.EACCES
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &memFile{m: m, n: n, name: name, write: write}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenReadWrite implements FS.
func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open(name, true) }

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(name)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	n := d.entries[base]
	switch {
	case n == nil:
		n = &node{}
		d.apply(change{base: n})
	case n.dir:
		return nil, pathError("create", name, syscall.EISDIR)
	case n.readOnly:
		return nil, pathError("create", name, syscall.EACCES)
	default:
		m.resize(n, 0)
	}
	return &memFile{m: m, n: n, name: name, write: true}, nil
}

// Rename implements FS. Within a directory a crash sees all of it or nothing.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fromDir, fromBase, err1 := m.parent(from)
	toDir, toBase, err2 := m.parent(to)
	if err1 != nil || err2 != nil || fromDir.entries[fromBase] == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	n := fromDir.entries[fromBase]
	if old := toDir.entries[toBase]; old != nil && old != n {
		m.used -= int64(len(old.data))
	}
	if fromDir == toDir {
		fromDir.apply(change{fromBase: nil, toBase: n})
		return nil
	}
	toDir.apply(change{toBase: n})
	fromDir.apply(change{fromBase: nil})
	return nil
}

// Exchange implements FS.
func (m *Mem) Exchange(a, b string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	aDir, aBase, err1 := m.parent(a)
	bDir, bBase, err2 := m.parent(b)
	switch {
	case err1 != nil || err2 != nil || aDir.entries[aBase] == nil || bDir.entries[bBase] == nil:
		return pathError("exchange", a, fs.ErrNotExist)
	case aDir != bDir:
		return pathError("exchange", a, errors.ErrUnsupported)
	}
	aDir.apply(change{aBase: bDir.entries[bBase], bBase: aDir.entries[aBase]})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(name)
	if err == nil && d.entries[base] == nil {
		err = fs.ErrNotExist
	}
	if err == nil && len(d.entries[base].entries) > 0 {
		err = syscall.ENOTEMPTY
	}
	if err != nil {
		return pathError("remove", name, err)
	}
	m.used -= int64(len(d.entries[base].data))
	d.apply(change{base: nil})
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return Info{Size: int64(len(n.data)), Dir: n.dir}, nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+dir), "/"), "/") {
		if part == "" {
			continue
		}
		next := n.entries[part]
		if next == nil {
			next = newDir()
			n.apply(change{part: next})
		}
		if !next.dir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(dir)
	if err != nil {
		return pathError("sync", dir, err)
	}
	n.synced, n.pending = maps.Clone(n.entries), nil
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.openOrCreate(name)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[f.n] {
		return nil, ErrLocked
	}
	m.locked[f.n] = true
	return closeFunc(func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locked, f.n)
		return nil
	}), nil
}

// Locked implements FS.
func (m *Mem) Locked(name string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return m.locked[n], err
}

func (m *Mem) openOrCreate(name string) (*memFile, error) {
	f, err := m.open(name, true)
	if err != nil {
		f, err = m.Create(name)
	}
	if err != nil {
		return nil, err
	}
	return f.(*memFile), nil
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// FreeSpace implements FS.
func (m *Mem) FreeSpace(dir string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find(dir); err != nil {
		return 0, pathError("statfs", dir, err)
	}
	if m.capacity == 0 {
		return 1 << 40, nil
	}
	return max(0, m.capacity-m.used), nil
}

// resize sets a file's size, remembering what it cuts; the new bytes of a longer file are zero.
func (m *Mem) resize(n *node, size int64) {
	m.used += size - int64(len(n.data))
	if size < int64(len(n.data)) {
		n.remember(size, int64(len(n.data)))
		n.data = n.data[:size]
		return
	}
	n.data = append(n.data, make([]byte, size-int64(len(n.data)))...)
}

type memFile struct {
	m      *Mem
	n      *node
	name   string
	write  bool
	closed bool
}

func (f *memFile) check(op string, write bool) error {
	switch {
	case f.closed:
		return pathError(op, f.name, fs.ErrClosed)
	case write && !f.write:
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	var err error
	if grow := off + int64(len(p)) - int64(len(f.n.data)); grow > 0 && f.m.capacity > 0 && f.m.used+grow > f.m.capacity {
		p = p[:max(0, int64(len(p))-(f.m.used+grow-f.m.capacity))]
		err = pathError("write", f.name, syscall.ENOSPC)
	}
	if end := off + int64(len(p)); end > int64(len(f.n.data)) && len(p) > 0 {
		f.n.remember(off, int64(len(f.n.data)))
		f.m.resize(f.n, end)
	} else {
		f.n.remember(off, end)
	}
	copy(f.n.data[min(off, int64(len(f.n.data))):], p)
	for start := off - off%sector; start < off+int64(len(p)); start += sector {
		delete(f.n.dropped, start)
	}
	return len(p), err
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("truncate", true); err != nil {
		return err
	}
	f.m.resize(f.n, size)
	return nil
}

func (f *memFile) Allocate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("allocate", true); err != nil {
		return err
	}
	grow := max(0, size-int64(len(f.n.data)))
	var err error
	if f.m.capacity > 0 && f.m.used+grow > f.m.capacity {
		grow = max(0, f.m.capacity-f.m.used)
		err = pathError("allocate", f.name, syscall.ENOSPC)
	}
	f.m.resize(f.n, int64(len(f.n.data))+grow)
	return err
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.n.syncedSize = int64(len(f.n.data))
	maps.DeleteFunc(f.n.undo, func(start int64, _ []byte) bool { return !f.n.dropped[start] })
	return nil
}

func (f *memFile) Protect() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.readOnly = true
	return f.check("chmod", true)
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), f.check("stat", false)
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}
