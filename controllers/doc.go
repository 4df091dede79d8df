// Package controllers turns MetadataQuorum resources into running quorums.
//
// One pass is observe → plan → act → report:
//
//   - observe makes all reads: API objects and what the members say of
//     themselves. What may lead to a disruption or a second identity is read
//     uncached. A quorum that doesn't answer is a fact, not an error.
//   - plan.Next decides, purely: facts in, at most one disruptive action out,
//     and why.
//   - act makes all writes of objects, each fenced by a UID, a resource version
//     or an epoch, so that a plan made on stale facts is refused and not done.
//   - report is the only writer of status: one write a pass, none if nothing
//     changed, and the events of what has happened.
//
// Nothing here remembers anything between two passes; a pass can be repeated,
// cut short anywhere, or made by two operators at once, and the next one goes
// on from the facts.
//
// Nobody here writes a spec or metadata of a MetadataQuorum, or the spec of a
// Pod that exists.
package controllers
