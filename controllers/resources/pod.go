package resources

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
)

// MemberPod is the Pod of a member, from stored bytes and what differs by member. It has one spec for life.
func MemberPod(mq *v1alpha1.MetadataQuorum, s *Stored, a plan.CreateMemberPod) *corev1.Pod {
	pod := basePod(mq, s, a.NodeID, a.Claim, plan.PodName(mq.Name, a.NodeID))
	pod.Labels = with(pod.Labels, memberLabels(mq, a.NodeID))
	pod.Annotations = with(pod.Annotations, map[string]string{v1alpha1.AnnotationRevision: a.Revision})
	if !a.RestartedAt.IsZero() {
		pod.Annotations[v1alpha1.AnnotationRestartedAt] = a.RestartedAt.UTC().Format(time.RFC3339)
	}
	return pod
}

// CheckedPod is a member's Pod under a name that is free, for a dry run beside the living one.
func CheckedPod(mq *v1alpha1.MetadataQuorum, s *Stored, a plan.CheckPod) *corev1.Pod {
	pod := MemberPod(mq, s, plan.CreateMemberPod{NodeID: a.NodeID, Claim: a.Claim, Revision: a.Revision})
	pod.Name += "-check"
	return pod
}

// FormatPod is the one-shot Pod that formats a claim as an initial voter's.
func FormatPod(mq *v1alpha1.MetadataQuorum, s *Stored, a plan.CreateFormatPod) *corev1.Pod {
	pod := basePod(mq, s, a.NodeID, a.Claim, plan.FormatPodName(mq.Name, a.NodeID))
	pod.Labels = with(pod.Labels, formatLabels(mq, a.NodeID))
	pod.Annotations = with(pod.Annotations, map[string]string{
		v1alpha1.AnnotationRevision: a.Revision,
		v1alpha1.AnnotationClaimUID: string(a.ClaimUID),
	})
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	// A sidecar or an init container of the user's would keep it from ending, or has no work here.
	pod.Spec.InitContainers = nil
	pod.Spec.Containers = pod.Spec.Containers[:1]
	c := &pod.Spec.Containers[0]
	c.Args = []string{
		"format", "--cluster-id", a.Cluster, "--config", configDir + "/" + configFile,
		"--initial-controllers", initialControllers(mq, a.Initial),
	}
	c.Ports, c.LivenessProbe, c.ReadinessProbe, c.Lifecycle = nil, nil, nil, nil
	return pod
}

func basePod(mq *v1alpha1.MetadataQuorum, s *Stored, nodeID int32, claim, name string) *corev1.Pod {
	t := s.Voter.DeepCopy()
	observer := nodeID >= v1alpha1.FirstObserverID
	if observer {
		t = s.Observer.DeepCopy()
	}
	pod := &corev1.Pod{TypeMeta: typeMeta("v1", "Pod"), ObjectMeta: meta(mq, name, t.Labels), Spec: t.Spec}
	pod.Annotations = t.Annotations
	pod.Spec.Hostname = name
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == "data" && v.PersistentVolumeClaim != nil {
			v.PersistentVolumeClaim.ClaimName = claim
		}
	}
	c := &pod.Spec.Containers[0]
	c.Env = append([]corev1.EnvVar{
		{Name: envNodeID, Value: strconv.Itoa(int(nodeID))},
		{Name: envHost, Value: Host(mq, nodeID)},
		{Name: envObserverOnly, Value: strconv.FormatBool(observer)},
		// Kubernetes copies the node's zone to its Pods' labels (1.35); before that, or without zones, it's empty.
		{Name: envRack, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels['" + corev1.LabelTopologyZone + "']"}}},
	}, c.Env...)
	return pod
}

// ClaimOf is the claim that a member's Pod mounts, "" if none.
func ClaimOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == "data" && v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// RestartedAt reads a Pod's annotation, zero if there is none.
func RestartedAt(o metav1.Object) time.Time {
	t, err := time.Parse(time.RFC3339, o.GetAnnotations()[v1alpha1.AnnotationRestartedAt])
	if err != nil {
		return time.Time{}
	}
	return t
}
