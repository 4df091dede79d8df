package raft

import "time"

// RequestID is the driver's name for something it wants an Answer to: a peer's request, a proposal, a barrier, a
// handoff, an upgrade.
type RequestID uint64

// ConnID names one inbound connection for its lifetime; answers on it arrive in order (Barrier relies on it, and on a
// sender that never has two Fetches outstanding on one connection: doc.go, rule 6).
type ConnID uint64

// Correlation is the core's name for a request it sent.
type Correlation uint64

// Event is everything that can happen to a Node. One type per RPC; the driver has decoded and size-checked the bytes.
//
//sumtype:decl
type Event interface{ event() }

// Inbound is a request of a peer. The Answer to ID carries the matching response type.
type Inbound struct {
	ID      RequestID
	Conn    ConnID
	Request Request
}

// Outcome is what became of a request that the core sent: exactly one of Response and Failure is set.
// A driver reports at most one outcome for each Correlation; unknown ones are ignored.
type Outcome struct {
	Correlation Correlation
	Response    Response // nil on failure
	Failure     Failure
}

// Failure says why no response came.
type Failure uint8

// The failures a driver can report. Timeouts are the core's own (RequestTimeout); late responses are ignored.
const (
	NoFailure         Failure = iota
	Disconnected              // the connection ended (EOF, reset) or could not be made: BROKER_NOT_AVAILABLE
	Refused                   // connecting was refused at once: the process is gone (fast failover: design 3.3)
	UnsupportedByPeer         // the peer does not speak a version that can carry the request
)

// ConnectionLost tells that an idle or busy connection to a peer ended, and whether the re-dial was refused.
// It only serves fast failover; all else follows from Outcome.
type ConnectionLost struct {
	Peer    NodeID
	Refused bool
}

// Deadline tells that the instant returned by Node.Deadline has come. Harmless at any other time.
type Deadline struct{}

// Propose asks the leader to append one client batch. Its answer is ProposeResult, sent once the batch is below the
// high watermark, or at once with an error. The batch is stored as sent: one proposal, one batch.
type Propose struct {
	ID      RequestID
	Records int32 // offsets it takes
	Bytes   int
}

// Await asks to hear when records that were appended before are committed: a duplicate of an idempotent producer waits for
// its original. Its answer is ProposeResult with BaseOffset, under the same rules as the original's.
type Await struct {
	ID         RequestID
	BaseOffset int64
	LastOffset int64
}

// Flushed reports that the local log is durable up to End (exclusive). Every Ready.Flush is answered by exactly one.
// Generation is the value of the newest Truncate effect when the flush began (0 before any); the End of an older one is
// ignored, and the core then asks for another flush.
type Flushed struct {
	End        int64
	Generation uint64
}

// Persisted tells that the Persist of the last Ready is done. It is the first event after one that took a while, given as
// soon as it is over.
type Persisted struct{}

// Barrier asks for proof of leadership that is newer than the barrier itself (linearizable ListOffsets(latest)).
// Its answer is BarrierResult.
type Barrier struct{ ID RequestID }

// Handoff asks the leader to hand leadership over with a pause (POST /v1/handoff). Its answer, HandoffAccepted or a
// refusal, comes at once; the progress is in Node.Status.
type Handoff struct {
	ID             RequestID
	ExpectEpoch    Epoch        // compare-and-set; 0: any
	Target         ReplicaKey   // None: the best candidate. A zero directory id matches any
	Candidates     []ReplicaKey // preferred order after Target
	MaxPause       time.Duration
	CatchUpTimeout time.Duration
	DryRun         bool
}

// Shutdown asks for a graceful stop: a leader hands over first; Ready.Stopped is set when the process may exit.
type Shutdown struct{ Timeout time.Duration }

// SnapshotCreated tells that the driver has made a snapshot, of what is below Node.Settled.
type SnapshotCreated struct{ Snapshot OffsetAndEpoch }

// Cleaned tells that the driver has cut the log at its start: it begins where the oldest snapshot that is left ends.
type Cleaned struct{ Earliest OffsetAndEpoch }

// LearnSnapshot asks a follower to find out the leader's newest snapshot, and to download it if the log can be cleaned
// behind it: for those that make none themselves (topic.mode=opaque). It is forgotten with the role.
type LearnSnapshot struct{}

// SnapshotVerified reports what became of Ready.Verify, or that a Chunk could not be stored. It is ignored if the download
// was given up since.
type SnapshotVerified struct {
	Snapshot OffsetAndEpoch
	Failed   bool
	Control  []ControlAt // KRaftVersion and Voters in it, at the last offset that it covers
}

// Reserve reports how much room the disk has.
type Reserve struct {
	Below bool // its reserve: appends are refused, the leader hands over if it can
	Full  bool // no room for the record that opens an epoch: it does not campaign, it only votes
}

// UpgradeKRaft asks the leader to raise kraft.version, from which on voters can be added and removed (KIP-853). Its answer
// is UpgradeResult, sent once the change is committed, or at once if it is refused.
type UpgradeKRaft struct {
	ID          RequestID
	ExpectEpoch Epoch // compare-and-set; 0: any
	Version     int16
}

func (Inbound) event()        {}
func (Outcome) event()        {}
func (ConnectionLost) event() {}
func (Deadline) event()       {}
func (Propose) event()        {}
func (Await) event()          {}
func (Flushed) event()        {}
func (Persisted) event()      {}
func (Barrier) event()        {}
func (Handoff) event()        {}
func (Shutdown) event()       {}
func (Reserve) event()        {}
func (UpgradeKRaft) event()   {}

func (SnapshotCreated) event()  {}
func (Cleaned) event()          {}
func (LearnSnapshot) event()    {}
func (SnapshotVerified) event() {}

// Request is an RPC between replicas, in the core's own form. Package wire maps it to and from Kafka's messages,
// which include checking that topic and partition are the quorum's own.
//
//sumtype:decl
type Request interface{ request() }

type (
	// VoteRequest asks for a vote, or for a pre-vote in the unchanged epoch (KIP-595, KIP-996).
	VoteRequest struct {
		ClusterID *string
		Voter     ReplicaKey // the receiver as the sender knows it; None if the version has no field for it
		Replica   ReplicaKey // the asker
		Epoch     Epoch
		Last      OffsetAndEpoch // the asker's log end
		PreVote   bool
	}
	// BeginQuorumEpochRequest announces a leader; it carries no data.
	BeginQuorumEpochRequest struct {
		ClusterID *string
		Voter     ReplicaKey
		Leader    NodeID
		Epoch     Epoch
		Endpoints []Endpoint // all listeners of the leader; empty in version 0
	}
	// EndQuorumEpochRequest lets a leader resign and name its preferred successors, best first.
	EndQuorumEpochRequest struct {
		ClusterID  *string
		Leader     NodeID
		Epoch      Epoch
		Successors []ReplicaKey
		Endpoints  []Endpoint
	}
	// FetchRequest pulls records and acknowledges all before Offset.
	FetchRequest struct {
		ClusterID        *string
		Replica          ReplicaKey // None: a reader that is never tracked
		Epoch            Epoch
		Offset           int64
		LastFetchedEpoch Epoch
		HighWatermark    int64 // the sender's; Unknown, or NoHighWatermark below version 18
		MaxWait          time.Duration
		MaxBytes         int
		BelowReserve     bool // our tag 4096: the sender's disk is below its reserve
	}
	// FetchSnapshotRequest asks for bytes of a snapshot (KIP-630).
	FetchSnapshotRequest struct {
		ClusterID *string
		Replica   ReplicaKey
		Epoch     Epoch
		Snapshot  OffsetAndEpoch
		Position  int64
		MaxBytes  int
	}
	// UpdateRaftVoterRequest tells the leader a voter's endpoints and kraft.version range (KIP-853).
	UpdateRaftVoterRequest struct {
		ClusterID *string
		Epoch     Epoch
		Voter     Voter
	}
	// AddRaftVoterRequest and RemoveRaftVoterRequest change the voter set (KIP-853). Their responses come when the change
	// is committed (with AckWhenCommitted false: appended), or when it has failed; REQUEST_TIMED_OUT leaves open which.
	AddRaftVoterRequest struct {
		ClusterID        *string
		Voter            ReplicaKey
		Endpoints        []Endpoint
		AckWhenCommitted bool
	}
	RemoveRaftVoterRequest struct {
		ClusterID *string
		Voter     ReplicaKey
	}
	// ApiVersionsRequest probes an endpoint before it may enter the voter set (design 3.3.5). Only ever sent.
	ApiVersionsRequest struct{}
	// DescribeQuorumRequest asks the leader for every replica's progress (KIP-836). Only ever received.
	DescribeQuorumRequest struct{}
)

// NoHighWatermark in a FetchRequest says that the sender's version cannot tell its high watermark.
const NoHighWatermark int64 = 1<<63 - 1

func (VoteRequest) request()             {}
func (BeginQuorumEpochRequest) request() {}
func (EndQuorumEpochRequest) request()   {}
func (FetchRequest) request()            {}
func (FetchSnapshotRequest) request()    {}
func (UpdateRaftVoterRequest) request()  {}
func (AddRaftVoterRequest) request()     {}
func (RemoveRaftVoterRequest) request()  {}
func (ApiVersionsRequest) request()      {}
func (DescribeQuorumRequest) request()   {}

// Header is common to the responses between replicas: how it went, and who leads as far as the answerer knows.
type Header struct {
	TopError        ErrorCode // top-level error; the rest is then empty
	Error           ErrorCode // partition-level error
	Epoch           Epoch
	Leader          NodeID
	LeaderEndpoints []Endpoint // all known listeners of Leader; wire picks the one the request came in on
}

// Response answers a Request of the matching type.
//
//sumtype:decl
type Response interface{ response() }

type (
	VoteResponse struct {
		Header
		Granted bool
	}
	BeginQuorumEpochResponse struct{ Header }
	EndQuorumEpochResponse   struct{ Header }
	// FetchResponse tells what to send. On the leader, the driver fills the records from its log: whole batches from
	// Offset, at most MaxBytes but at least one batch, none at or beyond End. On the follower, Batches are the validated
	// leading batches of the response in order (the driver keeps their bytes under the Correlation).
	FetchResponse struct {
		Header
		HighWatermark int64
		LogStart      int64
		Diverging     *OffsetAndEpoch // Kafka's DivergingEpoch: Offset is the end offset
		Snapshot      *OffsetAndEpoch

		// leader side: what to read
		Offset, End int64 // End <= Offset: no records
		MaxBytes    int

		// follower side: what came
		Batches []Batch
	}
	// FetchSnapshotResponse tells what to send. On the leader, the driver reads at most Bytes of the snapshot's file from
	// Position on and fills in its Size, or puts SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE in place of all that. On the
	// follower, Bytes is how many came, which the driver keeps under the Correlation.
	FetchSnapshotResponse struct {
		Header
		Snapshot OffsetAndEpoch
		Size     int64
		Position int64
		Bytes    int
	}
	UpdateRaftVoterResponse struct{ Header }
	AddRaftVoterResponse    struct {
		Error   ErrorCode
		Message string
	}
	RemoveRaftVoterResponse struct {
		Error   ErrorCode
		Message string
	}
	ApiVersionsResponse struct {
		Error ErrorCode
		KRaft *VersionRange // nil: the peer does not offer kraft.version
	}
	DescribeQuorumResponse struct {
		Error         ErrorCode // partition level
		Leader        NodeID
		Epoch         Epoch
		HighWatermark int64
		Voters        []ReplicaProgress
		Observers     []ReplicaProgress
		Nodes         []Voter // endpoints of the voters
	}
)

// ReplicaProgress is what the leader knows of one replica. Instants are Unknown (-1) if it never happened.
type ReplicaProgress struct {
	Key          ReplicaKey
	LogEnd       int64
	LastFetch    Instant
	LastCaughtUp Instant
	BelowReserve bool // its disk is below its reserve (our Fetch tag)
}

func (VoteResponse) response()             {}
func (BeginQuorumEpochResponse) response() {}
func (EndQuorumEpochResponse) response()   {}
func (FetchResponse) response()            {}
func (FetchSnapshotResponse) response()    {}
func (UpdateRaftVoterResponse) response()  {}
func (AddRaftVoterResponse) response()     {}
func (RemoveRaftVoterResponse) response()  {}
func (ApiVersionsResponse) response()      {}
func (DescribeQuorumResponse) response()   {}
