//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// One of ours follows three real controllers, across the loss of their active one, and our command line describes
// them in the same words as Kafka's.
func TestOursObservesRealControllers(t *testing.T) {
	for run, dynamic := range map[string]bool{"static": false, "dynamic": true} {
		t.Run(run, func(t *testing.T) {
			c := newCluster(t, dynamic, controller, controller, controller)
			c.start(c.members...)
			m := c.join(9, ours, true)
			c.start(m)
			c.advance(1000)
			c.describedAlike()
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				c.lose(signal)
				c.restart(m)
				c.advance(1000)
			}
			c.followed(m)
			c.equal(c.advance(1000), 100_000)
		})
	}
}

// describedAlike compares what our command line and Kafka's tool say of the same quorum.
func (c *cluster) describedAlike() {
	c.t.Helper()
	tool := kafka(c.t, "org.apache.kafka.tools.MetadataQuorumCommand")
	eventually(c.t, time.Minute, func() string {
		theirs := tool.output(c.t, "--bootstrap-controller", c.controllers(), "describe", "--status")
		our := quorum().output(c.t, "describe", "status", "--bootstrap-controller", c.controllers())
		for _, name := range []string{"ClusterId", "LeaderId", "LeaderEpoch", "CurrentVoters", "CurrentObservers"} {
			if a, b := field(c.t, our, name), field(c.t, theirs, name); !cmp.Equal(a, b) {
				return fmt.Sprintf("%s to be the same: ours says %v, Kafka's %v", name, a, b)
			}
		}
		return ""
	})
	c.describe()
}

// describe has our command line show every member.
func (c *cluster) describe() {
	c.t.Helper()
	at := []string{"--topic", c.topic.name, "--bootstrap-controller", c.controllers()}
	status := quorum().output(c.t, append([]string{"describe", "status"}, at...)...)
	replication := quorum().output(c.t, append([]string{"describe", "replication"}, at...)...)
	if got, want := field(c.t, status, "LeaderEpoch"), strconv.Itoa(int(c.epoch)); got != want {
		c.t.Errorf("quorum describe status says epoch %v, want %s", got, want)
	}
	for _, m := range c.members {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^%d +\S+ +\d+ .*(Leader|Follower|Observer)$`, m.id)).MatchString(replication) {
			c.t.Errorf("quorum describe replication has no line for %d:\n%s", m.id, replication)
		}
	}
}

// field reads one line "NAME: VALUE" of describe --status, as JSON where it is JSON.
func field(t *testing.T, text, name string) any {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + `:\s*(.*?)\s*$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no line %s:\n%s", name, text)
	}
	var value any
	if !strings.HasPrefix(m[1], "[") {
		return m[1]
	}
	if err := json.Unmarshal([]byte(m[1]), &value); err != nil {
		t.Fatalf("%v in %s", err, m[1])
	}
	list := value.([]any)
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return list
}

// followed checks that one of ours knows the quorum as it is.
func (c *cluster) followed(m *member) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, func() string {
		leader := c.leader(-1)
		s, err := m.status()
		if err != nil {
			return err.Error()
		}
		want := 0
		if c.dynamic {
			want = 1
		}
		switch {
		case int(s.KRaftVersion) != want:
			return fmt.Sprintf("kraft.version %d on member %d; now %d", want, m.id, s.KRaftVersion)
		case len(s.Voters) != 3:
			return fmt.Sprintf("three voters on member %d; now %+v", m.id, s.Voters)
		case s.Leader == nil || s.Leader.Epoch != leader.epoch:
			return fmt.Sprintf("member %d to be of epoch %d; now %+v", m.id, leader.epoch, s.Leader)
		}
		return ""
	})
}
