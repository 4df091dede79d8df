// Package resources builds the Kubernetes objects of one quorum. It is pure: the custom resource and the planner's
// decisions go in, objects come out, the same bytes for the same input.
//
// Reading order: names.go (labels, ports, hosts), identity.go and claim.go (who the quorum is), shared.go (Services,
// budgets, account), config.go, template.go and revision.go (what a member is made from, rendered once and stored),
// pod.go (a member or a one-shot Pod, made from stored bytes).
package resources
