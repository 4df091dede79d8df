package resources

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
)

// Shared is every object that belongs to the quorum rather than to a member, by kind, then name. voters is the size of
// the voter set, which the budget protects.
func Shared(mq *v1alpha1.MetadataQuorum, voters int) []Object {
	observers := int(*v1alpha1.Resolve(&mq.Spec).Observers.Replicas)
	return []Object{
		budget(mq, v1alpha1.PoolObservers, observers),
		budget(mq, v1alpha1.PoolVoters, voters),
		bootstrap(mq),
		peers(mq),
		account(mq),
	}
}

// SharedKind is the planner's word for a shared object.
func SharedKind(o Object) plan.Kind { return plan.Kind(o.GetObjectKind().GroupVersionKind().Kind) }

// peers publishes members before they are ready: they need each other's names to become so.
func peers(mq *v1alpha1.MetadataQuorum) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   typeMeta("v1", "Service"),
		ObjectMeta: meta(mq, PeersService(mq.Name), Labels(mq)),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 memberSelector(mq.Name),
			Ports: []corev1.ServicePort{
				port("controller", ControllerPort), port("client", ClientPort),
				port("admin", AdminPort), port("health", HealthPort),
			},
		},
	}
}

// bootstrap is where clients come in; from there they learn the members' own addresses.
func bootstrap(mq *v1alpha1.MetadataQuorum) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   typeMeta("v1", "Service"),
		ObjectMeta: meta(mq, BootstrapService(mq.Name), Labels(mq)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: memberSelector(mq.Name),
			Ports:    []corev1.ServicePort{port("client", ClientPort), port("controller", ControllerPort)},
		},
	}
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromString(name), Protocol: corev1.ProtocolTCP}
}

func account(mq *v1alpha1.MetadataQuorum) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:                     typeMeta("v1", "ServiceAccount"),
		ObjectMeta:                   meta(mq, AccountName(mq.Name), Labels(mq)),
		AutomountServiceAccountToken: new(false),
	}
}

// budget lets one member of a pool go at a time. The number is an absolute minimum: for maxUnavailable or a percentage
// the disruption controller would ask the scale subresource how many there should be, and that speaks of observers
// only. Members that are not ready may always go, so that a broken one never blocks the drain of its node; the price is
// that a quorum of which nothing is ready is not protected.
func budget(mq *v1alpha1.MetadataQuorum, pool string, members int) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   typeMeta("policy/v1", "PodDisruptionBudget"),
		ObjectMeta: meta(mq, BudgetName(mq.Name, pool), with(Labels(mq), map[string]string{v1alpha1.LabelPool: pool})),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               new(intstr.FromInt32(int32(max(members-1, 0)))),
			Selector:                   &metav1.LabelSelector{MatchLabels: poolMembers(mq.Name, pool)},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

// Current reports whether a live object holds all that is rendered. What others have added, and what the API server has
// defaulted, is no drift.
func Current(live, rendered Object) bool { return holds(generic(live), generic(rendered)) }

func generic(o Object) any {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // API types marshal
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	delete(out, "status")
	delete(out, "apiVersion") // a typed client drops both
	delete(out, "kind")
	// Others may own it, too; a list of owners is compared as a set.
	if m, ok := out["metadata"].(map[string]any); ok {
		owners, _ := m["ownerReferences"].([]any)
		delete(m, "ownerReferences")
		byUID := map[string]any{}
		for _, r := range owners {
			if r, ok := r.(map[string]any); ok {
				byUID[fmt.Sprint(r["uid"])] = r
			}
		}
		m["owners"] = byUID
	}
	return out
}

func holds(live, want any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return len(want) == 0
		}
		for k, v := range want {
			if !holds(live[k], v) {
				return false
			}
		}
		return true
	case []any:
		live, ok := live.([]any)
		if !ok || len(live) != len(want) {
			return false
		}
		for i := range want {
			if !holds(live[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(live, want)
}
