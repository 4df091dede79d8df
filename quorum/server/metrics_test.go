package server

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/config"
)

var (
	sampleLine = regexp.MustCompile(`^([a-z_]+)(\{([a-z_]+="[^"]*",?)+\})? (NaN|[+-]?[0-9.e+-]+)$`)
	typeLine   = regexp.MustCompile(`^# TYPE ([a-z_]+) (gauge|counter|histogram)$`)
)

// Every line is Prometheus' text format, each family stands in one piece after its type, and Kafka's names are there: two of
// them on the leader only (C-248).
func TestMetricsSpeakPrometheus(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	c.append(c.client(), keyed("k", "v"))
	for _, m := range c.members {
		r, err := httpClient.Get("http://" + m.listeners[config.Health] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		families, family := map[string]bool{}, ""
		for line := range strings.Lines(string(body)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "# HELP ") {
				continue
			}
			if head := typeLine.FindStringSubmatch(line); head != nil {
				if family = head[1]; families[family] {
					t.Errorf("member %d: family %s appears twice", m.id, family)
				}
				families[family] = true
				continue
			}
			sample := sampleLine.FindStringSubmatch(line)
			if sample == nil || !strings.HasPrefix(sample[1], family) {
				t.Errorf("member %d: line %q in family %s", m.id, line, family)
			}
		}
		want := []string{
			"current_state", "current_leader", "current_vote", "current_epoch", "high_watermark", "log_end_offset", "log_end_epoch",
			"number_unknown_voter_connections", "number_of_voters", "commit_latency_avg", "commit_latency_max",
			"election_latency_avg", "election_latency_max", "fetch_records_rate", "append_records_rate", "poll_idle_ratio_avg",
		}
		for _, name := range want {
			if !families["kafka_server_raft_metrics_"+name] {
				t.Errorf("member %d: Kafka's metric %s is missing", m.id, name)
			}
		}
		for _, name := range []string{"kafka_server_raft_metrics_number_of_observers", "kafka_server_raft_metrics_uncommitted_voter_change", "quorum_voter_change_pending", "quorum_replica_lag_offsets"} {
			if families[name] != (m == leader) {
				t.Errorf("member %d, leader is %d: metric %s is there %v", m.id, leader.id, name, families[name])
			}
		}
	}
	if got := c.metric(leader, `kafka_server_raft_metrics_current_state{state="leader"}`); got != 1 {
		t.Errorf("the leader's state metric is %v", got)
	}
	if got := c.metric(c.members[3], `kafka_server_raft_metrics_current_state{state="observer"}`); got != 1 {
		t.Errorf("the observer's state metric is %v", got)
	}
	if got := c.metric(leader, "kafka_server_raft_metrics_number_of_observers"); got != 1 {
		t.Errorf("%v observers", got)
	}
}

// docs/metrics.md names every family.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1, 1, small...)
	c.leader()
	c.rewrite(0) // they have a snapshot
	for _, m := range c.members {
		r, err := httpClient.Get("http://" + m.listeners[config.Health] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		for line := range strings.Lines(string(body)) {
			if head := typeLine.FindStringSubmatch(strings.TrimSpace(line)); head != nil && !strings.Contains(string(text), "| `"+head[1]+"` | "+head[2]+" |") {
				t.Errorf("docs/metrics.md does not have %s, a %s", head[1], head[2])
			}
		}
	}
}

// More observers than quorum.max.observers are refused, and the others go on.
func TestObserversAreBounded(t *testing.T) {
	c := newCluster(t, 1, 2, "quorum.max.observers=1")
	c.await("one of the two observers to be ready, and the other to be refused", func() bool {
		ready := 0
		for _, m := range c.members[1:] {
			if code, _ := c.health(m, "/readyz"); code == http.StatusOK {
				ready++
			}
		}
		return ready == 1 && c.metric(c.members[0], "quorum_refused_observers_total") > 0
	})
}
