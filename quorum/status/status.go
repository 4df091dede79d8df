// Package status is the JSON that a member serves about itself: GET /v1/status on the HEALTH listener, and
// POST /v1/handoff on the ADMIN listener. The server writes these shapes, quorum/client reads them.
//
// Offsets and epochs that are not known are -1, as on Kafka's wire; UUIDs are Kafka's 22 characters of base64url.
package status

import (
	"fmt"
	"time"
)

// The paths of the HTTP interface.
const (
	MemberPath  = "/v1/status"  // HEALTH, GET
	HandoffPath = "/v1/handoff" // ADMIN, POST
)

// Member is the answer of GET /v1/status: one member's own view of itself and of its quorum.
type Member struct {
	NodeID       int32  `json:"nodeID"`
	DirectoryID  string `json:"directoryID"`
	ClusterID    string `json:"clusterID"`
	Version      string `json:"version"`                // of the binary
	Revision     string `json:"configRevision"`         // value of config.revision, which the operator sets; empty if unset
	ObserverOnly bool   `json:"observerOnly,omitempty"` // observer.only: can never become a voter

	Ready  bool   `json:"ready"`            // what /readyz answers
	Reason string `json:"reason,omitempty"` // one sentence, set if not ready

	Role    string  `json:"role"`    // Unattached, Prospective, Candidate, Leader, Follower or Resigned
	IsVoter bool    `json:"isVoter"` // by its own log
	Epoch   int32   `json:"epoch"`
	Leader  *Leader `json:"leader,omitempty"` // absent while no leader is known

	LogStartOffset  int64     `json:"logStartOffset"`
	LogEndOffset    int64     `json:"logEndOffset"`
	FlushedOffset   int64     `json:"flushedOffset"` // the log is on disk below it
	HighWatermark   int64     `json:"highWatermark"`
	EpochStart      int64     `json:"epochStartOffset"`    // leader: offset of its first record, else -1
	EpochCommitted  bool      `json:"epochCommitted"`      // leader: the high watermark has passed epochStartOffset
	KRaftVersion    int16     `json:"kraftVersion"`        // finalized kraft.version
	VotersOffset    int64     `json:"votersOffset"`        // offset of the record the voter set came from; -1: bootstrap or static
	VotersCommitted bool      `json:"votersCommitted"`     // the voter set is below the high watermark: it stays
	FetchTimeoutMs  int64     `json:"fetchTimeoutMs"`      // controller.quorum.fetch.timeout.ms in force
	UptimeMs        int64     `json:"uptimeMs"`            // since the process began
	LeaderContactMs int64     `json:"lastLeaderContactMs"` // age of the last good Fetch answer; leader 0; -1: never
	PendingAppends  int       `json:"pendingAppends"`      // proposals that wait for the high watermark
	ParkedFetches   int       `json:"parkedFetches"`       // Fetch requests that wait for records
	Voters          []Replica `json:"voters"`              // sorted by node id; progress is known on the leader only
	Observers       []Replica `json:"observers"`           // leader only; sorted by node id

	VoterChange *VoterChange `json:"voterChange,omitempty"` // leader: the change of the voter set that is under way
	Snapshot    *Snapshot    `json:"snapshot,omitempty"`    // the newest one; absent if there is none
	Download    *Download    `json:"download,omitempty"`    // the snapshot that is being fetched from the leader

	Handoff *Handoff `json:"handoff,omitempty"` // the newest one this member took part in
	Disk    Disk     `json:"disk"`
}

// Leader is who leads, as far as the answering member knows.
type Leader struct {
	NodeID    int32      `json:"nodeID"`
	Epoch     int32      `json:"epoch"`
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is one listener of a member as others reach it.
type Endpoint struct {
	Name string `json:"name"`
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// Replica is a voter or observer. What only the leader knows is -1 elsewhere.
type Replica struct {
	NodeID         int32      `json:"nodeID"`
	DirectoryID    string     `json:"directoryID,omitempty"` // absent: kraft.version 0
	Endpoints      []Endpoint `json:"endpoints,omitempty"`
	Rack           string     `json:"rack,omitempty"`
	LogEndOffset   int64      `json:"logEndOffset"`
	Lag            int64      `json:"lag"`                    // the leader's log end minus this replica's, in offsets
	LastFetchMs    int64      `json:"lastFetchMs"`            // age of its last Fetch; leader itself 0
	LastCaughtUpMs int64      `json:"lastCaughtUpMs"`         // age of the last moment it had all; leader itself 0
	BelowReserve   bool       `json:"belowReserve,omitempty"` // its disk is below its reserve
}

// VoterChange is a change of the voter set that the leader is carrying out.
type VoterChange struct {
	Kind   string      `json:"kind"`            // Add, Remove, Update (a voter's endpoints) or Upgrade (of kraft.version)
	Voter  *ReplicaKey `json:"voter,omitempty"` // absent: an upgrade concerns all
	Offset int64       `json:"offset"`          // of its record; -1: it has none yet
}

// Snapshot is what a member knows of its newest snapshot.
type Snapshot struct {
	Offset  int64 `json:"offset"` // it covers the log up to here (exclusive)
	Epoch   int32 `json:"epoch"`
	Bytes   int64 `json:"bytes"`
	Records int64 `json:"records"` // in it; -1: not known
	AgeMs   int64 `json:"ageMs"`   // since this process made, got or found it
}

// Download is how far the download of a snapshot is.
type Download struct {
	Offset   int64 `json:"offset"` // up to which the snapshot covers the log
	Epoch    int32 `json:"epoch"`
	Position int64 `json:"position"` // bytes that have come
	Size     int64 `json:"size"`     // of all; -1 while not known
}

// Disk is the free space of the log directory's file system, in bytes.
type Disk struct {
	FreeBytes    int64 `json:"freeBytes"`    // -1: not known
	ReserveBytes int64 `json:"reserveBytes"` // log.reserve.bytes: appends are refused below it
	BelowReserve bool  `json:"belowReserve"`
	Full         bool  `json:"full,omitempty"` // this member cannot lead: there is no room to open an epoch
	LogBytes     int64 `json:"logBytes"`       // size of the log's segments
}

// The phases of a handoff in order. The last three are final.
const (
	Converging = "Converging" // the target catches up; appends go on
	Pausing    = "Pausing"    // appends are parked until the target has all
	Resigned   = "Resigned"   // EndQuorumEpoch was sent; the outcome is not known yet
	Succeeded  = "Succeeded"
	Aborted    = "Aborted" // service went on as before; Message says why
	Failed     = "Failed"  // resigned, but another than the target leads
)

// Handoff is where a transfer of leadership stands, as the old leader or the successor tells it.
type Handoff struct {
	ID        string   `json:"id"` // as answered by POST /v1/handoff; empty for one begun by SIGTERM or told by the successor
	Phase     string   `json:"phase"`
	From      int32    `json:"from"`
	Target    int32    `json:"target"` // who was to lead
	To        int32    `json:"to"`     // who leads now; -1 while not known
	FromEpoch int32    `json:"fromEpoch"`
	ToEpoch   int32    `json:"toEpoch"` // -1 while not known
	Message   string   `json:"message,omitempty"`
	Converge  Duration `json:"converge"` // from the request to the pause
	WriteGap  Duration `json:"writeGap"` // how long no append could commit; 0 until measured
	// MeasuredBy names the clock of WriteGap: "old-leader" (from the pause to the first high watermark beyond the new
	// epoch's start) or "successor" (from EndQuorumEpoch to the same).
	MeasuredBy string `json:"measuredBy,omitempty"`
}

// Done reports whether the phase is final.
func (h Handoff) Done() bool { return h.Phase == Succeeded || h.Phase == Aborted || h.Phase == Failed }

// ReplicaKey names a replica in a request. An empty directory id matches any.
type ReplicaKey struct {
	NodeID      int32  `json:"nodeID"`
	DirectoryID string `json:"directoryID,omitempty"`
}

// HandoffRequest is the body of POST /v1/handoff. Zero values mean "the member's configuration decides".
type HandoffRequest struct {
	ExpectEpoch    int32        `json:"expectEpoch,omitempty"`    // refused unless the leader is in this epoch; 0: any
	Target         *ReplicaKey  `json:"target,omitempty"`         // absent: the best candidate
	Candidates     []ReplicaKey `json:"candidates,omitempty"`     // preferred successors after Target, best first
	MaxPause       Duration     `json:"maxPause,omitempty"`       // handoff.max.pause.ms
	CatchUpTimeout Duration     `json:"catchUpTimeout,omitempty"` // handoff.catch.up.timeout.ms
	DryRun         bool         `json:"dryRun,omitempty"`         // only say whether and to whom it would go
}

// HandoffAccepted is the answer 202 (or 200 to a dry run): the handoff has begun. Poll Member.Handoff of the leader
// and of the successor for the rest.
type HandoffAccepted struct {
	ID     string     `json:"id"` // empty for a dry run
	From   int32      `json:"from"`
	Target ReplicaKey `json:"target"`
	Epoch  int32      `json:"epoch"` // of the leader that accepted
	DryRun bool       `json:"dryRun,omitempty"`
}

// The codes of Problem.
const (
	NotLeader      = "NotLeader"      // 307 with Location if the leader's ADMIN address is known, else 503
	Refused        = "Refused"        // 409: the leader is not able or not allowed to; Message says why
	InvalidRequest = "InvalidRequest" // 400
	Unavailable    = "Unavailable"    // 503: starting or stopping
)

// Problem is the body of every answer that is not a success.
//
//nolint:errname // it is the answer of an HTTP interface first, and an error only to those who asked
type Problem struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Leader  *Leader `json:"leader,omitempty"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%s: %s", p.Code, p.Message) }

// Duration is a time.Duration that JSON shows as Go writes it, e.g. "12.3ms".
type Duration time.Duration

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes d as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads; negative values are refused.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("duration %q: want a number with a unit, e.g. 250ms or 10s", text)
	}
	*d = Duration(v)
	return nil
}
