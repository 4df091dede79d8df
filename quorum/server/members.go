package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// members is what this member knows of all members: how to reach them, and where they run.
//
// The leader keeps the table. It learns each replica's listeners from the replica's own Fetch (tagged field 4096) and
// hands the table to whoever has an older one in the answer to that. A new leader goes on from the table it was given:
// versions carry the epoch in their upper half, so that its own are newer than any before.
type members struct {
	self    wire.Member
	version int64
	byID    map[raft.NodeID]member
}

type member struct {
	wire.Member
	heard raft.Instant // leader: when its last Fetch came, or when we began to lead
}

// forgetAfter is how long the leader shows a member that neither votes nor fetches. (Kafka's own session of observers,
// 300 s, only bounds the memory of their progress; a client that is sent to a dead member notices after its timeout.)
const forgetAfter = 30 * time.Second

func newMembers(self wire.Member) *members {
	return &members{self: self, byID: map[raft.NodeID]member{self.Key.ID: {Member: self}}}
}

// lead makes the table this leader's own.
func (m *members) lead(now raft.Instant, epoch raft.Epoch) {
	m.bump(epoch)
	for id, e := range m.byID {
		e.heard = now
		m.byID[id] = e
	}
}

func (m *members) bump(epoch raft.Epoch) {
	m.version = max(m.version, int64(epoch)<<32) + 1
}

// heard notes what a replica said of itself in its Fetch.
func (m *members) heard(now raft.Instant, epoch raft.Epoch, key raft.ReplicaKey, tag *wire.FetchTag) {
	next := wire.Member{Key: key, Listeners: tag.Listeners, Rack: tag.Rack, BelowReserve: tag.BelowReserve}
	before, known := m.byID[key.ID]
	if !known || !same(before.Member, next) {
		m.bump(epoch)
	}
	m.byID[key.ID] = member{Member: next, heard: now}
}

// setSelf renews the own entry.
func (m *members) setSelf(now raft.Instant, epoch raft.Epoch, belowReserve bool) {
	m.self.BelowReserve = belowReserve
	before := m.byID[m.self.Key.ID]
	if !same(before.Member, m.self) {
		m.bump(epoch)
	}
	m.byID[m.self.Key.ID] = member{Member: m.self, heard: now}
}

// prune forgets those that have gone: only the leader can tell.
func (m *members) prune(now raft.Instant, epoch raft.Epoch, voters raft.VoterSet) {
	for id, e := range m.byID {
		if _, votes := voters.ByID(id); !votes && id != m.self.Key.ID && e.heard.Add(forgetAfter) < now {
			delete(m.byID, id)
			m.bump(epoch)
		}
	}
}

// learn takes over the leader's table.
func (m *members) learn(table *wire.MemberTable) {
	m.version = table.Version
	m.byID = make(map[raft.NodeID]member, len(table.Members)+1)
	for _, e := range table.Members {
		m.byID[e.Key.ID] = member{Member: e}
	}
	m.byID[m.self.Key.ID] = member{Member: m.self} // nobody knows us better
}

// table is a copy sorted by id. Voters that have not said anything yet are there with what the voter set says of them.
func (m *members) table(voters raft.VoterSet) *wire.MemberTable {
	t := &wire.MemberTable{Version: m.version}
	for _, e := range m.byID {
		t.Members = append(t.Members, e.Member)
	}
	for _, v := range voters {
		if _, known := m.byID[v.Key.ID]; !known {
			t.Members = append(t.Members, wire.Member{Key: v.Key, Listeners: v.Endpoints})
		}
	}
	slices.SortFunc(t.Members, func(a, b wire.Member) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
	return t
}

func same(a, b wire.Member) bool {
	return a.Key == b.Key && a.Rack == b.Rack && a.BelowReserve == b.BelowReserve && slices.Equal(a.Listeners, b.Listeners)
}

// nodes lists the members that have that listener.
func nodes(t *wire.MemberTable, listener string) []wire.Node {
	var all []wire.Node
	for _, e := range t.Members {
		if p, ok := raft.Find(e.Listeners, listener); ok {
			all = append(all, wire.Node{ID: e.Key.ID, Host: p.Host, Port: p.Port, Rack: e.Rack})
		}
	}
	return all
}

func node(t *wire.MemberTable, id raft.NodeID, listener string) (wire.Node, bool) {
	all := nodes(t, listener)
	i := slices.IndexFunc(all, func(n wire.Node) bool { return n.ID == id })
	if i < 0 {
		return wire.Node{ID: id}, false
	}
	return all[i], true
}

// readReplica chooses where a consumer should read; None: here. Only a leader chooses, and only a member that has what
// the consumer asks for, so that the consumer is not sent on again.
//
// spread, any number that tells consumers apart, keeps each at one member.
func readReplica(mode config.ReadReplicas, v *view, rack string, offset int64, spread uint64) raft.NodeID {
	if v.Role != raft.Leader || mode == config.ReadLeader {
		return raft.None
	}
	var fit []raft.NodeID
	for _, p := range v.Progress {
		n, reachable := node(v.table, p.Key.ID, config.Client)
		_, votes := v.Voters.ByID(p.Key.ID)
		switch {
		case !reachable || p.LogEnd < offset || p.LastFetch+raft.Instant(v.fetchTimeout) < v.now:
		case mode == config.ReadObservers && votes:
		case mode == config.ReadRack && (rack == "" || n.Rack != rack):
		case mode == config.ReadRack && p.Key.ID == v.Self.ID:
			return raft.None // the leader itself is as near
		default:
			fit = append(fit, p.Key.ID)
		}
	}
	if len(fit) == 0 {
		return raft.None
	}
	return fit[spread%uint64(len(fit))]
}
