//go:build interop

package interop

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A member of ours on an empty disk joins a real controller whose log does not begin at 0 any more: it is given a snapshot,
// byte for byte, and goes on from its end. It makes none itself of a topic that is not keyed, but learns of the controller's
// next ones and cleans its log behind them, so that its disk stays bounded while the log goes on.
func TestOursTakesSnapshotsOfARealController(t *testing.T) {
	const segment, more = 1 << 20, 3 << 20
	c := newCluster(t, true, controller)
	c.extra = []string{"metadata.log.max.record.bytes.between.snapshots=200000", "metadata.max.retention.bytes=10000"}
	c.configure(c.members[0])
	c.start(c.members...)
	theirs := map[string][]byte{} // it keeps none for long
	note := func() { maps.Copy(theirs, checkpoints(t, c.members[0])) }
	eventually(t, 4*time.Minute, func() string { // it cleans once a minute
		if note(); len(theirs) < 3 {
			c.overwrite(10)
		}
		if v := c.leader(-1); v.logStart == 0 {
			return fmt.Sprintf("the controller to clean its log; it has made %d snapshots", len(theirs))
		}
		return ""
	})
	c.extra = append(c.extra, fmt.Sprintf("metadata.log.segment.bytes=%d", segment))
	m := c.join(9, ours, true)
	c.start(m)
	written := func() int64 { return c.members[0].usage(t, "*.log") } // its first segment stays
	held := func() int64 { return m.usage(t, "*.log", "*.checkpoint*") }
	took := []int64{0} // ends of the snapshots
	var peaks []int64  // of the bytes on its disk, before each
	for round := range 3 {
		began, most := written(), int64(0)
		for round > 0 && written() < began+more {
			c.overwrite(10)
			note()
			most = max(most, held())
		}
		eventually(t, 2*time.Minute, func() string { // it looks once a minute
			note()
			most = max(most, held())
			s, err := m.status()
			switch last := took[len(took)-1]; {
			case err != nil:
				return err.Error()
			case s.Snapshot == nil || s.Snapshot.Offset <= last:
				return fmt.Sprintf("a newer snapshot than that of offset %d; log starts at %d", last, s.LogStartOffset)
			case s.HighWatermark < s.Snapshot.Offset+10:
				return fmt.Sprintf("records behind the snapshot of offset %d; high watermark is %d", s.Snapshot.Offset, s.HighWatermark)
			case s.LogStartOffset <= last || held() >= 2*segment:
				return fmt.Sprintf("the log before offset %d to be removed; it starts at %d, and %d bytes are held", s.Snapshot.Offset, s.LogStartOffset, held())
			}
			took = append(took, s.Snapshot.Offset)
			peaks = append(peaks, most)
			// What was written since, for which there was no snapshot yet, and what was left after the last.
			if bound := written() - began + 2*segment; most > bound {
				t.Errorf("our disk held %d bytes, want at most %d", most, bound)
			}
			return ""
		})
	}
	compared, largest := 0, 0
	for name, content := range checkpoints(t, m) {
		compared++
		largest = max(largest, len(content))
		if other, ok := theirs[name]; !ok || !bytes.Equal(content, other) {
			t.Errorf("%s has %d bytes here, %d there, or others", name, len(content), len(other))
		}
	}
	if compared == 0 || compared > 2 {
		t.Errorf("%d snapshots are on our disk, want one or two", compared)
	}
	t.Logf("interop: snapshots of a real controller, which made %d and cut its log: taken at offsets %v, equal=%d of at most %d bytes; ours held at most %v bytes before each and holds %d, of %d written",
		len(theirs), took[1:], compared, largest, peaks, held(), written())
}

// overwrite has the real controller write ConfigRecords, so many times 100 for the same 100 resources: its snapshots stay
// small.
func (c *cluster) overwrite(times int) {
	c.t.Helper()
	m := c.get(c.leader(-1).leader)
	for range times {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		for i := range 100 {
			interval := strconv.Itoa(1000 + rand.IntN(1_000_000))
			req.Resources = append(req.Resources, kmsg.IncrementalAlterConfigsRequestResource{
				ResourceType: kmsg.ConfigResourceTypeClientMetrics, ResourceName: fmt.Sprintf("subscription-%d", i),
				Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "interval.ms", Value: &interval}},
			})
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		_, err := m.kafka.SeedBrokers()[0].Request(ctx, req)
		cancel()
		if err != nil {
			c.t.Fatalf("alter configs: %v", err)
		}
	}
}

// usage is the size of a member's log, or with its snapshots.
func (m *member) usage(t *testing.T, patterns ...string) (size int64) {
	t.Helper()
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(m.dir, "*-0", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil { // else it was just removed
				size += info.Size()
			}
		}
	}
	return size
}

// checkpoints reads the snapshots in a member's directory, without the bootstrap checkpoint.
func checkpoints(t *testing.T, m *member) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(m.dir, "*-0", "*.checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		base := filepath.Base(name)
		content, err := os.ReadFile(name)
		if err == nil && base != fmt.Sprintf("%020d-%010d.checkpoint", 0, 0) {
			all[base] = content
		}
	}
	return all
}

// Kafka's dump-log finds our own checkpoints sound, too.
func TestKafkaDumpLogReadsOurCheckpoints(t *testing.T) {
	tool := kafka(t, "org.apache.kafka.tools.DumpLogSegments")
	d := startDev(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(d.bootstrap, ",")...), kgo.DefaultProduceTopic("__cluster_metadata"),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	value := bytes.Repeat([]byte("x"), 900_000)
	for n := range 26 { // a snapshot is made of each 20 MiB
		r := &kgo.Record{Key: fmt.Appendf(nil, "key-%d", n%3), Value: value}
		if n == 10 {
			r = &kgo.Record{Key: []byte("gone")} // a deletion
		}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	eventually(t, 20*time.Second, func() string {
		found, err = filepath.Glob(filepath.Join(d.dir, "*", "*", "*[1-9]*-*.checkpoint"))
		if err != nil || len(found) < 4 {
			return fmt.Sprintf("a checkpoint of each member, %v", err)
		}
		return ""
	})
	for _, name := range found {
		dump := strings.ReplaceAll(tool.output(t, "--files", name, "--print-data-log"), string(value), "x")
		for _, want := range []string{"SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"} {
			if !strings.Contains(dump, want) {
				t.Errorf("kafka-dump-log shows no %s in %s", want, name)
			}
		}
		if n := strings.Count(dump, "payload: x"); n != 3 || strings.Contains(dump, "isvalid: false") {
			t.Errorf("kafka-dump-log on %s finds %d records, want one of each of 3 keys, all sound:\n%s", name, n, dump)
		}
	}
}
