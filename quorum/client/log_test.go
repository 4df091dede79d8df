package client

import (
	"context"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// TestAppendEndsInTime: also if it may have been made, as its answer was lost, and nobody leads since.
func TestAppendEndsInTime(t *testing.T) {
	lost := false
	address := startServer(t, wire.Clients, func(self wire.Node, body any) any {
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
