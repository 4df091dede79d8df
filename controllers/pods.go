package controllers

import (
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/controllers/resources"
)

// This file reads what a pod's status says, in the words of kubelet and scheduler.

// memberPodFact is what the planner is told of a member's Pod.
func memberPodFact(pod *corev1.Pod, nodeID int32) plan.Pod {
	p := plan.Pod{
		Name: pod.Name, UID: pod.UID, NodeID: nodeID, Claim: resources.ClaimOf(pod),
		Revision: pod.Annotations[v1alpha1.AnnotationRevision], RestartedAt: resources.RestartedAt(pod),
		Created: pod.CreationTimestamp.Time, Phase: pod.Status.Phase,
		Node: pod.Spec.NodeName, IP: pod.Status.PodIP,
		Problem: problem(pod), Token: token(pod),
	}
	if c := containerStatus(pod); c != nil && c.State.Running != nil && pod.Status.Phase == corev1.PodRunning {
		p.Running, p.Started = true, c.State.Running.StartedAt.Time
	}
	p.ReadySince = readySince(pod)
	p.Ready = !p.ReadySince.IsZero()
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		p.Grace = time.Duration(*g) * time.Second
	}
	if pod.DeletionTimestamp != nil {
		p.Terminating, p.TerminatingSince = true, pod.DeletionTimestamp.Time
		if g := pod.DeletionGracePeriodSeconds; g != nil {
			p.TerminatingSince = p.TerminatingSince.Add(-time.Duration(*g) * time.Second)
		}
	}
	return p
}

// formatPodFact is what the planner is told of a one-shot Pod.
func formatPodFact(pod *corev1.Pod, nodeID int32) plan.FormatPod {
	p := plan.FormatPod{
		Name: pod.Name, UID: pod.UID, NodeID: nodeID, Claim: resources.ClaimOf(pod),
		ClaimUID: types.UID(pod.Annotations[v1alpha1.AnnotationClaimUID]),
		Revision: pod.Annotations[v1alpha1.AnnotationRevision],
		Phase:    pod.Status.Phase, Terminating: pod.DeletionTimestamp != nil,
		Problem: problem(pod), Token: token(pod),
	}
	if c := containerStatus(pod); c != nil && c.State.Terminated != nil {
		p.Finished = c.State.Terminated.FinishedAt.Time
	}
	return p
}

func podCondition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// readySince is when the pod became Ready, zero if it isn't.
func readySince(pod *corev1.Pod) time.Time {
	c := podCondition(pod, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// containerStatus is the status of the container that runs the member; pods
// that a webhook has given sidecars have others, too.
func containerStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == resources.ContainerName {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// problem is what keeps the pod from running, in one word of kubelet's or the
// scheduler's; "" if it runs or nothing is known.
func problem(pod *corev1.Pod) string {
	if c := podCondition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return c.Reason
	}
	c := containerStatus(pod)
	switch {
	case c == nil:
		return pod.Status.Reason // Evicted, NodeLost, …
	case c.State.Waiting != nil && c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing":
		return c.State.Waiting.Reason
	case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
		return c.State.Terminated.Reason
	default:
		return pod.Status.Reason
	}
}

// A fatal fault is told as one upper-case word and one sentence in the
// termination message (package quorum/server).
var tokenPattern = regexp.MustCompile(`^[A-Z][A-Z0-9_]{3,40}$`)

// terminationMessage is what the container said when it ended last.
func terminationMessage(pod *corev1.Pod) string {
	c := containerStatus(pod)
	switch {
	case c == nil:
		return ""
	case c.State.Terminated != nil:
		return c.State.Terminated.Message
	case c.LastTerminationState.Terminated != nil && c.State.Running == nil:
		return c.LastTerminationState.Terminated.Message
	}
	return ""
}

// token is the upper-case word of the last termination message, "" for none.
func token(pod *corev1.Pod) string {
	word, _, _ := strings.Cut(strings.TrimSpace(terminationMessage(pod)), " ")
	word = strings.TrimRight(word, ":\n")
	if !tokenPattern.MatchString(word) {
		return ""
	}
	return word
}
