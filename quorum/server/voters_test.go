package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/status"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// join starts a new member of the quorum, formatted without initial controllers: an observer that may become a voter.
func (c *cluster) join(id raft.NodeID, extra ...string) *testMember {
	c.t.Helper()
	m := c.newMember(id, extra...)
	c.formatEmpty(m)
	c.start(m)
	return m
}

// newMember has addresses of its own, and a directory that nobody has formatted yet.
func (c *cluster) newMember(id raft.NodeID, extra ...string) *testMember {
	c.t.Helper()
	m := &testMember{
		id: id, dir: filepath.Join(c.t.TempDir(), fmt.Sprint(id)), listeners: map[string]string{},
		extra: strings.Join(append(extra, c.members[0].extra), "\n"), fs: vfs.OS,
	}
	for _, name := range []string{config.Controller, config.Client, config.Admin, config.Health} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			c.t.Fatal(err)
		}
		m.held = append(m.held, l)
		m.listeners[name] = l.Addr().String()
	}
	c.members = append(c.members, m)
	return m
}

func (c *cluster) formatEmpty(m *testMember) {
	c.t.Helper()
	if err := storage.Format(vfs.OS, m.dir, storage.FormatOptions{ClusterID: testCluster, NodeID: m.id, KRaftVersion: 1}); err != nil {
		c.t.Fatal(err)
	}
}

// loseDisk kills a member and starts it again on an empty disk.
func (c *cluster) loseDisk(m *testMember) {
	c.t.Helper()
	c.killMember(m)
	if err := os.RemoveAll(m.dir); err != nil {
		c.t.Fatal(err)
	}
	c.formatEmpty(m)
	c.start(m)
}

func (c *cluster) controllers() []string {
	var all []string
	for _, m := range c.members {
		if m.cancel != nil {
			all = append(all, m.listeners[config.Controller])
		}
	}
	return all
}

func (c *cluster) addVoter(v client.Voter) (*client.Changed, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return new(client.Client).AddVoter(ctx, c.controllers(), v, func(s string) { c.t.Log("waiting:", s) })
}

func (c *cluster) removeVoter(v client.Voter) (*client.Changed, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return new(client.Client).RemoveVoter(ctx, c.controllers(), v, false, func(s string) { c.t.Log("waiting:", s) })
}

// add makes a voter of a member and waits until every running member knows.
func (c *cluster) add(m *testMember, want string) {
	c.t.Helper()
	did, err := c.addVoter(client.Voter{NodeID: int32(m.id)})
	c.changed(did, err, "add", m, want)
}

func (c *cluster) remove(m *testMember, want string) {
	c.t.Helper()
	did, err := c.removeVoter(client.Voter{NodeID: int32(m.id)})
	c.changed(did, err, "remove", m, want)
}

func (c *cluster) changed(did *client.Changed, err error, what string, m *testMember, want string) {
	c.t.Helper()
	if err != nil || !did.Changed {
		c.t.Fatalf("%s voter %d: %+v, %v", what, m.id, did, err)
	}
	c.await("all to have voters "+want, func() bool {
		for _, m := range c.members {
			if m.cancel == nil {
				continue
			}
			if s := c.status(m); s == nil || voterIDs(s) != want || !s.VotersCommitted || s.IsVoter != strings.Contains(want, fmt.Sprint(m.id)) {
				return false
			}
		}
		return true
	})
}

func voterIDs(s *status.Member) string {
	var ids []string
	for _, v := range s.Voters {
		ids = append(ids, fmt.Sprint(v.NodeID))
	}
	return strings.Join(ids, " ")
}

// MB-01, C-248: four voters are added to a sole one under load, one after the other. Nobody has to vote, the leader's metrics
// follow each step, and appends go on, without a gap of a second.
func TestMB01GrowFromOneToFiveUnderLoad(t *testing.T) {
	withinBestOf3(t, time.Second, growFromOneToFive)
}

// growFromOneToFive returns the longest gap while the voters become more.
func growFromOneToFive(t *testing.T) time.Duration {
	c := newCluster(t, 1, 1)
	leader := c.leader()
	epoch := c.status(leader).Epoch
	l := c.load(4)
	c.appendsGoOn()
	began := time.Now()
	want := "0"
	for id := raft.NodeID(1); id < 5; id++ {
		want += fmt.Sprintf(" %d", id)
		m := c.join(id)
		c.metrics(leader, float64(id), 2) // the one that observes for good is the other
		c.add(m, want)
		c.metrics(leader, float64(id+1), 1)
		c.appendsGoOn()
	}
	grown := time.Now()
	if s := c.status(leader); s.Role != "Leader" || s.Epoch != epoch {
		t.Errorf("%s in epoch %d after all, want Leader in %d: nobody had to vote", s.Role, s.Epoch, epoch)
	}
	// They count: two of five may go, and the lead is theirs to take.
	c.killMember(c.members[0])
	c.killMember(c.members[2])
	c.appendsGoOn()
	all := l.end()
	gap := l.longestGap(began, grown)
	t.Logf("longest gap %v while voters were added in %v, %v with two killed", gap, grown.Sub(began), all)
	return gap
}

// metrics waits until the leader tells that many voters and observers, and of no change under way.
func (c *cluster) metrics(leader *testMember, voters, observers float64) {
	c.t.Helper()
	for name, want := range map[string]float64{"number_of_voters": voters, "number_of_observers": observers, "uncommitted_voter_change": 0} {
		c.await(fmt.Sprintf("metric %s to be %v", name, want), func() bool { return c.metric(leader, "kafka_server_raft_metrics_"+name) == want })
	}
}

func TestMB02ShrinkFromFiveToThreeWithTheLeader(t *testing.T) {
	c := newCluster(t, 5, 1)
	leader := c.leader()
	before := c.status(leader)
	l := c.load(4)
	c.appendsGoOn()
	ids := []string{"0", "1", "2", "3", "4"}
	without := func(m *testMember) string {
		var stay []string
		for _, id := range ids {
			if id != fmt.Sprint(m.id) {
				stay = append(stay, id)
			}
		}
		ids = stay
		return strings.Join(ids, " ")
	}
	c.remove(leader, without(leader))
	c.appendsGoOn()
	next := c.leader()
	if next == leader {
		t.Fatalf("node %d still leads", leader.id)
	}
	if s := c.status(next); s.Epoch > before.Epoch+2 {
		t.Errorf("epoch %d, was %d: want one election, or two", s.Epoch, before.Epoch)
	}
	c.await("the removed leader to observe", func() bool {
		s := c.status(leader)
		return s.Role == "Follower" && !s.IsVoter && s.Ready
	})
	for _, m := range c.members[:5] {
		if m != leader && m != next {
			c.remove(m, without(m))
			c.stop(m)
			break
		}
	}
	c.stop(leader)
	c.appendsGoOn()
	if s := c.status(c.leader()); s.NodeID != int32(next.id) {
		t.Errorf("node %d leads after the removal of a follower, node %d did before", s.NodeID, next.id)
	}
	gap := l.end()
	t.Logf("longest gap %v", gap)
	if gap > 2*time.Second {
		t.Errorf("longest gap without an acknowledged append is %v", gap)
	}
}

// A voter that lost its disk is another member: it observes until its old entry is removed and the new one added.
func TestMB14EveryVoterLosesItsDisk(t *testing.T) {
	c := newCluster(t, 3, 0)
	l := c.load(2)
	for _, m := range []*testMember{c.members[1], c.members[0], c.members[2]} {
		c.leader()
		c.appendsGoOn()
		old := c.status(m).DirectoryID
		c.loseDisk(m)
		c.await("the member to be back with another directory", func() bool {
			s := c.status(m)
			return s != nil && s.Ready && s.DirectoryID != old && !s.IsVoter
		})
		_, err := c.addVoter(client.Voter{NodeID: int32(m.id)})
		if wayOut := fmt.Sprintf("quorum voter remove --node-id %d --directory-id %s", m.id, old); err == nil || !strings.Contains(err.Error(), wayOut) {
			t.Fatalf("add while the old entry is there: %v, want an error with %q", err, wayOut)
		}
		directory, _ := raft.ParseUUID(old)
		if _, err := c.removeVoter(client.Voter{NodeID: int32(m.id), DirectoryID: directory}); err != nil {
			t.Fatal(err)
		}
		c.add(m, "0 1 2")
	}
	l.end()
}

func TestMB09AutoJoin(t *testing.T) {
	c := newCluster(t, 1, 0, "controller.quorum.fetch.timeout.ms=500", "controller.quorum.fetch.max.wait.ms=100")
	c.leader()
	client0 := c.client()
	c.append(client0, keyed("k", "v"))
	m := c.join(1, "controller.quorum.auto.join.enable=true")
	joined := func() bool {
		s := c.status(m)
		return s != nil && s.IsVoter && voterIDs(s) == "0 1" && s.VotersCommitted
	}
	c.await("the member to make itself a voter", joined)
	other := c.join(2)
	c.await("the member without auto join to observe", func() bool { s := c.status(other); return s != nil && s.Ready })
	c.add(other, "0 1 2")

	old := c.status(m).DirectoryID
	c.loseDisk(m)
	c.await("the member to take the place of its lost disk", func() bool {
		s := c.status(m)
		return s != nil && s.DirectoryID != old && s.IsVoter && voterIDs(s) == "0 1 2" && s.VotersCommitted
	})
	// Whom somebody removes stays out: the log has that one change, and none that undoes it.
	before := c.status(c.leader())
	c.remove(m, "0 2")
	c.append(client0, keyed("k", "v"))
	time.Sleep(3 * time.Second / 2) // three fetch timeouts: it asks every two
	if s := c.status(m); s.IsVoter {
		t.Error("the removed member is back among the voters")
	}
	sets := c.voterSets(before.LogEndOffset, c.status(c.leader()).HighWatermark)
	for i, set := range sets { // those before the last only tell more of the same voters
		if _, in := set.ByID(m.id); in != (i < len(sets)-1) {
			t.Errorf("voter sets in the log since just before the removal: %v, want the last to be the one without node %d", sets, m.id)
		}
	}
	if len(sets) == 0 {
		t.Error("no voter set in the log since just before the removal")
	}
}

// voterSets reads a part of the log and returns the voter sets in it.
func (c *cluster) voterSets(from, to int64) (sets []raft.VoterSet) {
	c.t.Helper()
	w := newWire(c.t, c.leader())
	for from < to {
		for b, err := range record.All(w.records(fetchOf(from, 1<<20))) {
			if err != nil {
				c.t.Fatal(err)
			}
			if from = b.NextOffset(); !b.IsControl() {
				continue
			}
			controls, err := record.DecodeControls(b)
			if err != nil {
				c.t.Fatal(err)
			}
			for _, r := range controls {
				if voters, ok := r.Record.(raft.Voters); ok {
					sets = append(sets, voters.Set)
				}
			}
		}
	}
	return sets
}

func TestMB10RefusedChangesOfTheVoters(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.leader()
	end := func() int64 { return c.status(c.members[0]).LogEndOffset }
	before := end()
	if _, err := c.addVoter(client.Voter{NodeID: 1000}); err == nil || !strings.Contains(err.Error(), "INVALID_REQUEST") || !strings.Contains(err.Error(), "observer.only") {
		t.Errorf("add of an observer.only: %v", err)
	}
	if _, err := c.removeVoter(client.Voter{NodeID: 0}); err == nil || !strings.Contains(err.Error(), "only voter") {
		t.Errorf("remove of the only voter: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := new(client.Client).AddVoter(ctx, c.controllers(), client.Voter{NodeID: 7}, nil)
	if err == nil || errors.Is(err, client.ErrUnsettled) || !strings.Contains(err.Error(), "node 7 does not fetch from node 0") {
		t.Errorf("add of nobody: %v", err)
	}
	if after := end(); after != before {
		t.Errorf("the log grew from %d to %d", before, after)
	}
}

// MB-10: the same as Kafka's own tools would ask for it, through a socket: each refusal has Kafka's code and leaves the log alone.
func TestMB10RefusalsOnTheWire(t *testing.T) {
	sole, c := newCluster(t, 1, 0), newCluster(t, 3, 0)
	joining := c.join(3)
	leader := c.leader()
	follower := c.members[0]
	if follower == leader {
		follower = c.members[1]
	}
	key := func(c *cluster, m *testMember) raft.ReplicaKey {
		directory, err := raft.ParseUUID(c.status(m).DirectoryID)
		if err != nil {
			t.Fatal(err)
		}
		return raft.ReplicaKey{ID: m.id, DirectoryID: directory}
	}
	// One that fetches from the beginning has 10 000 records before it.
	newWire(t, leader).ask(produceOf(batchOf(t, 10_000, 1)))
	behind := raft.ReplicaKey{ID: 9, DirectoryID: raft.UUID{9}}
	codec := wire.Codec{Topic: topic, TopicID: raft.UUID{15: 1}}
	fetch, err := codec.EncodeRequest(17, 1, raft.FetchRequest{
		ClusterID: new(testCluster), Replica: behind, Epoch: raft.Epoch(c.status(leader).Epoch), HighWatermark: raft.Unknown, MaxBytes: 1,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	newWireTo(t, leader, config.Controller).ask(fetch)

	add := func(key raft.ReplicaKey, listener string) kmsg.Request {
		r := kmsg.NewPtrAddRaftVoterRequest()
		r.ClusterID, r.VoterID, r.VoterDirectoryID = new(testCluster), int32(key.ID), key.DirectoryID
		host, port, _ := config.ParseHostPort(joining.listeners[config.Controller])
		r.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: listener, Host: host, Port: port}}
		return r
	}
	remove := func(key raft.ReplicaKey) kmsg.Request {
		r := kmsg.NewPtrRemoveRaftVoterRequest()
		r.ClusterID, r.VoterID, r.VoterDirectoryID = new(testCluster), int32(key.ID), key.DirectoryID
		return r
	}
	another := func(key raft.ReplicaKey) raft.ReplicaKey { key.DirectoryID[3] ^= 1; return key }
	for _, test := range []struct {
		name    string
		c       *cluster
		to      *testMember
		request kmsg.Request
		want    error
		says    string
	}{
		{"remove the only voter", sole, sole.leader(), remove(key(sole, sole.members[0])), kerr.VoterNotFound, "last voter"},
		{"remove with another directory", c, leader, remove(another(key(c, follower))), kerr.VoterNotFound, "is a voter with directory id"},
		{"add a voter's id with another directory", c, leader, add(another(key(c, follower)), config.Controller), kerr.DuplicateVoter, "remove that one before"},
		{"add without the voters' listener", c, leader, add(key(c, joining), "ANOTHER"), kerr.InvalidRequest, "no endpoint for listener CONTROLLER"},
		{"add, to a follower", c, follower, add(key(c, joining), config.Controller), kerr.NotLeaderForPartition, fmt.Sprintf("ask node %d", leader.id)},
		{"add one that is far behind", c, leader, add(behind, config.Controller), kerr.RequestTimedOut, " offsets behind"},
	} {
		before := test.c.status(test.to)
		response, err := test.c.rawTo(test.to, config.Controller, test.request)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		var got error
		var why string
		switch r := response.(type) {
		case *kmsg.AddRaftVoterResponse:
			got, why = code(r.ErrorCode), *r.ErrorMessage
		case *kmsg.RemoveRaftVoterResponse:
			got, why = code(r.ErrorCode), *r.ErrorMessage
		}
		if got != test.want || !strings.Contains(why, test.says) {
			t.Errorf("%s: %v, %q; want %v, %q", test.name, got, why, test.want, test.says)
		}
		if after := test.c.status(test.to); after.LogEndOffset != before.LogEndOffset {
			t.Errorf("%s: the log grew from %d to %d", test.name, before.LogEndOffset, after.LogEndOffset)
		}
	}
	if s := c.status(leader); s.LogEndOffset < 10_000 {
		t.Errorf("the log ends at %d: nobody was far behind", s.LogEndOffset)
	}
}

// Static voters become a voter set by what kafka-features upgrade --feature kraft.version=1 sends.
func TestKRaftVersionUpgrade(t *testing.T) {
	c := &cluster{t: t, static: true}
	c.form(3, 0)
	leader := c.leader()
	client0 := c.client()
	c.append(client0, keyed("k", "v"))
	upgrade := func(m *testMember, level int16) *kmsg.UpdateFeaturesResponse {
		t.Helper()
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "kraft.version", MaxVersionLevel: level, UpgradeType: 1}}
		resp, err := c.rawTo(m, config.Controller, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.(*kmsg.UpdateFeaturesResponse)
	}
	for _, m := range c.members {
		if m != leader {
			if got := upgrade(m, 1); got.ErrorCode != int16(raft.NotController) {
				t.Errorf("a follower answers %d", got.ErrorCode)
			}
		}
	}
	if _, err := c.removeVoter(client.Voter{NodeID: 1}); err == nil || !strings.Contains(err.Error(), " upgrade --feature kraft.version=1") {
		t.Errorf("removed a static voter: %v", err)
	}
	if got := upgrade(leader, 2); got.ErrorCode != int16(raft.InvalidUpdateVersion) {
		t.Errorf("level 2 is answered %d", got.ErrorCode)
	}
	c.await("the voters to have told the leader who they are", func() bool { return upgrade(leader, 1).ErrorCode == 0 })
	c.await("all to have kraft.version 1", func() bool {
		for _, m := range c.members {
			if s := c.status(m); s.KRaftVersion != 1 || voterIDs(s) != "0 1 2" || !s.IsVoter {
				return false
			}
		}
		return true
	})
	if got := c.metric(leader, "quorum_ignored_static_voters"); got != 1 {
		t.Errorf("quorum_ignored_static_voters is %v", got)
	}
	if got := upgrade(leader, 1); got.ErrorCode != 0 {
		t.Errorf("the same again is answered %d", got.ErrorCode)
	}
	c.add(c.join(3), "0 1 2 3")
	c.append(client0, keyed("k", "v"))
}

// MB-12: of three members with one cluster id one was formatted as the only voter, the others with all three. Nobody
// compares the lists. If it has led before the others begin, they have nothing yet and observe it. If the others have
// elected in the same epoch, it ends with INCONSISTENT_STATE, and they go on.
func TestMB12InitialVotersThatDiffer(t *testing.T) {
	standalone := func(c *cluster, m *testMember) {
		t.Helper()
		if err := os.RemoveAll(m.dir); err != nil {
			t.Fatal(err)
		}
		v, _ := c.voters.ByID(m.id)
		set, err := raft.NewVoterSet(v)
		if err == nil {
			err = storage.Format(vfs.OS, m.dir, storage.FormatOptions{ClusterID: testCluster, NodeID: m.id, KRaftVersion: 1, InitialVoters: set})
		}
		if err != nil {
			t.Fatal(err)
		}
		c.start(m)
	}
	t.Run("it is the first", func(t *testing.T) {
		c := newCluster(t, 3, 0)
		for i, m := range c.members { // nobody has elected anybody: they are as if formatted just now
			c.killMember(m)
			if err := os.RemoveAll(m.dir); err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				if err := storage.Format(vfs.OS, m.dir, storage.FormatOptions{ClusterID: testCluster, NodeID: m.id, KRaftVersion: 1, InitialVoters: c.voters}); err != nil {
					t.Fatal(err)
				}
			}
		}
		standalone(c, c.members[0])
		c.leader()
		c.append(c.client(kgo.SeedBrokers(c.bootstrap(c.members[0])...)), keyed("k", "v"))
		for _, m := range c.members[1:] {
			c.start(m)
		}
		if leader := c.leader(); leader != c.members[0] {
			t.Errorf("node %d leads", leader.id)
		}
		for _, m := range c.members[1:] {
			c.await("all to know the only voter", func() bool { s := c.status(m); return !s.IsVoter && voterIDs(s) == "0" })
		}
		if got := c.readAll(1); string(got[0].Value) != "v" {
			t.Errorf("read %v", got)
		}
	})
	t.Run("the others are the first", func(t *testing.T) {
		c := newCluster(t, 3, 0)
		leader := c.leader()
		epoch := c.status(leader).Epoch
		if epoch != 1 {
			t.Skipf("the first election took until epoch %d, and a voter alone begins in epoch 1", epoch)
		}
		odd := c.members[0]
		if odd == leader {
			odd = c.members[1]
		}
		c.append(c.client(), keyed("k", "v"))
		c.killMember(odd)
		standalone(c, odd)
		fatal, ok := errors.AsType[*Fatal](c.wait(odd))
		if !ok || fatal.Token != raft.InconsistentState || !strings.Contains(fatal.Message, "two leaders in epoch 1") {
			t.Errorf("ended with %v, want INCONSISTENT_STATE and the epoch", fatal)
		}
		if s := c.status(c.leader()); s.NodeID != int32(leader.id) || s.Epoch != epoch || voterIDs(s) != "0 1 2" {
			t.Errorf("then node %d leads epoch %d with voters %s", s.NodeID, s.Epoch, voterIDs(s))
		}
		if got := c.readAll(1, kgo.SeedBrokers(c.bootstrap(leader)...)); string(got[0].Value) != "v" {
			t.Errorf("read %v", got)
		}
	})
}
