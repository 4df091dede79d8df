// Command manager is the operator: it turns MetadataQuorum resources into pods
// that run the quorum binary and keeps them that way.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	o.bind(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: &o.logLevel})))
	if o.quorumImage == "" {
		return errors.New("--quorum-image is not set: it names the image that members run unless their resource says otherwise")
	}

	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), o.manager())
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	r := &controllers.MetadataQuorumReconciler{
		Client:       mgr.GetClient(),
		APIReader:    mgr.GetAPIReader(),
		Recorder:     mgr.GetEventRecorder("kraft-operator"),
		Admin:        controllers.NewAdmin(nil),
		DefaultImage: o.quorumImage,
	}
	if err := r.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the MetadataQuorum controller: %w", err)
	}
	if err := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping),
	); err != nil {
		return fmt.Errorf("set up the probes: %w", err)
	}
	ctrl.Log.Info("Started", "quorumImage", o.quorumImage)
	return mgr.Start(ctrl.SetupSignalHandler())
}

type options struct {
	quorumImage     string
	leaderElect     bool
	metricsAddress  string
	probeAddress    string
	watchNamespaces string
	logLevel        slog.Level
}

func (o *options) bind(fs *flag.FlagSet) {
	fs.StringVar(&o.quorumImage, "quorum-image", os.Getenv("QUORUM_IMAGE"),
		"Image of members whose resource names none; pinned when a quorum is created.")
	fs.BoolVar(&o.leaderElect, "leader-elect", false,
		"Work only while holding the lease, so that one of several replicas is active.")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080",
		"Address of the metrics endpoint; 0 turns it off.")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081",
		"Address of /healthz and /readyz.")
	fs.StringVar(&o.watchNamespaces, "watch-namespaces", os.Getenv("WATCH_NAMESPACES"),
		"Namespaces to work in, separated by commas; empty means all.")
	fs.TextVar(&o.logLevel, "log-level", slog.LevelInfo,
		"What is logged: INFO tells what changed, DEBUG each step.")
}

func (o *options) manager() ctrl.Options {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return ctrl.Options{
		Scheme:                 scheme,
		Cache:                  controllers.CacheOptions(o.namespaces()),
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: false}},
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.probeAddress,
		LeaderElection:         o.leaderElect,
		LeaderElectionID:       "manager." + v1alpha1.GroupVersion.Group,
		// The lease is given back on a clean stop, so that an upgrade of the
		// operator itself leaves no half minute without one. Safe because
		// nothing runs after Start returns.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(20 * time.Second),
	}
}

func (o *options) namespaces() map[string]cache.Config {
	if o.watchNamespaces == "" {
		return nil
	}
	namespaces := map[string]cache.Config{}
	for name := range strings.SplitSeq(o.watchNamespaces, ",") {
		namespaces[strings.TrimSpace(name)] = cache.Config{}
	}
	return namespaces
}
