package controllers_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The image is a name: the pod runner runs this process's own code whatever
// it is, unless a spec has broken that image.
const (
	imageA = "quorum.test/quorum:a"
	imageB = "quorum.test/quorum:b"
)

// operator is one running manager, confined to a spec's namespace.
type operator struct {
	*controllers.MetadataQuorumReconciler
	*oracle
	stop func() // and wait; may be called twice
}

type operatorOption func(*operatorOptions)

type operatorOptions struct {
	image  string
	wrap   func(client.WithWatch) client.WithWatch // faults between operator and API server
	change func(*controllers.MetadataQuorumReconciler)
	oracle *oracle
}

func withImage(image string) operatorOption { return func(o *operatorOptions) { o.image = image } }

func withFaults(wrap func(client.WithWatch) client.WithWatch) operatorOption {
	return func(o *operatorOptions) { o.wrap = wrap }
}

func withChange(change func(*controllers.MetadataQuorumReconciler)) operatorOption {
	return func(o *operatorOptions) { o.change = change }
}

func withOracle(rules *oracle) operatorOption { return func(o *operatorOptions) { o.oracle = rules } }

// startOperator runs an operator until the spec ends or it is stopped. At the
// end of the spec no rule may have been broken.
func startOperator(ctx context.Context, ns string, opts ...operatorOption) *operator {
	GinkgoHelper()
	o := operatorOptions{image: imageA, oracle: newOracle(), wrap: func(w client.WithWatch) client.WithWatch { return w }}
	for _, opt := range opts {
		opt(&o)
	}
	mgr, err := ctrl.NewManager(operatorConfig, ctrl.Options{
		Scheme:     scheme,
		Cache:      controllers.CacheOptions(map[string]cache.Config{ns: {}}),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		NewClient: func(cfg *rest.Config, options client.Options) (client.Client, error) {
			inner, err := client.NewWithWatch(cfg, options)
			if err != nil {
				return nil, err
			}
			return o.wrap(o.oracle.wrap(inner)), nil
		},
	})
	Expect(err).NotTo(HaveOccurred())
	r := &controllers.MetadataQuorumReconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("kraft-operator"),
		Admin: controllers.NewAdmin(nil), DefaultImage: o.image,
		MaxPoll: 200 * time.Millisecond, // a test has less patience than an operator
	}
	if o.change != nil {
		o.change(r)
	}
	Expect(r.SetupWithManager(mgr)).To(Succeed())

	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(runCtx) }()
	stopped := false
	op := &operator{MetadataQuorumReconciler: r, oracle: o.oracle}
	op.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			Expect(<-done).To(Succeed())
		}
	}
	DeferCleanup(func() {
		op.stop()
		o.oracle.expectClean()
	})
	return op
}

// quorumBuilder describes a MetadataQuorum in a spec's words.
type quorumBuilder struct{ v1alpha1.MetadataQuorum }

// testQuorum has timeouts that make a test quick and a busy machine still fit.
func testQuorum(ns, name string) *quorumBuilder {
	b := &quorumBuilder{}
	b.Namespace, b.Name = ns, name
	ms := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Millisecond} }
	b.Spec.Raft = &v1alpha1.RaftSpec{
		ElectionTimeout: ms(800), FetchTimeout: ms(1500), ElectionBackoffMax: ms(300), RequestTimeout: ms(1500),
	}
	b.Spec.Rollout = &v1alpha1.RolloutSpec{MinReadySeconds: new(int32(0))}
	return b
}

func (b *quorumBuilder) voters(n int32) *quorumBuilder {
	b.Spec.Voters = &v1alpha1.VotersSpec{Replicas: new(n)}
	return b
}

func (b *quorumBuilder) observers(n int32) *quorumBuilder {
	b.Spec.Observers.Replicas = new(n)
	return b
}

func (b *quorumBuilder) image(name string) *quorumBuilder {
	b.Spec.Image = new(name)
	return b
}

// create makes it in the API and returns it.
func (b *quorumBuilder) create(ctx context.Context) *v1alpha1.MetadataQuorum {
	GinkgoHelper()
	mq := b.DeepCopy()
	Expect(c.Create(ctx, mq)).To(Succeed())
	return mq
}

// change edits the spec, as a user would.
func change(ctx context.Context, mq *v1alpha1.MetadataQuorum, edit func(*v1alpha1.MetadataQuorum)) {
	GinkgoHelper()
	before := refreshed(ctx, mq)
	after := before.DeepCopy()
	edit(after)
	Expect(c.Patch(ctx, after, client.MergeFrom(before))).To(Succeed())
}

func refreshed(ctx context.Context, mq *v1alpha1.MetadataQuorum) *v1alpha1.MetadataQuorum {
	GinkgoHelper()
	live := &v1alpha1.MetadataQuorum{}
	Expect(c.Get(ctx, client.ObjectKeyFromObject(mq), live)).To(Succeed())
	return live
}

// kstatus computes what GitOps tools show, by kstatus' rules for resources that
// it doesn't know: Current, InProgress, Failed or Terminating.
func kstatus(mq *v1alpha1.MetadataQuorum) string {
	is := func(t string) bool { return meta.IsStatusConditionTrue(mq.Status.Conditions, t) }
	ready := meta.FindStatusCondition(mq.Status.Conditions, "Ready")
	switch {
	case mq.DeletionTimestamp != nil:
		return "Terminating"
	case mq.Status.ObservedGeneration != mq.Generation, is("Reconciling"):
		return "InProgress"
	case is("Stalled"):
		return "Failed"
	case ready == nil, ready.Status != metav1.ConditionTrue:
		return "InProgress"
	}
	return "Current"
}

// expectCurrent waits until the spec is in effect and everything is well.
func expectCurrent(ctx context.Context, mq *v1alpha1.MetadataQuorum) *v1alpha1.MetadataQuorum {
	GinkgoHelper()
	var live *v1alpha1.MetadataQuorum
	Eventually(func(g Gomega) {
		live = refreshed(ctx, mq)
		g.Expect(kstatus(live)).To(Equal("Current"), func() string { return describe(ctx, live) })
	}).WithContext(ctx).WithTimeout(60 * time.Second).Should(Succeed())
	return live
}

// expectStalled waits until a person is asked, with this reason.
func expectStalled(ctx context.Context, mq *v1alpha1.MetadataQuorum, reason string) string {
	GinkgoHelper()
	var message string
	Eventually(func(g Gomega) {
		live := refreshed(ctx, mq)
		stalled := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionStalled)
		g.Expect(stalled).NotTo(BeNil(), func() string { return describe(ctx, live) })
		g.Expect(stalled.Reason).To(Equal(reason), stalled.Message)
		g.Expect(kstatus(live)).To(Equal("Failed"))
		message = stalled.Message
	}).WithContext(ctx).Should(Succeed())
	return message
}

// describe is what one wants to see of a spec that waits in vain.
func describe(ctx context.Context, mq *v1alpha1.MetadataQuorum) string {
	s := "\n"
	for _, cond := range mq.Status.Conditions {
		s += fmt.Sprintf("%s=%s %s: %s\n", cond.Type, cond.Status, cond.Reason, cond.Message)
	}
	for _, p := range podsOf(ctx, mq) {
		state := ""
		for _, cs := range p.Status.ContainerStatuses {
			state = fmt.Sprintf("restarts %d, %s", cs.RestartCount, cs.State.String())
		}
		s += fmt.Sprintf("Pod %s %s ready=%t deleted=%t ip=%s %s\n", p.Name, p.Status.Phase, podReady(&p), p.DeletionTimestamp != nil, p.Status.PodIP, state)
	}
	return s
}

func podsOf(ctx context.Context, mq *v1alpha1.MetadataQuorum) []corev1.Pod {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(mq.Namespace), client.MatchingLabels{v1alpha1.LabelQuorum: mq.Name}); err != nil {
		return nil
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods.Items
}

// membersOf are the member Pods by name.
func membersOf(ctx context.Context, mq *v1alpha1.MetadataQuorum) map[string]corev1.Pod {
	members := map[string]corev1.Pod{}
	for _, p := range podsOf(ctx, mq) {
		if p.Labels[v1alpha1.LabelFormat] == "" {
			members[p.Name] = p
		}
	}
	return members
}

func uidsOf(ctx context.Context, mq *v1alpha1.MetadataQuorum) map[string]types.UID {
	uids := map[string]types.UID{}
	for name, p := range membersOf(ctx, mq) {
		uids[name] = p.UID
	}
	return uids
}

func memberPod(mq *v1alpha1.MetadataQuorum, id int) client.ObjectKey {
	return client.ObjectKey{Namespace: mq.Namespace, Name: mq.Name + "-" + strconv.Itoa(id)}
}

// claimsOf are the claims by name.
func claimsOf(ctx context.Context, mq *v1alpha1.MetadataQuorum) map[string]corev1.PersistentVolumeClaim {
	GinkgoHelper()
	var list corev1.PersistentVolumeClaimList
	Expect(c.List(ctx, &list, client.InNamespace(mq.Namespace), client.MatchingLabels{v1alpha1.LabelQuorum: mq.Name})).To(Succeed())
	claims := map[string]corev1.PersistentVolumeClaim{}
	for _, p := range list.Items {
		claims[p.Name] = p
	}
	return claims
}

// expectSteadyState is A4: the resource versions of the MetadataQuorum and of
// all its objects stand still over 20 more passes.
func expectSteadyState(ctx context.Context, op *operator, mq *v1alpha1.MetadataQuorum) {
	GinkgoHelper()
	expectCurrent(ctx, mq)
	// The disruption controller and the last status write may still be at it. A pass may be a second away where cores are few,
	// so the first look takes stock, and the next, a second later, must find the same.
	before := map[string]string{}
	Eventually(func() map[string]string {
		was := before
		before = versions(ctx, mq.Namespace)
		return difference(was, before)
	}).WithContext(ctx).WithPolling(time.Second).Should(BeEmpty())

	writes := op.writeCount()
	for range 20 {
		_, err := op.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(mq)})
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(difference(before, versions(ctx, mq.Namespace))).To(BeEmpty(), "A4: something was written in steady state")
	Expect(op.writeCount()).To(Equal(writes), "A4: the operator wrote in steady state")
}

func difference(a, b map[string]string) map[string]string {
	d := map[string]string{}
	for k, v := range b {
		if a[k] != v {
			d[k] = a[k] + " → " + v
		}
	}
	for k := range maps.Keys(a) {
		if _, ok := b[k]; !ok {
			d[k] = "gone"
		}
	}
	return d
}

// versions are the resource versions of everything in the namespace that
// belongs to quorums. The status of a budget is the disruption controller's, so
// of a budget it's the generation.
func versions(ctx context.Context, ns string) map[string]string {
	GinkgoHelper()
	all := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1alpha1.MetadataQuorumList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ConfigMapList{},
		&corev1.ServiceList{}, &corev1.ServiceAccountList{}, &appsv1.ControllerRevisionList{}, &policyv1.PodDisruptionBudgetList{},
	} {
		Expect(c.List(ctx, list, client.InNamespace(ns))).To(Succeed())
		Expect(meta.EachListItem(list, func(o runtime.Object) error {
			obj := o.(client.Object)
			version := obj.GetResourceVersion()
			if _, ok := obj.(*policyv1.PodDisruptionBudget); ok {
				version = fmt.Sprint(obj.GetGeneration())
			}
			all[fmt.Sprintf("%T %s", obj, obj.GetName())] = version
			return nil
		})).To(Succeed())
	}
	return all
}
