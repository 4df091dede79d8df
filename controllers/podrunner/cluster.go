package podrunner

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file plays the controllers of a cluster that envtest does not run: the
// disruption controller, the volume binder and the garbage collector.

// evictionTimeout is how long an evicted pod counts as disrupted though it was
// never seen to go; the disruption controller waits two minutes.
const evictionTimeout = 3 * time.Second

// conflictDelay is when a status is computed again that met a newer object.
const conflictDelay = 20 * time.Millisecond

// reconcileBudget keeps a budget's status, from which the API server decides
// whether an eviction may pass.
func (r *Runner) reconcileBudget(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pdb policyv1.PodDisruptionBudget
	if err := r.client.Get(ctx, req.NamespacedName, &pdb); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		return ctrl.Result{}, err
	}
	var pods corev1.PodList
	if err := r.reader.List(ctx, &pods, client.InNamespace(req.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return ctrl.Result{}, err
	}
	status := budgetStatus(&pdb, pods.Items, time.Now())
	var again ctrl.Result
	if len(status.DisruptedPods) > 0 {
		again.RequeueAfter = evictionTimeout // time alone may end it
	}
	if equality.Semantic.DeepEqual(status, pdb.Status) {
		return again, nil
	}
	pdb.Status = status
	if err := r.client.Status().Update(ctx, &pdb); apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil // an eviction has just been counted
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return again, nil
}

// budgetStatus counts as the disruption controller does for an integer
// minAvailable: a pod that is terminating, or was evicted and is not yet seen
// to go, is not healthy.
func budgetStatus(pdb *policyv1.PodDisruptionBudget, pods []corev1.Pod, now time.Time) policyv1.PodDisruptionBudgetStatus {
	s := *pdb.Status.DeepCopy()
	s.ObservedGeneration = pdb.Generation
	s.DesiredHealthy = int32(pdb.Spec.MinAvailable.IntValue())
	s.ExpectedPods = 0
	s.CurrentHealthy = 0
	disrupted := map[string]metav1.Time{}
	for i := range pods {
		p := &pods[i]
		if finished(p) {
			continue
		}
		s.ExpectedPods++
		if at, ok := s.DisruptedPods[p.Name]; ok && p.DeletionTimestamp == nil && now.Sub(at.Time) < evictionTimeout {
			disrupted[p.Name] = at
			continue
		}
		if p.DeletionTimestamp == nil && ready(p) {
			s.CurrentHealthy++
		}
	}
	s.DisruptedPods = nil
	if len(disrupted) > 0 {
		s.DisruptedPods = disrupted
	}
	s.DisruptionsAllowed = max(0, s.CurrentHealthy-s.DesiredHealthy)
	cond := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue,
		Reason: policyv1.SufficientPodsReason, ObservedGeneration: pdb.Generation,
	}
	if s.ExpectedPods == 0 || s.DisruptionsAllowed == 0 {
		s.DisruptionsAllowed = 0
		cond.Status, cond.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
	}
	meta.SetStatusCondition(&s.Conditions, cond)
	return s
}

// reconcileClaim binds a claim at once: its volume is a directory that is made
// at first use and outlives every pod.
func (r *Runner) reconcileClaim(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pvc corev1.PersistentVolumeClaim
	if err := r.client.Get(ctx, req.NamespacedName, &pvc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pvc.DeletionTimestamp != nil {
		return r.releaseClaim(ctx, &pvc)
	}
	if pvc.Status.Phase == corev1.ClaimBound {
		return ctrl.Result{}, nil
	}
	pvc.Status.Phase = corev1.ClaimBound
	pvc.Status.AccessModes = pvc.Spec.AccessModes
	pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *pvc.Spec.Resources.Requests.Storage()}
	if err := r.client.Status().Update(ctx, &pvc); apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, nil
}

// releaseClaim lets a deleted claim go once no pod mounts it.
func (r *Runner) releaseClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (ctrl.Result, error) {
	const protection = "kubernetes.io/pvc-protection"
	if len(pvc.Finalizers) == 0 {
		return ctrl.Result{}, nil
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(pvc.Namespace)); err != nil {
		return ctrl.Result{}, err
	}
	for i := range pods.Items {
		for _, v := range pods.Items[i].Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == pvc.Name && !finished(&pods.Items[i]) {
				return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
			}
		}
	}
	kept := pvc.Finalizers[:0]
	for _, f := range pvc.Finalizers {
		if f != protection {
			kept = append(kept, f)
		}
	}
	pvc.Finalizers = kept
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Update(ctx, pvc))
}

// CollectGarbage removes what the garbage collector would: the objects of a
// namespace whose controlling owner, by UID, is not there any more. It is a
// call and not a loop so that a test decides when the collector runs.
func (r *Runner) CollectGarbage(ctx context.Context, namespace string) error {
	for _, kind := range collectedKinds {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(kind)
		if err := r.reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			obj := &list.Items[i]
			orphaned, err := r.orphaned(ctx, obj)
			if err != nil {
				return err
			}
			if !orphaned {
				continue
			}
			if err := r.client.Delete(ctx, obj, client.Preconditions{UID: &obj.UID}); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

var collectedKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Pod"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	corev1.SchemeGroupVersion.WithKind("Service"),
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
}

func (r *Runner) orphaned(ctx context.Context, obj *metav1.PartialObjectMetadata) (bool, error) {
	ref := metav1.GetControllerOf(obj)
	if ref == nil {
		return false, nil
	}
	var owner metav1.PartialObjectMetadata
	owner.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	err := r.reader.Get(ctx, client.ObjectKey{Namespace: obj.Namespace, Name: ref.Name}, &owner)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return owner.UID != ref.UID, err
}
