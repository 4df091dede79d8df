package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// startServer answers clients as a test makes up.
func startServer(t *testing.T, answer func(self wire.Node, body any) any) (address string) {
	t.Helper()
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	self := node(t, 0, ln.Addr().String())
	c := &wire.Codec{Serves: wire.Clients, Listener: "CLIENT", ClusterID: "c", Topic: "__cluster_metadata", TopicID: raft.UUID{15: 1}}
	s := &transport.Server{Limits: transport.DefaultLimits(), Handle: func(in *transport.Inbound) error {
		r, err := c.Decode(in.Frame)
		switch {
		case err != nil:
			return err
		case r.Body == nil:
			in.Reply(r.Answer)
			return nil
		}
		said := answer(self, r.Body)
		if said == nil {
			return errors.New("gone")
		}
		in.Reply(c.Encode(r, said, wire.Extra{}))
		return nil
	}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// TestAppendEndsInTime: also if it may have been made, as its answer was lost, and nobody leads since.
func TestAppendEndsInTime(t *testing.T) {
	lost := false
	address := startServer(t, func(self wire.Node, body any) any {
		switch body.(type) {
		case *wire.MetadataRequest:
			m := &wire.MetadataResponse{Brokers: []wire.Node{self}, Replicas: []raft.NodeID{0}, InSync: []raft.NodeID{0}, Epoch: 1}
			if lost {
				m.Error, m.Leader, m.Controller = wire.LeaderNotAvailable, raft.None, raft.None
			}
			return m
		case *wire.InitProducerIDRequest:
			return &wire.InitProducerIDResponse{ProducerID: 1}
		default:
			lost = true
			return nil
		}
	})
	log, err := new(Client).OpenLog([]string{address}, FromEarliest)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := log.Append(ctx, []byte("k"), []byte("v"))
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("appended")
		}
	case <-time.After(10 * time.Second):
		t.Error("goes on 10 s after its time")
	}
}
