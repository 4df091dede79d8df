package wire

import (
	"fmt"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Kafka's numbers for the requests that the quorum speaks.
const (
	Produce              int16 = 0
	Fetch                int16 = 1
	ListOffsets          int16 = 2
	Metadata             int16 = 3
	FindCoordinator      int16 = 10
	ApiVersions          int16 = 18
	InitProducerID       int16 = 22
	OffsetForLeaderEpoch int16 = 23
	Vote                 int16 = 52
	BeginQuorumEpoch     int16 = 53
	EndQuorumEpoch       int16 = 54
	DescribeQuorum       int16 = 55
	UpdateFeatures       int16 = 57
	FetchSnapshot        int16 = 59
	DescribeCluster      int16 = 60
	AddRaftVoter         int16 = 80
	RemoveRaftVoter      int16 = 81
	UpdateRaftVoter      int16 = 82
)

// Error codes that only clients see, beside those of package raft.
const (
	LeaderNotAvailable      raft.ErrorCode = 5
	CoordinatorNotAvailable raft.ErrorCode = 15
	FetchSessionNotFound    raft.ErrorCode = 70
	MismatchedEndpointType  raft.ErrorCode = 114
	UnsupportedEndpointType raft.ErrorCode = 115
)

// Header is what precedes every request.
type Header struct {
	Key         int16
	Version     int16
	Correlation int32
	ClientID    string
}

func (h Header) String() string { return fmt.Sprintf("%s v%d", KeyName(h.Key), h.Version) }

// Frame is a whole message ready to be written, length prefix included, in pieces so that record bytes are never
// copied. It converts to net.Buffers.
type Frame [][]byte

// Len is the number of bytes of the frame.
func (f Frame) Len() int {
	n := 0
	for _, b := range f {
		n += len(b)
	}
	return n
}

// Request is a decoded request frame.
type Request struct {
	Header
	// Body is what to answer with Codec.Encode: a raft.Request or *UpdateFeaturesRequest on the controller listener, one of
	// this package's …Request types (as a pointer) on the client listener; *DescribeClusterRequest and
	// raft.DescribeQuorumRequest occur on both. It is nil if wire has settled the request: then send Answer, or nothing if
	// that is nil too.
	Body any
	// Tag is our own part of a replica's Fetch, nil if the sender is none of ours.
	Tag *FetchTag
	// Answer is the complete response if wire could tell it by itself: ApiVersions, FindCoordinator, a request for
	// another topic. It is nil for a Produce with acks=0, which is never answered.
	Answer Frame

	echo any // what the response repeats of the request
}

// FetchTag is our own part of a replica's Fetch request (tagged field 4096): how others reach the sender, and how old
// its copy of the member table is. Kafka skips it.
type FetchTag struct {
	TableVersion int64
	Listeners    []raft.Endpoint
	Rack         string
	BelowReserve bool // its disk is below its reserve
}

// MemberTable is our own part of a Fetch response (tagged field 4096): every replica the leader knows.
type MemberTable struct {
	Version int64
	Members []Member
}

// Member is one entry of the member table.
type Member struct {
	Key          raft.ReplicaKey
	Listeners    []raft.Endpoint
	Rack         string
	BelowReserve bool
}

// Node is an address as a response carries it.
type Node struct {
	ID   raft.NodeID
	Host string
	Port uint16
	Rack string
}

// LeaderHint sends a client to the leader: with NotLeaderOrFollower and the like. Without a host in Node only id and
// epoch are told.
type LeaderHint struct {
	Leader raft.NodeID // None: not known
	Epoch  raft.Epoch
	Node   Node
}

// Features is what ApiVersions tells of kraft.version.
type Features struct {
	KRaftVersion int16 // finalized level
	Epoch        int64 // grows with each change; -1: not known, nothing is shown as finalized
}

type (
	// ProduceRequest appends to our partition.
	ProduceRequest struct {
		Acks          int16 // 0: nothing may be answered
		Timeout       time.Duration
		Transactional bool   // it names a transactional id: we have no transactions
		Records       []byte // as they came, unchecked; alias the frame
	}
	// ProduceResponse is the outcome for our partition.
	ProduceResponse struct {
		Error      raft.ErrorCode
		Message    string // shown by clients from version 8 on
		BaseOffset int64  // shown as -1 with an error
		LogStart   int64
		Hint       LeaderHint // shown from version 10 on with an error
	}

	// ClientFetchRequest reads our partition up to the high watermark.
	ClientFetchRequest struct {
		MaxWait          time.Duration
		MinBytes         int
		MaxBytes         int // the smaller of the request's and the partition's bound
		Rack             string
		LeaderEpoch      raft.Epoch // -1: not checked
		Offset           int64
		LastFetchedEpoch raft.Epoch // -1: divergence is not checked
	}
	// ClientFetchResponse is the outcome for our partition. Its records are Extra.Records.
	ClientFetchResponse struct {
		Error         raft.ErrorCode
		HighWatermark int64
		LogStart      int64
		Diverging     *raft.OffsetAndEpoch
		ReadReplica   raft.NodeID // the member to read from instead; None: this one
		Hint          LeaderHint  // shown from version 12 on (the address from 16 on) with an error
	}

	// ListOffsetsRequest asks for an offset by time.
	ListOffsetsRequest struct {
		LeaderEpoch raft.Epoch // -1: not checked
		Timestamp   int64      // ms, or one of the constants below
	}
	// ListOffsetsResponse is the outcome for our partition.
	ListOffsetsResponse struct {
		Error       raft.ErrorCode
		Timestamp   int64 // -1: none
		Offset      int64 // -1: none
		LeaderEpoch raft.Epoch
	}

	// MetadataRequest asks who leads what. Ours tells whether our topic is among those asked for.
	MetadataRequest struct{ Ours bool }
	// MetadataResponse is who leads the one topic.
	MetadataResponse struct {
		Brokers    []Node
		Controller raft.NodeID // of one of Brokers
		Error      raft.ErrorCode
		Leader     raft.NodeID
		Epoch      raft.Epoch
		Replicas   []raft.NodeID
		InSync     []raft.NodeID
	}

	// InitProducerIDRequest asks for a producer id for an idempotent producer.
	InitProducerIDRequest struct {
		Transactional bool
		ProducerID    int64 // -1: a new one
		ProducerEpoch int16
	}
	// InitProducerIDResponse hands one out.
	InitProducerIDResponse struct {
		Error         raft.ErrorCode
		ProducerID    int64
		ProducerEpoch int16
	}

	// OffsetForLeaderEpochRequest asks where an epoch ended.
	OffsetForLeaderEpochRequest struct {
		CurrentEpoch raft.Epoch // -1: not checked
		Epoch        raft.Epoch
	}
	// OffsetForLeaderEpochResponse is the largest epoch not above the one asked for, and its end; -1, -1: none.
	OffsetForLeaderEpochResponse struct {
		Error     raft.ErrorCode
		Epoch     raft.Epoch
		EndOffset int64
	}

	// UpdateFeaturesRequest asks the leader to raise kraft.version.
	UpdateFeaturesRequest struct{ KRaftVersion int16 }
	// UpdateFeaturesResponse tells what became of it. On a member that does not lead the error is NotController.
	UpdateFeaturesResponse struct {
		Error   raft.ErrorCode
		Message string
	}

	// DescribeClusterRequest asks for the members, as this listener reaches them.
	DescribeClusterRequest struct{}
	// DescribeClusterResponse lists them. Controller is shown as -1 unless it is among Nodes.
	DescribeClusterResponse struct {
		Controller raft.NodeID
		Nodes      []Node
	}
)

// Special timestamps of ListOffsetsRequest.
const (
	TimestampLatest       int64 = -1
	TimestampEarliest     int64 = -2
	TimestampMax          int64 = -3
	TimestampEarliestHere int64 = -4 // earliest local offset: the same as earliest, nothing is tiered
	TimestampTiered       int64 = -5 // latest tiered offset: none
)

// Endpoint types of DescribeCluster (KIP-919).
const (
	EndpointBrokers     int8 = 1
	EndpointControllers int8 = 2
)
