package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// health asks a path of the HEALTH listener.
func (c *cluster) health(m *testMember, path string) (int, string) {
	r, err := httpClient.Get("http://" + m.listeners[config.Health] + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return r.StatusCode, strings.TrimSpace(string(body))
}

// A member without a quorum is of no use, but restarting it would not help either (OB-05).
func TestOB05LivenessDoesNotNeedAQuorum(t *testing.T) {
	c := newCluster(t, 3, 0)
	c.leader()
	alone := c.members[0]
	for _, m := range c.members[1:] {
		c.killMember(m)
	}
	c.await("the member to notice", func() bool { code, _ := c.health(alone, "/readyz"); return code == http.StatusServiceUnavailable })
	if code, why := c.health(alone, "/readyz"); code != http.StatusServiceUnavailable || why == "" || why == "ok" {
		t.Errorf("/readyz answers %d %q, want 503 and a reason", code, why)
	}
	if code, why := c.health(alone, "/livez"); code != http.StatusOK {
		t.Errorf("/livez answers %d %q, want 200", code, why)
	}
	for _, m := range c.members[1:] {
		c.start(m)
	}
	c.leader()
	if code, why := c.health(alone, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d %q with the others back", code, why)
	}
}

// A loop that hangs is what liveness is for: the negative test of OB-05.
func TestOB05HungLoopIsNotAlive(t *testing.T) {
	s := &server{began: time.Now().Add(-time.Hour)}
	s.view.Store(&view{})
	s.beat.Store(int64(s.now()) - int64(hungAfter) - 1)
	w := httptest.NewRecorder()
	s.livez(w, nil)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("/livez answers %d %q after a loop that hung for %v", w.Code, w.Body, hungAfter)
	}
	s.beat.Store(int64(s.now()))
	w = httptest.NewRecorder()
	s.livez(w, nil)
	if w.Code != http.StatusOK {
		t.Errorf("/livez answers %d %q of a loop that came round just now", w.Code, w.Body)
	}
}

// While another process holds the directory the member is alive and not ready; then it goes on by itself.
func TestMemberWaitsForTheLockOfItsDirectory(t *testing.T) {
	c := newCluster(t, 1, 0)
	m := c.leader()
	c.stop(m)
	lock, err := vfs.OS.Lock(m.dir + "/.lock")
	if err != nil {
		t.Fatal(err)
	}
	c.start(m)
	c.await("the health listener", func() bool { code, _ := c.health(m, "/livez"); return code == http.StatusOK })
	if code, why := c.health(m, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(why, "directory") {
		t.Errorf("/readyz answers %d %q while the directory is locked", code, why)
	}
	if code, _ := c.health(m, "/v1/status"); code != http.StatusServiceUnavailable {
		t.Errorf("/v1/status answers %d while the directory is locked, want 503", code)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	c.leader()
}

// A stop while the directory is locked ends the wait.
func TestMemberCanBeStoppedWhileItWaitsForItsDirectory(t *testing.T) {
	c := newCluster(t, 1, 0)
	m := c.leader()
	c.stop(m)
	lock, err := vfs.OS.Lock(m.dir + "/.lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	c.start(m)
	c.await("the health listener", func() bool { code, _ := c.health(m, "/livez"); return code == http.StatusOK })
	began := time.Now()
	c.stop(m)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v to stop", took)
	}
}

// A voter that comes back with an empty disk is somebody else: it follows, and has no vote under its old name (ST-22, ST-24).
func TestST24WipedVoterComesBackAsAnObserver(t *testing.T) {
	c := newCluster(t, 3, 0, "cluster.id="+testCluster)
	leader := c.leader()
	client := c.client()
	c.append(client, keyed("k", "before"))
	wiped := c.members[0]
	if wiped == leader {
		wiped = c.members[1]
	}
	before := c.status(wiped)
	c.killMember(wiped)
	if err := os.RemoveAll(wiped.dir); err != nil {
		t.Fatal(err)
	}
	c.start(wiped)
	c.leader()
	after := c.status(wiped)
	if after.IsVoter || after.DirectoryID == before.DirectoryID || after.ClusterID != testCluster {
		t.Errorf("came back as voter=%v with directory %s (before %s), cluster %s", after.IsVoter, after.DirectoryID, before.DirectoryID, after.ClusterID)
	}
	view := c.status(leader)
	if len(view.Voters) != 3 || len(view.Observers) != 1 || view.Observers[0].NodeID != int32(wiped.id) {
		t.Errorf("the leader sees voters %+v and observers %+v", view.Voters, view.Observers)
	}
	c.append(client, keyed("k", "after"))
	if got := c.readAll(2); string(got[1].Value) != "after" {
		t.Errorf("read %v", got)
	}
}

// ST-23: two of three voters lose their disks. The two empty ones, which agree that there is nothing, never make a quorum; the
// third keeps what it has and its epoch, without a leader; and with one of the disks back all is well.
func TestST23TwoEmptyDisksAreNoQuorum(t *testing.T) {
	const timeout = 500 * time.Millisecond
	c := newCluster(t, 3, 0, "cluster.id="+testCluster, fmt.Sprintf("controller.quorum.fetch.timeout.ms=%d", timeout.Milliseconds()),
		fmt.Sprintf("controller.quorum.election.timeout.ms=%d", timeout.Milliseconds()), "controller.quorum.fetch.max.wait.ms=100")
	c.leader()
	c.append(c.client(), keyed("k", "v"))
	c.leader()
	survivor, lost := c.members[0], c.members[1:]
	for _, m := range lost {
		c.killMember(m)
		if err := os.Rename(m.dir, m.dir+"-lost"); err != nil {
			t.Fatal(err)
		}
	}
	c.await("the survivor to notice", func() bool { s := c.status(survivor); return s.Role != "Follower" && s.Role != "Leader" })
	before := c.status(survivor)
	for _, m := range lost {
		c.start(m)
		c.await("a member on an empty disk", func() bool { return c.status(m) != nil })
	}
	for until := time.Now().Add(6 * timeout); time.Now().Before(until); time.Sleep(timeout / 20) { // for what must not happen
		for _, m := range c.members {
			s := c.status(m)
			if s == nil || s.Role == "Leader" || s.Role == "Candidate" || m != survivor && (s.IsVoter || s.LogEndOffset > 0) {
				t.Fatalf("member %d after a majority has lost its disks: %+v", m.id, s)
			}
		}
	}
	if s := c.status(survivor); !s.IsVoter || s.LogEndOffset != before.LogEndOffset || s.Epoch > before.Epoch+1 {
		t.Errorf("the survivor's log ends at %d in epoch %d, before at %d in %d", s.LogEndOffset, s.Epoch, before.LogEndOffset, before.Epoch)
	}
	found := lost[0]
	c.killMember(found)
	found.dir += "-lost"
	c.start(found)
	c.leader()
	if got := c.readAll(1); string(got[0].Value) != "v" {
		t.Errorf("read %v", got)
	}
}

// ST-25: a voter that was removed is started again on its old directory, by whose log it may still be a voter. It observes, and
// catches up; nobody has to elect.
func TestST25OldDirectoryOfARemovedVoter(t *testing.T) {
	c := newCluster(t, 3, 0)
	c.leader()
	m := c.join(3)
	c.add(m, "0 1 2 3")
	client := c.client()
	c.append(client, keyed("k", "as a voter"))
	c.stop(m) // it does not see its removal
	c.remove(m, "0 1 2")
	c.append(client, keyed("k", "without it"))
	leader := c.leader()
	before := c.status(leader)
	c.start(m)
	c.leader()
	c.await("it to know that it observes", func() bool {
		s := c.status(m)
		return s != nil && s.Role == "Follower" && !s.IsVoter && voterIDs(s) == "0 1 2" && s.HighWatermark >= before.HighWatermark
	})
	if after := c.status(leader); after.Role != "Leader" || after.Epoch != before.Epoch || voterIDs(after) != "0 1 2" {
		t.Errorf("node %d is %s of epoch %d with voters %s, was Leader of %d", leader.id, after.Role, after.Epoch, voterIDs(after), before.Epoch)
	}
	if view := c.status(leader); len(view.Observers) != 1 || view.Observers[0].NodeID != 3 {
		t.Errorf("the leader sees observers %+v", view.Observers)
	}
}

func TestEmptyDirectoryIsNotFormattedWithoutClusterID(t *testing.T) {
	c := newCluster(t, 1, 0)
	m := c.leader()
	c.stop(m)
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	c.start(m)
	err := c.wait(m)
	fatal, ok := errors.AsType[*Fatal](err)
	if !ok || fatal.Token != NotFormatted || !strings.Contains(fatal.Message, "quorum format") {
		t.Errorf("ended with %v, want NOT_FORMATTED and the way out", err)
	}
	if _, err := storage.ReadMeta(vfs.OS, m.dir); err == nil {
		t.Error("the directory is formatted now")
	}
}

// tight is a disk whose free space a test sets.
type tight struct {
	vfs.FS
	free atomic.Int64
}

func (f *tight) FreeSpace(string) (int64, error) { return f.free.Load(), nil }

func newTight() *tight {
	f := &tight{FS: vfs.OS}
	f.free.Store(1 << 40)
	return f
}

// Below the reserve a sole voter refuses appends, with an error that clients retry, and takes them again with the space.
func TestAppendsAreRefusedBelowTheReserve(t *testing.T) {
	c := newCluster(t, 1, 0)
	m := c.leader()
	c.stop(m)
	disk := newTight()
	m.fs = disk
	c.start(m)
	c.leader()
	if p, _ := c.produceRaw(m, build(t, -1, -1, -1, 1), -1); p.ErrorCode != 0 {
		t.Fatalf("append with space: %v", code(p.ErrorCode))
	}
	disk.free.Store(1 << 10)
	c.await("the reserve to be noticed", func() bool {
		p, _ := c.produceRaw(m, build(t, -1, -1, -1, 1), -1)
		return code(p.ErrorCode) == kerr.KafkaStorageError
	})
	c.await("status to show it", func() bool { return c.status(m).Disk.BelowReserve })
	c.await("the metric to show it", func() bool { return c.metric(m, "quorum_disk_below_reserve") == 1 })
	disk.free.Store(1 << 40)
	c.await("service to be back", func() bool {
		p, _ := c.produceRaw(m, build(t, -1, -1, -1, 1), -1)
		return p.ErrorCode == 0
	})
}

// ST-01, with a quota that statfs does not show: the append that meets it is stored all the same, the leader hands over to a
// voter that has room, and lives on as a follower that stores nothing. Once the quota is raised it stores again, without a
// restart, and whatever was acknowledged is there.
func TestST01LeaderThatMeetsAQuotaHandsOver(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	c.stop(leader)
	var quota, refused atomic.Int64 // quota: 1 while it is exhausted
	ballast := filepath.Join(leader.dir, topic+"-0", "ballast")
	leader.fs = vfs.WithFaults(vfs.OS, func(call vfs.Call) error {
		if quota.Load() == 0 {
			return nil
		}
		switch call.Op {
		case vfs.OpAllocate:
			return syscall.EDQUOT
		case vfs.OpWrite, vfs.OpCreate:
			if held, _ := vfs.Exists(vfs.OS, ballast); held && strings.HasSuffix(call.Path, ".log") {
				refused.Add(1)
				return &vfs.ShortWrite{N: call.Size / 2, Err: syscall.EDQUOT}
			}
		default:
		}
		return nil
	})
	c.start(leader)
	c.lead(leader)
	l := c.load(2)
	c.appendsGoOn()
	quota.Store(1)
	c.await("another leader", func() bool {
		s := c.status(leader)
		return s != nil && s.Role == "Follower" && s.Leader != nil && s.Disk.BelowReserve && s.Disk.Full
	})
	if n := refused.Load(); n != 1 {
		t.Errorf("%d writes met the quota, want one, which was then stored", n)
	}
	if code, why := c.health(leader, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(why, "disk") {
		t.Errorf("without room /readyz answers %d %q, want 503 and the disk", code, why)
	}
	c.appendsGoOn()
	end := c.status(leader).LogEndOffset
	c.appendsGoOn()
	if got := c.status(leader).LogEndOffset; got != end {
		t.Errorf("without room the member has stored up to %d, after %d", got, end)
	}
	quota.Store(0)
	c.await("it to store again", func() bool { s := c.status(leader); return s != nil && s.LogEndOffset > end && s.Ready })
	if held, err := vfs.Exists(vfs.OS, ballast); !held || err != nil {
		t.Errorf("with room again the ballast is there: %v, %v", held, err)
	}
	c.leader()
	l.end()
}

// ST-01: a leader whose disk is full hands over within 3 s to a voter that has room, and is not ready until it stores again:
// it falls behind, so nobody should read there, and it counts for no commit.
func TestST01LeaderWithAFullDiskHandsOver(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	c.stop(leader)
	disk := newTight()
	leader.fs = disk
	c.start(leader)
	c.lead(leader)
	l := c.load(2)
	c.appendsGoOn()
	within := func(most time.Duration, what string, ok func() bool) {
		t.Helper()
		began := time.Now()
		c.await(what, ok)
		if took := time.Since(began); took > most {
			t.Errorf("%s took %v, want %v at most", what, took, most)
		}
	}
	disk.free.Store(0)
	within(3*time.Second, "another leader", func() bool { s := c.status(leader); return s != nil && s.Role == "Follower" && s.Disk.Full })
	notReady := func() {
		t.Helper()
		if code, why := c.health(leader, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(why, "disk") {
			t.Errorf("with %d bytes free /readyz answers %d %q, want 503 and the disk", disk.free.Load(), code, why)
		}
	}
	notReady()
	if code, why := c.health(leader, "/livez"); code != http.StatusOK {
		t.Errorf("with a full disk /livez answers %d %q: a restart makes no room", code, why)
	}
	if c.metric(leader, "quorum_disk_full") != 1 {
		t.Error("the metric does not show the full disk")
	}
	c.appendsGoOn()
	disk.free.Store(1 << 20) // room, but less than the reserve
	c.await("it to have room", func() bool { s := c.status(leader); return s != nil && !s.Disk.Full })
	notReady()
	end := c.status(leader).LogEndOffset
	disk.free.Store(1 << 40)
	within(10*time.Second, "it to append again", func() bool { s := c.status(leader); return s != nil && s.LogEndOffset > end && s.Ready })
	c.leader()
	l.end()
}
