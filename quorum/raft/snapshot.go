package raft

import "slices"

// Snapshots (KIP-630). The driver makes them, of what is committed, and cleans the log behind them; the core learns of it
// by SnapshotCreated and Cleaned. A replica whose end the leader's log does not reach back to, or that is new, downloads
// one in place of the records that are gone.

// download is a snapshot on its way from the leader. It is part of following that leader: any change of role drops it.
type download struct {
	id       OffsetAndEpoch
	size     int64 // Unknown before the first chunk
	position int64 // what has come
	whole    bool  // all has come, and the driver checks it
}

// onFetchSnapshot grants bytes of a snapshot. The driver knows which snapshots there are and how large; that a voter is
// alive counts whatever it gets, what is committed does not depend on it.
func (n *Node) onFetchSnapshot(r FetchSnapshotRequest) FetchSnapshotResponse {
	if code := n.refuseCluster(r.ClusterID); code != NoError {
		return FetchSnapshotResponse{Header: topError(code)}
	}
	code := n.refuseLeaderRPC(r.Epoch)
	if code == NoError && (r.Replica.ID == n.cfg.Self.ID || r.MaxBytes < 1) {
		code = InvalidRequest
	}
	if code == NoError {
		if p := n.leader.voter(r.Replica); p != nil {
			n.leader.markSeen(n, p)
		}
		switch {
		case r.Snapshot.Offset <= 0: // the bootstrap checkpoint is nobody else's
			code = SnapshotNotFound
		case r.Position < 0:
			code = PositionOutOfRange
		}
	}
	if code != NoError {
		return FetchSnapshotResponse{Header: n.header(code)}
	}
	return FetchSnapshotResponse{Header: n.header(NoError), Snapshot: r.Snapshot, Position: r.Position, Bytes: r.MaxBytes}
}

// offered begins to download the snapshot that the leader names in place of records, and reports whether it makes sense.
//
// What must not happen is that a snapshot takes away what is committed, so one that ends at or below our high watermark is
// not believed: the leader has our committed records, or it would not lead. Beyond that it need not be ahead of the log in
// the order of votes, as Kafka insists: the tail of a leader that was deposed may have a higher epoch and fewer records
// than what was committed in its stead. But a log that has the snapshot's end in it needs no snapshot.
func (n *Node) offered(id OffsetAndEpoch) bool {
	if id.Offset <= n.committed || id.Offset <= 0 || id.Epoch < 0 || n.log.holds(id) {
		return false
	}
	n.download = &download{id: id, size: Unknown}
	return true
}

// learnt begins to download the snapshot that a probe found, if the log can be cleaned behind it.
func (n *Node) learnt(id *OffsetAndEpoch) {
	if id == nil || id.Offset > n.committed || n.log.latest != nil && id.Offset <= n.log.latest.Offset || !n.log.holds(*id) {
		return
	}
	n.download = &download{id: *id, size: Unknown}
}

// onLearnSnapshot lets the next Fetch ask for offset 0, which a leader answers with its newest snapshot.
func (n *Node) onLearnSnapshot() {
	if n.role == Follower && n.download == nil {
		n.fetch.probe = true
	}
}

// nextFetch is the request that a fetching replica has for the leader.
func (n *Node) nextFetch() Request {
	if d := n.download; d != nil {
		r := FetchSnapshotRequest{
			ClusterID: n.clusterID, Replica: n.cfg.Self, Epoch: n.state.Epoch,
			Snapshot: d.id, Position: d.position, MaxBytes: n.cfg.SnapshotMaxBytes,
		}
		if d.whole {
			// Checking a large one may take longer than leaders and followers wait for one another. So the last byte is
			// asked for again now and then: it tells both that the other is there.
			r.Position, r.MaxBytes = d.size-1, 1
		}
		return r
	}
	r := FetchRequest{
		ClusterID: n.clusterID, Replica: n.cfg.Self, Epoch: n.state.Epoch,
		Offset: n.log.end, LastFetchedEpoch: n.log.lastEpoch(), HighWatermark: n.highWatermark,
		MaxWait: n.cfg.FetchMaxWait, MaxBytes: n.cfg.FetchMaxBytes, BelowReserve: n.belowReserve,
	}
	if n.fetch.touching {
		r.Offset, r.MaxWait, r.MaxBytes = n.fetch.durable, 0, 1
		r.LastFetchedEpoch = n.log.epochBefore(n.fetch.durable)
	}
	if n.fetch.probing {
		// As a reader without identity, whose offset the leader does not book.
		r.Replica, r.Offset, r.LastFetchedEpoch, r.MaxWait, r.MaxBytes = NoReplica, 0, 0, 0, 1
	}
	return r
}

func (n *Node) onFetchSnapshotResponse(c *conn, correlation Correlation, r FetchSnapshotResponse) {
	d := n.download
	if !n.fetchAnswered(c, correlation, &r.Header) || d == nil {
		return
	}
	switch {
	case d.whole: // whatever it says of the snapshot: the leader is there
		n.fetch.notBefore = n.now.Add(n.cfg.FetchTimeout / 4)
	case r.Error == SnapshotNotFound, r.Error == NoError && (r.Snapshot.Offset < 0 || r.Snapshot.Epoch < 0):
		n.dropDownload() // it was cleaned away: the next Fetch tells of a newer one
	case r.Error == PositionOutOfRange, r.Error == NoError && d.size != Unknown && r.Size != d.size && r.Snapshot == d.id:
		n.dropDownload() // not the same file as before
		n.fetchMissed(true)
		return
	case r.Error != NoError:
		n.backOff(c)
		n.fetchMissed(true)
		return
	case r.Snapshot != d.id || r.Position != d.position || r.Bytes < 1 || int64(r.Bytes) > r.Size-r.Position:
		n.fetchMissed(true) // not what was asked for
		return
	default:
		n.ready.Chunk = &Chunk{Snapshot: d.id, Position: d.position, Fetched: correlation}
		d.size, d.position = r.Size, d.position+int64(r.Bytes)
		if d.position == d.size {
			d.whole, n.ready.Verify = true, true
			n.fetch.notBefore = n.now.Add(n.cfg.FetchTimeout / 4)
		}
	}
	n.fetch.misses = 0
	n.leaderAnswered()
}

// onSnapshotVerified puts a whole snapshot into place, or gives it up.
func (n *Node) onSnapshotVerified(v SnapshotVerified) {
	d := n.download
	if d == nil || d.id != v.Snapshot {
		return // given up since
	}
	if v.Failed {
		n.dropDownload()
		n.fetchMissed(true)
		n.fetch.notBefore = n.now.Add(n.cfg.FetchTimeout / 2) // a full disk here, or a damaged one at the leader
		return
	}
	n.download = nil
	n.fetch.notBefore = n.now
	n.ready.Install = &Install{Snapshot: d.id}
	if n.log.holds(d.id) {
		n.onSnapshotCreated(SnapshotCreated{d.id})
		return
	}
	n.generation++
	n.ready.Install.Replaces, n.ready.Install.Generation = true, n.generation
	n.log = logHistory{start: d.id.Offset, end: d.id.Offset, latest: &d.id, earliest: &d.id}
	n.flushed, n.unsynced = d.id.Offset, n.inFlush
	n.voters = voterHistory{static: n.voters.static, past: n.voters.past || holdsVoter(n.voters.sets, n.cfg.Self)}
	for _, c := range v.Control {
		if !n.controlAppended(Batch{BaseOffset: c.Offset, LastOffset: c.Offset, Control: []ControlRecord{c.Record}}) {
			return
		}
	}
	n.votersChanged()
	n.raiseHighWatermark(d.id.Offset)
	n.failTruncated(d.id.Offset)
}

// dropDownload gives a download up. What the Ready under way would have added to it is not worth adding.
func (n *Node) dropDownload() {
	if n.download == nil {
		return
	}
	n.download = nil
	n.ready.Discard, n.ready.Chunk, n.ready.Verify = true, nil, false
}

// Settled is the offset below which the log is committed, and on our own disk: what a snapshot may cover.
func (n *Node) Settled() int64 { return min(n.committed, n.flushed) }

// onSnapshotCreated takes note of a snapshot that the driver has made.
func (n *Node) onSnapshotCreated(c SnapshotCreated) {
	if latest := n.log.latest; latest != nil && c.Snapshot.Offset <= latest.Offset {
		return // overtaken by one from the leader
	}
	if c.Snapshot.Offset > n.committed || !n.log.holds(c.Snapshot) {
		n.broken("a snapshot ends at %+v, which is not committed here", c.Snapshot)
	}
	n.log.latest = &c.Snapshot
	n.log.earliest = firstOf(n.log.earliest, n.log.latest)
	n.voters.trim(c.Snapshot.Offset, n.cfg.Self)
}

// onCleaned takes note of where the log begins now.
func (n *Node) onCleaned(c Cleaned) {
	h := &n.log
	if h.latest == nil || c.Earliest.Offset > h.latest.Offset || c.Earliest.Offset < h.start {
		n.broken("the log was cleaned up to %+v, it begins at %d", c.Earliest, h.start)
	}
	h.start, h.earliest = c.Earliest.Offset, &c.Earliest
	h.forget()
}

// forget drops the epochs that ended before the log's start.
func (h *logHistory) forget() {
	first := 0
	for first+1 < len(h.epochs) && h.epochs[first+1].Offset <= h.start {
		first++
	}
	h.epochs = slices.Delete(h.epochs, 0, first)
}

// holds reports whether a position is one of this log: whether the record before it is ours.
func (h *logHistory) holds(p OffsetAndEpoch) bool {
	if p.Offset == h.start && h.earliest != nil {
		return *h.earliest == p
	}
	epoch, ok := h.at(p.Offset - 1)
	return ok && epoch == p.Epoch
}

// trim forgets what no truncation can bring back: all but the last set and version below an offset that is committed.
func (h *voterHistory) trim(below int64, self ReplicaKey) {
	sets, versions := 0, 0
	for sets+1 < len(h.sets) && h.sets[sets+1].offset < below {
		sets++
	}
	for versions+1 < len(h.versions) && h.versions[versions+1].offset < below {
		versions++
	}
	h.past = h.past || holdsVoter(h.sets[:sets], self)
	h.sets, h.versions = slices.Delete(h.sets, 0, sets), slices.Delete(h.versions, 0, versions)
}

func firstOf(a, b *OffsetAndEpoch) *OffsetAndEpoch {
	if a != nil {
		return a
	}
	return b
}
