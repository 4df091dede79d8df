package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// files are the names in a member's log directory that end so.
func (m *testMember) files(ending string) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(m.dir, topic+"-0"))
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ending) {
			names = append(names, e.Name())
		}
	}
	return names
}

// ST-27: the configured age of a segment counts: each append that comes later than that goes to a new one. A stop right after
// such a roll is a clean one, and indexes that lie there, of whatever content, matter to nobody.
func TestST27SegmentsRollByTheConfiguredAge(t *testing.T) {
	const age = 20 * time.Millisecond
	c := newCluster(t, 1, 0, fmt.Sprintf("metadata.log.segment.ms=%d", age.Milliseconds()))
	m := c.leader()
	client := c.client()
	const appends = 5
	for n := range appends {
		before := m.files(".log")
		time.Sleep(age + time.Millisecond) // the segment has to grow old
		c.append(client, keyed("k", fmt.Sprint(n)))
		if after := m.files(".log"); len(after) != len(before)+1 {
			t.Errorf("append %d: segments %v, then %v, want one more", n, before, after)
		}
	}
	c.stop(m)
	segments := m.files(".log")
	for _, name := range segments {
		for _, ending := range []string{".index", ".timeindex"} {
			index := filepath.Join(m.dir, topic+"-0", strings.TrimSuffix(name, ".log")+ending)
			if err := os.WriteFile(index, []byte("no index"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.start(m)
	c.leader()
	for n, r := range c.readAll(appends) {
		if string(r.Value) != fmt.Sprint(n) {
			t.Errorf("record %d is %s", n, r.Value)
		}
	}
	if warned := m.said.with("level=WARN"); len(warned) > 0 {
		t.Errorf("after a clean stop: %s", warned)
	}
	if now := m.files(".log"); !slices.Equal(now[:len(segments)], segments) {
		t.Errorf("segments %v, then %v", segments, now)
	}
}

// ST-27: each setting of the log has its effect in a running member, and without it there is none.
func TestLogSettingsTakeEffect(t *testing.T) {
	const (
		segment = "metadata.log.segment.bytes=1048576"
		often   = "metadata.log.max.record.bytes.between.snapshots=100000"
		never   = "metadata.log.max.snapshot.interval.ms=0"
	)
	snapshot := func(c *cluster, m *testMember) bool { return c.status(m).Snapshot != nil }
	cleaned := func(c *cluster, m *testMember) bool { return c.status(m).LogStartOffset > 0 }
	for _, tt := range []struct {
		line   string
		also   []string // with it and without it
		effect func(*cluster, *testMember) bool
	}{
		{segment, nil, func(_ *cluster, m *testMember) bool { return len(m.files(".log")) > 2 }},
		{often, []string{never}, snapshot},
		{"metadata.log.max.snapshot.interval.ms=50", nil, snapshot},
		{"metadata.max.retention.bytes=1", []string{segment, often, never}, cleaned},
		{"metadata.max.retention.ms=1", []string{segment, often, never}, cleaned},
		{"delete.retention.ms=0", []string{often, never}, func(c *cluster, m *testMember) bool {
			s := c.status(m).Snapshot // the deletion goes with the second
			return s != nil && s.Records == 1
		}},
	} {
		t.Run(tt.line, func(t *testing.T) {
			run := func(appends int, lines ...string) (done int, effect bool) {
				c := newCluster(t, 1, 0, lines...)
				m := c.leader()
				client := c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
				c.append(client, &kgo.Record{Key: []byte("deleted")})
				for deadline := time.Now().Add(20 * time.Second); (appends == 0 || done < appends) && time.Now().Before(deadline); done++ {
					c.append(client, keyed("kept", strings.Repeat("x", 50_000)))
					if effect = tt.effect(c, m); effect {
						break
					}
				}
				return done, effect
			}
			n, ok := run(0, append(tt.also, tt.line)...)
			if !ok {
				t.Fatalf("no effect after %d appends", n)
			}
			if n, ok := run(n+1, tt.also...); ok {
				t.Errorf("the same without it, after %d appends", n)
			}
		})
	}
}
