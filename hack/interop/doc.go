// Package interop tests the quorum binary beside programs that are not ours:
// Apache Kafka's own tools and its raft test server, and kcat. Its tests have the
// build tag interop; `make interop` gathers what they need and runs them. They
// talk to processes, on loopback, as an operator of a machine would.
package interop
