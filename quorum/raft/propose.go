package raft

import "slices"

// proposal is a batch that has no place in the log yet: of a client, or a control batch of our own.
type proposal struct {
	id      RequestID
	records int32
	bytes   int
	control []ControlRecord // set for a control batch
}

// pendingAppend is a batch of a client in the log that is not committed yet, or a duplicate waiting for its original.
type pendingAppend struct {
	id         RequestID
	base, last int64
	epoch      Epoch
}

// proposals holds what clients wait for. It outlives the lead: what was appended under it may still be committed by the
// next leader, and then its sender must hear of success. Whatever is unsure is answered with NOT_LEADER_OR_FOLLOWER, which
// an idempotent producer answers with a retry.
type proposals struct {
	held        []proposal
	heldBytes   int
	lingerUntil Instant
	appended    []pendingAppend // by last offset
	parkUntil   Instant         // Never, or when those of a former leader are given up
}

func (n *Node) onPropose(p Propose) {
	code := NoError
	switch {
	case n.role != Leader && !n.parking():
		code = NotLeaderOrFollower
	case n.stopping && n.role == Leader && n.alone():
		code = NotLeaderOrFollower // it answers what it has and goes
	case n.belowReserve:
		code = KafkaStorageError
	case p.Records < 1 || p.Bytes < 0:
		code = InvalidRequest
	case p.Bytes > maxGroup:
		code = RecordBatchTooLarge
	case n.proposals.full(n), n.proposals.heldBytes+p.Bytes > maxHeld:
		code = ThrottlingQuotaExceeded
	}
	if code != NoError {
		n.answer(p.ID, ProposeResult{Header: n.clientHeader(code), BaseOffset: Unknown})
		return
	}
	q := &n.proposals
	if len(q.held) == 0 {
		q.lingerUntil = n.now.Add(n.cfg.AppendLinger)
	}
	q.held = append(q.held, proposal{id: p.ID, records: p.Records, bytes: p.Bytes})
	q.heldBytes += p.Bytes
}

func (q *proposals) full(n *Node) bool { return len(q.held)+len(q.appended) >= n.cfg.MaxPending }

// parking reports whether this replica has just left office and no successor is known: clients wait for the successor's
// name rather than being sent round in circles.
func (n *Node) parking() bool {
	return n.proposals.parkUntil != Never && n.role != Follower && n.role != Leader
}

// onAwait lets a duplicate wait for its original.
func (n *Node) onAwait(a Await) {
	q := &n.proposals
	epoch, stored := n.log.at(a.LastOffset)
	switch {
	case a.BaseOffset > a.LastOffset:
	case a.LastOffset < max(n.acknowledged(), n.log.start):
		n.answer(a.ID, ProposeResult{Header: n.clientHeader(NoError), BaseOffset: a.BaseOffset})
		return
	case !stored:
	case q.full(n):
		n.answer(a.ID, ProposeResult{Header: n.clientHeader(ThrottlingQuotaExceeded), BaseOffset: Unknown})
		return
	case n.role == Leader || q.parkUntil != Never:
		at, _ := slices.BinarySearchFunc(q.appended, a.LastOffset+1, func(p pendingAppend, last int64) int { return int(min(max(p.last-last, -1), 1)) })
		q.appended = slices.Insert(q.appended, at, pendingAppend{id: a.ID, base: a.BaseOffset, last: a.LastOffset, epoch: epoch})
		return
	}
	n.answer(a.ID, ProposeResult{Header: n.clientHeader(NotLeaderOrFollower), BaseOffset: Unknown})
}

// acknowledged is the offset below which writes may be answered: committed, and on our own disk too.
func (n *Node) acknowledged() int64 { return min(n.highWatermark, n.flushed) }

// open puts the control batch that opens an epoch before everything else.
func (q *proposals) open(n *Node, records []ControlRecord) {
	q.jump(records)
	q.parkUntil = Never
	q.lingerUntil = n.now
}

// jump lets a control batch go before everything that waits, and without waiting for company.
func (q *proposals) jump(records []ControlRecord) {
	q.held = slices.Insert(q.held, 0, proposal{control: records})
}

// withdraw takes back the control batches that were not appended.
func (q *proposals) withdraw() {
	q.held = slices.DeleteFunc(q.held, func(p proposal) bool { return p.control != nil })
}

// releaseHeld appends the next group. One group at most is unsynced, so it waits for the flush of the last; and it runs
// beside the replication: parked fetches are woken at once.
func (n *Node) releaseHeld() {
	q := &n.proposals
	if n.role != Leader || len(q.held) == 0 || n.full || n.flushing || n.flushed < n.log.end || n.transfer.pausing() {
		return
	}
	if q.held[0].control == nil && n.now < q.lingerUntil && q.heldBytes < maxGroup {
		return
	}
	l := n.leader
	l.groupStart = n.log.end
	taken, size := 0, 0
	for _, p := range q.held {
		if taken > 0 && size+p.bytes > maxGroup {
			break
		}
		a := Append{Proposal: p.id, Base: n.log.end, Epoch: n.state.Epoch}
		if p.control != nil {
			a.Control, a.Last = p.control, a.Base+int64(len(p.control))-1
		} else {
			a.Last = a.Base + int64(p.records) - 1
			q.appended = append(q.appended, pendingAppend{id: p.id, base: a.Base, last: a.Last, epoch: a.Epoch})
		}
		n.append(a, p.bytes)
		if p.control != nil {
			n.controlAppended(Batch{BaseOffset: a.Base, LastOffset: a.Last, Epoch: a.Epoch, Control: p.control})
			n.changeAppended()
		}
		taken++
		size += p.bytes
	}
	q.held = slices.Delete(q.held, 0, taken)
	q.heldBytes -= size
	if len(q.held) > 0 {
		q.lingerUntil = n.now
	}
	n.votersChanged()
	l.serveParked(n)
	n.advance()
}

// finishProposals answers the writes that are safe now. One that was appended in an earlier epoch must still stand there.
func (n *Node) finishProposals() {
	q := &n.proposals
	limit, done := n.acknowledged(), 0
	for _, p := range q.appended {
		if p.last >= limit {
			break
		}
		done++
		if epoch, ok := n.log.at(p.last); !ok || epoch != p.epoch {
			n.answer(p.id, ProposeResult{Header: n.clientHeader(NotLeaderOrFollower), BaseOffset: Unknown})
			continue
		}
		n.answer(p.id, ProposeResult{Header: n.clientHeader(NoError), BaseOffset: p.base})
	}
	if done > 0 {
		q.appended = slices.Delete(q.appended, 0, done)
	}
	if q.parkUntil != Never && n.role == Follower && len(q.appended) == 0 {
		q.parkUntil = Never
	}
}

// park keeps everything for the next leader to decide.
func (q *proposals) park(n *Node) {
	q.withdraw()
	q.parkUntil = n.now.Add(parkTime)
}

// redirect sends the writes that were never appended to the leader that is known now. Nobody waits for a control batch.
func (q *proposals) redirect(n *Node) {
	q.withdraw()
	for _, p := range q.held {
		n.answer(p.id, ProposeResult{Header: n.clientHeader(NotLeaderOrFollower), BaseOffset: Unknown})
	}
	clear(q.held)
	q.held, q.heldBytes = q.held[:0], 0
}

// failAll gives up on all writes: their fate is not known here.
func (q *proposals) failAll(n *Node) {
	q.redirect(n)
	for _, p := range q.appended {
		n.answer(p.id, ProposeResult{Header: n.clientHeader(NotLeaderOrFollower), BaseOffset: Unknown})
	}
	q.appended = q.appended[:0]
	q.parkUntil = Never
}

func (n *Node) giveUpParked() { n.proposals.failAll(n) }

// failTruncated answers the writes that a new leader does not have: they will never be committed.
func (n *Node) failTruncated(end int64) {
	q := &n.proposals
	q.appended = slices.DeleteFunc(q.appended, func(p pendingAppend) bool {
		if p.last < end {
			return false
		}
		n.answer(p.id, ProposeResult{Header: n.clientHeader(NotLeaderOrFollower), BaseOffset: Unknown})
		return true
	})
}
