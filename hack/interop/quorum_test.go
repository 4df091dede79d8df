//go:build interop

package interop

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// kind is what a member runs.
type kind int

const (
	ours       kind = iota
	raftServer      // kafka.tools.TestRaftServer: Kafka's raft and log; a leader appends opaque records all the time
	controller      // a real controller
)

func (k kind) String() string {
	return [...]string{"ours", "Kafka's raft server", "Kafka's controller"}[k]
}

// topic is the log that the members of a quorum agree on.
type topic struct{ name, id string }

var (
	performanceTest = topic{"__raft_performance_test", "AAAAAAAAAAAAAAAAAAAAAg"}
	clusterMetadata = topic{"__cluster_metadata", "AAAAAAAAAAAAAAAAAAAAAQ"}
)

// cluster is one quorum of processes, ours and Kafka's.
type cluster struct {
	t       *testing.T
	id      string
	topic   topic
	dynamic bool // kraft.version 1
	members []*member
	epoch   int32    // the newest seen
	extra   []string // lines for every configuration

	gaps         []string
	acknowledged []string // what a leader said was committed
	tails        [][]byte // logs with an end that their leader alone had
}

// member is one process and its directory. It has an address of its own, so that its ports stay free while it is down.
type member struct {
	kind
	id        int
	directory string // id
	observer  bool
	address   string
	dir       string
	config    string
	process   *process // nil: down
	kafka     *kgo.Client
}

func (m *member) controller() string { return m.address + ":9093" }
func (m *member) client() string     { return m.address + ":9092" }
func (m *member) admin() string      { return m.address + ":9091" }
func (m *member) health() string     { return m.address + ":8080" }

// newCluster formats voters 1, 2, … of these kinds.
func newCluster(t *testing.T, dynamic bool, voters ...kind) *cluster {
	t.Helper()
	c := &cluster{t: t, id: newUUID(), topic: clusterMetadata, dynamic: dynamic}
	if slices.Contains(voters, raftServer) {
		c.id, c.topic = performanceClusterID, performanceTest
	}
	for i, k := range voters {
		c.members = append(c.members, c.member(i+1, k, false))
	}
	var first []string
	if dynamic {
		var list []string
		for _, m := range c.members {
			list = append(list, fmt.Sprintf("%d@%s:%s", m.id, m.controller(), m.directory))
		}
		first = []string{"--initial-controllers", strings.Join(list, ",")}
	}
	for _, m := range c.members {
		c.configure(m)
		c.format(m, first...)
	}
	return c
}

// join formats one more member, which begins without a vote.
func (c *cluster) join(id int, k kind, observerOnly bool) *member {
	c.t.Helper()
	m := c.member(id, k, observerOnly)
	c.configure(m)
	c.members = append(c.members, m)
	var how []string
	if c.dynamic {
		how = []string{"--no-initial-controllers"}
	}
	c.format(m, how...)
	m.directory = c.directoryID(m)
	return m
}

func (c *cluster) member(id int, k kind, observerOnly bool) *member {
	return &member{
		kind: k, id: id, directory: newUUID(), observer: observerOnly, address: newAddress(),
		dir: filepath.Join(c.t.TempDir(), fmt.Sprintf("member-%d", id)),
	}
}

// configure writes the member's properties file.
func (c *cluster) configure(m *member) {
	var servers, voters []string
	for _, v := range c.members {
		servers = append(servers, v.controller())
		voters = append(voters, fmt.Sprintf("%d@%s", v.id, v.controller()))
	}
	lines := []string{
		fmt.Sprintf("node.id=%d", m.id),
		"process.roles=controller",
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT",
		"log.dirs=" + m.dir,
	}
	if c.dynamic {
		lines = append(lines, "controller.quorum.bootstrap.servers="+strings.Join(servers, ","))
	} else {
		lines = append(lines, "controller.quorum.voters="+strings.Join(voters, ","))
	}
	if m.kind == ours {
		lines = append(lines, fmt.Sprintf("listeners=CONTROLLER://%s,CLIENT://%s,ADMIN://%s,HEALTH://%s", m.controller(), m.client(), m.admin(), m.health()),
			"topic.mode=opaque", fmt.Sprintf("observer.only=%t", m.observer))
	} else {
		lines = append(lines, "listeners=CONTROLLER://"+m.controller())
	}
	if m.kind == controller {
		lines = append(lines, "metadata.max.idle.interval.ms=20")
	} else {
		lines = append(lines, "topic.name="+c.topic.name, "topic.id="+c.topic.id) // Kafka's raft server passes over them
	}
	lines = append(lines, c.extra...)
	m.config = writeFile(c.t, fmt.Sprintf("member-%d.properties", m.id), lines...)
}

// format gives the member's directory its identity. Kafka's raft server makes its own, but for the first voters.
func (c *cluster) format(m *member, how ...string) {
	c.t.Helper()
	args := append([]string{"format", "--cluster-id", c.id, "--config", m.config}, how...)
	switch m.kind {
	case controller:
		kafka(c.t, "kafka.tools.StorageTool").output(c.t, args...)
	case ours, raftServer:
		if m.kind == ours || c.dynamic {
			quorum().output(c.t, args...)
		}
	}
}

// directoryID is what meta.properties says, which is Kafka's file in ours, too.
func (c *cluster) directoryID(m *member) string {
	c.t.Helper()
	name := filepath.Join(m.dir, "meta.properties")
	meta, err := os.ReadFile(name)
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(meta)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "directory.id="); ok {
			return id
		}
	}
	c.t.Fatalf("no directory.id in %s:\n%s", name, meta)
	return ""
}

func (c *cluster) start(members ...*member) {
	c.t.Helper()
	for _, m := range members {
		name := fmt.Sprintf("%s %d", m.kind, m.id)
		switch m.kind {
		case ours:
			m.process = quorum().start(c.t, name, "run", "--config", m.config)
		case raftServer:
			m.process = kafka(c.t, "kafka.tools.TestRaftServer").start(c.t, name, "--config", m.config,
				"--replica-directory-id", m.directory, "--throughput", "2000", "--record-size", "256")
		case controller:
			m.process = kafka(c.t, "kafka.Kafka").start(c.t, name, m.config)
		}
	}
}

// restart kills the member, which does not lead, and starts it again.
func (c *cluster) restart(m *member) {
	c.t.Helper()
	m.process.send(syscall.SIGKILL)
	<-m.process.done
	c.start(m)
}

func (c *cluster) get(id int) *member {
	for _, m := range c.members {
		if m.id == id {
			return m
		}
	}
	c.t.Fatalf("there is no member %d", id)
	return nil
}

// controllers lists where the running voters can be asked.
func (c *cluster) controllers() string {
	var list []string
	for _, m := range c.members {
		if m.process != nil && !m.observer {
			list = append(list, m.controller())
		}
	}
	return strings.Join(list, ",")
}

// view is what a leader says of itself. The high watermark is known once the start of its epoch is committed.
type view struct {
	leader        int
	epoch         int32
	highWatermark int64
	logStart      int64
}

// ask fetches as a reader without an id, which any member answers: a leader with its high watermark, others with whom
// they follow. Only a leader's word is of use.
func (c *cluster) ask(m *member) (view, bool) {
	if m.kafka == nil {
		var err error
		if m.kafka, err = kgo.NewClient(kgo.SeedBrokers(m.controller()), kgo.DialTimeout(time.Second)); err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(m.kafka.Close)
	}
	for {
		asked := c.epoch
		p := kmsg.NewFetchRequestTopicPartition()
		p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.PartitionMaxBytes = asked, 0, 1
		req := kmsg.NewPtrFetchRequest()
		req.ClusterID, req.MaxBytes = &c.id, 1
		req.Topics = []kmsg.FetchRequestTopic{{Topic: c.topic.name, TopicID: parseUUID(c.topic.id), Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		resp, err := m.kafka.SeedBrokers()[0].Request(ctx, req)
		cancel()
		if err != nil {
			return view{}, false
		}
		r := resp.(*kmsg.FetchResponse)
		if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			return view{}, false
		}
		got := r.Topics[0].Partitions[0]
		v := view{int(got.CurrentLeader.LeaderID), got.CurrentLeader.LeaderEpoch, got.HighWatermark, got.LogStartOffset}
		if v.epoch > asked {
			c.epoch = v.epoch
			continue
		}
		return v, got.ErrorCode == 0 && v.leader == m.id && v.highWatermark >= 0
	}
}

// leader waits for a leader of an epoch after the given one that has committed.
func (c *cluster) leader(after int32) view {
	c.t.Helper()
	var v view
	until(c.t, 90*time.Second, 5*time.Millisecond, func() string {
		for _, m := range c.members {
			if m.process == nil || m.observer {
				continue
			}
			var ok bool
			if v, ok = c.ask(m); ok && v.epoch > after {
				return ""
			}
		}
		return fmt.Sprintf("a leader of an epoch after %d that commits", after)
	})
	return v
}

// advance waits until so many more records are committed. Ours and real controllers are handed them, Kafka's raft
// servers make their own.
func (c *cluster) advance(records int) view {
	c.t.Helper()
	first := int64(-1)
	var v view
	eventually(c.t, 90*time.Second, func() string {
		v = c.leader(-1)
		if first < 0 {
			first = v.highWatermark
		}
		if v.highWatermark >= first+int64(records) {
			return ""
		}
		switch m := c.get(v.leader); m.kind {
		case ours:
			c.append(m, records, 5*time.Second)
		case controller:
			c.alterConfigs(m, records)
		case raftServer:
		}
		return fmt.Sprintf("%d records more than %d; now %+v", records, first, v)
	})
	return v
}

// append hands records to one of ours, in the only form that Kafka's raft server can read: a value, and nothing else.
func (c *cluster) append(m *member, records int, patience time.Duration) {
	producer, err := kgo.NewClient(kgo.SeedBrokers(m.client()), kgo.DefaultProduceTopic(c.topic.name), kgo.DisableIdempotentWrite(),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		c.t.Fatal(err)
	}
	defer producer.Close()
	now := time.Now()
	batch := make([]*kgo.Record, records)
	for i := range batch {
		value := fmt.Sprintf("record %d of those appended to %d at %d;%200s", i, m.id, now.UnixNano(), "")
		batch[i] = &kgo.Record{Value: []byte(value), Timestamp: now}
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for _, r := range producer.ProduceSync(ctx, batch...) {
		if r.Err == nil {
			c.acknowledged = append(c.acknowledged, string(r.Record.Value))
		}
	}
}

// alterConfigs has an active controller write so many ConfigRecords, in one batch.
func (c *cluster) alterConfigs(m *member, records int) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for i := range records {
		interval := strconv.Itoa(1000 + i)
		req.Resources = append(req.Resources, kmsg.IncrementalAlterConfigsRequestResource{
			ResourceType: kmsg.ConfigResourceTypeClientMetrics, ResourceName: fmt.Sprintf("subscription-%d-%d", time.Now().UnixNano(), i),
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "interval.ms", Value: &interval}},
		})
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	resp, err := m.kafka.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return // an election; the caller looks whom to ask
	}
	for _, r := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if r.ErrorCode == 0 {
			c.acknowledged = append(c.acknowledged, r.ResourceName)
		}
	}
}

// lose takes the leader down by the signal, and measures how long nobody could commit. It is up again in the end.
func (c *cluster) lose(signal syscall.Signal) view {
	c.t.Helper()
	lost := c.leader(-1)
	m := c.get(lost.leader)
	began := time.Now()
	down := m.process
	down.send(signal)
	if signal == syscall.SIGKILL {
		m.process = nil
	}
	v := c.leader(lost.epoch)
	gap := time.Since(began)
	m.process = nil
	<-down.done
	c.gaps = append(c.gaps, fmt.Sprintf("%s %s→%d %dms", map[syscall.Signal]string{syscall.SIGKILL: "kill", syscall.SIGTERM: "stop"}[signal],
		m.kind, v.leader, gap.Milliseconds()))
	c.start(m)
	return v
}

// loseTail has the leader append what no other voter gets, and kills it. It comes back with that tail, and has to cut it
// off, as have observers.
func (c *cluster) loseTail() {
	c.t.Helper()
	lost := c.leader(-1)
	m := c.get(lost.leader)
	var others []*member
	for _, v := range c.members {
		if v != m && !v.observer {
			v.process.send(syscall.SIGSTOP)
			others = append(others, v)
		}
	}
	until(c.t, 2*time.Second, 10*time.Millisecond, func() string {
		if m.kind == ours {
			c.append(m, 100, 200*time.Millisecond)
		}
		for _, v := range c.members {
			if v != m && !v.observer {
				continue
			}
			// One batch may be on its way to the others. More is the leader's own, and its observers'.
			if _, end := c.log(v, math.MaxInt64); end < lost.highWatermark+200 {
				return fmt.Sprintf("200 records more than %d on member %d; now %d", lost.highWatermark, v.id, end)
			}
		}
		return ""
	})
	m.process.send(syscall.SIGKILL)
	<-m.process.done
	m.process = nil
	tail, _ := c.log(m, math.MaxInt64)
	c.tails = append(c.tails, tail)
	for _, v := range others {
		v.process.send(syscall.SIGCONT)
	}
	v := c.leader(lost.epoch)
	c.gaps = append(c.gaps, fmt.Sprintf("kill %s with a tail→%d", m.kind, v.leader))
	c.start(m)
}

// lead makes a member of the kind lead: ours hand over to one of Kafka's, Kafka's are stopped until one of ours wins.
func (c *cluster) lead(k kind) {
	c.t.Helper()
	for range 15 {
		m := c.settled()
		switch {
		case m.kind == k:
			return
		case m.kind == ours:
			c.handOff(m, k)
		default:
			c.lose(syscall.SIGTERM)
		}
	}
	c.t.Fatalf("%s did not win one of 15 elections; %s", k, strings.Join(c.gaps, ", "))
}

// settled waits until all members name the same leader, and returns it.
func (c *cluster) settled() *member {
	c.t.Helper()
	var leader *member
	eventually(c.t, 90*time.Second, func() string {
		v := c.leader(-1)
		leader = c.get(v.leader)
		for _, m := range c.members {
			if said, _ := c.ask(m); said.leader != v.leader || said.epoch != v.epoch {
				return fmt.Sprintf("member %d to follow %+v; it says %+v", m.id, v, said)
			}
		}
		return ""
	})
	return leader
}

// handOff has one of ours, which leads, hand over to a member of the kind. Another may be faster.
func (c *cluster) handOff(from *member, k kind) {
	c.t.Helper()
	to := c.members[slices.IndexFunc(c.members, func(m *member) bool { return m.kind == k })]
	stdout, stderr, _ := quorum().run(c.t, "handoff", "--to", strconv.Itoa(to.id), "--topic", c.topic.name,
		"--bootstrap-controller", from.controller(), "--admin", from.admin(), "--health", from.health(), "-o", "json")
	var h status.Handoff
	if err := json.Unmarshal([]byte(stdout), &h); err != nil {
		c.t.Fatalf("quorum handoff says no outcome: %v\n%s%s", err, stdout, stderr)
	}
	c.gaps = append(c.gaps, fmt.Sprintf("hand off %s→%d %dms", from.kind, h.To, h.WriteGap.Std().Milliseconds()))
}

// status is what one of ours says of itself.
func (m *member) status() (*status.Member, error) {
	return (&client.Client{Timeout: time.Second}).Status(context.Background(), m.health())
}

func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[0] &= 0x7f // no '-' in front
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseUUID(s string) (id [16]byte) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		panic("no id: " + s)
	}
	return [16]byte(b)
}

// newAddress is a loopback address that nobody else uses.
func newAddress() string {
	b := make([]byte, 3)
	_, _ = rand.Read(b)
	return fmt.Sprintf("127.%d.%d.%d", 1+b[0]%254, b[1], 1+b[2]%254)
}
