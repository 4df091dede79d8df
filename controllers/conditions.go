package controllers

import (
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
)

// setConditions sets all of them, with lastTransitionTime only on a change.
func setConditions(next *v1alpha1.MetadataQuorumStatus, s *scene, step plan.Step, actErr error) {
	o := s.obs
	set := func(t string, value metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&next.Conditions, metav1.Condition{
			Type: t, Status: value, Reason: reason, Message: message,
			ObservedGeneration: s.mq.Generation, LastTransitionTime: metav1.NewTime(o.Now),
		})
	}
	// Conditions that are abnormal when true are absent when false.
	flag := func(t string, value bool, reason, message string) {
		if value {
			set(t, metav1.ConditionTrue, reason, message)
		} else {
			meta.RemoveStatusCondition(&next.Conditions, t)
		}
	}

	reason, message, stalled := step.Reason, step.Message, step.Stalled
	var refused *refusal
	switch {
	case errors.As(actErr, &refused):
		reason, message, stalled = refused.Reason, refused.Message, refused.Stalled
	case actErr != nil:
		// The error itself is in the log: its text changes with every try.
		reason, message = v1alpha1.ReasonActionFailed, "the API server or the quorum refused a step; it is tried again: "+step.Message
	}
	available, why := quorumAvailable(o)
	set(v1alpha1.ConditionQuorumAvailable, available, why.Reason, why.Message)

	formed := meta.IsStatusConditionTrue(next.Conditions, v1alpha1.ConditionBootstrapped) && o.Identity != nil
	if formed || available == metav1.ConditionTrue {
		set(v1alpha1.ConditionBootstrapped, metav1.ConditionTrue, v1alpha1.ReasonBootstrapped, "the quorum's log exists")
	} else {
		set(v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonBootstrapping, message)
	}

	safe := plan.SafeToRestart(o)
	if safe.Reason == "" {
		set(v1alpha1.ConditionSafeToRestart, metav1.ConditionTrue, v1alpha1.ReasonSafe, "all gates hold for the member that would be replaced next")
	} else {
		set(v1alpha1.ConditionSafeToRestart, metav1.ConditionFalse, safe.Reason, safe.Message)
	}

	flag(v1alpha1.ConditionPaused, o.Want.Paused, v1alpha1.ReasonPaused, "spec.paused is set")
	unready := notReady(o)
	done := reason == v1alpha1.ReasonUpToDate
	flag(v1alpha1.ConditionStalled, stalled, reason, message)
	switch {
	case stalled:
		flag(v1alpha1.ConditionReconciling, false, "", "")
	case !done:
		flag(v1alpha1.ConditionReconciling, true, reason, message)
	default:
		flag(v1alpha1.ConditionReconciling, unready != "", v1alpha1.ReasonMembersNotReady, unready)
	}
	switch {
	case available != metav1.ConditionTrue && !o.Want.Paused && !stalled:
		set(v1alpha1.ConditionReady, metav1.ConditionFalse, why.Reason, why.Message)
	case !done:
		set(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	case unready != "":
		set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersNotReady, unready)
	default:
		set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonUpToDate, message)
	}
}

// quorumAvailable: a majority of voters agrees on a leader that commits.
func quorumAvailable(o plan.Observation) (metav1.ConditionStatus, plan.Refusal) {
	if o.Identity == nil {
		return metav1.ConditionFalse, plan.Refusal{Reason: v1alpha1.ReasonNotBootstrapped, Message: "there is no quorum yet"}
	}
	if refused := plan.NoMajority(o); refused.Reason != "" {
		return metav1.ConditionFalse, refused
	}
	v := o.View
	if v == nil {
		return metav1.ConditionUnknown, plan.Refusal{
			Reason:  v1alpha1.ReasonNoLeader,
			Message: "the voters' Pods run, and none of them answers the operator: it cannot tell a dead quorum from one it cannot reach",
		}
	}
	switch refused := plan.SafeToRestart(o); refused.Reason { // its first gate asks the same
	case v1alpha1.ReasonNoLeader, v1alpha1.ReasonViewStale, v1alpha1.ReasonLeaderNotConfirmed, v1alpha1.ReasonLeaderNotCommitting:
		return metav1.ConditionFalse, refused
	}
	if why := plan.Fault(o, v.Leader); why != "" { // it has not handed over yet, or nobody has room either
		return metav1.ConditionFalse, plan.Refusal{Reason: v1alpha1.ReasonDiskFull, Message: fmt.Sprintf("leader %d: %s", v.Leader, why)}
	}
	return metav1.ConditionTrue, plan.Refusal{
		Reason:  v1alpha1.ReasonAvailable,
		Message: fmt.Sprintf("%d leads, confirmed by a majority of %d voters", v.Leader, len(v.Voters)),
	}
}

// notReady names the first member that isn't ready and caught up, "" for none.
func notReady(o plan.Observation) string {
	for _, m := range plan.Members(o) {
		who := "member " + strconv.Itoa(int(m.NodeID))
		switch {
		case m.Pod == nil:
			return who + " has no Pod"
		case !m.Pod.Ready:
			return who + " is not ready" + parenthesis(memberMessage(o, m.Pod))
		case !plan.CaughtUp(o, m.NodeID):
			return who + " does not hold yet what the leader has"
		}
	}
	return ""
}

func parenthesis(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
