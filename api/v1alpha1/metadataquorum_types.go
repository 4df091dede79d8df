package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MetadataQuorum is a replicated metadata log: voters that agree on it, observers that follow it and serve reads.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.observers.replicas,statuspath=.status.observers.replicas,selectorpath=.status.observers.selector
// +kubebuilder:resource:path=metadataquorums,singular=metadataquorum,shortName=mq,categories=kraft
// +kubebuilder:printcolumn:name="Leader",type=integer,JSONPath=`.status.leader.nodeID`,description="Node id of the leader"
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.leader.epoch`,description="Epoch of the leader"
// +kubebuilder:printcolumn:name="Voters",type=string,JSONPath=`.status.summary.voters`,description="Voters that are caught up, of those in the voter set"
// +kubebuilder:printcolumn:name="Observers",type=string,JSONPath=`.status.summary.observers`,description="Observers that are ready, of those asked for"
// +kubebuilder:printcolumn:name="Updated",type=string,JSONPath=`.status.summary.updated`,description="Members that run what the spec asks for, of all"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="HW",type=integer,priority=1,JSONPath=`.status.quorum.highWatermark`,description="High watermark: every offset below it is committed"
// +kubebuilder:printcolumn:name="Lag",type=integer,priority=1,JSONPath=`.status.quorum.maxLag`,description="Offsets that the last voter is behind the leader"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.image`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",message="metadata.name must be at most 40 characters of a-z, 0-9 and '-', begin with a letter and not end with '-': names of Pods, host names and labels are derived from it; choose another name"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec.clusterID) || (has(self.spec.clusterID) && self.spec.clusterID == oldSelf.spec.clusterID)",message="spec.clusterID is immutable: put the old value back, or create another MetadataQuorum for the other cluster"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.spec.clusterID) || !has(self.spec.clusterID) || (has(self.status) && has(self.status.clusterID) && self.status.clusterID == self.spec.clusterID)",message="spec.clusterID can only be set later to the quorum's own id: copy status.clusterID, or leave it out"
type MetadataQuorum struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for. `spec: {}` is a quorum of three voters.
	// +required
	Spec MetadataQuorumSpec `json:"spec"`
	// Status is what the operator saw. Only the operator writes it.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status MetadataQuorumStatus `json:"status,omitempty"`
}

// MetadataQuorumList is a list of MetadataQuorum.
//
// +kubebuilder:object:root=true
type MetadataQuorumList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MetadataQuorum `json:"items"`
}

// MetadataQuorumSpec is what is asked for. Behind each field: its default, and what a change does.
//
// +kubebuilder:validation:XValidation:rule="(has(self.voters) && has(self.voters.replicas) ? self.voters.replicas : 3) == (has(oldSelf.voters) && has(oldSelf.voters.replicas) ? oldSelf.voters.replicas : 3)",message="voters.replicas cannot be changed yet (absent means 3): this release does not add or remove voters; put the old value back, or create a new MetadataQuorum of the wanted size. For more readers change observers.replicas"
// +kubebuilder:validation:XValidation:rule="(has(self.storage) && has(self.storage.size) ? string(self.storage.size) : '1Gi') == (has(oldSelf.storage) && has(oldSelf.storage.size) ? string(oldSelf.storage.size) : '1Gi')",message="storage.size is immutable (absent means 1Gi): put the old value back; to grow a volume, edit its PersistentVolumeClaim"
// +kubebuilder:validation:XValidation:rule="(has(self.storage) && has(self.storage.storageClassName) ? self.storage.storageClassName : '-') == (has(oldSelf.storage) && has(oldSelf.storage.storageClassName) ? oldSelf.storage.storageClassName : '-')",message="storage.storageClassName is immutable: put the old value back, or create a new MetadataQuorum"
// +kubebuilder:validation:XValidation:rule="(has(self.storage) && has(self.storage.accessMode) ? self.storage.accessMode : 'ReadWriteOnce') == (has(oldSelf.storage) && has(oldSelf.storage.accessMode) ? oldSelf.storage.accessMode : 'ReadWriteOnce')",message="storage.accessMode is immutable (absent means ReadWriteOnce): put the old value back, or create a new MetadataQuorum"
type MetadataQuorumSpec struct {
	// ClusterID adopts exactly this cluster's claims, and waits for them if there are none: a quorum is never
	// bootstrapped under a given id. Absent: claims that are there are adopted, else a new id is made and shown in
	// status. Kafka's form, 22 characters of base64url. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=22
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]{21}[AQgw]$`
	ClusterID *string `json:"clusterID,omitempty"`

	// Image runs the members. Absent: with upgradePolicy Manual the image that they run already (a new quorum: the
	// operator's own), with Follow the operator's own. Empty is as absent. A change rolls the members.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\S*$`
	Image *string `json:"image,omitempty"`

	// UpgradePolicy says whether a new operator may change the image of members when Image is absent.
	// Default: Manual. A change to Follow may roll the members.
	// +optional
	UpgradePolicy *UpgradePolicy `json:"upgradePolicy,omitempty"`

	// Voters agree on the log.
	// +optional
	Voters *VotersSpec `json:"voters,omitempty"`

	// Observers follow the log and serve reads; commits never wait for them. The scale subresource sets their number.
	// +optional
	// +kubebuilder:default={}
	Observers ObserversSpec `json:"observers,omitempty"`

	// Storage is the volume of each member, voters and observers alike.
	// +optional
	Storage *StorageSpec `json:"storage,omitempty"`

	// Raft holds timeouts of the protocol. A change rolls the members.
	// +optional
	Raft *RaftSpec `json:"raft,omitempty"`

	// Log holds settings of the log's files. A change rolls the members.
	// +optional
	Log *LogSpec `json:"log,omitempty"`

	// Rollout says how members are replaced. A change applies at once and restarts nobody, but for restartedAt.
	// +optional
	Rollout *RolloutSpec `json:"rollout,omitempty"`

	// PodTemplate is a fragment of a Pod template (metadata.labels, metadata.annotations, spec) for every member. What
	// the operator sets (identity, command, volumes, security floor) is laid over it; a conflict is
	// Stalled/InvalidTemplate. A change rolls the members.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	PodTemplate *runtime.RawExtension `json:"podTemplate,omitempty"`

	// Paused stops every write but that of status, until it is taken back. Default: false.
	// +optional
	Paused *bool `json:"paused,omitempty"`
}

// UpgradePolicy says who decides on a new image.
//
// +kubebuilder:validation:Enum=Manual;Follow
type UpgradePolicy string

// The policies.
const (
	// UpgradeManual: members keep their image until spec.image changes.
	UpgradeManual UpgradePolicy = "Manual"
	// UpgradeFollow: members follow the operator's own image.
	UpgradeFollow UpgradePolicy = "Follow"
)

// VotersSpec sizes the voter set.
type VotersSpec struct {
	// Replicas is the number of voters: 1, 3, 5 or 7. Default: 3. Immutable in this release.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self in [1, 3, 5, 7]",message="voters.replicas must be 1, 3, 5 or 7: an even number costs a voter and survives no further loss"
	Replicas *int32 `json:"replicas,omitempty"`
}

// ObserversSpec sizes the observers.
type ObserversSpec struct {
	// Replicas is the number of observers, 0 to 128. Set by kubectl scale, by an autoscaler, or here. Applied at once.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Replicas *int32 `json:"replicas,omitempty"`
}

// StorageSpec is the volume of each member.
type StorageSpec struct {
	// Size of each claim. Default: 1Gi. Immutable.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// StorageClassName of each claim. Default: the cluster's default class. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`
	// AccessMode of each claim. Default: ReadWriteOnce. Immutable.
	// +optional
	AccessMode *AccessMode `json:"accessMode,omitempty"`
	// WhenDeleted says what becomes of the claims when the MetadataQuorum is deleted. Default: Retain: the same
	// resource applied again has its data back. A change applies at once.
	// +optional
	WhenDeleted *RetentionPolicy `json:"whenDeleted,omitempty"`
	// WhenScaled says what becomes of the claim of an observer that is scaled away. Default: Retain: it is parked,
	// never used again, and yours to delete. A change applies at once, to claims parked before as well.
	// +optional
	WhenScaled *RetentionPolicy `json:"whenScaled,omitempty"`
}

// AccessMode is how a volume may be mounted.
//
// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteOncePod
type AccessMode string

// RetentionPolicy says whether claims outlive what used them.
//
// +kubebuilder:validation:Enum=Retain;Delete
type RetentionPolicy string

// The retention policies.
const (
	Retain RetentionPolicy = "Retain"
	Delete RetentionPolicy = "Delete"
)

// Duration is a length of time in Go's form, such as 250ms, 1.5s or 10m.
type Duration = metav1.Duration

// RaftSpec holds timeouts of the protocol, with Kafka's meaning. They must be longer than the longest pause of network
// and disk that should not cost an election.
//
// +kubebuilder:validation:XValidation:rule="duration(has(self.electionBackoffMax) ? self.electionBackoffMax : '1s') <= duration(has(self.fetchTimeout) ? self.fetchTimeout : '2s')",message="raft.electionBackoffMax (absent means 1s) must not be above raft.fetchTimeout (absent means 2s): lower the one or raise the other"
type RaftSpec struct {
	// ElectionTimeout is how long a candidate waits for votes. Default: 1s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('50ms') && duration(self) <= duration('1m')",message="raft.electionTimeout must be between 50ms and 1m"
	ElectionTimeout *Duration `json:"electionTimeout,omitempty"`
	// FetchTimeout is how long a follower goes without its leader before it asks for an election. Default: 2s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="raft.fetchTimeout must be between 100ms and 1m"
	FetchTimeout *Duration `json:"fetchTimeout,omitempty"`
	// ElectionBackoffMax bounds the random delay after a lost election. Default: 1s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1m')",message="raft.electionBackoffMax must be between 10ms and 1m"
	ElectionBackoffMax *Duration `json:"electionBackoffMax,omitempty"`
	// RequestTimeout is how long a member waits for the answer of another. Default: 2s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('5m')",message="raft.requestTimeout must be between 100ms and 5m"
	RequestTimeout *Duration `json:"requestTimeout,omitempty"`
	// AppendLinger is how long a leader may hold back an append to group it with others. Default: 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1s')",message="raft.appendLinger must be at most 1s"
	AppendLinger *Duration `json:"appendLinger,omitempty"`
}

// LogSpec holds settings of the log's files.
type LogSpec struct {
	// SegmentBytes is the size at which a new file of the log begins. Default: 1Gi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('8Mi')) >= 0 && quantity(string(self)).compareTo(quantity('2Gi')) < 0",message="log.segmentBytes must be at least 8Mi (one batch) and below 2Gi"
	SegmentBytes *resource.Quantity `json:"segmentBytes,omitempty"`
}

// RolloutSpec says how members are replaced.
type RolloutSpec struct {
	// Strategy is how. InPlace: a member keeps its identity and disk, one at a time, the leader last. Default: InPlace.
	// +optional
	Strategy *RolloutStrategy `json:"strategy,omitempty"`
	// Handoff bounds the transfer of leadership before the old leader's Pod goes.
	// +optional
	Handoff *HandoffSpec `json:"handoff,omitempty"`
	// MinReadySeconds is how long a replaced member must be ready and caught up before the next one goes. Default: 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
	// MemberTimeout is how long a replaced member may take to be ready and caught up before the quorum is called
	// Stalled. Nothing else is touched meanwhile, and a new spec is taken at once. Default: 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="rollout.memberTimeout must be at least 1m"
	MemberTimeout *Duration `json:"memberTimeout,omitempty"`
	// OnMemberFailure is what happens when a replaced member stays broken. Pause: the roll stops, says why, and waits
	// for a new spec. Default: Pause.
	// +optional
	OnMemberFailure *OnMemberFailure `json:"onMemberFailure,omitempty"`
	// RestartedAt asks for one roll: every member whose Pod is older is replaced. A time in the future is waited for.
	// +optional
	RestartedAt *metav1.Time `json:"restartedAt,omitempty"`
}

// RolloutStrategy is how members are replaced.
//
// +kubebuilder:validation:Enum=InPlace
type RolloutStrategy string

// RolloutInPlace restarts members on their own disks.
const RolloutInPlace RolloutStrategy = "InPlace"

// OnMemberFailure is what happens when a replaced member stays broken.
//
// +kubebuilder:validation:Enum=Pause
type OnMemberFailure string

// PauseOnFailure stops the roll.
const PauseOnFailure OnMemberFailure = "Pause"

// HandoffSpec bounds the transfer of leadership.
type HandoffSpec struct {
	// MaxPause is how long appends may be held back; beyond it the transfer is given up and nothing has happened.
	// Default: 250ms.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('2s')",message="rollout.handoff.maxPause must be between 10ms and 2s"
	MaxPause *Duration `json:"maxPause,omitempty"`
	// CatchUpTimeout is how long the successor may take to hold all that the leader has, before the pause begins.
	// Default: 10s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('5m')",message="rollout.handoff.catchUpTimeout must be between 100ms and 5m"
	CatchUpTimeout *Duration `json:"catchUpTimeout,omitempty"`
}
