// Package raft is KRaft, Kafka's pull-based Raft (KIP-595, 630, 853, 996, 1166), as a state machine without I/O.
//
// # Contract of the driver
//
// One goroutine owns a Node. For everything that happens it calls Step(now, event), then Ready, does the work in the
// order of the fields, and calls Advance. It calls Step with Deadline when the instant of Node.Deadline has come.
//
//  1. Persist is durable before anything else of the same Ready is done: a vote is never forgotten.
//  2. Truncate before Appends; Appends before Flush; Flush runs beside the rest and is answered by the event Flushed.
//  3. Answers and Sends leave only after 1 and the writes (not the fsync) of 2. What must wait for the fsync waits in the core.
//  4. A Fatal ends the process; nothing else in that Ready is done.
//  5. Fetched bytes are validated before the core hears of them, and kept until the Ready that follows; what that Ready does
//     not name is dropped.
//  6. Before a Send goes to a destination whose earlier request has no outcome yet, that connection is closed: a sender has at
//     most one request outstanding on a connection, and answers come in order.
//  7. Messages that have already arrived are given before a Deadline that is due: a late wake-up is not a silent leader.
//
// The core knows positions (offset, epoch, size), never payload bytes; it has no clock, socket, disk, goroutine or logger.
package raft
