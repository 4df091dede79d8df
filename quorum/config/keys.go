package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Key describes one key of the file.
type Key struct {
	Name     string
	Type     string // what is allowed, as Parse says it in an error
	Default  string // as written in a file; empty: none
	Required bool
	Kafka    bool // the name and meaning are Kafka's
	Doc      string

	set func(c *Config, value string) error
}

// Keys lists every key, in the order of docs/configuration.md and of Render.
func Keys() []Key { return slices.Clone(keys) }

func known(name string) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return k.Name == name })
}

const maxMs = math.MaxInt32

var keys = []Key{
	kafka(integer("node.id", "", 0, math.MaxInt32, func(c *Config, v int64) { c.NodeID = raft.NodeID(v) },
		"Id of the member, unique in its quorum. It must agree with meta.properties.")).required(),
	text("cluster.id", "", "1 to 128 printable characters without spaces", clusterID, func(c *Config, v string) { c.ClusterID = v },
		"The quorum's id. If set, an empty directory is formatted at start as by `quorum format --no-initial-controllers`, and a directory of another cluster is refused. If unset, the directory must be formatted."),
	boolean("cluster.id.optional", "false", func(c *Config, v bool) { c.ClusterIDOptional = v },
		"Accept peers' requests that carry no cluster id. Only for peers that cannot send one."),
	boolean("observer.only", "false", func(c *Config, v bool) { c.ObserverOnly = v },
		"This member follows the log and serves reads but can never become a voter (one that is a voter stays one until `quorum voter remove`); it acknowledges nothing, so it need not flush before it fetches."),
	kafka(enum("process.roles", "controller", []string{"controller"}, func(*Config, string) {},
		"Read so that Kafka's tools accept the file; every member is a controller in Kafka's words.")),
	kafka(text("broker.rack", "", "at most 249 characters", func(s string) bool { return len(s) <= 249 }, func(c *Config, v string) { c.Rack = v },
		"Where the member runs. Consumers that send client.rack are pointed to a member of the same rack.")),
	text("config.revision", "", "at most 249 characters", func(s string) bool { return len(s) <= 249 }, func(c *Config, v string) { c.Revision = v },
		"Shown in /v1/status: tells the operator which revision of the configuration a member runs."),

	kafka(custom("listeners", "", "NAME://HOST:PORT,… with names among the controller listener's, CLIENT, ADMIN and HEALTH", func(c *Config, v string) (err error) {
		c.Listeners, err = parseListeners(v)
		return err
	}, "What to bind. Only the controller listener is required. An empty host binds every address, port 0 any free port.")).required(),
	kafka(custom("advertised.listeners", "", "NAME://HOST:PORT,… without wildcard hosts", func(c *Config, v string) (err error) {
		c.Advertised, err = parseListeners(v)
		return err
	}, "How others reach the listeners. A listener that is not named here is advertised as bound; if it binds every address: under the host of the own entry in controller.quorum.voters, else under the host's name.")),
	kafka(text("controller.listener.names", Controller, "one upper-case name", listenerName, func(c *Config, v string) { c.ControllerListener = v },
		"Name of the listener for peers, the same on every member: it is stored in the voter set.")),
	kafka(custom("listener.security.protocol.map", "", "NAME:PLAINTEXT,…", parseProtocolMap,
		"Security protocol of each listener. Only PLAINTEXT is supported so far.")),
	kafka(custom("controller.quorum.bootstrap.servers", "", "HOST:PORT,…", func(c *Config, v string) (err error) {
		c.Bootstrap, err = parseServers(v)
		return err
	}, "Where to find the quorum while no leader is known. Required unless controller.quorum.voters is set.")),
	kafka(custom("controller.quorum.voters", "", "ID@HOST:PORT,…", func(c *Config, v string) (err error) {
		c.StaticVoters, err = parseVoters(v)
		return err
	}, "Static voters (kraft.version 0): ignored once the log has a voter set. New quorums are better made by `quorum format --initial-controllers`.")),
	kafka(boolean("controller.quorum.auto.join.enable", "false", func(c *Config, v bool) { c.AutoJoin = v },
		"An observer makes itself a voter once it is caught up, in the place of its own id with another directory if there is one. Off, because a lost disk should be noticed: `quorum voter add` does the same by hand. A voter that was removed stays out; set false before it starts again.")),

	kafka(text("log.dirs", "", "one absolute path", oneDir, func(c *Config, v string) { c.LogDir = v },
		"The member's directory. Required unless metadata.log.dir is set.")),
	kafka(text("metadata.log.dir", "", "one absolute path", oneDir, func(c *Config, v string) { c.LogDir = v },
		"The member's directory; goes before log.dirs.")),
	kafka(integer("metadata.log.segment.bytes", "1073741824", 1<<20, math.MaxInt32, func(c *Config, v int64) { c.SegmentBytes = v },
		"A segment of the log is closed at this size.")),
	kafka(millis("metadata.log.segment.ms", "604800000", 1, math.MaxInt64/int64(time.Millisecond), func(c *Config, v time.Duration) { c.SegmentAge = v },
		"A segment of the log is closed at this age.")),
	kafka(integer("metadata.log.max.record.bytes.between.snapshots", "20971520", 1, math.MaxInt64, func(c *Config, v int64) { c.SnapshotBytes = v },
		"A snapshot is made once this much of the log lies behind the last one, or half as much as that one has if that is more: else a large one would be written over and over.")),
	kafka(millis("metadata.log.max.snapshot.interval.ms", "3600000", 0, maxMs, func(c *Config, v time.Duration) { c.SnapshotInterval = v },
		"A snapshot is made once the last one is this old and anything has been appended since; 0: never for that.")),
	kafka(integer("metadata.max.retention.bytes", "104857600", -1, math.MaxInt64, func(c *Config, v int64) { c.RetentionBytes = max(v, 0) },
		"While the log and its snapshots are larger, old snapshots and the log before the oldest are removed. The newest snapshot, and the segment of the log that is being written, always stay. So does one that is being downloaded, above log.reserve.bytes, while no more log must be kept for it than it has bytes itself and four more snapshots take. 0 or less: no limit.")),
	kafka(millis("metadata.max.retention.ms", "604800000", -1, math.MaxInt64/int64(time.Millisecond), func(c *Config, v time.Duration) { c.Retention = max(v, 0) },
		"Snapshots older than this are removed likewise. 0 or less: no limit.")),
	integer("log.reserve.bytes", "67108864", 0, math.MaxInt64, func(c *Config, v int64) { c.ReserveBytes = v },
		"Free space of the directory's file system below which appends are refused with KAFKA_STORAGE_ERROR and a leader hands over. Larger than a snapshot, or a full disk has no room to make the one that would let it be cleaned."),
	integer("log.ballast.bytes", "8454144", 0, math.MaxInt64, func(c *Config, v int64) { c.BallastBytes = v },
		"Size of a file that only takes up room. If a write finds the disk full, whatever the free space was said to be (a quota, or a neighbour that was faster), the file is given up for it, and the member counts as below its reserve until there is room for the file again. Smaller than the largest batch it may not suffice, and the member ends with DISK_FULL; 0: there is none."),
	millis("lock.timeout.ms", "30000", 0, maxMs, func(c *Config, v time.Duration) { c.LockTimeout = v },
		"How long `quorum run` waits for another process to leave the directory."),

	kafka(millis("controller.quorum.election.timeout.ms", "1000", 1, maxMs, func(c *Config, v time.Duration) { c.ElectionTimeout = v },
		"Each election timer is drawn from once to twice this.")),
	kafka(millis("controller.quorum.election.backoff.max.ms", "1000", 0, maxMs, func(c *Config, v time.Duration) { c.ElectionBackoffMax = v },
		"Longest wait of a less preferred successor before it stands for election.")),
	kafka(millis("controller.quorum.fetch.timeout.ms", "2000", 1, maxMs, func(c *Config, v time.Duration) { c.FetchTimeout = v },
		"A follower that cannot fetch from the leader for this long stands for election; a leader that a majority has not fetched from for one and a half times as long resigns.")),
	kafka(integer("controller.quorum.fetch.max.bytes", "1048576", 1, math.MaxInt32/2, func(c *Config, v int64) { c.FetchMaxBytes = int(v) },
		"Most bytes of records a member asks for in one Fetch. One batch is always sent, however large.")),
	kafka(integer("controller.quorum.fetch.snapshot.max.bytes", "1048576", 1, math.MaxInt32/2, func(c *Config, v int64) { c.SnapshotMaxBytes = int(v) },
		"Most bytes of a snapshot a member asks for in one FetchSnapshot.")),
	millis("controller.quorum.fetch.max.wait.ms", "500", 0, maxMs, func(c *Config, v time.Duration) { c.FetchMaxWait = v },
		"How long the leader may hold a member's Fetch while there is nothing new. (500 in Kafka, where it is fixed.)"),
	kafka(millis("controller.quorum.request.timeout.ms", "2000", 1, maxMs, func(c *Config, v time.Duration) { c.RequestTimeout = v },
		"A request to a peer that is not answered for this long has failed.")),
	kafka(millis("controller.quorum.retry.backoff.ms", "20", 0, maxMs, func(c *Config, v time.Duration) { c.RetryBackoff = v },
		"Wait before a failed request to a peer is sent again.")),
	kafka(millis("controller.quorum.append.linger.ms", "0", 0, maxMs, func(c *Config, v time.Duration) { c.AppendLinger = v },
		"How long an append waits for others to share its write. (25 in Kafka. Here appends that come during a write share the next one, so waiting gains little.)")),

	millis("shutdown.timeout.ms", "5000", 0, maxMs, func(c *Config, v time.Duration) { c.ShutdownTimeout = v },
		"How long a graceful stop may take, the handoff of leadership included."),
	millis("handoff.max.pause.ms", "250", 1, maxMs, func(c *Config, v time.Duration) { c.HandoffMaxPause = v },
		"A handoff is aborted if appends had to be held longer than this before the leader could resign."),
	millis("handoff.catch.up.timeout.ms", "10000", 1, maxMs, func(c *Config, v time.Duration) { c.HandoffCatchUpTimeout = v },
		"A handoff is aborted if its target is not close to the log's end after this."),

	enum("topic.mode", "keyed", []string{"keyed", "opaque"}, func(c *Config, v string) { c.TopicMode = TopicMode(v) },
		"keyed: every record has a key and a null value deletes it. opaque: records are kept as they come and are never compacted here, but a leader's snapshots are taken over, as among Kafka's controllers. The same on every member."),
	text("topic.name", "__cluster_metadata", "1 to 249 characters of a-z A-Z 0-9 . _ -", topicName, func(c *Config, v string) { c.TopicName = v },
		"Name of the one topic, on the wire and on disk. The same on every member."),
	custom("topic.id", "AAAAAAAAAAAAAAAAAAAAAQ", "22 characters of base64url, not all zero", func(c *Config, v string) (err error) {
		if c.TopicID, err = raft.ParseUUID(v); err == nil && c.TopicID.IsZero() {
			err = errWant
		}
		return err
	}, "Id of the one topic. The same on every member; never change it, clients remember it."),
	enum("client.read.replicas", "rack", []string{"rack", "observers", "leader"}, func(c *Config, v string) { c.ReadReplicas = ReadReplicas(v) },
		"Where consumers are sent to read: rack (a member in the client's rack, else the leader), observers (spread over them), leader."),
	kafka(millis("producer.id.expiration.ms", "86400000", 1, maxMs, func(c *Config, v time.Duration) { c.ProducerIDExpiry = v },
		"An idempotent producer that has not appended for this long is forgotten. Of more than 100000, those that have not appended for longest are forgotten earlier.")),
	kafka(millis("delete.retention.ms", "86400000", 0, math.MaxInt64/int64(time.Millisecond), func(c *Config, v time.Duration) { c.DeleteRetention = v },
		"How long a deletion stays readable after the first checkpoint that holds it. By the calendar of the member that makes its checkpoints: where that jumps forward, deletions go from its checkpoints earlier; where it jumps back, later.")),
	integer("append.max.pending", "1000", 1, 1000000, func(c *Config, v int64) { c.MaxPendingAppends = int(v) },
		"Appends that may wait for the high watermark; more are refused with THROTTLING_QUOTA_EXCEEDED."),

	kafka(integer("message.max.bytes", "8388608", 1024, 8388608, func(c *Config, v int64) { c.MaxBatchBytes = int(v) },
		"Largest batch of records a client may append.")),
	kafka(integer("socket.request.max.bytes", "8454144", 65536, math.MaxInt32/2, func(c *Config, v int64) { c.MaxRequestBytes = int(v) },
		"Largest request. A connection that announces more is closed.")),
	kafka(integer("queued.max.request.bytes", "67108864", 1<<20, math.MaxInt64, func(c *Config, v int64) { c.MaxQueuedBytes = v },
		"Bytes of requests that may be in memory on one listener; beyond it nothing more is read.")),
	kafka(integer("max.connections", "1000", 1, 1000000, func(c *Config, v int64) { c.MaxConnections = int(v) },
		"Connections on one listener; more are closed at once.")),
	kafka(integer("max.connections.per.ip", "64", 1, 1000000, func(c *Config, v int64) { c.MaxConnectionsIP = int(v) },
		"Connections from one address on one listener; more are closed at once.")),
	kafka(integer("max.connection.creation.rate", "200", 1, 1000000, func(c *Config, v int64) { c.MaxConnectionRate = int(v) },
		"New connections a second on one listener; more have to wait.")),
	kafka(millis("connections.max.idle.ms", "600000", 1000, maxMs, func(c *Config, v time.Duration) { c.MaxConnectionsIdle = v },
		"A connection without a request for this long is closed.")),
	integer("quorum.max.observers", "128", 0, 100000, func(c *Config, v int64) { c.MaxObservers = int(v) },
		"Observers a leader keeps track of; more are refused."),

	enum("log.level", "info", []string{"debug", "info", "warn", "error"}, func(c *Config, v string) { c.LogLevel = v },
		"Least severe messages to write to standard error."),
	enum("log.format", "text", []string{"text", "json"}, func(c *Config, v string) { c.LogFormat = v },
		"Form of the messages on standard error."),
}

func (k Key) required() Key { k.Required = true; return k }

func kafka(k Key) Key { k.Kafka = true; return k }

func custom(name, def, want string, set func(*Config, string) error, doc string) Key {
	return Key{Name: name, Type: want, Default: def, Doc: doc, set: set}
}

func text(name, def, want string, ok func(string) bool, set func(*Config, string), doc string) Key {
	return custom(name, def, want, func(c *Config, v string) error {
		if !ok(v) {
			return errWant
		}
		set(c, v)
		return nil
	}, doc)
}

func enum(name, def string, values []string, set func(*Config, string), doc string) Key {
	return text(name, def, strings.Join(values, " or "), func(v string) bool { return slices.Contains(values, v) }, set, doc)
}

func boolean(name, def string, set func(*Config, bool), doc string) Key {
	return text(name, def, "true or false", func(v string) bool { return v == "true" || v == "false" },
		func(c *Config, v string) { set(c, v == "true") }, doc)
}

func integer(name, def string, lo, hi int64, set func(*Config, int64), doc string) Key {
	return custom(name, def, "an integer "+interval(lo, hi), func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < lo || n > hi {
			return errWant
		}
		set(c, n)
		return nil
	}, doc)
}

func millis(name, def string, lo, hi int64, set func(*Config, time.Duration), doc string) Key {
	k := integer(name, def, lo, hi, func(c *Config, v int64) { set(c, time.Duration(v)*time.Millisecond) }, doc)
	k.Type = "milliseconds " + interval(lo, hi)
	return k
}

func interval(lo, hi int64) string {
	if hi >= math.MaxInt64/int64(time.Millisecond) {
		return fmt.Sprintf("of at least %d", lo)
	}
	return fmt.Sprintf("from %d to %d", lo, hi)
}
