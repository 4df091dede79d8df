package storage

import (
	"io"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// MaxGroup is the most that is ever appended and not yet synced, in bytes: as much as the largest batch.
const MaxGroup = record.MaxSize

// DefaultTopic and DefaultTopicID are Kafka's metadata topic.
const DefaultTopic = "__cluster_metadata"

// DefaultTopicID is AAAAAAAAAAAAAAAAAAAAAQ.
var DefaultTopicID = raft.UUID{15: 1}

// Options say what Open expects of a directory and how its log is kept. Zero values are the defaults named.
type Options struct {
	ClusterID string      // must be the directory's; "": any
	NodeID    raft.NodeID // must be the directory's; None: any

	Topic   string    // topic.name; "": DefaultTopic
	TopicID raft.UUID // topic.id; zero: DefaultTopicID

	SegmentBytes int64         // a segment that would grow beyond this is rolled (metadata.log.segment.bytes); 0: 1 GiB
	SegmentAge   time.Duration // … or whose first append is this long ago (metadata.log.segment.ms); 0: 7 days

	LockGrace time.Duration       // how long to wait for .lock before DIR_LOCKED
	Sleep     func(time.Duration) // nil: time.Sleep

	Reserve int64     // bytes that appends should leave free: see Dir.Free
	Ballast int64     // bytes of the ballast, MaxGroup and a little more to be of use whatever is appended; 0: none. See ballast.go
	Random  io.Reader // source of a missing directory id; nil: crypto/rand

	// OnBatch, if set, hears of every batch in order before Open returns: of the newest checkpoint's data batches, empty ones
	// too, then of all in the log behind it. A batch is only valid during the call.
	OnBatch func(record.Batch)
}

// FormatOptions are what Format writes. Zero values are the defaults named.
type FormatOptions struct {
	ClusterID   string
	NodeID      raft.NodeID
	DirectoryID raft.UUID // zero: that of the node's entry in InitialVoters, else random

	// InitialVoters go into the bootstrap checkpoint (--standalone, --initial-controllers); empty for
	// --no-initial-controllers and for static voters. The node itself must be among them if there are any.
	InitialVoters raft.VoterSet
	KRaftVersion  int16 // 1, or 0 with static voters (controller.quorum.voters)

	Topic           string    // "": DefaultTopic
	Timestamp       int64     // of the checkpoint's records, milliseconds since 1970
	Random          io.Reader // nil: crypto/rand
	IgnoreFormatted bool      // leave a formatted directory alone, whatever its ids (kafka-storage --ignore-formatted)
}

// Meta is meta.properties: the identity of a member's directory.
type Meta struct {
	ClusterID   string
	NodeID      raft.NodeID
	DirectoryID raft.UUID
}

// Recovery tells what Open found and mended, for the one who logs.
type Recovery struct {
	Segments int
	Batches  int64
	Bytes    int64
	// Torn is what was cut off the end: bytes, the file and position it began at, and why it was no batch. Bytes is 0 if
	// the log was whole.
	Torn struct {
		Bytes    int64
		File     string
		Position int64
		Offset   int64 // new end of the log
		Reason   string
	}
	Removed []string  // leftovers of interrupted writes, and checkpoints that are damaged or end before the log begins
	Damaged []Damaged // of those the checkpoints that an older one, or the log, stands in for
	// EpochsRebuilt is set if leader-epoch-checkpoint said anything else than the log.
	EpochsRebuilt bool
}

// Damaged is a file that was not what it should have been.
type Damaged struct{ File, Reason string }

// Space is what is free on the volume.
type Space struct {
	Free  int64 // bytes
	Below bool  // less than Options.Reserve, or none for the ballast
	Full  bool  // and not even enough for the record that opens an epoch, as far as can be told
}

// Position answers a search by time.
type Position struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970
	Epoch     raft.Epoch
}
