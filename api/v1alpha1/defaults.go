package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of the fields that the schema leaves open.
const (
	DefaultVoters          int32 = 3
	DefaultMinReadySeconds int32 = 10

	DefaultElectionTimeout    = time.Second
	DefaultFetchTimeout       = 2 * time.Second
	DefaultElectionBackoffMax = time.Second
	DefaultRequestTimeout     = 2 * time.Second
	DefaultAppendLinger       = time.Duration(0)
	DefaultMemberTimeout      = 10 * time.Minute
	DefaultHandoffMaxPause    = 250 * time.Millisecond
	DefaultHandoffCatchUp     = 10 * time.Second
)

var (
	defaultStorageSize  = resource.MustParse("1Gi")
	defaultSegmentBytes = resource.MustParse("1Gi")
)

// Resolve returns spec with every default filled in, but for those that are decided by more than the spec: ClusterID,
// Image, StorageClassName, PodTemplate and RestartedAt stay absent. The result is for reading, it's never written back.
func Resolve(spec *MetadataQuorumSpec) *MetadataQuorumSpec {
	s := spec.DeepCopy()
	if s.Image != nil && *s.Image == "" { // as templates leave it
		s.Image = nil
	}
	fill(&s.UpgradePolicy, UpgradeManual)
	fill(&s.Voters, VotersSpec{})
	fill(&s.Voters.Replicas, DefaultVoters)
	fill(&s.Observers.Replicas, 0)
	fill(&s.Storage, StorageSpec{})
	fill(&s.Storage.Size, defaultStorageSize.DeepCopy())
	fill(&s.Storage.AccessMode, "ReadWriteOnce")
	fill(&s.Storage.WhenDeleted, Retain)
	fill(&s.Storage.WhenScaled, Retain)
	fill(&s.Raft, RaftSpec{})
	fillDuration(&s.Raft.ElectionTimeout, DefaultElectionTimeout)
	fillDuration(&s.Raft.FetchTimeout, DefaultFetchTimeout)
	fillDuration(&s.Raft.ElectionBackoffMax, DefaultElectionBackoffMax)
	fillDuration(&s.Raft.RequestTimeout, DefaultRequestTimeout)
	fillDuration(&s.Raft.AppendLinger, DefaultAppendLinger)
	fill(&s.Log, LogSpec{})
	fill(&s.Log.SegmentBytes, defaultSegmentBytes.DeepCopy())
	fill(&s.Rollout, RolloutSpec{})
	fill(&s.Rollout.Strategy, RolloutInPlace)
	fill(&s.Rollout.MinReadySeconds, DefaultMinReadySeconds)
	fillDuration(&s.Rollout.MemberTimeout, DefaultMemberTimeout)
	fill(&s.Rollout.OnMemberFailure, PauseOnFailure)
	fill(&s.Rollout.Handoff, HandoffSpec{})
	fillDuration(&s.Rollout.Handoff.MaxPause, DefaultHandoffMaxPause)
	fillDuration(&s.Rollout.Handoff.CatchUpTimeout, DefaultHandoffCatchUp)
	fill(&s.Paused, false)
	return s
}

// Effective is what status shows of a spec: every value, given or default.
func Effective(spec *MetadataQuorumSpec) *EffectiveStatus {
	s := Resolve(spec)
	e := &EffectiveStatus{
		UpgradePolicy: *s.UpgradePolicy,
		Voters:        *s.Voters.Replicas,
		Observers:     *s.Observers.Replicas,
		Storage: EffectiveStorage{
			Size: s.Storage.Size.String(), AccessMode: *s.Storage.AccessMode,
			WhenDeleted: *s.Storage.WhenDeleted, WhenScaled: *s.Storage.WhenScaled,
		},
		Raft: EffectiveRaft{
			ElectionTimeout: *s.Raft.ElectionTimeout, FetchTimeout: *s.Raft.FetchTimeout,
			ElectionBackoffMax: *s.Raft.ElectionBackoffMax, RequestTimeout: *s.Raft.RequestTimeout,
			AppendLinger: *s.Raft.AppendLinger,
		},
		SegmentBytes: s.Log.SegmentBytes.String(),
		Rollout: EffectiveRollout{
			Strategy: *s.Rollout.Strategy, MaxPause: *s.Rollout.Handoff.MaxPause, CatchUpTimeout: *s.Rollout.Handoff.CatchUpTimeout,
			MinReadySeconds: *s.Rollout.MinReadySeconds, MemberTimeout: *s.Rollout.MemberTimeout, OnMemberFailure: *s.Rollout.OnMemberFailure,
		},
	}
	if s.Storage.StorageClassName != nil {
		e.Storage.StorageClassName = *s.Storage.StorageClassName
	}
	return e
}

func fill[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func fillDuration(field **Duration, value time.Duration) {
	fill(field, metav1.Duration{Duration: value})
}
