package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/resources"
	"github.com/kraft-operator/kraft-operator/quorum/status"

	. "github.com/onsi/gomega"
)

// oracle stands between the operators under test and the API server and holds
// every write against what an operator must never do, in every spec:
//
//	A1 its own act never leaves fewer than a majority of voters running and caught up;
//	A2 at most one voter is being replaced at a time;
//	A3 the leader's Pod goes last of the voters: it leads no more when it goes;
//	A5 it never changes or deletes an object that isn't this quorum's;
//	A6 it never writes spec or metadata of the MetadataQuorum;
//	and D20: the spec of a Pod that exists is never touched.
//
// A4, zero writes in steady state, is expectSteadyState.
type oracle struct {
	mu         sync.Mutex
	violations []string
	replacing  map[client.ObjectKey]types.UID // voter's Pod → UID that the operator removed
	writes     int
}

func newOracle() *oracle { return &oracle{replacing: map[client.ObjectKey]types.UID{}} }

func (o *oracle) violated(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violations = append(o.violations, fmt.Sprintf(format, args...))
}

// expectClean fails the spec if any rule was broken so far.
func (o *oracle) expectClean() {
	o.mu.Lock()
	defer o.mu.Unlock()
	ExpectWithOffset(1, o.violations).To(BeEmpty(), "the operator broke a rule")
}

func (o *oracle) writeCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}

// wrote counts a write that went through; one that was refused has changed
// nothing.
func (o *oracle) wrote(err error) error {
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.writes++
	}
	return err
}

// wrap is a client that asks the oracle before each write.
func (o *oracle) wrap(inner client.WithWatch) client.WithWatch {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return o.wrote(w.Create(ctx, obj, opts...))
		},
		Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			o.checkOwner(ctx, "delete", obj)
			if pod, ok := obj.(*corev1.Pod); ok {
				options := (&client.DeleteOptions{}).ApplyOptions(opts)
				if options.Preconditions == nil || options.Preconditions.UID == nil {
					o.violated("delete of Pod %s has no UID precondition", pod.Name)
				}
				o.checkRemoval(ctx, pod)
			}
			return o.wrote(w.Delete(ctx, obj, opts...))
		},
		Update: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			o.checkChange(ctx, "update", obj)
			return o.wrote(w.Update(ctx, obj, opts...))
		},
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			o.checkChange(ctx, "patch", obj)
			before := o.podSpec(ctx, obj)
			err := o.wrote(w.Patch(ctx, obj, patch, opts...))
			if pod, ok := obj.(*corev1.Pod); ok && err == nil && !equality.Semantic.DeepEqual(*before, pod.Spec) {
				o.violated("the spec of Pod %s was changed by a patch", pod.Name)
			}
			return err
		},
		Apply: func(ctx context.Context, w client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			o.checkApply(ctx, obj)
			return o.wrote(w.Apply(ctx, obj, opts...))
		},
		DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error {
			o.violated("DeleteAllOf has no fence")
			return errors.New("refused by the oracle")
		},
		SubResourceCreate: func(ctx context.Context, w client.Client, sub string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			if e, ok := body.(*policyv1.Eviction); ok {
				if e.DeleteOptions == nil || e.DeleteOptions.Preconditions == nil || e.DeleteOptions.Preconditions.UID == nil {
					o.violated("eviction of Pod %s has no UID precondition", obj.GetName())
				}
				o.checkOwner(ctx, "evict", obj)
				o.checkRemoval(ctx, obj.(*corev1.Pod))
			}
			return o.wrote(w.SubResource(sub).Create(ctx, obj, body, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return o.wrote(w.SubResource(sub).Update(ctx, obj, opts...))
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return o.wrote(w.SubResource(sub).Patch(ctx, obj, patch, opts...))
		},
	})
}

func (o *oracle) podSpec(ctx context.Context, obj client.Object) *corev1.PodSpec {
	if _, ok := obj.(*corev1.Pod); !ok {
		return nil
	}
	var live corev1.Pod
	_ = c.Get(ctx, client.ObjectKeyFromObject(obj), &live)
	return &live.Spec
}

func (o *oracle) checkApply(ctx context.Context, obj runtime.ApplyConfiguration) {
	b, err := json.Marshal(obj)
	if err != nil {
		o.violated("apply: %v", err)
		return
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(b, &meta); err != nil {
		o.violated("apply: %v", err)
		return
	}
	if meta.UID == "" {
		o.violated("apply of %s %s has no UID", meta.Kind, meta.Name)
	}
	if meta.Kind == "Pod" {
		o.violated("apply of Pod %s", meta.Name)
	}
	o.checkChange(ctx, "apply", &meta)
}

// checkChange is A5 and A6.
func (o *oracle) checkChange(ctx context.Context, verb string, obj client.Object) {
	if _, ok := obj.(*v1alpha1.MetadataQuorum); ok || obj.GetObjectKind().GroupVersionKind().Kind == "MetadataQuorum" {
		o.violated("A6: %s of MetadataQuorum %s", verb, obj.GetName())
		return
	}
	o.checkOwner(ctx, verb, obj)
}

// checkOwner is A5: the object that is there now belongs to a quorum of its
// label's name, by UID; a claim by label.
func (o *oracle) checkOwner(ctx context.Context, verb string, obj client.Object) {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		gvk = obj.GetObjectKind().GroupVersionKind()
	}
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(gvk)
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), &live); err != nil {
		return // nothing there that could be harmed
	}
	name := live.Labels[v1alpha1.LabelQuorum]
	if gvk.Kind == "PersistentVolumeClaim" {
		if name == "" {
			o.violated("A5: %s of claim %s, which has no quorum's label", verb, live.Name)
		}
		return
	}
	var mq v1alpha1.MetadataQuorum
	if err := c.Get(ctx, client.ObjectKey{Namespace: live.Namespace, Name: name}, &mq); err != nil && !apierrors.IsNotFound(err) {
		return
	}
	if ref := metav1.GetControllerOf(&live); ref == nil || (mq.UID != "" && ref.UID != mq.UID) {
		o.violated("A5: %s of %s %s, which is not controlled by MetadataQuorum %s", verb, gvk.Kind, live.Name, name)
	}
}

// checkRemoval is A1, A2 and A3, at the moment in which the operator removes a
// member's Pod. The members themselves are asked, not the operator's status.
func (o *oracle) checkRemoval(ctx context.Context, target *corev1.Pod) {
	var pod corev1.Pod
	if err := c.Get(ctx, client.ObjectKeyFromObject(target), &pod); err != nil {
		return
	}
	if pod.Labels[v1alpha1.LabelPool] != v1alpha1.PoolVoters || pod.DeletionTimestamp != nil {
		return
	}
	q := lookAt(ctx, pod.Namespace, pod.Labels[v1alpha1.LabelQuorum])
	id, _ := resources.NodeID(pod.Labels)
	if q.leader == nil {
		if q.answering[id] && podReady(&pod) {
			o.violated("A1: Pod %s is removed while nobody leads", pod.Name)
		}
		return
	}
	if !slices.Contains(q.contributing, id) {
		return
	}
	voters := len(q.leader.Voters)
	if rest := len(q.contributing) - 1; voters > 1 && rest < voters/2+1 {
		o.violated("A1: without Pod %s %d of %d voters are running and caught up", pod.Name, rest, voters)
	}
	if q.leader.NodeID == id && voters > 1 {
		o.violated("A3: Pod %s leads when it is removed", pod.Name)
	}
	o.checkAlone(ctx, &pod)
}

// checkAlone is A2: whoever was removed before is back, as another Pod that is ready.
func (o *oracle) checkAlone(ctx context.Context, pod *corev1.Pod) {
	o.mu.Lock()
	earlier := maps.Clone(o.replacing)
	key := client.ObjectKeyFromObject(pod)
	o.replacing[key] = pod.UID
	o.mu.Unlock()
	for name, uid := range earlier {
		if name.Namespace != key.Namespace || name == key {
			continue
		}
		var other corev1.Pod
		err := c.Get(ctx, name, &other)
		if err != nil || other.UID == uid || !podReady(&other) {
			o.violated("A2: Pod %s is removed while %s, removed before, is not back", pod.Name, name.Name)
		}
	}
}

func podReady(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// quorumNow is what the members say right now.
type quorumNow struct {
	leader       *status.Member
	members      []*status.Member // that answered
	answering    map[int32]bool
	contributing []int32 // voters that run and are caught up, by the leader's word
}

// lookAt asks every member's Pod directly.
func lookAt(ctx context.Context, namespace, quorum string) quorumNow {
	q := quorumNow{answering: map[int32]bool{}}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelQuorum: quorum}); err != nil {
		return q
	}
	for _, p := range pods.Items {
		m := memberStatus(ctx, &p)
		if m == nil {
			continue
		}
		q.members = append(q.members, m)
		q.answering[m.NodeID] = true
		if m.Role == "Leader" && (q.leader == nil || m.Epoch > q.leader.Epoch) {
			q.leader = m
		}
	}
	if q.leader == nil {
		return q
	}
	for _, v := range q.leader.Voters {
		fresh := v.LastCaughtUpMs >= 0 && v.LastCaughtUpMs <= q.leader.FetchTimeoutMs
		if q.answering[v.NodeID] && fresh {
			q.contributing = append(q.contributing, v.NodeID)
		}
	}
	return q
}

func memberStatus(ctx context.Context, p *corev1.Pod) *status.Member {
	if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	url := "http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(resources.HealthPort)) + status.MemberPath
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	m := &status.Member{}
	if json.NewDecoder(resp.Body).Decode(m) != nil {
		return nil
	}
	return m
}
