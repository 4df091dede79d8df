// Package v1alpha1 is version v1alpha1 of the API group kraft-operator.io.
//
// Every optional field is a pointer, and the schema has a default only where a value can never come to mean something
// else; everything else is resolved in memory by Resolve and shown in status. The operator never writes a spec.
//
// +kubebuilder:object:generate=true
// +groupName=kraft-operator.io
package v1alpha1

//go:generate go tool controller-gen object paths=.
//go:generate go tool controller-gen crd:maxDescLen=2000 paths=. output:crd:dir=../../config/crd/bases
//go:generate go tool controller-gen rbac:roleName=manager paths=../../controllers output:rbac:dir=../../config/rbac
