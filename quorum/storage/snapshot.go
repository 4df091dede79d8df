package storage

import (
	"errors"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// CheckpointInfo describes a finished checkpoint.
type CheckpointInfo struct {
	ID        raft.OffsetAndEpoch
	Size      int64 // bytes of the file
	Records   int64 // of the topic that it holds, tombstones too; -1: an older one, not read by this process
	Timestamp int64 // of the last record of the log that it covers, milliseconds since 1970; -1 with Records
}

// Errors of reading and making checkpoints. Test with errors.Is.
var (
	ErrNoCheckpoint = errors.New("no such checkpoint")              // never was, or is cleaned away
	ErrPosition     = errors.New("position is not in the file")     // below 0, or at or beyond its size
	ErrNothingNew   = errors.New("the newest checkpoint covers it") // nothing to compact
	ErrCanceled     = errors.New("compaction was canceled")         // by Cancel
)

// Checkpoints lists the finished checkpoints, ascending, without the bootstrap checkpoint 0-0. Any goroutine may call it.
func (d *Dir) Checkpoints() []CheckpointInfo { panic("not yet") }

// ReadCheckpoint reads bytes of a checkpoint's file as a FetchSnapshot asks for them: at most maxBytes from position on,
// into buf if it has the room. size is that of the whole file. ErrNoCheckpoint if there is none with that id, or no more;
// ErrPosition if position is below 0, or not below size. A checkpoint that was read since the last BeginClean is not
// cleaned. Any goroutine may call it.
func (d *Dir) ReadCheckpoint(buf []byte, id raft.OffsetAndEpoch, position int64, maxBytes int) (data []byte, size int64, err error) {
	panic("not yet")
}

// Download is a checkpoint that arrives in pieces. It has one owner, who ends it by Finish or Discard.
type Download struct{}

// BeginDownload makes an empty partial file. One that a crash leaves behind is removed by Open.
func (d *Dir) BeginDownload(id raft.OffsetAndEpoch) (*Download, error) { panic("not yet") }

// Size is how many bytes have come: the position to ask for next.
func (w *Download) Size() int64 { panic("not yet") }

// Append adds the next bytes. On ErrDiskFull nothing is added and it may be tried again.
func (w *Download) Append(data []byte) error { panic("not yet") }

// Finish checks the whole file, makes it durable and lists it among the checkpoints. It returns its KRaftVersion and Voters,
// placed at the last offset that the checkpoint covers. onBatch, if not nil, hears of its data batches, empty ones too, in
// order; what it heard counts only if Finish succeeds. It may run on another goroutine, beside everything else.
//
// Bytes that are no such checkpoint are record.ErrCorrupt, record.ErrShort or record.ErrUnknown; the partial file is gone then.
func (w *Download) Finish(onBatch func(record.Batch)) ([]raft.ControlAt, error) { panic("not yet") }

// Discard removes the partial file. After Finish it does nothing.
func (w *Download) Discard() { panic("not yet") }

// Reset replaces the whole log by a checkpoint that is there: the log starts and ends at its offset, nothing is known of
// epochs, and what is committed is at least that. Older checkpoints are removed. A crash in between is mended by Open, which
// finds a checkpoint ahead of the log. The owner calls it.
func (d *Dir) Reset(id raft.OffsetAndEpoch) error { panic("not yet") }

// CompactOptions say what a compaction takes in.
type CompactOptions struct {
	UpTo            int64               // the high watermark: no batch beyond it is taken
	Now             int64               // milliseconds since 1970: what delete horizons are made of and compared with
	DeleteRetention time.Duration       // how long a tombstone stays after the first checkpoint that holds it
	LiveProducer    func(id int64) bool // called from Run; false: its empty batches may go; nil: all are live
	MemoryBytes     int                 // of the keys; 0: 12 MiB
}

// Compaction makes a checkpoint out of the newest one and the log behind it.
type Compaction struct{}

// BeginCompaction fixes the newest checkpoint as what the next one is made from. The owner calls it. ErrNothingNew if
// there is no batch to take in. One at a time.
func (d *Dir) BeginCompaction(o CompactOptions) (*Compaction, error) { panic("not yet") }

// Run makes the checkpoint: its id is the end of the last batch taken, a batch boundary at or below UpTo. It may run on
// another goroutine beside everything else but Close. If the log behind has more keys than the memory holds, it takes in
// as many batches as fit; the rest is for the next compaction. On any error nothing is left behind; ErrDiskFull may be
// tried again later, ErrCanceled and ErrNothingNew (a download was faster) are no faults.
func (c *Compaction) Run() (CheckpointInfo, error) { panic("not yet") }

// Cancel makes a running Run return soon, with ErrCanceled. Any goroutine may call it.
func (c *Compaction) Cancel() { panic("not yet") }

// CleanOptions are the limits of retention. The newest checkpoint always stays, and the log behind the oldest that stays.
type CleanOptions struct {
	Now           raft.Instant  // the clock of appends
	HighWatermark int64         // the log's start is never raised above it
	MaxBytes      int64         // metadata.max.retention.bytes: of log and checkpoints together; 0: no limit
	MaxAge        time.Duration // metadata.max.retention.ms: of a checkpoint since this process first saw it; 0: no limit
}

// Cleaning is what BeginClean took out and Run removes.
type Cleaning struct {
	Start       int64               // the log's start from now on
	Earliest    raft.OffsetAndEpoch // oldest checkpoint that stays
	Checkpoints int                 // how many go
	Segments    int
	Bytes       int64
}

// BeginClean takes checkpoints and segments that nobody needs out of the list; whoever reads them just now may finish. The
// owner calls it; it touches no disk. Nil: there is nothing to clean.
func (d *Dir) BeginClean(o CleanOptions) *Cleaning { panic("not yet") }

// Run removes the files. It may run on another goroutine. A crash in between is harmless: oldest go first, each removal is
// durable before the next, so the log never has a hole and never starts above the oldest checkpoint.
func (c *Cleaning) Run() error { panic("not yet") }

// ReadFrom is Read over the compacted topic: what the newest checkpoint covers comes from there, at its original offsets
// and with gaps, then the log. The first batch returned may begin beyond offset, and may be empty (a producer's last). An
// offset below 0 or beyond the log's end is ErrOffset. Any goroutine may call it.
func (d *Dir) ReadFrom(buf []byte, offset int64, maxBytes int, upTo int64) ([]byte, error) {
	panic("not yet")
}

// Walk calls fn for each batch of the compacted topic up to upTo: the newest checkpoint's data batches, then the log's,
// control batches too. It is what OnBatch hears at Open. A batch is valid only during the call.
func (d *Dir) Walk(upTo int64, fn func(record.Batch) error) error { panic("not yet") }

// Uncovered is how many bytes of the log lie behind the newest checkpoint (to an index step): what a compaction would take in.
func (d *Dir) Uncovered() int64 { panic("not yet") }

// OffsetForTimestamp is Log.OffsetForTimestamp over the compacted topic.
func (d *Dir) OffsetForTimestamp(timestamp, upTo int64) (Position, bool, error) { panic("not yet") }

// MaxTimestamp is Log.MaxTimestamp over the compacted topic.
func (d *Dir) MaxTimestamp(upTo int64) (Position, bool, error) { panic("not yet") }
