package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Action is one write. The set is closed, so that act and its tests can be complete. Each carries its fence: what
// must still be true when it's carried out, or the write has to be refused by the API server or by the quorum.
//
//sumtype:decl
type Action interface{ action() }

type (
	// CreateIdentity writes ConfigMap <name>-identity with Create. AlreadyExists and ours: read it, next pass uses it.
	CreateIdentity struct {
		Identity Identity // UID empty; ClaimUIDs and Sealed filled in only when the record is rebuilt from claims
	}
	// SealIdentity annotates the identity record with the UIDs of the initial claims, all of which exist.
	// Fence: the record's UID.
	SealIdentity struct {
		UID    types.UID
		Voters []InitialVoter // with ClaimUID
	}

	// CreateShared makes an absent shared object with Create.
	CreateShared struct {
		Kind Kind
		Name string
	}
	// ApplyShared brings an outdated shared object to what is rendered now. Fence: UID.
	ApplyShared struct {
		Kind Kind
		Name string
		UID  types.UID
	}

	// CreateRevision renders the user's inputs once and stores them: the ControllerRevision, then the immutable
	// ConfigMap with its properties, whichever of the two is absent (a ConfigMap is made again from stored bytes).
	CreateRevision struct{ Name string }
	// RaiseRevision gives a stored revision the highest number, since the user's inputs went back to it.
	RaiseRevision struct{ Name string }
	// DeleteRevision removes one that no pod uses and that is too old to go back to, with its ConfigMap.
	DeleteRevision struct {
		Name   string
		UID    types.UID
		Config types.UID
	}

	// CreateClaim makes a PersistentVolumeClaim with Create, with everything that a later operator needs to rebuild
	// the record.
	CreateClaim struct {
		Name      string
		NodeID    int32
		ClusterID string
		Image     string
		Initial   []InitialVoter // the planned first voter set, on every claim; see Claim.Initial
	}
	// OwnClaim adds or removes the owner reference, as storage.whenDeleted asks. Fence: UID.
	OwnClaim struct {
		Name string
		UID  types.UID
		Own  bool
	}
	// ParkClaim marks a claim as never to be used again. It comes before the removal of its pod. Fence: UID.
	ParkClaim struct {
		Name string
		UID  types.UID
	}
	// DeleteClaim deletes a parked claim. Fence: UID.
	DeleteClaim struct {
		Name string
		UID  types.UID
	}

	// CreateFormatPod makes the one-shot pod <name>-<nodeID>-format from the wanted revision.
	CreateFormatPod struct {
		NodeID   int32
		Claim    string
		ClaimUID types.UID      // annotated on the pod
		Revision string         // made from it
		Cluster  string         // --cluster-id
		Initial  []InitialVoter // --initial-controllers
	}
	// RecordFormatted annotates the claim with its own UID: its right to format is used. Fence: UID.
	RecordFormatted struct {
		Claim string
		UID   types.UID
	}
	// DeleteFormatPod removes a one-shot pod that has done its work, failed or is outdated. Fence: UID.
	DeleteFormatPod struct {
		Pod string
		UID types.UID
	}

	// CreateMemberPod makes a member from a stored revision. RestartedAt is annotated when not zero.
	CreateMemberPod struct {
		NodeID      int32
		Claim       string
		Revision    string
		RestartedAt time.Time
	}
	// CheckPod creates the member's next pod with a server-side dry run (under another name), before anything is
	// removed for a revision that no pod runs yet. A refusal is the user's to mend: Stalled/InvalidTemplate.
	CheckPod struct {
		NodeID   int32
		Claim    string
		Revision string
	}

	// EvictPod removes a contributing member through the Eviction API, so that it can't race a drain. 429: wait.
	// Fence: UID.
	EvictPod struct {
		Pod    string
		UID    types.UID
		NodeID int32
	}
	// DeletePod removes a member that contributes nothing, or a quorum's only voter. Default grace, background
	// propagation. Fence: UID.
	DeletePod struct {
		Pod    string
		UID    types.UID
		NodeID int32
	}
	// HandOff asks the leader to hand over. Fence: the epoch; a leader of another one refuses.
	HandOff struct {
		Leader         int32
		Epoch          int32
		Target         int32
		TargetDir      string
		Candidates     []int32 // best first, the target included
		MaxPause       time.Duration
		CatchUpTimeout time.Duration
	}
)

func (CreateIdentity) action()  {}
func (SealIdentity) action()    {}
func (CreateShared) action()    {}
func (ApplyShared) action()     {}
func (CreateRevision) action()  {}
func (RaiseRevision) action()   {}
func (DeleteRevision) action()  {}
func (CreateClaim) action()     {}
func (OwnClaim) action()        {}
func (ParkClaim) action()       {}
func (DeleteClaim) action()     {}
func (CreateFormatPod) action() {}
func (RecordFormatted) action() {}
func (DeleteFormatPod) action() {}
func (CreateMemberPod) action() {}
func (CheckPod) action()        {}
func (EvictPod) action()        {}
func (DeletePod) action()       {}
func (HandOff) action()         {}

// Disruptive reports whether carrying out a takes a member, or its leadership, away. A step has at most one such.
func Disruptive(a Action) bool {
	switch a.(type) {
	case EvictPod, DeletePod, HandOff:
		return true
	default:
		return false
	}
}
