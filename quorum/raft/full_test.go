package raft

import "testing"

// TestST02CampaignEndsWithTheRoom: whoever wins opens its epoch by a record, so without room for one it does not try. The
// vote that a candidate has given itself stays given.
func TestST02CampaignEndsWithTheRoom(t *testing.T) {
	for _, c := range []struct {
		name  string
		leads NodeID
		stand bool // for a real vote
		role  Role
	}{
		{"Prospective that knows a leader", 2, false, Follower},
		{"Prospective that knows none", None, false, Unattached},
		{"Candidate", None, true, Unattached},
	} {
		m, n := nodeOf(t, ElectionState{7, c.leads, NoReplica}, 5, 6, 6)
		n.becomeProspective(causeTimer)
		if c.stand {
			n.becomeCandidate()
		}
		n.settle()
		m.take()
		state := n.state
		do(m, Reserve{Full: true})
		if n.role != c.role || n.state != state {
			t.Errorf("%s: %s %+v, want %s %+v", c.name, n.role, n.state, c.role, state)
		}
		if at := n.Deadline(); at != Never {
			n.Step(at, Deadline{})
		}
		n.Step(n.now.Add(n.cfg.ElectionTimeout*100), Deadline{})
		m.take()
		if n.role != c.role || n.state != state {
			t.Errorf("%s, much later: %s %+v, want %s %+v", c.name, n.role, n.state, c.role, state)
		}
		do(m, Reserve{})
		if do(m, Deadline{}); n.role != Prospective {
			t.Errorf("%s, with room again: %s, want Prospective", c.name, n.role)
		}
	}
}

// TestST02LeaderWithoutRoomForItsEpoch: the record that opens the epoch could not be appended at once, and now there is no
// room for it. Nobody else stands up while somebody leads, so it resigns.
func TestST02LeaderWithoutRoomForItsEpoch(t *testing.T) {
	m, n := nodeOf(t, ElectionState{0, None, NoReplica})
	n.becomeProspective(causeTimer)
	n.becomeCandidate()
	n.flushing = true // of what was truncated since
	n.becomeLeader()
	n.settle()
	m.take()
	if n.role != Leader || n.log.end != 0 {
		t.Fatalf("%s, log end %d: want a leader that waits for a flush", n.role, n.log.end)
	}
	do(m, Reserve{Full: true})
	if do(m, Flushed{}); n.role != Resigned || n.log.end != 0 {
		t.Errorf("%s, log end %d: want Resigned, 0", n.role, n.log.end)
	}
}

// TestST02LeaderWithoutRoomAppendsNothing: what it would append of its own waits, and without keeping it busy.
func TestST02LeaderWithoutRoomAppendsNothing(t *testing.T) {
	m, n := leaderOf(t)
	for _, id := range []NodeID{2, 3} { // nobody to hand over to
		n.leader.voter(testKey(id)).belowReserve = true
	}
	end := n.log.end
	do(m, Reserve{Full: true})
	do(m, Inbound{ID: 60, Request: removal(3)})
	if at := n.Deadline(); n.log.end != end || at <= n.now {
		t.Errorf("log end %d, want %d; next deadline in %d ns", n.log.end, end, at-n.now)
	}
	do(m, Reserve{Below: true})
	if n.log.end != end+1 {
		t.Errorf("log end %d with room again, want %d", n.log.end, end+1)
	}
}

// TestST02PatienceEndsWithRoom: below its reserve a replica lets others campaign first. Its timer was drawn then; once
// there is room again, it waits no longer than anybody. A sole voter has nobody to wait for.
func TestST02PatienceEndsWithRoom(t *testing.T) {
	for _, c := range []struct {
		name  string
		state ElectionState
	}{
		{"Unattached", ElectionState{7, None, NoReplica}},
		{"Resigned", ElectionState{7, 1, NoReplica}},
		{"Follower", ElectionState{7, 2, NoReplica}},
	} {
		m, n := nodeOf(t, c.state, 5, 6, 6)
		do(m, Reserve{Below: true})
		switch n.role { // a timer of that time
		case Follower:
			n.follower.timeout = n.fetchTimeout()
		default:
			n.election = n.randomElectionTimeout()
		}
		do(m, Reserve{})
		n.Step(n.fetchTimeout(), Deadline{})
		if m.take(); n.role != Prospective {
			t.Errorf("%s: %s one timeout after its disk had room again, want Prospective", c.name, n.role)
		}
	}
	set := testVoters(1)
	m := newMember(testConfig(1, set), dynamic(set))
	m.state, m.cfg.Reserve = ElectionState{7, 1, NoReplica}, Reserve{Full: true}
	if err := m.boot(0); err != nil {
		t.Fatal(err)
	}
	m.take()
	if n := m.node; n.role != Resigned || n.election > n.now.Add(2*n.cfg.ElectionTimeout) {
		t.Errorf("a sole voter without room: %s, election timer in %d ns", n.role, n.election-n.now)
	}
}
