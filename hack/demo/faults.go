package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// faults is the story of `make e2e`: what a real cluster does to a quorum, told with
// the same client and the same judgement as the demo.
var faults = []step{
	{"install the operator", (*demo).install},
	{"apply config/samples: the quorum forms", (*demo).form},
	{"roll to an image that does not exist, and back", (*demo).badImage},
	{"delete all pods at once, by force, three times", (*demo).deleteAll},
	{"power failure of the leader's node", (*demo).nodeFailure},
	{"read everything back", (*demo).readBack},
}

// badImage (RL-01): one member is lost to an image that cannot be pulled, the roll
// stops and says so, and a corrected spec needs no other help.
func (d *demo) badImage(ctx context.Context) (string, error) {
	before, err := d.members(ctx)
	if err != nil {
		return "", err
	}
	good, err := d.settled(ctx, time.Minute)
	if err != nil {
		return "", err
	}
	image, _, _ := strings.Cut(d.newImage, ":")
	if err := d.patch(ctx, fmt.Sprintf(`{"spec":{"image":%q}}`, image+":does-not-exist")); err != nil {
		return "", err
	}
	var stalled string
	if err := d.wait(ctx, 2*time.Minute, func(ctx context.Context) (string, error) {
		mq, err := d.quorum(ctx)
		if err != nil {
			return "", err
		}
		if !apimeta.IsStatusConditionTrue(mq.Status.Conditions, v1alpha1.ConditionQuorumAvailable) {
			return "", errors.New("the quorum is not available while one member cannot start")
		}
		c := apimeta.FindStatusCondition(mq.Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Status != "True" {
			return "Stalled=True", nil
		}
		stalled = c.Reason + ": " + c.Message
		return "", nil
	}); err != nil {
		return "", err
	}
	now, err := d.members(ctx)
	if err != nil {
		return "", err
	}
	touched := 0
	for name, pod := range before {
		if now[name] == nil || now[name].UID != pod.UID {
			touched++
		}
	}
	if touched != 1 {
		return "", fmt.Errorf("%d members were touched by an image that cannot be pulled, want one", touched)
	}
	if err := d.patch(ctx, fmt.Sprintf(`{"spec":{"image":%q}}`, good.Status.Image)); err != nil {
		return "", err
	}
	after, err := d.settled(ctx, 2*time.Minute)
	if err != nil {
		return "", err
	}
	if after.Status.Leader.Epoch != good.Status.Leader.Epoch {
		return "", fmt.Errorf("an image that nobody runs made the epoch %d out of %d", after.Status.Leader.Epoch, good.Status.Leader.Epoch)
	}
	return "one member touched, then: " + stalled, nil
}

// deleteAll (RL-10): nothing but the disks is left, three times.
func (d *demo) deleteAll(ctx context.Context) (string, error) {
	var took []string
	for range 3 {
		before, err := d.settled(ctx, time.Minute)
		if err != nil {
			return "", err
		}
		begun := time.Now()
		if err := d.kubectl(ctx, "delete", "pods", "-n", namespace, "-l", v1alpha1.LabelQuorum+"="+d.name, "--force", "--grace-period=0"); err != nil {
			return "", err
		}
		after := before
		if err := d.wait(ctx, time.Minute, func(ctx context.Context) (string, error) {
			if after, err = d.settled(ctx, time.Minute); err != nil {
				return "", err
			}
			if after.Status.Leader.Epoch == before.Status.Leader.Epoch {
				return "an epoch above " + strconv.Itoa(int(before.Status.Leader.Epoch)), nil // status is of before the deletion
			}
			return "", nil
		}); err != nil {
			return "", err
		}
		took = append(took, seconds(time.Since(begun)))
		if grown := after.Status.Leader.Epoch - before.Status.Leader.Epoch; grown > 5 {
			return "", fmt.Errorf("the epoch grew by %d, want at most 5", grown)
		}
		if err := d.appending(ctx); err != nil {
			return "", err
		}
	}
	return "back after " + strings.Join(took, ", "), nil
}

// nodeFailure takes the leader's node away, kubelet, pods and all; the others go on.
// Only hack/localkube has nodes whose plug can be pulled from here.
func (d *demo) nodeFailure(ctx context.Context) (string, error) {
	pod, epoch, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	file := filepath.Join("/var/lib/localkube", pod.Spec.NodeName+".pid")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "skipped: only hack/localkube has nodes that can be failed", nil
	}
	if err != nil {
		return "", err
	}
	box, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	d.printf("   $ kill -KILL %d   # %s, with all its pods", box, pod.Spec.NodeName)
	if err := syscall.Kill(box, syscall.SIGKILL); err != nil {
		return "", err
	}
	d.load.mark()
	if err := d.appending(ctx); err != nil {
		return "", err
	}
	gap := d.load.longestGap()
	d.printf("     appends go on after %d ms, without the node", gap.Milliseconds())
	d.printf("   $ hack/localkube/up")
	if out, err := exec.CommandContext(ctx, "hack/localkube/up").CombinedOutput(); err != nil {
		return "", fmt.Errorf("hack/localkube/up: %w: %s", err, out)
	}
	var after *v1alpha1.MetadataQuorum
	if err := d.wait(ctx, 2*time.Minute, func(ctx context.Context) (string, error) {
		if after, err = d.settled(ctx, 2*time.Minute); err != nil {
			return "", err
		}
		if after.Status.Leader.Epoch == epoch {
			return "another epoch than " + strconv.Itoa(int(epoch)), nil
		}
		pods, err := d.members(ctx)
		if err != nil {
			return "", err
		}
		if now := pods[pod.Name]; now == nil || !podReady(now) {
			return pod.Name + " to be ready again", nil
		}
		return "", nil
	}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s failed with the leader; epoch %d → %d, gap %d ms; all are back", pod.Spec.NodeName, epoch, after.Status.Leader.Epoch, gap.Milliseconds()), nil
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
