package controllers

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/controllers/resources"
)

// nextNumber is above all revisions' numbers.
func (s *scene) nextNumber() int64 {
	if n := len(s.revisions); n > 0 {
		return s.revisions[n-1].Revision + 1
	}
	return 1
}

// createRevision renders the user's inputs and stores them, then makes the
// ConfigMap from what is stored: another operator, with another rendering, may
// have been first, and then its bytes count.
func (r *MetadataQuorumReconciler) createRevision(ctx context.Context, s *scene, name string) error {
	if s.revision(name) == nil {
		rendered, err := r.render(s.mq, s.clusterID(), s.image)
		if err != nil {
			return fmt.Errorf("render revision %s: %w", name, err)
		}
		if err := r.create(ctx, s.mq, resources.Revision(s.mq, rendered, s.nextNumber())); err != nil {
			return err
		}
	}
	var rev appsv1.ControllerRevision
	if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.mq.Namespace, Name: name}, &rev); err != nil {
		return fmt.Errorf("read back revision %s: %w", name, err)
	}
	stored, err := resources.ReadRevision(&rev)
	if err != nil {
		return err
	}
	return r.create(ctx, s.mq, resources.Config(s.mq, name, stored))
}

func (r *MetadataQuorumReconciler) render(mq *v1alpha1.MetadataQuorum, clusterID, image string) (*resources.Stored, error) {
	if r.Render != nil {
		return r.Render(mq, clusterID, image)
	}
	return resources.Render(mq, clusterID, image)
}

// raiseRevision makes a stored revision the newest, since the user's inputs
// went back to it.
func (r *MetadataQuorumReconciler) raiseRevision(ctx context.Context, s *scene, name string) error {
	rev := s.revision(name)
	if rev == nil {
		return fmt.Errorf("ControllerRevision %s is gone", name)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q},"revision":%d}`, rev.UID, rev.ResourceVersion, s.nextNumber())
	if err := r.Patch(ctx, rev.DeepCopy(), client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return fmt.Errorf("raise revision %s: %w", name, err)
	}
	return nil
}

func (r *MetadataQuorumReconciler) deleteRevision(ctx context.Context, mq *v1alpha1.MetadataQuorum, a plan.DeleteRevision) error {
	name := metav1.ObjectMeta{Namespace: mq.Namespace, Name: a.Name}
	if a.Config != "" {
		if err := r.delete(ctx, &corev1.ConfigMap{ObjectMeta: name}, a.Config); err != nil {
			return err
		}
	}
	return r.delete(ctx, &appsv1.ControllerRevision{ObjectMeta: name}, a.UID)
}

// applyConfiguration is an object as it's given to server-side apply, with the
// UID that the live one must have.
func applyConfiguration(obj client.Object, uid types.UID) (runtime.ApplyConfiguration, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetUID(uid)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return client.ApplyConfigurationFromUnstructured(u), nil
}
