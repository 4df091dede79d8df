// Package plan decides what to do next for one quorum. It is pure: an Observation goes in, a Step comes out; nothing
// is read, written, logged, or timed.
package plan
