package vfs

import (
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// Mount returns fsys seen through a table of mounts: absolute path inside → path in fsys. The longest inside path that
// is a prefix decides; a mount may also be a single file. What no mount covers does not exist, except that List and Stat
// know nothing of the mount points themselves. It is what a container's volume mounts do.
func Mount(fsys FS, table map[string]string) FS {
	m := &mount{fsys: fsys, table: map[string]string{}}
	for inside, outside := range table {
		m.table[path.Clean("/"+inside)] = outside
	}
	return m
}

// Sub returns fsys with dir as its root.
func Sub(fsys FS, dir string) FS { return Mount(fsys, map[string]string{"/": dir}) }

type mount struct {
	fsys  FS
	table map[string]string
}

// resolve maps a path; point is the mount it is in.
func (m *mount) resolve(op, name string) (outside, point string, err error) {
	clean := path.Clean("/" + name)
	for point = clean; ; point = path.Dir(point) {
		if dir, ok := m.table[point]; ok {
			return path.Join(dir, strings.TrimPrefix(clean, point)), point, nil
		}
		if point == "/" {
			return "", "", pathError(op, name, fs.ErrNotExist)
		}
	}
}

func (m *mount) Open(name string) (File, error) {
	p, _, err := m.resolve("open", name)
	if err != nil {
		return nil, err
	}
	return m.fsys.Open(p)
}

func (m *mount) OpenReadWrite(name string) (File, error) {
	p, _, err := m.resolve("open", name)
	if err != nil {
		return nil, err
	}
	return m.fsys.OpenReadWrite(p)
}

func (m *mount) Create(name string) (File, error) {
	p, _, err := m.resolve("create", name)
	if err != nil {
		return nil, err
	}
	return m.fsys.Create(p)
}

func (m *mount) Rename(from, to string) error {
	f, t, err := m.resolveBoth("rename", from, to)
	if err != nil {
		return err
	}
	return m.fsys.Rename(f, t)
}

func (m *mount) Exchange(a, b string) error {
	f, t, err := m.resolveBoth("exchange", a, b)
	if err != nil {
		return err
	}
	return m.fsys.Exchange(f, t)
}

// resolveBoth maps two paths, which must be in the same mount.
func (m *mount) resolveBoth(op, from, to string) (f, t string, err error) {
	f, fromPoint, err := m.resolve(op, from)
	if err != nil {
		return "", "", err
	}
	t, toPoint, err := m.resolve(op, to)
	if err != nil {
		return "", "", err
	}
	if fromPoint != toPoint {
		return "", "", pathError(op, from, syscall.EXDEV)
	}
	return f, t, nil
}

func (m *mount) Remove(name string) error {
	p, _, err := m.resolve("remove", name)
	if err != nil {
		return err
	}
	return m.fsys.Remove(p)
}

func (m *mount) List(dir string) ([]string, error) {
	p, _, err := m.resolve("list", dir)
	if err != nil {
		return nil, err
	}
	return m.fsys.List(p)
}

func (m *mount) Stat(name string) (Info, error) {
	p, _, err := m.resolve("stat", name)
	if err != nil {
		return Info{}, err
	}
	return m.fsys.Stat(p)
}

func (m *mount) MkdirAll(dir string) error {
	p, _, err := m.resolve("mkdir", dir)
	if err != nil {
		return err
	}
	return m.fsys.MkdirAll(p)
}

func (m *mount) SyncDir(dir string) error {
	p, _, err := m.resolve("sync", dir)
	if err != nil {
		return err
	}
	return m.fsys.SyncDir(p)
}

func (m *mount) Lock(name string) (io.Closer, error) {
	p, _, err := m.resolve("lock", name)
	if err != nil {
		return nil, err
	}
	return m.fsys.Lock(p)
}

func (m *mount) Locked(name string) (bool, error) {
	p, _, err := m.resolve("lock", name)
	if err != nil {
		return false, err
	}
	return m.fsys.Locked(p)
}

func (m *mount) FreeSpace(dir string) (int64, error) {
	p, _, err := m.resolve("statfs", dir)
	if err != nil {
		return 0, err
	}
	return m.fsys.FreeSpace(p)
}
