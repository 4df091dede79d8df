package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// Where config/default puts the operator.
const (
	operatorNamespace  = "kraft-operator-system"
	operatorDeployment = "kraft-operator-controller-manager"
)

// A roll waits this long after each member, so that a person can interfere; the
// demo's person does not want to.
const minReadySeconds = 2

// install removes the quorum of an earlier run, and installs the operator over its own.
func (d *demo) install(ctx context.Context) (string, error) {
	if err := d.kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found", "--wait", "--timeout=120s"); err != nil {
		return "", err
	}
	if err := d.kubectl(ctx, "apply", "--server-side", "-k", d.operator); err != nil {
		return "", err
	}
	if err := d.kubectl(ctx, "-n", operatorNamespace, "rollout", "status", "deployment/"+operatorDeployment, "--timeout=120s"); err != nil {
		return "", err
	}
	if err := d.kubectl(ctx, "create", "namespace", namespace); err != nil {
		return "", err
	}
	if err := d.kubectl(ctx, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"); err != nil {
		return "", err
	}
	return "the operator runs; namespace " + namespace + " enforces Pod Security restricted", nil
}

// form applies the sample, waits for the quorum, and starts the client.
func (d *demo) form(ctx context.Context) (string, error) {
	if err := d.kubectl(ctx, "apply", "-n", namespace, "-k", d.sample); err != nil {
		return "", err
	}
	var list v1alpha1.MetadataQuorumList
	if err := d.kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	if len(list.Items) != 1 {
		return "", fmt.Errorf("%s holds %d MetadataQuorums, the demo is about one", d.sample, len(list.Items))
	}
	d.name = list.Items[0].Name
	if err := d.patch(ctx, fmt.Sprintf(`{"spec":{"rollout":{"minReadySeconds":%d}}}`, minReadySeconds)); err != nil {
		return "", err
	}
	mq, err := d.settled(ctx, 2*time.Minute)
	if err != nil {
		return "", err
	}
	d.voters, d.observers = mq.Status.Quorum.Size, mq.Status.Observers.Ready

	dial, err := d.dialer(ctx)
	if err != nil {
		return "", err
	}
	if err := d.load.start(context.WithoutCancel(ctx), dial, d.bootstrap()); err != nil {
		return "", err
	}
	if err := d.appending(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("leader %d, epoch %d, %s voters, %s observers; a client appends from now on",
		mq.Status.Leader.NodeID, mq.Status.Leader.Epoch, mq.Status.Summary.Voters, mq.Status.Summary.Observers), nil
}

// bootstrap is where a Kafka client begins.
func (d *demo) bootstrap() string { return fmt.Sprintf("%s-bootstrap.%s.svc:9092", d.name, namespace) }

// appending waits until appends are acknowledged again, a hundred more than now.
func (d *demo) appending(ctx context.Context) error {
	before, _ := d.load.count()
	return d.wait(ctx, time.Minute, func(context.Context) (string, error) {
		now, err := d.load.count()
		if err == nil && now < before+100 {
			return fmt.Sprintf("appends to be acknowledged: %d were, 100 more are wanted", now-before), nil
		}
		return "", err
	})
}

func (d *demo) patch(ctx context.Context, patch string) error {
	return d.kubectl(ctx, "patch", "mq", d.name, "-n", namespace, "--type=merge", "-p", patch)
}

// look checks the columns that a person sees.
func (d *demo) look(ctx context.Context) (string, error) {
	mq, err := d.settled(ctx, time.Minute)
	if err != nil {
		return "", err
	}
	out, err := d.kubectlOutput(ctx, "get", "mq", d.name, "-n", namespace)
	if err != nil {
		return "", err
	}
	titles, values := columns(out)
	want := map[string]string{
		"LEADER":    fmt.Sprint(mq.Status.Leader.NodeID),
		"EPOCH":     fmt.Sprint(mq.Status.Leader.Epoch),
		"VOTERS":    fmt.Sprintf("%d/%d", d.voters, d.voters),
		"OBSERVERS": fmt.Sprintf("%d/%d", d.observers, d.observers),
		"READY":     "True",
	}
	for title, value := range want {
		i := slices.Index(titles, title)
		if i < 0 || i >= len(values) || values[i] != value {
			return "", fmt.Errorf("kubectl get mq does not show %s %s but\n%s", title, value, out)
		}
	}
	return fmt.Sprintf("LEADER %s  EPOCH %s  VOTERS %s  OBSERVERS %s", want["LEADER"], want["EPOCH"], want["VOTERS"], want["OBSERVERS"]), nil
}

// columns splits the title line and the first line below it.
func columns(table string) (titles, values []string) {
	lines := strings.Split(table, "\n")
	if len(lines) < 2 {
		return strings.Fields(lines[0]), nil
	}
	return strings.Fields(lines[0]), strings.Fields(lines[1])
}

// scale adds an observer and takes it away again; everybody else must not notice.
func (d *demo) scale(ctx context.Context) (string, error) {
	before, err := d.members(ctx)
	if err != nil {
		return "", err
	}
	epoch, err := d.epoch(ctx)
	if err != nil {
		return "", err
	}
	for _, replicas := range []int32{d.observers + 1, d.observers} {
		if err := d.kubectl(ctx, "scale", "mq/"+d.name, "-n", namespace, fmt.Sprintf("--replicas=%d", replicas)); err != nil {
			return "", err
		}
		var now map[string]*corev1.Pod
		err := d.wait(ctx, time.Minute, func(ctx context.Context) (string, error) {
			mq, err := d.quorum(ctx)
			if err != nil {
				return "", err
			}
			if mq.Status.Observers == nil || mq.Status.Observers.Ready != replicas || mq.Status.Observers.Replicas != replicas {
				return fmt.Sprintf("%d observers: %s", replicas, describe(mq)), nil
			}
			now, err = d.members(ctx)
			if err == nil && len(now) != int(d.voters+replicas) {
				return fmt.Sprintf("%d pods, of which there are %d", d.voters+replicas, len(now)), nil
			}
			return "", err
		})
		if err != nil {
			return "", err
		}
		for name, pod := range before {
			if now[name] == nil || now[name].UID != pod.UID {
				return "", fmt.Errorf("scaling to %d observers replaced or removed %s", replicas, name)
			}
		}
	}
	mq, err := d.settled(ctx, time.Minute)
	if err != nil {
		return "", err
	}
	if mq.Status.Leader.Epoch != epoch {
		return "", fmt.Errorf("scaling observers made the epoch %d out of %d", mq.Status.Leader.Epoch, epoch)
	}
	return fmt.Sprintf("observers %d → %d → %d; every other pod and the epoch stayed", d.observers, d.observers+1, d.observers), nil
}

func (d *demo) epoch(ctx context.Context) (int32, error) {
	mq, err := d.settled(ctx, time.Minute)
	if err != nil {
		return 0, err
	}
	return mq.Status.Leader.Epoch, nil
}

func (d *demo) rollImage(ctx context.Context) (string, error) {
	return d.roll(ctx, fmt.Sprintf(`{"spec":{"image":%q}}`, d.newImage), func(p *corev1.Pod) error {
		if got := p.Spec.Containers[0].Image; got != d.newImage {
			return fmt.Errorf("%s runs %s", p.Name, got)
		}
		return nil
	})
}

func (d *demo) rollRestart(ctx context.Context) (string, error) {
	at := time.Now().UTC().Format(time.RFC3339)
	return d.roll(ctx, fmt.Sprintf(`{"spec":{"rollout":{"restartedAt":%q}}}`, at), func(p *corev1.Pod) error {
		if p.CreationTimestamp.UTC().Format(time.RFC3339) < at {
			return fmt.Errorf("%s is of %s", p.Name, p.CreationTimestamp.UTC().Format(time.RFC3339))
		}
		return nil
	})
}

// roll changes the spec, and expects every member to be replaced once, with one handoff and one election.
func (d *demo) roll(ctx context.Context, patch string, updated func(*corev1.Pod) error) (string, error) {
	old, err := d.members(ctx)
	if err != nil {
		return "", err
	}
	before, err := d.settled(ctx, time.Minute)
	if err != nil {
		return "", err
	}
	d.load.mark()
	if err := d.patch(ctx, patch); err != nil {
		return "", err
	}
	var after *v1alpha1.MetadataQuorum
	err = d.wait(ctx, 5*time.Minute, func(ctx context.Context) (string, error) {
		if after, err = d.settled(ctx, 5*time.Minute); err != nil {
			return "", err
		}
		now, err := d.members(ctx)
		if err != nil {
			return "", err
		}
		for name, pod := range old {
			if now[name] == nil || now[name].UID == pod.UID {
				return name + " to be replaced", nil
			}
			if err := updated(now[name]); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	gap := d.load.longestGap()
	if err != nil {
		return "", err
	}
	d.rolls++
	elections := int(after.Status.Leader.Epoch - before.Status.Leader.Epoch)
	d.rollElections += elections
	d.longestRollGap = max(d.longestRollGap, gap)
	if elections != 1 {
		return "", fmt.Errorf("the roll made %d elections, epoch %d to %d; a handoff makes one", elections, before.Status.Leader.Epoch, after.Status.Leader.Epoch)
	}
	result := fmt.Sprintf("%d members replaced, one election: epoch %d → %d; longest gap of the client %d ms",
		len(old), before.Status.Leader.Epoch, after.Status.Leader.Epoch, gap.Milliseconds())
	r := after.Status.Rollout
	if r == nil || r.LastHandoff == nil {
		return "", errors.New("status.rollout.lastHandoff is absent after a roll")
	}
	h := r.LastHandoff
	if h.ToEpoch != after.Status.Leader.Epoch || h.Outcome != v1alpha1.HandoffSucceeded {
		return "", fmt.Errorf("status.rollout.lastHandoff tells of another transfer: %+v", *h)
	}
	if h.WriteGap != nil {
		result += fmt.Sprintf(", of the %s %d ms", h.MeasuredBy, h.WriteGap.Milliseconds())
	}
	return result, d.appending(ctx)
}

// evict asks for two voters at once, as two drains of nodes would: one may go, the other must stay.
func (d *demo) evict(ctx context.Context) (string, error) {
	if err := d.disruptionAllowed(ctx); err != nil {
		return "", err
	}
	pods, err := d.members(ctx)
	if err != nil {
		return "", err
	}
	var voters []*corev1.Pod
	for _, p := range pods {
		if p.Labels[v1alpha1.LabelPool] == v1alpha1.PoolVoters {
			voters = append(voters, p)
		}
	}
	slices.SortFunc(voters, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if len(voters) < 2 {
		return "", fmt.Errorf("only %d voters run", len(voters))
	}

	var answers [2]error
	var group sync.WaitGroup
	for i, p := range voters[:2] {
		d.printf("   evict %s", p.Name)
		group.Go(func() {
			answers[i] = d.kube.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}})
		})
	}
	group.Wait()
	var granted, refused string
	for i, p := range voters[:2] {
		d.printf("     %s: %s", p.Name, answer(answers[i]))
		switch {
		case answers[i] == nil:
			granted = p.Name
		case apierrors.IsTooManyRequests(answers[i]):
			refused = p.Name
		default:
			return "", fmt.Errorf("evict %s: %w", p.Name, answers[i])
		}
	}
	if granted == "" || refused == "" {
		return "", fmt.Errorf("of two evictions one has to be granted and one refused; %s: %s, %s: %s",
			voters[0].Name, answer(answers[0]), voters[1].Name, answer(answers[1]))
	}
	if err := d.replaced(ctx, pods[granted]); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s was evicted and is back, %s was refused (429)", granted, refused), nil
}

func answer(err error) string {
	if err == nil {
		return "granted"
	}
	return err.Error()
}

// disruptionAllowed waits until the voters' budget has room for exactly one: the
// disruption controller takes a moment to count Pods that have just become ready.
func (d *demo) disruptionAllowed(ctx context.Context) error {
	return d.wait(ctx, time.Minute, func(ctx context.Context) (string, error) {
		var list policyv1.PodDisruptionBudgetList
		if err := d.kube.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelQuorum: d.name}); err != nil {
			return "", err
		}
		for _, b := range list.Items {
			if b.Spec.Selector != nil && b.Spec.Selector.MatchLabels[v1alpha1.LabelPool] == v1alpha1.PoolVoters {
				if b.Status.DisruptionsAllowed == 1 && b.Status.CurrentHealthy == d.voters {
					return "", nil
				}
				return fmt.Sprintf("budget %s to allow one disruption: it allows %d, with %d healthy", b.Name, b.Status.DisruptionsAllowed, b.Status.CurrentHealthy), nil
			}
		}
		return "a PodDisruptionBudget for the voters", nil
	})
}

// replaced waits until the operator has made another pod in old's place, and the quorum is whole.
func (d *demo) replaced(ctx context.Context, old *corev1.Pod) error {
	if err := d.wait(ctx, 2*time.Minute, func(ctx context.Context) (string, error) {
		now, err := d.members(ctx)
		if err == nil && (now[old.Name] == nil || now[old.Name].UID == old.UID) {
			return "another pod in the place of " + old.Name, nil
		}
		return "", err
	}); err != nil {
		return err
	}
	if _, err := d.settled(ctx, 2*time.Minute); err != nil {
		return err
	}
	return d.appending(ctx)
}

// leader returns the leader's Pod and the epoch.
func (d *demo) leader(ctx context.Context) (*corev1.Pod, int32, error) {
	mq, err := d.settled(ctx, time.Minute)
	if err != nil {
		return nil, 0, err
	}
	pods, err := d.members(ctx)
	if err != nil {
		return nil, 0, err
	}
	pod := pods[mq.Status.Leader.Pod]
	if pod == nil {
		return nil, 0, fmt.Errorf("the leader's pod %q is not there", mq.Status.Leader.Pod)
	}
	return pod, mq.Status.Leader.Epoch, nil
}

func (d *demo) deleteLeader(ctx context.Context) (string, error) {
	pod, epoch, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	if err := d.kubectl(ctx, "delete", "pod", pod.Name, "-n", namespace, "--wait=false"); err != nil {
		return "", err
	}
	if err := d.replaced(ctx, pod); err != nil {
		return "", err
	}
	now, epochNow, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	if epochNow != epoch+1 {
		return "", fmt.Errorf("the leader was told to go and made %d elections, epoch %d to %d; it hands over in one", epochNow-epoch, epoch, epochNow)
	}
	return fmt.Sprintf("%s handed over to %s, epoch %d → %d; gap %d ms", pod.Name, now.Name, epoch, epochNow, d.load.longestGap().Milliseconds()), nil
}

// kill ends the leader's process without a word; kubelet starts it again in the same Pod.
func (d *demo) kill(ctx context.Context) (string, error) {
	pod, epoch, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	process, err := processOf(pod.UID)
	if err != nil {
		return "", err
	}
	d.printf("   $ kill -KILL %d   # /quorum of %s", process, pod.Name)
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		return "", fmt.Errorf("kill process %d of %s: %w", process, pod.Name, err)
	}
	if err := d.wait(ctx, time.Minute, func(ctx context.Context) (string, error) {
		pods, err := d.members(ctx)
		if err != nil {
			return "", err
		}
		now := pods[pod.Name]
		if now == nil || now.UID != pod.UID {
			return "", fmt.Errorf("%s was replaced, although kubelet can start its container again", pod.Name)
		}
		if s := now.Status.ContainerStatuses; len(s) == 0 || s[0].RestartCount <= pod.Status.ContainerStatuses[0].RestartCount || !s[0].Ready {
			return pod.Name + " to run again", nil
		}
		return "", nil
	}); err != nil {
		return "", err
	}
	now, epochNow, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	if epochNow <= epoch {
		return "", fmt.Errorf("the leader was killed and the epoch is still %d", epochNow)
	}
	if err := d.appending(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s took over from %s, epoch %d → %d; gap %d ms", now.Name, pod.Name, epoch, epochNow, d.load.longestGap().Milliseconds()), nil
}

// recreate deletes the resource: the Pods go, the claims stay. Applied again, it is the same cluster.
func (d *demo) recreate(ctx context.Context) (string, error) {
	before, err := d.settled(ctx, time.Minute)
	if err != nil {
		return "", err
	}
	claims, err := d.claims(ctx)
	if err != nil {
		return "", err
	}
	if err := d.kubectl(ctx, "delete", "mq", d.name, "-n", namespace, "--wait"); err != nil {
		return "", err
	}
	if err := d.wait(ctx, 2*time.Minute, func(ctx context.Context) (string, error) {
		var pods corev1.PodList
		if err := d.kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return "", err
		}
		if len(pods.Items) > 0 {
			return fmt.Sprintf("%d pods to go", len(pods.Items)), nil
		}
		return "", nil
	}); err != nil {
		return "", err
	}
	if err := d.sameClaims(ctx, claims); err != nil {
		return "", err
	}
	if err := d.kubectl(ctx, "get", "pvc", "-n", namespace); err != nil {
		return "", err
	}
	if err := d.kubectl(ctx, "apply", "-n", namespace, "-k", d.sample); err != nil {
		return "", err
	}
	after, err := d.settled(ctx, 2*time.Minute)
	if err != nil {
		return "", err
	}
	if after.Status.ClusterID != before.Status.ClusterID {
		return "", fmt.Errorf("the resource became cluster %s, its claims are of cluster %s", after.Status.ClusterID, before.Status.ClusterID)
	}
	if after.Status.Quorum.HighWatermark < before.Status.Quorum.HighWatermark {
		return "", fmt.Errorf("the high watermark was %d and is %d", before.Status.Quorum.HighWatermark, after.Status.Quorum.HighWatermark)
	}
	if err := d.sameClaims(ctx, claims); err != nil {
		return "", err
	}
	if err := d.appending(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d claims stayed, cluster %s is back at epoch %d", len(claims), after.Status.ClusterID, after.Status.Leader.Epoch), nil
}

// claims returns the uids of the quorum's claims by name.
func (d *demo) claims(ctx context.Context) (map[string]string, error) {
	var list corev1.PersistentVolumeClaimList
	if err := d.kube.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelQuorum: d.name}); err != nil {
		return nil, err
	}
	claims := make(map[string]string, len(list.Items))
	for _, c := range list.Items {
		if c.DeletionTimestamp == nil {
			claims[c.Name] = string(c.UID)
		}
	}
	return claims, nil
}

func (d *demo) sameClaims(ctx context.Context, want map[string]string) error {
	now, err := d.claims(ctx)
	if err != nil {
		return err
	}
	for name, uid := range want {
		if now[name] != uid {
			return fmt.Errorf("claim %s did not outlive the resource", name)
		}
	}
	return nil
}

// readBack ends the client and compares what it was promised with what is stored.
func (d *demo) readBack(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := d.load.finish(ctx); err != nil {
		return "", err
	}
	dial, err := d.dialer(ctx)
	if err != nil {
		return "", err
	}
	if d.verdict, err = d.load.check(ctx, dial, d.bootstrap()); err != nil {
		return "", err
	}
	mq, err := d.settled(ctx, time.Minute)
	if err != nil {
		return "", err
	}
	d.voters, d.observers = mq.Status.Quorum.Size, mq.Status.Observers.Ready
	return d.verdict.String(), nil
}
