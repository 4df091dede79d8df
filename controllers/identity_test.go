package controllers_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("An identity record that a person has damaged", func() {
	It("is told of, moves nobody, and is made again from the claims when it is deleted", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		op := startOperator(ctx, ns)
		mq := testQuorum(ns, "q").create(ctx)
		clusterID := expectCurrent(ctx, mq).Status.ClusterID
		appendOne(ctx, mq, "kept")
		pods := membersOf(ctx, mq)
		record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "q-identity"}}

		By("breaking its seal")
		broken := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationSeal+`":"broken"}}}`))
		Expect(c.Patch(ctx, record, broken)).To(Succeed())
		Expect(expectStalled(ctx, mq, v1alpha1.ReasonIdentityConflict)).To(ContainSubstring("q-identity"))

		By("deleting it")
		Expect(c.Delete(ctx, record)).To(Succeed())
		live := expectCurrent(ctx, mq)
		Expect(live.Status.ClusterID).To(Equal(clusterID))
		Expect(readAll(ctx, mq, "kept")).To(Equal([]string{"kept"}))

		By("taking its seal off")
		Expect(c.Patch(ctx, record, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":null}}`)))).To(Succeed())
		Eventually(func() (map[string]string, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(record), record)
			return record.Annotations, err
		}).WithContext(ctx).Should(HaveKey(v1alpha1.AnnotationSeal))
		expectSteadyState(ctx, op, mq)
		for name, pod := range membersOf(ctx, mq) {
			Expect(pod.UID).To(Equal(pods[name].UID), "%s was restarted", name)
		}
	}, SpecTimeout(2*time.Minute))
})
