package resources

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
)

// Object is any object that a builder returns; apiVersion and kind are filled in.
type Object interface {
	metav1.Object
	runtime.Object
}

// ContainerName is the member's container in its Pod.
const ContainerName = "quorum"

// Ports of a member's listeners.
const (
	ControllerPort = 9093 // Kafka's protocol between members, for the operator and Kafka's quorum tools
	ClientPort     = 9092 // Kafka's protocol for ordinary clients
	AdminPort      = 9091 // HTTP: /v1/handoff
	HealthPort     = 8080 // HTTP: /livez /readyz /metrics /v1/status
)

// Where things are in a member's container.
const (
	configDir  = "/etc/quorum"
	configFile = "quorum.properties"
	dataDir    = "/var/lib/quorum"
)

// User runs the members' processes and owns their files.
const User int64 = 65532

// PeersService is the headless Service through which members find each other.
func PeersService(quorum string) string { return quorum + "-peers" }

// BootstrapService is the Service for clients.
func BootstrapService(quorum string) string { return quorum + "-bootstrap" }

// AccountName is the members' ServiceAccount, which has no rights and no token.
func AccountName(quorum string) string { return quorum + "-member" }

// BudgetName is the PodDisruptionBudget of a pool.
func BudgetName(quorum, pool string) string { return quorum + "-" + pool }

// Host is a member's name in DNS and in TLS. It ends in "svc": what comes after it differs by cluster, and resolvers
// complete it.
func Host(mq *v1alpha1.MetadataQuorum, nodeID int32) string {
	return plan.PodName(mq.Name, nodeID) + "." + PeersService(mq.Name) + "." + mq.Namespace + ".svc"
}

// Labels of everything that belongs to a quorum.
func Labels(mq *v1alpha1.MetadataQuorum) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "metadataquorum",
		"app.kubernetes.io/instance":   mq.Name,
		"app.kubernetes.io/part-of":    "kraft-operator",
		"app.kubernetes.io/managed-by": "kraft-operator",
		v1alpha1.LabelQuorum:           mq.Name,
	}
}

// memberSelector selects the member Pods of a quorum, and not those that format a claim.
func memberSelector(quorum string) map[string]string {
	return map[string]string{v1alpha1.LabelQuorum: quorum, componentLabel: componentMember}
}

// poolSelector selects the Pods of one pool, those that format a claim included: for placement.
func poolSelector(quorum, pool string) map[string]string {
	return map[string]string{v1alpha1.LabelQuorum: quorum, v1alpha1.LabelPool: pool}
}

// poolMembers selects the member Pods of one pool.
func poolMembers(quorum, pool string) map[string]string {
	return map[string]string{v1alpha1.LabelQuorum: quorum, v1alpha1.LabelPool: pool, componentLabel: componentMember}
}

// ObserverSelector is what the scale subresource reports: an autoscaler finds the observers by it.
func ObserverSelector(quorum string) string {
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: poolSelector(quorum, v1alpha1.PoolObservers)})
}

const (
	componentLabel  = "app.kubernetes.io/component"
	componentMember = "member"
	componentFormat = "format"
)

// claimLabels and memberLabels carry the pool, which budgets select by: the node id fixes it for ever.
func claimLabels(mq *v1alpha1.MetadataQuorum, nodeID int32) map[string]string {
	l := Labels(mq)
	l[v1alpha1.LabelNodeID] = strconv.Itoa(int(nodeID))
	l[v1alpha1.LabelPool] = v1alpha1.Pool(nodeID)
	return l
}

func memberLabels(mq *v1alpha1.MetadataQuorum, nodeID int32) map[string]string {
	l := claimLabels(mq, nodeID)
	l[componentLabel] = componentMember
	return l
}

// formatLabels carry the pool, too: a volume that is bound at first use ties the member to the node of its format Pod, so
// that one has to be placed by the same rules, the user's among them.
func formatLabels(mq *v1alpha1.MetadataQuorum, nodeID int32) map[string]string {
	l := claimLabels(mq, nodeID)
	l[v1alpha1.LabelFormat] = "true"
	l[componentLabel] = componentFormat
	return l
}

// NodeID reads the label; ok is false on an object that isn't a member's.
func NodeID(labels map[string]string) (id int32, ok bool) {
	n, err := strconv.ParseInt(labels[v1alpha1.LabelNodeID], 10, 32)
	return int32(n), err == nil && n >= 0
}

// meta is the metadata of an object that goes when the quorum goes.
func meta(mq *v1alpha1.MetadataQuorum, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: mq.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{Owner(mq)}}
}

// Owner is the controller reference to a quorum. It doesn't block the owner's deletion: on clusters that guard owner
// references that would take a right the operator has no other use for.
func Owner(mq *v1alpha1.MetadataQuorum) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "MetadataQuorum",
		Name: mq.Name, UID: mq.UID, Controller: new(true),
	}
}

func with(labels map[string]string, more map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// initialControllers is the argument of the same name of `quorum format`.
func initialControllers(mq *v1alpha1.MetadataQuorum, voters []plan.InitialVoter) string {
	list := make([]string, 0, len(voters))
	for _, v := range voters {
		list = append(list, fmt.Sprintf("%d@%s:%d:%s", v.NodeID, Host(mq, v.NodeID), ControllerPort, v.DirectoryID))
	}
	return strings.Join(list, ",")
}
