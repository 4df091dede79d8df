package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Serves says which requests a listener answers.
type Serves uint8

// The two listeners that speak Kafka's protocol.
const (
	Peers   Serves = iota // CONTROLLER: members, the operator, Kafka's quorum tools
	Clients               // CLIENT: producers, consumers, admin clients
)

// Range is an inclusive range of versions of one request.
type Range struct{ Min, Max int16 }

type offer struct {
	key int16
	Range
}

// What each listener answers, in order of keys: the content of ApiVersions. A version outside is not answered at all.
//
// Fetch starts at 13 on the controller listener: older versions name the topic, and only its id can be checked.
//
// Produce and FindCoordinator start at 0 on the client listener although nothing below Produce 3 is served: librdkafka
// takes the ranges for a list of features and sends uncompressed data without complaint unless it sees these
// (KAFKA-18659).
var offers = [...][]offer{
	Peers: {
		{Fetch, Range{13, 18}},
		{ApiVersions, Range{0, 5}},
		{Vote, Range{0, 2}},
		{BeginQuorumEpoch, Range{0, 1}},
		{EndQuorumEpoch, Range{0, 1}},
		{DescribeQuorum, Range{0, 2}},
		{UpdateFeatures, Range{0, 2}},
		{FetchSnapshot, Range{0, 1}},
		{DescribeCluster, Range{0, 2}},
		{AddRaftVoter, Range{0, 1}},
		{RemoveRaftVoter, Range{0, 0}},
		{UpdateRaftVoter, Range{0, 0}},
	},
	Clients: {
		{Produce, Range{0, 13}},
		{Fetch, Range{4, 18}},
		{ListOffsets, Range{1, 11}},
		{Metadata, Range{0, 13}},
		{FindCoordinator, Range{0, 6}},
		{ApiVersions, Range{0, 4}},
		{InitProducerID, Range{0, 5}},
		{OffsetForLeaderEpoch, Range{2, 4}},
		{DescribeQuorum, Range{0, 2}},
		{DescribeCluster, Range{0, 2}},
	},
}

// produceMin is the oldest Produce that is served: version 3 is the first with record batches v2.
const produceMin = 3

func (s Serves) find(key int16) (Range, bool) {
	for _, o := range offers[s] {
		if o.key == key {
			return o.Range, true
		}
	}
	return Range{}, false
}

// KeyName is Kafka's name of a request.
func KeyName(key int16) string { return kmsg.NameForKey(key) }

// Versions is what a peer answered to ApiVersions.
type Versions struct {
	ranges map[int16]Range
	// KRaft is the range of kraft.version the peer supports, nil if it does not offer the feature.
	KRaft *raft.VersionRange
}

// Of returns the peer's range for a request.
func (v Versions) Of(key int16) (Range, bool) {
	r, ok := v.ranges[key]
	return r, ok
}

// Pick returns the newest version both sides speak, not below lowest nor above highest.
func (v Versions) Pick(key, lowest, highest int16) (int16, bool) {
	r, ok := v.ranges[key]
	version := min(highest, r.Max)
	return version, ok && version >= max(lowest, r.Min)
}

// VersionFor returns the version in which r can be sent to the peer. False: it speaks none that can carry r.
func (v Versions) VersionFor(r raft.Request) (int16, bool) {
	lowest, highest := carries(r)
	return v.Pick(KeyOf(r), lowest, highest)
}

// carries returns the versions in which r loses nothing that matters.
func carries(r raft.Request) (lowest, highest int16) {
	switch r := r.(type) {
	case raft.VoteRequest:
		if r.PreVote {
			return 2, 2
		}
		return 0, 2
	case raft.FetchRequest:
		return 13, 18
	case raft.AddRaftVoterRequest:
		if !r.AckWhenCommitted {
			return 1, 1
		}
		return 0, 1
	case raft.BeginQuorumEpochRequest, raft.EndQuorumEpochRequest, raft.FetchSnapshotRequest:
		return 0, 1
	case raft.DescribeQuorumRequest:
		return 0, 2
	case raft.ApiVersionsRequest:
		return 0, probeVersion
	default:
		return 0, 0
	}
}

// KeyOf returns the key of a request between replicas.
func KeyOf(r raft.Request) int16 {
	switch r.(type) {
	case raft.VoteRequest:
		return Vote
	case raft.BeginQuorumEpochRequest:
		return BeginQuorumEpoch
	case raft.EndQuorumEpochRequest:
		return EndQuorumEpoch
	case raft.FetchRequest:
		return Fetch
	case raft.FetchSnapshotRequest:
		return FetchSnapshot
	case raft.UpdateRaftVoterRequest:
		return UpdateRaftVoter
	case raft.AddRaftVoterRequest:
		return AddRaftVoter
	case raft.RemoveRaftVoterRequest:
		return RemoveRaftVoter
	case raft.ApiVersionsRequest:
		return ApiVersions
	case raft.DescribeQuorumRequest:
		return DescribeQuorum
	default:
		panic(fmt.Sprintf("wire: no key for %T", r))
	}
}
