package podrunner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/quorum/cli"
)

// Options configure a Runner. Only Config and Dir are required.
type Options struct {
	Config *rest.Config
	// Dir holds the claims' volumes and the pods' files.
	Dir string
	// StableAddresses gives a recreated pod the address it had before, as some
	// networks do; otherwise no address is ever used by a second pod.
	StableAddresses bool
	// Namespaces says in which namespaces this node runs Pods; nil: in all. Two
	// nodes at one API server must not share a namespace.
	Namespaces func(string) bool
	// Run is the program in the image; cli.Run when nil.
	Run func(context.Context, cli.Env) int
}

// Runner plays one node for all pods of the API server that carry the quorum
// label, and the cluster's controllers around them.
type Runner struct {
	options Options
	mgr     ctrl.Manager
	client  client.Client // cached reads
	reader  client.Reader // uncached reads
	network *network
	faults  faults

	ctx  context.Context // lives as long as Start and ends every pod with it
	wg   sync.WaitGroup
	mu   sync.Mutex
	pods map[types.UID]*pod
}

// New makes a Runner; nothing runs before Start.
func New(o Options) (*Runner, error) {
	if o.Run == nil {
		o.Run = cli.Run
	}
	if o.Namespaces == nil {
		o.Namespaces = func(string) bool { return true }
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(o.Config, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true), MaxConcurrentReconciles: 8},
	})
	if err != nil {
		return nil, err
	}
	r := &Runner{options: o, mgr: mgr, client: mgr.GetClient(), reader: mgr.GetAPIReader(), pods: map[types.UID]*pod{}}
	r.faults.badImages = map[string]bool{}
	r.faults.pods = map[podFault]bool{}
	if r.network, err = newNetwork(mgr.GetClient(), o.StableAddresses); err != nil {
		return nil, err
	}
	mine := predicate.NewPredicateFuncs(func(obj client.Object) bool { return o.Namespaces(obj.GetNamespace()) })
	return r, errors.Join(
		ctrl.NewControllerManagedBy(mgr).Named("kubelet").For(&corev1.Pod{}).WithEventFilter(mine).
			Complete(reconcile.Func(r.reconcilePod)),
		ctrl.NewControllerManagedBy(mgr).Named("volumes").For(&corev1.PersistentVolumeClaim{}).WithEventFilter(mine).
			Complete(reconcile.Func(r.reconcileClaim)),
		ctrl.NewControllerManagedBy(mgr).Named("disruption").For(&policyv1.PodDisruptionBudget{}).WithEventFilter(mine).
			Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.budgetsOf)).
			Complete(reconcile.Func(r.reconcileBudget)),
	)
}

// Start runs until ctx ends, then stops every pod's process and waits for it.
func (r *Runner) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	err := r.mgr.Start(ctx)
	cancel()
	r.mu.Lock()
	for _, p := range r.pods {
		p.kill()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return errors.Join(err, r.network.close())
}

// Dial connects as a client does that runs in the cluster but in none of the
// pods, such as a test's own producer: it resolves the names of pods and
// Services.
func (r *Runner) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return r.network.dial(r.network.gateway())(ctx, network, address)
}

func (r *Runner) budgetsOf(ctx context.Context, pod client.Object) []reconcile.Request {
	var list policyv1.PodDisruptionBudgetList
	if err := r.client.List(ctx, &list, client.InNamespace(pod.GetNamespace())); err != nil {
		return nil
	}
	var reqs []reconcile.Request
	for i := range list.Items {
		reqs = append(reqs, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return reqs
}

// reconcilePod binds new pods to the node, starts what is bound, stops what is
// being deleted, and kills what has vanished.
func (r *Runner) reconcilePod(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj corev1.Pod
	err := r.client.Get(ctx, req.NamespacedName, &obj)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	p := r.known(req.NamespacedName, obj.UID)
	if err != nil {
		return ctrl.Result{}, nil //nolint:nilerr // not found: its process has just been killed
	}
	switch {
	case obj.Labels[v1alpha1.LabelQuorum] == "": // not made by the operator, nothing is known of its program
	case obj.DeletionTimestamp != nil && (p == nil || p.stop(time.Duration(*obj.DeletionGracePeriodSeconds)*time.Second)):
		return ctrl.Result{}, r.remove(ctx, &obj)
	case obj.DeletionTimestamp != nil, p != nil, finished(&obj):
	case obj.Spec.NodeName == "":
		return ctrl.Result{}, r.bind(ctx, &obj)
	default:
		r.start(&obj) // the pod outlives this pass
	}
	return ctrl.Result{}, nil
}

// known returns the pod of this name and UID, nil if it was not started.
// Others of the name were removed without grace: their processes die with the
// objects. A pod stays known after its end, so that a late look at the object
// doesn't start it again.
func (r *Runner) known(name types.NamespacedName, uid types.UID) *pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, p := range r.pods {
		if p.key == name && other != uid {
			p.kill()
			delete(r.pods, other)
		}
	}
	return r.pods[uid]
}

// bind plays the scheduler. The pod must be bound, for the API server deletes
// unbound pods without any grace.
func (r *Runner) bind(ctx context.Context, obj *corev1.Pod) error {
	err := r.client.SubResource("binding").Create(ctx, obj, &corev1.Binding{
		Target: corev1.ObjectReference{Kind: "Node", Name: nodeName},
	})
	return client.IgnoreNotFound(client.IgnoreAlreadyExists(err))
}

const nodeName = "podrunner"

// remove takes the object out of the API once its process has ended.
func (r *Runner) remove(ctx context.Context, obj *corev1.Pod) error {
	err := r.client.Delete(ctx, obj, client.GracePeriodSeconds(0), client.Preconditions{UID: &obj.UID})
	if apierrors.IsConflict(err) { // a successor has the name
		return nil
	}
	return client.IgnoreNotFound(err)
}

func (r *Runner) start(obj *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithCancel(r.ctx)
	p := &pod{
		runner: r, key: client.ObjectKeyFromObject(obj), uid: obj.UID, obj: obj.DeepCopy(),
		cancel: cancel, killed: make(chan struct{}),
		dir: fmt.Sprintf("%s/pods/%s", r.options.Dir, obj.UID),
	}
	r.pods[obj.UID] = p
	r.wg.Go(func() {
		defer cancel()
		p.run(ctx)
		if p.end() && r.running() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
			defer cancel()
			if err := r.remove(ctx, obj); err != nil {
				r.mgr.GetLogger().Error(err, "Pod was not removed", "pod", p.key)
			}
		}
	})
}
