package wire

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// TestFetchBetweenMembersInEachVersion: C-132, C-140, C-143. What a version has no field for is left out, the rest comes
// through, with the asker's id in the old field or the new one, and the leader's address from version 17 on.
func TestFetchBetweenMembersInEachVersion(t *testing.T) {
	cluster := "clusterA"
	sent := raft.FetchRequest{
		ClusterID: &cluster, Replica: raft.ReplicaKey{ID: 2, DirectoryID: d2}, Epoch: 7, Offset: 42, LastFetchedEpoch: 6,
		HighWatermark: 40, MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20,
	}
	answered := raft.FetchResponse{
		Header:        raft.Header{Leader: 1, Epoch: 7, LeaderEndpoints: append([]raft.Endpoint{{Name: "CLIENT", Host: "c-1", Port: 9092}}, q1...)},
		HighWatermark: 41,
	}
	c := peerCodec()
	offered, _ := Peers.find(Fetch)
	if offered != (Range{13, 18}) {
		t.Fatalf("offered %+v", offered)
	}
	for version := offered.Min; version <= offered.Max; version++ {
		frame, err := c.EncodeRequest(version, 5, sent, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Decode(frame[4:])
		if err != nil {
			t.Fatal(err)
		}
		want := sent
		if version < 17 {
			want.Replica.DirectoryID = raft.UUID{}
		}
		if version < 18 {
			want.HighWatermark = raft.NoHighWatermark
		}
		got := r.Body.(raft.FetchRequest)
		if *got.ClusterID != cluster {
			t.Errorf("version %d: cluster id %q", version, *got.ClusterID)
		}
		if got.ClusterID = want.ClusterID; got != want {
			t.Errorf("version %d: got %+v, want %+v", version, got, want)
		}
		f := slices.Concat(c.Encode(r, answered, Extra{Records: [][]byte{[]byte("records")}})...)
		reply, err := c.DecodeResponse(r.Header, f[4:])
		if err != nil {
			t.Fatal(err)
		}
		h := reply.Response.(raft.FetchResponse).Header
		if h.Leader != 1 || h.Epoch != 7 || string(reply.Records) != "records" {
			t.Errorf("version %d: %+v with %q", version, h, reply.Records)
		}
		if _, named := raft.Find(h.LeaderEndpoints, "CONTROLLER"); named != (version >= 17) || len(h.LeaderEndpoints) > 1 {
			t.Errorf("version %d: endpoints %+v", version, h.LeaderEndpoints)
		}
	}
}

// TestRecordsAreNeverNull: C-142, B-26. Clients of old do not expect null, in errors as little as in empty answers.
func TestRecordsAreNeverNull(t *testing.T) {
	check := func(t *testing.T, h Header, frame []byte) {
		t.Helper()
		resp := kmsg.NewPtrFetchResponse()
		if err := readResponse(h, frame[4:], resp); err != nil {
			t.Fatal(err)
		}
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				if p.RecordBatches == nil || len(p.RecordBatches) > 0 {
					t.Errorf("version %d, error %d: records %v, want empty and not null", h.Version, p.ErrorCode, p.RecordBatches)
				}
			}
		}
	}
	codes := []raft.ErrorCode{raft.NoError, raft.NotLeaderOrFollower, raft.FencedLeaderEpoch, raft.UnknownLeaderEpoch, raft.InvalidRequest, raft.UnknownServerError, raft.OffsetOutOfRange}
	for _, code := range codes {
		versions(t, Peers, Fetch, func(t *testing.T, version int16) {
			h := Header{Key: Fetch, Version: version}
			check(t, h, slices.Concat(peerCodec().Encode(&Request{Header: h}, raft.FetchResponse{Header: raft.Header{Error: code, Leader: 1, Epoch: 7}, HighWatermark: -1}, Extra{})...))
		})
		versions(t, Clients, Fetch, func(t *testing.T, version int16) {
			c := clientCodec()
			r, err := c.Decode(frameOf(fetchRequest(c), version))
			if err != nil {
				t.Fatal(err)
			}
			check(t, r.Header, slices.Concat(c.Encode(r, &ClientFetchResponse{Error: code, HighWatermark: -1, LogStart: -1, ReadReplica: -1}, Extra{})...))
		})
	}
}

// TestSuccessHasNoMessage: B-61. What changes voters says nothing when it succeeds, not even "NONE"; and what stands in the way
// when it does not.
func TestSuccessHasNoMessage(t *testing.T) {
	c := peerCodec()
	for _, code := range []raft.ErrorCode{raft.NoError, raft.DuplicateVoter} {
		text, want := "", (*string)(nil)
		if code != raft.NoError {
			text = "node 3 is a voter already"
			want = &text
		}
		for version := range int16(2) {
			h := Header{Key: AddRaftVoter, Version: version}
			added := kmsg.NewPtrAddRaftVoterResponse()
			if err := readResponse(h, slices.Concat(c.Encode(&Request{Header: h}, raft.AddRaftVoterResponse{Error: code, Message: text}, Extra{})...)[4:], added); err != nil {
				t.Fatal(err)
			}
			if added.ErrorCode != int16(code) || (added.ErrorMessage == nil) != (want == nil) || want != nil && *added.ErrorMessage != *want {
				t.Errorf("add v%d, error %d: message %v, want %v", version, added.ErrorCode, added.ErrorMessage, want)
			}
		}
		h := Header{Key: RemoveRaftVoter}
		removed := kmsg.NewPtrRemoveRaftVoterResponse()
		if err := readResponse(h, slices.Concat(c.Encode(&Request{Header: h}, raft.RemoveRaftVoterResponse{Error: code, Message: text}, Extra{})...)[4:], removed); err != nil {
			t.Fatal(err)
		}
		if removed.ErrorCode != int16(code) || (removed.ErrorMessage == nil) != (want == nil) {
			t.Errorf("remove, error %d: message %v, want %v", removed.ErrorCode, removed.ErrorMessage, want)
		}
	}
}
