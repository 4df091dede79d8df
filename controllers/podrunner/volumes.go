package podrunner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// rootFS is what the container sees: its volume mounts and the termination log,
// on a root file system that has nothing else.
type rootFS struct {
	vfs.FS
	terminationLog string      // path on this machine
	full           func() bool // the volumes have no free byte
}

// FreeSpace implements vfs.FS. What is written finds room all the same: the
// member has to look.
func (f *rootFS) FreeSpace(dir string) (int64, error) {
	if f.full() {
		return 0, nil
	}
	return f.FS.FreeSpace(dir)
}

// reset gives the next container an empty termination log, as kubelet does: the
// program writes it only where it is mounted.
func (f *rootFS) reset() error { return os.WriteFile(f.terminationLog, nil, 0o600) }

// terminationMessage is what the container has written before it ended.
func (f *rootFS) terminationMessage() string {
	b, err := os.ReadFile(f.terminationLog)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// mount makes the container's file system. Claims and ConfigMaps that are not
// there yet are waited for, as kubelet does.
func (p *pod) mount(ctx context.Context) (*rootFS, error) {
	if len(p.obj.Spec.Containers) != 1 || len(p.obj.Spec.InitContainers) != 0 {
		return nil, fmt.Errorf("pod %s has %d containers and %d init containers: only one container is played",
			p.key, len(p.obj.Spec.Containers), len(p.obj.Spec.InitContainers))
	}
	container := p.obj.Spec.Containers[0]
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	root := &rootFS{
		terminationLog: filepath.Join(p.dir, "termination-log"),
		full:           func() bool { return p.runner.faults.has(fullDisk, p.key) },
	}
	table := map[string]string{container.TerminationMessagePath: root.terminationLog}
	var readOnly []string
	for _, m := range container.VolumeMounts {
		dir, err := p.volume(ctx, m.Name)
		if err != nil {
			return nil, fmt.Errorf("mount volume %s of pod %s: %w", m.Name, p.key, err)
		}
		table[m.MountPath] = filepath.Join(dir, m.SubPath)
		if m.ReadOnly || dir == p.configDir(m.Name) {
			readOnly = append(readOnly, m.MountPath)
		}
	}
	root.FS = vfs.WithFaults(vfs.Mount(vfs.OS, table), func(c vfs.Call) error {
		if c.Op.Writes() && slices.ContainsFunc(readOnly, func(dir string) bool { return strings.HasPrefix(c.Path, dir) }) {
			return syscall.EROFS
		}
		return nil
	})
	return root, nil
}

// volume is the directory behind one of the pod's volumes.
func (p *pod) volume(ctx context.Context, name string) (string, error) {
	for i := range p.obj.Spec.Volumes {
		v := &p.obj.Spec.Volumes[i]
		switch {
		case v.Name != name:
		case v.PersistentVolumeClaim != nil:
			return p.claimVolume(ctx, v.PersistentVolumeClaim.ClaimName)
		case v.ConfigMap != nil:
			return p.configVolume(ctx, name, v.ConfigMap)
		default:
			return "", fmt.Errorf("a volume of this kind is not played: %v", v.VolumeSource)
		}
	}
	return "", errors.New("no such volume")
}

func (p *pod) claimVolume(ctx context.Context, name string) (string, error) {
	var pvc corev1.PersistentVolumeClaim
	err := p.wait(ctx, func() (bool, error) {
		err := p.runner.reader.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: name}, &pvc)
		return err == nil && pvc.Status.Phase == corev1.ClaimBound, client.IgnoreNotFound(err)
	})
	if err != nil {
		return "", err
	}
	dir := p.runner.VolumeDir(&pvc)
	return dir, os.MkdirAll(dir, 0o700)
}

func (p *pod) configDir(volume string) string { return filepath.Join(p.dir, "volumes", volume) }

func (p *pod) configVolume(ctx context.Context, volume string, source *corev1.ConfigMapVolumeSource) (string, error) {
	var cm corev1.ConfigMap
	err := p.wait(ctx, func() (bool, error) {
		err := p.runner.reader.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: source.Name}, &cm)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return "", err
	}
	dir := p.configDir(volume)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	names := map[string]string{} // key → file
	for key := range cm.Data {
		names[key] = key
	}
	if len(source.Items) > 0 {
		clear(names)
		for _, item := range source.Items {
			names[item.Key] = item.Path
		}
	}
	for key, file := range names {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(cm.Data[key]), 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// wait asks until the answer is yes; errors of the API server but "not found"
// are asked again, too: the node outlives an API server that is away.
func (p *pod) wait(ctx context.Context, ask func() (bool, error)) error {
	for {
		ok, err := ask()
		if ok {
			return nil
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(mountPeriod):
		}
	}
}
