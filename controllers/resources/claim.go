package resources

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
)

// Claim is a member's PersistentVolumeClaim. It outlives the quorum unless storage.whenDeleted says otherwise, so it
// carries all that is needed to rebuild the identity record.
func Claim(mq *v1alpha1.MetadataQuorum, a plan.CreateClaim) *corev1.PersistentVolumeClaim {
	storage := v1alpha1.Resolve(&mq.Spec).Storage
	pvc := &corev1.PersistentVolumeClaim{
		TypeMeta: typeMeta("v1", "PersistentVolumeClaim"),
		ObjectMeta: metav1.ObjectMeta{
			Name: a.Name, Namespace: mq.Namespace, Labels: claimLabels(mq, a.NodeID),
			Annotations: map[string]string{
				v1alpha1.AnnotationClusterID:     a.ClusterID,
				v1alpha1.AnnotationImage:         a.Image,
				v1alpha1.AnnotationInitialVoters: encodeVoters(a.Initial),
			},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(*storage.AccessMode)},
			StorageClassName: storage.StorageClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *storage.Size}},
		},
	}
	for _, v := range a.Initial {
		if v.Claim == a.Name {
			pvc.Annotations[v1alpha1.AnnotationDirectoryID] = v.DirectoryID
		}
	}
	if *storage.WhenDeleted == v1alpha1.Delete {
		pvc.OwnerReferences = []metav1.OwnerReference{ClaimOwner(mq)}
	}
	return pvc
}

// ClaimOwner is the owner reference of a claim that goes with the quorum.
func ClaimOwner(mq *v1alpha1.MetadataQuorum) metav1.OwnerReference { return Owner(mq) }

// ReadClaim reads a claim with this quorum's label. owner is the UID of the MetadataQuorum.
func ReadClaim(pvc *corev1.PersistentVolumeClaim, owner types.UID) (plan.Claim, error) {
	id, ok := NodeID(pvc.Labels)
	if !ok {
		return plan.Claim{}, fmt.Errorf("PersistentVolumeClaim %s: label %s is %q, want a node id", pvc.Name, v1alpha1.LabelNodeID, pvc.Labels[v1alpha1.LabelNodeID])
	}
	voters, err := decodeVoters(pvc.Annotations[v1alpha1.AnnotationInitialVoters])
	if err != nil {
		return plan.Claim{}, fmt.Errorf("PersistentVolumeClaim %s: annotation %s: %w", pvc.Name, v1alpha1.AnnotationInitialVoters, err)
	}
	c := plan.Claim{
		Name: pvc.Name, UID: pvc.UID, NodeID: id,
		ClusterID:    pvc.Annotations[v1alpha1.AnnotationClusterID],
		Image:        pvc.Annotations[v1alpha1.AnnotationImage],
		Initial:      voters,
		FormattedFor: types.UID(pvc.Annotations[v1alpha1.AnnotationFormatted]),
		Deleting:     pvc.DeletionTimestamp != nil,
	}
	_, c.Parked = pvc.Annotations[v1alpha1.AnnotationParked]
	for _, r := range pvc.OwnerReferences {
		c.Owned = c.Owned || r.UID == owner
	}
	return c, nil
}
