package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// namespace is where the quorum lives. It enforces the restricted level of Pod Security.
const namespace = "kraft-demo"

// options is what the command line says.
type options struct {
	operator string // kustomization folder
	sample   string // kustomization folder
	newImage string
	dns      string
}

// demo is the state of one run.
type demo struct {
	options
	kube    client.Client
	out     io.Writer
	started time.Time
	load    *load

	name      string // of the MetadataQuorum that the sample holds
	lastState string // what was printed last while waiting

	rows              []row
	voters, observers int32
	rolls             int
	rollElections     int
	longestRollGap    time.Duration
	verdict           verdict
}

func newDemo(o options, out io.Writer) (*demo, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	restConfig, err := config.GetConfig()
	if err != nil {
		return nil, err
	}
	restConfig.QPS = -1 // a few reads a second; no reason to hold any back
	kube, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &demo{options: o, kube: kube, out: out, started: time.Now(), load: &load{}}, nil
}

func (d *demo) close() { d.load.close() }

// printf prints one line after the time since the start.
func (d *demo) printf(format string, args ...any) {
	fmt.Fprintf(d.out, "%7.1fs  %s\n", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
}

// kubectl does what a person would type, and shows it and what it said.
func (d *demo) kubectl(ctx context.Context, args ...string) error {
	_, err := d.kubectlOutput(ctx, args...)
	return err
}

func (d *demo) kubectlOutput(ctx context.Context, args ...string) (string, error) {
	d.printf("   $ kubectl %s", quote(args))
	out, err := exec.CommandContext(ctx, "kubectl", args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		d.printf("     %s", strings.TrimRight(line, "\n"))
	}
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", quote(args), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// quote joins arguments as one would type them.
func quote(args []string) string {
	quoted := slices.Clone(args)
	for i, a := range quoted {
		if strings.ContainsAny(a, `{}" *`) {
			quoted[i] = "'" + a + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// wait polls done twice a second until it holds. done says what is still missing;
// the last such words are the error when the patience ends.
func (d *demo) wait(ctx context.Context, patience time.Duration, done func(context.Context) (missing string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	missing := "the first answer of the API server"
	for {
		now, err := done(ctx)
		switch {
		case err == nil && now == "":
			return nil
		case err == nil:
			missing = now
		case ctx.Err() == nil:
			missing = err.Error() // the API server may have a bad moment
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %s, waiting for %s", seconds(patience), missing)
		case <-tick.C:
		}
	}
}

// quorum reads the resource, and prints a line whenever it says something new.
func (d *demo) quorum(ctx context.Context) (*v1alpha1.MetadataQuorum, error) {
	mq := &v1alpha1.MetadataQuorum{}
	if err := d.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: d.name}, mq); err != nil {
		return nil, err
	}
	if state := describe(mq); state != d.lastState {
		d.printf("     %s", state)
		d.lastState = state
	}
	return mq, nil
}

// describe is the state of a quorum in a line: who leads, how many, and what the operator is about.
func describe(mq *v1alpha1.MetadataQuorum) string {
	var b strings.Builder
	if l := mq.Status.Leader; l != nil {
		fmt.Fprintf(&b, "leader %d epoch %d", l.NodeID, l.Epoch)
	} else {
		b.WriteString("no leader")
	}
	if s := mq.Status.Summary; s != nil {
		fmt.Fprintf(&b, " | voters %s observers %s updated %s", s.Voters, s.Observers, s.Updated)
	}
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.ConditionReady} {
		if c := apimeta.FindStatusCondition(mq.Status.Conditions, kind); c != nil {
			fmt.Fprintf(&b, " | %s=%s %s: %s", kind, c.Status, c.Reason, c.Message)
			break
		}
	}
	return b.String()
}

// settled waits until the operator says Ready of the spec as it is now, with all
// members updated, and returns what it saw.
func (d *demo) settled(ctx context.Context, patience time.Duration) (*v1alpha1.MetadataQuorum, error) {
	var mq *v1alpha1.MetadataQuorum
	err := d.wait(ctx, patience, func(ctx context.Context) (string, error) {
		var err error
		if mq, err = d.quorum(ctx); err != nil {
			return "", err
		}
		if mq.Status.ObservedGeneration != mq.Generation {
			return fmt.Sprintf("the operator to see generation %d", mq.Generation), nil
		}
		if !apimeta.IsStatusConditionTrue(mq.Status.Conditions, v1alpha1.ConditionReady) || mq.Status.Leader == nil || mq.Status.Summary == nil {
			return "Ready=True: " + describe(mq), nil
		}
		s := mq.Status.Summary
		for what, count := range map[string]string{"voters": s.Voters, "observers": s.Observers, "updated members": s.Updated} {
			if have, want, ok := strings.Cut(count, "/"); !ok || have != want {
				return fmt.Sprintf("all %s, of which there are %s", what, count), nil
			}
		}
		return "", nil
	})
	return mq, err
}

// members returns the quorum's live Pods by name; format Pods and those that are going are left out.
func (d *demo) members(ctx context.Context) (map[string]*corev1.Pod, error) {
	var list corev1.PodList
	if err := d.kube.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelQuorum: d.name},
		client.HasLabels{v1alpha1.LabelPool}); err != nil {
		return nil, err
	}
	pods := make(map[string]*corev1.Pod, len(list.Items))
	for i, p := range list.Items {
		if p.DeletionTimestamp == nil && p.Labels[v1alpha1.LabelFormat] == "" {
			pods[p.Name] = &list.Items[i]
		}
	}
	return pods, nil
}

// dialer connects to names as pods see them: the machine's own resolver does not know the cluster's.
func (d *demo) dialer(ctx context.Context) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	server := d.dns
	if server == "" {
		var service corev1.Service
		if err := d.kube.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-dns"}, &service); err != nil {
			return nil, fmt.Errorf("find the cluster's DNS: %w", err)
		}
		server = service.Spec.ClusterIP
	}
	var plain net.Dialer
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return plain.DialContext(ctx, network, net.JoinHostPort(server, "53"))
	}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(host, ".svc") {
			host += ".cluster.local." // what a pod's search list appends
		}
		addresses, err := resolver.LookupHost(ctx, host)
		if err != nil {
			// Not a net.DNSError: franz-go gives up on a name that is not found, but here it
			// belongs to a Pod that is not there yet.
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New(err.Error())}
		}
		return plain.DialContext(ctx, network, net.JoinHostPort(addresses[0], port))
	}, nil
}

// diagnose prints what one would look at first. It never fails: there is a failure to report already.
func (d *demo) diagnose(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	fmt.Fprintln(os.Stderr, "\n---- what the cluster says")
	commands := [][]string{
		{"get", "mq,pods,pvc,pdb,configmaps,controllerrevisions", "-n", namespace, "-o", "wide"},
		{"describe", "mq", "-n", namespace},
		{"get", "events", "-n", namespace, "--sort-by=.lastTimestamp"},
		{"get", "pods,events", "-n", operatorNamespace},
		{"logs", "-n", operatorNamespace, "deployment/" + operatorDeployment, "--tail=80"},
		{"logs", "-n", namespace, "-l", v1alpha1.LabelQuorum, "--tail=25", "--prefix", "--ignore-errors"},
		{"logs", "-n", namespace, "-l", v1alpha1.LabelQuorum, "--tail=25", "--prefix", "--ignore-errors", "--previous"},
	}
	for _, args := range commands {
		fmt.Fprintf(os.Stderr, "\n$ kubectl %s\n", quote(args))
		c := exec.CommandContext(ctx, "kubectl", args...)
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		_ = c.Run() // its own words are on stderr
	}
	fmt.Fprintln(os.Stderr, "\n---- end of what the cluster says")
}
