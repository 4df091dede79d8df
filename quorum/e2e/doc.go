// Package e2e runs real quorum processes on loopback and does to them what happens to processes: SIGKILL and SIGTERM under
// load. It has tests only, behind the build tag e2e, since they take minutes and build the binary:
//
//	go test -tags e2e -v ./quorum/e2e -runs 50
//
// The gaps are those of the machine as well: the longest gap without any fault is printed beside them.
//
// Each test reads the whole log back at the end and compares it with what was acknowledged, and prints how long clients
// had to wait.
package e2e
