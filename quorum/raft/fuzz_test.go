package raft

import (
	"slices"
	"testing"
	"time"
)

// FuzzStep gives one replica any events in any order, as a peer gone mad or a network without manners would. The oracle is
// Node.check, which Step calls itself, and the driver's own assertions: any panic is a finding. So is a deadline that does
// not move. A Fatal is a legitimate end: peers that contradict each other within an epoch are not survivable.
func FuzzStep(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0, 1, 0, 1, 0, 1, 2, 1, 1, 2, 2, 3, 2, 1, 4, 4, 4, 4, 5, 1, 1, 1})
	f.Add([]byte{1, 7, 2, 1, 3, 2, 2, 6, 2, 2, 5, 2, 4, 1, 1, 1, 8, 1, 1, 1, 9, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 9, 0, 0, 0, 6, 1, 0, 0, 10, 1, 0, 0, 7, 3, 1, 0, 12, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{3, 3, 2, 0, 0, 3, 2, 2, 1, 3, 2, 2, 3, 3, 11, 0, 0, 0, 13, 1, 1, 1, 14, 0, 0, 0})
	f.Fuzz(fuzzRun)
}

func fuzzRun(t *testing.T, script []byte) {
	if len(script) == 0 {
		return
	}
	m := fuzzMember(t, script[0])
	if m == nil {
		return
	}
	script = script[1:]
	var sent []Send
	persists := false // the step before had something to persist
	end := min(len(script)/4, 500)
	for i := range end {
		s := script[4*i : 4*i+4]
		n := m.node
		ev := fuzzEvent(m, s[0], s[1], s[2], s[3], sent)
		if p, ok := ev.(Propose); ok {
			m.payloads[p.ID] = "x"
		}
		at := n.now.Add(time.Duration(s[3]) * time.Millisecond)
		if persists && s[0]%2 == 0 { // that took up to 16 s
			ev, at = Persisted{}, n.now.Add(time.Duration(s[3])*64*time.Millisecond)
		}
		if _, ok := ev.(Deadline); ok {
			at = n.Deadline()
			if at == Never {
				continue
			}
		}
		foreign := fuzzForeign(ev, s[0])
		if foreign {
			at = n.now
		}
		persisted, role := m.state, n.role
		n.Step(at, ev)
		out := m.take()
		persists = out.ready.Persist != nil
		if slices.ContainsFunc(out.answers, func(a Answer) bool { return a.ID == 0 }) {
			t.Fatalf("answers what nobody asked, %+v, after %+v", out.answers, ev)
		}
		if out.ready.Fatal != nil {
			return
		}
		if _, ok := ev.(Deadline); ok && n.Deadline() <= n.now {
			t.Fatalf("deadline %d at %d: %+v", n.Deadline(), n.now, n.Status())
		}
		if m.state.Epoch < persisted.Epoch || m.state != n.state {
			t.Fatalf("persisted %+v after %+v, node has %+v", m.state, persisted, n.state)
		}
		if foreign && (m.state != persisted || n.role != role) {
			t.Fatalf("%+v of another cluster: %s with %+v became %s with %+v", ev, role, persisted, n.role, m.state)
		}
		sent = append(sent, out.sends...)
		if len(sent) > 16 {
			sent = sent[len(sent)-16:]
		}
	}
}

// fuzzForeign reports whether an event is a request that another cluster's replica sends. To change voters, people may leave
// the id away.
func fuzzForeign(ev Event, kind byte) bool {
	in, ok := ev.(Inbound)
	if !ok {
		return false
	}
	switch in.Request.(type) {
	case AddRaftVoterRequest, RemoveRaftVoterRequest, DescribeQuorumRequest:
		return false
	default:
		return fuzzCluster(kind) != testCluster
	}
}

// fuzzMember starts voter 1 or observer 4 of voters 1, 2, 3 from one of several disks.
func fuzzMember(t *testing.T, kind byte) *member {
	set := testVoters(1, 2, 3)
	id := NodeID(1)
	if kind&1 == 1 {
		id = 4
	}
	m := newMember(testConfig(id, set), dynamic(set))
	m.cfg.ObserverOnly, m.cfg.AutoJoin = id == 4 && kind&2 == 2, id == 4 && kind&2 == 0
	m.cfg.MaxPending = 8
	if kind&4 == 4 {
		m.cfg.AppendLinger = 5 * time.Millisecond
	}
	for i := range int64(kind >> 3 & 3) {
		m.log = append(m.log, testBatch{Batch: batch(i, Epoch(1+i/2))})
	}
	switch kind >> 5 {
	case 1:
		m.state = ElectionState{3, 2, NoReplica}
	case 2:
		m.state = ElectionState{3, None, testKey(id)}
	case 3:
		m.state = ElectionState{3, id, NoReplica}
	case 4:
		m.state = ElectionState{3, None, testKey(2)}
	}
	if err := m.boot(0); err != nil {
		return nil
	}
	m.take()
	return m
}

// fuzzCluster is the cluster id that a request bears: mostly ours, else another's or none.
func fuzzCluster(kind byte) *string {
	switch kind / 24 {
	case 8:
		return new("other")
	case 9:
		return nil
	}
	return testCluster
}

func fuzzEvent(m *member, kind, a, b, c byte, sent []Send) Event {
	n := m.node
	id := RequestID(kind)<<24 | RequestID(a)<<16 | RequestID(b)<<8 | RequestID(c)
	epoch := n.state.Epoch + Epoch(a%4) - 1
	peer := testKey(NodeID(1 + b%5))
	position := OffsetAndEpoch{Offset: int64(c % 16), Epoch: max(epoch-Epoch(b%3), 0)}
	endpoints := testEndpoints(peer.ID)
	if c%7 == 0 {
		endpoints = nil
	}
	cluster := fuzzCluster(kind)
	inbound := func(r Request) Event { return Inbound{ID: id, Conn: ConnID(c % 4), Request: r} }
	switch kind % 24 {
	case 0, 1:
		return Deadline{}
	case 2:
		return inbound(VoteRequest{ClusterID: cluster, Voter: m.cfg.Self, Replica: peer, Epoch: epoch, Last: position, PreVote: c%2 == 0})
	case 3:
		return inbound(BeginQuorumEpochRequest{ClusterID: cluster, Voter: m.cfg.Self, Leader: peer.ID, Epoch: epoch, Endpoints: endpoints})
	case 4:
		successors := []ReplicaKey{m.cfg.Self, testKey(2), testKey(3)}
		return inbound(EndQuorumEpochRequest{ClusterID: cluster, Leader: peer.ID, Epoch: epoch, Successors: successors[c%4%3:], Endpoints: endpoints})
	case 5, 6:
		return inbound(FetchRequest{ClusterID: cluster, Replica: peer, Epoch: n.state.Epoch, Offset: n.log.end - int64(c%3), LastFetchedEpoch: n.log.lastEpoch(), HighWatermark: int64(a), MaxWait: time.Duration(b) * time.Millisecond, MaxBytes: 100})
	case 7:
		return inbound(FetchRequest{ClusterID: cluster, Replica: peer, Epoch: epoch, Offset: position.Offset, LastFetchedEpoch: position.Epoch, HighWatermark: NoHighWatermark, BelowReserve: a%2 == 0})
	case 8:
		if m.flushing {
			return m.flushed()
		}
		return Flushed{End: m.flushEnd - int64(a%3), Generation: m.flushGen - min(m.flushGen, uint64(b%2))} // told already, or of a log that was cut
	case 9:
		return Propose{ID: id, Records: int32(a%4) + 1, Bytes: int(b) << 15}
	case 10:
		return Barrier{ID: id}
	case 11:
		return Handoff{ID: id, Target: ReplicaKey{ID: NodeID(b%4) - 1}, MaxPause: time.Duration(c) * time.Millisecond, DryRun: a%5 == 0}
	case 12:
		return ConnectionLost{Peer: peer.ID, Refused: true}
	case 13:
		return Reserve{Below: a%2 == 0, Full: a%3 == 0}
	case 14:
		if a%8 == 0 {
			return Shutdown{Timeout: time.Duration(c) * time.Millisecond}
		}
		return Await{ID: id, BaseOffset: position.Offset, LastOffset: position.Offset}
	case 15:
		v := Voter{Key: peer, Endpoints: testEndpoints(NodeID(10 + c%2)), KRaft: VersionRange{0, 1}}
		return inbound(UpdateRaftVoterRequest{ClusterID: cluster, Epoch: n.state.Epoch, Voter: v})
	case 16:
		switch a % 8 {
		case 1, 2:
			if c, ok := m.snapshotAt(min(position.Offset, n.Settled())); ok {
				return c
			}
		case 3:
			if c, ok := m.clean(1 + int(b%2)); ok {
				return c
			}
		case 4, 5:
			if m.verifying {
				return m.verified(b%4 == 0)
			}
		case 6:
			return LearnSnapshot{}
		case 7:
			return inbound(FetchSnapshotRequest{ClusterID: cluster, Replica: peer, Epoch: epoch, Snapshot: position, Position: int64(b) - 1, MaxBytes: int(c)})
		}
		return inbound(DescribeQuorumRequest{})
	case 17, 18:
		return inbound(AddRaftVoterRequest{Voter: peer, Endpoints: endpoints, AckWhenCommitted: a%2 == 0})
	case 19:
		return inbound(RemoveRaftVoterRequest{Voter: peer})
	case 20:
		return UpgradeKRaft{ID: id, Version: int16(a % 3)}
	}
	if len(sent) == 0 {
		return Deadline{}
	}
	s := sent[int(c)%len(sent)]
	if a%8 == 0 {
		return Outcome{Correlation: s.Correlation, Failure: Failure(1 + b%4)}
	}
	h := Header{Epoch: epoch, Leader: None, Error: []ErrorCode{NoError, NoError, NoError, NotLeaderOrFollower, FencedLeaderEpoch, BrokerNotAvailable, UnknownLeaderEpoch}[b%7]}
	if b%2 == 0 {
		h.Leader = n.state.Leader
	} else if epoch > n.state.Epoch {
		h.Leader, h.LeaderEndpoints = peer.ID, endpoints
	}
	var r Response
	switch q := s.Request.(type) {
	case VoteRequest:
		h.Epoch = max(h.Epoch, n.state.Epoch)
		r = VoteResponse{Header: h, Granted: c%2 == 0}
	case FetchRequest:
		h.Epoch = max(h.Epoch, n.state.Epoch)
		f := FetchResponse{Header: h, HighWatermark: max(n.highWatermark, int64(a)-1)}
		switch c % 5 {
		case 0: // logs part between batches, never within one
			if i := int(a) % (len(m.log) + 1); i < len(m.log) {
				position.Offset = m.log[i].BaseOffset
			} else {
				position.Offset = m.end()
			}
			f.Diverging = &position
		case 1:
			f.Snapshot = &position
		default:
			base := n.log.end
			for i := range int64(c % 5) {
				f.Batches = append(f.Batches, Batch{BaseOffset: base, LastOffset: base + i, Epoch: n.log.lastEpoch() + Epoch(b%3), Bytes: int(a) << 15})
				base += i + 1
			}
			if len(f.Batches) > 0 && b%5 == 0 { // voters come and go: node 1 and node 4 among them
				last := &f.Batches[len(f.Batches)-1]
				last.LastOffset = last.BaseOffset
				last.Control = []ControlRecord{Voters{[]VoterSet{testVoters(1, 2, 3), testVoters(2, 3), testVoters(2, 3, 4), testVoters(1, 4)}[a%4]}}
			}
		}
		var kept []testBatch
		for _, x := range f.Batches {
			kept = append(kept, testBatch{Batch: x})
		}
		m.kept[s.Correlation] = kept
		r = f
	case BeginQuorumEpochRequest:
		r = BeginQuorumEpochResponse{h}
	case EndQuorumEpochRequest:
		r = EndQuorumEpochResponse{h}
	case UpdateRaftVoterRequest:
		r = UpdateRaftVoterResponse{h}
	case AddRaftVoterRequest:
		r = AddRaftVoterResponse{Error: h.Error}
	case RemoveRaftVoterRequest:
		r = RemoveRaftVoterResponse{Error: h.Error}
	case ApiVersionsRequest:
		r = ApiVersionsResponse{KRaft: &VersionRange{0, int16(c % 2)}}
	case FetchSnapshotRequest:
		snapshot := FetchSnapshotResponse{Header: h, Snapshot: q.Snapshot, Size: 1 + int64(a), Position: q.Position, Bytes: int(b)}
		if c%4 == 0 {
			snapshot.Snapshot = position
		}
		if c%8 == 1 {
			snapshot.Error = SnapshotNotFound
		}
		r = snapshot
	default: // never sent
	}
	return Outcome{Correlation: s.Correlation, Response: r}
}
