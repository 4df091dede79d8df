// Package storage is the directory of a member: who it is, what it has voted, its log. All formats are Kafka's, so that
// Kafka's tools read ours and ours reads Kafka's; one file, committed, is our own.
//
//	<dir>/meta.properties                         cluster id, node id, directory id; its presence means "formatted"
//	<dir>/.lock                                   held while a process has the directory open
//	<dir>/<topic>-0/quorum-state                  ElectionState: epoch, leader, vote
//	<dir>/<topic>-0/quorum-state.tmp              room for the next one, also on a full disk (spare.go)
//	<dir>/<topic>-0/ballast                       room for what must still be appended when the disk is full (ballast.go)
//	<dir>/<topic>-0/<20 digits>.log               segments: record batches back to back, named by their first offset
//	<dir>/<topic>-0/leader-epoch-checkpoint       first offset of each epoch; rebuilt from the log at start
//	<dir>/<topic>-0/partition.metadata            topic id
//	<dir>/<topic>-0/<offset>-<epoch>.checkpoint   snapshots, read-only; 0-0 is the bootstrap checkpoint that Format writes
//	<dir>/<topic>-0/committed                     a position known to be committed and on disk
//
// # What is durable when
//
// WriteElectionState returns after the fsync. Append returns before it; Flush, which may run on another goroutine, makes
// durable what was appended when it began. leader-epoch-checkpoint follows later: nothing here reads it. At most one
// group of batches, MaxGroup bytes, is ever unsynced: Append flushes by itself rather than exceed it.
//
// That is what lets Open tell a torn tail from rot. Damage above the committed position is torn if it and all behind it
// fit one group: then the log is cut there. Any other damage is LOG_CORRUPT and nothing is cut. (The price: rot in the
// last group before a crash looks torn.)
//
// After an fsync error nothing is tried again: every later call fails with the same Fault. One is forgiven: that of the new
// room for the next vote on a full disk (spare.go), which held nothing, and is removed.
//
// # Checksums
//
// quorum-state, meta.properties and committed hold what nothing else tells. Ours carry a CRC-32C, where Kafka does not
// look: an extra field, a comment. So does a compacted checkpoint, whose gaps would hide a changed offset: a tagged field
// of its footer. Damage in any other file contradicts its own checksums, its name, or another file.
//
// # Snapshots
//
// A checkpoint covers the log up to the offset in its name. Between a SnapshotHeader (with kraft.version and the voters of
// that offset) and a SnapshotFooter lie data batches. Ours are what Kafka's log cleaner would have left of the log: of each
// key the newest record, in its batch, at its offset. BeginCompaction and Run make one from the newest checkpoint and the
// log behind it, as a stream; BeginDownload, Verify and Install take another member's; BeginClean and Run remove what
// retention lets go. Each of them is a short step for the owner and a long one for any goroutine.
//
// These hold after every call, and after a crash at any of them once Open is done:
//
//   - A checkpoint is whole and durable before anything relies on it, and never changes.
//   - The newest one is a point of the log: it lies between start and end, or the log starts there. If a crash came
//     between an Install and the removal of the log that it replaces, Open finishes that.
//   - The log never starts above the oldest one, and has no holes: segments go one by one, oldest first, each removal
//     durable before the next.
//
// Partial files (.part, all other .tmp) are removed before anything else is done, since the disk may be full of them. A
// damaged newest checkpoint is given up for an older one if the log reaches down to it; if not, that is SNAPSHOT_MISSING.
//
// Rot in one that lies there is found by who reads it: Open, the next compaction, and Check, for one that others download.
//
// Clients see one topic (ReadFrom, Walk): the newest checkpoint's data, then the log from its offset on. A reader needs no
// session: if a newer checkpoint comes meanwhile, it goes on there from its offset. Files that are removed while somebody
// reads them stay open until he is done.
//
// Of idempotent producers a checkpoint keeps the last five batches, without records if need be, and what Open's OnBatch
// hears is that topic: so whoever starts from a checkpoint recognises the same retries as one who was there. Tombstones stay
// until their delete horizon, which is written when they first get into a checkpoint, where Kafka writes it (see
// record.Compact).
//
// # Concurrency
//
// One goroutine owns a Dir and calls everything. Others may call Flush, WriteCommitted, and the reading methods (of Log and
// of Dir), and may do the long steps named above, at any time until Close. A reader that stays below the high watermark
// never meets a truncation, since none goes below it; one that reads above may get ErrOffset, or batches that are cut a
// moment later. So may one of Log alone that reads below the newest checkpoint.
//
// # Reading order
//
// dir.go (open, state, close), spare.go, ballast.go, recover.go, log.go, segment.go, read.go; checkpoint.go, compact.go,
// download.go, check.go, clean.go, topic.go (log and checkpoint as one).
package storage
