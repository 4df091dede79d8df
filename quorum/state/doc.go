// Package state remembers idempotent producers (KIP-98, KIP-360), so that a client's retry never doubles a record.
//
// The memory follows the appended log of a replica, on followers as on the leader: Append for each batch written,
// Truncate when the log is cut. So whoever leads next already knows every batch that its log holds. It is rebuilt from
// the log at start and is never written anywhere.
//
// A leader asks Check before it proposes a batch. Batches that are proposed but not appended yet count as well (Propose,
// Drop), since a producer may have several in flight.
//
// Producer ids come from the leader as epoch<<32 | counter (see ID), hence are unique without being stored.
// Ages go by the replica's own clock of appends, never by the clients' timestamps: a client with a wrong clock must not
// make others forget. The package is pure: no clock, no I/O, no goroutines.
package state
