package controllers_test

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// serverSideApply does what Argo CD or kubectl apply --server-side does.
func serverSideApply(ctx context.Context, mq *v1alpha1.MetadataQuorum, manager string, spec map[string]any) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MetadataQuorum"))
	u.SetNamespace(mq.Namespace)
	u.SetName(mq.Name)
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager))
}

var _ = Describe("An object that is in the way", func() {
	foreign := func(ns, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{"whose": "somebody else's"}}
	}
	restricted := corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
	DescribeTable("is left alone, and the quorum says so and goes on without it when it is gone (A5)",
		func(ctx SpecContext, foreigner func(ns string) client.Object) {
			ns := newNamespace(ctx)
			obj := foreigner(ns)
			Expect(c.Create(ctx, obj)).To(Succeed())
			version := obj.GetResourceVersion()
			op := startOperator(ctx, ns)
			mq := testQuorum(ns, "q").voters(1).create(ctx)
			Expect(expectStalled(ctx, mq, v1alpha1.ReasonNameConflict)).To(ContainSubstring(obj.GetName()))
			Expect(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
			Expect(obj.GetResourceVersion()).To(Equal(version), "it was touched")

			Expect(c.Delete(ctx, obj)).To(Succeed())
			expectCurrent(ctx, mq)
			expectSteadyState(ctx, op, mq)
		},
		Entry("the identity record", func(ns string) client.Object {
			return &corev1.ConfigMap{ObjectMeta: foreign(ns, "q-identity")}
		}, SpecTimeout(time.Minute)),
		Entry("a Service", func(ns string) client.Object {
			return &corev1.Service{ObjectMeta: foreign(ns, "q-peers"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
		}, SpecTimeout(time.Minute)),
		Entry("a ServiceAccount", func(ns string) client.Object {
			return &corev1.ServiceAccount{ObjectMeta: foreign(ns, "q-member")}
		}, SpecTimeout(time.Minute)),
		Entry("a Pod", func(ns string) client.Object {
			return &corev1.Pod{ObjectMeta: foreign(ns, "q-0"), Spec: restricted}
		}, SpecTimeout(time.Minute)),
	)
})

var _ = Describe("A paused quorum", func() {
	It("gets no write but its status, and acts once when it is resumed (OP-14)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").observers(1).create(ctx)
		expectSteadyState(ctx, op, mq)
		change(ctx, mq, func(q *v1alpha1.MetadataQuorum) { q.Spec.Paused = new(true) })
		expectPaused(ctx, mq)

		By("deleting a Pod, scaling, and asking for an upgrade")
		before := versionsWithout(ctx, mq, "q-1000")
		Expect(c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "q-1000"}})).To(Succeed())
		scale(ctx, mq, 2)
		change(ctx, mq, setImage(imageB))
		Eventually(func() any { return membersOf(ctx, mq) }).WithContext(ctx).Should(HaveLen(3))
		expectPaused(ctx, mq)
		Consistently(func() any {
			return difference(before, versionsWithout(ctx, mq, "q-1000"))
		}).WithContext(ctx).WithTimeout(time.Second).Should(BeEmpty())

		change(ctx, mq, func(q *v1alpha1.MetadataQuorum) { q.Spec.Paused = nil })
		expectRolled(ctx, mq, imageB)
		observersReady(ctx, mq, "2/2")
		Expect(meta.FindStatusCondition(refreshed(ctx, mq).Status.Conditions, v1alpha1.ConditionPaused)).To(BeNil())
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))
})

func expectPaused(ctx context.Context, mq *v1alpha1.MetadataQuorum) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		live := refreshed(ctx, mq)
		g.Expect(live.Status.ObservedGeneration).To(Equal(live.Generation))
		g.Expect(meta.IsStatusConditionTrue(live.Status.Conditions, v1alpha1.ConditionPaused)).To(BeTrue())
		for _, t := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling} {
			cond := meta.FindStatusCondition(live.Status.Conditions, t)
			g.Expect(cond).NotTo(BeNil(), t)
			g.Expect(cond.Reason).To(Equal(v1alpha1.ReasonPaused), t)
		}
	}).WithContext(ctx).Should(Succeed())
}

// versionsWithout are the resource versions of what a paused operator must not
// write: all but the resource itself and one Pod.
func versionsWithout(ctx context.Context, mq *v1alpha1.MetadataQuorum, pod string) map[string]string {
	GinkgoHelper()
	all := versions(ctx, mq.Namespace)
	for key := range all {
		switch key {
		case "*v1alpha1.MetadataQuorum " + mq.Name, "*v1.Pod " + pod:
			delete(all, key)
		}
	}
	return all
}
