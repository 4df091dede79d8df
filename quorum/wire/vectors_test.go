package wire

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

var (
	d1 = raft.UUID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	d2 = raft.UUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	q1 = []raft.Endpoint{{Name: "CONTROLLER", Host: "q-1", Port: 9093}}
)

// peerCodec serves peers of the cluster that the vectors speak of.
func peerCodec() *Codec {
	return &Codec{
		Serves: Peers, Listener: "CONTROLLER", ClusterID: "clusterA", Topic: "__cluster_metadata",
		TopicID: raft.UUID{15: 1}, ClientID: "test", KRaft: &raft.VersionRange{Max: 1},
	}
}

// vector is what one line of vectors.txt means: a raft.Request or a raft.Response, and what the version cannot carry.
type vector struct {
	name  string
	value any
	extra Extra
}

func vectors() []vector {
	clusterA := "clusterA"
	header := raft.Header{Leader: 1, Epoch: 7, LeaderEndpoints: q1}
	noAddress := raft.Header{Leader: -1, Epoch: 7}
	vote := raft.VoteRequest{
		ClusterID: &clusterA, Voter: raft.ReplicaKey{ID: 2, DirectoryID: d2}, Replica: raft.ReplicaKey{ID: 1, DirectoryID: d1},
		Epoch: 7, Last: raft.OffsetAndEpoch{Offset: 42, Epoch: 6},
	}
	preVote, vote0 := vote, vote
	preVote.PreVote = true
	vote0.Voter, vote0.Replica = raft.NoReplica, raft.ReplicaKey{ID: 1}
	begin := raft.BeginQuorumEpochRequest{ClusterID: &clusterA, Voter: raft.ReplicaKey{ID: 2, DirectoryID: d2}, Leader: 1, Epoch: 7, Endpoints: q1}
	begin0 := raft.BeginQuorumEpochRequest{ClusterID: &clusterA, Voter: raft.NoReplica, Leader: 1, Epoch: 7}
	end := raft.EndQuorumEpochRequest{ClusterID: &clusterA, Leader: 1, Epoch: 7, Successors: []raft.ReplicaKey{{ID: 2, DirectoryID: d2}, {ID: 3}}}
	end0 := end
	end0.Successors = []raft.ReplicaKey{{ID: 2}, {ID: 3}}
	fetch := raft.FetchRequest{
		ClusterID: &clusterA, Replica: raft.ReplicaKey{ID: 2, DirectoryID: d2}, Epoch: 7, Offset: 42, LastFetchedEpoch: 6,
		HighWatermark: 40, MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20,
	}
	fetch17 := fetch
	fetch17.HighWatermark = raft.NoHighWatermark
	return []vector{
		{"VoteRequest 2", preVote, Extra{}},
		{"VoteRequest 1", vote, Extra{}},
		{"VoteRequest 0", vote0, Extra{}},
		{"VoteResponse 2", raft.VoteResponse{Header: header}, Extra{}},
		{"VoteResponse 0", raft.VoteResponse{Header: noAddress, Granted: true}, Extra{}},
		{"BeginQuorumEpochRequest 1", begin, Extra{}},
		{"BeginQuorumEpochRequest 0", begin0, Extra{}},
		{"BeginQuorumEpochResponse 1", raft.BeginQuorumEpochResponse{Header: header}, Extra{}},
		{"EndQuorumEpochRequest 1", end, Extra{}},
		{"EndQuorumEpochRequest 0", end0, Extra{}},
		{"EndQuorumEpochResponse 1", raft.EndQuorumEpochResponse{Header: header}, Extra{}},
		{"FetchRequest 18", fetch, Extra{}},
		{"FetchRequest 17", fetch17, Extra{}},
		{"FetchResponse(diverging) 18", raft.FetchResponse{Header: header, HighWatermark: 41, LogStart: 0, Diverging: &raft.OffsetAndEpoch{Offset: 30, Epoch: 5}}, Extra{}},
		{"FetchResponse(snapshot) 18", raft.FetchResponse{Header: header, HighWatermark: 141, LogStart: 100, Snapshot: &raft.OffsetAndEpoch{Offset: 100, Epoch: 5}}, Extra{}},
		{"FetchSnapshotRequest 1", raft.FetchSnapshotRequest{ClusterID: &clusterA, Replica: raft.ReplicaKey{ID: 2, DirectoryID: d2}, Epoch: 7, Snapshot: raft.OffsetAndEpoch{Offset: 100, Epoch: 5}, MaxBytes: 1 << 20}, Extra{}},
		{"FetchSnapshotResponse 1", raft.FetchSnapshotResponse{Header: header, Snapshot: raft.OffsetAndEpoch{Offset: 100, Epoch: 5}, Size: 300, Bytes: 3}, Extra{Records: [][]byte{{1, 2, 3}}}},
		{"AddRaftVoterRequest 1", raft.AddRaftVoterRequest{ClusterID: &clusterA, Voter: raft.ReplicaKey{ID: 3, DirectoryID: d2}, Endpoints: q1}, Extra{}},
		{"RemoveRaftVoterRequest 0", raft.RemoveRaftVoterRequest{ClusterID: &clusterA, Voter: raft.ReplicaKey{ID: 3, DirectoryID: d2}}, Extra{}},
		{"UpdateRaftVoterRequest 0", raft.UpdateRaftVoterRequest{ClusterID: &clusterA, Epoch: 7, Voter: raft.Voter{Key: raft.ReplicaKey{ID: 2, DirectoryID: d2}, Endpoints: q1, KRaft: raft.VersionRange{Max: 1}}}, Extra{}},
		{"UpdateRaftVoterResponse 0", raft.UpdateRaftVoterResponse{Header: header}, Extra{}},
	}
}

// TestVectors compares with bytes that Kafka's own classes wrote: encoding gives them, decoding gives the value back.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for line := range strings.Lines(string(data)) {
		if name, text, ok := strings.Cut(line[strings.IndexByte(line, ' ')+1:], " "); ok && line[0] != '#' {
			body, err := hex.DecodeString(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			want[line[:strings.IndexByte(line, ' ')]+" "+name] = body
		}
	}
	c := peerCodec()
	used := 0
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			body, ok := want[v.name]
			if !ok {
				t.Fatal("no such line in vectors.txt")
			}
			used++
			var version int16
			if _, err := fmt.Sscan(v.name[strings.LastIndexByte(v.name, ' ')+1:], &version); err != nil {
				t.Fatal(err)
			}
			switch value := v.value.(type) {
			case raft.Request:
				frame, err := c.EncodeRequest(version, 5, value, nil)
				if err != nil {
					t.Fatal(err)
				}
				h, got, err := ReadHeader(frame[4:])
				if err != nil {
					t.Fatal(err)
				}
				if hex.EncodeToString(got) != hex.EncodeToString(body) {
					t.Errorf("encoded\n got %x\nwant %x", got, body)
				}
				r := &Request{Header: h}
				if err := c.decodePeer(r, body); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(v.value, r.Body); diff != "" {
					t.Errorf("decoded (-want +got)\n%s", diff)
				}
			case raft.Response:
				h := Header{Key: keyOfResponse(value), Version: version, Correlation: 5}
				var frame []byte
				for _, b := range c.Encode(&Request{Header: h}, value, v.extra) {
					frame = append(frame, b...)
				}
				head := 4 + 4
				if flexible(h.Key, h.Version) {
					head++
				}
				if got := frame[head:]; hex.EncodeToString(got) != hex.EncodeToString(body) {
					t.Errorf("encoded\n got %x\nwant %x", got, body)
				}
				if got := int(binary.BigEndian.Uint32(frame)); got != len(frame)-4 {
					t.Errorf("length prefix %d, want %d", got, len(frame)-4)
				}
				reply, err := c.DecodeResponse(h, frame[4:])
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(v.value, reply.Response, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("decoded (-want +got)\n%s", diff)
				}
			}
		})
	}
	if used != len(want) {
		t.Errorf("%d of %d vectors were used", used, len(want))
	}
}

func keyOfResponse(r raft.Response) int16 {
	switch r.(type) {
	case raft.VoteResponse:
		return Vote
	case raft.BeginQuorumEpochResponse:
		return BeginQuorumEpoch
	case raft.EndQuorumEpochResponse:
		return EndQuorumEpoch
	case raft.FetchResponse:
		return Fetch
	case raft.FetchSnapshotResponse:
		return FetchSnapshot
	case raft.UpdateRaftVoterResponse:
		return UpdateRaftVoter
	case raft.AddRaftVoterResponse, raft.RemoveRaftVoterResponse, raft.DescribeQuorumResponse, raft.ApiVersionsResponse: // no vectors
	}
	panic(fmt.Sprintf("%T", r))
}
