package podrunner

import (
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// faults are what a test does to the node on purpose.
type faults struct {
	mu        sync.Mutex
	badImages map[string]bool
	pods      map[podFault]bool
}

// podFault is what is wrong with every pod of a name.
type podFault struct {
	kind faultKind
	pod  types.NamespacedName
}

type faultKind int

const (
	unready faultKind = iota
	down
	fullDisk
)

func (f *faults) badImage(image string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.badImages[image]
}

func (f *faults) has(kind faultKind, pod types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[podFault{kind, pod}]
}

func (f *faults) set(kind faultKind, pod types.NamespacedName, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[podFault{kind, pod}] = on
}

// BreakImage makes an image impossible to pull, until it is mended.
func (r *Runner) BreakImage(image string, broken bool) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.badImages[image] = broken
}

// HoldUnready keeps every pod of this name from being reported Ready while its
// process runs on, until it is let go.
func (r *Runner) HoldUnready(pod types.NamespacedName, hold bool) { r.faults.set(unready, pod, hold) }

// HoldDown keeps the containers of every Pod of this name from being started,
// in a crash loop as it were, until it is let go. With KillProcess it makes a
// member that is down and stays down.
func (r *Runner) HoldDown(pod types.NamespacedName, hold bool) { r.faults.set(down, pod, hold) }

// FillDisk has every Pod of this name find no free byte on its volumes, until
// they are emptied again.
func (r *Runner) FillDisk(pod types.NamespacedName, full bool) { r.faults.set(fullDisk, pod, full) }

// KillProcess ends the pod's running process as SIGKILL would; the pod stays
// and its container is restarted. It reports whether there was a process.
func (r *Runner) KillProcess(name types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if p.key != name {
			continue
		}
		p.mu.Lock()
		kill := p.process
		p.mu.Unlock()
		if kill != nil {
			kill()
			return true
		}
	}
	return false
}

// WipeClaim empties a claim's volume, as a replaced disk would be. The pod that
// mounts it should be dead or killed right after.
func (r *Runner) WipeClaim(ctx context.Context, name types.NamespacedName) error {
	var pvc corev1.PersistentVolumeClaim
	if err := r.reader.Get(ctx, name, &pvc); err != nil {
		return err
	}
	dir := r.VolumeDir(&pvc)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("wipe claim %s: %w", name, err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(dir + "/" + e.Name()); err != nil {
			return fmt.Errorf("wipe claim %s: %w", name, err)
		}
	}
	return nil
}

// VolumeDir is where the volume of a claim lies on this machine. It belongs to
// the claim's UID: a new claim of the same name has a new volume.
func (r *Runner) VolumeDir(pvc *corev1.PersistentVolumeClaim) string {
	return fmt.Sprintf("%s/volumes/%s", r.options.Dir, pvc.UID)
}

// running reports whether the node itself is still up: a pod that ends with it
// stays in the API.
func (r *Runner) running() bool { return r.ctx.Err() == nil }
