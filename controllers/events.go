package controllers

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// Reasons of events: something has happened to the user's quorum.
const (
	eventQuorumFormed          = "QuorumFormed"
	eventQuorumLost            = "QuorumLost"
	eventQuorumRestored        = "QuorumRestored"
	eventLeadershipTransferred = "LeadershipTransferred"
	eventHandoffFailed         = "HandoffFailed"
	eventLeaderElected         = "LeaderElected"
	eventRolloutStarted        = "RolloutStarted"
	eventRolloutCompleted      = "RolloutCompleted"
	eventMemberRestarting      = "MemberRestarting"
	eventClaimFormatted        = "ClaimFormatted"
)

// Actions of events: what the operator was at.
const (
	actionObserve = "Observe"
	actionRoll    = "Roll"
	actionFormat  = "Format"
)

// maxNoteBytes is what the API server takes; a longer note loses the event.
const maxNoteBytes = 1024

// event records one; related may be nil.
func (r *MetadataQuorumReconciler) event(mq *v1alpha1.MetadataQuorum, related runtime.Object, kind, reason, action, format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	if len(note) > maxNoteBytes {
		note = strings.ToValidUTF8(note[:maxNoteBytes-len("…")], "") + "…"
	}
	r.Recorder.Eventf(mq, related, kind, reason, action, "%s", note)
}

// announce tells what has happened between two statuses. It's called after the
// newer one was written, so each change is told once.
func (r *MetadataQuorumReconciler) announce(s *scene, old, next *v1alpha1.MetadataQuorumStatus) {
	mq := s.mq
	r.announceLeadership(mq, old, next)

	was := meta.FindStatusCondition(old.Conditions, v1alpha1.ConditionQuorumAvailable)
	is := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionQuorumAvailable)
	formed := meta.IsStatusConditionTrue(old.Conditions, v1alpha1.ConditionBootstrapped)
	switch wasTrue := was != nil && was.Status == metav1.ConditionTrue; {
	case is.Status == metav1.ConditionTrue && !wasTrue && !formed:
		r.event(mq, nil, corev1.EventTypeNormal, eventQuorumFormed, actionObserve, "the quorum of cluster %s is formed: %s", next.ClusterID, is.Message)
	case is.Status == metav1.ConditionTrue && !wasTrue:
		r.event(mq, nil, corev1.EventTypeNormal, eventQuorumRestored, actionObserve, "%s", is.Message)
	case is.Status != metav1.ConditionTrue && wasTrue:
		r.event(mq, nil, corev1.EventTypeWarning, eventQuorumLost, actionObserve, "%s: %s", is.Reason, is.Message)
	}

	stalledWas := meta.FindStatusCondition(old.Conditions, v1alpha1.ConditionStalled)
	stalledIs := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionStalled)
	if stalledIs != nil && (stalledWas == nil || stalledWas.Reason != stalledIs.Reason) {
		r.event(mq, nil, corev1.EventTypeWarning, stalledIs.Reason, actionObserve, "%s", stalledIs.Message)
	}

	if next.Rollout == nil {
		return
	}
	before := v1alpha1.RolloutStatus{}
	if old.Rollout != nil {
		before = *old.Rollout
	}
	if next.Rollout.StartedAt != nil && !next.Rollout.StartedAt.Equal(before.StartedAt) {
		r.event(mq, nil, corev1.EventTypeNormal, eventRolloutStarted, actionRoll, "rolling the members to revision %s", next.Revision)
	}
	if next.Rollout.CompletedAt != nil && !next.Rollout.CompletedAt.Equal(before.CompletedAt) {
		r.event(mq, nil, corev1.EventTypeNormal, eventRolloutCompleted, actionRoll, "%s members run revision %s", next.Summary.Updated, next.Revision)
	}
}

func (r *MetadataQuorumReconciler) announceLeadership(mq *v1alpha1.MetadataQuorum, old, next *v1alpha1.MetadataQuorumStatus) {
	handoff := func(s *v1alpha1.MetadataQuorumStatus) *v1alpha1.HandoffStatus {
		if s.Rollout == nil {
			return nil
		}
		return s.Rollout.LastHandoff
	}
	h, before := handoff(next), handoff(old)
	fresh := h != nil && (before == nil || before.ID != h.ID)
	switch {
	case fresh && h.Outcome == v1alpha1.HandoffSucceeded:
		gap := ""
		if h.WriteGap != nil {
			gap = fmt.Sprintf(", write gap %s", h.WriteGap.Duration)
		}
		r.event(mq, nil, corev1.EventTypeNormal, eventLeadershipTransferred, actionRoll,
			"leadership moved from %d to %d (epoch %d→%d)%s", h.From, h.To, h.FromEpoch, h.ToEpoch, gap)
	case fresh:
		r.event(mq, nil, corev1.EventTypeWarning, eventHandoffFailed, actionRoll,
			"leader %d of epoch %d did not hand over to %d: %s", h.From, h.FromEpoch, h.To, h.Message)
	}
	// An election that was no handoff; the first leader of all is told by QuorumFormed.
	if next.Rollout == nil || old.Rollout == nil || old.Rollout.Epoch == 0 || next.Leader == nil || next.Rollout.Epoch <= old.Rollout.Epoch {
		return
	}
	if h == nil || h.ToEpoch < next.Rollout.Epoch {
		r.event(mq, nil, corev1.EventTypeNormal, eventLeaderElected, actionObserve,
			"%d was elected leader (epoch %d→%d)", next.Leader.NodeID, old.Rollout.Epoch, next.Rollout.Epoch)
	}
}
