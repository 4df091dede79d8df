package raft

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"time"
)

// Epoch numbers leaderships, from 0 ("no leader yet"); leaders have epoch 1 or higher.
type Epoch int32

// NodeID names a member (Kafka: replica id, node.id). None stands for "no id", as -1 does on the wire.
type NodeID int32

// None is the absence of a node.
const None NodeID = -1

// Unknown is an offset or high watermark that is not known yet, as -1 on Kafka's wire.
const Unknown int64 = -1

// Instant is monotonic time since an arbitrary start, the same for all calls on one Node. The core never asks for the time.
type Instant time.Duration

// Never is a deadline that does not come.
const Never Instant = 1<<63 - 1

// Add returns i moved by d; Never stays Never.
func (i Instant) Add(d time.Duration) Instant {
	if i == Never {
		return Never
	}
	return i + Instant(d)
}

// UUID is a directory id or topic id. The zero value means "none" (Kafka's zero UUID).
type UUID [16]byte

// String prints Kafka's form: base64url without padding, 22 characters.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero reports whether u is the zero UUID.
func (u UUID) IsZero() bool { return u == UUID{} }

// ParseUUID reads Kafka's form of a UUID.
func ParseUUID(s string) (UUID, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 16 {
		return UUID{}, fmt.Errorf("uuid %q: want 22 characters of base64url", s)
	}
	return UUID(b), nil
}

// ReplicaKey identifies a replica: node id and the id of its log directory. A lost disk makes a new key (KIP-853).
type ReplicaKey struct {
	ID          NodeID
	DirectoryID UUID
}

// NoReplica is the key of nobody.
var NoReplica = ReplicaKey{ID: None}

// Compare orders keys by id, then by directory id.
func (k ReplicaKey) Compare(o ReplicaKey) int {
	return cmp.Or(cmp.Compare(k.ID, o.ID), slices.Compare(k.DirectoryID[:], o.DirectoryID[:]))
}

func (k ReplicaKey) String() string {
	if k.DirectoryID.IsZero() {
		return fmt.Sprint(k.ID)
	}
	return fmt.Sprintf("%d@%s", k.ID, k.DirectoryID)
}

// OffsetAndEpoch names a position in a log: an offset and the epoch of the record before it.
type OffsetAndEpoch struct {
	Offset int64
	Epoch  Epoch
}

// Compare orders positions by epoch, then by offset: the order in which logs are "up to date".
func (p OffsetAndEpoch) Compare(o OffsetAndEpoch) int {
	return cmp.Or(cmp.Compare(p.Epoch, o.Epoch), cmp.Compare(p.Offset, o.Offset))
}

// Endpoint is one listener of a member as others reach it. Names are upper case, e.g. CONTROLLER.
type Endpoint struct {
	Name string
	Host string
	Port uint16
}

// Find returns the endpoint of the listener with that name.
func Find(endpoints []Endpoint, name string) (Endpoint, bool) {
	i := slices.IndexFunc(endpoints, func(e Endpoint) bool { return e.Name == name })
	if i < 0 {
		return Endpoint{}, false
	}
	return endpoints[i], true
}

// VersionRange is an inclusive range of supported kraft.version levels.
type VersionRange struct{ Min, Max int16 }

// Voter is one entry of the voter set. A zero directory id matches any directory (kraft.version 0).
type Voter struct {
	Key       ReplicaKey
	Endpoints []Endpoint
	KRaft     VersionRange
}

// VoterSet holds the voters sorted by id; ids are unique. It is immutable once built: share it freely.
type VoterSet []Voter

// NewVoterSet sorts the voters and refuses double ids.
func NewVoterSet(voters ...Voter) (VoterSet, error) {
	s := slices.Clone(voters)
	slices.SortFunc(s, func(a, b Voter) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
	for i := 1; i < len(s); i++ {
		if s[i].Key.ID == s[i-1].Key.ID {
			return nil, fmt.Errorf("voter set: node id %d appears twice", s[i].Key.ID)
		}
	}
	return s, nil
}

// ByID returns the entry with that node id, whatever its directory.
func (s VoterSet) ByID(id NodeID) (Voter, bool) {
	i := slices.IndexFunc(s, func(v Voter) bool { return v.Key.ID == id })
	if i < 0 {
		return Voter{}, false
	}
	return s[i], true
}

// Contains reports whether key is a voter: ids equal and, if the entry has a directory id, directories equal.
func (s VoterSet) Contains(key ReplicaKey) bool {
	v, ok := s.ByID(key.ID)
	return ok && (v.Key.DirectoryID.IsZero() || v.Key.DirectoryID == key.DirectoryID)
}

// with returns the set with that entry in the place of the one with its id, or beside the others.
func (s VoterSet) with(entry Voter) VoterSet {
	set := append(s.without(entry.Key.ID), entry)
	slices.SortFunc(set, func(a, b Voter) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
	return set
}

// without returns the set without the entry with that id.
func (s VoterSet) without(id NodeID) VoterSet {
	return slices.DeleteFunc(slices.Clone(s), func(v Voter) bool { return v.Key.ID == id })
}

// Majority is the number of voters that decides.
func (s VoterSet) Majority() int { return len(s)/2 + 1 }

// ElectionState is what a replica must remember across restarts: the content of quorum-state.
type ElectionState struct {
	Epoch  Epoch
	Leader NodeID     // None if unknown
	Voted  ReplicaKey // NoReplica if no vote was given in Epoch
}

// ControlRecord is a record of the protocol itself that the core must see: LeaderChange, KRaftVersion, Voters.
//
//sumtype:decl
type ControlRecord interface{ control() }

type (
	// LeaderChange opens each epoch (control type 2; always written as version 0).
	LeaderChange struct {
		Leader   NodeID
		Voters   []NodeID
		Granting []NodeID
	}
	// KRaftVersion sets the level of membership rules (control type 5, KIP-853).
	KRaftVersion struct{ Version int16 }
	// Voters replaces the voter set (control type 6, KIP-853).
	Voters struct{ Set VoterSet }
)

func (LeaderChange) control() {}
func (KRaftVersion) control() {}
func (Voters) control()       {}

// Batch is what the core knows of a record batch: positions, never payload.
type Batch struct {
	BaseOffset int64
	LastOffset int64
	Epoch      Epoch
	Bytes      int
	Control    []ControlRecord // decoded if it is a control batch, else nil
}

// ErrorCode is a Kafka protocol error code.
type ErrorCode int16

// The error codes that the quorum answers with.
const (
	UnknownServerError      ErrorCode = -1
	NoError                 ErrorCode = 0
	OffsetOutOfRange        ErrorCode = 1
	CorruptMessage          ErrorCode = 2
	UnknownTopicOrPartition ErrorCode = 3
	NotLeaderOrFollower     ErrorCode = 6
	RequestTimedOut         ErrorCode = 7
	BrokerNotAvailable      ErrorCode = 8
	RecordBatchTooLarge     ErrorCode = 18
	ClusterAuthorization    ErrorCode = 31
	UnsupportedVersion      ErrorCode = 35
	NotController           ErrorCode = 41
	InvalidRequest          ErrorCode = 42
	OutOfOrderSequence      ErrorCode = 45
	InvalidProducerEpoch    ErrorCode = 47
	KafkaStorageError       ErrorCode = 56
	UnknownProducerID       ErrorCode = 59
	FencedLeaderEpoch       ErrorCode = 74
	UnknownLeaderEpoch      ErrorCode = 75
	OffsetNotAvailable      ErrorCode = 78
	InvalidRecord           ErrorCode = 87
	ThrottlingQuotaExceeded ErrorCode = 89
	InvalidUpdateVersion    ErrorCode = 95
	SnapshotNotFound        ErrorCode = 98
	PositionOutOfRange      ErrorCode = 99
	UnknownTopicID          ErrorCode = 100
	InconsistentClusterID   ErrorCode = 104
	InvalidVoterKey         ErrorCode = 125
	DuplicateVoter          ErrorCode = 126
	VoterNotFound           ErrorCode = 127
)
