package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// recorded is one frame that Apache Kafka 4.4.0 sent or answered.
type recorded struct {
	Direction   string
	Key         int16
	Version     int16
	Correlation int32
	Hex         string

	line int
	raw  []byte
}

func recordedFrames(t testing.TB, name string) []recorded {
	t.Helper()
	f, err := os.Open("testdata/frames/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []recorded
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r := recorded{line: len(out) + 1}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.raw, err = hex.DecodeString(r.Hex); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// TestRecordedFrames: every frame of a real quorum decodes and, encoded again, is the same to the byte: first as
// Kafka's message, then as our own type where we have one.
func TestRecordedFrames(t *testing.T) {
	seen := map[string]int{}
	for _, file := range []string{"dynamic.jsonl", "static.jsonl"} {
		for _, r := range recordedFrames(t, file) {
			name := fmt.Sprintf("%s/%d %s %s v%d", file, r.line, KeyName(r.Key), r.Direction, r.Version)
			t.Run(name, func(t *testing.T) {
				asMessage(t, r)
				if ours := typed(t, r); ours {
					seen[KeyName(r.Key)+" "+r.Direction]++
				}
			})
		}
	}
	for _, want := range []string{
		"Vote request", "Vote response", "BeginQuorumEpoch request", "BeginQuorumEpoch response", "EndQuorumEpoch request",
		"EndQuorumEpoch response", "Fetch request", "Fetch response", "FetchSnapshot request", "FetchSnapshot response",
		"UpdateRaftVoter request", "UpdateRaftVoter response", "AddRaftVoter request", "AddRaftVoter response",
		"RemoveRaftVoter request", "RemoveRaftVoter response",
		"DescribeQuorum request", "ApiVersions response",
	} {
		if seen[want] == 0 {
			t.Errorf("no %s went through our own type", want)
		}
	}
	t.Log(seen)
}

// asMessage round-trips a frame as Kafka's message.
func asMessage(t *testing.T, r recorded) {
	t.Helper()
	if r.Direction == "request" {
		h, body, err := ReadHeader(r.raw)
		if err != nil {
			t.Fatal(err)
		}
		if h.Key != r.Key || h.Version != r.Version || h.Correlation != r.Correlation {
			t.Fatalf("header %+v", h)
		}
		req := kmsg.RequestForKey(r.Key)
		if err := read(h, body, req); err != nil {
			t.Fatal(err)
		}
		if got := requestFrame(h, req); !bytes.Equal(got[4:], r.raw) {
			t.Errorf("as a message\n got %x\nwant %x", got[4:], r.raw)
		}
		return
	}
	h := Header{Key: r.Key, Version: r.Version, Correlation: r.Correlation}
	resp := kmsg.ResponseForKey(r.Key)
	if err := readResponse(h, r.raw, resp); err != nil {
		t.Fatal(err)
	}
	if got := responseFrame(h, resp)[0]; !bytes.Equal(got[4:], r.raw) {
		t.Errorf("as a message\n got %x\nwant %x", got[4:], r.raw)
	}
}

// typed round-trips a frame through the core's types, if there are any for it.
func typed(t *testing.T, r recorded) bool {
	t.Helper()
	c := peerCodec()
	if r.Direction == "request" {
		h, body, err := ReadHeader(r.raw)
		if err != nil {
			t.Fatal(err)
		}
		var value raft.Request
		switch r.Key {
		case Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, UpdateRaftVoter, AddRaftVoter, RemoveRaftVoter:
			in := &Request{Header: h}
			if err := c.decodePeer(in, body); err != nil {
				t.Fatal(err)
			}
			if in.Body == nil {
				t.Fatalf("answered %x", in.Answer)
			}
			value = in.Body.(raft.Request)
		case DescribeQuorum:
			in, err := c.Decode(r.raw)
			if err != nil {
				t.Fatal(err)
			}
			value = in.Body.(raft.DescribeQuorumRequest)
		default:
			return false
		}
		c.ClientID = h.ClientID
		got, err := c.EncodeRequest(r.Version, r.Correlation, value, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := r.raw
		if r.Key == AddRaftVoter { // the timeout means nothing to a leader: ours is always the same
			want = bytes.Replace(want, timeoutOf(t, h, body), []byte{0, 0, 7, 0xd0}, 1)
		}
		if !bytes.Equal(got[4:], want) {
			t.Errorf("through %T\n got %x\nwant %x", value, got[4:], want)
		}
		return true
	}
	h := Header{Key: r.Key, Version: r.Version, Correlation: r.Correlation}
	switch r.Key {
	case ApiVersions:
		v, err := DecodeApiVersions(r.Version, r.raw)
		if err != nil || v.KRaft == nil || v.KRaft.Max != 1 {
			t.Errorf("got %+v, %v", v, err)
		}
		return true
	case Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, UpdateRaftVoter, AddRaftVoter, RemoveRaftVoter:
	default:
		return false
	}
	reply, err := c.DecodeResponse(h, r.raw)
	if err != nil {
		t.Fatal(err)
	}
	x := Extra{}
	if len(reply.Records) > 0 {
		half := len(reply.Records) / 2
		x.Records = [][]byte{reply.Records[:half], reply.Records[half:]}
	}
	got := slices.Concat(c.Encode(&Request{Header: h}, reply.Response, x)...)
	if !bytes.Equal(got[4:], r.raw) {
		t.Errorf("through %T\n got %x\nwant %x", reply.Response, got[4:], r.raw)
	}
	return true
}

func timeoutOf(t *testing.T, h Header, body []byte) []byte {
	t.Helper()
	req := kmsg.NewPtrAddRaftVoterRequest()
	if err := read(h, body, req); err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(req.TimeoutMillis))
}

// TestFetchFrame: a response put together from pieces is what Kafka's encoder makes in one go, in every version.
func TestFetchFrame(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		for _, records := range [][]byte{nil, []byte("r"), bytes.Repeat([]byte("x"), 200), bytes.Repeat([]byte("y"), 70000)} {
			for _, topic := range []string{"t", strings.Repeat("n", 249)} {
				resp := kmsg.NewPtrFetchResponse()
				p := kmsg.NewFetchResponseTopicPartition()
				p.HighWatermark, p.PreferredReadReplica, p.LogStartOffset = 1<<40, 3, 7
				p.CurrentLeader.LeaderID = 5
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				resp.Topics = []kmsg.FetchResponseTopic{{Topic: topic, TopicID: d1, Partitions: []kmsg.FetchResponseTopicPartition{p, p}}}
				resp.Topics[0].Partitions[1].RecordBatches = []byte{}
				h := Header{Key: Fetch, Version: version, Correlation: 9}
				var pieces [][]byte
				for chunk := range slices.Chunk(records, 30000) {
					pieces = append(pieces, chunk)
				}
				f := fetchFrame(h, resp, pieces, 0)
				apart := fetchFrame(h, resp, nil, len(records))
				resp.Topics[0].Partitions[0].RecordBatches = append([]byte{}, records...)
				want := responseFrame(h, resp)[0]
				if got := slices.Concat(append([][]byte{apart[0], records}, apart[1:]...)...); !bytes.Equal(got, want) {
					t.Errorf("version %d, %d bytes sent apart, topic of %d:\n got %.200x\nwant %.200x", version, len(records), len(topic), got, want)
				}
				if got := slices.Concat(f...); !bytes.Equal(got, want) {
					t.Errorf("version %d, %d bytes, topic of %d:\n got %.200x\nwant %.200x", version, len(records), len(topic), got, want)
				}
				if f.Len() != len(want) {
					t.Errorf("Len is %d, want %d", f.Len(), len(want))
				}
				if len(records) > 0 && &f[1][0] != &pieces[0][0] {
					t.Error("records were copied")
				}
			}
		}
	}
}
