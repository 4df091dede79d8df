// Package verify holds the repository to what its documents say: one package
// comment a package, a file map that is true, commands that exist, and tests that
// exist for all that the conformance page lists. It has tests only; `make verify`
// runs them along with the generators, and `make test` alone.
package verify
