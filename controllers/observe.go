package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/controllers/resources"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// scene is one pass: what was seen, as the planner gets it, and the objects
// behind it that act needs to carry the plan out.
type scene struct {
	mq  *v1alpha1.MetadataQuorum
	obs plan.Observation

	image     string // resolved: what the wanted revision runs
	shared    []resources.Object
	revisions []appsv1.ControllerRevision // ours, by number
	targets   []Target                    // members that have an address
	handoff   *status.Handoff             // behind obs.Handoff
}

// rendered is a shared object as it should be.
func (s *scene) rendered(kind plan.Kind, name string) client.Object {
	for _, o := range s.shared {
		if resources.SharedKind(o) == kind && o.GetName() == name {
			return o
		}
	}
	panic(fmt.Sprintf("%s %s is no shared object of %s", kind, name, s.mq.Name))
}

func (s *scene) revision(name string) *appsv1.ControllerRevision {
	for i := range s.revisions {
		if s.revisions[i].Name == name {
			return &s.revisions[i]
		}
	}
	return nil
}

func (s *scene) member(nodeID int32) (Target, bool) {
	i := slices.IndexFunc(s.targets, func(t Target) bool { return t.NodeID == nodeID })
	if i < 0 {
		return Target{}, false
	}
	return s.targets[i], true
}

// observe makes all reads of a pass. Identity, claims, Pods and revisions are
// read uncached: acting on a stale copy of them could restart a second voter,
// give a second claim the right to format, or roll back an image. A quorum that
// doesn't answer is a fact, not an error.
func (r *MetadataQuorumReconciler) observe(ctx context.Context, mq *v1alpha1.MetadataQuorum) (*scene, error) {
	s := &scene{mq: mq}
	s.obs.Want = wantOf(mq, r.DefaultImage)
	s.obs.Memory = memoryOf(mq)
	for _, read := range []func(context.Context, *scene) error{
		r.observeIdentity, r.observeClaims, r.observeRevisions, r.observePods, r.observeShared,
	} {
		if err := read(ctx, s); err != nil {
			return nil, err
		}
	}
	r.observeQuorum(ctx, s)
	slices.SortFunc(s.obs.Conflicts, func(a, b plan.Conflict) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return s, nil
}

func wantOf(mq *v1alpha1.MetadataQuorum, defaultImage string) plan.Want {
	spec := v1alpha1.Resolve(&mq.Spec)
	w := plan.Want{
		Name: mq.Name, UID: mq.UID,
		Deleting: mq.DeletionTimestamp != nil, Paused: *spec.Paused,
		Image:  defaultImage,
		Voters: *spec.Voters.Replicas, Observers: *spec.Observers.Replicas,
		FetchTimeout:     spec.Raft.FetchTimeout.Duration,
		MinReady:         time.Duration(*spec.Rollout.MinReadySeconds) * time.Second,
		MemberTimeout:    spec.Rollout.MemberTimeout.Duration,
		HandoffMaxPause:  spec.Rollout.Handoff.MaxPause.Duration,
		HandoffCatchUp:   spec.Rollout.Handoff.CatchUpTimeout.Duration,
		DeleteWithQuorum: *spec.Storage.WhenDeleted == v1alpha1.Delete,
		DeleteWhenScaled: *spec.Storage.WhenScaled == v1alpha1.Delete,
		RestartedAt:      timeOf(spec.Rollout.RestartedAt),
	}
	if spec.ClusterID != nil {
		w.ClusterID = *spec.ClusterID
	}
	if spec.Image != nil {
		w.Image = *spec.Image
	}
	return w
}

// owner says whose an object is.
type owner int

const (
	ours      owner = iota
	oldOwners       // of a deleted MetadataQuorum of the same name
	others
)

// ownership asks the controller reference, by UID. Claims have none while they
// are to outlive the resource: theirs is the label.
func ownership(mq *v1alpha1.MetadataQuorum, obj metav1.Object) owner {
	ref := metav1.GetControllerOf(obj)
	switch {
	case ref == nil && isClaim(obj) && obj.GetLabels()[v1alpha1.LabelQuorum] == mq.Name:
		return ours
	case ref == nil:
		return others
	case ref.UID == mq.UID:
		return ours
	case ref.Kind == "MetadataQuorum" && ref.Name == mq.Name:
		return oldOwners
	}
	return others
}

func isClaim(obj metav1.Object) bool {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		return true
	case *metav1.PartialObjectMetadata:
		return o.Kind == string(plan.KindClaim)
	}
	return false
}

// notOurs notes an object that is in the way.
func (s *scene) notOurs(kind plan.Kind, obj metav1.Object) {
	s.obs.Conflicts = append(s.obs.Conflicts, plan.Conflict{Kind: kind, Name: obj.GetName(), OldOwner: ownership(s.mq, obj) == oldOwners})
}

func (s *scene) labelled() []client.ListOption {
	return []client.ListOption{client.InNamespace(s.mq.Namespace), client.MatchingLabels{v1alpha1.LabelQuorum: s.mq.Name}}
}

func (r *MetadataQuorumReconciler) observeIdentity(ctx context.Context, s *scene) error {
	cm := identityOf(s.mq)
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(cm), cm)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get the identity record: %w", err)
	case ownership(s.mq, cm) != ours:
		s.notOurs(plan.KindConfigMap, cm)
		return nil
	}
	if s.obs.Identity, err = resources.ReadIdentity(cm); err != nil {
		s.obs.Unreadable = err.Error()
	}
	return nil
}

func (r *MetadataQuorumReconciler) observeClaims(ctx context.Context, s *scene) error {
	var list corev1.PersistentVolumeClaimList
	if err := r.APIReader.List(ctx, &list, s.labelled()...); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	for i := range list.Items {
		pvc := &list.Items[i]
		c, err := resources.ReadClaim(pvc, s.mq.UID)
		if err != nil || ownership(s.mq, pvc) != ours {
			s.notOurs(plan.KindClaim, pvc)
			continue
		}
		s.obs.Claims = append(s.obs.Claims, c)
	}
	slices.SortFunc(s.obs.Claims, func(a, b plan.Claim) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

func (r *MetadataQuorumReconciler) observePods(ctx context.Context, s *scene) error {
	var list corev1.PodList
	if err := r.APIReader.List(ctx, &list, s.labelled()...); err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		id, ok := resources.NodeID(pod.Labels)
		switch {
		case !ok:
			// A Pod of a user who borrowed the label; if it has a name that we need, making ours will tell.
		case ownership(s.mq, pod) != ours:
			s.notOurs(plan.KindPod, pod)
		case pod.Labels[v1alpha1.LabelFormat] != "":
			s.obs.FormatPods = append(s.obs.FormatPods, formatPodFact(pod, id))
		default:
			s.obs.Pods = append(s.obs.Pods, memberPodFact(pod, id))
			if pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning {
				s.targets = append(s.targets, Target{NodeID: id, IP: pod.Status.PodIP, Host: resources.Host(s.mq, id)})
			}
		}
	}
	slices.SortFunc(s.obs.Pods, func(a, b plan.Pod) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.obs.FormatPods, func(a, b plan.FormatPod) int { return cmp.Compare(a.NodeID, b.NodeID) })
	slices.SortFunc(s.targets, func(a, b Target) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return nil
}

// observeRevisions finds the wanted revision and those to go back to.
func (r *MetadataQuorumReconciler) observeRevisions(ctx context.Context, s *scene) error {
	var list appsv1.ControllerRevisionList
	if err := r.APIReader.List(ctx, &list, s.labelled()...); err != nil {
		return fmt.Errorf("list ControllerRevisions: %w", err)
	}
	for _, rev := range list.Items {
		if ownership(s.mq, &rev) == ours {
			s.revisions = append(s.revisions, rev)
		} else {
			s.notOurs(plan.KindControllerRevision, &rev)
		}
	}
	slices.SortFunc(s.revisions, func(a, b appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	var configs corev1.ConfigMapList
	if err := r.List(ctx, &configs, s.labelled()...); err != nil {
		return fmt.Errorf("list ConfigMaps: %w", err)
	}
	config := map[string]*corev1.ConfigMap{}
	for i := range configs.Items {
		cm := &configs.Items[i]
		switch {
		case ownership(s.mq, cm) == ours:
			config[cm.Name] = cm
		case cm.Name != plan.IdentityName(s.mq.Name):
			s.notOurs(plan.KindConfigMap, cm)
		}
	}

	if err := s.resolveImage(); err != nil {
		return err
	}
	wanted := resources.RevisionName(s.mq, s.image)
	s.obs.Revision = plan.Revision{Name: wanted, Config: config[wanted] != nil}
	for i, rev := range s.revisions {
		if rev.Name == wanted {
			s.obs.Revision.Stored, s.obs.Revision.Newest = true, i == len(s.revisions)-1
			continue
		}
		old := plan.OldRevision{Name: rev.Name, UID: rev.UID}
		if cm := config[rev.Name]; cm != nil {
			old.Config = cm.UID
		}
		s.obs.Revisions = append(s.obs.Revisions, old)
	}
	if !s.obs.Revision.Stored {
		_, err := resources.Render(s.mq, s.clusterID(), s.image)
		var invalid *resources.InvalidTemplateError
		switch {
		case errors.As(err, &invalid):
			s.obs.Revision.Invalid = invalid.Error()
		case err != nil:
			return err
		}
	}
	return nil
}

func (s *scene) clusterID() string {
	if s.obs.Identity == nil {
		return ""
	}
	return s.obs.Identity.ClusterID
}

// resolveImage decides what members run: what the spec says; else, with
// upgradePolicy Follow, the operator's own; else what they run already: the
// newest revision's, before there is one the identity record's.
func (s *scene) resolveImage() error {
	spec := v1alpha1.Resolve(&s.mq.Spec)
	s.image = s.obs.Want.Image
	if spec.Image != nil || *spec.UpgradePolicy == v1alpha1.UpgradeFollow {
		return nil
	}
	if s.obs.Identity != nil {
		s.image = s.obs.Identity.Image
	}
	if n := len(s.revisions); n > 0 {
		newest, err := resources.ReadRevision(&s.revisions[n-1])
		if err != nil {
			return err
		}
		s.image = newest.Image
	}
	return nil
}

// observeShared compares the objects that belong to the quorum as a whole. The
// cache holds only what carries our label, so what it doesn't hold is asked for
// at the API server: it may be somebody else's.
func (r *MetadataQuorumReconciler) observeShared(ctx context.Context, s *scene) error {
	voters := int(s.obs.Want.Voters)
	if s.obs.Identity != nil {
		voters = len(s.obs.Identity.Voters)
	}
	s.shared = resources.Shared(s.mq, voters)
	for _, want := range s.shared {
		live := want.DeepCopyObject().(resources.Object)
		err := r.Get(ctx, client.ObjectKeyFromObject(want), live)
		if apierrors.IsNotFound(err) {
			err = r.APIReader.Get(ctx, client.ObjectKeyFromObject(want), live)
		}
		kind := resources.SharedKind(want)
		fact := plan.Shared{Kind: kind, Name: want.GetName(), UID: live.GetUID()}
		switch {
		case apierrors.IsNotFound(err):
			fact.State, fact.UID = plan.SharedAbsent, ""
		case err != nil:
			return fmt.Errorf("get %s %s: %w", kind, want.GetName(), err)
		case ownership(s.mq, live) != ours:
			s.notOurs(kind, live)
			continue
		case live.GetDeletionTimestamp() != nil:
			fact.State = plan.SharedDeleting
		case resources.Current(live, want):
			fact.State = plan.SharedCurrent
		default:
			fact.State = plan.SharedOutdated
		}
		s.obs.Shared = append(s.obs.Shared, fact)
	}
	return nil
}

// observeQuorum asks every member at once what it thinks of itself and of the
// quorum. An answer of another cluster, or of another member, comes from a
// process that has got the address of one of ours, and counts for nothing.
func (r *MetadataQuorumReconciler) observeQuorum(ctx context.Context, s *scene) {
	var answers []*status.Member
	if s.obs.Identity != nil {
		for i, m := range r.Admin.Look(ctx, s.targets) {
			if m != nil && m.ClusterID == s.obs.Identity.ClusterID && m.NodeID == s.targets[i].NodeID {
				answers = append(answers, m)
			}
		}
	}
	s.obs.Now = r.now()
	s.obs.View = viewOf(answers, s.obs.Now)
	s.handoff = newestHandoff(answers)
	s.obs.Handoff = handoffFact(s.handoff, s.obs.Memory, s.obs.Now)
}
