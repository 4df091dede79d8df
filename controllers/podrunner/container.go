package podrunner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kraft-operator/kraft-operator/quorum/cli"
)

// runContainer runs the container once, with its readiness reported meanwhile.
func (p *pod) runContainer(ctx context.Context, root *rootFS, restarts int32) (*corev1.ContainerStateTerminated, error) {
	spec := p.obj.Spec.Containers[0]
	if err := p.pull(ctx, spec.Image); err != nil {
		return nil, err
	}
	if err := root.reset(); err != nil {
		return nil, err
	}
	env := p.environment(spec)
	args := slices.Concat(spec.Command, spec.Args)
	for i := range args {
		args[i] = expand(args[i], env)
	}
	stderr := &tail{max: 2048}
	kill := make(chan struct{})
	killOnce := sync.OnceFunc(func() { close(kill) })
	started := metav1.Now()
	p.mu.Lock()
	p.process = killOnce
	p.mu.Unlock()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-p.killed:
			killOnce()
		case <-ended:
		}
	}()
	logs := p.runner.logs(p.key)
	defer logs.Close()

	program := cli.Env{
		Args:      args[1:],
		Stdin:     strings.NewReader(""),
		Stdout:    io.Discard,
		Stderr:    io.MultiWriter(stderr, logs),
		LookupEnv: func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		FS:        root,
		Listen:    p.runner.network.listen(p.obj, p.addr),
		Dial:      p.runner.network.dial(p.addr),
		Kill:      kill,
	}
	done := make(chan int, 1)
	go func() { done <- p.runner.options.Run(ctx, program) }()
	err := p.setStatus(ctx, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		c := &s.ContainerStatuses[0]
		c.RestartCount = restarts
		c.Started = new(true)
		c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
	})
	code := p.probe(ctx, spec, done)
	p.mu.Lock()
	p.process = nil
	p.mu.Unlock()
	message := root.terminationMessage()
	if message == "" && code != 0 && spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		message = stderr.String()
	}
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message, StartedAt: started, FinishedAt: metav1.Now(),
	}, err
}

// pull waits while the image is one that a test has declared bad.
func (p *pod) pull(ctx context.Context, image string) error {
	for shown := false; p.runner.faults.badImage(image); {
		if !shown {
			shown = true
			err := p.setStatus(ctx, func(s *corev1.PodStatus) {
				s.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
					Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: not found", image),
				}}
			})
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(mountPeriod):
		}
	}
	return nil
}

// probe asks the readiness probe until the process ends and returns its exit code.
func (p *pod) probe(ctx context.Context, spec corev1.Container, done <-chan int) int {
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	ask := p.readiness(spec)
	var shown bool
	for {
		select {
		case code := <-done:
			if shown {
				_ = p.setReady(ctx, false)
			}
			return code
		case <-tick.C:
		}
		now := ask(ctx) && !p.runner.faults.has(unready, p.key)
		if now != shown && p.setReady(ctx, now) == nil {
			shown = now
		}
	}
}

// readiness returns the container's readiness probe; a container without one
// is ready as soon as it runs.
func (p *pod) readiness(spec corev1.Container) func(context.Context) bool {
	if spec.ReadinessProbe == nil || spec.ReadinessProbe.HTTPGet == nil {
		return func(context.Context) bool { return true }
	}
	get := spec.ReadinessProbe.HTTPGet
	port := get.Port.String()
	for _, cp := range spec.Ports {
		if cp.Name == port {
			port = fmt.Sprint(cp.ContainerPort)
		}
	}
	url := "http://" + net.JoinHostPort(p.addr.String(), port) + get.Path
	c := &http.Client{Timeout: time.Second, Transport: &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Second}}
	return func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false
		}
		resp, err := c.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
		return resp.StatusCode >= 200 && resp.StatusCode < 400
	}
}

// environment resolves the container's variables; values may refer to earlier
// ones, as $(NAME).
func (p *pod) environment(spec corev1.Container) map[string]string {
	env := map[string]string{"HOSTNAME": p.obj.Spec.Hostname}
	for _, v := range spec.Env {
		value := expand(v.Value, env)
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = p.field(v.ValueFrom.FieldRef.FieldPath)
		}
		env[v.Name] = value
	}
	return env
}

func (p *pod) field(path string) string {
	switch path {
	case "metadata.name":
		return p.obj.Name
	case "metadata.namespace":
		return p.obj.Namespace
	case "metadata.uid":
		return string(p.obj.UID)
	case "spec.nodeName":
		return p.obj.Spec.NodeName
	case "status.podIP":
		return p.addr.String()
	}
	if key, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
		return p.obj.Labels[strings.TrimSuffix(key, "']")]
	}
	if key, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return p.obj.Annotations[strings.TrimSuffix(key, "']")]
	}
	panic(fmt.Sprintf("podrunner: field %s of pod %s is not played", path, p.key))
}

func expand(s string, env map[string]string) string {
	for k, v := range env {
		s = strings.ReplaceAll(s, "$("+k+")", v)
	}
	return s
}

// tail keeps the end of what is written to it.
type tail struct {
	max int
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if extra := t.buf.Len() - t.max; extra > 0 {
		t.buf.Next(extra)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// logs is where a pod's standard error goes: one file per pod name, so that
// the logs of a pod and its successors stand together.
func (r *Runner) logs(pod types.NamespacedName) io.WriteCloser {
	dir := filepath.Join(r.options.Dir, "logs", pod.Namespace)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		panic(fmt.Sprintf("podrunner: %v", err))
	}
	f, err := os.OpenFile(filepath.Join(dir, pod.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(fmt.Sprintf("podrunner: %v", err))
	}
	return f
}
