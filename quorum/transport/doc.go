// Package transport moves frames over connections and knows nothing of what they mean.
//
//   - Server accepts connections on one listener, within bounds, and hands each frame to a function; the answers of a
//     connection leave in the order of its requests, whatever order they are given in (Kafka's clients pipeline). A part
//     of an answer may be a section of a file, which the kernel sends without a copy made here.
//   - Peers sends requests of the core to other members, one connection each, and reports what became of them.
//
// Who calls Close waits until every goroutine of it has ended.
package transport
