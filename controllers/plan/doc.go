// Package plan decides what to do next for one quorum. It is pure: an Observation goes in, a Step comes out; nothing
// is read, written, logged, or timed, and the same facts give the same step.
//
// The step is derived from facts on every pass. There is no phase that steers: an operator that starts in the middle of
// a roll, or finds status deleted, goes on with the members that are still outdated.
//
// Standing duties are done in every pass once the identity record is read, whatever the rules wait for: shared objects,
// revisions, owner references of claims, the number of observers, and Pods of members that have none. They never take
// a running voter away. A member that is gone comes back as it was while the wanted revision fails elsewhere.
//
// Rules come after them. The first that applies decides, and the order is the policy:
//
//	deletion                the resource is going: nothing is done, the garbage collector has the rest
//	pause                   spec.paused: nothing is done
//	identityConflict        whose data is this? until a person says so, nothing is touched
//	replaceNonContributing  ended Pods, and outdated Pods that don't run: nobody misses them, so a corrected spec always
//	                        gets through; but a spec that has broken one member gets no second one
//	bootstrap               record, claims, seal, format; or adoption of claims that are there
//	noQuorum                no leader that a majority confirms: what runs is left alone, what was lost stays lost
//	repair                  a voter without its claim gets a new one, and with it a new identity
//	invalidTemplate         the spec can't be rendered: what runs stays
//	rollout                 outdated members one by one: a canary observer, follower voters, one handoff, the old
//	                        leader, the other observers; then the last one settles
//	voterReplaced           a voter that lost its disk follows as an observer: a person has to know
//
// Two more will join when the quorum can change its voters: one between noQuorum and repair that finishes a change that
// was begun, and one at the end that begins one.
//
// Before a contributing voter is removed, or leadership moved, every gate of gates.go must be open; what a gate says is
// the condition's message, so that user, log and test see the same words.
//
// Reading order: observation.go, action.go, plan.go, bootstrap.go, repair.go, rollout.go, gates.go, observers.go,
// members.go (who should exist, and how well they follow), faults.go (what members say of their own).
package plan
