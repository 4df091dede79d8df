package sim

import (
	"bytes"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// release is how new the protocol is that a member speaks. What an old version has no field for gets lost on the way, as
// between a member of ours and an older Kafka, or during an upgrade of either.
type release int

const (
	kip595  release = iota // Kafka before 3.9: no directory ids, no endpoints in answers; static voters only
	kip853                 // 3.9: dynamic voters
	kip996                 // 4.0: pre-vote
	kip1166                // 4.1: the high watermark in Fetch
)

// version is the newest of a request that a release has; false: it has none.
func (r release) version(key int16) (int16, bool) {
	switch key {
	case wire.Vote:
		return [...]int16{0, 1, 2, 2}[r], true
	case wire.Fetch:
		return [...]int16{16, 17, 17, 18}[r], true
	case wire.BeginQuorumEpoch, wire.EndQuorumEpoch:
		return min(int16(r), 1), true
	case wire.FetchSnapshot:
		return min(int16(r), 1), true
	case wire.UpdateRaftVoter, wire.RemoveRaftVoter:
		return 0, r >= kip853
	case wire.AddRaftVoter:
		return int16(r / kip1166), r >= kip853
	}
	return 0, false
}

// spoken is a request that went over the wire, for the answer's way back.
type spoken struct {
	codec   *wire.Codec
	request *wire.Request
}

func (m *member) codec() *wire.Codec {
	return &wire.Codec{
		Serves: wire.Peers, Listener: listener, ClusterID: clusterID, Topic: storage.DefaultTopic, TopicID: storage.DefaultTopicID,
		ClientID: "sim", KRaft: &raft.VersionRange{Max: 1},
	}
}

// speak turns a request into bytes and back, in the newest version that both members have. It is nil if they have none in
// common that can carry it.
func (m *member) speak(to *member, r raft.Request) (raft.Request, *spoken) {
	version, ok := min(m.release, to.release).version(wire.KeyOf(r))
	if !ok {
		return nil, nil
	}
	c := m.codec()
	var tag *wire.FetchTag
	if f, ok := r.(raft.FetchRequest); ok {
		tag = &wire.FetchTag{BelowReserve: f.BelowReserve}
	}
	frame, err := c.EncodeRequest(version, 1, r, tag)
	if err != nil {
		return nil, nil
	}
	request, err := c.Decode(frame[4:])
	if err != nil {
		m.w.violate("NoIllegalState", "%s in version %d is not read again: %v", describe(r), version, err)
		return nil, nil
	}
	body, ok := request.Body.(raft.Request)
	if !ok {
		m.w.violate("NoIllegalState", "%s in version %d becomes a %T", describe(r), version, request.Body)
		return nil, nil
	}
	return body, &spoken{c, request}
}

// answer turns an answer into bytes and back.
func (s *spoken) answer(w *world, result any) any {
	var records []byte
	switch r := result.(type) {
	case replica.FetchResult:
		result, records = r.FetchResponse, r.Records
	case replica.SnapshotResult:
		result, records = r.FetchSnapshotResponse, r.Data
	}
	frame := bytes.Join(s.codec.Encode(s.request, result, wire.Extra{Records: [][]byte{records}}), nil)
	reply, err := s.codec.DecodeResponse(s.request.Header, frame[4:])
	if err != nil {
		w.violate("NoIllegalState", "answer %s to %v is not read again: %v", describe(result), s.request.Header, err)
		return result
	}
	if f, ok := reply.Response.(raft.FetchResponse); ok {
		return replica.FetchResult{FetchResponse: f, Records: slices.Clone(reply.Records)}
	}
	if f, ok := reply.Response.(raft.FetchSnapshotResponse); ok {
		return replica.SnapshotResult{FetchSnapshotResponse: f, Data: slices.Clone(reply.Records)}
	}
	return reply.Response
}
