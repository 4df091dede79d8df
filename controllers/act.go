package controllers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/controllers/resources"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// refusal is a write that was not done for a reason that a person can read:
// something to wait for, or, if stalled, something to decide. It's no failure
// of the pass, and trying again faster would not help.
type refusal struct {
	Reason, Message string
	Stalled         bool
}

func (r *refusal) Error() string { return r.Reason + ": " + r.Message }

// ignoreRefusal is what is left of act's error to be retried with back-off.
func ignoreRefusal(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var rest []error
		for _, e := range joined.Unwrap() {
			rest = append(rest, ignoreRefusal(e))
		}
		return errors.Join(rest...)
	}
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		return nil
	}
	return err
}

// act carries out a step. One write that fails does not keep the others from
// being tried, for they don't depend on each other; but it withholds what
// disrupts, which comes last; so does a view that has grown old over them.
func (r *MetadataQuorumReconciler) act(ctx context.Context, s *scene, step plan.Step) error {
	var errs []error
	for _, a := range step.Actions {
		if plan.Disruptive(a) {
			if len(errs) > 0 {
				break
			}
			if age := r.now().Sub(s.obs.Now); age > plan.MaxViewAge {
				return &refusal{Reason: v1alpha1.ReasonViewStale, Message: "the writes before it took so long that what was seen no longer counts: " + step.Message}
			}
		}
		if err := r.one(ctx, s, a); err != nil {
			errs = append(errs, fmt.Errorf("%T: %w", a, err))
			continue
		}
		log.FromContext(ctx).V(verbosity(a)).Info("Acted", "action", fmt.Sprintf("%T", a), "details", a, "reason", step.Reason)
	}
	return errors.Join(errs...)
}

func verbosity(a plan.Action) int {
	if plan.Disruptive(a) {
		return 0
	}
	return 1
}

// one carries out one action. Each case is idempotent or fenced.
func (r *MetadataQuorumReconciler) one(ctx context.Context, s *scene, a plan.Action) error {
	mq := s.mq
	switch a := a.(type) {
	case plan.CreateIdentity:
		return r.create(ctx, mq, resources.Identity(mq, a.Identity))
	case plan.SealIdentity:
		return r.annotate(ctx, identityOf(mq), a.UID, v1alpha1.AnnotationSeal, resources.Seal(a.Voters))
	case plan.CreateShared:
		return r.create(ctx, mq, s.rendered(a.Kind, a.Name))
	case plan.ApplyShared:
		return r.apply(ctx, s.rendered(a.Kind, a.Name), a.UID)
	case plan.CreateRevision:
		return r.createRevision(ctx, s, a.Name)
	case plan.RaiseRevision:
		return r.raiseRevision(ctx, s, a.Name)
	case plan.DeleteRevision:
		return r.deleteRevision(ctx, mq, a)

	case plan.CreateClaim:
		return r.create(ctx, mq, resources.Claim(mq, a))
	case plan.OwnClaim:
		return r.ownClaim(ctx, mq, a)
	case plan.ParkClaim:
		return r.annotate(ctx, claimOf(mq, a.Name), a.UID, v1alpha1.AnnotationParked, "true")
	case plan.DeleteClaim:
		return r.delete(ctx, claimOf(mq, a.Name), a.UID)
	case plan.RecordFormatted:
		if err := r.annotate(ctx, claimOf(mq, a.Claim), a.UID, v1alpha1.AnnotationFormatted, string(a.UID)); err != nil {
			return err
		}
		r.event(mq, claimOf(mq, a.Claim), corev1.EventTypeNormal, eventClaimFormatted, actionFormat, "claim %s is formatted, once and for all", a.Claim)
		return nil

	case plan.CreateFormatPod:
		return r.createPod(ctx, s, a.Revision, func(from *resources.Stored) *corev1.Pod { return resources.FormatPod(mq, from, a) })
	case plan.CreateMemberPod:
		return r.createPod(ctx, s, a.Revision, func(from *resources.Stored) *corev1.Pod { return resources.MemberPod(mq, from, a) })
	case plan.CheckPod:
		return r.createPod(ctx, s, a.Revision, func(from *resources.Stored) *corev1.Pod { return resources.CheckedPod(mq, from, a) }, client.DryRunAll)
	case plan.DeleteFormatPod:
		return r.delete(ctx, podOf(mq, a.Pod), a.UID)
	case plan.EvictPod:
		if err := r.evict(ctx, podOf(mq, a.Pod), a.UID); err != nil {
			return err
		}
		r.event(mq, podOf(mq, a.Pod), corev1.EventTypeNormal, eventMemberRestarting, actionRoll, "member %d is replaced: Pod %s was evicted", a.NodeID, a.Pod)
		return nil
	case plan.DeletePod:
		if err := r.delete(ctx, podOf(mq, a.Pod), a.UID); err != nil {
			return err
		}
		r.event(mq, podOf(mq, a.Pod), corev1.EventTypeNormal, eventMemberRestarting, actionRoll, "Pod %s of member %d was deleted", a.Pod, a.NodeID)
		return nil
	case plan.HandOff:
		return r.handOff(ctx, s, a)
	default:
		panic(fmt.Sprintf("unknown action %T", a))
	}
}

func identityOf(mq *v1alpha1.MetadataQuorum) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: mq.Namespace, Name: plan.IdentityName(mq.Name)}}
}

func claimOf(mq *v1alpha1.MetadataQuorum, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: mq.Namespace, Name: name}}
}

func podOf(mq *v1alpha1.MetadataQuorum, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: mq.Namespace, Name: name}}
}

// handOff asks the leader to hand over. The epoch fences it: a plan made on an
// older leadership is refused.
func (r *MetadataQuorumReconciler) handOff(ctx context.Context, s *scene, a plan.HandOff) error {
	leader, ok := s.member(a.Leader)
	if !ok {
		return &refusal{Reason: v1alpha1.ReasonHandingOff, Message: fmt.Sprintf("leader %d has no address", a.Leader)}
	}
	request := status.HandoffRequest{
		ExpectEpoch: a.Epoch, Target: &status.ReplicaKey{NodeID: a.Target, DirectoryID: a.TargetDir},
		MaxPause: status.Duration(a.MaxPause), CatchUpTimeout: status.Duration(a.CatchUpTimeout),
	}
	for _, id := range a.Candidates {
		if id != a.Target {
			request.Candidates = append(request.Candidates, status.ReplicaKey{NodeID: id})
		}
	}
	accepted, err := r.Admin.HandOff(ctx, leader, request)
	var problem *status.Problem
	switch {
	case errors.As(err, &problem):
		return &refusal{Reason: v1alpha1.ReasonHandingOff, Message: fmt.Sprintf("leader %d of epoch %d did not begin to hand over: %s", a.Leader, a.Epoch, problem.Message)}
	case err != nil:
		return fmt.Errorf("ask leader %d of epoch %d to hand over to %d: %w", a.Leader, a.Epoch, a.Target, err)
	}
	log.FromContext(ctx).Info("Asked to hand over", "leader", a.Leader, "epoch", a.Epoch, "target", a.Target, "id", accepted.ID)
	return nil
}

// create makes an absent object. One that is there already is fine if it is
// ours; anybody else's is left alone.
func (r *MetadataQuorumReconciler) create(ctx context.Context, mq *v1alpha1.MetadataQuorum, obj client.Object, opts ...client.CreateOption) error {
	err := r.Create(ctx, obj, append(opts, fieldOwner)...)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.alreadyThere(ctx, mq, obj)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &refusal{Reason: v1alpha1.ReasonDeleting, Message: "the namespace is being deleted"}
	case isPod(obj) && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)):
		return &refusal{Reason: v1alpha1.ReasonInvalidTemplate, Stalled: true, Message: fmt.Sprintf("the API server refuses Pod %s: %v", obj.GetName(), err)}
	default:
		return fmt.Errorf("create %s: %w", klog.KObj(obj), err)
	}
}

func isPod(obj client.Object) bool {
	_, ok := obj.(*corev1.Pod)
	return ok
}

// createPod makes a Pod from the stored bytes of a revision.
func (r *MetadataQuorumReconciler) createPod(ctx context.Context, s *scene, revision string, pod func(*resources.Stored) *corev1.Pod, opts ...client.CreateOption) error {
	rev := s.revision(revision)
	if rev == nil {
		return fmt.Errorf("ControllerRevision %s is gone", revision)
	}
	stored, err := resources.ReadRevision(rev)
	if err != nil {
		return err
	}
	return r.create(ctx, s.mq, pod(stored), opts...)
}

// alreadyThere says what an object that we were about to make means to us. It
// asks the API server: the cache has not seen the object, or holds no others.
func (r *MetadataQuorumReconciler) alreadyThere(ctx context.Context, mq *v1alpha1.MetadataQuorum, obj client.Object) error {
	live, err := r.metadata(ctx, obj)
	if err != nil {
		if apierrors.IsNotFound(err) { // it went meanwhile; the next pass makes it
			return &refusal{Reason: v1alpha1.ReasonOldOwner, Message: fmt.Sprintf("%s was there and has just gone", obj.GetName())}
		}
		return err
	}
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	switch ownership(mq, live) {
	case ours:
		return nil
	case oldOwners:
		return &refusal{Reason: v1alpha1.ReasonOldOwner, Message: fmt.Sprintf("%s %s: of a deleted MetadataQuorum of this name; waiting for the garbage collector", kind, live.Name)}
	default:
		return &refusal{Reason: v1alpha1.ReasonNameConflict, Stalled: true, Message: fmt.Sprintf("%s %s: there already, and not this quorum's; delete or rename it, or give the quorum another name", kind, live.Name)}
	}
}

// metadata reads an object's metadata uncached.
func (r *MetadataQuorumReconciler) metadata(ctx context.Context, obj client.Object) (*metav1.PartialObjectMetadata, error) {
	gvk, err := r.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(gvk)
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(obj), live); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", gvk.Kind, klog.KObj(obj), err)
	}
	return live, nil
}

// fieldOwner names the operator in managed fields.
const fieldOwner = client.FieldOwner("kraft-operator")

// apply brings a shared object of ours to what is rendered now. The UID is part
// of what is applied, so that an object that was replaced meanwhile is refused
// and one that is gone is not made.
func (r *MetadataQuorumReconciler) apply(ctx context.Context, obj client.Object, uid types.UID) error {
	config, err := applyConfiguration(obj, uid)
	if err != nil {
		return err
	}
	// Forced: these fields are rendered by us, and whoever changed one by hand
	// is told so by its being put back.
	if err := r.Apply(ctx, config, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s: %w", klog.KObj(obj), err)
	}
	return nil
}

// annotate sets one annotation, on the object with this UID and no other.
func (r *MetadataQuorumReconciler) annotate(ctx context.Context, obj client.Object, uid types.UID, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, uid, key, value)
	if err := r.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return fmt.Errorf("annotate %s with %s: %w", klog.KObj(obj), key, err)
	}
	return nil
}

// ownClaim adds or removes the owner reference of a claim and leaves those of
// others alone. Fenced by the resource version, since it writes the whole list.
func (r *MetadataQuorumReconciler) ownClaim(ctx context.Context, mq *v1alpha1.MetadataQuorum, a plan.OwnClaim) error {
	pvc := claimOf(mq, a.Name)
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(pvc), pvc); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pvc.UID != a.UID {
		return nil // another claim by now: the next pass sees it
	}
	before := pvc.DeepCopy()
	var owners []metav1.OwnerReference
	for _, o := range pvc.OwnerReferences {
		if o.UID != mq.UID {
			owners = append(owners, o)
		}
	}
	if a.Own {
		owners = append(owners, resources.ClaimOwner(mq))
	}
	pvc.OwnerReferences = owners
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, pvc, patch, fieldOwner); err != nil {
		return fmt.Errorf("set the owner of claim %s: %w", a.Name, err)
	}
	return nil
}

// delete removes the object with this UID, and no successor of its name.
func (r *MetadataQuorumReconciler) delete(ctx context.Context, obj client.Object, uid types.UID) error {
	err := r.Delete(ctx, obj, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", klog.KObj(obj), err)
	}
	return nil
}

// evict removes a Pod with the consent of the budgets, so that it can't race a
// node's drain or a second operator.
func (r *MetadataQuorumReconciler) evict(ctx context.Context, pod *corev1.Pod, uid types.UID) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}
	err := r.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case apierrors.IsTooManyRequests(err):
		return &refusal{Reason: v1alpha1.ReasonDisruptionBudget, Message: fmt.Sprintf("no PodDisruptionBudget has room for the eviction of Pod %s now", pod.Name)}
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("evict %s: %w", klog.KObj(pod), err)
	}
	return nil
}
