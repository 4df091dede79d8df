package raft

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A handoff converges first, while writes go on; then it pauses them, waits until the target has the whole log, and
// resigns in its favour. Up to the resignation it can be called off and nothing has happened: paused writes are appended
// as if they had just come. Waiting for the high watermark is not needed: the tail is on the target's disk and commits
// with the first record of its epoch.

// Defaults for a Handoff event that leaves them out, and for handoffs begun by Shutdown or Reserve.
const (
	defaultMaxPause       = 250 * time.Millisecond
	defaultCatchUpTimeout = 10 * time.Second
)

// transfer is the newest handoff seen here: as the leader that leaves, or as its successor.
type transfer struct {
	status     HandoffStatus
	candidates []ReplicaKey
	began      Instant
	mark       Instant // where the write gap begins: the pause, or on the successor the arrival of EndQuorumEpoch
	deadline   Instant // of the phase
	maxPause   time.Duration
	fetches    uint64 // of the target when it began: a fresh one must come, or it may be dead
}

func (t *transfer) active() bool {
	return t.status.Phase == HandoffConverging || t.status.Phase == HandoffPausing
}

func (t *transfer) pausing() bool { return t.status.Phase == HandoffPausing }

func (n *Node) onHandoff(h Handoff) {
	target, why := n.pickTarget(h)
	switch {
	case h.DryRun:
	case why == "":
		n.beginTransfer(h, target)
	case n.role == Leader && !n.transfer.active():
		n.refuseTransfer(h.ID, h.Target, why)
	}
	n.answer(h.ID, HandoffAccepted{Refusal: why, Target: target, Epoch: n.state.Epoch})
}

// refuseTransfer notes a handoff that ended before it began.
func (n *Node) refuseTransfer(id RequestID, target ReplicaKey, why string) {
	n.transfer = transfer{status: HandoffStatus{
		ID: id, Phase: HandoffAborted, From: n.cfg.Self.ID, Target: target, To: None, FromEpoch: n.state.Epoch, Message: why,
	}}
}

// pickTarget judges whether a handoff may begin, and to whom.
func (n *Node) pickTarget(h Handoff) (ReplicaKey, string) {
	switch {
	case n.role != Leader:
		return NoReplica, fmt.Sprintf("node %d is not the leader: epoch %d, leader %d", n.cfg.Self.ID, n.state.Epoch, n.clientHeader(NoError).Leader)
	case h.ExpectEpoch != 0 && h.ExpectEpoch != n.state.Epoch:
		return NoReplica, fmt.Sprintf("epoch is %d, expected %d", n.state.Epoch, h.ExpectEpoch)
	case n.transfer.active():
		return NoReplica, fmt.Sprintf("a handoff to node %d is %s", n.transfer.status.Target.ID, n.transfer.status.Phase)
	case n.highWatermark == Unknown:
		return NoReplica, fmt.Sprintf("epoch %d has not committed its first record yet", n.state.Epoch)
	case n.leader.change != nil || n.voters.offset() >= n.highWatermark:
		return NoReplica, "a voter change is under way"
	case n.alone():
		return NoReplica, "there is no other voter"
	}
	l := n.leader
	if h.Target.ID != None {
		i := slices.IndexFunc(l.set, func(v Voter) bool {
			return v.Key.ID == h.Target.ID && (h.Target.DirectoryID.IsZero() || v.Key.DirectoryID == h.Target.DirectoryID)
		})
		if i < 0 {
			return NoReplica, fmt.Sprintf("node %s is not a voter", h.Target)
		}
		if why := l.unfit(n, i); why != "" {
			return NoReplica, why
		}
		return l.set[i].Key, ""
	}
	refusals := []string{"no voter can take over"}
	for _, k := range l.successors(n, h.Candidates) {
		why := l.unfit(n, l.voterIndex(k))
		if why == "" {
			return k, ""
		}
		refusals = append(refusals, why)
	}
	return NoReplica, strings.Join(refusals, "; ")
}

// unfit says why a voter cannot take over now.
func (l *leaderState) unfit(n *Node, i int) string {
	p := &l.voters[i]
	switch {
	case i == l.own:
		return fmt.Sprintf("node %d leads already", n.cfg.Self.ID)
	case p.lastFetch == Instant(Unknown):
		return fmt.Sprintf("node %d has not fetched in epoch %d", p.key.ID, n.state.Epoch)
	case n.now >= p.lastFetch.Add(n.cfg.FetchTimeout):
		return fmt.Sprintf("node %d has not fetched for %v", p.key.ID, time.Duration(n.now-p.lastFetch).Round(time.Millisecond))
	case p.belowReserve:
		return fmt.Sprintf("the disk of node %d is below its reserve", p.key.ID)
	}
	return ""
}

// compareForSuccession puts the voters with room on their disk first, then those with more of the log.
func compareForSuccession(a, b *progress) int {
	switch {
	case a.belowReserve != b.belowReserve:
		if a.belowReserve {
			return 1
		}
		return -1
	case a.end != b.end:
		if a.end > b.end {
			return -1
		}
		return 1
	}
	return a.key.Compare(b.key)
}

func (n *Node) beginTransfer(h Handoff, target ReplicaKey) {
	maxPause, catchUp := h.MaxPause, h.CatchUpTimeout
	if maxPause <= 0 {
		maxPause = defaultMaxPause
	}
	if catchUp <= 0 {
		catchUp = defaultCatchUpTimeout
	}
	p := n.leader.voter(target)
	n.transfer = transfer{
		status:     HandoffStatus{ID: h.ID, Phase: HandoffConverging, From: n.cfg.Self.ID, Target: target, To: None, FromEpoch: n.state.Epoch},
		candidates: h.Candidates,
		began:      n.now, deadline: n.now.Add(catchUp), maxPause: maxPause,
		fetches: p.fetches,
	}
	n.leader.nudge(n, p)
}

// driveTransfer moves a handoff on: the old leader's phases, then, on both sides, the measurement.
func (n *Node) driveTransfer() {
	t := &n.transfer
	if n.role == Leader && !t.active() && n.now >= n.leader.unsuited(n) && n.now >= n.leader.handoffRetry {
		n.leader.handoffRetry = n.now.Add(n.cfg.FetchTimeout)
		if target, refusal := n.pickTarget(Handoff{Target: NoReplica}); refusal == "" {
			// Not for long: the disk may be well again, or another the better target, when the next is due.
			n.beginTransfer(Handoff{CatchUpTimeout: n.cfg.FetchTimeout}, target)
		}
	}
	if !t.active() && n.mustLeave() {
		n.leave()
	}
	switch t.status.Phase {
	case HandoffConverging, HandoffPausing:
		n.convergeOrPause()
	case HandoffResigned:
		n.measureGap()
	case HandoffNone, HandoffSucceeded, HandoffAborted, HandoffFailed:
	}
}

func (n *Node) convergeOrPause() {
	t, l := &n.transfer, n.leader
	p := l.voter(t.status.Target)
	if p == nil {
		n.abortTransfer(fmt.Sprintf("node %d is not a voter any more", t.status.Target.ID))
		return
	}
	if p.belowReserve { // as it says since; with all disks full at once, it is better to stay
		n.abortTransfer(fmt.Sprintf("the disk of node %d is below its reserve", p.key.ID))
		return
	}
	if t.status.Phase == HandoffConverging {
		// Close enough to pause: all but the newest group, which is on its way.
		if p.fetches > t.fetches && p.end >= l.groupStart {
			t.status.Phase = HandoffPausing
			t.status.Converge = time.Duration(n.now - t.began)
			t.mark, t.deadline = n.now, n.now.Add(t.maxPause)
		}
	}
	switch {
	case t.status.Phase == HandoffPausing && p.end == n.log.end:
		t.status.Phase = HandoffResigned
		n.becomeResigned(l.successors(n, slices.Concat([]ReplicaKey{t.status.Target}, t.candidates)))
	case n.now < t.deadline:
		n.wake(t.deadline)
	case t.status.Phase == HandoffPausing:
		n.abortTransfer(fmt.Sprintf("node %d had not fetched the last %d offsets after a pause of %v", p.key.ID, n.log.end-p.end, t.maxPause))
	case p.fetches == t.fetches:
		n.abortTransfer(fmt.Sprintf("node %d did not fetch within %v", p.key.ID, time.Duration(n.now-t.began)))
	default:
		n.abortTransfer(fmt.Sprintf("node %d was still %d offsets behind after %v", p.key.ID, n.log.end-p.end, time.Duration(n.now-t.began)))
	}
}

// abortTransfer restores service. A leader whose office ends resigns all the same.
func (n *Node) abortTransfer(why string) {
	t := &n.transfer
	t.status.Phase, t.status.Message = HandoffAborted, why
	n.leader.handoffRetry = n.now.Add(n.cfg.FetchTimeout)
	if n.role == Leader && (n.stopping || n.removed()) {
		n.becomeResigned(n.leader.successors(n, nil))
	}
}

// leftOffice ends a handoff whose leader lost the lead by other means.
func (t *transfer) leftOffice(n *Node) {
	if t.active() {
		t.status.Phase = HandoffAborted
		t.status.Message = fmt.Sprintf("node %d lost the lead to epoch %d", n.cfg.Self.ID, n.state.Epoch)
	}
}

// succeed notes that a resigning leader names this replica first.
func (t *transfer) succeed(n *Node, r EndQuorumEpochRequest) {
	if t.status.Phase == HandoffResigned && t.status.FromEpoch == r.Epoch {
		return // repeated
	}
	*t = transfer{
		status: HandoffStatus{Phase: HandoffResigned, From: r.Leader, Target: n.cfg.Self, To: None, FromEpoch: r.Epoch},
		mark:   n.now,
	}
}

// measureGap ends the write gap when the high watermark has passed the start of the next leader's epoch.
func (n *Node) measureGap() {
	t := &n.transfer
	if n.state.Epoch <= t.status.FromEpoch || n.role != Leader && n.role != Follower {
		return
	}
	if t.status.From != n.cfg.Self.ID && t.status.Target.ID != n.state.Leader {
		*t = transfer{} // whether a handoff was meant, or the leader just lost its majority, only that leader knows
		return
	}
	t.status.To, t.status.ToEpoch = n.state.Leader, n.state.Epoch
	start, ok := n.log.startOf(n.state.Epoch)
	if !ok || n.highWatermark <= start {
		return
	}
	t.status.WriteGap = time.Duration(n.now - t.mark)
	t.status.MeasuredBy = "successor"
	if t.status.From == n.cfg.Self.ID {
		t.status.MeasuredBy = "old-leader"
	}
	if t.status.To == t.status.Target.ID {
		t.status.Phase = HandoffSucceeded
	} else {
		t.status.Phase = HandoffFailed
		t.status.Message = fmt.Sprintf("node %d leads epoch %d", t.status.To, t.status.ToEpoch)
	}
}
