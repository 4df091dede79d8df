package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// ErrVersion says that a request has something to tell that the version cannot carry.
var ErrVersion = errors.New("the peer's version cannot carry the request")

// decodePeer reads a request between replicas. One that names another topic or partition is answered at once.
func (c *Codec) decodePeer(r *Request, body []byte) error {
	req := kmsg.RequestForKey(r.Key)
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	var cluster *string
	ours := true
	switch req := req.(type) {
	case *kmsg.VoteRequest:
		cluster = req.ClusterID
		if ours = len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1; ours {
			p := req.Topics[0].Partitions[0]
			ours = c.named(req.Topics[0].Topic, p.Partition)
			r.Body = raft.VoteRequest{
				ClusterID: cluster,
				Voter:     key(req.VoterID, p.VoterDirectoryID),
				Replica:   key(p.CandidateID, p.CandidateDirectoryID),
				Epoch:     raft.Epoch(p.CandidateEpoch),
				Last:      position(p.LastOffset, p.LastOffsetEpoch),
				PreVote:   p.PreVote,
			}
		}
	case *kmsg.BeginQuorumEpochRequest:
		cluster = req.ClusterID
		if ours = len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1; ours {
			p := req.Topics[0].Partitions[0]
			ours = c.named(req.Topics[0].Topic, p.Partition)
			b := raft.BeginQuorumEpochRequest{
				ClusterID: cluster,
				Voter:     key(req.VoterID, p.VoterDirectoryID),
				Leader:    raft.NodeID(p.LeaderID),
				Epoch:     raft.Epoch(p.LeaderEpoch),
			}
			for _, e := range req.LeaderEndpoints {
				b.Endpoints = append(b.Endpoints, raft.Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
			}
			r.Body = b
		}
	case *kmsg.EndQuorumEpochRequest:
		cluster = req.ClusterID
		if ours = len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1; ours {
			p := req.Topics[0].Partitions[0]
			ours = c.named(req.Topics[0].Topic, p.Partition)
			e := raft.EndQuorumEpochRequest{ClusterID: cluster, Leader: raft.NodeID(p.LeaderID), Epoch: raft.Epoch(p.LeaderEpoch)}
			for _, id := range p.PreferredSuccessors {
				e.Successors = append(e.Successors, raft.ReplicaKey{ID: raft.NodeID(id)})
			}
			for _, k := range p.PreferredCandidates {
				e.Successors = append(e.Successors, key(k.CandidateID, k.CandidateDirectoryID))
			}
			for _, l := range req.LeaderEndpoints {
				e.Endpoints = append(e.Endpoints, raft.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
			}
			r.Body = e
		}
	case *kmsg.FetchRequest:
		cluster = req.ClusterID
		if ours = len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1; ours {
			p := req.Topics[0].Partitions[0]
			ours = req.Topics[0].TopicID == c.TopicID && p.Partition == 0
			r.Body = raft.FetchRequest{
				ClusterID:        cluster,
				Replica:          key(fetchReplica(req), p.ReplicaDirectoryID),
				Epoch:            raft.Epoch(p.CurrentLeaderEpoch),
				Offset:           p.FetchOffset,
				LastFetchedEpoch: raft.Epoch(p.LastFetchedEpoch),
				HighWatermark:    p.HighWatermark,
				MaxWait:          time.Duration(req.MaxWaitMillis) * time.Millisecond,
				MaxBytes:         int(req.MaxBytes),
			}
			if value, ok := findTag(&req.UnknownTags); ok {
				r.Tag = readFetchTag(value)
			}
			if r.Tag != nil && r.Tag.BelowReserve {
				f := r.Body.(raft.FetchRequest)
				f.BelowReserve = true
				r.Body = f
			}
		}
	case *kmsg.FetchSnapshotRequest:
		cluster = req.ClusterID
		if ours = len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1; ours {
			p := req.Topics[0].Partitions[0]
			ours = c.named(req.Topics[0].Topic, p.Partition)
			r.Body = raft.FetchSnapshotRequest{
				ClusterID: cluster,
				Replica:   key(req.ReplicaID, p.ReplicaDirectoryID),
				Epoch:     raft.Epoch(p.CurrentLeaderEpoch),
				Snapshot:  position(p.SnapshotID.EndOffset, p.SnapshotID.Epoch),
				Position:  p.Position,
				MaxBytes:  int(req.MaxBytes),
			}
		}
	case *kmsg.UpdateRaftVoterRequest:
		u := raft.UpdateRaftVoterRequest{ClusterID: req.ClusterID, Epoch: raft.Epoch(req.CurrentLeaderEpoch)}
		u.Voter.Key = key(req.VoterID, req.VoterDirectoryID)
		u.Voter.KRaft = raft.VersionRange{Min: req.KRaftVersionFeature.MinSupportedVersion, Max: req.KRaftVersionFeature.MaxSupportedVersion}
		for _, l := range req.Listeners {
			u.Voter.Endpoints = append(u.Voter.Endpoints, raft.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
		}
		r.Body = u
	case *kmsg.AddRaftVoterRequest:
		a := raft.AddRaftVoterRequest{ClusterID: req.ClusterID, Voter: key(req.VoterID, req.VoterDirectoryID), AckWhenCommitted: req.AckWhenCommitted}
		for _, l := range req.Listeners {
			a.Endpoints = append(a.Endpoints, raft.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
		}
		r.Body = a
	case *kmsg.RemoveRaftVoterRequest:
		r.Body = raft.RemoveRaftVoterRequest{ClusterID: req.ClusterID, Voter: key(req.VoterID, req.VoterDirectoryID)}
	default:
		panic(fmt.Sprintf("wire: %v is offered but not decoded", r.Header))
	}
	if !ours {
		code := raft.InvalidRequest
		if cluster != nil && *cluster != c.ClusterID {
			code = raft.InconsistentClusterID
		}
		r.Body, r.Tag = nil, nil
		r.Answer = c.Encode(r, topLevel(r.Key, code), Extra{})
	}
	return nil
}

func (c *Codec) named(topic string, partition int32) bool { return topic == c.Topic && partition == 0 }

func fetchReplica(req *kmsg.FetchRequest) int32 {
	if req.Version >= 15 {
		return req.ReplicaState.ID
	}
	return req.ReplicaID
}

func key(id int32, directory [16]byte) raft.ReplicaKey {
	return raft.ReplicaKey{ID: raft.NodeID(id), DirectoryID: directory}
}

func position(offset int64, epoch int32) raft.OffsetAndEpoch {
	return raft.OffsetAndEpoch{Offset: offset, Epoch: raft.Epoch(epoch)}
}

// topLevel is the response to a request with that key that has only a top-level error.
func topLevel(key int16, code raft.ErrorCode) raft.Response {
	h := raft.Header{TopError: code, Leader: raft.None}
	switch key {
	case Vote:
		return raft.VoteResponse{Header: h}
	case BeginQuorumEpoch:
		return raft.BeginQuorumEpochResponse{Header: h}
	case EndQuorumEpoch:
		return raft.EndQuorumEpochResponse{Header: h}
	case Fetch:
		return raft.FetchResponse{Header: h}
	case FetchSnapshot:
		return raft.FetchSnapshotResponse{Header: h}
	default:
		panic(fmt.Sprintf("wire: no top-level error for %s", KeyName(key)))
	}
}

// EncodeRequest makes the frame of a request to a peer, length prefix included. Version comes from
// Versions.VersionFor. Tag is for Fetch only and may be nil.
func (c *Codec) EncodeRequest(version int16, correlation int32, r raft.Request, tag *FetchTag) ([]byte, error) {
	if lowest, highest := carries(r); version < lowest || version > highest {
		return nil, fmt.Errorf("%s v%d: %w", KeyName(KeyOf(r)), version, ErrVersion)
	}
	h := Header{Key: KeyOf(r), Version: version, Correlation: correlation, ClientID: c.ClientID}
	return requestFrame(h, c.requestBody(version, r, tag)), nil
}

func (c *Codec) requestBody(version int16, r raft.Request, tag *FetchTag) kmsg.Request {
	switch r := r.(type) {
	case raft.VoteRequest:
		req := kmsg.NewPtrVoteRequest()
		req.ClusterID, req.VoterID = r.ClusterID, int32(r.Voter.ID)
		p := kmsg.NewVoteRequestTopicPartition()
		p.CandidateEpoch, p.CandidateID, p.CandidateDirectoryID = int32(r.Epoch), int32(r.Replica.ID), r.Replica.DirectoryID
		p.VoterDirectoryID = r.Voter.DirectoryID
		p.LastOffsetEpoch, p.LastOffset, p.PreVote = int32(r.Last.Epoch), r.Last.Offset, r.PreVote
		req.Topics = []kmsg.VoteRequestTopic{{Topic: c.Topic, Partitions: []kmsg.VoteRequestTopicPartition{p}}}
		return req
	case raft.BeginQuorumEpochRequest:
		req := kmsg.NewPtrBeginQuorumEpochRequest()
		req.ClusterID, req.VoterID = r.ClusterID, int32(r.Voter.ID)
		p := kmsg.NewBeginQuorumEpochRequestTopicPartition()
		p.VoterDirectoryID, p.LeaderID, p.LeaderEpoch = r.Voter.DirectoryID, int32(r.Leader), int32(r.Epoch)
		req.Topics = []kmsg.BeginQuorumEpochRequestTopic{{Topic: c.Topic, Partitions: []kmsg.BeginQuorumEpochRequestTopicPartition{p}}}
		for _, e := range r.Endpoints {
			req.LeaderEndpoints = append(req.LeaderEndpoints, kmsg.BeginQuorumEpochRequestLeaderEndpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		return req
	case raft.EndQuorumEpochRequest:
		req := kmsg.NewPtrEndQuorumEpochRequest()
		req.ClusterID = r.ClusterID
		p := kmsg.NewEndQuorumEpochRequestTopicPartition()
		p.LeaderID, p.LeaderEpoch = int32(r.Leader), int32(r.Epoch)
		for _, k := range r.Successors {
			if version == 0 {
				p.PreferredSuccessors = append(p.PreferredSuccessors, int32(k.ID))
			} else {
				p.PreferredCandidates = append(p.PreferredCandidates, kmsg.EndQuorumEpochRequestTopicPartitionPreferredCandidate{
					CandidateID: int32(k.ID), CandidateDirectoryID: k.DirectoryID,
				})
			}
		}
		req.Topics = []kmsg.EndQuorumEpochRequestTopic{{Topic: c.Topic, Partitions: []kmsg.EndQuorumEpochRequestTopicPartition{p}}}
		for _, e := range r.Endpoints {
			req.LeaderEndpoints = append(req.LeaderEndpoints, kmsg.EndQuorumEpochRequestLeaderEndpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		return req
	case raft.FetchRequest:
		req := kmsg.NewPtrFetchRequest()
		req.ClusterID = r.ClusterID
		req.ReplicaID, req.ReplicaState.ID = int32(r.Replica.ID), int32(r.Replica.ID)
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(r.MaxWait.Milliseconds()), 0, int32(r.MaxBytes)
		req.SessionID, req.SessionEpoch = 0, -1
		p := kmsg.NewFetchRequestTopicPartition()
		p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch = int32(r.Epoch), r.Offset, int32(r.LastFetchedEpoch)
		p.LogStartOffset, p.PartitionMaxBytes = -1, 0
		if version >= 17 {
			p.ReplicaDirectoryID = r.Replica.DirectoryID
		}
		if version >= 18 {
			p.HighWatermark = r.HighWatermark
		}
		req.Topics = []kmsg.FetchRequestTopic{{TopicID: c.TopicID, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		if tag != nil {
			setTag(&req.UnknownTags, appendFetchTag(nil, tag))
		}
		return req
	case raft.FetchSnapshotRequest:
		req := kmsg.NewPtrFetchSnapshotRequest()
		req.ClusterID, req.ReplicaID, req.MaxBytes = r.ClusterID, int32(r.Replica.ID), int32(r.MaxBytes)
		p := kmsg.NewFetchSnapshotRequestTopicPartition()
		p.CurrentLeaderEpoch, p.Position = int32(r.Epoch), r.Position
		p.SnapshotID.EndOffset, p.SnapshotID.Epoch = r.Snapshot.Offset, int32(r.Snapshot.Epoch)
		if version >= 1 {
			p.ReplicaDirectoryID = r.Replica.DirectoryID
		}
		req.Topics = []kmsg.FetchSnapshotRequestTopic{{Topic: c.Topic, Partitions: []kmsg.FetchSnapshotRequestTopicPartition{p}}}
		return req
	case raft.UpdateRaftVoterRequest:
		req := kmsg.NewPtrUpdateRaftVoterRequest()
		req.ClusterID, req.CurrentLeaderEpoch = r.ClusterID, int32(r.Epoch)
		req.VoterID, req.VoterDirectoryID = int32(r.Voter.Key.ID), r.Voter.Key.DirectoryID
		for _, e := range r.Voter.Endpoints {
			req.Listeners = append(req.Listeners, kmsg.UpdateRaftVoterRequestListener{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		req.KRaftVersionFeature.MinSupportedVersion, req.KRaftVersionFeature.MaxSupportedVersion = r.Voter.KRaft.Min, r.Voter.KRaft.Max
		return req
	case raft.AddRaftVoterRequest:
		req := kmsg.NewPtrAddRaftVoterRequest()
		req.TimeoutMillis = 2000 // leaders go by their own request timeout
		req.ClusterID, req.VoterID, req.VoterDirectoryID = r.ClusterID, int32(r.Voter.ID), r.Voter.DirectoryID
		for _, e := range r.Endpoints {
			req.Listeners = append(req.Listeners, kmsg.AddRaftVoterRequestListener{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		req.AckWhenCommitted = r.AckWhenCommitted
		return req
	case raft.RemoveRaftVoterRequest:
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.ClusterID, req.VoterID, req.VoterDirectoryID = r.ClusterID, int32(r.Voter.ID), r.Voter.DirectoryID
		return req
	case raft.ApiVersionsRequest:
		return c.apiVersionsRequest()
	case raft.DescribeQuorumRequest:
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: c.Topic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
		return req
	default:
		panic(fmt.Sprintf("wire: cannot encode %T", r))
	}
}
