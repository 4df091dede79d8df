package server

import (
	"errors"
	"sync"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/status"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// runJob runs a job of the replica beside the loop. There are few at a time: the replica sees to that.
func (s *server) runJob(job *replica.Job) {
	s.jobs[job] = struct{}{}
	s.workers.Go(func() {
		began := time.Now()
		err := job.Run()
		took := time.Since(began)
		switch {
		case err == nil:
			s.metrics.jobs.note(job.Name, took)
			s.Log.Debug("Finished a job", "job", job.Name, "duration", took)
		case !errors.Is(err, storage.ErrCanceled) && !errors.Is(err, storage.ErrNothingNew):
			s.Log.Warn("Could not finish a job", "job", job.Name, "duration", took, "err", err)
		}
		s.post(func() {
			delete(s.jobs, job)
			s.step(replica.Done{Job: job, Err: err})
		})
	})
}

// peerFetchSnapshot takes in a replica's FetchSnapshot.
func (s *server) peerFetchSnapshot(in *transport.Inbound, r *wire.Request, f raft.FetchSnapshotRequest) {
	s.ask(waitOn(in, func(result any) {
		found := result.(replica.SnapshotResult)
		replyRecords(s.codecs.controller, in, r, found.FetchSnapshotResponse, wire.Extra{}, storage.Records{Bytes: found.Data, Section: found.Section})
	}), func(id raft.RequestID) replica.Event {
		return replica.Core{Event: raft.Inbound{ID: id, Conn: raft.ConnID(in.Conn.ID), Request: f}}
	})
}

// jobTimes is how long the last job of each name took.
type jobTimes struct {
	mu   sync.Mutex
	last map[string]time.Duration
}

func (j *jobTimes) note(name string, took time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last == nil {
		j.last = map[string]time.Duration{}
	}
	j.last[name] = took
}

func (j *jobTimes) seconds(name string) float64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last[name].Seconds()
}

// exposeSnapshots writes what is known of the snapshots here.
func (m *metrics) exposeSnapshots(e *exposition, v *view) {
	e.gauge("quorum_snapshots", "Snapshots that are kept.", float64(v.snapshots.Count))
	e.gauge("quorum_snapshot_uncovered_bytes", "Size of the log behind the newest snapshot, about.", float64(v.snapshots.LogBytes))
	if n := v.snapshots.Newest; n.ID.Offset > 0 {
		e.gauge("quorum_snapshot_offset", "Offset up to which the newest snapshot covers the log.", float64(n.ID.Offset))
		e.gauge("quorum_snapshot_bytes", "Size of the newest snapshot.", float64(n.Size))
		e.gauge("quorum_snapshot_records", "Records in the newest snapshot: a key's newest each, and deletions that are still told; -1 if not known.", float64(n.Records))
		e.gauge("quorum_snapshot_age_seconds", "Since this process made the newest snapshot; of one that it got, or found at its start, since the last record in it, by that record's timestamp.",
			(v.snapshots.Age + time.Duration(v.now-v.snapshots.At)).Seconds())
	}
	e.gauge("quorum_snapshot_seconds", "How long the last snapshot took to make; 0 for none.", m.jobs.seconds("snapshot"))
	if d := v.Download; d != nil {
		e.gauge("quorum_snapshot_download_bytes", "Of the snapshot that is being downloaded, what has come.", float64(d.Position))
		e.gauge("quorum_snapshot_download_size_bytes", "Size of the snapshot that is being downloaded, -1 if not known yet.", float64(d.Size))
	}
}

func snapshotStatus(v *view) *status.Snapshot {
	n := v.snapshots.Newest
	if n.ID.Offset == 0 {
		return nil
	}
	return &status.Snapshot{
		Offset: n.ID.Offset, Epoch: int32(n.ID.Epoch), Bytes: n.Size, Records: n.Records,
		AgeMs: time.Duration(v.now - v.snapshots.At).Milliseconds(),
	}
}

func downloadStatus(v *view) *status.Download {
	d := v.Download
	if d == nil {
		return nil
	}
	return &status.Download{Offset: d.Snapshot.Offset, Epoch: int32(d.Snapshot.Epoch), Position: d.Position, Size: d.Size}
}
