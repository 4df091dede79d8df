// Package podrunner plays a Kubernetes node for tests against an API server
// that has none (envtest): it takes the pods that the operator makes, runs the
// program of their image in this process with the rendered configuration
// unchanged, and reports as kubelet does. It also plays the controllers that
// the operator counts on: the disruption controller, the volume binder and, on
// demand, the garbage collector.
//
// What is real: the pod's command, arguments, environment, mounted ConfigMap,
// volume, ports, readiness probe, grace period and termination message; the
// protocol on loopback sockets; the API server's admission and its Eviction
// API. What is played: the process is a function ([cli.Run]), SIGTERM is its
// context's end, SIGKILL is [cli.Env.Kill], probes and back-offs count in
// milliseconds, and init containers, sidecars and liveness probes do not exist.
//
// Each pod has a loopback address of its own, so all members use the same ports.
package podrunner
