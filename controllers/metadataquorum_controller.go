package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/controllers/resources"
)

// MetadataQuorumReconciler makes the cluster what MetadataQuorum resources ask for.
type MetadataQuorumReconciler struct {
	client.Client               // cached reads, writes
	APIReader     client.Reader // reads that a stale copy would make dangerous
	Recorder      events.EventRecorder
	Admin         QuorumAdmin
	// DefaultImage is what members run whose resource names no image: pinned
	// when a quorum is created, followed with upgradePolicy Follow.
	DefaultImage string
	// Render makes what a new revision stores; resources.Render when nil.
	Render func(mq *v1alpha1.MetadataQuorum, clusterID, image string) (*resources.Stored, error)
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// MaxPoll bounds the time between two looks at a quorum, and the back-off
	// after failed passes; zero leaves the one to the planner and the other at
	// maxBackOff.
	MaxPoll time.Duration
}

// Least privilege: no Secrets, no nodes, no write to any spec of ours.
//
// +kubebuilder:rbac:groups=kraft-operator.io,resources=metadataquorums,verbs=get;list;watch
// +kubebuilder:rbac:groups=kraft-operator.io,resources=metadataquorums/status,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update,namespace=system
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch,namespace=system

// Reconcile makes one pass. All judgement is in package plan; the rest moves data.
func (r *MetadataQuorumReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	mq := &v1alpha1.MetadataQuorum{}
	if err := r.Get(ctx, req.NamespacedName, mq); err != nil {
		if apierrors.IsNotFound(err) {
			forgetMetrics(req.Namespace, req.Name)
			return ctrl.Result{}, nil // deletion needs no work of ours; a new resource of this name wakes us up
		}
		return ctrl.Result{}, fmt.Errorf("get MetadataQuorum: %w", err)
	}

	s, err := r.observe(ctx, mq)
	if err != nil {
		return retry(fmt.Errorf("observe: %w", err))
	}
	step := plan.Next(s.obs)
	actErr := r.act(ctx, s, step)
	again, err := r.report(ctx, s, step, actErr)
	if err := errors.Join(ignoreRefusal(actErr), err); err != nil {
		return retry(err)
	}
	return ctrl.Result{RequeueAfter: r.next(step.RequeueAfter, again)}, nil
}

// conflictDelay is when a pass is repeated whose write met a newer object.
const conflictDelay = 50 * time.Millisecond

// retry turns the error of a pass into what the queue should do. A conflict is
// no failure: somebody wrote first, and the next pass sees what.
func retry(err error) (ctrl.Result, error) {
	if onlyConflicts(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, err
}

// onlyConflicts looks through joined errors.
func onlyConflicts(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if !onlyConflicts(e) {
				return false
			}
		}
		return true
	}
	return apierrors.IsConflict(err)
}

// next is the earlier of the waits that are not zero.
func (r *MetadataQuorumReconciler) next(waits ...time.Duration) time.Duration {
	soonest := r.MaxPoll
	for _, w := range waits {
		if w > 0 && (soonest == 0 || w < soonest) {
			soonest = w
		}
	}
	return soonest
}

func (r *MetadataQuorumReconciler) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// passTimeout bounds one pass: an API server or member that hangs must not hold
// a worker for ever.
const passTimeout = time.Minute

// A failed pass is repeated after minBackOff, doubling up to maxBackOff: an API
// server that comes back after an hour should not be waited for much longer.
const (
	minBackOff = 10 * time.Millisecond
	maxBackOff = 30 * time.Second
)

// concurrency is how many quorums are worked on at once; one that answers
// slowly keeps only itself waiting.
const concurrency = 8

// SetupWithManager registers the controller.
func (r *MetadataQuorumReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("metadataquorum").
		// Status writes are our own and change no generation.
		For(&v1alpha1.MetadataQuorum{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.Pod{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&appsv1.ControllerRevision{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// Claims outlive the resource and so have no owner.
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(quorumOf)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			ReconciliationTimeout:   passTimeout,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				minBackOff, cmp.Or(r.MaxPoll, maxBackOff)),
		}).
		Complete(r)
}

// quorumOf names the MetadataQuorum that a labelled object belongs to.
func quorumOf(_ context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[v1alpha1.LabelQuorum]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}}}
}

// CacheOptions restrict the manager's cache to the objects of quorums, in the
// given namespaces (nil: all): the operator does not hold a copy of every Pod
// and ConfigMap of the cluster.
func CacheOptions(namespaces map[string]cache.Config) cache.Options {
	exists, err := labels.NewRequirement(v1alpha1.LabelQuorum, selection.Exists, nil)
	if err != nil {
		panic(err) // a constant
	}
	ours := cache.ByObject{Label: labels.NewSelector().Add(*exists)}
	return cache.Options{
		DefaultNamespaces: namespaces,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   ours,
			&corev1.PersistentVolumeClaim{}: ours,
			&corev1.ConfigMap{}:             ours,
			&corev1.Service{}:               ours,
			&corev1.ServiceAccount{}:        ours,
			&appsv1.ControllerRevision{}:    ours,
			&policyv1.PodDisruptionBudget{}: ours,
		},
	}
}
