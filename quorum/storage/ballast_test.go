package storage_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

const (
	ballastFile = logDir + "/ballast"
	ballastSize = 5000
)

var ballasted = func() storage.Options {
	o := opts
	o.Ballast = ballastSize
	return o
}()

// untold is a file system with a limit that statfs does not show.
type untold struct{ vfs.FS }

func (untold) FreeSpace(string) (int64, error) { return 1 << 40, nil }

func space(t *testing.T, d *storage.Dir) storage.Space {
	t.Helper()
	s, err := d.Free()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBallastOverStarts: it is made once, and stays as it is over starts, also on a full disk and if it is longer than it need
// be. One that was cut short is made anew. Without room for it a start goes well, below the reserve. Who wants none has none.
func TestBallastOverStarts(t *testing.T) {
	disk := formatted(t)
	touched := 0
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		if c.Path == ballastFile && c.Op.Writes() {
			touched++
		}
		return nil
	})
	for i, step := range []struct {
		what    string
		size    int64 // wanted
		before  func()
		has     bool
		touches bool
		left    int // its length in the end
	}{
		{"the first start", ballastSize, func() {}, true, true, ballastSize},
		{"the next", ballastSize, func() {}, true, false, ballastSize},
		{"a smaller one would do", ballastSize / 2, func() {}, true, false, ballastSize},
		{"full disk", ballastSize, func() { disk.SetCapacity(used(t, disk)) }, true, false, ballastSize},
		{"full disk without it", ballastSize, func() {
			if err := disk.Remove(ballastFile); err != nil {
				t.Fatal(err)
			}
			disk.SetCapacity(used(t, disk) + ballastSize - 1)
		}, false, false, -1},
		{"room again", ballastSize, func() { disk.SetCapacity(0) }, true, true, ballastSize},
		{"cut short", ballastSize, func() { writeFile(t, disk, ballastFile, "half") }, true, true, ballastSize},
		{"none is wanted", 0, func() {}, true, true, -1},
		{"nor now", 0, func() {}, true, false, -1},
	} {
		step.before()
		touched = 0
		o := ballasted
		o.Ballast = step.size
		d := open(t, fsys, o)
		left := -1
		if content, ok := files(t, disk)[ballastFile]; ok {
			left = len(content)
		}
		if d.HasBallast() != step.has || touched > 0 != step.touches || left != step.left {
			t.Errorf("%d %s: has it: %v, %d calls, %d bytes; want %v, some: %v, %d", i, step.what, d.HasBallast(), touched, left, step.has, step.touches, step.left)
		}
		if s := space(t, d); s.Below == step.has && step.what != "full disk" {
			t.Errorf("%d %s: %+v", i, step.what, s)
		}
		d.Abandon()
	}
}

// TestST01BallastMakesRoomForAnAppend that meets a limit which statfs does not show. Until it has room again the directory is
// below its reserve, and full.
func TestST01BallastMakesRoomForAnAppend(t *testing.T) {
	disk := formatted(t)
	d := open(t, untold{disk}, ballasted)
	defer d.Abandon()
	mustAppend(t, d, batch(0, 1, 3))
	if s := space(t, d); s.Below || s.Full {
		t.Errorf("with its ballast: %+v", s)
	}
	for round := range 3 {
		disk.SetCapacity(used(t, disk) + 200)
		var err error
		for err == nil {
			err = d.Log.Append(0, batch(d.Log.End(), 1, 3))
		}
		if !errors.Is(err, storage.ErrDiskFull) {
			t.Fatal(err)
		}
		end := d.Log.End()
		if released, err := d.ReleaseBallast(); !released || err != nil {
			t.Fatalf("round %d: released: %v, %v", round, released, err)
		}
		mustAppend(t, d, batch(end, 1, 3))
		if released, err := d.ReleaseBallast(); released || err != nil {
			t.Fatalf("round %d: released twice: %v, %v", round, released, err)
		}
		if err := d.ProvideBallast(); err != nil || d.HasBallast() {
			t.Fatalf("round %d: without room for it the ballast is there: %v, %v", round, d.HasBallast(), err)
		}
		if _, there := files(t, disk)[ballastFile]; there {
			t.Errorf("round %d: some of it is left, which takes the last of the room", round)
		}
		if s := space(t, d); !s.Below || !s.Full {
			t.Errorf("round %d: without it: %+v", round, s)
		}
		disk.SetCapacity(used(t, disk) + ballastSize)
		if err := d.ProvideBallast(); err != nil || !d.HasBallast() {
			t.Fatalf("round %d: with room for it the ballast is there: %v, %v", round, d.HasBallast(), err)
		}
		if s := space(t, d); s.Below || s.Full {
			t.Errorf("round %d: with it again: %+v", round, s)
		}
	}
}

// TestST01PowerCutAtEveryCallOfTheBallast: whatever is left of it, all that was flushed is there, a start makes up for it if there
// is room, and does without it if there is none.
func TestST01PowerCutAtEveryCallOfTheBallast(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	disk := formatted(t)
	flushed, points := int64(0), 0
	fsys := vfs.WithFaults(disk, func(c vfs.Call) error {
		if !c.Op.Writes() {
			return nil
		}
		points++
		for _, p := range []float64{0, 0.5, 0.8, 1} {
			for _, room := range []int64{0, 1000, 2 * ballastSize} {
				left := disk.CrashClone(rng, p)
				left.SetCapacity(used(t, left) + room)
				if there, _ := vfs.Exists(left, logDir+"/00000000000000000000.log"); !there {
					continue // a first start needs some room for other things
				}
				var seen vfs.FS = left
				if room > 0 && p == 0.5 {
					seen = untold{left}
				}
				d, err := storage.Open(seen, dataDir, ballasted)
				if err != nil {
					t.Fatalf("cut before %s %s, survival %v, room %d: %v", c.Op, c.Path, p, room, err)
				}
				size := int64(len(files(t, left)[ballastFile]))
				if d.HasBallast() != (size >= ballastSize) || room > ballastSize && !d.HasBallast() || size > 0 && size < ballastSize {
					t.Fatalf("cut before %s %s, survival %v, room %d: has ballast: %v, of %d bytes", c.Op, c.Path, p, room, d.HasBallast(), size)
				}
				if end := d.Log.End(); end < flushed || end > flushed+3 {
					t.Fatalf("cut before %s %s, survival %v: the log ends at %d, flushed was %d", c.Op, c.Path, p, end, flushed)
				}
				d.Abandon()
			}
		}
		return nil
	})
	d := open(t, fsys, ballasted)
	for range 3 {
		mustAppend(t, d, batch(flushed, 1, 3))
		flushed = mustFlush(t, d)
		disk.SetCapacity(used(t, disk) + 20)
		if err := d.Log.Append(0, batch(flushed, 1, 3)); !errors.Is(err, storage.ErrDiskFull) {
			t.Fatal(err)
		}
		if released, err := d.ReleaseBallast(); !released || err != nil {
			t.Fatal(released, err)
		}
		mustAppend(t, d, batch(flushed, 1, 3))
		if err := d.ProvideBallast(); err != nil || d.HasBallast() {
			t.Fatal(d.HasBallast(), err)
		}
		flushed = mustFlush(t, d)
		disk.SetCapacity(0)
		if err := d.ProvideBallast(); err != nil || !d.HasBallast() {
			t.Fatal(d.HasBallast(), err)
		}
	}
	mustClose(t, d)
	t.Logf("%d cuts", points)
	if points < 40 {
		t.Errorf("only %d cuts", points)
	}
}

// TestBallastIsNoFinding of verify, and counts for none of its sums.
func TestBallastIsNoFinding(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, ballasted)
	mustAppend(t, d, batch(0, 1, 3))
	size := d.Log.Size()
	mustClose(t, d)
	r, err := storage.Verify(fsys, dataDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if strings.Contains(f.File, "ballast") {
			t.Errorf("found %+v", f)
		}
	}
	if size >= ballastSize {
		t.Errorf("the log has %d bytes", size)
	}
}
