// Package replica is one member of the quorum without goroutines and without a network: the raft core, its directory and
// the memory of idempotent producers, put together.
//
// # Contract of the driver
//
// One goroutine owns a Replica. For everything that happens it calls Step(now, event) and carries out the Output: deliver
// the answers and the sends, and run the flush. Step has already made durable what must be durable before a message may
// leave. It calls Step with Tick when the instant of Deadline has come.
//
// A flush is the one thing that Step does not do itself, because everything else goes on beside it: the driver calls
// Flush.Run on a goroutine of its own (or, in a simulation, later) and reports the outcome as Flushed. At most one is
// outstanding.
//
// What reaches a client is decided here as well: reads below the high watermark, parked until enough of it is there; the
// high watermark that is shown never falls; a duplicate of an append is answered like the append.
//
// Given the same directory, the same random source and the same events at the same instants, a Replica does the same:
// the simulation drives it with its own disk, clock and network.
package replica
