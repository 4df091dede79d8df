package resources

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
)

// Keys of the identity record.
const (
	keyClusterID     = "cluster-id"
	keyImage         = "image"
	keyInitialVoters = "initial-voters"
)

// voterRecord is one initial voter as it's written in the record and on claims.
type voterRecord struct {
	NodeID      int32  `json:"nodeID"`
	Claim       string `json:"claim"`
	DirectoryID string `json:"directoryID"`
}

// sealRecord is one entry of the seal.
type sealRecord struct {
	NodeID   int32     `json:"nodeID"`
	ClaimUID types.UID `json:"claimUID,omitempty"`
}

// Identity is the immutable ConfigMap that says who the quorum is.
func Identity(mq *v1alpha1.MetadataQuorum, id plan.Identity) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		TypeMeta:   typeMeta("v1", "ConfigMap"),
		ObjectMeta: meta(mq, plan.IdentityName(mq.Name), Labels(mq)),
		Immutable:  new(true),
		Data: map[string]string{
			keyClusterID:     id.ClusterID,
			keyImage:         id.Image,
			keyInitialVoters: encodeVoters(id.Voters),
		},
	}
	if id.Sealed {
		cm.Annotations = map[string]string{v1alpha1.AnnotationSeal: Seal(id.Voters)}
	}
	return cm
}

// Seal is the value of the annotation that seals the record.
func Seal(voters []plan.InitialVoter) string {
	seal := make([]sealRecord, 0, len(voters))
	for _, v := range voters {
		seal = append(seal, sealRecord{v.NodeID, v.ClaimUID})
	}
	return encode(seal)
}

// ReadIdentity reads the record. An error means that a person has edited what can't be edited.
func ReadIdentity(cm *corev1.ConfigMap) (*plan.Identity, error) {
	voters, err := decodeVoters(cm.Data[keyInitialVoters])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %s: %w", cm.Name, keyInitialVoters, err)
	}
	id := &plan.Identity{UID: cm.UID, ClusterID: cm.Data[keyClusterID], Image: cm.Data[keyImage], Voters: voters}
	if id.ClusterID == "" || len(voters) == 0 {
		return nil, fmt.Errorf("ConfigMap %s: it has no cluster id or no voters", cm.Name)
	}
	value, ok := cm.Annotations[v1alpha1.AnnotationSeal]
	if !ok {
		return id, nil
	}
	var seal []sealRecord
	if err := json.Unmarshal([]byte(value), &seal); err != nil {
		return nil, fmt.Errorf("ConfigMap %s: annotation %s: %w", cm.Name, v1alpha1.AnnotationSeal, err)
	}
	id.Sealed = true
	for i := range id.Voters {
		for _, s := range seal {
			if s.NodeID == id.Voters[i].NodeID {
				id.Voters[i].ClaimUID = s.ClaimUID
			}
		}
	}
	return id, nil
}

func encodeVoters(voters []plan.InitialVoter) string {
	out := make([]voterRecord, 0, len(voters))
	for _, v := range voters {
		out = append(out, voterRecord{v.NodeID, v.Claim, v.DirectoryID})
	}
	return encode(out)
}

func decodeVoters(s string) ([]plan.InitialVoter, error) {
	if s == "" {
		return nil, nil
	}
	var in []voterRecord
	if err := json.Unmarshal([]byte(s), &in); err != nil {
		return nil, err
	}
	var out []plan.InitialVoter
	for _, v := range in {
		out = append(out, plan.InitialVoter{NodeID: v.NodeID, Claim: v.Claim, DirectoryID: v.DirectoryID})
	}
	return out, nil
}

// encode writes one of our own types, which can't fail.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return string(b)
}
