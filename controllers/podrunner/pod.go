package podrunner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kraft-operator/kraft-operator/quorum/cli"
)

const (
	probePeriod     = 40 * time.Millisecond // instead of the probe's own whole seconds
	mountPeriod     = 50 * time.Millisecond // between looks for claims and ConfigMaps that are not there yet
	restartDelay    = 100 * time.Millisecond
	restartDelayMax = 2 * time.Second // kubelet: 10 s doubling to 5 min
	apiTimeout      = 10 * time.Second
)

// pod is one pod on the node, from its start to the end of its process.
type pod struct {
	runner *Runner
	key    types.NamespacedName
	uid    types.UID
	obj    *corev1.Pod // as of the last status written
	dir    string      // termination message, rendered ConfigMaps
	addr   netip.Addr
	cancel context.CancelFunc // ends the pod, gracefully
	ended  chan struct{}      // closed when run has returned

	killOnce sync.Once
	killed   chan struct{} // closed: the grace period is over

	mu        sync.Mutex
	stopping  bool       // the object is being deleted
	over      bool       // run has returned
	container *container // nil between two runs
}

// container is one run of the pod's only container.
type container struct {
	kill      func() // as SIGKILL would
	startedAt time.Time
}

// stop begins the graceful end: SIGTERM now, SIGKILL when the grace is over.
// It reports whether the pod has ended already.
func (p *pod) stop(grace time.Duration) (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopping && !p.over {
		p.stopping = true
		p.cancel()
		time.AfterFunc(grace, p.kill)
	}
	return p.over
}

// end marks the pod as ended and reports whether its end was asked for, so
// that the object has to go, too.
func (p *pod) end() (stopping bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	close(p.ended)
	return p.stopping
}

func (p *pod) kill() {
	p.killOnce.Do(func() {
		close(p.killed)
		p.cancel()
	})
}

// run is kubelet's work for one pod. It returns when the pod's process has
// ended for good.
func (p *pod) run(ctx context.Context) {
	logger := log.Log.WithName("podrunner").WithValues("pod", p.key)
	p.addr = p.runner.network.assign(p.key)
	root, err := p.mount(ctx)
	for restarts := int32(0); err == nil && ctx.Err() == nil; restarts++ {
		if p.runner.faults.heldDown(p.key) {
			err = p.backOff(ctx, &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}, restarts)
			continue
		}
		var ended *corev1.ContainerStateTerminated
		if ended, err = p.runContainer(ctx, root, restarts); err != nil || ctx.Err() != nil {
			break
		}
		if p.obj.Spec.RestartPolicy == corev1.RestartPolicyNever {
			err = p.setStatus(ctx, func(s *corev1.PodStatus) {
				s.Phase = corev1.PodSucceeded
				if ended.ExitCode != 0 {
					s.Phase = corev1.PodFailed
				}
				s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: ended}
			})
			break
		}
		logger.Info("Container ended", "exitCode", ended.ExitCode, "message", ended.Message)
		err = p.backOff(ctx, ended, restarts)
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		logger.Error(err, "Pod was given up")
	}
}

// backOff shows the crash and waits before the next start.
func (p *pod) backOff(ctx context.Context, ended *corev1.ContainerStateTerminated, restarts int32) error {
	err := p.setStatus(ctx, func(s *corev1.PodStatus) {
		c := &s.ContainerStatuses[0]
		c.LastTerminationState = corev1.ContainerState{Terminated: ended}
		c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "the container ended and is restarted after a delay",
		}}
	})
	for delay := min(restartDelay<<min(restarts, 8), restartDelayMax); ; delay = restartDelay {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(delay):
		}
		if !p.runner.faults.heldDown(p.key) {
			return err
		}
	}
}

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
	p.container = &container{kill: killOnce, startedAt: started.Time}
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

	done := make(chan int, 1)
	go func() {
		done <- p.runner.options.Run(ctx, cli.Env{
			Args:      args[1:],
			Stdin:     strings.NewReader(""),
			Stdout:    io.Discard,
			Stderr:    io.MultiWriter(stderr, logs),
			LookupEnv: func(k string) (string, bool) { v, ok := env[k]; return v, ok },
			FS:        root,
			Listen:    p.runner.network.listen(p.obj, p.addr),
			Dial:      p.runner.network.dial(p.key.Namespace, p.addr),
			Kill:      kill,
		})
	}()
	err := p.setStatus(ctx, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		c := &s.ContainerStatuses[0]
		c.RestartCount = restarts
		c.Started = new(true)
		c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
	})
	code := p.probe(ctx, spec, done)
	p.mu.Lock()
	p.container = nil
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
		now := ask(ctx) && !p.runner.faults.heldUnready(p.key)
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

func (p *pod) setReady(ctx context.Context, ready bool) error {
	// A pod that is being stopped still tells that it is no longer ready.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
	defer cancel()
	return p.setStatus(ctx, func(s *corev1.PodStatus) {
		s.ContainerStatuses[0].Ready = ready
		setCondition(s, corev1.ContainersReady, ready)
		setCondition(s, corev1.PodReady, ready)
	})
}

// setStatus writes what change makes of the last status. Only this pod's own
// object is ever hit, for the patch carries the uid; conditions of others,
// such as DisruptionTarget, stay.
func (p *pod) setStatus(ctx context.Context, change func(*corev1.PodStatus)) error {
	next := p.obj.DeepCopy()
	s := &next.Status
	if len(s.ContainerStatuses) == 0 {
		spec := p.obj.Spec.Containers[0]
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: spec.Name, Image: spec.Image, ImageID: spec.Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
		}}
		s.StartTime = new(metav1.Now())
		s.HostIP = p.runner.network.gateway().String()
		s.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
		s.PodIP = p.addr.String()
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
		setCondition(s, corev1.PodInitialized, true)
		setCondition(s, corev1.ContainersReady, false)
		setCondition(s, corev1.PodReady, false)
	}
	change(s)
	before, err := json.Marshal(corev1.Pod{Status: p.obj.Status})
	if err != nil {
		return err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: p.uid}, Status: *s})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return err
	}
	if err := p.runner.client.Status().Patch(ctx, next.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	p.obj = next
	return nil
}

func setCondition(s *corev1.PodStatus, t corev1.PodConditionType, value bool) {
	status := corev1.ConditionFalse
	if value {
		status = corev1.ConditionTrue
	}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == t {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, metav1.Now()
			}
			return
		}
	}
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t, Status: status, LastTransitionTime: metav1.Now()})
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
