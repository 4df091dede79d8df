package client

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// drops is a connection that brings a byte at a time.
type drops struct{ net.Conn }

func (d drops) Read(p []byte) (int, error) { return iotest.OneByteReader(d.Conn).Read(p) }

// TestAppendThatIsNotAnswered: the time is up, and why so is known from what the member said meanwhile.
func TestAppendThatIsNotAnswered(t *testing.T) {
	leads := func(self wire.Node) *wire.MetadataResponse {
		return &wire.MetadataResponse{Brokers: []wire.Node{self}, Replicas: []raft.NodeID{0}, InSync: []raft.NodeID{0}, Epoch: 1}
	}
	for _, test := range []struct {
		name    string
		produce *wire.ProduceResponse // nil: the member hangs up
		init    raft.ErrorCode
		leader  bool
		says    string // behind the address; empty: nothing is known
	}{
		{"disk full", &wire.ProduceResponse{Error: raft.KafkaStorageError, Message: "its disk is full"}, 0, true, " answers KAFKA_STORAGE_ERROR: its disk is full"},
		{"no message", &wire.ProduceResponse{Error: raft.NotLeaderOrFollower}, 0, true, " answers NOT_LEADER_OR_FOLLOWER"},
		{"no leader for a producer id", nil, wire.CoordinatorNotAvailable, true, " answers COORDINATOR_NOT_AVAILABLE: it reaches no leader"},
		{"no leader", nil, 0, false, " answers LEADER_NOT_AVAILABLE: it reaches no leader"},
		{"no answer", nil, 0, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := startServer(t, wire.Clients, func(self wire.Node, body any) any {
				switch body.(type) {
				case *wire.MetadataRequest:
					m := leads(self)
					if !test.leader {
						m.Error, m.Leader, m.Controller = wire.LeaderNotAvailable, raft.None, raft.None
					}
					return m
				case *wire.InitProducerIDRequest:
					return &wire.InitProducerIDResponse{Error: test.init, ProducerID: 1}
				case *wire.ProduceRequest:
					if test.produce != nil {
						return test.produce
					}
				}
				return nil
			})
			for name, dial := range map[string]DialFunc{
				"at once": new(net.Dialer).DialContext,
				"in drops": func(ctx context.Context, network, address string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, address)
					return drops{c}, err
				},
			} {
				log, err := (&Client{Dial: dial}).OpenLog([]string{address}, FromEarliest)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err = log.Append(ctx, []byte("k"), []byte("v"))
				trouble := log.Trouble()
				switch {
				case err == nil:
					t.Errorf("%s: appended", name)
				case test.says == "" && trouble != nil, test.says != "" && (trouble == nil || trouble.Error() != address+test.says):
					t.Errorf("%s: %v, trouble %v, want %s%s", name, err, trouble, address, test.says)
				}
				cancel()
				log.Close()
			}
		})
	}
}

// TestTroubleIsOver once an append is granted; until then a member that is gone counts, too.
func TestTroubleIsOver(t *testing.T) {
	refuse := 3
	address := startServer(t, wire.Clients, func(self wire.Node, body any) any {
		switch body.(type) {
		case *wire.MetadataRequest:
			return &wire.MetadataResponse{Brokers: []wire.Node{self}, Replicas: []raft.NodeID{0}, InSync: []raft.NodeID{0}, Epoch: 1}
		case *wire.InitProducerIDRequest:
			return &wire.InitProducerIDResponse{ProducerID: 1}
		default:
			if refuse--; refuse >= 0 {
				return &wire.ProduceResponse{Error: raft.KafkaStorageError}
			}
			return &wire.ProduceResponse{BaseOffset: 7}
		}
	})
	gone := must(net.Listen("tcp", "127.0.0.1:0"))
	_ = gone.Close()
	log, err := new(Client).OpenLog([]string{gone.Addr().String()}, FromEarliest)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.Ping(t.Context()); err == nil || log.Trouble() == nil || !strings.HasPrefix(log.Trouble().Error(), gone.Addr().String()+": ") {
		t.Errorf("nobody answers: %v, trouble %v", err, log.Trouble())
	}
	log, err = new(Client).OpenLog([]string{address}, FromEarliest)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if offset, err := log.Append(t.Context(), []byte("k"), nil); err != nil || offset != 7 || log.Trouble() != nil {
		t.Errorf("appended at %d, %v, trouble %v", offset, err, log.Trouble())
	}
}
