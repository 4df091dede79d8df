package cli

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	batches "github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// PR-03: a leader, forged on the wire, has a follower store up to offset 120 and tells it that 100 is committed. Then it says
// that the logs part at 90. The process ends with a token that names both; its log is as it was, also to the next process.
func TestPR03ForgedTruncationEndsTheProcess(t *testing.T) {
	const stored, committed, parts, epoch = 120, 100, 90, raft.Epoch(3)
	var sent [][]byte
	for base := int64(0); base < stored; base += 10 {
		b := batches.NewBuilder(1_700_000_000_000, batches.None)
		for i := range int64(10) {
			b.Append(1_700_000_000_000, strconv.AppendInt(nil, base+i, 10), []byte("v"))
		}
		raw, err := b.Build(base, epoch)
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, raw)
	}
	var endpoint raft.Endpoint
	type fetch struct {
		raft.FetchRequest
		diverge func()
	}
	arrived := make(chan fetch, 1000) // of a follower that has all
	codec := &wire.Codec{
		Serves: wire.Peers, Listener: "CONTROLLER", ClusterID: "one-cluster", Topic: "__cluster_metadata", TopicID: storage.DefaultTopicID,
		KRaft: &raft.VersionRange{Max: 1},
	}
	leader := &transport.Server{Limits: transport.DefaultLimits(), Handle: func(in *transport.Inbound) error {
		r, err := codec.Decode(in.Frame)
		if err != nil {
			return err
		}
		head := raft.Header{Leader: 1, Epoch: epoch, LeaderEndpoints: []raft.Endpoint{endpoint}}
		switch body := r.Body.(type) {
		case raft.VoteRequest:
			in.Reply(codec.Encode(r, raft.VoteResponse{Header: head}, wire.Extra{}))
		case raft.UpdateRaftVoterRequest:
			in.Reply(codec.Encode(r, raft.UpdateRaftVoterResponse{Header: head}, wire.Extra{}))
		case raft.FetchRequest:
			answer := func(response raft.FetchResponse, records ...[]byte) {
				response.Header, response.HighWatermark = head, committed
				in.Reply(codec.Encode(r, response, wire.Extra{Records: records}))
			}
			switch {
			case body.Offset == 0 && body.Epoch == epoch:
				answer(raft.FetchResponse{}, sent...)
			case body.Offset == stored && body.HighWatermark == committed:
				arrived <- fetch{body, func() { answer(raft.FetchResponse{Diverging: &raft.OffsetAndEpoch{Offset: parts, Epoch: epoch}}) }}
			default:
				answer(raft.FetchResponse{})
			}
		default:
			in.Reply(r.Answer)
		}
		return nil
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint = raft.Endpoint{Name: "CONTROLLER", Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}
	served := make(chan error, 1)
	go func() { served <- leader.Serve(l) }()
	defer func() {
		leader.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	c := newContainer(t, func(v map[string]string) { v["controller.quorum.bootstrap.servers"] = l.Addr().String() })
	set, err := raft.NewVoterSet(
		raft.Voter{Key: raft.ReplicaKey{ID: 0, DirectoryID: raft.UUID{0: 0x10}}, Endpoints: []raft.Endpoint{endpoint}, KRaft: raft.VersionRange{Max: 1}},
		raft.Voter{Key: raft.ReplicaKey{ID: 1, DirectoryID: raft.UUID{0: 0x11}}, Endpoints: []raft.Endpoint{endpoint}, KRaft: raft.VersionRange{Max: 1}},
	)
	if err == nil {
		err = os.RemoveAll(c.data)
	}
	if err == nil {
		err = storage.Format(c.fs, c.data, storage.FormatOptions{ClusterID: "one-cluster", NodeID: 0, InitialVoters: set, KRaftVersion: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	log := func() []byte {
		content, err := os.ReadFile(filepath.Join(c.data, "__cluster_metadata-0", "00000000000000000000.log"))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	env := c.env("run", "--config", c.config, "--log-level", "error")
	ended := make(chan int, 1)
	go func() { ended <- Run(t.Context(), env) }()
	next := func() (f fetch) {
		t.Helper()
		select {
		case f = <-arrived:
		case code := <-ended:
			t.Fatalf("exit code %d: %s", code, env.Stderr)
		case <-time.After(20 * time.Second):
			t.Fatalf("no Fetch of a follower that has all came in 20 s: %s", env.Stderr)
		}
		return f
	}
	last := next()
	before := log()
	if !bytes.Contains(before, bytes.Join(sent, nil)) {
		t.Fatalf("the log has %d bytes, and not all that was sent", len(before))
	}
	last.diverge()
	c.end(env, <-ended, "TRUNCATION_BELOW_HW", strconv.Itoa(parts), strconv.Itoa(committed))
	if !bytes.Equal(log(), before) {
		t.Error("the log has changed")
	}

	for len(arrived) > 0 {
		<-arrived
	}
	ctx, cancel := context.WithCancel(t.Context())
	env = c.env("run", "--config", c.config, "--log-level", "error")
	go func() { ended <- Run(ctx, env) }()
	if f := next(); f.Offset != stored || f.LastFetchedEpoch != epoch {
		t.Errorf("the next process fetches from %d of epoch %d", f.Offset, f.LastFetchedEpoch)
	}
	cancel()
	if code := <-ended; code != 0 || !bytes.Equal(log(), before) {
		t.Errorf("the next process ended with exit code %d, the log the same %v: %s", code, bytes.Equal(log(), before), env.Stderr)
	}
}
