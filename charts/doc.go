// Package charts tests that the Helm chart renders the same objects as config/default.
package charts

//go:generate cp ../config/crd/bases/kraft-operator.io_metadataquorums.yaml kraft-operator/files/crd.yaml
//go:generate cp ../config/rbac/role.yaml kraft-operator/files/role.yaml
