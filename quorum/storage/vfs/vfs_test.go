package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"syscall"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// systems are the file systems that must behave alike, each with a directory to work in.
func systems(t *testing.T) map[string]struct {
	fs  vfs.FS
	dir string
} {
	tmp := t.TempDir()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/tmp"); err != nil {
		t.Fatal(err)
	}
	none := func(vfs.Call) error { return nil }
	return map[string]struct {
		fs  vfs.FS
		dir string
	}{
		"os":     {vfs.OS, path.Join(tmp, "os")},
		"mem":    {mem, "/tmp/mem"},
		"mount":  {vfs.Mount(vfs.OS, map[string]string{"/var/lib/x": path.Join(tmp, "mount")}), "/var/lib/x"},
		"sub":    {vfs.Sub(mem, "/tmp"), "/sub"},
		"faulty": {vfs.WithFaults(mem, none), "/tmp/faulty"},
	}
}

func TestFileSystemsBehaveAlike(t *testing.T) {
	for name, sys := range systems(t) {
		t.Run(name, func(t *testing.T) {
			fsys, dir := sys.fs, sys.dir
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			check(fsys.MkdirAll(path.Join(dir, "a/b")))
			check(fsys.MkdirAll(path.Join(dir, "a/b")))
			file := path.Join(dir, "a/f")
			if _, err := fsys.Open(file); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("open what is not there: %v", err)
			}
			if ok, err := vfs.Exists(fsys, file); ok || err != nil {
				t.Errorf("exists: %v %v", ok, err)
			}
			f, err := fsys.Create(file)
			check(err)
			_, err = f.WriteAt([]byte("hello"), 3)
			check(err)
			got := make([]byte, 10)
			if n, err := f.ReadAt(got, 0); n != 8 || !errors.Is(err, io.EOF) || string(got[:n]) != "\x00\x00\x00hello" {
				t.Errorf("read %d bytes %q, %v", n, got, err)
			}
			check(f.Allocate(1 << 20))
			check(f.Allocate(10))
			if size, err := f.Size(); size != 1<<20 || err != nil {
				t.Errorf("%d bytes are allocated, %v", size, err)
			}
			if n, err := f.ReadAt(got, 2); n != 10 || err != nil || string(got) != "\x00hello\x00\x00\x00\x00" {
				t.Errorf("read %q, %v of what was allocated", got[:n], err)
			}
			check(f.Truncate(4))
			check(f.Truncate(6))
			if size, err := f.Size(); size != 6 || err != nil {
				t.Errorf("size %d, %v", size, err)
			}
			check(f.Sync())
			check(f.Close())
			if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("write after close: %v", err)
			}
			if b, err := vfs.ReadFile(fsys, file); err != nil || string(b) != "\x00\x00\x00h\x00\x00" {
				t.Errorf("content %q, %v", b, err)
			}
			ro, err := fsys.Open(file)
			check(err)
			if _, err := ro.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EBADF) {
				t.Errorf("write to a file open for reading: %v", err)
			}
			check(ro.Close())
			check(vfs.WriteFileAtomic(fsys, path.Join(dir, "a/g"), []byte("one")))
			check(vfs.WriteFileAtomic(fsys, path.Join(dir, "a/g"), []byte("two")))
			check(fsys.Rename(path.Join(dir, "a/g"), path.Join(dir, "a/h")))
			check(fsys.SyncDir(path.Join(dir, "a")))
			check(vfs.WriteFile(fsys, path.Join(dir, "a/x"), []byte("ex")))
			check(fsys.Exchange(path.Join(dir, "a/x"), path.Join(dir, "a/h")))
			for name, want := range map[string]string{"a/x": "two", "a/h": "ex"} {
				if b, err := vfs.ReadFile(fsys, path.Join(dir, name)); string(b) != want || err != nil {
					t.Errorf("exchanged %s: %q, %v, want %q", name, b, err, want)
				}
			}
			if err := fsys.Exchange(path.Join(dir, "a/x"), path.Join(dir, "a/none")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("exchange with nothing: %v", err)
			}
			check(fsys.Rename(path.Join(dir, "a/x"), path.Join(dir, "a/h")))
			if names, err := fsys.List(path.Join(dir, "a")); err != nil || !slices.Equal(names, []string{"b", "f", "h"}) {
				t.Errorf("list: %v, %v", names, err)
			}
			if info, err := fsys.Stat(path.Join(dir, "a/h")); err != nil || info != (vfs.Info{Size: 3}) {
				t.Errorf("stat file: %+v, %v", info, err)
			}
			if info, err := fsys.Stat(path.Join(dir, "a")); err != nil || !info.Dir {
				t.Errorf("stat directory: %+v, %v", info, err)
			}
			check(fsys.Remove(path.Join(dir, "a/h")))
			if err := fsys.Remove(path.Join(dir, "a/h")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("remove twice: %v", err)
			}
			if err := fsys.Remove(path.Join(dir, "a")); !errors.Is(err, syscall.ENOTEMPTY) {
				t.Errorf("remove a directory with files: %v", err)
			}
			held := func(want bool) {
				t.Helper()
				if locked, err := fsys.Locked(path.Join(dir, ".lock")); locked != want || err != nil {
					t.Errorf("locked %v, %v, want %v", locked, err, want)
				}
			}
			held(false)
			if there, err := vfs.Exists(fsys, path.Join(dir, ".lock")); there || err != nil {
				t.Errorf("asking for a lock made its file: %v, %v", there, err)
			}
			lock, err := fsys.Lock(path.Join(dir, ".lock"))
			check(err)
			held(true)
			if _, err := fsys.Lock(path.Join(dir, ".lock")); !errors.Is(err, vfs.ErrLocked) {
				t.Errorf("second lock: %v", err)
			}
			check(lock.Close())
			held(false)
			lock, err = fsys.Lock(path.Join(dir, ".lock"))
			check(err)
			check(lock.Close())
			if free, err := fsys.FreeSpace(dir); err != nil || free <= 0 {
				t.Errorf("free space: %d, %v", free, err)
			}
		})
	}
}

func TestMountKnowsOnlyItsTable(t *testing.T) {
	mem := vfs.NewMem()
	_ = mem.MkdirAll("/host/data")
	_ = mem.MkdirAll("/host/config")
	if err := vfs.WriteFile(mem, "/host/config/quorum.properties", []byte("node.id=1")); err != nil {
		t.Fatal(err)
	}
	m := vfs.Mount(mem, map[string]string{
		"/var/lib/quorum":               "/host/data",
		"/etc/quorum/quorum.properties": "/host/config/quorum.properties",
		"/var/lib/quorum/lost+found":    "/host/config",
	})
	if b, err := vfs.ReadFile(m, "/etc/quorum/quorum.properties"); err != nil || string(b) != "node.id=1" {
		t.Errorf("single file: %q, %v", b, err)
	}
	for _, outside := range []string{"/etc/passwd", "/var/lib/quorum/../../../host/config/quorum.properties", "/var/lib/quorum2"} {
		if _, err := m.Stat(outside); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat %s: %v", outside, err)
		}
	}
	if err := vfs.WriteFile(m, "/var/lib/quorum/x", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Stat("/host/data/x"); err != nil {
		t.Error(err)
	}
	if err := m.Rename("/var/lib/quorum/x", "/var/lib/quorum/lost+found/x"); !errors.Is(err, syscall.EXDEV) {
		t.Errorf("rename across mounts: %v", err)
	}
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	m := vfs.NewMem()
	_ = m.MkdirAll("/d")
	_ = m.SyncDir("/")
	f, _ := m.Create("/d/f")
	synced := bytes.Repeat([]byte("s"), 2000)
	_, _ = f.WriteAt(synced, 0)
	_ = f.Sync()
	if c := m.CrashClone(rng, 0); exists(c, "/d/f") {
		t.Error("a directory entry that was never synced survived at probability 0")
	}
	_ = m.SyncDir("/d")
	_, _ = f.WriteAt(bytes.Repeat([]byte("u"), 3000), 1000)
	_ = m.Rename("/d/f", "/d/g")

	c := m.CrashClone(rng, 0)
	if b, err := vfs.ReadFile(c, "/d/f"); err != nil || !bytes.Equal(b, synced) || exists(c, "/d/g") {
		t.Errorf("at probability 0: %d bytes, %v", len(b), err)
	}
	c = m.CrashClone(rng, 1)
	if b, err := vfs.ReadFile(c, "/d/g"); err != nil || len(b) != 4000 || exists(c, "/d/f") {
		t.Errorf("at probability 1: %d bytes, %v", len(b), err)
	}
	sizes := map[int]bool{}
	for range 200 {
		c := m.CrashClone(rng, 0.5)
		name := "/d/g"
		if exists(c, "/d/f") == exists(c, name) {
			t.Fatal("a rename half done")
		} else if !exists(c, name) {
			name = "/d/f"
		}
		b, err := vfs.ReadFile(c, name)
		if err != nil || len(b) < 2000 || len(b) > 4000 || bytes.ContainsAny(b[:1000], "u\x00") || bytes.Contains(b[1000:1536], []byte{0}) {
			t.Fatalf("%d bytes, %v: a synced byte was lost", len(b), err)
		}
		for i := 1536; i+512 <= len(b); i += 512 {
			if sector := b[i : i+512]; i >= 2048 && bytes.Count(sector, sector[:1]) != 512 {
				t.Fatalf("sector at %d is torn inside", i)
			}
		}
		sizes[len(b)] = true
	}
	if len(sizes) < 10 {
		t.Errorf("only %d sizes seen: the crash is too kind", len(sizes))
	}
}

func exists(fsys vfs.FS, name string) bool {
	ok, _ := vfs.Exists(fsys, name)
	return ok
}

// TestWriteFileAtomicAtEveryCrashPoint: the file holds the old content or the new, always, and the new once it returned.
func TestWriteFileAtomicAtEveryCrashPoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	base := vfs.NewMem()
	_ = base.MkdirAll("/d")
	_ = base.SyncDir("/")
	if err := vfs.WriteFileAtomic(base, "/d/f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	look := func(m *vfs.Mem) string {
		b, err := vfs.ReadFile(m, "/d/f")
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	seen := map[string]int{}
	fsys := vfs.WithFaults(base, func(vfs.Call) error {
		for range 50 {
			seen[look(base.CrashClone(rng, 0.5))]++
		}
		return nil
	})
	if err := vfs.WriteFileAtomic(fsys, "/d/f", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen["old"] == 0 || seen["new"] == 0 {
		t.Errorf("seen after a crash: %v", seen)
	}
	for range 50 {
		if got := look(base.CrashClone(rng, 0)); got != "new" {
			t.Errorf("after it returned: %q", got)
		}
	}
}

func TestFullDiskCutsTheWrite(t *testing.T) {
	m := vfs.NewMem()
	m.SetCapacity(1000)
	f, _ := m.Create("/f")
	if n, err := f.WriteAt(make([]byte, 1500), 0); n != 1000 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if err := f.Truncate(100); err != nil {
		t.Error(err)
	}
	if free, _ := m.FreeSpace("/"); free != 900 {
		t.Errorf("free %d", free)
	}
	if err := vfs.WriteFileAtomic(m, "/g", make([]byte, 901)); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if names, _ := m.List("/"); !slices.Equal(names, []string{"f"}) {
		t.Errorf("left behind: %v", names)
	}
}

func TestProtectedFilesAreNotWritten(t *testing.T) {
	for name, sys := range systems(t) {
		fsys, file := sys.fs, path.Join(sys.dir, "f")
		if err := fsys.MkdirAll(sys.dir); err != nil {
			t.Fatal(err)
		}
		f, err := fsys.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Protect(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := f.WriteAt([]byte("open before"), 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_, err1 := fsys.OpenReadWrite(file)
		_, err2 := fsys.Create(file)
		if os.Getuid() != 0 || name != "os" && name != "mount" { // root may
			for _, err := range []error{err1, err2} {
				if !errors.Is(err, syscall.EACCES) {
					t.Errorf("%s: opened for writing: %v", name, err)
				}
			}
		}
		if err := fsys.Rename(file, file+"2"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := fsys.Remove(file + "2"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFaults(t *testing.T) {
	m := vfs.NewMem()
	onSync := func(c vfs.Call) bool { return c.Op == vfs.OpSync }
	fsys := vfs.WithFaults(m, vfs.FailAt(2, syscall.EIO, onSync))
	f, err := fsys.Create("/f")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 3 {
		got = append(got, fmt.Sprint(f.Sync()))
	}
	if want := []string{"<nil>", "sync /f: input/output error", "<nil>"}; !slices.Equal(got, want) {
		t.Errorf("syncs: %q", got)
	}
	short := vfs.WithFaults(m, func(c vfs.Call) error {
		if c.Op == vfs.OpWrite {
			return &vfs.ShortWrite{N: 2, Err: syscall.ENOSPC}
		}
		return nil
	})
	f, err = short.OpenReadWrite("/f")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt([]byte("hello"), 0); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("short write: %d, %v", n, err)
	}
	if _, err := vfs.WithFaults(m, vfs.ReadOnly).Create("/x"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("read-only: %v", err)
	}
}
