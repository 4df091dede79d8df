package server

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// metrics is what the member counts. What is a fact of the moment is read from the view when it is asked for.
type metrics struct {
	fsync  histogram // one flush of the log
	commit histogram // a client's append, from its arrival in the loop to its answer

	idle     sampled // seconds that the loop waited for something to do
	commits  sampled
	election sampled // milliseconds
	fetched  sampled // records
	appended sampled // records

	requests           requestCounts
	droppedBatches     atomic.Uint64
	rejectedBatches    atomic.Uint64
	refusedConnections atomic.Uint64
	refusedObservers   atomic.Uint64
	keyConflicts       atomic.Uint64
	lateTicks          atomic.Uint64
	handoffs           atomic.Uint64 // that this member ended as the old leader

	jobs jobTimes

	electionSince time.Time // the loop's: when it became Prospective or Candidate; zero: is neither
}

// observe takes in what changed from one view to the next. Only the loop calls it.
func (m *metrics) observe(before, after *view) {
	if before == nil {
		return
	}
	grown := after.LogEnd.Offset - before.LogEnd.Offset
	switch {
	case grown > 0 && after.Role == raft.Leader:
		m.appended.add(float64(grown))
	case grown > 0:
		m.fetched.add(float64(grown))
	}
	if after.Role != before.Role {
		switch after.Role {
		case raft.Prospective, raft.Candidate:
			m.electionSince = time.Now() // the Candidate begins anew, as in Kafka
		case raft.Leader, raft.Follower:
			if !m.electionSince.IsZero() {
				m.election.add(float64(time.Since(m.electionSince).Microseconds()) / 1000)
			}
			m.electionSince = time.Time{}
		case raft.Unattached, raft.Resigned: // an election that this member takes no part in, or none
		}
	}
	if h := after.Handoff; h.Phase != before.Handoff.Phase && h.From == after.Self.ID && h.Phase == raft.HandoffSucceeded {
		m.handoffs.Add(1)
	}
}

// serveMetrics writes everything in Prometheus' text format. Metrics that Kafka has too bear the names that Kafka's MBean
// kafka.server:type=raft-metrics gets from the usual exporters; the others begin with quorum_.
func (s *server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	e := &exposition{w: w}
	ready, _ := s.ready()
	e.gauge("quorum_ready", "1 if /readyz says so.", flag(ready))
	e.gauge("quorum_build_info", "Always 1; the version is a label.", 1, "version", Version)
	e.gauge("quorum_uptime_seconds", "Age of the process.", time.Since(s.began).Seconds())
	e.gauge("go_goroutines", "Goroutines that exist.", float64(runtime.NumGoroutine()))
	if v := s.view.Load(); v != nil {
		s.metrics.exposeKafka(e, v)
		s.exposeOwn(e, v)
	}
}

// exposeKafka writes the raft-metrics of Kafka.
func (m *metrics) exposeKafka(e *exposition, v *view) {
	const p = "kafka_server_raft_metrics_"
	e.gauge(p+"current_state", "1 for the state the member is in: leader, candidate, prospective, prospective-voted, unattached, unattached-voted, follower or observer.", 1, "state", kafkaState(v))
	e.gauge(p+"current_leader", "Id of the leader, -1 if not known.", float64(v.Leader))
	vote, directory := v.Election.Voted.ID, v.Election.Voted.DirectoryID
	if v.Role == raft.Leader || v.Role == raft.Candidate {
		vote, directory = v.Self.ID, v.Self.DirectoryID
	}
	e.gauge(p+"current_vote", "Id of the voted candidate, -1 if none.", float64(vote), "directory_id", directory.String())
	e.gauge(p+"current_epoch", "Epoch.", float64(v.Election.Epoch))
	e.gauge(p+"high_watermark", "Offset below which everything is committed, -1 if not known.", float64(v.Status.HighWatermark))
	e.gauge(p+"log_end_offset", "Offset after the last record of the own log.", float64(v.LogEnd.Offset))
	e.gauge(p+"log_end_epoch", "Epoch of the last record of the own log.", float64(v.LogEnd.Epoch))
	e.gauge(p+"number_unknown_voter_connections", "Always 0, as in Kafka.", 0)
	e.gauge(p+"number_of_voters", "Size of the newest voter set in the own log.", float64(len(v.Voters)))
	if v.Role == raft.Leader {
		e.gauge(p+"number_of_observers", "Observers that fetched lately; on the leader only.", float64(observers(v)))
		e.gauge(p+"uncommitted_voter_change", "1 while a voter set is appended but not committed; on the leader only.", flag(v.VotersOffset >= v.Status.HighWatermark))
	}
	e.gauge(p+"commit_latency_avg", "Milliseconds from an append's arrival to its answer, mean of 30 to 60 s.", m.commits.avg())
	e.gauge(p+"commit_latency_max", "Milliseconds from an append's arrival to its answer, maximum of 30 to 60 s.", m.commits.max())
	e.gauge(p+"election_latency_avg", "Milliseconds of elections, mean of 30 to 60 s.", m.election.avg())
	e.gauge(p+"election_latency_max", "Milliseconds of elections, maximum of 30 to 60 s.", m.election.max())
	e.gauge(p+"fetch_records_rate", "Records a second appended as a follower.", m.fetched.rate())
	e.gauge(p+"append_records_rate", "Records a second appended as leader.", m.appended.rate())
	e.gauge(p+"poll_idle_ratio_avg", "Share of the last 30 to 60 s that the loop waited for something to do.", m.idle.share())
}

// kafkaState is the state's name in Kafka's metric. A resigned leader shows as unattached there.
func kafkaState(v *view) string {
	voted := v.Election.Voted.ID != raft.None
	switch {
	case v.Role == raft.Leader:
		return "leader"
	case v.Role == raft.Prospective && voted:
		return "prospective-voted"
	case v.Role == raft.Prospective:
		return "prospective"
	case v.Role == raft.Candidate:
		return "candidate"
	case v.Role == raft.Unattached && voted:
		return "unattached-voted"
	case v.Role == raft.Follower && v.IsVoter:
		return "follower"
	case v.Role == raft.Follower:
		return "observer"
	default:
		return "unattached"
	}
}

func observers(v *view) int {
	n := 0
	for _, p := range v.Progress {
		if !v.Voters.Contains(p.Key) {
			n++
		}
	}
	return n
}

// exposeOwn writes what Kafka does not have.
func (s *server) exposeOwn(e *exposition, v *view) {
	m := &s.metrics
	e.progress("quorum_replica_lag_offsets", "Offsets that a replica is behind the leader; on the leader only.", v, func(p raft.ReplicaProgress) (float64, bool) {
		return float64(max(v.LogEnd.Offset-p.LogEnd, 0)), p.LogEnd >= 0
	})
	e.progress("quorum_replica_last_fetch_seconds", "Age of a replica's last Fetch; on the leader only.", v, func(p raft.ReplicaProgress) (float64, bool) {
		return time.Duration(s.now() - p.LastFetch).Seconds(), p.LastFetch >= 0
	})
	e.gauge("quorum_leader_contact_seconds", "Age of the leader's last good answer to a Fetch; 0 on the leader, -1 for never.", seconds(s.contactAge(v)))
	e.gauge("quorum_kraft_version", "kraft.version of the newest record in the own log.", float64(v.KRaftVersion))
	e.gauge("quorum_ignored_static_voters", "1 if controller.quorum.voters is set and the log has a voter set.", flag(len(s.cfg.StaticVoters) > 0 && v.KRaftVersion > 0))
	if v.Role == raft.Leader {
		e.gauge("quorum_voter_change_pending", "1 while a change of the voter set is being carried out; on the leader only.", flag(v.VoterChange != nil))
	}
	e.gauge("quorum_flushed_offset", "Offset below which the own log is on disk.", float64(v.FlushedEnd))
	e.gauge("quorum_log_start_offset", "First offset of the own log.", float64(v.LogStart))
	e.gauge("quorum_client_high_watermark", "High watermark as clients see it here.", float64(v.shown))
	e.gauge("quorum_parked_fetches", "Fetches of replicas that wait for records.", float64(v.ParkedFetches))
	e.gauge("quorum_parked_reads", "Fetches of clients that wait for records.", float64(v.counts.Reads))
	e.gauge("quorum_pending_appends", "Appends that wait for the high watermark.", float64(v.counts.Proposals))
	e.gauge("quorum_producers", "Idempotent producers that are remembered.", float64(v.counts.Producers))
	e.gauge("quorum_loop_queue", "Events that wait for the loop.", float64(len(s.inbox)))
	d := s.disk(v)
	e.gauge("quorum_disk_free_bytes", "Free space of the log's file system, -1 if not known.", float64(d.FreeBytes))
	e.gauge("quorum_disk_below_reserve", "1 while appends are refused for lack of space.", flag(d.BelowReserve))
	e.gauge("quorum_disk_full", "1 while there is no room to open an epoch: this member votes, but does not campaign.", flag(d.Full))
	e.gauge("quorum_log_bytes", "Size of the log.", float64(d.LogBytes))
	m.exposeSnapshots(e, v)

	e.counter("quorum_elections_total", "Elections that this member stood for, by cause.", v.Elections.Timer, "cause", "timer")
	e.counter("quorum_elections_total", "", v.Elections.Resign, "cause", "resign")
	e.counter("quorum_elections_total", "", v.Elections.FastFailover, "cause", "fast-failover")
	e.counter("quorum_handoffs_total", "Handoffs that this member made as the old leader.", m.handoffs.Load())
	if h := v.Handoff; h.WriteGap > 0 {
		e.gauge("quorum_handoff_write_gap_seconds", "How long no append could commit in the newest handoff.", h.WriteGap.Seconds(), "measured_by", h.MeasuredBy)
	}
	e.counter("quorum_late_ticks_total", "Deadlines that the loop met more than 100 ms late, for want of processor time or by a slow disk.", m.lateTicks.Load())
	e.counter("quorum_dropped_fetches_total", "Fetch answers with records that were damaged or out of place.", m.droppedBatches.Load())
	e.counter("quorum_rejected_batches_total", "Clients' batches that were refused as they came.", m.rejectedBatches.Load())
	e.counter("quorum_refused_connections_total", "Connections beyond a bound.", m.refusedConnections.Load())
	e.counter("quorum_refused_observers_total", "Fetches of observers beyond quorum.max.observers.", m.refusedObservers.Load())
	e.counter("quorum_replica_key_conflicts_total", "Fetches of a replica that another process fetches as, too; on the leader only.", m.keyConflicts.Load())
	m.requests.expose(e)
	e.histogram("quorum_fsync_seconds", "One fsync of the log.", &m.fsync)
	e.histogram("quorum_append_seconds", "A client's append, from its arrival to its answer.", &m.commit)
}

// progress writes one sample for each replica but the leader itself, if its value is known.
func (e *exposition) progress(name, help string, v *view, value func(raft.ReplicaProgress) (float64, bool)) {
	for _, p := range v.Progress {
		if n, known := value(p); known && p.Key != v.Self {
			e.gauge(name, help, n, "replica", fmt.Sprint(p.Key.ID), "voter", fmt.Sprint(v.Voters.Contains(p.Key)))
		}
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds turns milliseconds, -1 for never, into seconds.
func seconds(ms int64) float64 {
	if ms < 0 {
		return -1
	}
	return float64(ms) / 1000
}

// requestCounts counts requests by listener and kind.
type requestCounts struct {
	mu sync.Mutex
	n  map[requestKind]uint64
}

type requestKind struct {
	listener string
	key      int16
}

func (c *requestCounts) count(listener string, key int16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[requestKind]uint64{}
	}
	c.n[requestKind{listener, key}]++
}

func (c *requestCounts) expose(e *exposition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kinds := make([]requestKind, 0, len(c.n))
	for k := range c.n {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b requestKind) int {
		if a.listener != b.listener {
			if a.listener < b.listener {
				return -1
			}
			return 1
		}
		return int(a.key) - int(b.key)
	})
	for _, k := range kinds {
		e.counter("quorum_requests_total", "Requests that came in, by listener and kind.", c.n[k], "listener", k.listener, "request", wire.KeyName(k.key))
	}
}
