package podrunner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// network is the pods' network: every pod has a loopback address of its own,
// so that all of them listen on the ports of the rendered configuration, and
// the names of pods and Services resolve as the cluster's DNS would.
type network struct {
	reader client.Reader
	subnet byte         // second octet of 127.0.0.0/8
	lock   net.Listener // held while this process owns the subnet
	stable bool         // a recreated pod gets its old address again

	mu     sync.Mutex
	next   uint16
	byName map[types.NamespacedName]netip.Addr
}

// lockPort is the port whose listener marks a subnet as taken by one test
// process; the members' own ports are in another range.
const lockPort = 19999

func newNetwork(reader client.Reader, stable bool) (*network, error) {
	for i := range 64 {
		subnet := byte(64 + (os.Getpid()+i)%64)
		lock, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf("127.%d.0.1:%d", subnet, lockPort))
		if err != nil {
			continue
		}
		return &network{
			reader: reader, subnet: subnet, lock: lock, stable: stable, next: 1,
			byName: map[types.NamespacedName]netip.Addr{},
		}, nil
	}
	return nil, errors.New("no free /16 in 127.64.0.0 to 127.127.0.0 for the pods' addresses")
}

func (n *network) close() error { return n.lock.Close() }

// assign gives a pod its address: never one that another pod has had, unless
// addresses are stable and the pod had it itself under the same name.
func (n *network) assign(pod types.NamespacedName) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr, ok := n.byName[pod]; ok && n.stable {
		return addr
	}
	n.next++
	if byte(n.next) == 255 || byte(n.next) == 0 {
		n.next += 2
	}
	addr := netip.AddrFrom4([4]byte{127, n.subnet, byte(n.next >> 8), byte(n.next)})
	n.byName[pod] = addr
	return addr
}

// listen opens a pod's listener: the wildcard address and the pod's own names
// mean its own address and nothing else.
func (n *network) listen(pod *corev1.Pod, own netip.Addr) func(context.Context, string, string) (net.Listener, error) {
	return func(ctx context.Context, netw, addr string) (net.Listener, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		switch {
		case host == "", host == "0.0.0.0", host == "::", host == own.String(), host == pod.Name:
		case strings.HasPrefix(host, pod.Spec.Hostname+"."+pod.Spec.Subdomain):
		default:
			return nil, fmt.Errorf("listen on %s: pod %s has only the address %s", addr, pod.Name, own)
		}
		var lc net.ListenConfig
		return lc.Listen(ctx, netw, net.JoinHostPort(own.String(), port))
	}
}

// dial connects from a pod. The connection carries the pod's own address as its
// source, as a real one would.
func (n *network) dial(own netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, netw, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		addrs, err := n.resolve(ctx, host)
		if err != nil {
			return nil, err
		}
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, 0))}
		var errs []error
		for _, a := range addrs {
			conn, err := d.DialContext(ctx, netw, net.JoinHostPort(a.String(), port))
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
}

// resolve answers as the cluster's DNS: <service>.<namespace>.svc has the
// addresses of the Service's endpoints, <hostname>.<service>.<namespace>.svc
// that of one pod. Not-ready pods count only where the Service publishes them.
func (n *network) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	notFound := &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	name, ok := strings.CutSuffix(strings.TrimSuffix(strings.TrimSuffix(host, "."), ".cluster.local"), ".svc")
	if !ok {
		return nil, notFound
	}
	labels := strings.Split(name, ".")
	hostname := ""
	switch len(labels) {
	case 2:
	case 3:
		hostname, labels = labels[0], labels[1:]
	default:
		return nil, notFound
	}
	namespace := labels[1]
	var svc corev1.Service
	if err := n.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: labels[0]}, &svc); err != nil {
		return nil, notFound
	}
	var pods corev1.PodList
	if err := n.reader.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels(svc.Spec.Selector)); err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, p := range pods.Items {
		addr, err := netip.ParseAddr(p.Status.PodIP)
		switch {
		case err != nil, finished(&p):
		case hostname != "" && (p.Spec.Hostname != hostname || p.Spec.Subdomain != svc.Name):
		case !svc.Spec.PublishNotReadyAddresses && !ready(&p):
		default:
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil, notFound
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs, nil
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// gateway is the source address of clients that are no pod.
func (n *network) gateway() netip.Addr { return netip.AddrFrom4([4]byte{127, n.subnet, 0, 1}) }
