package replica

import (
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Event is everything that can happen to a Replica.
//
//sumtype:decl
type Event interface{ event() }

type (
	// Tick tells that Deadline has come. Harmless at any other time.
	Tick struct{}

	// Core is an event of the raft core that comes without bytes: Inbound, Outcome (but not of a Fetch or FetchSnapshot that
	// succeeded), ConnectionLost, Handoff, UpgradeKRaft, Shutdown, Reserve.
	Core struct{ Event raft.Event }

	// Fetched is the answer to a Fetch of ours. Records are the bytes as they came; the Replica keeps them.
	Fetched struct {
		Correlation raft.Correlation
		Response    raft.FetchResponse // without Batches
		Records     []byte
	}

	// Produce appends one client batch, checked by CheckProduce. Its answer is ProduceResult: REQUEST_TIMED_OUT if its
	// fate is not known after Timeout. The batch may be appended all the same; a retry of it is then a duplicate.
	Produce struct {
		ID      raft.RequestID
		Batch   ClientBatch
		Timeout time.Duration // 0: none
	}

	// InitProducer asks the leader for a producer id. Its answer is InitProducerResult.
	InitProducer struct{ ID raft.RequestID }

	// Read is a client's Fetch: whole batches from the one that holds Offset, below the high watermark. Its answer is
	// ReadResult, parked for up to MaxWait until MinBytes are there.
	Read struct {
		ID          raft.RequestID
		LeaderEpoch raft.Epoch // what the client believes; negative: it does not say
		Offset      int64
		MinBytes    int
		MaxBytes    int
		MaxWait     time.Duration
	}

	// ListOffsets asks for an offset. Its answer is ListOffsetsResult. Only the leader answers; for Latest it first
	// proves that it still leads.
	ListOffsets struct {
		ID          raft.RequestID
		LeaderEpoch raft.Epoch // negative: not given
		Timestamp   int64      // milliseconds, or Latest, Earliest, MaxTimestamp
	}

	// EpochEnd asks where an epoch ends (OffsetForLeaderEpoch). Its answer is EpochEndResult.
	EpochEnd struct {
		ID          raft.RequestID
		LeaderEpoch raft.Epoch // negative: not given
		Epoch       raft.Epoch
	}

	// Flushed reports what became of a Flush.
	Flushed struct {
		Flush *Flush
		Err   error
	}

	// FetchedSnapshot is the answer to a FetchSnapshot of ours, with the bytes that came.
	FetchedSnapshot struct {
		Correlation raft.Correlation
		Response    raft.FetchSnapshotResponse
		Data        []byte
	}

	// Done reports that a Job has run, and what became of it.
	Done struct {
		Job *Job
		Err error
	}
)

// The timestamps with a meaning of their own in ListOffsets.
const (
	Latest       int64 = -1
	Earliest     int64 = -2
	MaxTimestamp int64 = -3
)

func (Tick) event()         {}
func (Core) event()         {}
func (Fetched) event()      {}
func (Produce) event()      {}
func (InitProducer) event() {}
func (Read) event()         {}
func (ListOffsets) event()  {}
func (EpochEnd) event()     {}
func (Flushed) event()      {}

func (FetchedSnapshot) event() {}
func (Done) event()            {}
