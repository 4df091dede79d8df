package controllers_test

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers"
	"github.com/kraft-operator/kraft-operator/controllers/resources"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// setImage is the user's upgrade.
func setImage(image string) func(*v1alpha1.MetadataQuorum) {
	return func(mq *v1alpha1.MetadataQuorum) { mq.Spec.Image = new(image) }
}

// expectRolled waits until every member runs the wanted revision and all is well.
func expectRolled(ctx context.Context, mq *v1alpha1.MetadataQuorum, image string) *v1alpha1.MetadataQuorum {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		live := refreshed(ctx, mq)
		g.Expect(kstatus(live)).To(Equal("Current"), func() string { return describe(ctx, live) })
		for _, pod := range membersOf(ctx, mq) {
			g.Expect(pod.Spec.Containers[0].Image).To(Equal(image))
		}
	}).WithContext(ctx).WithTimeout(90 * time.Second).Should(Succeed())
	return refreshed(ctx, mq)
}

// expectOneElection: the roll cost exactly one, and it was the handoff.
func expectOneElection(before, after *v1alpha1.MetadataQuorum) {
	GinkgoHelper()
	Expect(after.Status.Leader.Epoch).To(Equal(before.Status.Leader.Epoch+1), "elections in this roll")
	Expect(after.Status.Leader.NodeID).NotTo(Equal(before.Status.Leader.NodeID))
	handoff := after.Status.Rollout.LastHandoff
	Expect(handoff).NotTo(BeNil())
	Expect(handoff.Outcome).To(Equal(v1alpha1.HandoffSucceeded))
	Expect(handoff.From).To(Equal(before.Status.Leader.NodeID))
	Expect(handoff.To).To(Equal(after.Status.Leader.NodeID))
	Expect(handoff.FromEpoch).To(Equal(before.Status.Leader.Epoch))
	Expect(handoff.ToEpoch).To(Equal(after.Status.Leader.Epoch))
	Expect(handoff.WriteGap).NotTo(BeNil())
	AddReportEntry("write gap of the handoff", handoff.WriteGap.Duration)
}

// watchSpecs holds that no Pod's spec changes, from its creation to its end.
func watchSpecs(ctx context.Context, ns string) (expectUntouched func()) {
	GinkgoHelper()
	w, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(ns))
	Expect(err).NotTo(HaveOccurred())
	changed := make(chan string, 16)
	go func() {
		seen := map[string]corev1.PodSpec{}
		for e := range w.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			spec := *pod.Spec.DeepCopy()
			spec.NodeName = "" // the scheduler's
			if old, ok := seen[string(pod.UID)]; ok && !equality.Semantic.DeepEqual(old, spec) {
				changed <- pod.Name
			}
			seen[string(pod.UID)] = spec
		}
		close(changed)
	}()
	return func() {
		GinkgoHelper()
		w.Stop()
		for name := range changed {
			Fail("the spec of living Pod " + name + " was changed")
		}
	}
}

func eventsOf(ctx context.Context, mq *v1alpha1.MetadataQuorum, reason string) []string {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(c.List(ctx, &list, client.InNamespace(mq.Namespace))).To(Succeed())
	var notes []string
	for _, e := range list.Items {
		if e.Reason == reason && e.Regarding.UID == mq.UID {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

var _ = Describe("A rolling upgrade", func() {
	It("replaces every member with one handoff and one election, and no write is lost", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").observers(2).create(ctx)
		before := expectCurrent(ctx, mq)
		uids := uidsOf(ctx, mq)
		expectUntouched := watchSpecs(ctx, ns)
		writes := startAppender(ctx, mq)

		change(ctx, mq, setImage(imageB))
		after := expectRolled(ctx, mq, imageB)
		expectOneElection(before, after)
		Expect(after.Status.Summary.Updated).To(Equal("5/5"))
		for name, uid := range uidsOf(ctx, mq) {
			Expect(uid).NotTo(Equal(uids[name]), "%s was replaced", name)
		}
		expectUntouched()
		writes.expectAllKept(ctx, mq)
		AddReportEntry("longest gap between two acknowledged appends", writes.longestGap())

		By("telling what happened in words")
		Eventually(func() []string { return eventsOf(ctx, mq, "LeadershipTransferred") }).WithContext(ctx).
			Should(ConsistOf(MatchRegexp(`^leadership moved from \d to \d \(epoch \d+→\d+\), write gap .+s$`)))
		Expect(eventsOf(ctx, mq, "RolloutStarted")).To(HaveLen(1))
		Eventually(func() []string { return eventsOf(ctx, mq, "RolloutCompleted") }).WithContext(ctx).Should(HaveLen(1))
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(3*time.Minute))

	It("rolls five voters with one election, too", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").voters(5).create(ctx)
		before := expectCurrent(ctx, mq)
		change(ctx, mq, setImage(imageB))
		after := expectRolled(ctx, mq, imageB)
		expectOneElection(before, after)
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("takes a newer image at once, and goes back without rendering anew", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").image(imageA).create(ctx)
		before := expectCurrent(ctx, mq)
		change(ctx, mq, setImage(imageB))
		Eventually(func() int { return len(updated(ctx, mq, imageB)) }).WithContext(ctx).
			WithTimeout(60 * time.Second).WithPolling(5 * time.Millisecond).Should(BeNumerically(">=", 1))
		change(ctx, mq, setImage(imageA))
		after := expectRolled(ctx, mq, imageA)
		Expect(after.Status.Revision).To(Equal(before.Status.Revision))
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("restarts every member once when restartedAt asks for it", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").observers(1).create(ctx)
		before := expectCurrent(ctx, mq)
		uids := uidsOf(ctx, mq)

		By("waiting for a time that lies in the future")
		change(ctx, mq, func(q *v1alpha1.MetadataQuorum) {
			q.Spec.Rollout.RestartedAt = new(metav1.NewTime(time.Now().Add(time.Hour)))
		})
		Eventually(func() int64 { return refreshed(ctx, mq).Status.ObservedGeneration }).WithContext(ctx).Should(BeNumerically("==", 2))
		Consistently(func() any { return uidsOf(ctx, mq) }).WithContext(ctx).WithTimeout(time.Second).Should(Equal(uids))

		change(ctx, mq, func(q *v1alpha1.MetadataQuorum) {
			q.Spec.Rollout.RestartedAt = new(metav1.NewTime(time.Now().Add(time.Second)))
		})
		Eventually(func(g Gomega) {
			for name, uid := range uidsOf(ctx, mq) {
				g.Expect(uid).NotTo(Equal(uids[name]))
			}
			g.Expect(uidsOf(ctx, mq)).To(HaveLen(4))
		}).WithContext(ctx).WithTimeout(90 * time.Second).Should(Succeed())
		after := expectCurrent(ctx, mq)
		expectOneElection(before, after)
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(3*time.Minute))

	It("rolls a quorum of one, which is down meanwhile", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").voters(1).create(ctx)
		expectCurrent(ctx, mq)
		appendOne(ctx, mq, "kept")
		change(ctx, mq, setImage(imageB))
		expectRolled(ctx, mq, imageB)
		Expect(readAll(ctx, mq, "kept")).To(Equal([]string{"kept"}))
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("is finished by another operator after the first was killed in the middle, even without status (RL-02)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		rules := newOracle()
		first := startOperator(ctx, ns, withOracle(rules))
		mq := testQuorum(ns, "q").create(ctx)
		before := expectCurrent(ctx, mq)
		change(ctx, mq, setImage(imageB))
		Eventually(func() int { return len(updated(ctx, mq, imageB)) }).WithContext(ctx).
			WithTimeout(60 * time.Second).WithPolling(5 * time.Millisecond).Should(BeNumerically(">=", 1))
		first.stop()
		done := updated(ctx, mq, imageB)

		By("deleting the status as a whole")
		live := refreshed(ctx, mq)
		live.Status = v1alpha1.MetadataQuorumStatus{}
		Expect(c.Status().Update(ctx, live)).To(Succeed())

		second := startOperator(ctx, ns, withOracle(rules))
		after := expectRolled(ctx, mq, imageB)
		expectOneElection(before, after)
		for name, uid := range done {
			Expect(uidsOf(ctx, mq)).To(HaveKeyWithValue(name, uid), "what was new already is not touched again")
		}
		expectSteadyState(ctx, second, mq)
	}, SpecTimeout(3*time.Minute))

	It("is the same with two operators at once", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		rules := newOracle()
		first := startOperator(ctx, ns, withOracle(rules))
		startOperator(ctx, ns, withOracle(rules))
		mq := testQuorum(ns, "q").observers(1).create(ctx)
		before := expectCurrent(ctx, mq)
		change(ctx, mq, setImage(imageB))
		after := expectRolled(ctx, mq, imageB)
		expectOneElection(before, after)
		rules.expectClean()
		expectSteadyState(ctx, first, mq)
	}, SpecTimeout(3*time.Minute))

	It("is not begun by a new operator with another image and another rendering (UP-08)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		old := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").observers(1).create(ctx)
		expectCurrent(ctx, mq)
		old.stop()
		uids := uidsOf(ctx, mq)

		newer := startOperator(ctx, ns, withImage(imageB), withChange(func(r *controllers.MetadataQuorumReconciler) {
			r.Render = func(mq *v1alpha1.MetadataQuorum, clusterID, image string) (*resources.Stored, error) {
				s, err := resources.Render(mq, clusterID, image)
				if err == nil {
					s.Properties += "retry.of.a.newer.server=1\n"
					s.Voter.Annotations["rendered-by"] = "a newer operator"
				}
				return s, err
			}
		}))
		expectSteadyState(ctx, newer, mq)
		Expect(uidsOf(ctx, mq)).To(Equal(uids))
		Expect(refreshed(ctx, mq).Status.Image).To(Equal(imageA))

		By("making a lost member from the stored bytes")
		Expect(c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "q-1000"}})).To(Succeed())
		Eventually(func(g Gomega) {
			pod := membersOf(ctx, mq)["q-1000"]
			g.Expect(pod.UID).NotTo(BeEmpty())
			g.Expect(pod.UID).NotTo(Equal(uids["q-1000"]))
			g.Expect(pod.Spec.Containers[0].Image).To(Equal(imageA))
		}).WithContext(ctx).Should(Succeed())
		expectCurrent(ctx, mq)
	}, SpecTimeout(2*time.Minute))

	It("follows the operator's image if the user wants it to", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		old := startOperator(ctx, ns)
		b := testQuorum(ns, "q").voters(1)
		b.Spec.UpgradePolicy = new(v1alpha1.UpgradeFollow)
		mq := b.create(ctx)
		expectCurrent(ctx, mq)
		old.stop()
		startOperator(ctx, ns, withImage(imageB))
		expectRolled(ctx, mq, imageB)
	}, SpecTimeout(2*time.Minute))

	It("stops at the first member that cannot start, says why, and goes on with a corrected spec (RL-01)", func(ctx SpecContext) {
		const broken = "quorum.test/quorum:doesnotexist"
		runner.BreakImage(broken, true)
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		before := expectCurrent(ctx, mq)
		change(ctx, mq, setImage(broken))

		Eventually(func(g Gomega) {
			reconciling := meta.FindStatusCondition(refreshed(ctx, mq).Status.Conditions, v1alpha1.ConditionReady)
			g.Expect(reconciling.Message).To(ContainSubstring("ImagePullBackOff"))
		}).WithContext(ctx).Should(Succeed())
		Expect(updated(ctx, mq, broken)).To(HaveLen(1), "exactly one Pod is touched")
		Consistently(func(g Gomega) {
			g.Expect(updated(ctx, mq, broken)).To(HaveLen(1))
			g.Expect(meta.IsStatusConditionTrue(refreshed(ctx, mq).Status.Conditions, v1alpha1.ConditionQuorumAvailable)).To(BeTrue())
		}).WithContext(ctx).WithTimeout(time.Second).Should(Succeed())

		By("going back to the good image, without anybody's help")
		change(ctx, mq, setImage(imageA))
		after := expectRolled(ctx, mq, imageA)
		Expect(after.Status.Leader.Epoch).To(Equal(before.Status.Leader.Epoch), "no election was needed")
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("mends a quorum that its spec has broken as a whole, healthy members last (RL-07)", func(ctx SpecContext) {
		const broken = "quorum.test/quorum:neverbuilt"
		runner.BreakImage(broken, true)
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").image(broken).create(ctx)
		Eventually(func(g Gomega) {
			live := refreshed(ctx, mq)
			g.Expect(describe(ctx, live)).To(ContainSubstring("ImagePullBackOff"))
		}).WithContext(ctx).Should(Succeed())
		change(ctx, mq, setImage(imageA))
		expectRolled(ctx, mq, imageA)
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(2*time.Minute))

	It("is refused before anything is touched if the API server would not take the new Pods", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		expectCurrent(ctx, mq)
		uids := uidsOf(ctx, mq)
		for _, template := range []string{
			`{"spec":{"containers":[{"name":"quorum","command":["/bin/sh"]}]}}`,                  // ours
			`{"spec":{"dnsPolicy":"NoSuchPolicy"}}`,                                              // the API server's
			`{"spec":{"containerz":[{"name":"quorum"}]}}`,                                        // misspelt
			`{"spec":{"volumes":[{"name":"host","hostPath":{"path":"/"}}]}}`,                     // Pod Security's
			`{"spec":{"containers":[{"name":"quorum","env":[{"name":"NODE_ID","value":"7"}]}]}}`, // identity
		} {
			change(ctx, mq, func(q *v1alpha1.MetadataQuorum) {
				q.Spec.PodTemplate = &runtime.RawExtension{Raw: []byte(template)}
			})
			Eventually(func(g Gomega) {
				live := refreshed(ctx, mq)
				g.Expect(live.Status.ObservedGeneration).To(Equal(live.Generation))
				stalled := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionStalled)
				g.Expect(stalled).NotTo(BeNil(), func() string { return template + describe(ctx, live) })
				g.Expect(stalled.Reason).To(Equal(v1alpha1.ReasonInvalidTemplate))
				g.Expect(stalled.ObservedGeneration).To(Equal(live.Generation))
			}).WithContext(ctx).Should(Succeed())
			Expect(uidsOf(ctx, mq)).To(Equal(uids))
		}
		change(ctx, mq, func(q *v1alpha1.MetadataQuorum) { q.Spec.PodTemplate = nil })
		expectSteadyState(ctx, op, mq)
		Expect(uidsOf(ctx, mq)).To(Equal(uids), "nobody was restarted")
	}, SpecTimeout(2*time.Minute))
})

// updated are the member Pods that were made with the image, by name.
func updated(ctx context.Context, mq *v1alpha1.MetadataQuorum, image string) map[string]types.UID {
	uids := map[string]types.UID{}
	for name, pod := range membersOf(ctx, mq) {
		if pod.Spec.Containers[0].Image == image && pod.DeletionTimestamp == nil {
			uids[name] = pod.UID
		}
	}
	return uids
}
