// Package storage is the directory of a member: who it is, what it has voted, its log. All formats are Kafka's, so that
// Kafka's tools read ours and ours reads Kafka's; one file, committed, is our own.
//
//	<dir>/meta.properties                         cluster id, node id, directory id; its presence means "formatted"
//	<dir>/.lock                                   held while a process has the directory open
//	<dir>/<topic>-0/quorum-state                  ElectionState: epoch, leader, vote
//	<dir>/<topic>-0/<20 digits>.log               segments: record batches back to back, named by their first offset
//	<dir>/<topic>-0/leader-epoch-checkpoint       first offset of each epoch; rebuilt from the log at start
//	<dir>/<topic>-0/partition.metadata            topic id
//	<dir>/<topic>-0/<offset>-<epoch>.checkpoint   snapshots; 0-0 is the bootstrap checkpoint that Format writes
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
// After an fsync error nothing is tried again: every later call fails with the same Fault.
//
// # Checksums
//
// quorum-state, meta.properties and committed hold what nothing else tells. Ours carry a CRC-32C, where Kafka does not
// look: an extra field, a comment. Damage in any other file contradicts its own checksums, its name, or another file.
//
// # Concurrency
//
// One goroutine owns a Dir and calls everything. Others may call Flush, WriteCommitted, and the reading methods of Log
// (Read, Walk, OffsetForTimestamp, EndOffsetForEpoch, Start, End, FlushedEnd) at any time until Close. A reader that
// stays below the high watermark never meets a truncation, since none goes below it; one that reads above may get
// ErrOffset, or batches that are cut a moment later.
package storage
