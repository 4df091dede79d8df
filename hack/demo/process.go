package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// processOf finds the process of a Pod's member on this machine: the one whose
// cgroup carries the Pod's uid and whose program is the quorum binary. The demo
// runs where the kubelets' processes are to be seen, and kubelet writes the uid
// into the cgroup's path, with underscores where systemd keeps the cgroups.
func processOf(pod types.UID) (int, error) {
	uid := string(pod)
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, folder := range folders {
		cgroup, err := os.ReadFile(filepath.Join(folder, "cgroup"))
		if err != nil {
			continue // it has just ended
		}
		if !bytes.Contains(cgroup, []byte(uid)) && !bytes.Contains(cgroup, []byte(strings.ReplaceAll(uid, "-", "_"))) {
			continue
		}
		command, err := os.ReadFile(filepath.Join(folder, "cmdline"))
		if err != nil {
			continue
		}
		if program, _, _ := bytes.Cut(command, []byte{0}); string(program) == "/quorum" {
			return strconv.Atoi(filepath.Base(folder))
		}
	}
	return 0, fmt.Errorf("no process of pod %s is to be seen on this machine", pod)
}
