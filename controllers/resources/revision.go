package resources

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// Stored is what a ControllerRevision holds: what members are made from, rendered once. Another version of the operator
// would perhaps render it otherwise; it uses the stored bytes all the same, so that its arrival restarts nobody.
type Stored struct {
	Image      string                 `json:"image"`
	Properties string                 `json:"properties"` // also in the ConfigMap of the revision's name
	Voter      corev1.PodTemplateSpec `json:"voter"`
	Observer   corev1.PodTemplateSpec `json:"observer"`
}

// RevisionName names the revision of the user's inputs that reach a Pod: image is the resolved one. Defaults are not
// hashed, they may differ between versions of the operator; nor is what doesn't reach a Pod, such as replicas.
func RevisionName(mq *v1alpha1.MetadataQuorum, image string) string {
	inputs := map[string]any{"image": image}
	for name, value := range map[string]any{"raft": mq.Spec.Raft, "log": mq.Spec.Log, "podTemplate": mq.Spec.PodTemplate} {
		if v := pruned(value); v != nil {
			inputs[name] = v
		}
	}
	sum := sha256.Sum256([]byte(encode(inputs))) // keys are sorted
	return mq.Name + "-" + hex.EncodeToString(sum[:5])
}

// pruned is a value without its empty parts, so that `raft: {}` is the same as nothing.
func pruned(v any) any {
	var out any
	if err := json.Unmarshal([]byte(encode(v)), &out); err != nil {
		panic(err)
	}
	var prune func(any) any
	prune = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if x = prune(x); x == nil {
					delete(v, k)
				} else {
					v[k] = x
				}
			}
			if len(v) == 0 {
				return nil
			}
		case []any:
			if len(v) == 0 {
				return nil
			}
			for i, x := range v { // an empty element still counts as one
				if x = prune(x); x != nil {
					v[i] = x
				}
			}
		}
		return v
	}
	return prune(out)
}

// Render makes what a revision stores. A *InvalidTemplateError is the user's to mend.
func Render(mq *v1alpha1.MetadataQuorum, clusterID, image string) (*Stored, error) {
	name := RevisionName(mq, image)
	s := &Stored{Image: image}
	var err error
	if s.Properties, err = properties(mq, clusterID, name); err != nil {
		return nil, err
	}
	if s.Voter, err = template(mq, image, v1alpha1.PoolVoters, name); err != nil {
		return nil, err
	}
	if s.Observer, err = template(mq, image, v1alpha1.PoolObservers, name); err != nil {
		return nil, err
	}
	return s, nil
}

// Revision is the ControllerRevision that stores s under the given number.
func Revision(mq *v1alpha1.MetadataQuorum, s *Stored, number int64) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		TypeMeta:   typeMeta("apps/v1", "ControllerRevision"),
		ObjectMeta: meta(mq, RevisionName(mq, s.Image), Labels(mq)),
		Data:       runtime.RawExtension{Raw: []byte(encode(s))},
		Revision:   number,
	}
}

// ReadRevision reads what a ControllerRevision stores.
func ReadRevision(r *appsv1.ControllerRevision) (*Stored, error) {
	s := &Stored{}
	if err := json.Unmarshal(r.Data.Raw, s); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s: %w", r.Name, err)
	}
	if s.Image == "" || s.Properties == "" {
		return nil, fmt.Errorf("ControllerRevision %s: it holds no image or no properties", r.Name)
	}
	return s, nil
}

// Config is the immutable ConfigMap with the properties of a stored revision.
func Config(mq *v1alpha1.MetadataQuorum, revision string, s *Stored) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   typeMeta("v1", "ConfigMap"),
		ObjectMeta: meta(mq, revision, Labels(mq)),
		Immutable:  new(true),
		Data:       map[string]string{configFile: s.Properties},
	}
}

func labelSelector(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}
