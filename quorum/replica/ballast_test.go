package replica

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// untold is a file system with a limit that statfs does not show.
type untold struct{ vfs.FS }

func (untold) FreeSpace(string) (int64, error) { return 1 << 40, nil }

// silent is one whose statfs fails.
type silent struct{ vfs.FS }

func (silent) FreeSpace(string) (int64, error) { return 0, syscall.ENOSYS }

const ballast = 16 << 10

// limit leaves that many bytes.
func (d *driver) limit(room int64) {
	d.t.Helper()
	const plenty = 1 << 40
	d.fs.SetCapacity(plenty)
	free, err := d.fs.FreeSpace("/")
	if err != nil {
		d.t.Fatal(err)
	}
	d.fs.SetCapacity(plenty - free + max(room, 1))
}

// records counts those of clients.
func (d *driver) records() (n int, err error) {
	err = d.r.Dir().Walk(0, d.r.Dir().Log.End(), func(b record.Batch) error {
		if !b.IsControl() {
			n += int(b.Count)
		}
		return nil
	})
	return n, err
}

// TestST01AQuotaThatNobodyTells is met by an append that is decided already. It is stored in the ballast's room, and what
// comes after it is refused, for as long as it takes; a start in between is no matter. With room again appends are taken,
// and the ballast is back. Nothing that was acknowledged is lost, and at no time does the process end.
func TestST01AQuotaThatNobodyTells(t *testing.T) {
	for _, told := range []bool{false, true} { // log.reserve.bytes=0 is no better
		d := newDriver(t, 1)
		if d.storage.Ballast, d.storage.SegmentBytes = ballast, 3000; !told {
			d.through = untold{d.fs}
		}
		d.reopen()
		d.pass(10 * time.Second)
		sequence := int32(0)
		appends := func() (acked int) {
			for ; ; sequence++ {
				got := answer[ProduceResult](d, d.produce(d.batch(5, sequence, 1), 0))
				if got.Error == raft.KafkaStorageError {
					return acked
				}
				if acked++; got.Error != raft.NoError || acked > 200 {
					t.Fatalf("append %d: %+v", sequence, got)
				}
			}
		}
		for round := range 3 {
			d.limit(2000 + int64(round)*777)
			if n := appends(); n < 5 {
				t.Errorf("round %d: only %d appends", round, n)
			}
			if s := d.r.Status(); !d.r.BelowReserve() || !s.BelowReserve || d.r.Dir().HasBallast() {
				t.Errorf("round %d: below the reserve: %v, the core knows: %v, has ballast: %v", round, d.r.BelowReserve(), s.BelowReserve, d.r.Dir().HasBallast())
			}
			if round == 1 {
				end := d.r.Dir().Log.End()
				d.r.Abandon()
				d.open()
				if d.r.Dir().Log.End() < end || !d.r.BelowReserve() || !d.r.Status().BelowReserve {
					t.Errorf("after a start on the full disk the log ends at %d, want %d; below its reserve: %v", d.r.Dir().Log.End(), end, d.r.BelowReserve())
				}
			}
			if d.pass(10 * time.Minute); !told && !d.r.Status().Full {
				t.Error("the disk refuses what statfs says there is room for, and does not count as full")
			}
			d.limit(1 << 20)
			d.pass(10 * time.Second)
			if d.r.BelowReserve() || d.r.Status().BelowReserve || !d.r.Dir().HasBallast() {
				t.Fatalf("round %d: with room again: below the reserve: %v, has ballast: %v", round, d.r.BelowReserve(), d.r.Dir().HasBallast())
			}
		}
		d.fill(sequence, 1)
		if records, err := d.records(); err != nil || records != int(sequence)+1 {
			t.Errorf("%d records are there of %d that were acknowledged, %v", records, sequence+1, err)
		}
	}
}

// TestST01AFollowerMeetsAQuota: it stores what it has decided to, drops what comes then, and says in its Fetch that it is below
// its reserve.
func TestST01AFollowerMeetsAQuota(t *testing.T) {
	d := newDriver(t, 3)
	d.through, d.storage.Ballast = untold{d.fs}, ballast
	d.reopen()
	to := d.follow(6)
	d.limit(2000)
	var offset int64
	for ; !d.r.BelowReserve(); offset++ {
		if offset > 100 {
			t.Fatal("the quota is not noticed")
		}
		if d.respond(to, 6, logged(t, offset, 6)[0], 0); !d.r.BelowReserve() {
			to = d.fetch()
		}
	}
	end := d.r.Dir().Log.End()
	if end != offset {
		t.Errorf("the log ends at %d, want %d: the append that met the quota is lost", end, offset)
	}
	d.pass(1900 * time.Millisecond)
	to = d.fetch()
	if f := to.Request.(raft.FetchRequest); !f.BelowReserve {
		t.Errorf("it asks %+v, and does not say that it is below its reserve", f)
	}
	d.respond(to, 6, logged(t, offset, 6)[0], 0)
	if got := d.r.Dir().Log.End(); got != end {
		t.Errorf("below its reserve it has stored up to %d, after %d", got, end)
	}
}

// TestST01VoteFindsTheBallast where quorum-state cannot be written in place, as on btrfs.
func TestST01VoteFindsTheBallast(t *testing.T) {
	d := newDriver(t, 3)
	d.storage.Ballast = ballast
	d.reopen()
	refused := 0
	fsys := vfs.WithFaults(silent{d.fs}, func(c vfs.Call) error {
		there, _ := vfs.Exists(d.fs, "/data/__cluster_metadata-0/ballast")
		if c.Op == vfs.OpWrite && strings.HasSuffix(c.Path, "quorum-state.tmp") && there {
			refused++
			return syscall.EDQUOT
		}
		if c.Op == vfs.OpAllocate {
			return syscall.EDQUOT
		}
		return nil
	})
	d.r.Abandon()
	d.through = fsys
	d.open()
	d.follow(6)
	d.pass(0)
	if s := d.r.Status(); refused != 1 || d.r.Dir().ElectionState().Epoch != 6 || !d.r.BelowReserve() || !s.BelowReserve {
		t.Errorf("%d writes refused, epoch %d, below the reserve: %v, the core knows: %v", refused, d.r.Dir().ElectionState().Epoch, d.r.BelowReserve(), s.BelowReserve)
	}
}

// TestST01SecondTryThatFails ends the process as before: somebody else has taken the ballast's room, or there was none.
func TestST01SecondTryThatFails(t *testing.T) {
	for _, size := range []int64{0, ballast} {
		d := newDriver(t, 1)
		d.storage.Ballast = size
		full, tries := false, 0
		d.through = vfs.WithFaults(d.fs, func(c vfs.Call) error {
			if full && c.Op == vfs.OpWrite && strings.HasSuffix(c.Path, ".log") {
				tries++
				return &vfs.ShortWrite{N: 10, Err: syscall.ENOSPC}
			}
			return nil
		})
		d.reopen()
		d.pass(10 * time.Second)
		d.fill(0, 3)
		full = true
		out := d.r.Step(d.now, Produce{ID: d.id(), Batch: d.batch(5, 3, 1)})
		if f := out.Fatal; f == nil || f.Reason != DiskFull || len(out.Answers) > 0 {
			t.Errorf("ballast of %d: %+v", size, out)
		}
		if want := map[int64]int{0: 1, ballast: 2}[size]; tries != want {
			t.Errorf("ballast of %d: %d tries, want %d", size, tries, want)
		}
		full = false
		d.r.Abandon()
		d.open()
		if got, err := d.records(); got != 3 || err != nil {
			t.Errorf("after a restart there are %d records, %v, want the 3 that were acknowledged", got, err)
		}
	}
}
