package controllers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// quietPeriod is how long offsets and lag may be old in status: they change
// all the time, and alone are no reason for a write before it has passed.
const quietPeriod = 30 * time.Second

// report turns what was seen and done into status: one write a pass, none if
// nothing changed, and the events of what the write shows to have happened.
// It returns when to look again because of the status itself, 0 for never.
func (r *MetadataQuorumReconciler) report(ctx context.Context, s *scene, step plan.Step, actErr error) (time.Duration, error) {
	if s.mq.DeletionTimestamp != nil {
		return 0, nil // nobody reads it any more, and the object may be gone
	}
	next := statusOf(s, step, actErr)
	observeMetrics(s.mq, &next)
	old := &s.mq.Status
	if equality.Semantic.DeepEqual(*old, next) {
		return 0, nil
	}
	if left := quietPeriod - s.obs.Now.Sub(lastStatusWrite(s.mq)); left > 0 && equality.Semantic.DeepEqual(settledPart(*old), settledPart(next)) {
		return left, nil
	}
	mq := s.mq.DeepCopy()
	mq.Status = next
	if err := r.Status().Update(ctx, mq); apierrors.IsNotFound(err) {
		return 0, nil // deleted meanwhile
	} else if err != nil {
		return 0, fmt.Errorf("write status: %w", err)
	}
	r.announce(s, old, &next)
	return 0, nil
}

// lastStatusWrite is when status changed last, as the API server noted it.
func lastStatusWrite(mq *v1alpha1.MetadataQuorum) time.Time {
	var last time.Time
	for _, f := range mq.ManagedFields {
		if f.Subresource == "status" && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// settledPart is status without what moves with every append.
func settledPart(s v1alpha1.MetadataQuorumStatus) v1alpha1.MetadataQuorumStatus {
	c := s.DeepCopy()
	if c.Leader != nil {
		c.Leader.ConfirmedBy = 0 // one answer more or less
	}
	if c.Quorum != nil {
		c.Quorum.HighWatermark, c.Quorum.LogEndOffset, c.Quorum.MaxLag = 0, 0, 0
	}
	for i := range c.Members {
		c.Members[i].LogEndOffset, c.Members[i].Lag = 0, 0
	}
	return *c
}

// statusOf is the whole status after a pass. What facts tell is derived anew;
// what they can't tell is carried over from the old one.
func statusOf(s *scene, step plan.Step, actErr error) v1alpha1.MetadataQuorumStatus {
	o := s.obs
	next := *s.mq.Status.DeepCopy()
	next.ObservedGeneration = s.mq.Generation
	next.Effective = v1alpha1.Effective(&s.mq.Spec)
	next.Image = s.image
	next.Revision = o.Revision.Name
	next.ClusterID = ""
	if o.Identity != nil {
		next.ClusterID = o.Identity.ClusterID
	}
	members := plan.Members(o)
	next.Leader = leaderStatus(o)
	next.Quorum = quorumStatus(o)
	next.Members = memberStatuses(o, members)
	next.Observers = observersStatus(o)
	next.Summary = summaryOf(o, members, next.Quorum)
	next.Rollout = rolloutStatus(s, step, next.Rollout)
	setConditions(&next, s, step, actErr)
	return next
}

func leaderStatus(o plan.Observation) *v1alpha1.LeaderStatus {
	v := o.View
	if v == nil || v.Leader < 0 {
		return nil
	}
	l := &v1alpha1.LeaderStatus{NodeID: v.Leader, Epoch: v.Epoch, ConfirmedBy: v.ConfirmedBy}
	for _, p := range o.Pods {
		if p.NodeID == v.Leader {
			l.Pod = p.Name
		}
	}
	return l
}

func quorumStatus(o plan.Observation) *v1alpha1.QuorumStatus {
	v := o.View
	if v == nil || len(v.Voters) == 0 {
		return nil
	}
	size := int32(len(v.Voters))
	q := &v1alpha1.QuorumStatus{
		Size: size, Majority: size/2 + 1, Contributing: int32(len(plan.Contributing(o))),
		HighWatermark: v.HighWatermark, LogEndOffset: v.LogEnd,
	}
	for _, p := range v.Voters {
		lag := lagOf(v, &p)
		if lag < 0 {
			q.MaxLag = -1
			break
		}
		q.MaxLag = max(q.MaxLag, lag)
	}
	return q
}

// lagOf is how many offsets a replica is behind its leader, -1 if unknown.
func lagOf(v *plan.View, p *plan.Progress) int64 {
	if p == nil || v == nil || v.LogEnd < 0 || p.LogEnd < 0 {
		return -1
	}
	return max(0, v.LogEnd-p.LogEnd)
}

// maxObserversListed is as many as spec.observers.replicas takes. There may be
// more of them while they are scaled down, or by claims made by hand, and the
// status stays far below what an object may weigh all the same.
const maxObserversListed = 128

func memberStatuses(o plan.Observation, members []plan.Member) []v1alpha1.MemberStatus {
	var list []v1alpha1.MemberStatus
	observers := 0
	for _, m := range members { // voters first
		if v1alpha1.Pool(m.NodeID) == v1alpha1.PoolObservers {
			if observers++; observers > maxObserversListed {
				break
			}
		}
		s := v1alpha1.MemberStatus{
			NodeID: m.NodeID, Role: v1alpha1.RoleObserver, Claim: m.Claim, LogEndOffset: -1, Lag: lagOf(o.View, m.Progress),
			CaughtUp: plan.CaughtUp(o, m.NodeID),
		}
		if m.Voter {
			s.Role = v1alpha1.RoleVoter
		}
		if m.Progress != nil {
			s.DirectoryID, s.LogEndOffset = m.Progress.DirectoryID, m.Progress.LogEnd
		}
		if p := m.Pod; p == nil {
			s.Message = "there is no Pod"
		} else {
			s.Pod, s.Node, s.Revision, s.Ready = p.Name, p.Node, p.Revision, p.Ready
			s.Message = memberMessage(o, p)
		}
		list = append(list, s)
	}
	return list
}

func memberMessage(o plan.Observation, p *plan.Pod) string {
	fault := plan.Fault(o, p.NodeID)
	switch {
	case p.Terminating:
		return "the Pod is shutting down"
	case fault != "" && p.Running: // a leader without room stays ready
		return fault
	case p.Ready:
		return ""
	case p.Token != "" && p.Problem != "":
		return p.Problem + ": " + p.Token
	case p.Token != "":
		return p.Token
	default:
		return p.Problem
	}
}

func observersStatus(o plan.Observation) *v1alpha1.ObserversStatus {
	s := &v1alpha1.ObserversStatus{Selector: labels.SelectorFromSet(labels.Set{
		v1alpha1.LabelQuorum: o.Want.Name, v1alpha1.LabelPool: v1alpha1.PoolObservers,
	}).String()}
	for _, p := range o.Pods {
		if v1alpha1.Pool(p.NodeID) != v1alpha1.PoolObservers || p.Terminating {
			continue
		}
		s.Replicas++
		if p.Ready {
			s.Ready++
		}
	}
	return s
}

func summaryOf(o plan.Observation, members []plan.Member, q *v1alpha1.QuorumStatus) *v1alpha1.SummaryStatus {
	voters, contributing := int32(0), int32(0)
	updated := 0
	for _, m := range members {
		if v1alpha1.Pool(m.NodeID) == v1alpha1.PoolVoters {
			voters++
		}
		if m.Pod != nil && !m.Pod.Terminating && !plan.Outdated(o, *m.Pod) {
			updated++
		}
	}
	if voters == 0 {
		voters = o.Want.Voters
	}
	if q != nil {
		voters, contributing = q.Size, q.Contributing
	}
	return &v1alpha1.SummaryStatus{
		Voters:    fmt.Sprintf("%d/%d", contributing, voters),
		Observers: fmt.Sprintf("%d/%d", observersStatus(o).Ready, o.Want.Observers),
		Updated:   fmt.Sprintf("%d/%d", updated, max(len(members), int(voters+o.Want.Observers))),
	}
}

// memoryOf is what the last pass left for this one.
func memoryOf(mq *v1alpha1.MetadataQuorum) plan.Memory {
	r := mq.Status.Rollout
	if r == nil {
		return plan.Memory{}
	}
	m := plan.Memory{
		Revision: r.Revision, Epoch: r.Epoch, LeaderChanges: r.LeaderChanges, LastLeaderChange: timeOf(r.LastLeaderChange),
		HandoffFailures: r.HandoffFailures,
	}
	if h := r.LastHandoff; h != nil {
		m.LastHandoffID, m.LastHandoffEnd = h.ID, timeOf(h.At)
	}
	return m
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func timePointer(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	// The API server keeps whole seconds; anything finer would look like a change in the next pass.
	return new(metav1.NewTime(t.Truncate(time.Second)))
}

func rolloutStatus(s *scene, step plan.Step, old *v1alpha1.RolloutStatus) *v1alpha1.RolloutStatus {
	o := s.obs
	if o.Identity == nil {
		return old
	}
	next := &v1alpha1.RolloutStatus{}
	if old != nil {
		next = old.DeepCopy()
	}
	m := plan.Remember(o)
	next.Revision, next.Epoch = m.Revision, m.Epoch
	next.LeaderChanges, next.HandoffFailures = m.LeaderChanges, m.HandoffFailures
	next.LastLeaderChange = timePointer(m.LastLeaderChange)
	next.RestartedAt = timePointer(o.Want.RestartedAt)
	outdated := false
	for _, p := range o.Pods {
		outdated = outdated || (!p.Terminating && plan.Outdated(o, p))
	}
	switch {
	case outdated && (next.StartedAt == nil || next.CompletedAt != nil):
		next.StartedAt, next.CompletedAt = timePointer(o.Now), nil
	case !outdated && next.StartedAt != nil && next.CompletedAt == nil && step.Reason == v1alpha1.ReasonUpToDate:
		next.CompletedAt = timePointer(o.Now)
	}
	if h := s.handoff; h != nil && h.Done() {
		next.LastHandoff = handoffStatus(h, m, next.LastHandoff)
	}
	return next
}

// handoffStatus keeps the old leader's account of a handoff when, after its
// Pod went, only the successor tells of it.
func handoffStatus(h *status.Handoff, m plan.Memory, old *v1alpha1.HandoffStatus) *v1alpha1.HandoffStatus {
	next := &v1alpha1.HandoffStatus{
		ID: handoffID(h), From: h.From, To: h.To, FromEpoch: h.FromEpoch,
		Outcome: v1alpha1.HandoffFailed, Message: h.Message, At: timePointer(m.LastHandoffEnd),
	}
	if h.Phase == status.Succeeded {
		next.Outcome, next.Message = v1alpha1.HandoffSucceeded, ""
	} else {
		next.To = h.Target
	}
	if h.ToEpoch > 0 {
		next.ToEpoch = h.ToEpoch
	}
	if h.WriteGap > 0 {
		next.WriteGap = &metav1.Duration{Duration: h.WriteGap.Std()}
		next.MeasuredBy = "OldLeader"
		if h.MeasuredBy == "successor" {
			next.MeasuredBy = "Successor"
		}
	}
	if old != nil && old.ID == next.ID && (old.MeasuredBy == "OldLeader" || next.WriteGap == nil) {
		return old
	}
	return next
}
