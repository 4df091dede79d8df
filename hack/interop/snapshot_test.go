//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A member of ours on an empty disk is given a real controller's snapshot, byte for byte, and goes on from its end. Since it
// makes none itself of a topic that is not keyed, it learns of the controller's next ones as well, and keeps them.
func TestOursTakesSnapshotsOfARealController(t *testing.T) {
	c := newCluster(t, true, controller)
	c.extra = []string{"metadata.log.max.record.bytes.between.snapshots=20000"}
	c.configure(c.members[0])
	c.start(c.members...)
	eventually(t, time.Minute, func() string {
		c.advance(100)
		if len(checkpoints(t, c.members[0])) == 0 {
			return "the controller to make a snapshot"
		}
		return ""
	})
	m := c.join(9, ours, true)
	c.start(m)
	var first int64
	eventually(t, 20*time.Second, func() string {
		s, err := m.status()
		switch {
		case err != nil:
			return err.Error()
		case s.Snapshot == nil || s.LogStartOffset == 0:
			return fmt.Sprintf("the snapshot to arrive; log starts at %d", s.LogStartOffset)
		case s.HighWatermark < s.Snapshot.Offset+10:
			return fmt.Sprintf("records behind the snapshot of offset %d; high watermark is %d", s.Snapshot.Offset, s.HighWatermark)
		}
		first = s.Snapshot.Offset
		return ""
	})
	c.advance(1000)
	eventually(t, 2*time.Minute, func() string { // it looks once a minute
		s, err := m.status()
		if err != nil || s.Snapshot == nil || s.Snapshot.Offset == first {
			return fmt.Sprintf("a newer snapshot than that of offset %d, which arrived first", first)
		}
		return ""
	})
	theirs, compared := checkpoints(t, c.members[0]), 0
	for name, content := range checkpoints(t, m) {
		if other, ok := theirs[name]; ok {
			compared++
			if !bytes.Equal(content, other) {
				t.Errorf("%s has %d bytes here, %d there, or others", name, len(content), len(other))
			}
		}
	}
	if compared == 0 {
		t.Error("no snapshot is on both disks")
	}
	t.Logf("interop: %d snapshots of a real controller taken, the first at offset %d", compared, first)
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
