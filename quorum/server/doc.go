// Package server is one member of the quorum as a process: the goroutines, sockets and clock around a replica.
//
// # Shape
//
// One goroutine, the loop (loop.go), owns the replica. Everybody else sends it events and gets answers through the
// callback that came with the request. Beside it run
//
//   - the flusher, which fsyncs the log while the loop goes on;
//   - the replica's jobs (snapshot.go): making, checking and removing snapshots;
//   - the senders (peers.go), one for each peer, so that a silent peer holds up nobody else;
//   - the listeners: CONTROLLER and CLIENT speak Kafka's protocol (controller.go, client.go), ADMIN and HEALTH speak HTTP.
//
// All listeners are bound before the replica may send its first vote: a winner that nobody can reach helps nobody.
// They are closed last, when the leadership is handed over and the last parked answer is out.
//
// What others see of this member without asking the loop, such as health, metrics and the member table, is a snapshot
// that the loop publishes after each round (view.go). So /livez can tell a hung loop, and reading costs the loop nothing.
package server
