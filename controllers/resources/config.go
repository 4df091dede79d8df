package resources

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/quorum/config"
)

// What differs by member stands in its Pod's environment, so that one file serves all.
const (
	envNodeID       = "NODE_ID"
	envHost         = "MEMBER_HOST"
	envRack         = "RACK"
	envObserverOnly = "OBSERVER_ONLY"
)

// properties is a member's configuration file. All values are written out, also those that are the server's defaults:
// another server version doesn't change what is stored.
func properties(mq *v1alpha1.MetadataQuorum, clusterID, revision string) (string, error) {
	spec := v1alpha1.Resolve(&mq.Spec)
	host := config.Reference(envHost)
	var advertised []string
	var listeners []string
	for _, l := range []struct {
		name string
		port int
	}{{config.Controller, ControllerPort}, {config.Client, ClientPort}, {config.Admin, AdminPort}, {config.Health, HealthPort}} {
		listeners = append(listeners, fmt.Sprintf("%s://:%d", l.name, l.port))
		advertised = append(advertised, fmt.Sprintf("%s://%s:%d", l.name, host, l.port))
	}
	file, err := config.Render(map[string]string{
		"node.id":         config.Reference(envNodeID),
		"cluster.id":      clusterID, // an empty disk becomes an observer's: quorum run never makes a voter of it
		"observer.only":   config.Reference(envObserverOnly),
		"process.roles":   "controller",
		"broker.rack":     config.Reference(envRack),
		"config.revision": revision,

		"listeners":                 strings.Join(listeners, ","),
		"advertised.listeners":      strings.Join(advertised, ","),
		"controller.listener.names": config.Controller,
		// Always the Service: members come and go without a change of configuration.
		"controller.quorum.bootstrap.servers": fmt.Sprintf("%s.%s.svc:%d", PeersService(mq.Name), mq.Namespace, ControllerPort),

		"metadata.log.dir":           dataDir,
		"metadata.log.segment.bytes": strconv.FormatInt(spec.Log.SegmentBytes.Value(), 10),

		"controller.quorum.election.timeout.ms":     ms(spec.Raft.ElectionTimeout),
		"controller.quorum.election.backoff.max.ms": ms(spec.Raft.ElectionBackoffMax),
		"controller.quorum.fetch.timeout.ms":        ms(spec.Raft.FetchTimeout),
		"controller.quorum.request.timeout.ms":      ms(spec.Raft.RequestTimeout),
		"controller.quorum.append.linger.ms":        ms(spec.Raft.AppendLinger),
	})
	if err != nil {
		return "", fmt.Errorf("render %s: %w", configFile, err)
	}
	return string(file), nil
}

func ms(d *v1alpha1.Duration) string {
	return strconv.FormatInt(int64(d.Duration/time.Millisecond), 10)
}
