//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// dev is a whole quorum in one process, `quorum dev`.
type dev struct {
	dir        string
	bootstrap  string // of the CLIENT listeners
	controller string // of the CONTROLLER listeners
}

func startDev(t *testing.T) dev {
	t.Helper()
	d := dev{dir: filepath.Join(t.TempDir(), "dev")}
	p := quorum().start(t, "dev", "dev", "--voters", "3", "--observers", "1", "--dir", d.dir)
	address := `((?:127\.0\.0\.\d+:\d+,?)+)`
	client, controller := regexp.MustCompile(`(?m)^ *CLIENT +`+address), regexp.MustCompile(`(?m)^ *CONTROLLER +`+address)
	eventually(t, 20*time.Second, func() string {
		text := p.text()
		if m := client.FindStringSubmatch(text); m != nil {
			d.bootstrap = m[1]
		}
		if m := controller.FindStringSubmatch(text); m != nil {
			d.controller = m[1]
		}
		if d.bootstrap == "" || d.controller == "" {
			return "quorum dev to print its addresses"
		}
		return ""
	})
	return d
}

// described is what `quorum describe status -o json` says, as far as the tests need it.
type described struct {
	LeaderID      int   `json:"leaderId"`
	LeaderEpoch   int   `json:"leaderEpoch"`
	HighWatermark int64 `json:"highWatermark"`
}

func (d dev) describe(t *testing.T) described {
	t.Helper()
	var s described
	out := quorum().output(t, "describe", "status", "--bootstrap-controller", d.controller, "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return s
}

func TestKafkaMetadataQuorumDescribesAQuorumOfOurs(t *testing.T) {
	tool := kafka(t, "org.apache.kafka.tools.MetadataQuorumCommand")
	d := startDev(t)
	want := d.describe(t)
	status := tool.output(t, "--bootstrap-controller", d.controller, "describe", "--status")
	for _, line := range []string{
		fmt.Sprintf(`(?m)^LeaderId:\s+%d$`, want.LeaderID),
		fmt.Sprintf(`(?m)^LeaderEpoch:\s+%d$`, want.LeaderEpoch),
		`(?m)^HighWatermark:\s+[1-9]\d*$`,
		`(?m)^CurrentVoters:.*"id": ?0.*"id": ?1.*"id": ?2`,
		`(?m)^CurrentObservers:.*"id": ?1000`,
	} {
		if !regexp.MustCompile(line).MatchString(status) {
			t.Errorf("kafka-metadata-quorum describe --status has no line %s:\n%s", line, status)
		}
	}
	replication := tool.output(t, "--bootstrap-controller", d.controller, "describe", "--replication")
	for role, n := range map[string]int{"Leader": 1, "Follower": 2, "Observer": 1} {
		if got := len(regexp.MustCompile(`(?m)\b`+role+`\s*$`).FindAllString(replication, -1)); got != n {
			t.Errorf("kafka-metadata-quorum describe --replication shows %d × %s, want %d:\n%s", got, role, n, replication)
		}
	}
}

func TestKafkaFeaturesDescribesAQuorumOfOurs(t *testing.T) {
	tool := kafka(t, "org.apache.kafka.tools.FeatureCommand")
	out := tool.output(t, "--bootstrap-controller", startDev(t).controller, "describe")
	want := regexp.MustCompile(`(?m)^Feature: kraft.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: 1\s+Epoch: \d+\s*$`)
	if !want.MatchString(out) {
		t.Errorf("kafka-features describe has no line %s:\n%s", want, out)
	}
}

func TestKcatWritesAndReads(t *testing.T) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("no kcat here")
	}
	d := startDev(t)
	var lines []string
	for n := range 10000 {
		lines = append(lines, fmt.Sprintf("key-%d:value %d", n, n))
	}
	topic := []string{"-b", d.bootstrap, "-t", "__cluster_metadata", "-p", "0", "-K", ":"}
	program{kcat}.output(t, append(topic, "-P", "-l", writeFile(t, "lines", lines...))...)
	got := program{kcat}.output(t, append(topic, "-C", "-q", "-o", "beginning", "-e")...)
	if want := strings.Join(lines, "\n") + "\n"; got != want {
		t.Errorf("kcat read %d bytes, want the %d that it had written, in their order", len(got), len(want))
	}
}

func TestKafkaDumpLogReadsOurSegments(t *testing.T) {
	tool := kafka(t, "org.apache.kafka.tools.DumpLogSegments")
	d := startDev(t)
	for n := range 20 {
		quorum().output(t, "append", fmt.Sprintf("key-%d", n), "value", "--bootstrap", d.bootstrap)
	}
	segments, err := filepath.Glob(filepath.Join(d.dir, "*", "*", "00000000000000000000.log"))
	if err != nil || len(segments) != 4 {
		t.Fatalf("found the segments %v, %v; want one a member", segments, err)
	}
	for _, segment := range segments {
		eventually(t, 10*time.Second, func() string {
			if b, err := os.ReadFile(segment); err != nil || !strings.Contains(string(b), "key-19") {
				return "the last record to reach " + segment
			}
			return ""
		})
		dump := tool.output(t, "--files", segment, "--print-data-log")
		if strings.Contains(dump, "isvalid: false") || strings.Contains(dump, "isValid: false") || !strings.Contains(dump, "key: key-19 payload: value") {
			t.Errorf("kafka-dump-log on %s:\n%s", segment, dump)
		}
	}
}
