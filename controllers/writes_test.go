package controllers_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The operator's writes", func() {
	It("are none while a busy quorum does nothing but append (OP-01)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").observers(1).create(ctx)
		expectSteadyState(ctx, op, mq)
		writes := startAppender(ctx, mq)
		live := refreshed(ctx, mq)
		before, appended := op.writeCount(), writes.count()
		Consistently(func(g Gomega) {
			g.Expect(refreshed(ctx, mq).ResourceVersion).To(Equal(live.ResourceVersion))
			g.Expect(op.writeCount()).To(Equal(before))
		}).WithContext(ctx).WithTimeout(2 * time.Second).Should(Succeed())
		Expect(writes.count()).To(BeNumerically(">", appended))
	}, SpecTimeout(time.Minute))

	It("put back what somebody changed by hand, and leave what somebody added", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").voters(1).create(ctx)
		expectSteadyState(ctx, op, mq)
		svc := &corev1.Service{}
		key := client.ObjectKey{Namespace: ns, Name: "q-peers"}
		Expect(c.Get(ctx, key, svc)).To(Succeed())
		before := svc.DeepCopy()
		svc.Labels["team"] = "data"
		svc.Spec.PublishNotReadyAddresses = false
		Expect(c.Patch(ctx, svc, client.MergeFrom(before))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, key, svc)).To(Succeed())
			g.Expect(svc.Spec.PublishNotReadyAddresses).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		Expect(svc.Labels).To(HaveKeyWithValue("team", "data"))
		Expect(svc.UID).To(Equal(before.UID))
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(time.Minute))

	It("make no object twice when the cache lags behind them (OP-03)", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		var blind atomic.Bool
		blind.Store(true)
		op := startOperator(ctx, ns, withFaults(func(inner client.WithWatch) client.WithWatch {
			return interceptor.NewClient(inner, interceptor.Funcs{
				Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if _, ok := obj.(*v1alpha1.MetadataQuorum); !ok && blind.Load() {
						return apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, key.Name)
					}
					return w.Get(ctx, key, obj, opts...)
				},
				List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if blind.Load() {
						return nil
					}
					return w.List(ctx, list, opts...)
				},
			})
		}))
		mq := testQuorum(ns, "q").observers(3).create(ctx)
		By("the cache showing nothing that was made")
		Eventually(func() any { return claimsOf(ctx, mq) }).WithContext(ctx).ShouldNot(BeEmpty())
		Consistently(func() int { return len(claimsOf(ctx, mq)) }).WithContext(ctx).WithTimeout(time.Second).Should(BeNumerically("<=", 6))
		blind.Store(false)
		expectCurrent(ctx, mq)
		scale(ctx, mq, 5)
		observersReady(ctx, mq, "5/5")
		Expect(uidsOf(ctx, mq)).To(And(HaveLen(8), HaveKey("q-1004")), "ids are contiguous")
		scale(ctx, mq, 4)
		observersReady(ctx, mq, "4/4")
		Expect(claimsOf(ctx, mq)).To(HaveLen(8))
		expectSteadyState(ctx, op, mq)
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A member whose disk is damaged", func() {
	It("stays down, and the quorum tells its own word for it", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		live := expectCurrent(ctx, mq)
		victim := (live.Status.Leader.NodeID + 1) % 3
		var claim corev1.PersistentVolumeClaim
		for _, pvc := range claimsOf(ctx, mq) {
			if pvc.Name == live.Status.Members[victim].Claim {
				claim = pvc
			}
		}
		holdDown(mq, int(victim))
		Eventually(func() bool { return lookAt(ctx, ns, "q").answering[victim] }).WithContext(ctx).Should(BeFalse())
		state := findFile(runner.VolumeDir(&claim), "quorum-state")
		Expect(os.WriteFile(state, []byte("garbage"), 0o600)).To(Succeed())
		letGo(mq, int(victim))

		Eventually(func(g Gomega) {
			live := refreshed(ctx, mq)
			g.Expect(live.Status.Members[victim].Message).To(ContainSubstring("STATE_FILE_CORRUPT"))
			ready := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionReady)
			g.Expect(ready.Status).To(Equal(metav1.ConditionFalse))
			g.Expect(ready.Reason).To(Equal("StateFileCorrupt"))
			g.Expect(ready.Message).To(ContainSubstring("STATE_FILE_CORRUPT"))
			g.Expect(meta.IsStatusConditionTrue(live.Status.Conditions, v1alpha1.ConditionQuorumAvailable)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		appendOne(ctx, mq, "two of three commit")
	}, SpecTimeout(time.Minute))
})

// findFile is the first file of that name below dir.
func findFile(dir, name string) string {
	GinkgoHelper()
	var found string
	Expect(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == name && found == "" {
			found = path
		}
		return err
	})).To(Succeed())
	Expect(found).NotTo(BeEmpty(), "no file %s below %s", name, dir)
	return found
}
