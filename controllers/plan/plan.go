package plan

import "time"

// Step is what one pass does, and why. At most one of its actions is disruptive, and it's the last one.
type Step struct {
	// Reason is a condition reason of package v1alpha1, Message the sentence a person reads. Both are stable as long as
	// the facts that matter are: no clock, no offset.
	Reason, Message string
	Stalled         bool // waits for a person or a new spec, rather than for time
	Actions         []Action
	RequeueAfter    time.Duration // 0: the next watch event is enough
}

// Next is the whole policy.
func Next(o Observation) Step { return Step{} }

// Remember is what status keeps for the next pass.
func Remember(o Observation) Memory { return o.Memory }
