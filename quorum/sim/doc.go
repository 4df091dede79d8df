// Package sim runs whole quorums in one goroutine: real replicas on crashable disks, with a simulated network, clock and
// clients. Everything that happens, and when, is drawn from one seed, so a failure is repeated by its number.
//
// # A run
//
// Chaos first: processes are killed, machines lose power and with it whatever was not synced, disks are lost, links are cut
// one way or both, clocks drift and jump, fsyncs come late, leaders are asked to hand over or to stop, voters are added and
// removed, observers come and go, while clients append, retry and read. Then the world heals for a random majority, and the
// quorum owes an answer: a new append commits within ten seconds, logs converge, and at rest epochs stop growing.
//
// After every event the oracle (oracle.go) checks the invariants, under Kafka's names where it has one; docs/correctness.md
// states them. It trusts the replica for nothing that it can see itself: what a log holds, who votes by it and what of it is
// durable is learnt from the calls on the file system (disk.go), what was voted from the bytes of quorum-state, what was
// promised from the messages. At the end the clients' histories must be linearizable (history.go).
//
// # What it relies on
//
// Of package replica: given the same directory, random source and events, a Replica does the same; Step makes durable
// whatever must be before a message may leave; Output.Flush may be run at any later time and reported at any time after
// that, and so may Output.Jobs; Answer.ID names the event that asked. Of package transport: requests and answers of one
// connection arrive in order, the answers in the order of the requests; a request has at most one outcome; a connection
// whose request is older than the request timeout is closed; when one ends, it is dialed again once, which tells a dead
// process from a cut cable.
//
// # Reading order
//
// plan.go (what a seed draws), world.go (time, phases), member.go (a machine), process.go (what runs on it), network.go,
// protocol.go (messages as bytes), disk.go, shadow.go and snapshot.go, voters.go, admin.go, chaos.go and calm.go, client.go,
// oracle.go, history.go, trace.go. The tests: sim_test.go and runner_test.go (seeds), planted_test.go (does the oracle see
// anything at all? bugs at the borders and in the core), scenario_test.go (single scenarios by hand), handoff_test.go (how
// good are handoffs?), observers_test.go (what do they cost?). plant.go and marks.go are for the first two.
package sim
