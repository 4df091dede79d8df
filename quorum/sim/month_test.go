package sim

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// ST-15: thirty days of one record a day, with a snapshot within the hour. Leader, follower and observer stay small, and of
// what stands behind its newest snapshot, which a restart has to replay, none has anything that is older than an hour. Each
// fifth day the leader starts anew and another leads. Fetches wait for minutes here, not half a second: the days are long
// enough. The limit of log and snapshots is 100 KiB, a thousandth of the scenario's, and so are segments and records.
func TestST15ThirtyQuietDaysLeaveLittle(t *testing.T) {
	const (
		retained = 100 << 10
		segment  = 32 << 10
		value    = 12 << 10
		keys     = 3
	)
	days := 30
	if testing.Short() {
		days = 10
	}
	p := quiet(15, 3)
	p.observers, p.clients, p.segmentBytes = 1, 1, segment
	p.fetchMaxWait, p.fetchTimeout, p.requestTimeout = 10*time.Minute, 30*time.Minute, 20*time.Minute
	p.snapshots = snapshotPlan{bytes: 20 << 20, retained: retained, interval: time.Hour, maxBytes: 1 << 20, job: 20 * time.Millisecond}
	w := newWorld(p, nil, nil)
	for _, m := range w.members { // without the clients, and the sweep of each second
		m.format()
		m.start()
	}
	largest, longest := map[raft.NodeID]int64{}, int64(0)
	end, grew := map[raft.NodeID]int64{}, map[raft.NodeID]time.Duration{}
	look := func() {
		w.holds(t)
		for _, m := range w.members {
			bytes, snapshot := m.files(t)
			largest[m.id], longest = max(largest[m.id], bytes), max(longest, snapshot)
			if end[m.id] != m.disk.log.end {
				end[m.id], grew[m.id] = m.disk.log.end, w.now
			}
			if !m.up || w.now-grew[m.id] < time.Hour {
				continue
			}
			if covered := m.replica.Snapshots().Newest.ID.Offset; covered < end[m.id] {
				t.Fatalf("%v: node %d would replay from %d to %d, which it has had for %v", w.now, m.id, covered, end[m.id], w.now-grew[m.id])
			}
		}
	}
	followed := func(life int, of *member) {
		t.Helper()
		if !w.untilIs(w.now+4*time.Hour, func() bool { return of.up && of.life > life && w.followed() }) {
			t.Fatalf("%v: no leader that all follow within hours: %s", w.now, w.situation())
		}
	}
	followed(0, w.members[0])
	starts := 0
	for day := range days {
		raw, err := record.NewBuilder(0, record.None).Append(0, fmt.Append(nil, "key-", day%keys), fmt.Appendf(nil, "%*d", value, day)).Build(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := replica.CheckProduce(raw, record.Keyed, record.MaxSize)
		if err != nil {
			t.Fatal(err)
		}
		leader, morning := w.leader(), w.now
		leader.asks("append", func(id raft.RequestID) replica.Event { return replica.Produce{ID: id, Batch: batch} })
		for w.now < morning+24*time.Hour {
			w.until(w.now + 10*time.Minute)
			look()
		}
		if day%5 == 4 {
			starts++
			life := leader.life
			leader.gracefulStop(time.Minute)
			followed(life, leader)
		}
	}
	for _, m := range w.members {
		if limit := retained + 2*segment + 2*longest; largest[m.id] > limit || largest[m.id] < keys*value {
			t.Errorf("node %d had up to %d bytes, want at most %d", m.id, largest[m.id], limit)
		}
		if m.replica.Dir().Log.Start() == 0 || m.disk.log.end < int64(days) || m.disk.log.end != w.leader().disk.log.end {
			t.Errorf("node %d has its log from %d to %d", m.id, m.replica.Dir().Log.Start(), m.disk.log.end)
		}
	}
	t.Logf("%d records of %d bytes in %v, %d restarts: directories of at most %v bytes, snapshots of %d, %d events", days, value, w.now, starts, largest, longest, w.events)
}

// files are the bytes of log and snapshots on a member's disk, and those of its largest snapshot.
func (m *member) files(t *testing.T) (bytes, snapshot int64) {
	t.Helper()
	dir := path.Join(dataDir, storage.DefaultTopic+"-0")
	names, err := m.disk.mem.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := m.disk.mem.Stat(path.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size
		if strings.HasSuffix(name, ".checkpoint") {
			snapshot = max(snapshot, info.Size)
		}
	}
	return bytes, snapshot
}
