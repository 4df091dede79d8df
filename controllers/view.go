package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// roleLeader is status.Member.Role of a leader.
const roleLeader = "Leader"

// viewOf puts the members' own accounts together: who leads is what the
// highest epoch's leader says of itself, and counts as confirmed by the voters
// that name it in that epoch. Nil: no voter answered.
//
// A leader that was cut off and deposed answers, too: its epoch is lower, or no
// majority confirms it.
func viewOf(answers []*status.Member, now time.Time) *plan.View {
	v := quorumView(answers, now)
	if v == nil {
		return nil
	}
	for _, m := range answers {
		if m.Disk.BelowReserve {
			v.BelowReserve = append(v.BelowReserve, m.NodeID)
		}
		if slices.ContainsFunc(v.Voters, func(p plan.Progress) bool {
			return p.NodeID == m.NodeID && p.DirectoryID != "" && p.DirectoryID != m.DirectoryID
		}) {
			v.Emptied = append(v.Emptied, m.NodeID)
		}
	}
	return v
}

// quorumView is the view without what members say of their disks.
func quorumView(answers []*status.Member, now time.Time) *plan.View {
	leader := leaderOf(answers)
	if leader == nil {
		return leaderless(answers, now)
	}
	v := &plan.View{
		Leader: leader.NodeID, Epoch: leader.Epoch, At: now,
		Committed:     leader.EpochCommitted,
		HighWatermark: leader.HighWatermark,
		LogEnd:        leader.LogEndOffset,
		Voters:        progress(leader.Voters),
		Observers:     progress(leader.Observers),
	}
	for _, m := range answers {
		isVoter := slices.ContainsFunc(leader.Voters, func(r status.Replica) bool {
			return r.NodeID == m.NodeID && r.DirectoryID == m.DirectoryID
		})
		if isVoter && m.Leader != nil && m.Leader.NodeID == leader.NodeID && m.Leader.Epoch == leader.Epoch {
			v.ConfirmedBy++
		}
	}
	return v
}

// leaderOf is the answer of the member that leads in the highest epoch.
func leaderOf(answers []*status.Member) *status.Member {
	var leader *status.Member
	for _, m := range answers {
		if m.Role == roleLeader && (leader == nil || m.Epoch > leader.Epoch) {
			leader = m
		}
	}
	return leader
}

// leaderless is the view while nobody leads: the voter set as the voter with
// the longest log knows it, and nobody's progress.
func leaderless(answers []*status.Member, now time.Time) *plan.View {
	var best *status.Member
	epoch := int32(0)
	for _, m := range answers {
		if !m.IsVoter {
			continue
		}
		epoch = max(epoch, m.Epoch)
		if best == nil || m.VotersOffset > best.VotersOffset {
			best = m
		}
	}
	if best == nil {
		return nil
	}
	v := &plan.View{Leader: -1, Epoch: epoch, At: now, HighWatermark: -1, LogEnd: -1, Voters: progress(best.Voters)}
	for i := range v.Voters {
		v.Voters[i].LogEnd, v.Voters[i].CaughtUpAge = -1, nil
	}
	return v
}

func progress(replicas []status.Replica) []plan.Progress {
	list := make([]plan.Progress, 0, len(replicas))
	for _, r := range replicas {
		p := plan.Progress{NodeID: r.NodeID, DirectoryID: r.DirectoryID, LogEnd: r.LogEndOffset}
		if r.LastCaughtUpMs >= 0 {
			p.CaughtUpAge = new(time.Duration(r.LastCaughtUpMs) * time.Millisecond)
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b plan.Progress) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.DirectoryID, b.DirectoryID))
	})
	return list
}

// newestHandoff is the last transfer of leadership that a member tells of. The
// old leader's account of one is preferred to the successor's: it has the id
// and, once done, the whole write gap.
func newestHandoff(answers []*status.Member) *status.Handoff {
	var newest *status.Handoff
	var by int32
	for _, m := range answers {
		h := m.Handoff
		switch {
		case h == nil:
		case newest == nil, h.FromEpoch > newest.FromEpoch,
			h.FromEpoch == newest.FromEpoch && by != newest.From && m.NodeID == h.From:
			newest, by = h, m.NodeID
		}
	}
	return newest
}

// handoffID names a handoff the same, whoever tells of it: a completed one by
// its epochs, for only one can end an epoch; another by the id that the leader
// gave it.
func handoffID(h *status.Handoff) string {
	if h.Phase == status.Succeeded || h.Phase == status.Failed {
		return fmt.Sprintf("%d-%d", h.FromEpoch, h.ToEpoch)
	}
	return h.ID
}

// handoffFact is what the planner is told of it. A member doesn't say when a
// handoff ended: it's when the operator first saw it ended.
func handoffFact(h *status.Handoff, memory plan.Memory, now time.Time) *plan.Handoff {
	if h == nil {
		return nil
	}
	fact := &plan.Handoff{
		ID: handoffID(h), From: h.From, To: h.To, FromEpoch: h.FromEpoch,
		Running: !h.Done(), Succeeded: h.Phase == status.Succeeded, Reason: h.Message,
	}
	switch {
	case fact.Running:
	case fact.ID == memory.LastHandoffID:
		fact.Ended = memory.LastHandoffEnd
	default:
		fact.Ended = now
	}
	return fact
}
