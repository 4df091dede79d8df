//go:build invariants

package raft

// expensiveInvariants turns on the checks that cost time.
const expensiveInvariants = true
