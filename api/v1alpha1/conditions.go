package v1alpha1

// Condition types. Ready, Reconciling and Stalled follow kstatus: Ready is normal-true; Reconciling and Stalled are
// abnormal-true and absent when false.
const (
	// ConditionReady: the quorum serves, all wanted members are in it and run what the spec asks for.
	ConditionReady = "Ready"
	// ConditionReconciling: the spec isn't yet in effect, and the operator or time will bring it about.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: it waits for a person or a new spec.
	ConditionStalled = "Stalled"
	// ConditionBootstrapped: the quorum's log exists; once true, it stays.
	ConditionBootstrapped = "Bootstrapped"
	// ConditionQuorumAvailable: a majority of voters agrees on a leader that commits.
	ConditionQuorumAvailable = "QuorumAvailable"
	// ConditionSafeToRestart: all gates hold for the member that would be replaced next.
	ConditionSafeToRestart = "SafeToRestart"
	// ConditionPaused: spec.paused is set; absent when not.
	ConditionPaused = "Paused"
)

// Reasons of what the operator does, or has done. The planner chooses one a pass; Reconciling, Stalled and Ready carry
// it.
const (
	// ReasonUpToDate: nothing to do.
	ReasonUpToDate = "UpToDate"
	// ReasonDeleting: the resource is being deleted; the garbage collector takes its objects, claims stay unless
	// storage.whenDeleted says Delete.
	ReasonDeleting = "Deleting"
	// ReasonPaused: spec.paused is set.
	ReasonPaused = "Paused"
	// ReasonBootstrapping: identity, claims, formatting, first Pods.
	ReasonBootstrapping = "Bootstrapping"
	// ReasonApplying: shared objects or a revision are being written.
	ReasonApplying = "Applying"
	// ReasonCreatingMembers: Pods of wanted members are missing and being made.
	ReasonCreatingMembers = "CreatingMembers"
	// ReasonScalingObservers: observers are being added or taken away.
	ReasonScalingObservers = "ScalingObservers"
	// ReasonReplacingBroken: a member that contributes nothing is being replaced.
	ReasonReplacingBroken = "ReplacingBroken"
	// ReasonReplacing: a member is being replaced in the course of a roll.
	ReasonReplacing = "Replacing"
	// ReasonSingleVoterRestart: a quorum's only voter is being replaced; it is down meanwhile.
	ReasonSingleVoterRestart = "SingleVoterRestart"
	// ReasonHandingOff: the leader has been asked to hand over to an updated voter.
	ReasonHandingOff = "HandingOff"
	// ReasonVoterReplaced: a voter lost its disk; under its new directory id it follows as an observer.
	ReasonVoterReplaced = "VoterReplaced"
)

// Reasons of waiting: the gates of package plan, as reasons of SafeToRestart=False too.
const (
	// ReasonSafe: SafeToRestart=True, all gates hold.
	ReasonSafe = "Safe"
	// ReasonNoLeader: no voter answers, or none of them knows a leader.
	ReasonNoLeader = "NoLeader"
	// ReasonViewStale: the quorum's view is older than two seconds.
	ReasonViewStale = "ViewStale"
	// ReasonLeaderNotConfirmed: fewer than a majority of voters name the same leader in the same epoch.
	ReasonLeaderNotConfirmed = "LeaderNotConfirmed"
	// ReasonLeaderNotCommitting: the leader has not yet committed anything in its epoch.
	ReasonLeaderNotCommitting = "LeaderNotCommitting"
	// ReasonMemberTerminating: a member is still shutting down.
	ReasonMemberTerminating = "MemberTerminating"
	// ReasonMemberNotReady: a replaced member is not yet, or never gets, ready. Stalled when it's known to be broken, or
	// longer than rollout.memberTimeout.
	ReasonMemberNotReady = "MemberNotReady"
	// ReasonMemberNotCaughtUp: a replaced member does not yet hold what the leader has.
	ReasonMemberNotCaughtUp = "MemberNotCaughtUp"
	// ReasonSettling: a replaced member is ready and caught up, for less than rollout.minReadySeconds.
	ReasonSettling = "Settling"
	// ReasonQuorumAtStake: without this member too few voters would be left that are caught up.
	ReasonQuorumAtStake = "QuorumAtStake"
	// ReasonNoCaughtUpSuccessor: no updated voter is caught up, so the leader has nobody to hand over to.
	ReasonNoCaughtUpSuccessor = "NoCaughtUpSuccessor"
	// ReasonHandoffBackoff: the last handoff failed; the next attempt waits a while.
	ReasonHandoffBackoff = "HandoffBackoff"
	// ReasonLeadershipUnstable: the leader changed more than three times in this roll.
	ReasonLeadershipUnstable = "LeadershipUnstable"
	// ReasonDisruptionBudget: the Eviction API refused (429): a PodDisruptionBudget has no room.
	ReasonDisruptionBudget = "DisruptionBudget"
	// ReasonClaimDeleting: a claim is being deleted. Removing its Pod would let the data go.
	ReasonClaimDeleting = "ClaimDeleting"
	// ReasonOldOwner: an object of a deleted MetadataQuorum of the same name is not yet collected.
	ReasonOldOwner = "OldOwner"
	// ReasonNotBootstrapped: there is no quorum yet.
	ReasonNotBootstrapped = "NotBootstrapped"
)

// Reasons of Stalled: a person decides.
const (
	// ReasonNameConflict: an object that is not this quorum's has a name that the quorum needs.
	ReasonNameConflict = "NameConflict"
	// ReasonIdentityConflict: claims disagree with each other, with the record, or with spec.clusterID; or one was
	// restored or cloned.
	ReasonIdentityConflict = "IdentityConflict"
	// ReasonClaimsMissing: spec.clusterID names a cluster of which there are no claims.
	ReasonClaimsMissing = "ClaimsMissing"
	// ReasonMajorityLost: a majority of voters has lost its disks. Also of QuorumAvailable=False.
	ReasonMajorityLost = "MajorityLost"
	// ReasonDiskFull: a member's disk has less free space than its reserve, or its process ended with DISK_FULL. Also of
	// QuorumAvailable=False, when it is the leader's or costs the majority.
	ReasonDiskFull = "DiskFull"
	// ReasonInvalidTemplate: spec.podTemplate breaks a field that the operator sets, or the API server refuses the Pod.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonFormatFailed: a claim could not be formatted.
	ReasonFormatFailed = "FormatFailed"
	// ReasonTerminatingOnLostNode: a Pod has been shutting down for more than twice its grace period.
	ReasonTerminatingOnLostNode = "TerminatingOnLostNode"
)

// Reasons of Ready, Bootstrapped and QuorumAvailable that the report finds.
const (
	// ReasonAvailable: QuorumAvailable=True.
	ReasonAvailable = "Available"
	// ReasonNoMajorityReady: fewer than a majority of voters run and can append, and no fault that they tell of is why.
	ReasonNoMajorityReady = "NoMajorityReady"
	// ReasonBootstrapped: Bootstrapped=True.
	ReasonBootstrapped = "Bootstrapped"
	// ReasonMembersNotReady: the spec is in effect, and a member is not ready or not caught up.
	ReasonMembersNotReady = "MembersNotReady"
	// ReasonActionFailed: the last pass could not carry out its step; it is tried again.
	ReasonActionFailed = "ActionFailed"
)

// The longest messages a condition takes are far longer than ours. The token that a member writes to its termination log
// when it ends on a fault (CLUSTER_ID_MISMATCH, LOG_CORRUPT, DISK_IO_ERROR, …) appears in messages as it is, and as a reason
// in camel case (ClusterIDMismatch, LogCorrupt, DiskIOError, …): of Stalled and SafeToRestart=False while a member is down
// with it, and of QuorumAvailable=False when it costs the majority.

// Labels and annotations. Selectors use labels; identity is in annotations, since base64url is no label value.
const (
	// LabelQuorum is on every object: the name of the MetadataQuorum.
	LabelQuorum = "kraft-operator.io/quorum"
	// LabelNodeID is on Pods and claims: the member's node id.
	LabelNodeID = "kraft-operator.io/node-id"
	// LabelPool is on Pods and claims: voters or observers, fixed by the node id. On format Pods, too, since they choose
	// the node of their member's volume.
	LabelPool = "kraft-operator.io/pool"
	// LabelFormat is on one-shot Pods that format a claim.
	LabelFormat = "kraft-operator.io/format"

	// AnnotationRevision is on Pods: the ControllerRevision it was made from.
	AnnotationRevision = "kraft-operator.io/revision"
	// AnnotationRestartedAt is on Pods: the spec.rollout.restartedAt that was in force when it was made.
	AnnotationRestartedAt = "kraft-operator.io/restarted-at"
	// AnnotationClusterID is on claims and on the identity record.
	AnnotationClusterID = "kraft-operator.io/cluster-id"
	// AnnotationDirectoryID is on initial claims: the directory id that format writes.
	AnnotationDirectoryID = "kraft-operator.io/directory-id"
	// AnnotationInitialVoters is on every claim: the whole planned voter set, as JSON.
	AnnotationInitialVoters = "kraft-operator.io/initial-voters"
	// AnnotationImage is on claims: the pinned image of the identity record.
	AnnotationImage = "kraft-operator.io/image"
	// AnnotationFormatted is on initial claims whose format succeeded: the claim's own UID.
	AnnotationFormatted = "kraft-operator.io/formatted"
	// AnnotationParked is on claims that are never to be used again.
	AnnotationParked = "kraft-operator.io/parked"
	// AnnotationSeal is on the identity record: the UIDs of the initial claims, as JSON, once all of them existed.
	AnnotationSeal = "kraft-operator.io/seal"
	// AnnotationClaimUID is on format Pods: the UID of the claim at the time the Pod was made.
	AnnotationClaimUID = "kraft-operator.io/claim-uid"
)

// PoolVoters and PoolObservers are the values of LabelPool.
const (
	PoolVoters    = "voters"
	PoolObservers = "observers"
	// FirstObserverID is the first node id of observers; all below are voters'.
	FirstObserverID int32 = 1000
)

// Pool is the pool that a node id belongs to.
func Pool(nodeID int32) string {
	if nodeID >= FirstObserverID {
		return PoolObservers
	}
	return PoolVoters
}
