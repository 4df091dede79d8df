// Package config is a member's configuration: a Kafka-style properties file as a struct.
//
// Keys have Kafka's names where Kafka has one; Keys lists all of them with type, default and meaning. Parse reads and
// checks a whole file and reports every problem in one line. Render writes a file, the same bytes for the same values,
// so that the operator and the server share one truth.
package config

import (
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// The listeners of a member. The one for peers is named by controller.listener.names.
const (
	Controller = "CONTROLLER" // default name; Kafka's protocol between members, for the operator and Kafka's quorum tools
	Client     = "CLIENT"     // Kafka's protocol for ordinary clients
	Admin      = "ADMIN"      // HTTP: /v1/handoff
	Health     = "HEALTH"     // HTTP: /livez /readyz /metrics /v1/status
)

// TopicMode says what a record has to look like.
type TopicMode string

// The topic modes.
const (
	Keyed  TopicMode = "keyed"  // every record has a key; a null value deletes it
	Opaque TopicMode = "opaque" // records are kept as they come, never compacted
)

// ReadReplicas says which member a consumer is sent to.
type ReadReplicas string

// The choices of client.read.replicas.
const (
	ReadRack      ReadReplicas = "rack"      // a member in the client's rack, else the leader
	ReadObservers ReadReplicas = "observers" // spread over the observers
	ReadLeader    ReadReplicas = "leader"
)

// Config is a member's checked configuration. The comment of a field names its key; Keys tells the rest.
type Config struct {
	File string // where it was read from

	// Identity.
	NodeID            raft.NodeID // node.id
	ClusterID         string      // cluster.id; empty: only meta.properties has it
	ClusterIDOptional bool        // cluster.id.optional
	ObserverOnly      bool        // observer.only
	Rack              string      // broker.rack
	Revision          string      // config.revision

	// Network. Listeners are what to bind: an empty host is every address, port 0 any free one. Advertised has one
	// entry for each listener, in the same order, never a wildcard; port 0 stands for the port that was bound.
	Listeners          []raft.Endpoint
	Advertised         []raft.Endpoint
	ControllerListener string             // controller.listener.names
	StaticVoters       raft.VoterSet      // controller.quorum.voters
	Bootstrap          []raft.Destination // controller.quorum.bootstrap.servers, or the static voters; ids -2, -3, …
	AutoJoin           bool               // controller.quorum.auto.join.enable

	// Files.
	LogDir       string        // metadata.log.dir, or log.dirs
	SegmentBytes int64         // metadata.log.segment.bytes
	SegmentAge   time.Duration // metadata.log.segment.ms
	ReserveBytes int64         // log.reserve.bytes
	BallastBytes int64         // log.ballast.bytes; 0: none

	SnapshotBytes    int64         // metadata.log.max.record.bytes.between.snapshots
	SnapshotInterval time.Duration // metadata.log.max.snapshot.interval.ms; 0: never for that
	RetentionBytes   int64         // metadata.max.retention.bytes; 0: no limit
	Retention        time.Duration // metadata.max.retention.ms; 0: no limit

	LockTimeout time.Duration // lock.timeout.ms

	// Raft.
	ElectionTimeout    time.Duration // controller.quorum.election.timeout.ms
	ElectionBackoffMax time.Duration // controller.quorum.election.backoff.max.ms
	FetchTimeout       time.Duration // controller.quorum.fetch.timeout.ms
	FetchMaxBytes      int           // controller.quorum.fetch.max.bytes
	SnapshotMaxBytes   int           // controller.quorum.fetch.snapshot.max.bytes
	FetchMaxWait       time.Duration // controller.quorum.fetch.max.wait.ms
	RequestTimeout     time.Duration // controller.quorum.request.timeout.ms
	RetryBackoff       time.Duration // controller.quorum.retry.backoff.ms
	AppendLinger       time.Duration // controller.quorum.append.linger.ms

	// Leaving and handing over.
	ShutdownTimeout       time.Duration // shutdown.timeout.ms
	HandoffMaxPause       time.Duration // handoff.max.pause.ms
	HandoffCatchUpTimeout time.Duration // handoff.catch.up.timeout.ms

	// What clients see.
	TopicMode         TopicMode     // topic.mode
	TopicName         string        // topic.name
	TopicID           raft.UUID     // topic.id
	ReadReplicas      ReadReplicas  // client.read.replicas
	ProducerIDExpiry  time.Duration // producer.id.expiration.ms
	DeleteRetention   time.Duration // delete.retention.ms
	MaxPendingAppends int           // append.max.pending

	// Bounds.
	MaxBatchBytes      int           // message.max.bytes
	MaxRequestBytes    int           // socket.request.max.bytes
	MaxQueuedBytes     int64         // queued.max.request.bytes
	MaxConnections     int           // max.connections
	MaxConnectionsIP   int           // max.connections.per.ip
	MaxConnectionRate  int           // max.connection.creation.rate
	MaxConnectionsIdle time.Duration // connections.max.idle.ms
	MaxObservers       int           // quorum.max.observers

	// Logging.
	LogLevel  string // log.level
	LogFormat string // log.format
}

// Listener returns what to bind for the listener of that name.
func (c *Config) Listener(name string) (raft.Endpoint, bool) { return raft.Find(c.Listeners, name) }

// Host is what Parse has to be told of the machine.
type Host struct {
	LookupEnv func(name string) (string, bool) // for ${env:NAME}; nil: nothing is set
	// Hostname is advertised for a listener that binds every address and has no entry in advertised.listeners.
	// Empty: such a listener is an error.
	Hostname string
}
