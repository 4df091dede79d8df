package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Observation is one consistent look at one quorum: what is asked for, what the API server holds and what the
// quorum says of itself. Whoever fills it in sorts every list as its comment says, so that equal worlds give equal
// steps, and reads Identity, Claims, Pods and FormatPods uncached: a decision on a stale copy of these restarts a
// second voter, or gives a second claim the right to format.
type Observation struct {
	Now time.Time // the operator's clock, at the end of the reads

	Want     Want
	Identity *Identity // the record read from ConfigMap <name>-identity; nil: there is none that is ours
	// Unreadable is why a record that is ours can't be read, since a person has edited it; "" if it can.
	Unreadable string
	Claims     []Claim // that carry this quorum's label, by node id, then name; those of an old owner stand in Conflicts
	Pods       []Pod   // member pods of this owner, by node id, then name
	// FormatPods are the one-shot pods of this owner, by node id.
	FormatPods []FormatPod
	Shared     []Shared // every shared object that should exist, by kind, then name
	Conflicts  []Conflict
	Revision   Revision // the wanted one: what every pod should have been made from
	Revisions  []OldRevision

	View    *View    // nil: no voter answered
	Handoff *Handoff // the newest handoff that the quorum tells of (/v1/status), nil: none
	Memory  Memory   // what facts can't tell; from status.rollout, written back by Remember
}

// Want is the custom resource with its defaults resolved (v1alpha1.Resolve) and names derived from it.
type Want struct {
	Name     string
	UID      types.UID // of the custom resource; ids and claim names are derived from it
	Deleting bool      // the custom resource has a deletion time
	Paused   bool

	ClusterID   string // spec.clusterID; "": any
	Image       string // that a new quorum pins in its identity record: spec.image, else the operator's own
	Voters      int32  // how many a new quorum starts with; an existing one's members come from its record and log
	Observers   int32
	RestartedAt time.Time // spec.rollout.restartedAt; zero: never

	FetchTimeout    time.Duration // raft.fetchTimeout: a voter that was caught up longer ago than this doesn't contribute
	MinReady        time.Duration // rollout.minReadySeconds
	MemberTimeout   time.Duration // rollout.memberTimeout
	HandoffMaxPause time.Duration // rollout.handoff.maxPause
	HandoffCatchUp  time.Duration // rollout.handoff.catchUpTimeout

	DeleteWithQuorum bool // storage.whenDeleted: Delete: claims get an owner reference
	DeleteWhenScaled bool // storage.whenScaled: Delete: a parked claim is deleted once its pod is gone
}

// Identity is who the quorum is: written once, immutable, before anything else is made. Its seal (an annotation,
// which immutability leaves open) says that all initial claims existed, and under which UIDs. What is missing after
// the seal was lost, not "not made yet", and is never given the right to format again.
type Identity struct {
	UID       types.UID // of the ConfigMap
	ClusterID string
	Image     string         // the image that the first revision was made with
	Voters    []InitialVoter // by node id
	Sealed    bool
}

// InitialVoter is one member of the first voter set, and the claim that may be formatted as such, once.
type InitialVoter struct {
	NodeID      int32
	Claim       string    // name of its claim
	DirectoryID string    // planned: format writes it to the disk
	ClaimUID    types.UID // from the seal; "" before it, and for a claim that was already lost when the record was rebuilt
}

// Claim is one PersistentVolumeClaim with this quorum's label. Everything but Deleting and Owned is read from labels
// and annotations that the operator wrote with Create (Formatted, Parked: later).
type Claim struct {
	Name   string
	UID    types.UID
	NodeID int32

	ClusterID string
	Image     string // pinned image of the identity record, so that the record can be rebuilt
	// Initial is the planned first voter set, without claim UIDs. Every claim carries it, an observer's too, so that
	// any of them is enough to rebuild the record; only those named in it may be formatted as initial voters.
	Initial []InitialVoter
	// FormattedFor is the claim UID for which a successful format was recorded, "" for none. Another UID than the
	// claim's own means a restored or cloned object.
	FormattedFor types.UID
	Parked       bool
	Owned        bool // has an owner reference to this custom resource
	Deleting     bool
}

// Pod is one member pod, never a format pod.
type Pod struct {
	Name   string
	UID    types.UID
	NodeID int32
	Claim  string // name of the claim it mounts

	Revision    string    // from its annotation: the ControllerRevision it was made from
	RestartedAt time.Time // from its annotation: the restartedAt in force when it was made, zero if none
	Created     time.Time
	Started     time.Time // when the running container started, zero if none runs

	Phase       corev1.PodPhase
	Running     bool      // the member's container runs right now (not waiting, not terminated)
	Ready       bool      // condition Ready
	ReadySince  time.Time // its last transition, when Ready
	Terminating bool
	// TerminatingSince is the deletion timestamp less the grace period: when the delete was asked for.
	TerminatingSince time.Time
	// Grace is terminationGracePeriodSeconds.
	Grace time.Duration
	Node  string
	IP    string
	// Problem is what keeps it from running, in the kubelet's or scheduler's word: ImagePullBackOff, ErrImagePull,
	// InvalidImageName, CreateContainerConfigError, CrashLoopBackOff, Unschedulable, …; "" if nothing is known.
	Problem string
	// Token is the upper-case word of the last termination message, such as CLUSTER_ID_MISMATCH; "" for none.
	Token string
}

// FormatPod is one one-shot pod, which formats one claim as an initial voter's.
type FormatPod struct {
	Name        string
	UID         types.UID
	NodeID      int32
	Claim       string
	ClaimUID    types.UID // annotation: UID of the claim at the time the pod was made
	Revision    string    // annotation
	Phase       corev1.PodPhase
	Finished    time.Time // when its container ended, zero if it didn't
	Terminating bool
	Problem     string // as in Pod
	Token       string // as in Pod
}

// Kind names the kinds of objects the operator makes, for messages and for act.
type Kind string

// The kinds.
const (
	KindPod                Kind = "Pod"
	KindClaim              Kind = "PersistentVolumeClaim"
	KindConfigMap          Kind = "ConfigMap"
	KindService            Kind = "Service"
	KindServiceAccount     Kind = "ServiceAccount"
	KindBudget             Kind = "PodDisruptionBudget"
	KindControllerRevision Kind = "ControllerRevision"
)

// Shared is one object that belongs to the quorum and not to one member: Services, ServiceAccount, budgets.
type Shared struct {
	Kind  Kind
	Name  string
	UID   types.UID   // of the live object, "" if absent
	State SharedState // against what package resources renders now
}

// SharedState says how a live shared object relates to the rendered one.
type SharedState string

// The states. An object that is somebody else's is listed in Conflicts and left out of Shared.
const (
	SharedAbsent   SharedState = "Absent"
	SharedCurrent  SharedState = "Current"
	SharedOutdated SharedState = "Outdated"
	SharedDeleting SharedState = "Deleting"
)

// Conflict is an object that has a name of ours and is not ours, by kind, then name.
type Conflict struct {
	Kind Kind
	Name string
	// OldOwner: controlled by a MetadataQuorum of this name with another UID. The garbage collector is at work, so
	// it's waited for. Otherwise it is anybody's, and a person has to say which of the two goes.
	OldOwner bool
}

// Revision is the wanted revision: the one whose input hash equals the hash of the user's inputs now.
type Revision struct {
	Name    string // of the ControllerRevision and of the ConfigMap with its properties; the pods' annotation
	Stored  bool   // the ControllerRevision exists
	Newest  bool   // no other has a higher number; an absent image is taken from the newest
	Config  bool   // its immutable ConfigMap exists
	Invalid string // why it can't be rendered (podTemplate breaks a protected field); "" if it can
}

// OldRevision is a stored revision other than the wanted one, by number, oldest first.
type OldRevision struct {
	Name   string
	UID    types.UID
	Config types.UID // of its ConfigMap, "" if gone
}

// View is what the quorum says of itself. The leader's own account (DescribeQuorum), plus the question "who leads, in
// which epoch?" put to each voter one by one.
type View struct {
	Leader      int32 // node id, -1: none known
	Epoch       int32
	ConfirmedBy int32 // voters that named this leader in this epoch, the leader included
	At          time.Time

	// Committed: the high watermark is beyond the start of this epoch, so what the leader tells of it is true.
	Committed     bool
	HighWatermark int64 // -1: unknown
	LogEnd        int64 // of the leader
	Voters        []Progress
	Observers     []Progress

	// What members say of their own disks, by node id.
	BelowReserve []int32 // these have less free space than their reserve, and append nothing
	Emptied      []int32 // these are voters by node id and not by directory id: their disks are not those of the voter set
}

// Progress is how far one replica follows, as its leader knows it; by node id, then directory id. Times are ages by the
// leader's own clock, so that no clock is compared with another's.
type Progress struct {
	NodeID      int32
	DirectoryID string
	LogEnd      int64          // its fetch offset; -1: unknown
	CaughtUpAge *time.Duration // since it last held all the leader had; nil: never, or unknown. The leader's own is 0
}

// Handoff is the newest transfer of leadership that the leader, or its successor, reports.
type Handoff struct {
	ID        string
	From, To  int32
	FromEpoch int32
	Running   bool
	Succeeded bool   // meaningful when not Running
	Reason    string // of a failure, one line
	Ended     time.Time
}

// Memory is what facts can't tell. It lives in status.rollout; losing it costs a second chance to a flapping
// leadership and a second handoff attempt without back-off, nothing else.
type Memory struct {
	Revision      string // that the counts below speak of: a new spec starts anew
	LeaderChanges int32  // changes of epoch that were seen during this roll, the handoff's included
	Epoch         int32  // the last one seen, 0: none yet
	// LastLeaderChange is when that epoch was seen first.
	LastLeaderChange time.Time
	// HandoffFailures counts failed attempts since the last success, for the back-off.
	HandoffFailures int32
	LastHandoffID   string    // the last ended handoff that was counted
	LastHandoffEnd  time.Time // when it was counted
}
