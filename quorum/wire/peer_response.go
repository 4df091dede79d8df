package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Reply is a decoded response of a peer.
type Reply struct {
	Response raft.Response
	Records  []byte       // Fetch: as they came, unchecked; FetchSnapshot: bytes of the snapshot. They alias the frame
	Table    *MemberTable // Fetch: nil if the peer sent none
}

// endpoint returns the leader's address on this listener.
func (c *Codec) endpoint(h raft.Header) (raft.Endpoint, bool) {
	if h.Leader == raft.None {
		return raft.Endpoint{}, false
	}
	return raft.Find(h.LeaderEndpoints, c.Listener)
}

// peerResponse maps the responses between replicas that carry no bytes. With a top-level error there are no topics.
func (c *Codec) peerResponse(response raft.Response) kmsg.Response {
	switch r := response.(type) {
	case raft.VoteResponse:
		resp := kmsg.NewPtrVoteResponse()
		if resp.ErrorCode = int16(r.TopError); r.TopError != 0 {
			return resp
		}
		resp.Topics = []kmsg.VoteResponseTopic{{Topic: c.Topic, Partitions: []kmsg.VoteResponseTopicPartition{{
			ErrorCode: int16(r.Error), LeaderID: int32(r.Leader), LeaderEpoch: int32(r.Epoch), VoteGranted: r.Granted,
		}}}}
		if e, ok := c.endpoint(r.Header); ok {
			resp.NodeEndpoints = []kmsg.VoteResponseNodeEndpoint{{NodeID: int32(r.Leader), Host: e.Host, Port: e.Port}}
		}
		return resp
	case raft.BeginQuorumEpochResponse:
		resp := kmsg.NewPtrBeginQuorumEpochResponse()
		if resp.ErrorCode = int16(r.TopError); r.TopError != 0 {
			return resp
		}
		resp.Topics = []kmsg.BeginQuorumEpochResponseTopic{{Topic: c.Topic, Partitions: []kmsg.BeginQuorumEpochResponseTopicPartition{{
			ErrorCode: int16(r.Error), LeaderID: int32(r.Leader), LeaderEpoch: int32(r.Epoch),
		}}}}
		if e, ok := c.endpoint(r.Header); ok {
			resp.NodeEndpoints = []kmsg.BeginQuorumEpochResponseNodeEndpoint{{NodeID: int32(r.Leader), Host: e.Host, Port: e.Port}}
		}
		return resp
	case raft.EndQuorumEpochResponse:
		resp := kmsg.NewPtrEndQuorumEpochResponse()
		if resp.ErrorCode = int16(r.TopError); r.TopError != 0 {
			return resp
		}
		resp.Topics = []kmsg.EndQuorumEpochResponseTopic{{Topic: c.Topic, Partitions: []kmsg.EndQuorumEpochResponseTopicPartition{{
			ErrorCode: int16(r.Error), LeaderID: int32(r.Leader), LeaderEpoch: int32(r.Epoch),
		}}}}
		if e, ok := c.endpoint(r.Header); ok {
			resp.NodeEndpoints = []kmsg.EndQuorumEpochResponseNodeEndpoint{{NodeID: int32(r.Leader), Host: e.Host, Port: e.Port}}
		}
		return resp
	case raft.UpdateRaftVoterResponse:
		resp := kmsg.NewPtrUpdateRaftVoterResponse()
		resp.ErrorCode = int16(cmp.Or(r.TopError, r.Error))
		if r.TopError == 0 {
			resp.CurrentLeader.LeaderID, resp.CurrentLeader.LeaderEpoch = int32(r.Leader), int32(r.Epoch)
			if e, ok := c.endpoint(r.Header); ok {
				resp.CurrentLeader.Host, resp.CurrentLeader.Port = e.Host, int32(e.Port)
			}
		}
		return resp
	case raft.AddRaftVoterResponse:
		resp := kmsg.NewPtrAddRaftVoterResponse()
		resp.ErrorCode, resp.ErrorMessage = int16(r.Error), message(r.Message)
		return resp
	case raft.RemoveRaftVoterResponse:
		resp := kmsg.NewPtrRemoveRaftVoterResponse()
		resp.ErrorCode, resp.ErrorMessage = int16(r.Error), message(r.Message)
		return resp
	case raft.FetchResponse, raft.FetchSnapshotResponse, raft.DescribeQuorumResponse: // they need an Extra: see Encode
	case raft.ApiVersionsResponse: // answered by Decode
	}
	panic(fmt.Sprintf("wire: cannot encode %T", response))
}

func message(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// peerFetchResponse is the answer to a replica; the records are put in by fetchFrame.
func (c *Codec) peerFetchResponse(h Header, r raft.FetchResponse, x Extra) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	if resp.ErrorCode = int16(r.TopError); r.TopError != 0 {
		return resp
	}
	p := kmsg.NewFetchResponseTopicPartition()
	p.ErrorCode, p.HighWatermark, p.LogStartOffset = int16(r.Error), r.HighWatermark, r.LogStart
	p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{} // Kafka's replicas expect it empty, not null
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int32(r.Leader), int32(r.Epoch)
	if r.Diverging != nil {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = int32(r.Diverging.Epoch), r.Diverging.Offset
	}
	if r.Snapshot != nil {
		p.SnapshotID.EndOffset, p.SnapshotID.Epoch = r.Snapshot.Offset, int32(r.Snapshot.Epoch)
	}
	resp.Topics = []kmsg.FetchResponseTopic{{TopicID: c.TopicID, Partitions: []kmsg.FetchResponseTopicPartition{p}}}
	if e, ok := c.endpoint(r.Header); ok && h.Version >= 17 {
		resp.Brokers = []kmsg.FetchResponseBroker{{NodeID: int32(r.Leader), Host: e.Host, Port: int32(e.Port)}}
	}
	if x.Table != nil {
		setTag(&resp.UnknownTags, appendMemberTable(nil, x.Table))
	}
	return resp
}

// fetchSnapshotResponse is the answer to a replica; the snapshot's bytes are put in by splice.
func (c *Codec) fetchSnapshotResponse(r raft.FetchSnapshotResponse) *kmsg.FetchSnapshotResponse {
	resp := kmsg.NewPtrFetchSnapshotResponse()
	if resp.ErrorCode = int16(r.TopError); r.TopError != 0 {
		return resp
	}
	p := kmsg.NewFetchSnapshotResponseTopicPartition()
	p.ErrorCode, p.Size, p.Position = int16(r.Error), r.Size, r.Position
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = r.Snapshot.Offset, int32(r.Snapshot.Epoch)
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int32(r.Leader), int32(r.Epoch)
	p.Bytes = []byte{} // never null
	resp.Topics = []kmsg.FetchSnapshotResponseTopic{{Topic: c.Topic, Partitions: []kmsg.FetchSnapshotResponseTopicPartition{p}}}
	if e, ok := c.endpoint(r.Header); ok {
		resp.NodeEndpoints = []kmsg.FetchSnapshotResponseNodeEndpoint{{NodeID: int32(r.Leader), Host: e.Host, Port: e.Port}}
	}
	return resp
}

// fetchFrame puts record bytes into a Fetch response. It has at most one topic with one partition that has records, the
// first.
func fetchFrame(h Header, resp *kmsg.FetchResponse, records [][]byte, apart int) Frame {
	for t := range resp.Topics {
		for p := range resp.Topics[t].Partitions {
			resp.Topics[t].Partitions[p].RecordBatches = []byte{} // never null, Kafka's clients do not expect it
		}
	}
	return splice(h, resp, recordsAt(h.Version, resp), records, apart)
}

// splice puts bytes into a response without copying them: the response is encoded with none and cut where their
// length stands, at that place of the frame, in front of those that are sent apart.
func splice(h Header, resp kmsg.Response, at int, records [][]byte, apart int) Frame {
	size := apart
	for _, b := range records {
		size += len(b)
	}
	if size == 0 {
		return responseFrame(h, resp)
	}
	resp.SetVersion(h.Version)
	dst := appendResponse(make([]byte, 4, 256), h, resp)
	var head, tail []byte
	if resp.IsFlexible() {
		head = binary.AppendUvarint(dst[:at:at], uint64(size+1))
		tail = dst[at+1:]
	} else {
		head = binary.BigEndian.AppendUint32(dst[:at:at], uint32(size))
		tail = dst[at+4:]
	}
	binary.BigEndian.PutUint32(head, uint32(len(head)-4+size+len(tail)))
	f := append(make(Frame, 0, len(records)+2), head)
	f = append(f, records...)
	if len(tail) > 0 {
		f = append(f, tail)
	}
	return f
}

// snapshotBytesAt is where in a FetchSnapshot response frame (length prefix included) the length of the bytes stands, in any
// version.
func (c *Codec) snapshotBytesAt() int {
	name := len(c.Topic)
	return 4 + 4 + 1 + // length, correlation, header's tags
		4 + 2 + // throttle time, error code
		1 + uvarintLen(name+1) + name + 1 + // the one topic and its one partition
		4 + 2 + // partition, error code
		8 + 4 + 1 + // snapshot id with its tags
		8 + 8 // size, position
}

// recordsAt is where in a Fetch response frame (length prefix included) the length of the first partition's records
// stands. The aborted transactions before it are empty. It is 0 if there is no such partition.
func recordsAt(version int16, resp *kmsg.FetchResponse) int {
	if len(resp.Topics) == 0 {
		return 0
	}
	at := 4 + 4 + 4 // length, correlation, throttle time
	if version >= 7 {
		at += 2 + 4 // error code, session id
	}
	name := len(resp.Topics[0].Topic)
	if version >= 12 {
		at += 1 + uvarintLen(len(resp.Topics)+1) + uvarintLen(len(resp.Topics[0].Partitions)+1) // header's tags, two counts
		if version >= 13 {
			at += 16
		} else {
			at += uvarintLen(name+1) + name
		}
	} else {
		at += 4 + 2 + name + 4
	}
	at += 4 + 2 + 8 + 8 // partition, error code, high watermark, last stable offset
	if version >= 5 {
		at += 8 // log start offset
	}
	if version >= 12 {
		at++ // aborted transactions
	} else {
		at += 4
	}
	if version >= 11 {
		at += 4 // preferred read replica
	}
	return at
}

func uvarintLen(n int) int { return len(binary.AppendUvarint(nil, uint64(n))) }

// DecodeResponse reads the response frame (without its length prefix) to a request with header h.
func (c *Codec) DecodeResponse(h Header, frame []byte) (Reply, error) {
	if h.Key == ApiVersions {
		return decodeProbe(h, frame)
	}
	resp := kmsg.ResponseForKey(h.Key)
	if resp == nil {
		return Reply{}, fmt.Errorf("%w: response with key %d", ErrMalformed, h.Key)
	}
	if err := readResponse(h, frame, resp); err != nil {
		return Reply{}, err
	}
	switch r := resp.(type) {
	case *kmsg.VoteResponse:
		out := raft.VoteResponse{Header: top(r.ErrorCode, len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && c.named(r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition))}
		if out.TopError == 0 {
			p := r.Topics[0].Partitions[0]
			out.Granted = p.VoteGranted
			c.fill(&out.Header, p.ErrorCode, p.LeaderID, p.LeaderEpoch)
			for _, e := range r.NodeEndpoints {
				c.address(&out.Header, e.NodeID, e.Host, int32(e.Port))
			}
		}
		return Reply{Response: out}, nil
	case *kmsg.BeginQuorumEpochResponse:
		out := raft.BeginQuorumEpochResponse{Header: top(r.ErrorCode, len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && c.named(r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition))}
		if out.TopError == 0 {
			p := r.Topics[0].Partitions[0]
			c.fill(&out.Header, p.ErrorCode, p.LeaderID, p.LeaderEpoch)
			for _, e := range r.NodeEndpoints {
				c.address(&out.Header, e.NodeID, e.Host, int32(e.Port))
			}
		}
		return Reply{Response: out}, nil
	case *kmsg.EndQuorumEpochResponse:
		out := raft.EndQuorumEpochResponse{Header: top(r.ErrorCode, len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && c.named(r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition))}
		if out.TopError == 0 {
			p := r.Topics[0].Partitions[0]
			c.fill(&out.Header, p.ErrorCode, p.LeaderID, p.LeaderEpoch)
			for _, e := range r.NodeEndpoints {
				c.address(&out.Header, e.NodeID, e.Host, int32(e.Port))
			}
		}
		return Reply{Response: out}, nil
	case *kmsg.FetchResponse:
		return c.decodeFetchResponse(r), nil
	case *kmsg.FetchSnapshotResponse:
		out := raft.FetchSnapshotResponse{Header: top(r.ErrorCode, len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && c.named(r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition))}
		if out.TopError != 0 {
			return Reply{Response: out}, nil
		}
		p := r.Topics[0].Partitions[0]
		c.fill(&out.Header, p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
		for _, e := range r.NodeEndpoints {
			c.address(&out.Header, e.NodeID, e.Host, int32(e.Port))
		}
		out.Snapshot, out.Size, out.Position, out.Bytes = position(p.SnapshotID.EndOffset, p.SnapshotID.Epoch), p.Size, p.Position, len(p.Bytes)
		return Reply{Response: out, Records: p.Bytes}, nil
	case *kmsg.UpdateRaftVoterResponse:
		var out raft.UpdateRaftVoterResponse
		c.fill(&out.Header, r.ErrorCode, r.CurrentLeader.LeaderID, r.CurrentLeader.LeaderEpoch)
		c.address(&out.Header, r.CurrentLeader.LeaderID, r.CurrentLeader.Host, r.CurrentLeader.Port)
		return Reply{Response: out}, nil
	case *kmsg.AddRaftVoterResponse:
		return Reply{Response: raft.AddRaftVoterResponse{Error: raft.ErrorCode(r.ErrorCode), Message: deref(r.ErrorMessage)}}, nil
	case *kmsg.RemoveRaftVoterResponse:
		return Reply{Response: raft.RemoveRaftVoterResponse{Error: raft.ErrorCode(r.ErrorCode), Message: deref(r.ErrorMessage)}}, nil
	default:
		return Reply{}, fmt.Errorf("%w: %v is not sent to peers", ErrMalformed, h)
	}
}

func (c *Codec) decodeFetchResponse(r *kmsg.FetchResponse) Reply {
	ours := len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && r.Topics[0].TopicID == c.TopicID && r.Topics[0].Partitions[0].Partition == 0
	out := raft.FetchResponse{Header: top(r.ErrorCode, ours)}
	var reply Reply
	if value, ok := findTag(&r.UnknownTags); ok {
		reply.Table = readMemberTable(value)
	}
	if out.TopError != 0 {
		reply.Response = out
		return reply
	}
	p := r.Topics[0].Partitions[0]
	c.fill(&out.Header, p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
	for _, b := range r.Brokers {
		c.address(&out.Header, b.NodeID, b.Host, b.Port)
	}
	out.HighWatermark, out.LogStart = p.HighWatermark, p.LogStartOffset
	if d := p.DivergingEpoch; d.Epoch >= 0 {
		out.Diverging = new(position(d.EndOffset, d.Epoch))
	}
	if s := p.SnapshotID; s.EndOffset >= 0 || s.Epoch >= 0 {
		out.Snapshot = new(position(s.EndOffset, s.Epoch))
	}
	reply.Response, reply.Records = out, p.RecordBatches
	return reply
}

// top starts a header. A response without our partition says nothing: it counts as an error to retry after.
func top(code int16, ours bool) raft.Header {
	h := raft.Header{TopError: raft.ErrorCode(code), Leader: raft.None}
	if code == 0 && !ours {
		h.TopError = raft.UnknownTopicOrPartition
	}
	return h
}

func (c *Codec) fill(h *raft.Header, code int16, leader, epoch int32) {
	h.Error, h.Leader, h.Epoch = raft.ErrorCode(code), raft.NodeID(leader), raft.Epoch(epoch)
}

// address takes the leader's address from a list that may have others too.
func (c *Codec) address(h *raft.Header, id int32, host string, port int32) {
	if raft.NodeID(id) == h.Leader && h.Leader >= 0 && host != "" && port > 0 && port <= 65535 {
		h.LeaderEndpoints = []raft.Endpoint{{Name: c.Listener, Host: host, Port: uint16(port)}}
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// probeVersion is the ApiVersions that we ask with: the first that may show features that start at 0.
const probeVersion = 4

func (c *Codec) apiVersionsRequest() kmsg.Request {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kraft-operator-quorum", "1"
	return req
}

// EncodeApiVersions makes the request that opens every connection, length prefix included. Begin with version
// HandshakeVersion.
func (c *Codec) EncodeApiVersions(version int16, correlation int32) []byte {
	return requestFrame(Header{Key: ApiVersions, Version: version, Correlation: correlation, ClientID: c.ClientID}, c.apiVersionsRequest())
}

// HandshakeVersion is the ApiVersions to open a connection with.
const HandshakeVersion int16 = probeVersion

// TooHighError is the answer of a peer that speaks only older versions of ApiVersions: ask again with Max.
type TooHighError struct{ Max int16 }

func (e *TooHighError) Error() string {
	return fmt.Sprintf("the peer speaks ApiVersions up to version %d", e.Max)
}

// DecodeApiVersions reads the response (without its length prefix) to EncodeApiVersions. The error is a *TooHighError
// if the request has to be repeated with an older version.
func DecodeApiVersions(version int16, frame []byte) (Versions, error) {
	r := reader{src: frame}
	r.take(4)
	if raft.ErrorCode(r.int16()) == raft.UnsupportedVersion {
		version = 0
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := readResponse(Header{Key: ApiVersions, Version: version}, frame, resp); err != nil {
		return Versions{}, err
	}
	v := Versions{ranges: map[int16]Range{}}
	for _, k := range resp.ApiKeys {
		v.ranges[k.ApiKey] = Range{k.MinVersion, k.MaxVersion}
	}
	for _, f := range resp.SupportedFeatures {
		if f.Name == kraftVersion {
			v.KRaft = &raft.VersionRange{Min: f.MinVersion, Max: f.MaxVersion}
		}
	}
	switch raft.ErrorCode(resp.ErrorCode) {
	case raft.NoError:
		return v, nil
	case raft.UnsupportedVersion:
		return Versions{}, &TooHighError{Max: v.ranges[ApiVersions].Max}
	default:
		return Versions{}, fmt.Errorf("ApiVersions was answered with error %d", resp.ErrorCode)
	}
}

// decodeProbe reads ApiVersions as the core's own request.
func decodeProbe(h Header, frame []byte) (Reply, error) {
	v, err := DecodeApiVersions(h.Version, frame)
	if _, tooHigh := errors.AsType[*TooHighError](err); tooHigh {
		return Reply{Response: raft.ApiVersionsResponse{Error: raft.UnsupportedVersion}}, nil
	}
	if err != nil {
		return Reply{}, err
	}
	return Reply{Response: raft.ApiVersionsResponse{KRaft: v.KRaft}}, nil
}
