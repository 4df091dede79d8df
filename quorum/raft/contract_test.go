package raft

import (
	"strings"
	"testing"
	"time"
)

// TestContractOfTheDriver: what a driver must never do ends the process with a sentence.
func TestContractOfTheDriver(t *testing.T) {
	type unknownEvent struct{ Event }
	type unknownRequest struct{ Request }
	for want, do := range map[string]func(m *member){
		"Step before Advance": func(m *member) { m.node.Ready(); m.node.Step(0, Deadline{}) },
		"unknown event":       func(m *member) { m.node.Step(0, unknownEvent{}) },
		"unknown request":     func(m *member) { m.node.Step(0, Inbound{Request: unknownRequest{}}) },
		"a snapshot ends at {Offset:2 Epoch:6}, which is not committed here": func(m *member) {
			do(m, SnapshotCreated{OffsetAndEpoch{2, 6}})
		},
		"the log was cleaned up to {Offset:2 Epoch:6}, it begins at 0": func(m *member) {
			do(m, Cleaned{OffsetAndEpoch{2, 6}})
		},
		"Truncate after Appends": func(m *member) {
			respondLater(m, FetchResponse{Batches: []Batch{batch(3, 7)}})
			m.node.truncate(2)
		},
	} {
		t.Run(want, func(t *testing.T) {
			m, _ := followerOf(t)
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, want) {
					t.Errorf("panic %q, want %q", said, want)
				}
			}()
			do(m)
		})
	}
}

// respondLater answers the fetch in flight, and leaves the work that follows from it undone.
func respondLater(m *member, r FetchResponse) {
	r.Epoch, r.Leader, r.HighWatermark = m.node.state.Epoch, m.node.state.Leader, Unknown
	m.node.Step(m.node.now, Outcome{Correlation: m.node.fetch.correlation, Response: r})
}

// TestNewRefusesTheRest: what TestNewRefuses has no id for.
func TestNewRefusesTheRest(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"negative linger":          func(c *Config) { c.AppendLinger = -1 },
		"negative fetch wait":      func(c *Config) { c.FetchMaxWait = -1 },
		"negative election pause":  func(c *Config) { c.ElectionBackoffMax = -1 },
		"fetches of nothing":       func(c *Config) { c.FetchMaxBytes = 0 },
		"no proposals":             func(c *Config) { c.MaxPending = 0 },
		"nothing to draw from":     func(c *Config) { c.Rand = nil },
		"an epoch behind the log":  func(c *Config) { c.Log.Epochs = []OffsetAndEpoch{{5, 1}} },
		"zero request timeout":     func(c *Config) { c.RequestTimeout = 0 },
		"negative retry back-off":  func(c *Config) { c.RetryBackoff = -1 },
		"a kraft.version too high": func(c *Config) { c.Log.Control = []ControlAt{{-1, KRaftVersion{2}}} },
	} {
		cfg := testConfig(1, testVoters(1, 2, 3))
		cfg.Log.Control = dynamic(testVoters(1, 2, 3))
		change(&cfg)
		if _, err := New(cfg, 0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestRestartsOfNonVoters: an old leader whose directory is no voter's any more waits to be told who leads; static voters
// are the bootstrap list if there is no other; and a log behind a snapshot is committed up to there.
func TestRestartsOfNonVoters(t *testing.T) {
	set := testVoters(2, 3)
	m := newMember(testConfig(1, set), dynamic(set))
	m.state = ElectionState{7, 1, NoReplica}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	if n := m.node; n.role != Unattached || n.state != m.state || n.Status().Leader != None || n.Deadline() > Instant(2*time.Second) {
		t.Errorf("%s %+v, deadline %v", n.role, n.state, n.Deadline())
	}

	static := testVoters(1, 2, 3)
	for i := range static {
		static[i].Key.DirectoryID = UUID{}
	}
	cfg := testConfig(1, nil)
	cfg.Self.DirectoryID, cfg.StaticVoters = UUID{}, static
	n, err := New(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(n.cfg.Bootstrap) != 2 || n.cfg.Bootstrap[0].ID >= 0 {
		t.Errorf("bootstrap servers %+v, want the two others", n.cfg.Bootstrap)
	}

	cfg = testConfig(1, set)
	cfg.Log = LogState{Start: 5, End: 9, Snapshot: &OffsetAndEpoch{7, 2}, Earliest: &OffsetAndEpoch{5, 1}, Epochs: []OffsetAndEpoch{{5, 2}}, Control: dynamic(set)}
	if n, err = New(cfg, 0); err != nil {
		t.Fatal(err)
	}
	if s := n.Status(); s.HighWatermark != 7 || s.LogStart != 5 {
		t.Errorf("high watermark %d, log start %d; want 7 and 5", s.HighWatermark, s.LogStart)
	}
}

// TestOddRequests: what only ever is sent is refused when it comes.
func TestOddRequests(t *testing.T) {
	m, n := leaderOf(t)
	if r := ask(t, m, ApiVersionsRequest{}).(ApiVersionsResponse); r.Error != UnsupportedVersion {
		t.Errorf("ApiVersions: %+v", r)
	}
	for _, p := range []Propose{{ID: 90, Records: 0, Bytes: 10}, {ID: 90, Records: 1, Bytes: -1}} {
		n.Step(n.now, p)
		if r := m.take().answers[0].Result.(ProposeResult); r.Error != InvalidRequest {
			t.Errorf("%+v: error %d", p, r.Error)
		}
	}
}

// TestErrorIsNoRejection: a voter that answers with an error has not said no, and is asked again.
func TestErrorIsNoRejection(t *testing.T) {
	m, n := nodeOf(t, ElectionState{7, None, testKey(1)}, 6)
	for _, id := range []NodeID{2, 3} {
		reply(m, id, VoteResponse{Header: Header{Error: UnknownServerError, Epoch: 7, Leader: None}})
	}
	n.Step(n.now.Add(n.cfg.RetryBackoff), Deadline{})
	if got := votesAskedOf(m.take(), false); n.tally.lost() || len(got) != 2 {
		t.Errorf("lost %v, asked %v again, want both", n.tally.lost(), got)
	}
}

// TestNames: the forms in which ids are read and written.
func TestNames(t *testing.T) {
	const text = "ABEiM0RVZneImaq7zN3u_w"
	u, err := ParseUUID(text)
	if err != nil || u.String() != text || u.IsZero() || !(UUID{}).IsZero() {
		t.Errorf("%s: %v, %v", text, u, err)
	}
	for _, bad := range []string{"", "x", text + "A", text[:21] + "=", "ABEiM0RVZneImaq7zN3u_x"} {
		if _, err := ParseUUID(bad); err == nil {
			t.Errorf("%q is no UUID", bad)
		}
	}
	if got := (ReplicaKey{ID: 3, DirectoryID: u}).String() + " " + (ReplicaKey{ID: 3}).String(); got != "3@"+text+" 3" {
		t.Errorf("keys are %q", got)
	}
	if Never.Add(time.Hour) != Never || Instant(1).Add(2) != 3 {
		t.Error("Never came")
	}
}

// TestLeaderIsNamedWithAllThatIsKnown: a message may have told fewer listeners of the leader than the voter set holds, or more.
func TestLeaderIsNamedWithAllThatIsKnown(t *testing.T) {
	m, n := followerOf(t) // by the CONTROLLER endpoint of the voter set
	named := func() int {
		r := ask(t, m, FetchRequest{ClusterID: testCluster, Replica: testKey(3), Epoch: 7, LastFetchedEpoch: 7}).(FetchResponse)
		return len(r.LeaderEndpoints)
	}
	if got := named(); got != 1 {
		t.Errorf("%d endpoints, want what the voter set has", got)
	}
	n.becomeProspective(causeTimer)
	n.settle()
	m.take()
	reply(m, 3, VoteResponse{Header: Header{Epoch: 7, Leader: 2, LeaderEndpoints: testEndpoints(2)}})
	if got := named(); n.role != Prospective || got != 2 {
		t.Errorf("%s names %d endpoints, want what another voter told", n.role, got)
	}
	n.leaderEndpoints = testEndpoints(2)[1:]
	set := testVoters(1, 2, 3)
	set[1].Endpoints = testEndpoints(2)
	n.voters.sets[0].set = set
	if got := named(); got != 2 {
		t.Errorf("%d endpoints, want those of the voter set", got)
	}
}

// TestChangeOfVotersWithoutRoom: below the disk's reserve writes of clients are refused, also those that wait for their
// place; a voter change is small, and may be the way out.
func TestChangeOfVotersWithoutRoom(t *testing.T) {
	m, n := leaderOf(t)
	m.payloads[50], m.payloads[51] = "x", "y"
	do(m, Propose{ID: 50, Records: 1, Bytes: 10}) // its flush goes on, so what follows waits
	do(m, Inbound{ID: 60, Request: removal(3)})
	do(m, Propose{ID: 51, Records: 1, Bytes: 10})
	answers := do(m, Reserve{Below: true}).answers
	if len(answers) != 1 || answers[0].ID != 51 || answers[0].Result.(ProposeResult).Error != KafkaStorageError {
		t.Errorf("answers %+v, want KAFKA_STORAGE_ERROR to the append that waits", answers)
	}
	do(m, m.flushed())
	if len(n.voters.current()) != 2 {
		t.Errorf("voters %v, want the removal in force", n.voters.current())
	}
}

// TestVoterThatSaysTwoThings: C-238. Its request and what answers at its address must agree on the versions that it supports.
func TestVoterThatSaysTwoThings(t *testing.T) {
	m, n := leaderOf(t)
	do(m, Inbound{ID: 70, Request: UpdateRaftVoterRequest{ClusterID: testCluster, Epoch: 1, Voter: Voter{Key: testKey(2), Endpoints: testEndpoints(7), KRaft: VersionRange{0, 1}}}})
	got, ok := answerTo(outcome(t, m, 2, ApiVersionsResponse{KRaft: &VersionRange{0, 2}}).answers, 70).(UpdateRaftVoterResponse)
	if v, _ := n.Status().Voters.ByID(2); !ok || got.Error != InvalidRequest || v.Endpoints[0].Host != "n2" {
		t.Errorf("%+v, voter at %v", got, v.Endpoints)
	}
}

// TestOddWordOfSnapshots: a verdict on a download that was given up, a snapshot that is older than the newest, and one whose
// kraft.version this replica does not know. What is being downloaded stands in the status.
func TestOddWordOfSnapshots(t *testing.T) {
	m, n := followerOf(t)
	respond(m, FetchResponse{HighWatermark: 3})
	do(m, SnapshotVerified{Snapshot: OffsetAndEpoch{100, 6}})
	if n.log.latest != nil || n.log.end != 3 {
		t.Errorf("a download that nobody began was installed: %+v", n.log)
	}
	for _, at := range []OffsetAndEpoch{{3, 6}, {1, 5}} {
		do(m, SnapshotCreated{at})
		if *n.log.latest != (OffsetAndEpoch{3, 6}) {
			t.Errorf("newest snapshot %+v", n.log.latest)
		}
	}
	do(m, Cleaned{OffsetAndEpoch{3, 6}})
	if !n.log.holds(OffsetAndEpoch{3, 6}) || n.log.holds(OffsetAndEpoch{3, 5}) {
		t.Error("what a cleaned log holds at its start is its snapshot")
	}
	respond(m, FetchResponse{Snapshot: &OffsetAndEpoch{100, 6}})
	reply(m, 2, FetchSnapshotResponse{Header: Header{Epoch: 7, Leader: 2}, Snapshot: OffsetAndEpoch{100, 6}, Size: 10, Bytes: 4})
	if d := n.Status().Download; d == nil || *d != (DownloadStatus{Snapshot: OffsetAndEpoch{100, 6}, Position: 4, Size: 10}) {
		t.Fatalf("download %+v", d)
	}
	reply(m, 2, FetchSnapshotResponse{Header: Header{Epoch: 7, Leader: 2}, Snapshot: OffsetAndEpoch{100, 6}, Size: 10, Position: 4, Bytes: 6})
	n.Step(n.now, SnapshotVerified{Snapshot: OffsetAndEpoch{100, 6}, Control: []ControlAt{{99, KRaftVersion{2}}}})
	if f := n.Ready().Fatal; f == nil || f.Reason != InconsistentState {
		t.Errorf("fatal %+v", f)
	}
}
