// Package e2e runs real quorum processes on loopback and does to them what happens to processes: SIGKILL and SIGTERM under
// load, and while they make and fetch snapshots; disks that are full to the last byte; too little processor time. It has
// tests only, behind the build tag e2e, since they take minutes and build the binary:
//
//	go test -tags e2e -v ./quorum/e2e -runs 50
//	go test -tags e2e -v ./quorum/e2e -timeout 1h -run Joins -log-bytes 1073741824 -kills 200
//	go test -tags e2e -v ./quorum/e2e -timeout 1h -run Compacted -histories 1000 -parallel 6
//	go test -tags e2e -v ./quorum/e2e -timeout 1h -run PR34 -restarts 100
//	go test -tags e2e -v ./quorum/e2e -timeout 1h -run Idempotent -idempotence 10m
//
// The gaps are those of the machine as well: the longest gap without any fault is printed beside them.
//
// Each test reads the whole log back at the end and compares it with what was acknowledged. What it measured it prints in
// lines that begin with "e2e:", and how long clients had to wait.
package e2e
