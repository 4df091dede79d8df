//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

// kafka-metadata-quorum makes a voter of a member of ours, by the files that our quorum format and the member's own
// configuration are, and takes it and the leader out again.
func TestKafkaMetadataQuorumChangesTheVotersOfOurs(t *testing.T) {
	tool := kafka(t, "org.apache.kafka.tools.MetadataQuorumCommand")
	c := newCluster(t, true, ours, ours, ours)
	c.start(c.members...)
	newcomer, observer := c.join(4, ours, false), c.join(9, ours, true)
	c.start(newcomer, observer)
	c.advance(1000)

	add := func(m *member) []string {
		return []string{"--command-config", m.config, "--bootstrap-controller", c.controllers(), "add-controller"}
	}
	tool.output(t, add(newcomer)...)
	c.votersAre(1, 2, 3, 4)
	tool.fails(t, "DuplicateVoterException", add(newcomer)...)
	tool.fails(t, "observer.only=true", add(observer)...)
	c.advance(1000)
	for range 2 { // the second is a leader that the removal of the first made
		leader := c.settled()
		tool.output(t, "--bootstrap-controller", c.controllers(), "remove-controller",
			"--controller-id", strconv.Itoa(leader.id), "--controller-directory-id", leader.directory)
		rest := slices.DeleteFunc(c.voters(), func(id int) bool { return id == leader.id })
		c.votersAre(rest...)
		c.leader(-1)
		c.advance(1000)
	}
	c.describedAlike()
	c.equal(c.advance(1000), 1<<20)
}

// kafka-features takes a quorum of static voters of ours to kraft.version 1, from where on voters can be added.
func TestKafkaFeaturesUpgradesStaticVotersOfOurs(t *testing.T) {
	features, tool := kafka(t, "org.apache.kafka.tools.FeatureCommand"), kafka(t, "org.apache.kafka.tools.MetadataQuorumCommand")
	c := newCluster(t, false, ours, ours, ours)
	c.start(c.members...)
	newcomer := c.join(4, ours, false)
	c.start(newcomer)
	c.advance(1000)
	add := []string{"--command-config", newcomer.config, "--bootstrap-controller", c.controllers(), "add-controller"}
	tool.fails(t, "UnsupportedVersionException", add...)

	features.output(t, "--bootstrap-controller", c.controllers(), "upgrade", "--feature", "kraft.version=1")
	c.dynamic = true
	for _, m := range c.members[:3] {
		m.directory = c.directoryID(m)
		c.restart(m) // what the log says goes before controller.quorum.voters
		c.followed(m)
	}
	features.fails(t, "kraft.version", "--bootstrap-controller", c.controllers(), "downgrade", "--feature", "kraft.version=0")
	tool.output(t, add...)
	c.votersAre(1, 2, 3, 4)
	c.describedAlike()
	c.equal(c.advance(1000), 500_000)
}

// A leader of ours takes static voters of Kafka's to kraft.version 1, takes one of them out and in again, and hands on.
func TestOursChangesTheVotersOfAQuorumWithKafkas(t *testing.T) {
	features := kafka(t, "org.apache.kafka.tools.FeatureCommand")
	c := newCluster(t, false, raftServer, raftServer, ours)
	c.start(c.members...)
	theirs, our := c.get(1), c.get(3)
	c.advance(1000)
	c.lead(ours)
	at := []string{"--topic", c.topic.name, "--bootstrap-controller", our.controller()}
	eventually(t, time.Minute, func() string {
		// Kafka's members tell of themselves at their own pace.
		if _, stderr, err := features.run(t, "--bootstrap-controller", our.controller(), "upgrade", "--feature", "kraft.version=1"); err != nil {
			return "kraft.version 1: " + stderr
		}
		return ""
	})
	c.advance(1000)
	quorum().output(t, append([]string{"voter", "remove", "--node-id", "1"}, at...)...)
	c.votersAre(2, 3)
	c.advance(1000)
	quorum().output(t, append([]string{"voter", "add", "--node-id", "1", "--directory-id", theirs.directory, "--endpoint", "CONTROLLER://" + theirs.controller()}, at...)...)
	c.votersAre(1, 2, 3)
	c.dynamic = true
	c.lead(raftServer)
	c.advance(1000)
	c.followed(our)
	c.equal(c.advance(1000), 1<<20)
}

// Our command line makes a voter of a real controller, and takes it and the active one out again, while one of ours
// observes.
func TestOurVoterCommandsChangeTheVotersOfRealControllers(t *testing.T) {
	c := newCluster(t, true, controller, controller, controller)
	c.start(c.members...)
	newcomer, observer := c.join(4, controller, false), c.join(9, ours, true)
	c.start(newcomer, observer)
	c.advance(1000)

	quorum().output(t, "voter", "add", "--node-id", "4", "--endpoint", "CONTROLLER://"+newcomer.controller(), "--bootstrap-controller", c.controllers())
	c.votersAre(1, 2, 3, 4)
	c.describedAlike()
	c.advance(1000)
	quorum().output(t, "voter", "remove", "--node-id", "4", "--bootstrap-controller", c.controllers())
	c.votersAre(1, 2, 3)
	c.advance(1000)
	active := c.settled()
	quorum().output(t, "voter", "remove", "--node-id", strconv.Itoa(active.id), "--bootstrap-controller", c.controllers())
	c.votersAre(slices.DeleteFunc([]int{1, 2, 3}, func(id int) bool { return id == active.id })...)
	c.equal(c.advance(1000), 100_000)
}

// votersAre waits until the members of ours and a describe see exactly these voters.
func (c *cluster) votersAre(want ...int) {
	c.t.Helper()
	eventually(c.t, 30*time.Second, func() string {
		if got := c.voters(); !slices.Equal(got, want) {
			return fmt.Sprintf("the voters %v in quorum describe status; now %v", want, got)
		}
		for _, m := range c.members {
			if m.kind != ours {
				continue
			}
			s, err := m.status()
			if err != nil {
				return err.Error()
			}
			var got []int
			for _, v := range s.Voters {
				got = append(got, int(v.NodeID))
			}
			if !slices.Equal(got, want) {
				return fmt.Sprintf("the voters %v in member %d's log; now %v", want, m.id, got)
			}
		}
		return ""
	})
}

// voters are those that quorum describe status shows.
func (c *cluster) voters() []int {
	c.t.Helper()
	text := quorum().output(c.t, "describe", "status", "--topic", c.topic.name, "--bootstrap-controller", c.controllers())
	var ids []int
	for _, v := range field(c.t, text, "CurrentVoters").([]any) {
		ids = append(ids, int(v.(map[string]any)["id"].(float64)))
	}
	slices.Sort(ids)
	return ids
}
