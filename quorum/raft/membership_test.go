package raft

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// leaderAnd is leaderOf with an observer that has caught up.
func leaderAnd(t testing.TB, observer NodeID) (*member, *Node) {
	t.Helper()
	m, n := leaderOf(t)
	fetch(m, observer, ConnID(observer), n.log.end)
	return m, n
}

func addition(id NodeID) AddRaftVoterRequest {
	return AddRaftVoterRequest{Voter: testKey(id), Endpoints: testEndpoints(id), AckWhenCommitted: true}
}

func removal(id NodeID) RemoveRaftVoterRequest { return RemoveRaftVoterRequest{Voter: testKey(id)} }

// outcome ends the request in flight to a node.
func outcome(t testing.TB, m *member, to NodeID, r Response) takeover {
	t.Helper()
	corr := m.node.conn(to).correlation
	if corr == 0 {
		t.Fatalf("nothing is asked of node %d", to)
	}
	o := Outcome{Correlation: corr, Response: r}
	if r == nil {
		o.Failure = Refused
	}
	m.node.Step(m.node.now, o)
	return m.take()
}

// changeResult finds the answer to a change; pending if there is none.
func changeResult(x any) (code ErrorCode, message string) {
	switch r := x.(type) {
	case AddRaftVoterResponse:
		return r.Error, r.Message
	case RemoveRaftVoterResponse:
		return r.Error, r.Message
	case UpgradeResult:
		return r.Error, r.Message
	}
	return pending, ""
}

const pending ErrorCode = -2

func answerTo(answers []Answer, id RequestID) any {
	i := slices.IndexFunc(answers, func(a Answer) bool { return a.ID == id })
	if i < 0 {
		return nil
	}
	return answers[i].Result
}

// TestMB10VoterChangeRefusals: each refusal has Kafka's code, says what stands in the way, and changes nothing (C-234, C-237).
func TestMB10VoterChangeRefusals(t *testing.T) {
	leader := func(t *testing.T) *member { m, _ := leaderAnd(t, 4); return m }
	elected := func(t *testing.T) *member {
		m, n := nodeOf(t, ElectionState{0, None, NoReplica})
		win(n)
		m.take()
		return m
	}
	follower := func(t *testing.T) *member { m, _ := followerOf(t); return m }
	lost := func(t *testing.T) *member { m, _ := nodeOf(t, ElectionState{7, None, NoReplica}); return m }
	sole := func(t *testing.T) *member {
		m := newMember(testConfig(1, testVoters(1)), dynamic(testVoters(1)))
		if err := m.boot(0); err != nil {
			t.Fatal(err)
		}
		m.take()
		m.node.Step(0, m.flushed())
		m.take()
		return m
	}
	oldRules := func(t *testing.T) *member {
		set := testVoters(1, 2, 3)
		cfg := testConfig(1, set)
		cfg.StaticVoters = static(set)
		m := newMember(cfg, nil)
		if err := m.boot(0); err != nil {
			t.Fatal(err)
		}
		win(m.node)
		m.take()
		return m
	}
	after := func(event func(m *member) Event) func(t *testing.T) *member {
		return func(t *testing.T) *member {
			m := leader(t)
			m.node.Step(m.node.now, event(m))
			m.take()
			return m
		}
	}
	change := func(r Request) func(*member) Event {
		return func(*member) Event { return Inbound{ID: 99, Request: r} }
	}
	addTo := func(change func(*AddRaftVoterRequest)) Request { r := addition(4); change(&r); return r }
	for name, c := range map[string]struct {
		prepare func(*testing.T) *member
		request Request
		code    ErrorCode
		says    string
	}{
		"add: another cluster":     {leader, addTo(func(r *AddRaftVoterRequest) { r.ClusterID = new("other") }), InconsistentClusterID, "cluster id other: this is cluster test"},
		"remove: another cluster":  {leader, RemoveRaftVoterRequest{ClusterID: new("other"), Voter: testKey(2)}, InconsistentClusterID, "cluster id other"},
		"add: no id":               {leader, addTo(func(r *AddRaftVoterRequest) { r.Voter.ID = -1 }), InvalidRequest, "node id -1: want 0 or more"},
		"add: no directory":        {leader, addTo(func(r *AddRaftVoterRequest) { r.Voter.DirectoryID = UUID{} }), InvalidRequest, "node 4 has no directory id"},
		"remove: no directory":     {leader, RemoveRaftVoterRequest{Voter: ReplicaKey{ID: 2}}, InvalidRequest, "node 2 has no directory id"},
		"add: no endpoint":         {leader, addTo(func(r *AddRaftVoterRequest) { r.Endpoints = r.Endpoints[:1] }), InvalidRequest, "no endpoint for listener CONTROLLER"},
		"add: to a follower":       {follower, addition(4), NotLeaderOrFollower, "ask node 2, the leader of epoch 7"},
		"remove: without leader":   {lost, removal(2), NotLeaderOrFollower, "ask again when a leader is elected"},
		"add: unsettled":           {elected, addition(4), RequestTimedOut, "epoch 1 has not committed its first record yet"},
		"remove: kraft.version 0":  {oldRules, removal(2), UnsupportedVersion, "kraft.version is 0: upgrade it to 1"},
		"add: is a voter":          {leader, addition(2), DuplicateVoter, "is a voter already"},
		"add: its old disk is one": {leader, AddRaftVoterRequest{Voter: ReplicaKey{2, UUID{9}}, Endpoints: testEndpoints(2)}, DuplicateVoter, "remove that one before its id is used again"},
		"add: never seen":          {leader, addition(5), RequestTimedOut, "has not fetched from this leader"},
		"add: another disk":        {leader, AddRaftVoterRequest{Voter: ReplicaKey{4, UUID{9}}, Endpoints: testEndpoints(4)}, RequestTimedOut, "has not fetched from this leader"},
		"add: silent": {after(func(m *member) Event {
			for _, id := range []NodeID{2, 3} {
				m.node.now = m.node.now.Add(1500 * time.Millisecond)
				fetch(m, id, ConnID(id), m.node.log.end)
			}
			return Deadline{}
		}), addition(4), RequestTimedOut, "has not fetched for 3s: want at most 2s"},
		"add: far behind": {after(func(m *member) Event {
			fetch(m, 5, 5, 0)
			return Deadline{}
		}), addition(5), RequestTimedOut, "is 3 offsets behind"},
		"add: while another is added":   {after(change(addition(4))), addition(5), RequestTimedOut, "the addition of voter 4@"},
		"remove: while one is removed":  {after(change(removal(3))), removal(2), RequestTimedOut, "the removal of voter 3@"},
		"add: while one is updated":     {after(corrected), addition(4), RequestTimedOut, "an update of voter 2@"},
		"remove: while one is updated":  {after(corrected), removal(3), RequestTimedOut, "an update of voter 2@"},
		"remove: in a handoff":          {after(func(*member) Event { return Handoff{ID: 99, Target: NoReplica} }), removal(2), RequestTimedOut, "handed over to node 2"},
		"remove: last voter":            {sole, removal(1), VoterNotFound, "node 1 is the last voter"},
		"remove: no voter":              {leader, removal(4), VoterNotFound, "node 4 is no voter"},
		"remove: another disk":          {leader, RemoveRaftVoterRequest{Voter: ReplicaKey{2, UUID{9}}}, VoterNotFound, "with directory id EAAAAAAAAAAAAAAAAAAAAg, not CQAAAAAAAAAAAAAAAAAAAA"},
		"remove: the set is unsettled":  {after(uncommitted), removal(2), RequestTimedOut, "the voter set at offset 3 is not committed yet"},
		"add: the connection is in use": {after(busy), addition(4), RequestTimedOut, "node 4 is being asked something else"},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.prepare(t)
			end, voters := m.node.log.end, m.node.Status().Voters
			code, message := changeResult(ask(t, m, c.request))
			if code != c.code || !strings.Contains(message, c.says) {
				t.Errorf("error %d %q, want %d %q", code, message, c.code, c.says)
			}
			if m.node.log.end != end || !sameSet(m.node.Status().Voters, voters) {
				t.Errorf("log end %d, was %d; voters %v", m.node.log.end, end, m.node.Status().Voters)
			}
		})
	}
}

// static are the voters as controller.quorum.voters names them: without directories.
func static(set VoterSet) VoterSet {
	set = slices.Clone(set)
	for i := range set {
		set[i].Key.DirectoryID = UUID{}
	}
	return set
}

// uncommitted leaves a removal in the log whose time is up.
func uncommitted(m *member) Event {
	m.node.Step(m.node.now, Inbound{ID: 98, Request: removal(3)})
	m.take()
	for range 3 { // node 3 is no voter any more, so node 2 alone keeps the leader in office
		m.node.Step(m.node.now.Add(700*time.Millisecond), Inbound{ID: 97, Conn: 2, Request: FetchRequest{
			ClusterID: testCluster, Replica: testKey(2), Epoch: 1, Offset: 3, LastFetchedEpoch: 1, MaxBytes: 1 << 20,
		}})
		m.take()
	}
	return Deadline{}
}

// corrected leaves an update of voter 2 in the log that is not committed yet. Before it stands there, it makes way.
func corrected(m *member) Event {
	do(m, Inbound{ID: 98, Request: UpdateRaftVoterRequest{ClusterID: testCluster, Epoch: 1, Voter: Voter{Key: testKey(2), Endpoints: testEndpoints(7), KRaft: VersionRange{0, 1}}}})
	return Outcome{Correlation: m.node.conn(2).correlation, Response: ApiVersionsResponse{KRaft: &VersionRange{0, 1}}}
}

// busy leaves an earlier probe of node 4 without an answer.
func busy(m *member) Event {
	m.node.Step(m.node.now, Inbound{ID: 98, Request: addition(4)})
	m.take()
	m.node.endChange(refusal{code: RequestTimedOut})
	return Deadline{}
}

// TestHeldChangeIsWithdrawn: a change whose record waits for the flush before it may time out there. Then nobody must find it
// in the log later, after an answer that says that nothing was changed.
func TestHeldChangeIsWithdrawn(t *testing.T) {
	m, n := leaderOf(t)
	m.payloads[50] = "a"
	n.Step(n.now, Propose{ID: 50, Records: 1, Bytes: 10})
	m.take()
	n.Step(n.now, Inbound{ID: 60, Request: removal(3)})
	if a := m.take().answers; len(a) != 0 || n.Status().VoterChange == nil {
		t.Fatalf("answers %+v, change %+v", a, n.Status().VoterChange)
	}
	n.Step(n.now.Add(n.cfg.RequestTimeout), Deadline{})
	if code, message := changeResult(answerTo(m.take().answers, 60)); code != RequestTimedOut || !strings.Contains(message, "nothing was changed") {
		t.Errorf("error %d %q", code, message)
	}
	end := n.log.end
	n.Step(n.now, m.flushed())
	m.take()
	if s := n.Status(); n.log.end != end || len(s.Voters) != 3 || s.VoterChange != nil {
		t.Errorf("log end %d, was %d; %d voters, change %+v", n.log.end, end, len(s.Voters), s.VoterChange)
	}
}

// TestChangeOfALeaderThatLosesTheLead: the answer says whether the change may still be committed (C-236, C-244).
func TestChangeOfALeaderThatLosesTheLead(t *testing.T) {
	for name, c := range map[string]struct {
		request Request
		until   func(*member)
		code    ErrorCode
		says    string
	}{
		"probing":      {addition(4), func(*member) {}, NotLeaderOrFollower, "nothing was changed"},
		"appended":     {removal(3), func(*member) {}, NotLeaderOrFollower, "it may be yet"},
		"answered":     {AddRaftVoterRequest{Voter: testKey(4), Endpoints: testEndpoints(4)}, func(m *member) { outcome(t, m, 4, ApiVersionsResponse{KRaft: &VersionRange{0, 1}}) }, pending, ""},
		"early answer": {addition(4), func(m *member) { outcome(t, m, 4, ApiVersionsResponse{KRaft: &VersionRange{0, 1}}) }, NotLeaderOrFollower, "it may be yet"},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := leaderAnd(t, 4)
			n.Step(n.now, Inbound{ID: 60, Request: c.request})
			m.take()
			c.until(m)
			n.Step(n.now, Inbound{ID: 61, Request: VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(2), Epoch: 9, Last: OffsetAndEpoch{9, 8}}})
			code, message := changeResult(answerTo(m.take().answers, 60))
			if code != c.code || !strings.Contains(message, c.says) {
				t.Errorf("error %d %q, want %d %q", code, message, c.code, c.says)
			}
		})
	}
}

// TestChangeTimesOut: what the answer says depends on how far the change had come.
func TestChangeTimesOut(t *testing.T) {
	for name, c := range map[string]struct {
		request Request
		says    string
	}{
		"while it was probed":  {addition(4), "node 4 did not answer at n4:9093 within 2s: nothing was changed"},
		"before it was commit": {removal(3), "is in the log at offset 3 but was not committed within 2s: it may be yet"},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := leaderAnd(t, 4)
			n.Step(n.now, Inbound{ID: 60, Request: c.request})
			m.take()
			n.Step(n.now.Add(n.cfg.RequestTimeout), Deadline{})
			if code, message := changeResult(answerTo(m.take().answers, 60)); code != RequestTimedOut || !strings.Contains(message, c.says) {
				t.Errorf("error %d %q, want %q", code, message, c.says)
			}
		})
	}
}

// TestMB02RemovedLeaderGoes: once its removal is committed it leaves, whoever may take over, and whether or not anybody still
// waits for the answer.
func TestMB02RemovedLeaderGoes(t *testing.T) {
	removed := func(t *testing.T, full bool) (*member, takeover) {
		m, n := leaderOf(t)
		n.Step(n.now, Inbound{ID: 60, Request: removal(1)})
		m.take()
		n.Step(n.now, m.flushed()) // its own disk does not count
		m.take()
		var last takeover
		for _, id := range []NodeID{2, 3} {
			if n.role != Leader || n.highWatermark != 3 {
				t.Fatalf("%s with high watermark %d before both voters have the record", n.role, n.highWatermark)
			}
			n.Step(n.now, Inbound{ID: RequestID(id), Conn: ConnID(id), Request: FetchRequest{
				ClusterID: testCluster, Replica: testKey(id), Epoch: 1, Offset: 4, LastFetchedEpoch: 1, HighWatermark: 3,
				MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20, BelowReserve: full,
			}})
			last = m.take()
		}
		if code, message := changeResult(answerTo(last.answers, 60)); code != NoError || message != "" {
			t.Errorf("answer %d %q", code, message)
		}
		return m, last
	}
	t.Run("hands over", func(t *testing.T) {
		m, _ := removed(t, false)
		if s := m.node.Status(); s.Role != Leader || s.IsVoter || s.Handoff.Phase != HandoffConverging || len(s.Progress) != 3 {
			t.Fatalf("%+v", s)
		}
		fetch(m, 2, 2, 4)
		if s := m.node.Status(); s.Role != Resigned || s.Handoff.Target != testKey(2) {
			t.Errorf("%s, %+v", s.Role, s.Handoff)
		}
	})
	t.Run("nobody comes", func(t *testing.T) {
		m, _ := removed(t, false)
		m.node.Step(m.node.now.Add(m.node.cfg.FetchTimeout), Deadline{})
		if s := m.node.Status(); s.Role != Resigned || s.Handoff.Phase != HandoffAborted {
			t.Errorf("%s, %+v", s.Role, s.Handoff)
		}
	})
	t.Run("nobody has room", func(t *testing.T) {
		m, out := removed(t, true)
		if m.node.role != Resigned || len(out.sends) != 2 {
			t.Fatalf("%s, sends %+v", m.node.role, out.sends)
		}
		// Nobody tells an observer who leads, so it asks, in its old epoch; and it is Resigned no longer than others.
		m.node.Step(m.node.now.Add(discoveryDelay*m.node.cfg.RetryBackoff), Deadline{})
		if sends := m.take().sends; !slices.ContainsFunc(sends, func(s Send) bool { _, ok := s.Request.(FetchRequest); return ok }) {
			t.Errorf("sends %+v, want a Fetch", sends)
		}
		for i := 0; m.node.role == Resigned && i < 100; i++ {
			m.node.Step(m.node.Deadline(), Deadline{})
			m.take()
		}
		if n := m.node; n.role != Unattached || n.state != (ElectionState{1, 1, NoReplica}) || n.Status().Leader != None {
			t.Errorf("%s %+v", n.role, n.state)
		}
		// A peer that still believes in it is no news.
		ask(t, m, BeginQuorumEpochRequest{ClusterID: testCluster, Voter: testKey(1), Leader: 1, Epoch: 1, Endpoints: testEndpoints(1)})
		if m.node.role != Unattached {
			t.Errorf("follows itself as %s", m.node.role)
		}
	})
}

// TestRemovedLeaderDoesNotVoteInItsEpoch: it voted for itself there. A second vote of it could make a second leader of the
// epoch, since others may still count it.
func TestRemovedLeaderDoesNotVoteInItsEpoch(t *testing.T) {
	set := testVoters(2, 3)
	m := newMember(testConfig(1, set), dynamic(set))
	m.state = ElectionState{7, 1, NoReplica}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	r := ask(t, m, VoteRequest{ClusterID: testCluster, Voter: testKey(1), Replica: testKey(3), Epoch: 7, Last: OffsetAndEpoch{9, 6}}).(VoteResponse)
	if r.Granted || m.state.Voted.ID != None || m.state.Leader != 1 {
		t.Errorf("granted %v, %+v", r.Granted, m.state)
	}
}

// TestNewVoterCountsFromItsNextFetch: what it acknowledged before may not be on its disk, if it ran with observer.only until
// just before.
func TestNewVoterCountsFromItsNextFetch(t *testing.T) {
	set := testVoters(1)
	m := newMember(testConfig(1, set), dynamic(set))
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	n := m.node
	m.take()
	n.Step(0, m.flushed())
	m.take()
	fetch(m, 4, 4, 3)
	n.Step(0, Inbound{ID: 60, Request: addition(4)})
	m.take()
	outcome(t, m, 4, ApiVersionsResponse{KRaft: &VersionRange{0, 1}})
	n.Step(0, m.flushed())
	m.take()
	if n.highWatermark != 3 || len(n.leader.set) != 2 || n.leader.voters[1].end != Unknown {
		t.Fatalf("high watermark %d, voters %+v", n.highWatermark, n.leader.voters)
	}
	if code, _ := changeResult(answerTo(fetch(m, 4, 4, 4), 60)); code != NoError || n.highWatermark != 4 {
		t.Errorf("error %d, high watermark %d", code, n.highWatermark)
	}
}

// TestSoleVoterAfterARemovalStaysInOffice is C-091 for a quorum that has become one of one.
func TestSoleVoterAfterARemovalStaysInOffice(t *testing.T) {
	m, n := leaderOfSet(t, 1, 2)
	n.Step(n.now, Inbound{ID: 60, Request: removal(2)})
	m.take()
	n.Step(n.now, m.flushed())
	if code, _ := changeResult(answerTo(m.take().answers, 60)); code != NoError {
		t.Fatalf("error %d", code)
	}
	n.Step(n.now.Add(time.Hour), Deadline{})
	m.take()
	if n.role != Leader {
		t.Errorf("%s, although there is no other voter", n.role)
	}
}

// TestMB16FiftyRounds: an observer becomes a voter and an observer again while writes go on. Each round ends where it should,
// and nobody else notices.
func TestMB16FiftyRounds(t *testing.T) {
	m, n := leaderOf(t)
	flush := func() {
		for m.flushing {
			n.Step(n.now, m.flushed())
			m.take()
		}
	}
	everybody := func() (code ErrorCode) {
		code = pending
		for range 2 {
			for _, id := range []NodeID{2, 3, 4} {
				for _, a := range fetch(m, id, ConnID(id), n.log.end) {
					if c, _ := changeResult(a.Result); c != pending {
						code = c
					}
				}
			}
		}
		return code
	}
	for round := range RequestID(50) {
		id := 1000 + 10*round
		n.now = n.now.Add(100 * time.Millisecond)
		m.payloads[id] = "x"
		n.Step(n.now, Propose{ID: id, Records: 1, Bytes: 10})
		m.take()
		flush()
		everybody()
		n.Step(n.now, Inbound{ID: id + 1, Request: addition(4)})
		m.take()
		outcome(t, m, 4, ApiVersionsResponse{KRaft: &VersionRange{0, 1}})
		flush()
		if code := everybody(); code != NoError || len(n.Status().Voters) != 4 {
			t.Fatalf("round %d: adding ends with error %d and %d voters", round, code, len(n.Status().Voters))
		}
		n.Step(n.now, Inbound{ID: id + 2, Request: removal(4)})
		m.take()
		flush()
		if code := everybody(); code != NoError || len(n.Status().Voters) != 3 {
			t.Fatalf("round %d: removing ends with error %d and %d voters", round, code, len(n.Status().Voters))
		}
	}
	if n.state.Epoch != 1 || n.role != Leader || n.highWatermark != n.log.end {
		t.Errorf("%s of epoch %d, high watermark %d of %d", n.role, n.state.Epoch, n.highWatermark, n.log.end)
	}
}

// TestAdditionIsProbed: who is to be added must answer, offer the finalized kraft.version, and be caught up still.
func TestAdditionIsProbed(t *testing.T) {
	for name, c := range map[string]struct {
		response Response
		late     time.Duration
		code     ErrorCode
		says     string
	}{
		"unreachable":   {nil, 0, RequestTimedOut, "node 4 cannot be reached at n4:9093"},
		"an error":      {ApiVersionsResponse{Error: UnsupportedVersion}, 0, RequestTimedOut, "answers ApiVersions with error 35"},
		"observer only": {ApiVersionsResponse{}, 0, InvalidRequest, "does not offer kraft.version"},
		"too old":       {ApiVersionsResponse{KRaft: &VersionRange{0, 0}}, 0, InvalidRequest, "supports kraft.version 0 to 0: the quorum's is 1"},
		"lags by now":   {ApiVersionsResponse{KRaft: &VersionRange{0, 1}}, 1500 * time.Millisecond, RequestTimedOut, "has not fetched for 2.5s"},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := leaderAnd(t, 4)
			n.Step(n.now.Add(time.Second), Inbound{ID: 60, Request: addition(4)})
			m.take()
			n.now = n.now.Add(c.late)
			out := outcome(t, m, 4, c.response)
			if code, message := changeResult(answerTo(out.answers, 60)); code != c.code || !strings.Contains(message, c.says) {
				t.Errorf("error %d %q, want %d %q", code, message, c.code, c.says)
			}
			if len(n.Status().Voters) != 3 || n.Status().VoterChange != nil {
				t.Errorf("voters %v", n.Status().Voters)
			}
		})
	}
}

// TestMB08RemovalGoesBeforeAnUpdate: a voter with an unreachable address must not keep an administrator waiting.
func TestMB08RemovalGoesBeforeAnUpdate(t *testing.T) {
	m, n := leaderOf(t)
	n.Step(n.now, Inbound{ID: 60, Request: UpdateRaftVoterRequest{ClusterID: testCluster, Epoch: 1, Voter: Voter{Key: testKey(3), Endpoints: testEndpoints(8), KRaft: VersionRange{0, 1}}}})
	m.take()
	n.Step(n.now, Inbound{ID: 61, Request: removal(3)})
	answers := m.take().answers
	if r, ok := answerTo(answers, 60).(UpdateRaftVoterResponse); !ok || r.Error != RequestTimedOut {
		t.Errorf("update: %+v", r)
	}
	if s := n.Status(); len(s.Voters) != 2 || s.VoterChange.Kind != ChangeRemove {
		t.Errorf("voters %v, change %+v", s.Voters, s.VoterChange)
	}
	// The probe's late answer belongs to nothing.
	outcome(t, m, 3, ApiVersionsResponse{KRaft: &VersionRange{0, 1}})
	if len(n.Status().Voters) != 2 {
		t.Errorf("voters %v", n.Status().Voters)
	}
}

// TestUpgradeRefusals is C-243. The rest of it is in testdata/scripts/upgrade_kraft_version.txt.
func TestUpgradeRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		ranges  VersionRange // of voters 2 and 3
		upgrade UpgradeKRaft
		code    ErrorCode
		says    string
	}{
		"capable":       {VersionRange{0, 1}, UpgradeKRaft{Version: 1, ExpectEpoch: 1}, pending, ""},
		"not capable":   {VersionRange{0, 0}, UpgradeKRaft{Version: 1}, InvalidUpdateVersion, "node 2 supports kraft.version 0 to 0: want 1"},
		"another epoch": {VersionRange{0, 1}, UpgradeKRaft{Version: 1, ExpectEpoch: 2}, NotLeaderOrFollower, "epoch is 1, expected 2"},
		"no version":    {VersionRange{0, 1}, UpgradeKRaft{Version: -1}, InvalidUpdateVersion, "cannot go back to -1"},
		"the same":      {VersionRange{0, 1}, UpgradeKRaft{Version: 0}, NoError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := testVoters(1, 2, 3)
			cfg := testConfig(1, set)
			cfg.StaticVoters = static(set)
			m := newMember(cfg, nil)
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			m.take()
			n := m.node
			win(n)
			m.take()
			n.conns = nil // BeginQuorumEpoch is answered
			n.Step(n.now, m.flushed())
			m.take()
			for _, id := range []NodeID{2, 3} {
				fetch(m, id, ConnID(id), n.log.end)
				u := UpdateRaftVoterRequest{ClusterID: testCluster, Epoch: 1, Voter: Voter{Key: testKey(id), Endpoints: testEndpoints(id), KRaft: c.ranges}}
				n.Step(n.now, Inbound{ID: 60, Request: u})
				m.take()
				if r, ok := answerTo(outcome(t, m, id, ApiVersionsResponse{KRaft: &c.ranges}).answers, 60).(UpdateRaftVoterResponse); !ok || r.Error != NoError {
					t.Fatalf("update of %d: %+v", id, r)
				}
				if r := ask(t, m, u).(UpdateRaftVoterResponse); r.Error != NoError {
					t.Fatalf("the same update again: %+v", r)
				}
			}
			c.upgrade.ID = 70
			n.Step(n.now, c.upgrade)
			if code, message := changeResult(answerTo(m.take().answers, 70)); code != c.code || !strings.Contains(message, c.says) {
				t.Errorf("error %d %q, want %d %q", code, message, c.code, c.says)
			}
			if want := map[bool]int16{true: 1}[c.code == pending]; n.Status().KRaftVersion != want {
				t.Errorf("kraft.version %d", n.Status().KRaftVersion)
			}
		})
	}
}

// TestUpdateRaftVoterErrors is kraft-spec 8.4 up to the probe (C-238).
func TestUpdateRaftVoterErrors(t *testing.T) {
	base := UpdateRaftVoterRequest{ClusterID: testCluster, Epoch: 1, Voter: Voter{Key: testKey(2), Endpoints: testEndpoints(7), KRaft: VersionRange{0, 1}}}
	follower := func(t *testing.T) *member { m, _ := followerOf(t); return m }
	elected := func(t *testing.T) *member {
		m, n := nodeOf(t, ElectionState{0, None, NoReplica})
		win(n)
		m.take()
		return m
	}
	after := func(event func(*member) Event) func(*testing.T) *member {
		return func(t *testing.T) *member {
			m, _ := leaderOf(t)
			do(m, event(m))
			return m
		}
	}
	asked := func(r Request) func(*member) Event {
		return func(*member) Event { return Inbound{ID: 99, Request: r} }
	}
	for name, c := range map[string]struct {
		prepare func(*testing.T) *member
		change  func(*UpdateRaftVoterRequest)
		code    ErrorCode
	}{
		"wrong cluster":        {nil, func(r *UpdateRaftVoterRequest) { r.ClusterID = new("other") }, InconsistentClusterID},
		"null cluster":         {nil, func(r *UpdateRaftVoterRequest) { r.ClusterID = nil }, InvalidRequest},
		"older epoch":          {nil, func(r *UpdateRaftVoterRequest) { r.Epoch = 0 }, FencedLeaderEpoch},
		"newer epoch":          {nil, func(r *UpdateRaftVoterRequest) { r.Epoch = 2 }, UnknownLeaderEpoch},
		"no directory id":      {nil, func(r *UpdateRaftVoterRequest) { r.Voter.Key.DirectoryID = UUID{} }, InvalidRequest},
		"negative id":          {nil, func(r *UpdateRaftVoterRequest) { r.Voter.Key.ID = -1 }, InvalidRequest},
		"range upside down":    {nil, func(r *UpdateRaftVoterRequest) { r.Voter.KRaft = VersionRange{1, 0} }, InvalidRequest},
		"range too low":        {nil, func(r *UpdateRaftVoterRequest) { r.Voter.KRaft = VersionRange{0, 0} }, InvalidRequest},
		"no endpoint for us":   {nil, func(r *UpdateRaftVoterRequest) { r.Voter.Endpoints = r.Voter.Endpoints[:1] }, InvalidRequest},
		"not a voter":          {nil, func(r *UpdateRaftVoterRequest) { r.Voter.Key = testKey(9) }, VoterNotFound},
		"another disk":         {nil, func(r *UpdateRaftVoterRequest) { r.Voter.Key.DirectoryID = UUID{9} }, VoterNotFound},
		"nothing to change":    {nil, func(r *UpdateRaftVoterRequest) { r.Voter.Endpoints = testEndpoints(2)[1:] }, NoError},
		"to a follower":        {follower, func(r *UpdateRaftVoterRequest) { r.Epoch = 7 }, NotLeaderOrFollower},
		"unsettled":            {elected, func(*UpdateRaftVoterRequest) {}, RequestTimedOut},
		"while one is removed": {after(asked(removal(3))), func(*UpdateRaftVoterRequest) {}, RequestTimedOut},
		"while one is updated": {after(corrected), func(r *UpdateRaftVoterRequest) { r.Voter.Key = testKey(3) }, RequestTimedOut},
		"not a word, just yet": {nil, func(r *UpdateRaftVoterRequest) {}, -2}, // the probe is under way
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := leaderOf(t)
			if c.prepare != nil {
				m = c.prepare(t)
			}
			r := base
			c.change(&r)
			got, ok := ask(t, m, r).(UpdateRaftVoterResponse)
			code := max(got.Error, got.TopError)
			if !ok {
				code = -2
			}
			if code != c.code {
				t.Errorf("error %d, want %d", code, c.code)
			}
		})
	}
}

// TestVoterChangeProbe: what the probe of a new endpoint may say (C-238, KAFKA-20661).
func TestVoterChangeProbe(t *testing.T) {
	for name, c := range map[string]struct {
		outcome Outcome
		code    ErrorCode
		voters  bool // the new set is in force
	}{
		"answers":            {Outcome{Response: ApiVersionsResponse{KRaft: &VersionRange{0, 1}}}, NoError, true},
		"refused":            {Outcome{Failure: Refused}, RequestTimedOut, false},
		"error":              {Outcome{Response: ApiVersionsResponse{Error: UnsupportedVersion}}, RequestTimedOut, false},
		"observer only":      {Outcome{Response: ApiVersionsResponse{}}, InvalidRequest, false},
		"says another range": {Outcome{Response: ApiVersionsResponse{KRaft: &VersionRange{0, 0}}}, InvalidRequest, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := leaderOf(t)
			n.Step(n.now, Inbound{ID: 70, Request: UpdateRaftVoterRequest{ClusterID: testCluster, Epoch: 1, Voter: Voter{Key: testKey(2), Endpoints: testEndpoints(7), KRaft: VersionRange{0, 1}}}})
			sends := m.take().sends
			if len(sends) != 1 || sends[0].To.Host != "n7" {
				t.Fatalf("probe: %+v", sends)
			}
			// One change at a time.
			if r := ask(t, m, UpdateRaftVoterRequest{ClusterID: testCluster, Epoch: 1, Voter: Voter{Key: testKey(3), Endpoints: testEndpoints(8), KRaft: VersionRange{0, 1}}}).(UpdateRaftVoterResponse); r.Error != RequestTimedOut {
				t.Errorf("second change: %+v", r)
			}
			c.outcome.Correlation = sends[0].Correlation
			n.Step(n.now, c.outcome)
			answers := m.take().answers
			i := slices.IndexFunc(answers, func(a Answer) bool { return a.ID == 70 })
			if i < 0 || answers[i].Result.(UpdateRaftVoterResponse).Error != c.code {
				t.Fatalf("answers %+v, want error %d", answers, c.code)
			}
			v, _ := n.Status().Voters.ByID(2)
			if got := v.Endpoints[0].Host == "n7"; got != c.voters {
				t.Errorf("voter 2 is at %v", v.Endpoints)
			}
		})
	}
}

// TestUpdateRestartsCheckQuorum: C-239. A voter that corrects its entry follows this leader: its word counts like a Fetch,
// whether it changes the voters, changes what the leader has heard of static ones, or changes nothing.
func TestUpdateRestartsCheckQuorum(t *testing.T) {
	changed := Voter{Key: testKey(2), Endpoints: testEndpoints(7), KRaft: VersionRange{0, 1}}
	same := Voter{Key: testKey(2), Endpoints: testEndpoints(2)[1:], KRaft: VersionRange{0, 1}}
	for name, c := range map[string]struct {
		static  bool
		voter   Voter
		refused bool
	}{
		"another address":  {false, changed, false},
		"nothing new":      {false, same, false},
		"kraft.version 0":  {true, changed, false},
		"nobody is there":  {false, changed, true},
		"nobody, static":   {true, changed, true},
		"is not of theirs": {false, Voter{Key: testKey(9), Endpoints: testEndpoints(9), KRaft: VersionRange{0, 1}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			set := testVoters(1, 2, 3)
			cfg, bootstrap := testConfig(1, set), dynamic(set)
			if c.static {
				cfg.StaticVoters, bootstrap = static(set), nil
			}
			m := newMember(cfg, bootstrap)
			if err := m.boot(0); err != nil {
				t.Fatal(err)
			}
			n := m.node
			win(n)
			m.take()
			do(m, m.flushed())
			fetch(m, 2, 2, n.log.end)
			fetch(m, 3, 3, n.log.end)
			window := n.cfg.FetchTimeout * 3 / 2
			n.now = n.now.Add(window - time.Millisecond)
			before := n.leader.checkQuorum
			n.conn(2).correlation, n.conn(2).notBefore = 0, n.now
			do(m, Inbound{ID: 70, Request: UpdateRaftVoterRequest{ClusterID: testCluster, Epoch: 1, Voter: c.voter}})
			if n.conn(2).correlation != 0 {
				r := Response(ApiVersionsResponse{KRaft: &VersionRange{0, 1}})
				if c.refused {
					r = nil
				}
				outcome(t, m, 2, r)
			}
			if restarted := n.leader.checkQuorum == n.now.Add(window); restarted == c.refused {
				t.Errorf("the leader gives up at %v, before that at %v, now is %v", n.leader.checkQuorum, before, n.now)
			}
		})
	}
}
