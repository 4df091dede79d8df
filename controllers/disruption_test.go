package controllers_test

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// evict does what kubectl drain does to one Pod.
func evict(ctx context.Context, key client.ObjectKey) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{})
}

func expectReplaced(ctx context.Context, mq *v1alpha1.MetadataQuorum, key client.ObjectKey, old corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pod := membersOf(ctx, mq)[key.Name]
		g.Expect(pod.UID).NotTo(BeEmpty())
		g.Expect(pod.UID).NotTo(Equal(old.UID))
		g.Expect(podReady(&pod)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A quorum in trouble", func() {
	It("loses one voter to two drains at once, and the other eviction is refused (RL-13)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		expectCurrent(ctx, mq)
		writes := startAppender(ctx, mq)
		old := membersOf(ctx, mq)
		budgetReady(ctx, mq)

		Expect(evict(ctx, memberPod(mq, 0))).To(Succeed())
		err := evict(ctx, memberPod(mq, 1))
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "the second eviction: %v", err)
		expectReplaced(ctx, mq, memberPod(mq, 0), old["q-0"])
		Expect(uidsOf(ctx, mq)).To(HaveKeyWithValue("q-1", old["q-1"].UID))
		expectCurrent(ctx, mq)
		writes.expectAllKept(ctx, mq)
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("hands over by itself when the leader's Pod is deleted by hand", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").observers(1).create(ctx)
		before := expectCurrent(ctx, mq)
		writes := startAppender(ctx, mq)
		key := memberPod(mq, int(before.Status.Leader.NodeID))
		old := membersOf(ctx, mq)[key.Name]

		Expect(c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: key.Name}})).To(Succeed())
		expectReplaced(ctx, mq, key, old)
		after := expectCurrent(ctx, mq)
		Expect(after.Status.Leader.Epoch).To(Equal(before.Status.Leader.Epoch + 1))
		Expect(after.Status.Leader.NodeID).NotTo(Equal(before.Status.Leader.NodeID))
		writes.expectAllKept(ctx, mq)
		AddReportEntry("longest gap between two acknowledged appends", writes.longestGap())
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("fails over when the leader's process is killed, and nothing is lost", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		before := expectCurrent(ctx, mq)
		writes := startAppender(ctx, mq)
		uids := uidsOf(ctx, mq)
		Expect(runner.KillProcess(memberPod(mq, int(before.Status.Leader.NodeID)))).To(BeTrue())
		Eventually(func(g Gomega) {
			live := refreshed(ctx, mq)
			g.Expect(live.Status.Leader).NotTo(BeNil())
			g.Expect(live.Status.Leader.Epoch).To(BeNumerically(">", before.Status.Leader.Epoch))
		}).WithContext(ctx).Should(Succeed())
		expectCurrent(ctx, mq)
		Expect(uidsOf(ctx, mq)).To(Equal(uids), "the container restarts in its Pod")
		writes.expectAllKept(ctx, mq)
		AddReportEntry("longest gap between two acknowledged appends", writes.longestGap())
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("comes back as a whole when all its Pods vanish at once (RL-10)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").observers(1).create(ctx)
		before := expectCurrent(ctx, mq)
		appendOne(ctx, mq, "kept")
		for round := range 3 {
			for name := range membersOf(ctx, mq) {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
				Expect(client.IgnoreNotFound(c.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
			}
			Eventually(func(g Gomega) {
				g.Expect(membersOf(ctx, mq)).To(HaveLen(4))
				for _, p := range membersOf(ctx, mq) {
					g.Expect(podReady(&p)).To(BeTrue())
				}
			}).WithContext(ctx).Should(Succeed())
			live := expectCurrent(ctx, mq)
			Expect(live.Status.Leader.Epoch).To(BeNumerically("<=", before.Status.Leader.Epoch+int32(5*(round+1))))
		}
		Expect(readAll(ctx, mq, "kept")).To(Equal([]string{"kept"}))
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("is not declared dead while its Pods are merely not ready (RL-10)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		expectCurrent(ctx, mq)
		uids := uidsOf(ctx, mq)
		for id := range 3 {
			runner.HoldUnready(memberPod(mq, id), true)
			DeferCleanup(func() { runner.HoldUnready(memberPod(mq, id), false) })
		}
		Eventually(func() string { return kstatus(refreshed(ctx, mq)) }).WithContext(ctx).ShouldNot(Equal("Current"))
		Consistently(func() any { return uidsOf(ctx, mq) }).WithContext(ctx).WithTimeout(2 * time.Second).Should(Equal(uids))
		for id := range 3 {
			runner.HoldUnready(memberPod(mq, id), false)
		}
		expectCurrent(ctx, mq)
	}, SpecTimeout(2*time.Minute))

	It("removes nothing that could come back while its majority is down, and says so (RL-10)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		expectCurrent(ctx, mq)
		appendOne(ctx, mq, "kept")
		uids := uidsOf(ctx, mq)
		holdDown(mq, 0, 1)
		Eventually(func(g Gomega) {
			available := meta.FindStatusCondition(refreshed(ctx, mq).Status.Conditions, v1alpha1.ConditionQuorumAvailable)
			g.Expect(available.Status).To(Equal(metav1.ConditionFalse))
			g.Expect(available.Reason).To(Equal(v1alpha1.ReasonNoMajorityReady))
		}).WithContext(ctx).Should(Succeed())
		Consistently(func() any { return uidsOf(ctx, mq) }).WithContext(ctx).WithTimeout(2 * time.Second).Should(Equal(uids))
		letGo(mq, 0, 1)
		expectCurrent(ctx, mq)
		Expect(readAll(ctx, mq, "kept")).To(Equal([]string{"kept"}))
		Eventually(func() []string { return eventsOf(ctx, mq, "QuorumLost") }).WithContext(ctx).ShouldNot(BeEmpty())
		Eventually(func() []string { return eventsOf(ctx, mq, "QuorumRestored") }).WithContext(ctx).ShouldNot(BeEmpty())
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("says that its disks are full, and goes on when a majority has room (ST-02)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		expectCurrent(ctx, mq)
		appendOne(ctx, mq, "kept")
		uids := uidsOf(ctx, mq)
		fill := func(full bool, ids ...int) {
			for _, id := range ids {
				runner.FillDisk(memberPod(mq, id), full)
			}
		}
		DeferCleanup(func() { fill(false, 0, 1, 2) })
		fill(true, 0, 1, 2)
		expectUnavailable(ctx, mq, v1alpha1.ReasonDiskFull)
		Eventually(func(g Gomega) {
			for _, m := range refreshed(ctx, mq).Status.Members {
				g.Expect(m.Message).To(ContainSubstring("less free space than its reserve"), "member %d", m.NodeID)
			}
		}).WithContext(ctx).Should(Succeed())

		By("restarting all, which helps nobody")
		for id := range 3 {
			runner.KillProcess(memberPod(mq, id))
		}
		Consistently(func() any { return uidsOf(ctx, mq) }).WithContext(ctx).WithTimeout(2 * time.Second).Should(Equal(uids))
		expectUnavailable(ctx, mq, v1alpha1.ReasonDiskFull)

		By("giving room to one, then to a second")
		fill(false, 1)
		Consistently(func() bool {
			return meta.IsStatusConditionTrue(refreshed(ctx, mq).Status.Conditions, v1alpha1.ConditionQuorumAvailable)
		}).WithContext(ctx).WithTimeout(2 * time.Second).Should(BeFalse())
		fill(false, 2)
		Eventually(func(g Gomega) {
			live := refreshed(ctx, mq)
			g.Expect(meta.IsStatusConditionTrue(live.Status.Conditions, v1alpha1.ConditionQuorumAvailable)).To(BeTrue(), func() string { return describe(ctx, live) })
			g.Expect(live.Status.Members[0].Message).To(ContainSubstring("less free space than its reserve"))
		}).WithContext(ctx).Should(Succeed())
		appendOne(ctx, mq, "two of three have room")
		fill(false, 0)
		expectSteadyState(ctx, op, mq)
		Expect(uidsOf(ctx, mq)).To(Equal(uids))
	}, SpecTimeout(2*time.Minute))

	It("says that a majority of its disks is lost, and leaves the survivor alone (ST-23)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		live := expectCurrent(ctx, mq)
		appendOne(ctx, mq, "kept by the survivor")
		survivor := uidsOf(ctx, mq)["q-2"]
		for _, m := range live.Status.Members[:2] {
			Expect(c.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: m.Claim}})).To(Succeed())
			Expect(c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: m.Pod}})).To(Succeed())
		}
		expectUnavailable(ctx, mq, v1alpha1.ReasonMajorityLost)
		expectStalled(ctx, mq, v1alpha1.ReasonMajorityLost)
		Eventually(func() []string { return eventsOf(ctx, mq, v1alpha1.ReasonMajorityLost) }).WithContext(ctx).ShouldNot(BeEmpty())

		By("the last voter that was elected with the vote of one that went noticing that nobody is left")
		Eventually(func() any { return lookAt(ctx, ns, "q").leader }).WithContext(ctx).Should(BeNil())
		lost := keysOf(claimsOf(ctx, mq))
		Consistently(func(g Gomega) {
			g.Expect(keysOf(claimsOf(ctx, mq))).To(ConsistOf(lost), "no lost disk is replaced")
			g.Expect(lookAt(ctx, ns, "q").leader).To(BeNil(), "the empty ones are no quorum")
		}).WithContext(ctx).WithTimeout(3 * time.Second).Should(Succeed())
		Expect(uidsOf(ctx, mq)).To(HaveKeyWithValue("q-2", survivor))
		Expect(claimsOf(ctx, mq)).To(HaveKey(live.Status.Members[2].Claim))
		op.expectClean()
	}, SpecTimeout(2*time.Minute))

	It("replaces Pods that failed for good", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		expectCurrent(ctx, mq)
		key := memberPod(mq, 1)
		old := membersOf(ctx, mq)[key.Name]
		By("the kubelet evicting a Pod for want of memory")
		runner.KillProcess(key)
		failed := old.DeepCopy()
		failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "Evicted"
		failed.Status.Conditions = nil
		Expect(c.Status().Patch(ctx, failed, client.MergeFrom(&old))).To(Succeed())
		expectReplaced(ctx, mq, key, old)
		expectCurrent(ctx, mq)
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("waits with a roll while a voter is down, and says why (MB-04)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		expectCurrent(ctx, mq)
		uids := uidsOf(ctx, mq)
		holdDown(mq, 2)
		Eventually(func(g Gomega) {
			safe := meta.FindStatusCondition(refreshed(ctx, mq).Status.Conditions, v1alpha1.ConditionSafeToRestart)
			g.Expect(safe.Status).To(Equal(metav1.ConditionFalse), safe.Message)
		}).WithContext(ctx).Should(Succeed())
		change(ctx, mq, setImage(imageB))

		By("replacing the broken one first, and then nobody")
		Eventually(func() any { return uidsOf(ctx, mq)["q-2"] }).WithContext(ctx).ShouldNot(Equal(uids["q-2"]))
		Consistently(func(g Gomega) {
			g.Expect(uidsOf(ctx, mq)).To(HaveKeyWithValue("q-0", uids["q-0"]))
			g.Expect(uidsOf(ctx, mq)).To(HaveKeyWithValue("q-1", uids["q-1"]))
		}).WithContext(ctx).WithTimeout(2 * time.Second).Should(Succeed())
		letGo(mq, 2)
		expectRolled(ctx, mq, imageB)
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))
})

// expectUnavailable waits until no majority can append, for this reason.
func expectUnavailable(ctx context.Context, mq *v1alpha1.MetadataQuorum, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		live := refreshed(ctx, mq)
		available := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionQuorumAvailable)
		g.Expect(available.Status).To(Equal(metav1.ConditionFalse), func() string { return describe(ctx, live) })
		g.Expect(available.Reason).To(Equal(reason), func() string { return describe(ctx, live) })
	}).WithContext(ctx).Should(Succeed())
}

// holdDown kills members and keeps them from being started again.
func holdDown(mq *v1alpha1.MetadataQuorum, ids ...int) {
	for _, id := range ids {
		runner.HoldDown(memberPod(mq, id), true)
		runner.KillProcess(memberPod(mq, id))
	}
	DeferCleanup(func() { letGo(mq, ids...) })
}

func letGo(mq *v1alpha1.MetadataQuorum, ids ...int) {
	for _, id := range ids {
		runner.HoldDown(memberPod(mq, id), false)
	}
}

// budgetReady waits until the disruption controller has counted the Pods.
func budgetReady(ctx context.Context, mq *v1alpha1.MetadataQuorum) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var pdb policyv1.PodDisruptionBudget
		g.Expect(c.Get(ctx, client.ObjectKey{Namespace: mq.Namespace, Name: mq.Name + "-voters"}, &pdb)).To(Succeed())
		g.Expect(pdb.Status.DisruptionsAllowed).To(BeEquivalentTo(1))
	}).WithContext(ctx).Should(Succeed())
}
