//go:build e2e && linux

package e2e

import (
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	volumeBytes  = 34 << 20 // with the ballast
	reserveBytes = "log.reserve.bytes=2097152"
)

// mount gives a member a small ext4 of its own, in a file.
func (p *process) mount() {
	p.t.Helper()
	if os.Getuid() != 0 {
		p.t.Skip("only root may mount the small file systems that this test fills")
	}
	p.volume = "volume"
	image, point := filepath.Join(p.dir, "image"), filepath.Join(p.dir, p.volume)
	if err := errors.Join(os.MkdirAll(point, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, volumeBytes)); err != nil {
		p.t.Fatal(err)
	}
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-m", "0", image}, // nothing is kept for root, as which members run here
		{"mount", "-o", "loop", image, point},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			p.t.Skipf("this machine cannot mount an ext4 from a file: %s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	p.t.Cleanup(func() {
		if out, err := exec.Command("umount", "--lazy", point).CombinedOutput(); err != nil {
			p.t.Errorf("umount %s: %v\n%s", point, err, out)
		}
	})
}

func (p *process) filler() string { return filepath.Join(p.dir, p.volume, "filler") }

func (p *process) freeBytes() int64 {
	p.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Join(p.dir, p.volume), &st); err != nil {
		p.t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// fill takes all of the volume that is free, to the last byte.
func (p *process) fill() {
	p.t.Helper()
	f, err := os.Create(p.filler())
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<10)
	size := int64(0)
	for free := p.freeBytes(); ; free /= 2 { // the file system needs some of it for the file itself
		if free < int64(len(block)) {
			n, err := f.WriteAt(block, size)
			size += int64(n)
			if errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil {
				p.t.Fatal(err)
			}
			free = p.freeBytes()
			continue
		}
		err := syscall.Fallocate(int(f.Fd()), 0, size, free)
		if err == nil {
			size += free
			free = 2 * p.freeBytes()
		} else if !errors.Is(err, syscall.ENOSPC) {
			p.t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		p.t.Fatal(err)
	}
	if free := p.freeBytes(); free != 0 {
		p.t.Fatalf("%d bytes are free on the volume of member %d, want none", free, p.id)
	}
}

// drain gives back what fill took.
func (p *process) drain() {
	p.t.Helper()
	if err := os.Remove(p.filler()); err != nil {
		p.t.Fatal(err)
	}
}

// livesOn fails the test if a member that nobody has killed is not there any more.
func (q *quorum) livesOn() {
	q.t.Helper()
	for _, p := range q.members {
		text, err := os.ReadFile(filepath.Join(p.dir, "log"))
		if err != nil {
			q.t.Fatal(err)
		}
		if strings.Contains(string(text), "DISK_FULL") {
			q.t.Errorf("member %d has ended", p.id)
		}
		q.await("all members to be there", func() bool { return p.status() != nil })
	}
}

// ready asks /readyz.
func (p *process) ready() (int, string) {
	p.t.Helper()
	r, err := quiet.Get("http://" + p.health() + "/readyz")
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	why, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.StatusCode, string(why)
}

// ST-01: the disk of the leader is full, to the last byte and at once. In less than three seconds another leads; the member
// lives on, and has everything soon after it has room again.
func TestST01DiskFullOnTheLeader(t *testing.T) {
	q := startOn(t, 3, (*process).mount, reserveBytes)
	old, _ := q.settled()
	l := begin(t, q.bootstrap(), 4)
	l.run(*steady)
	// ends counts the EndQuorumEpoch requests that the others got.
	ends := func() (n float64) {
		for _, p := range q.members {
			if p != old {
				if got := p.metric(`quorum_requests_total{listener="CONTROLLER",request="EndQuorumEpoch"}`); !math.IsNaN(got) {
					n += got
				}
			}
		}
		return n
	}
	before := ends()
	old.fill()
	q.awaitFor(3*time.Second, "another leader", func() bool {
		s := old.status()
		return s != nil && s.Role == "Follower" && s.Leader != nil && s.Disk.Full && s.Disk.BelowReserve
	})
	if ends() == before {
		t.Error("nobody has got an EndQuorumEpoch: the full leader did not leave by itself")
	}
	if got := old.metric("quorum_disk_full"); got != 1 {
		t.Errorf("with a full disk quorum_disk_full is %v, want 1", got)
	}
	if code, why := old.ready(); code != http.StatusServiceUnavailable || !strings.Contains(why, "disk") {
		t.Errorf("with a full disk /readyz answers %d %q, want 503 and the disk", code, why)
	}
	for range 5 {
		l.run(*steady)
	}
	if s := old.status(); s == nil || s.Disk.FreeBytes != 0 {
		t.Errorf("the full member says %+v", s)
	}
	old.drain()
	q.awaitFor(10*time.Second, "the old leader to have everything", func() bool {
		s := old.status()
		return s != nil && s.Ready && !s.Disk.BelowReserve
	})
	if code, why := old.ready(); code != http.StatusOK {
		t.Errorf("with room again /readyz answers %d %q", code, why)
	}
	q.settled()
	q.livesOn()
	l.end()
}

// ST-02: the disks of all members are full, to the last byte; then all are killed and started. They live on, and nobody
// stands up to lead. As soon as one has room, those that have none may vote for it; with two of three, appends go on, and
// nothing that was acknowledged is lost. Nobody repairs anything, and nobody is started again.
func TestST02DiskFullEverywhere(t *testing.T) {
	q := startOn(t, 3, (*process).mount, reserveBytes)
	q.settled()
	l := begin(t, q.bootstrap(), 4)
	l.run(*steady)
	for _, p := range q.members {
		p.fill()
	}
	q.await("all to notice", func() bool {
		for _, p := range q.members {
			if s := p.status(); s == nil || !s.Disk.Full {
				return false
			}
		}
		return true
	})
	q.livesOn()
	for _, p := range q.members {
		p.kill()
	}
	for _, p := range q.members {
		p.start()
	}
	epochs := map[int]int32{}
	q.await("all to be back", func() bool {
		for _, p := range q.members {
			s := p.status()
			if s == nil || !s.Disk.Full {
				return false
			}
			epochs[p.id] = s.Epoch
		}
		return true
	})
	before := l.total.Load()
	time.Sleep(10 * time.Second) // several election timeouts, in which nothing may happen
	q.livesOn()
	for _, p := range q.members {
		if s := p.status(); s != nil && (s.Role == "Leader" || s.Epoch != epochs[p.id] || s.Disk.FreeBytes != 0) {
			t.Errorf("without room member %d is %s of epoch %d, was in %d: %+v", p.id, s.Role, s.Epoch, epochs[p.id], s.Disk)
		}
	}
	if n := l.total.Load(); n != before {
		t.Errorf("%d appends were acknowledged without room anywhere", n-before)
	}
	q.members[1].drain()
	time.Sleep(2 * time.Second) // if its log is not behind theirs, those without room vote for it
	for _, p := range q.members {
		if s := p.status(); s != nil && s.Role == "Leader" {
			t.Logf("member %d leads epoch %d, with the vote of a member that has no room", p.id, s.Epoch)
		}
	}
	q.members[2].drain()
	began := time.Now()
	l.run(*steady)
	t.Logf("appends went on %v after two had room", time.Since(began).Round(time.Millisecond))
	q.livesOn()
	q.members[0].drain()
	q.settled()
	q.livesOn()
	l.end()
}
