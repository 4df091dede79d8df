package raft

import "time"

// Ready is the work a Node asks of its driver, to be done in the order of the fields: make Persist durable, truncate,
// append, start the flush, and only then send and answer. The core itself never lets a message out that needs an
// unfinished flush: it waits for Flushed. So a driver that keeps this order needs no rule of its own.
type Ready struct {
	Persist    *ElectionState  // must be durable before anything below happens
	Discard    bool            // give the download of a snapshot up, whatever became of it
	Chunk      *Chunk          // add to the download
	Verify     bool            // check the download and fsync it beside everything else, and report SnapshotVerified
	Install    *Install        // put the verified download into place
	Truncate   *Truncate       // cut the log
	EpochStart *OffsetAndEpoch // a new leader's epoch begins here: the log's epochs take note
	Appends    []Append        // in order
	Flush      bool            // fsync the log beside everything else and report Flushed; at most one is outstanding
	Answers    []Answer
	Sends      []Send

	HighWatermark int64 // Unknown, or the newest; tell readers if it grew
	Stopped       bool  // after Shutdown: the process may exit
	Fatal         *Fatal
}

// Truncate cuts the log to Offset. Generation grows by one with each; Flushed repeats it.
type Truncate struct {
	Offset     int64
	Generation uint64
}

// Chunk is the bytes of a FetchSnapshot response, to be added to the download of that snapshot; at position 0 it begins.
// If there is no room the driver reports SnapshotVerified with Failed.
type Chunk struct {
	Snapshot OffsetAndEpoch
	Position int64
	Fetched  Correlation
}

// Install makes the download one of the snapshots, durably. One that Replaces the log leaves an empty log behind that
// begins where the snapshot ends; Generation grows by one with each, as with Truncate.
type Install struct {
	Snapshot   OffsetAndEpoch
	Replaces   bool
	Generation uint64
}

// Append is one batch group to write at the log's end. Exactly one of its forms is set.
type Append struct {
	Proposal RequestID       // a client's batch, stamped with Base and Epoch
	Fetched  Correlation     // the first Count batches of that fetch response
	Count    int             // of fetched batches
	Control  []ControlRecord // a control batch that the driver encodes
	Base     int64
	Last     int64
	Epoch    Epoch
}

// Answer completes an Inbound, Propose, Barrier, Handoff or UpgradeKRaft.
type Answer struct {
	ID     RequestID
	Result any // a Response, ProposeResult, BarrierResult, HandoffAccepted or UpgradeResult
}

// ProposeResult answers Propose. On NotLeaderOrFollower the header names the leader to go to, if known.
type ProposeResult struct {
	Header
	BaseOffset int64
}

// BarrierResult answers Barrier: the high watermark that is current as of the barrier.
type BarrierResult struct {
	Header
	HighWatermark int64
}

// HandoffAccepted answers Handoff; Refusal is empty if it began (or, for a dry run, could).
type HandoffAccepted struct {
	Refusal string
	Target  ReplicaKey
	Epoch   Epoch
}

// UpgradeResult answers UpgradeKRaft.
type UpgradeResult struct {
	Error   ErrorCode
	Message string
}

// Send is a request for the driver to deliver. The destination's endpoint comes with it.
type Send struct {
	Correlation Correlation
	To          Destination
	Request     Request
}

// Destination is a node, or a bootstrap server whose node id is not known (ID -2, -3, … as in Kafka).
type Destination struct {
	ID   NodeID
	Host string
	Port uint16
}

// FatalReason is the process token of a fault that no retry mends.
type FatalReason string

// The core's own fatal reasons.
const (
	TruncationBelowHW FatalReason = "TRUNCATION_BELOW_HW"
	InconsistentState FatalReason = "INCONSISTENT_STATE"
	NotAuthorized     FatalReason = "NOT_AUTHORIZED"
)

// Fatal asks the driver to end the process with this token and sentence. Nothing else in that Ready may be done.
type Fatal struct {
	Reason  FatalReason
	Message string
}

// Role is a replica's state (KIP-595, KIP-996).
type Role uint8

// The roles. Observers only use Unattached and Follower.
const (
	Unattached Role = iota
	Prospective
	Candidate
	Leader
	Follower
	Resigned
)

func (r Role) String() string {
	return [...]string{"Unattached", "Prospective", "Candidate", "Leader", "Follower", "Resigned"}[r]
}

// Status is a read-only view for humans, metrics and the driver. It stays as it is when the Node goes on: what it shares
// (voter sets, endpoints) is never changed once built.
type Status struct {
	Role            Role
	Self            ReplicaKey
	IsVoter         bool
	Election        ElectionState
	Leader          NodeID
	LeaderEndpoints []Endpoint
	LogStart        int64
	LogEnd          OffsetAndEpoch
	FlushedEnd      int64
	HighWatermark   int64
	EpochStart      int64 // leader: offset of its first record, else Unknown
	Voters          VoterSet
	VotersOffset    int64 // offset of the record Voters came from; -1: bootstrap checkpoint or static
	KRaftVersion    int16
	VoterChange     *VoterChange      // leader: the change under way; nil if none
	Progress        []ReplicaProgress // leader only; voters, then observers
	Handoff         HandoffStatus
	Snapshot        *OffsetAndEpoch // newest one, other than the bootstrap checkpoint
	Download        *DownloadStatus // follower: a snapshot is on its way
	BelowReserve    bool            // the disk is below its reserve: appends are refused
	Full            bool            // the disk has no room to open an epoch: it does not campaign
	Stopping        bool            // a Shutdown was asked for
	ParkedFetches   int
	PendingAppends  int
	Elections       ElectionCounts
}

// ChangeKind is what a change of the voter set does.
type ChangeKind string

// The changes of a voter set. Each concerns one voter, except the upgrade.
const (
	ChangeAdd     ChangeKind = "Add"
	ChangeRemove  ChangeKind = "Remove"
	ChangeUpdate  ChangeKind = "Update"  // a voter's endpoints or kraft.version range
	ChangeUpgrade ChangeKind = "Upgrade" // of kraft.version, and with it the whole set
)

// VoterChange is a change of the voter set that the leader is carrying out.
type VoterChange struct {
	Kind   ChangeKind
	Voter  ReplicaKey // NoReplica for an upgrade
	Offset int64      // of its record; Unknown while the voter is being probed or the record waits for a place in the log
}

// DownloadStatus is how far the download of a snapshot is.
type DownloadStatus struct {
	Snapshot OffsetAndEpoch
	Position int64 // bytes that have come
	Size     int64 // of all; Unknown before the first have come
}

// ElectionCounts counts elections this replica started, by cause.
type ElectionCounts struct {
	Timer, Resign, FastFailover uint64
}

// HandoffPhase is where a handoff stands.
type HandoffPhase string

// The phases of a handoff, in order; the last three are final.
const (
	HandoffNone       HandoffPhase = ""
	HandoffConverging HandoffPhase = "Converging"
	HandoffPausing    HandoffPhase = "Pausing"
	HandoffResigned   HandoffPhase = "Resigned"
	HandoffSucceeded  HandoffPhase = "Succeeded"
	HandoffAborted    HandoffPhase = "Aborted"
	HandoffFailed     HandoffPhase = "Failed" // resigned, but another than the target leads
)

// HandoffStatus is the newest handoff this replica took part in, as old leader or as successor.
type HandoffStatus struct {
	ID         RequestID // of the Handoff event; 0 for one begun by Shutdown
	Phase      HandoffPhase
	From       NodeID
	Target     ReplicaKey
	To         NodeID // who leads now; None if not known
	FromEpoch  Epoch
	ToEpoch    Epoch
	Message    string        // why it was aborted
	Converge   time.Duration // from the request to the pause
	WriteGap   time.Duration // see MeasuredBy; 0 until measured
	MeasuredBy string        // "old-leader": pause to the first high watermark beyond the new epoch's start; "successor": EndQuorumEpoch to that
}
