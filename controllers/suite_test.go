package controllers_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/podrunner"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var (
	cfg            *rest.Config     // of the API server, as its administrator
	operatorConfig *rest.Config     // as the operator
	c              client.WithWatch // the specs' own client: no cache, no faults
	runner         *podrunner.Runner
	scheme         = runtime.NewScheme()
)

func TestControllers(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: it names the directory with kube-apiserver and etcd (`make test` sets it)")
	}
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RegisterFailHandler(Fail)
	RunSpecs(t, "controllers", Label("envtest"))
}

// One API server serves all of Ginkgo's processes; each has a node of its own,
// for the Pods of its own namespaces.
var _ = SynchronizedBeforeSuite(func() []byte {
	logToGinkgo()
	server := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	admin, err := server.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)
	grantOperator(admin)
	return server.KubeConfig
}, func(kubeConfig []byte) {
	logToGinkgo()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	var err error
	cfg, err = clientcmd.RESTConfigFromKubeConfig(kubeConfig)
	Expect(err).NotTo(HaveOccurred())
	cfg.QPS = -1 // throttling in the client is for servers with other tenants
	c, err = client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	operatorConfig = rest.CopyConfig(cfg)
	operatorConfig.Impersonate.UserName = operatorUser
	startRunner()
})

// operatorUser is who the operators under test are: with the rights of
// config/rbac and no others, so that a missing one is found here.
const operatorUser = "system:serviceaccount:kraft-operator-system:controller-manager"

// grantOperator gives the operator the ClusterRole that it is installed with.
func grantOperator(admin *rest.Config) {
	GinkgoHelper()
	file, err := os.ReadFile(filepath.Join("..", "config", "rbac", "role.yaml"))
	Expect(err).NotTo(HaveOccurred())
	cl, err := client.New(admin, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{}
	for doc := range strings.SplitSeq(string(file), "\n---\n") {
		if strings.Contains(doc, "kind: ClusterRole\n") {
			Expect(yaml.UnmarshalStrict([]byte(doc), role)).To(Succeed())
		}
	}
	Expect(role.Rules).NotTo(BeEmpty())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // no spec's context here
	defer cancel()
	Expect(cl.Create(ctx, role)).To(Succeed())
	Expect(cl.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: operatorUser}},
	})).To(Succeed())
}

func logToGinkgo() {
	logf.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(GinkgoWriter, &slog.HandlerOptions{Level: slog.Level(-1)})))
}

func startRunner() {
	GinkgoHelper()
	dir, err := os.MkdirTemp("", "podrunner-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		if os.Getenv("KEEP_PODRUNNER") == "" {
			Expect(os.RemoveAll(dir)).To(Succeed())
		}
	})
	GinkgoWriter.Println("volumes and logs of the pods:", dir)
	runner, err = podrunner.New(podrunner.Options{
		Config: cfg, Dir: dir,
		Namespaces: func(ns string) bool { return strings.HasPrefix(ns, namespacePrefix()) },
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background()) // lives as long as the suite, longer than any spec's context
	done := make(chan error, 1)
	go func() { done <- runner.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).WithTimeout(time.Minute).Should(Receive(BeNil()))
	})
}

// namespacePrefix is of the namespaces of this one of Ginkgo's processes.
func namespacePrefix() string { return fmt.Sprintf("spec-%d-", GinkgoParallelProcess()) }

// newNamespace gives each spec a world of its own. Pods in it have to meet Pod
// Security's strictest level, as they should everywhere.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: namespacePrefix(),
		Labels: map[string]string{
			"pod-security.kubernetes.io/enforce":         "restricted",
			"pod-security.kubernetes.io/enforce-version": "latest",
		},
	}}
	Expect(c.Create(ctx, ns)).To(Succeed())
	// Runs last: the spec's operators have been stopped, and its members should
	// not keep the machine busy for the specs after it.
	DeferCleanup(func(ctx SpecContext) {
		Expect(c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns.Name), client.GracePeriodSeconds(0))).To(Succeed())
	})
	return ns.Name
}
