package replica

import (
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// Output is what the driver must do after a Step. What had to be durable before already is.
type Output struct {
	Answers []Answer
	Sends   []raft.Send
	Flush   *Flush // run it beside everything else, then report Flushed
	Jobs    []*Job // run each beside everything else, then report Done
	// WriteCommitted asks for a call of Dir().Log.WriteCommitted, beside everything else. What goes wrong with it shows in
	// the next Step.
	WriteCommitted bool
	Dropped        []error // fetched batches that were not believed: to be logged and counted
	Stopped        bool    // after Shutdown: nothing is left to do
	// Fatal ends the process. Nothing else of this Output is done, and the Replica is not used again.
	Fatal *raft.Fatal
}

// Answer completes a request. Result is one of the result types below, raft.HandoffAccepted, raft.UpgradeResult, or a
// raft.Response other than those to Fetch and FetchSnapshot.
type Answer struct {
	ID     raft.RequestID
	Result any
}

type (
	// FetchResult answers a peer's Fetch.
	FetchResult struct {
		raft.FetchResponse
		Records []byte           // never nil: Kafka's older followers break on null
		Section *storage.Section // with Config.Beside: where many records lie, to be sent from there and closed
	}

	// SnapshotResult answers a peer's FetchSnapshot.
	SnapshotResult struct {
		raft.FetchSnapshotResponse
		Data    []byte
		Section *storage.Section // with Config.Beside: where they lie, to be sent from there and closed
	}

	// ProduceResult answers Produce once the batch, or the original it repeats, is below the high watermark.
	ProduceResult struct {
		raft.Header
		BaseOffset int64
		LogStart   int64
		Message    string // why it was refused, for people
	}

	// InitProducerResult answers InitProducer.
	InitProducerResult struct {
		raft.Header
		ProducerID    int64
		ProducerEpoch int16
	}

	// ReadResult answers Read.
	ReadResult struct {
		raft.Header
		HighWatermark int64
		LogStart      int64
		Records       []byte // never nil
		Range         *Range // with Config.Beside: what to read instead, if there is anything
	}

	// ListOffsetsResult answers ListOffsets. Offset is Unknown if no record is that young.
	ListOffsetsResult struct {
		raft.Header
		Search    *Search // with Config.Beside: what to run instead, for a search by time
		Offset    int64
		Timestamp int64      // of the record found by time; else -1
		Epoch     raft.Epoch // leader epoch of Offset; -1 if not known
	}

	// EpochEndResult answers EpochEnd. Epoch is the newest one at or below the one asked for; -1, Unknown if none.
	EpochEndResult struct {
		raft.Header
		Epoch raft.Epoch
		End   int64
	}
)

// DiskFull is the process token for a write that found no space although the reserve should have prevented it.
const DiskFull raft.FatalReason = "DISK_FULL"
