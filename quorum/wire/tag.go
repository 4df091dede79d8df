package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// memberTag is the number of our tagged field in Fetch, far above those Kafka gives out.
//
//	request   version int64, listeners [], rack, below reserve bool, tagged fields
//	response  version int64, members [] {id int32, directory uuid, listeners [], rack, below reserve bool, tagged fields}, tagged fields
//	listener  name, host, port uint16
//
// Strings and arrays are compact as in Kafka's flexible versions. What cannot be read counts as absent: the member
// table is a convenience, replication must not depend on it.
const memberTag = 4096

// Smallest encodings, to bound allocations.
const (
	minListener = 1 + 1 + 2
	minMember   = 4 + 16 + 1 + 1 + 1 + 1
)

func setTag(tags *kmsg.Tags, value []byte) { tags.Set(memberTag, value) }

func findTag(tags *kmsg.Tags) (value []byte, ok bool) {
	tags.Each(func(number uint32, v []byte) {
		if number == memberTag {
			value, ok = v, true
		}
	})
	return value, ok
}

func appendFetchTag(dst []byte, t *FetchTag) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.TableVersion))
	dst = appendListeners(dst, t.Listeners)
	dst = appendCompact(dst, t.Rack)
	return append(dst, flag(t.BelowReserve), 0)
}

func readFetchTag(value []byte) *FetchTag {
	r := reader{src: value}
	t := &FetchTag{TableVersion: r.int64(), Listeners: r.listeners(), Rack: string(r.compact()), BelowReserve: r.bool()}
	if r.skipTags(); r.bad {
		return nil
	}
	return t
}

func appendMemberTable(dst []byte, t *MemberTable) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.Version))
	dst = binary.AppendUvarint(dst, uint64(len(t.Members)+1))
	for _, m := range t.Members {
		dst = binary.BigEndian.AppendUint32(dst, uint32(m.Key.ID))
		dst = append(dst, m.Key.DirectoryID[:]...)
		dst = appendListeners(dst, m.Listeners)
		dst = appendCompact(dst, m.Rack)
		dst = append(dst, flag(m.BelowReserve), 0)
	}
	return append(dst, 0)
}

func readMemberTable(value []byte) *MemberTable {
	r := reader{src: value}
	t := &MemberTable{Version: r.int64()}
	n := r.count()
	t.Members = make([]Member, 0, min(n, len(r.src)/minMember))
	for range n {
		t.Members = append(t.Members, Member{
			Key:       raft.ReplicaKey{ID: raft.NodeID(r.int32()), DirectoryID: r.uuid()},
			Listeners: r.listeners(), Rack: string(r.compact()), BelowReserve: r.bool(),
		})
		if r.skipTags(); r.bad {
			return nil
		}
	}
	if r.skipTags(); r.bad {
		return nil
	}
	return t
}

func appendListeners(dst []byte, listeners []raft.Endpoint) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(listeners)+1))
	for _, l := range listeners {
		dst = appendCompact(dst, l.Name)
		dst = appendCompact(dst, l.Host)
		dst = binary.BigEndian.AppendUint16(dst, l.Port)
	}
	return dst
}

func (r *reader) listeners() []raft.Endpoint {
	n := r.count()
	if n == 0 {
		return nil
	}
	out := make([]raft.Endpoint, 0, min(n, len(r.src)/minListener))
	for range n {
		e := raft.Endpoint{Name: string(r.compact()), Host: string(r.compact()), Port: uint16(r.int16())}
		if r.bad {
			return nil
		}
		out = append(out, e)
	}
	return out
}

func (r *reader) bool() bool {
	b := r.take(1)
	return b != nil && b[0] != 0
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
