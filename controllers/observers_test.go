package controllers_test

import (
	"context"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// scale does what kubectl scale does.
func scale(ctx context.Context, mq *v1alpha1.MetadataQuorum, replicas int32) {
	GinkgoHelper()
	s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	Expect(c.SubResource("scale").Update(ctx, refreshed(ctx, mq), client.WithSubResourceBody(s))).To(Succeed())
}

func observersReady(ctx context.Context, mq *v1alpha1.MetadataQuorum, want string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		live := refreshed(ctx, mq)
		g.Expect(live.Status.Summary).NotTo(BeNil())
		g.Expect(live.Status.Summary.Observers).To(Equal(want))
		g.Expect(kstatus(live)).To(Equal("Current"), func() string { return describe(ctx, live) })
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("Observers", func() {
	It("come and go through /scale, and nobody else is touched (RL-08)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		before := expectCurrent(ctx, mq)
		uids := uidsOf(ctx, mq)

		scale(ctx, mq, 3)
		observersReady(ctx, mq, "3/3")
		for name, uid := range uids {
			Expect(uidsOf(ctx, mq)).To(HaveKeyWithValue(name, uid))
		}
		with := uidsOf(ctx, mq)

		By("going down: the highest go, and their claims are parked")
		scale(ctx, mq, 1)
		observersReady(ctx, mq, "1/1")
		Eventually(func() any { return uidsOf(ctx, mq) }).WithContext(ctx).Should(HaveLen(4))
		Expect(uidsOf(ctx, mq)).To(HaveKeyWithValue("q-1000", with["q-1000"]))
		parked := map[string]bool{}
		for _, pvc := range claimsOf(ctx, mq) {
			if _, ok := pvc.Annotations[v1alpha1.AnnotationParked]; ok {
				parked[pvc.Name] = true
				Expect(pvc.Labels[v1alpha1.LabelNodeID]).To(BeElementOf("1001", "1002"))
			}
		}
		Expect(parked).To(HaveLen(2))

		By("going up again: parked claims and their ids are never used again")
		scale(ctx, mq, 2)
		observersReady(ctx, mq, "2/2")
		Expect(uidsOf(ctx, mq)).To(HaveKey("q-1003"))
		for _, pod := range membersOf(ctx, mq) {
			for _, v := range pod.Spec.Volumes {
				if v.PersistentVolumeClaim != nil {
					Expect(parked).NotTo(HaveKey(v.PersistentVolumeClaim.ClaimName))
				}
			}
		}
		after := expectCurrent(ctx, mq)
		Expect(after.Status.Leader.Epoch).To(Equal(before.Status.Leader.Epoch), "no election")
		for name, uid := range uids {
			Expect(uidsOf(ctx, mq)).To(HaveKeyWithValue(name, uid))
		}
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("take their claims along when whenScaled says Delete", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		b := testQuorum(ns, "q").voters(1).observers(1)
		b.Spec.Storage = &v1alpha1.StorageSpec{WhenScaled: new(v1alpha1.Delete)}
		mq := b.create(ctx)
		expectCurrent(ctx, mq)
		scale(ctx, mq, 0)
		Eventually(func() any { return claimsOf(ctx, mq) }).WithContext(ctx).Should(HaveLen(1))
	}, SpecTimeout(time.Minute))

	It("belong to whoever sets their number, and the operator owns no field of the spec (GO-02)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		manifest := func(withObservers bool) map[string]any {
			spec := map[string]any{
				"voters":  map[string]any{"replicas": int64(1)},
				"rollout": map[string]any{"minReadySeconds": int64(0)},
			}
			if withObservers {
				spec["observers"] = map[string]any{"replicas": int64(1)}
			}
			return spec
		}
		mq := &v1alpha1.MetadataQuorum{}
		mq.Namespace, mq.Name = ns, "q"
		Expect(serverSideApply(ctx, mq, "argocd", manifest(true))).To(Succeed())
		observersReady(ctx, mq, "1/1")

		By("an autoscaler taking over")
		scale(ctx, mq, 3)
		observersReady(ctx, mq, "3/3")
		err := serverSideApply(ctx, mq, "argocd", manifest(true))
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "a clean conflict: %v", err)
		Expect(err.Error()).To(ContainSubstring(".spec.observers.replicas"))

		By("Git giving the field up: the number stays")
		Expect(serverSideApply(ctx, mq, "argocd", manifest(false))).To(Succeed())
		Expect(*refreshed(ctx, mq).Spec.Observers.Replicas).To(BeEquivalentTo(3))

		By("what an autoscaler reads")
		s := &autoscalingv1.Scale{}
		Expect(c.SubResource("scale").Get(ctx, refreshed(ctx, mq), s)).To(Succeed())
		Expect(s.Status.Replicas).To(BeEquivalentTo(3))
		selector, err := labels.Parse(s.Status.Selector)
		Expect(err).NotTo(HaveOccurred())
		var pods corev1.PodList
		Expect(c.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: selector})).To(Succeed())
		Expect(pods.Items).To(HaveLen(3))

		for _, f := range refreshed(ctx, mq).ManagedFields {
			if f.Subresource == "status" {
				continue
			}
			Expect(f.Manager).NotTo(ContainSubstring("kraft-operator"))
		}
	}, SpecTimeout(time.Minute))

	It("never change what the budgets protect (RL-13)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		expectCurrent(ctx, mq)
		budget := func(name string) policyv1.PodDisruptionBudgetSpec {
			var pdb policyv1.PodDisruptionBudget
			Expect(c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &pdb)).To(Succeed())
			Expect(pdb.Spec.MaxUnavailable).To(BeNil())
			Expect(*pdb.Spec.UnhealthyPodEvictionPolicy).To(Equal(policyv1.AlwaysAllow))
			return pdb.Spec
		}
		for _, n := range []int32{1, 2, 0} {
			scale(ctx, mq, n)
			Eventually(func() int { return budget("q-observers").MinAvailable.IntValue() }).WithContext(ctx).Should(BeNumerically("==", max(0, n-1)))
			Expect(budget("q-voters").MinAvailable.IntValue()).To(Equal(2))
		}
	}, SpecTimeout(time.Minute))
})
