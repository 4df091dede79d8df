package controllers_test

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// custom is a MetadataQuorum with a spec as a user types it.
func custom(ns, name, spec string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	parsed := map[string]any{}
	Expect(json.Unmarshal([]byte(spec), &parsed)).To(Succeed())
	u.Object["spec"] = parsed
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MetadataQuorum"))
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

// refusals are answered by the API server alone, with a message that names the
// field and tells the way out.
var _ = Describe("A bad spec", func() {
	DescribeTable("is refused when it is applied",
		func(ctx SpecContext, name, spec string, words ...string) {
			err := c.Create(ctx, custom(newNamespace(ctx), name, spec))
			Expect(err).To(HaveOccurred())
			for _, w := range words {
				Expect(err.Error()).To(ContainSubstring(w))
			}
			Expect(strings.Count(err.Error(), "\n")).To(BeZero(), "one line")
		},
		Entry("an even number of voters", "q", `{"voters":{"replicas":2}}`, "must be 1, 3, 5 or 7", SpecTimeout(10*time.Second)),
		Entry("nine voters", "q", `{"voters":{"replicas":9}}`, "must be 1, 3, 5 or 7", SpecTimeout(10*time.Second)),
		Entry("too many observers", "q", `{"observers":{"replicas":129}}`, "observers.replicas", "128", SpecTimeout(10*time.Second)),
		Entry("a negative number of observers", "q", `{"observers":{"replicas":-1}}`, "observers.replicas", SpecTimeout(10*time.Second)),
		Entry("a cluster id that is none", "q", `{"clusterID":"orders"}`, "clusterID", SpecTimeout(10*time.Second)),
		Entry("an unknown upgrade policy", "q", `{"upgradePolicy":"Sometimes"}`, "upgradePolicy", "Manual", SpecTimeout(10*time.Second)),
		Entry("an image with a space", "q", `{"image":"a b"}`, "image", SpecTimeout(10*time.Second)),
		Entry("an unknown access mode", "q", `{"storage":{"accessMode":"ReadWriteMany"}}`, "accessMode", SpecTimeout(10*time.Second)),
		Entry("a duration without a unit", "q", `{"raft":{"fetchTimeout":"2000"}}`, "fetchTimeout", SpecTimeout(10*time.Second)),
		Entry("an election timeout out of bounds", "q", `{"raft":{"electionTimeout":"1ms"}}`, "electionTimeout must be between 50ms and 1m", SpecTimeout(10*time.Second)),
		Entry("a fetch timeout out of bounds", "q", `{"raft":{"fetchTimeout":"2m"}}`, "fetchTimeout must be between", SpecTimeout(10*time.Second)),
		Entry("a request timeout out of bounds", "q", `{"raft":{"requestTimeout":"1ms"}}`, "requestTimeout must be between", SpecTimeout(10*time.Second)),
		Entry("an append linger out of bounds", "q", `{"raft":{"appendLinger":"2s"}}`, "appendLinger must be at most 1s", SpecTimeout(10*time.Second)),
		Entry("a back-off above the fetch timeout", "q", `{"raft":{"fetchTimeout":"500ms"}}`, "electionBackoffMax", "fetchTimeout", SpecTimeout(10*time.Second)),
		Entry("tiny segments", "q", `{"log":{"segmentBytes":"1Mi"}}`, "segmentBytes must be at least 8Mi", SpecTimeout(10*time.Second)),
		Entry("a pause without end", "q", `{"rollout":{"handoff":{"maxPause":"1m"}}}`, "maxPause must be between", SpecTimeout(10*time.Second)),
		Entry("a catch-up without end", "q", `{"rollout":{"handoff":{"catchUpTimeout":"1h"}}}`, "catchUpTimeout must be between", SpecTimeout(10*time.Second)),
		Entry("an impatient member timeout", "q", `{"rollout":{"memberTimeout":"1s"}}`, "memberTimeout must be at least 1m", SpecTimeout(10*time.Second)),
		Entry("a name of 41 characters (CV-01)", strings.Repeat("q", 41), `{}`, "at most 40 characters", SpecTimeout(10*time.Second)),
		Entry("a name with a dot (CV-01)", "a.b", `{}`, "metadata.name", SpecTimeout(10*time.Second)),
		Entry("a name that begins with a digit (CV-01)", "1q", `{}`, "metadata.name", SpecTimeout(10*time.Second)),
	)

	DescribeTable("is refused when it changes what cannot be changed",
		func(ctx SpecContext, before, after string, words ...string) {
			ns := newNamespace(ctx)
			Expect(c.Create(ctx, custom(ns, "q", before))).To(Succeed())
			err := c.Patch(ctx, custom(ns, "q", `{}`), client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+after+`}`)))
			Expect(err).To(HaveOccurred())
			for _, w := range words {
				Expect(err.Error()).To(ContainSubstring(w))
			}
		},
		Entry("more voters", `{}`, `{"voters":{"replicas":5}}`, "voters.replicas cannot be changed yet", "observers.replicas", SpecTimeout(10*time.Second)),
		Entry("fewer voters", `{"voters":{"replicas":5}}`, `{"voters":null}`, "voters.replicas cannot be changed yet", SpecTimeout(10*time.Second)),
		Entry("another size", `{}`, `{"storage":{"size":"2Gi"}}`, "storage.size is immutable", SpecTimeout(10*time.Second)),
		Entry("another storage class", `{}`, `{"storage":{"storageClassName":"fast"}}`, "storageClassName is immutable", SpecTimeout(10*time.Second)),
		Entry("another access mode", `{}`, `{"storage":{"accessMode":"ReadWriteOncePod"}}`, "accessMode is immutable", SpecTimeout(10*time.Second)),
		Entry("another cluster id", `{"clusterID":"AAAAAAAAAAAAAAAAAAAAAQ"}`, `{"clusterID":"AAAAAAAAAAAAAAAAAAAAAg"}`, "clusterID is immutable", SpecTimeout(10*time.Second)),
		Entry("a cluster id taken back", `{"clusterID":"AAAAAAAAAAAAAAAAAAAAAQ"}`, `{"clusterID":null}`, "clusterID is immutable", SpecTimeout(10*time.Second)),
		Entry("a cluster id later that isn't its own", `{}`, `{"clusterID":"AAAAAAAAAAAAAAAAAAAAAQ"}`, "copy status.clusterID", SpecTimeout(10*time.Second)),
	)

	It("is told from a good one: defaults may be spelt out, and its own cluster id may be filled in", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		Expect(c.Create(ctx, custom(ns, "q", `{}`))).To(Succeed())
		mq := &v1alpha1.MetadataQuorum{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "q"}}
		live := refreshed(ctx, mq)
		Expect(live.Status.ObservedGeneration).To(BeEquivalentTo(-1), "kstatus must not take it for ready")
		Expect(kstatus(live)).To(Equal("InProgress"))
		live.Status.ClusterID = "AAAAAAAAAAAAAAAAAAAAAQ"
		Expect(c.Status().Update(ctx, live)).To(Succeed())
		Expect(c.Patch(ctx, custom(ns, "q", `{}`), client.RawPatch("application/merge-patch+json", []byte(
			`{"spec":{"clusterID":"AAAAAAAAAAAAAAAAAAAAAQ","voters":{"replicas":3},"storage":{"size":"1Gi","accessMode":"ReadWriteOnce"}}}`,
		)))).To(Succeed())
	}, SpecTimeout(10*time.Second))
})
