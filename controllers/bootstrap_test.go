package controllers_test

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A new quorum", func() {
	It("forms and then rests", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "orders").observers(1).create(ctx)

		live := expectCurrent(ctx, mq)
		Expect(live.Status.Summary.Voters).To(Equal("3/3"))
		Expect(live.Status.Summary.Observers).To(Equal("1/1"))
		Expect(live.Status.Summary.Updated).To(Equal("4/4"))
		Expect(live.Status.Image).To(Equal(imageA), "the operator's own, pinned")
		Expect(live.Status.Members).To(HaveLen(4))
		for _, t := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionBootstrapped, v1alpha1.ConditionQuorumAvailable, v1alpha1.ConditionSafeToRestart} {
			Expect(meta.IsStatusConditionTrue(live.Status.Conditions, t)).To(BeTrue(), t)
		}

		By("having formatted each voter's claim exactly once, with the planned directory ids")
		initial := 0
		for _, pvc := range claimsOf(ctx, mq) {
			if pvc.Annotations[v1alpha1.AnnotationDirectoryID] != "" {
				initial++
				Expect(pvc.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationFormatted, string(pvc.UID)))
			}
			Expect(pvc.OwnerReferences).To(BeEmpty(), "claims outlive the resource")
		}
		Expect(initial).To(Equal(3))
		for _, pod := range podsOf(ctx, mq) {
			Expect(pod.Labels).NotTo(HaveKey(v1alpha1.LabelFormat), "one-shot Pods are gone")
		}
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("can be a single voter", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "solo").voters(1).create(ctx)
		live := expectCurrent(ctx, mq)
		Expect(live.Status.Summary.Voters).To(Equal("1/1"))
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(time.Minute))

	It("publishes its peers' names before they are ready, and clients' only after (DN-01)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		mq := testQuorum(ns, "q").voters(1).create(ctx)
		expectCurrent(ctx, mq)
		var peers, bootstrap corev1.Service
		Expect(c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "q-peers"}, &peers)).To(Succeed())
		Expect(peers.Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
		Expect(peers.Spec.PublishNotReadyAddresses).To(BeTrue())
		Expect(c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "q-bootstrap"}, &bootstrap)).To(Succeed())
		Expect(bootstrap.Spec.PublishNotReadyAddresses).To(BeFalse())
	}, SpecTimeout(time.Minute))

	It("starts on empty volumes without forging an identity when a container restarts before it was formatted", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)

		By("wiping a voter's volume between its format and its first start")
		key := client.ObjectKey{}
		Eventually(func(g Gomega) {
			for _, pvc := range claimsOf(ctx, mq) {
				if pvc.Annotations[v1alpha1.AnnotationFormatted] != "" && pvc.Labels[v1alpha1.LabelNodeID] == "2" {
					key = client.ObjectKeyFromObject(&pvc)
				}
			}
			g.Expect(key.Name).NotTo(BeEmpty())
		}).WithContext(ctx).WithPolling(2 * time.Millisecond).Should(Succeed())
		planned := claimsOf(ctx, mq)[key.Name].Annotations[v1alpha1.AnnotationDirectoryID]
		Expect(runner.WipeClaim(ctx, key)).To(Succeed())
		runner.KillProcess(memberPod(mq, 2))

		By("finding that the member runs under another directory id, and has no vote")
		expectAmnesiac(ctx, mq, 2, planned)
	}, SpecTimeout(time.Minute))
})

// expectAmnesiac waits until a member is back on an empty disk: as an observer
// under a new directory id. It never votes under the old one.
func expectAmnesiac(ctx context.Context, mq *v1alpha1.MetadataQuorum, id int32, oldDirectory string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		q := lookAt(ctx, mq.Namespace, mq.Name)
		g.Expect(q.leader).NotTo(BeNil())
		var found bool
		for _, m := range q.members {
			if m.NodeID == id {
				found = true
				g.Expect(m.DirectoryID).NotTo(Equal(oldDirectory))
				g.Expect(m.IsVoter).To(BeFalse())
				g.Expect(m.Role).To(BeElementOf("Unattached", "Follower"))
			}
		}
		g.Expect(found).To(BeTrue(), "member %d does not answer", id)
		g.Expect(q.contributing).NotTo(ContainElement(id))
	}).WithContext(ctx).Should(Succeed())
	Consistently(func(g Gomega) {
		q := lookAt(ctx, mq.Namespace, mq.Name)
		for _, m := range q.members {
			if m.NodeID == id {
				g.Expect(m.DirectoryID).NotTo(Equal(oldDirectory))
				g.Expect(m.IsVoter).To(BeFalse())
			}
		}
	}).WithContext(ctx).WithTimeout(time.Second).Should(Succeed())
}

var _ = Describe("A voter whose disk was replaced", func() {
	It("comes back as an observer under a new directory id, and the quorum says so", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		live := expectCurrent(ctx, mq)
		victim := (live.Status.Leader.NodeID + 1) % 3
		old := ""
		for _, m := range live.Status.Members {
			if m.NodeID == victim {
				old = m.DirectoryID
				Expect(runner.WipeClaim(ctx, client.ObjectKey{Namespace: ns, Name: m.Claim})).To(Succeed())
			}
		}
		Expect(runner.KillProcess(memberPod(mq, int(victim)))).To(BeTrue())
		expectAmnesiac(ctx, mq, victim, old)
		Eventually(func(g Gomega) {
			ready := meta.FindStatusCondition(refreshed(ctx, mq).Status.Conditions, v1alpha1.ConditionReady)
			g.Expect(ready.Status).To(Equal(metav1.ConditionFalse))
			g.Expect(ready.Reason).To(Equal(v1alpha1.ReasonVoterReplaced))
			g.Expect(refreshed(ctx, mq).Status.Summary.Voters).To(Equal("2/3"))
		}).WithContext(ctx).Should(Succeed())
		appendOne(ctx, mq, "two of three commit")
		op.expectClean()
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A quorum that is deleted", func() {
	It("leaves its claims, and has its data back when it is applied again (OP-10)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		builder := testQuorum(ns, "q").observers(1)
		mq := builder.create(ctx)
		live := expectCurrent(ctx, mq)
		appendOne(ctx, mq, "before")
		clusterID, claims := live.Status.ClusterID, claimsOf(ctx, mq)

		By("deleting and applying it at once, with the garbage collector late")
		Expect(c.Delete(ctx, mq)).To(Succeed())
		again := builder.create(ctx)
		Eventually(func(g Gomega) {
			reconciling := meta.FindStatusCondition(refreshed(ctx, again).Status.Conditions, v1alpha1.ConditionReconciling)
			g.Expect(reconciling).NotTo(BeNil())
			g.Expect(reconciling.Reason).To(Equal(v1alpha1.ReasonOldOwner))
		}).WithContext(ctx).Should(Succeed())

		By("collecting the garbage")
		Expect(runner.CollectGarbage(ctx, ns)).To(Succeed())
		live = expectCurrent(ctx, again)
		Expect(live.Status.ClusterID).To(Equal(clusterID))
		Expect(keysOf(claimsOf(ctx, again))).To(ConsistOf(keysOf(claims)), "the same claims, and no others")
		appendOne(ctx, again, "after")
		Expect(readAll(ctx, again, "after")).To(Equal([]string{"before", "after"}))
		expectSteadyState(ctx, op, again)
	}, SpecTimeout(2*time.Minute))

	It("is adopted only under its own cluster id, and never bootstrapped over", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		builder := testQuorum(ns, "q").voters(1)
		mq := builder.create(ctx)
		live := expectCurrent(ctx, mq)
		appendOne(ctx, mq, "kept")
		clusterID := live.Status.ClusterID
		Expect(c.Delete(ctx, mq)).To(Succeed())
		Expect(runner.CollectGarbage(ctx, ns)).To(Succeed())

		By("asking for another cluster's data")
		builder.Spec.ClusterID = new("AAAAAAAAAAAAAAAAAAAAAQ")
		other := builder.create(ctx)
		Expect(expectStalled(ctx, other, v1alpha1.ReasonIdentityConflict)).To(ContainSubstring(clusterID))
		Expect(podsOf(ctx, other)).To(BeEmpty())
		Expect(c.Delete(ctx, other)).To(Succeed())

		By("asking for its own")
		builder.Spec.ClusterID = new(clusterID)
		own := builder.create(ctx)
		expectCurrent(ctx, own)
		Expect(readAll(ctx, own, "kept")).To(Equal([]string{"kept"}))
	}, SpecTimeout(time.Minute))

	It("is waited for, not made anew, when a cluster id is given and there are no claims", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		b := testQuorum(ns, "q")
		b.Spec.ClusterID = new("AAAAAAAAAAAAAAAAAAAAAQ")
		mq := b.create(ctx)
		expectStalled(ctx, mq, v1alpha1.ReasonClaimsMissing)
		Expect(claimsOf(ctx, mq)).To(BeEmpty())
		Expect(podsOf(ctx, mq)).To(BeEmpty())
	}, SpecTimeout(time.Minute))

	It("takes its claims along if it was asked to", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		b := testQuorum(ns, "q").voters(1)
		mq := b.create(ctx)
		expectCurrent(ctx, mq)
		change(ctx, mq, func(q *v1alpha1.MetadataQuorum) {
			q.Spec.Storage = &v1alpha1.StorageSpec{WhenDeleted: new(v1alpha1.Delete)}
		})
		Eventually(func(g Gomega) {
			for _, pvc := range claimsOf(ctx, mq) {
				g.Expect(metav1.IsControlledBy(&pvc, mq)).To(BeTrue())
			}
		}).WithContext(ctx).Should(Succeed())
		Expect(c.Delete(ctx, mq)).To(Succeed())
		Expect(runner.CollectGarbage(ctx, ns)).To(Succeed())
		Eventually(func() any { return claimsOf(ctx, mq) }).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A claim that was restored or cloned", func() {
	It("is no voter's disk until a person says so", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		b := testQuorum(ns, "q").voters(1)
		mq := b.create(ctx)
		expectCurrent(ctx, mq)
		var claim corev1.PersistentVolumeClaim
		for _, pvc := range claimsOf(ctx, mq) {
			claim = pvc
		}
		Expect(c.Delete(ctx, mq)).To(Succeed())
		Expect(runner.CollectGarbage(ctx, ns)).To(Succeed())
		Eventually(func() any { return podsOf(ctx, mq) }).WithContext(ctx).Should(BeEmpty())

		By("replacing the claim by one of the same name with the same annotations, as a restore does")
		Expect(c.Delete(ctx, &claim)).To(Succeed())
		Eventually(func() any { return claimsOf(ctx, mq) }).WithContext(ctx).Should(BeEmpty())
		clone := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: claim.Name, Labels: claim.Labels, Annotations: claim.Annotations},
			Spec:       claim.Spec,
		}
		clone.Spec.VolumeName = ""
		Expect(c.Create(ctx, clone)).To(Succeed())
		again := b.create(ctx)
		Expect(expectStalled(ctx, again, v1alpha1.ReasonIdentityConflict)).To(ContainSubstring(claim.Name))
		Expect(podsOf(ctx, again)).To(BeEmpty())
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A name", func() {
	It("is taken up to 40 characters, and all that is derived from it fits (CV-01)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		longest := "q" + strings.Repeat("x", 39)
		mq := testQuorum(ns, longest).voters(1).observers(1).create(ctx)
		live := expectCurrent(ctx, mq)
		Expect(live.Status.Summary.Observers).To(Equal("1/1"))
	}, SpecTimeout(time.Minute))
})

func keysOf[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
