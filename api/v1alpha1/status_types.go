package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MetadataQuorumStatus is what the operator saw. Offsets are refreshed along with other changes, or 30 seconds after the
// last write; nothing in it steers the operator but the counters in rollout, and it may be deleted at any time.
type MetadataQuorumStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Summary holds counts for people.
	// +optional
	Summary *SummaryStatus `json:"summary,omitempty"`
	// ClusterID is the quorum's identity, from the record in ConfigMap <name>-identity.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// Effective is the spec as the operator reads it, defaults filled in.
	// +optional
	Effective *EffectiveStatus `json:"effective,omitempty"`
	// Image is what members are made with.
	// +optional
	Image string `json:"image,omitempty"`
	// Revision is the ControllerRevision that members are made from.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Leader is absent while none is known.
	// +optional
	Leader *LeaderStatus `json:"leader,omitempty"`
	// Quorum holds the numbers of the log, as the leader tells them.
	// +optional
	Quorum *QuorumStatus `json:"quorum,omitempty"`
	// Observers feeds the scale subresource.
	// +optional
	Observers *ObserversStatus `json:"observers,omitempty"`
	// Members has one entry for each member that exists or should, by node id: all voters, and as many observers as
	// spec.observers.replicas takes (128). observers counts all of them.
	// +optional
	// +listType=map
	// +listMapKey=nodeID
	Members []MemberStatus `json:"members,omitempty"`
	// Rollout tells of the current roll, or the last one.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, Bootstrapped, QuorumAvailable, SafeToRestart, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// EffectiveStatus is the spec as the operator reads it: what was left out has its default. The image, which depends on
// more than the spec, stands beside it.
type EffectiveStatus struct {
	// UpgradePolicy in force.
	UpgradePolicy UpgradePolicy `json:"upgradePolicy"`
	// Voters that a new quorum starts with; members shows those of this one.
	Voters int32 `json:"voters"`
	// Observers asked for.
	Observers int32 `json:"observers"`
	// Storage of each member.
	Storage EffectiveStorage `json:"storage"`
	// Raft timeouts.
	Raft EffectiveRaft `json:"raft"`
	// SegmentBytes of the log.
	SegmentBytes string `json:"segmentBytes"`
	// Rollout settings.
	Rollout EffectiveRollout `json:"rollout"`
}

// EffectiveStorage is spec.storage with defaults.
type EffectiveStorage struct {
	Size string `json:"size"`
	// StorageClassName is empty for the cluster's default class.
	// +optional
	StorageClassName string          `json:"storageClassName,omitempty"`
	AccessMode       AccessMode      `json:"accessMode"`
	WhenDeleted      RetentionPolicy `json:"whenDeleted"`
	WhenScaled       RetentionPolicy `json:"whenScaled"`
}

// EffectiveRaft is spec.raft with defaults.
type EffectiveRaft struct {
	ElectionTimeout    metav1.Duration `json:"electionTimeout"`
	FetchTimeout       metav1.Duration `json:"fetchTimeout"`
	ElectionBackoffMax metav1.Duration `json:"electionBackoffMax"`
	RequestTimeout     metav1.Duration `json:"requestTimeout"`
	AppendLinger       metav1.Duration `json:"appendLinger"`
}

// EffectiveRollout is spec.rollout with defaults.
type EffectiveRollout struct {
	Strategy        RolloutStrategy `json:"strategy"`
	MaxPause        metav1.Duration `json:"maxPause"`
	CatchUpTimeout  metav1.Duration `json:"catchUpTimeout"`
	MinReadySeconds int32           `json:"minReadySeconds"`
	MemberTimeout   metav1.Duration `json:"memberTimeout"`
	OnMemberFailure OnMemberFailure `json:"onMemberFailure"`
}

// SummaryStatus holds counts as people read them, such as 3/3.
type SummaryStatus struct {
	// Voters that are caught up, of those in the voter set.
	Voters string `json:"voters"`
	// Observers that are ready, of those asked for.
	Observers string `json:"observers"`
	// Updated is the number of members that run what the spec asks for, of all.
	Updated string `json:"updated"`
}

// LeaderStatus is who leads.
type LeaderStatus struct {
	// NodeID of the leader.
	NodeID int32 `json:"nodeID"`
	// Epoch it leads in.
	Epoch int32 `json:"epoch"`
	// Pod that runs it; empty if none of the quorum's Pods does.
	// +optional
	Pod string `json:"pod,omitempty"`
	// ConfirmedBy is the number of voters that named this leader in this epoch.
	ConfirmedBy int32 `json:"confirmedBy"`
}

// QuorumStatus holds the numbers of the log.
type QuorumStatus struct {
	// Size is the number of voters in the voter set.
	Size int32 `json:"size"`
	// Majority is how many of them commit.
	Majority int32 `json:"majority"`
	// Contributing voters are caught up in the leader's epoch.
	Contributing int32 `json:"contributing"`
	// HighWatermark: every offset below it is committed. -1: unknown.
	HighWatermark int64 `json:"highWatermark"`
	// LogEndOffset of the leader. -1: unknown.
	LogEndOffset int64 `json:"logEndOffset"`
	// MaxLag is how many offsets the last voter is behind. -1: unknown.
	MaxLag int64 `json:"maxLag"`
}

// ObserversStatus feeds the scale subresource.
type ObserversStatus struct {
	// Replicas is the number of observer Pods.
	Replicas int32 `json:"replicas"`
	// Ready is how many of them are ready.
	Ready int32 `json:"ready"`
	// Selector selects them.
	Selector string `json:"selector"`
}

// MemberRole is what a member is to the quorum.
//
// +kubebuilder:validation:Enum=Voter;Observer
type MemberRole string

// The roles. A voter that lost its disk is an observer until it is voted in under its new directory id.
const (
	RoleVoter    MemberRole = "Voter"
	RoleObserver MemberRole = "Observer"
)

// MemberStatus is one member.
type MemberStatus struct {
	// NodeID of the member: voters from 0, observers from 1000.
	NodeID int32 `json:"nodeID"`
	// Role in the voter set, by node id and directory id.
	Role MemberRole `json:"role"`
	// DirectoryID of its disk, as far as known.
	// +optional
	DirectoryID string `json:"directoryID,omitempty"`
	// Pod that runs it; empty while there is none.
	// +optional
	Pod string `json:"pod,omitempty"`
	// Claim that holds its disk.
	// +optional
	Claim string `json:"claim,omitempty"`
	// Node that the Pod is on.
	// +optional
	Node string `json:"node,omitempty"`
	// Revision that the Pod was made from.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Ready is the Pod's own condition.
	Ready bool `json:"ready"`
	// CaughtUp: it holds what the leader has, by offset, within the fetch timeout.
	CaughtUp bool `json:"caughtUp"`
	// LogEndOffset as the leader knows it. -1: unknown.
	LogEndOffset int64 `json:"logEndOffset"`
	// Lag is how many offsets it is behind. -1: unknown.
	Lag int64 `json:"lag"`
	// Message is what keeps it from running, or from storing.
	// +optional
	Message string `json:"message,omitempty"`
}

// RolloutStatus tells of the current roll, or the last one.
type RolloutStatus struct {
	// Revision that this roll leads to.
	// +optional
	Revision string `json:"revision,omitempty"`
	// RestartedAt that this roll leads to.
	// +optional
	RestartedAt *metav1.Time `json:"restartedAt,omitempty"`
	// StartedAt is when the first outdated member was seen.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// CompletedAt is when the last one was replaced and had settled; absent while the roll is on.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// LeaderChanges seen during this roll, the handoff included.
	// +optional
	LeaderChanges int32 `json:"leaderChanges,omitempty"`
	// Epoch is the last one that was looked at for LeaderChanges.
	// +optional
	Epoch int32 `json:"epoch,omitempty"`
	// LastLeaderChange is when the last of them was seen.
	// +optional
	LastLeaderChange *metav1.Time `json:"lastLeaderChange,omitempty"`
	// HandoffFailures since the last success; they space out further attempts.
	// +optional
	HandoffFailures int32 `json:"handoffFailures,omitempty"`
	// LastHandoff is the last transfer of leadership that ended, asked for by the operator or not.
	// +optional
	LastHandoff *HandoffStatus `json:"lastHandoff,omitempty"`
}

// HandoffOutcome is how a transfer ended.
//
// +kubebuilder:validation:Enum=Succeeded;Failed
type HandoffOutcome string

// The outcomes. Failed: it was given up before the leader resigned, and nothing happened.
const (
	HandoffSucceeded HandoffOutcome = "Succeeded"
	HandoffFailed    HandoffOutcome = "Failed"
)

// HandoffStatus is one transfer of leadership.
type HandoffStatus struct {
	// ID that the quorum gave it.
	// +optional
	ID string `json:"id,omitempty"`
	// From is the node id of the old leader.
	From int32 `json:"from"`
	// To is the node id of the new one.
	To int32 `json:"to"`
	// FromEpoch is the old leader's epoch.
	FromEpoch int32 `json:"fromEpoch"`
	// ToEpoch is the new leader's epoch; absent if the transfer failed.
	// +optional
	ToEpoch int32 `json:"toEpoch,omitempty"`
	// WriteGap is how long no append was answered: from the pause to the first commit of the new epoch.
	// +optional
	WriteGap *metav1.Duration `json:"writeGap,omitempty"`
	// MeasuredBy is who measured WriteGap, each on its own monotonic clock: OldLeader, or Successor (from the leader's
	// resignation on).
	// +optional
	MeasuredBy string `json:"measuredBy,omitempty"`
	// At is when it ended.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
	// Outcome is how it ended.
	Outcome HandoffOutcome `json:"outcome"`
	// Message is why it failed.
	// +optional
	Message string `json:"message,omitempty"`
}
