package sim

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Snapshots in the simulation. A log that was cleaned, or replaced by a snapshot, keeps its shadow: what a snapshot covers
// counts as held, and durably so, since nothing but a checkpoint that has its name may take the place of segments. In
// return each checkpoint is compared with what is committed, at the moment it gets its name, made here or fetched:
//
//	ConsistentCommittedData  a checkpoint holds the newest committed record of each key below its end, in its place, and
//	                         nothing that is not committed
//	SnapshotAtLogStart       where a log does not begin at 0, a checkpoint ends where its member says that it begins, and
//	                         none of what is behind that is gone
//	LeaderNeverLoadSnapshot  nobody puts a download into place while it leads

// snapshotPlan is how often snapshots are made, and how little is kept beside them.
type snapshotPlan struct {
	bytes    int64 // 0: none
	retained int64
	interval time.Duration // 0: none for their age
	maxBytes int           // of one FetchSnapshot
	job      time.Duration // how long it takes to make, check or remove one
}

func drawSnapshots(d dice) snapshotPlan {
	return snapshotPlan{
		bytes:    oneOf[int64](d, 0, 1000, 3000, 3000, 10_000),
		retained: oneOf[int64](d, 1, 1, 5000, 1<<30),
		maxBytes: oneOf(d, 1<<20, 1000, 333),
		job:      oneOf(d, time.Millisecond, 20*time.Millisecond, 500*time.Millisecond),
	}
}

func (p snapshotPlan) String() string {
	if p.bytes == 0 {
		return "no snapshots"
	}
	return fmt.Sprintf("snapshots each %d bytes in %v, %d bytes retained, fetched by %d bytes", p.bytes, p.job, p.retained, p.maxBytes)
}

func (p snapshotPlan) options() replica.Snapshots {
	return replica.Snapshots{Bytes: p.bytes, Interval: p.interval, DeleteRetention: 24 * time.Hour, RetentionBytes: p.retained}
}

// run lets a job take its time, and the replica hear of it later still. If the process dies meanwhile, nothing of it
// happens, or all but the telling; crashAtDisk kills it in between.
func (m *member) run(job *replica.Job) {
	m.jobs = append(m.jobs, job)
	m.alone(m.w.now+m.io.about(m.w.plan.snapshots.job), func() {
		err := job.Run()
		m.w.trace.member(m, "job %s done: %v", job.Name, err)
		if err == nil && job.Name == "snapshot" {
			m.w.saw(snapshotMade)
		}
		m.alone(m.w.now+m.io.between(0, m.w.plan.flushLate), func() {
			m.jobs = slices.DeleteFunc(m.jobs, func(j *replica.Job) bool { return j == job })
			m.step(replica.Done{Job: job, Err: err}, "job %s ended", job.Name)
		})
	})
}

func isCheckpoint(name string) bool { return strings.HasSuffix(name, ".checkpoint") }

// checkpointID reads a checkpoint's name; 0-0 is the bootstrap checkpoint.
func checkpointID(name string) (id raft.OffsetAndEpoch) {
	_, _ = fmt.Sscanf(path.Base(name), "%d-%d.checkpoint", &id.Offset, (*int32)(&id.Epoch))
	return id
}

// segmentBase reads a segment's name.
func segmentBase(name string) (base int64) {
	digits, _, _ := strings.Cut(path.Base(name), ".")
	base, _ = strconv.ParseInt(digits, 10, 64) // often: not by fmt
	return base
}

// adopt begins a log with what a checkpoint covers, in place of whatever it held: the committed batches below base.
func (l *shadow) adopt(covered []*batch) {
	l.batches = slices.Clone(covered)
	l.sets, l.versions = nil, nil
	for _, b := range l.batches {
		l.learn(b)
	}
	l.durable, l.grown, l.end = len(l.batches), len(l.batches), 0
	if n := len(l.batches); n > 0 {
		l.end = l.batches[n-1].last + 1
	}
}

// first reports whether a segment is the first of several: it goes because a checkpoint covers it, not because the log is
// cut at its end.
func (l *shadow) first(name string) bool {
	return !slices.ContainsFunc(l.segments, func(s *shadowSegment) bool { return s.name < name }) && len(l.segments) > 1
}

// covered are the committed batches below an offset.
func (o *oracle) covered(offset int64) []*batch {
	return o.committed[:sort.Search(len(o.committed), func(i int) bool { return o.committed[i].last >= offset })]
}

// recordAt notes where a key got a new value.
func (o *oracle) recordAt(key string, offset int64) { o.offsets[key] = append(o.offsets[key], offset) }

// newestBelow is the offset of the newest committed record of a key below an offset; -1: there is none.
func (o *oracle) newestBelow(key string, end int64) int64 {
	all := o.offsets[key]
	n := sort.Search(len(all), func(i int) bool { return all[i] >= end })
	if n == 0 {
		return -1
	}
	return all[n-1]
}

// named looks at a checkpoint that has just got its name.
func (o *oracle) named(m *member, name string) {
	id := checkpointID(name)
	if id.Offset == 0 {
		return
	}
	bad := func(format string, args ...any) {
		o.w.violate("ConsistentCommittedData", "node %d, checkpoint %d@%d: %s", m.id, id.Offset, id.Epoch, fmt.Sprintf(format, args...))
	}
	last := find(o.committed, id.Offset-1)
	switch {
	case last == nil || last.last != id.Offset-1:
		bad("it does not end where a committed batch does, committed is %d", o.committedEnd())
		return
	case last.epoch != id.Epoch:
		bad("it ends with %s", last.where())
	}
	content, err := vfs.ReadFile(m.disk.mem, name)
	if err != nil {
		bad("%v", err)
		return
	}
	held := map[string]int64{}
	for b, err := range record.All(content) {
		if err != nil {
			bad("%v", err)
			return
		}
		if b.IsControl() {
			continue
		}
		if why := o.unlike(b, id.Offset); why != "" {
			bad("%s", why)
			return
		}
		for delta, r := range records(b.Raw) {
			held[r.key] = b.BaseOffset + int64(delta)
		}
	}
	for key := range o.offsets {
		if newest := o.newestBelow(key, id.Offset); newest >= 0 && held[key] != newest {
			bad("of %s it holds offset %d as the newest, committed is %d", key, held[key], newest)
		}
	}
}

// unlike says in what a batch is not what compaction up to an offset may leave of the committed one; empty: in nothing. An
// empty batch may stand for the end of what was left out.
func (o *oracle) unlike(b record.Batch, end int64) string {
	c := find(o.committed, b.BaseOffset)
	switch {
	case c == nil:
		return fmt.Sprintf("a batch at offset %d, committed is %d", b.BaseOffset, o.committedEnd())
	case bytes.Equal(c.raw, b.Raw):
		return ""
	case b.Count == 0 && b.ProducerID < 0 && b.LastOffset() == c.last && b.Epoch == c.epoch:
		return o.skipped(b.BaseOffset, c.last+1, end)
	case b.BaseOffset != c.base || b.LastOffset() != c.last || b.Epoch != c.epoch || b.ProducerID != c.ProducerID || b.ProducerEpoch != c.ProducerEpoch || b.BaseSequence != c.BaseSequence:
		return fmt.Sprintf("batch %d..%d of epoch %d, producer %d, in place of %s", b.BaseOffset, b.LastOffset(), b.Epoch, b.ProducerID, c.where())
	}
	left := maps.Collect(records(c.raw))
	for delta, r := range records(b.Raw) {
		if left[delta] != r {
			return fmt.Sprintf("%v at offset %d, committed is %v", r, b.BaseOffset+int64(delta), left[delta])
		}
		delete(left, delta)
	}
	return o.missed(c.base, left, end)
}

// missed says which of the records that are not shown is the newest of its key below end.
func (o *oracle) missed(base int64, left map[int]keyValue, end int64) string {
	for delta, r := range left {
		if at := base + int64(delta); o.newestBelow(r.key, end) == at {
			return fmt.Sprintf("%v at offset %d is missing", r, at)
		}
	}
	return ""
}

// skipped says what is missing, of what is the newest below end, if nothing is shown from one offset to another.
func (o *oracle) skipped(from, to, end int64) string {
	for from < to {
		c := find(o.committed, from)
		if c == nil {
			return fmt.Sprintf("a gap up to %d, committed is %d", to, o.committedEnd())
		}
		left := map[int]keyValue{}
		for delta, r := range records(c.raw) {
			if c.base+int64(delta) >= from && c.base+int64(delta) < to {
				left[delta] = r
			}
		}
		if why := o.missed(c.base, left, end); why != "" {
			return why
		}
		from = c.last + 1
	}
	return ""
}

// lookAtLogStart holds a log's start against the checkpoints beside it.
func (o *oracle) lookAtLogStart(m *member, st *raft.Status, before raft.Role) {
	l := &m.disk.log
	if len(l.segments) == 0 {
		return
	}
	if st.LogStart > 0 && !slices.ContainsFunc(m.disk.checkpoints, func(id raft.OffsetAndEpoch) bool { return id.Offset == st.LogStart }) {
		o.w.violate("SnapshotAtLogStart", "node %d says that its log begins at %d, its checkpoints are %v", m.id, st.LogStart, m.disk.checkpoints)
	}
	if base := segmentBase(slices.MinFunc(l.segments, func(a, b *shadowSegment) int { return strings.Compare(a.name, b.name) }).name); base > 0 {
		if base > st.LogStart {
			o.w.violate("SnapshotAtLogStart", "node %d says that its log begins at %d, its first segment begins at %d", m.id, st.LogStart, base)
		}
		if m.seen.logStart < base {
			o.w.saw(logCleaned)
		}
		m.seen.logStart = base
	}
	switch d := st.Download; {
	case d != nil && (m.seen.download == nil || m.seen.download.Snapshot != d.Snapshot):
		o.w.saw(snapshotOffered)
	case d == nil && m.seen.download != nil && (st.Snapshot == nil || *st.Snapshot != m.seen.download.Snapshot):
		o.w.saw(downloadDropped)
	case d == nil && m.seen.download != nil:
		o.w.saw(snapshotInstalled)
		if before == raft.Leader {
			o.w.violate("LeaderNeverLoadSnapshot", "node %d has put the snapshot %v into place while it led", m.id, *st.Snapshot)
		}
	}
	m.seen.download = st.Download
}
