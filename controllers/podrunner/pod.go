package podrunner

import (
	"context"
	"encoding/json"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
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

	killOnce sync.Once
	killed   chan struct{} // closed: the grace period is over

	mu       sync.Mutex
	stopping bool   // the object is being deleted
	over     bool   // run has returned
	process  func() // ends the running process as SIGKILL would; nil between two runs
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
		if p.runner.faults.has(down, p.key) {
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
		if !p.runner.faults.has(down, p.key) {
			return err
		}
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
