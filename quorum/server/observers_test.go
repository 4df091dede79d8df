package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/status"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// SC-01: places of observers are for those that are there. Whoever has not fetched for a while holds none.
func TestSC01PlacesOfObserversThatHaveGone(t *testing.T) {
	s := &server{cfg: &config.Config{MaxObservers: 2}}
	now := raft.Instant(time.Hour)
	v := &view{now: now}
	for i, age := range []time.Duration{time.Second, forgetAfter + time.Second, 2 * forgetAfter} {
		v.Progress = append(v.Progress, raft.ReplicaProgress{Key: raft.ReplicaKey{ID: raft.NodeID(1000 + i)}, LastFetch: now.Add(-age)})
	}
	next := raft.ReplicaKey{ID: 2000}
	if s.tooManyObservers(v, next) {
		t.Error("refused, though one of two places is taken by an observer that is there")
	}
	v.Progress = append(v.Progress, raft.ReplicaProgress{Key: raft.ReplicaKey{ID: 1003}, LastFetch: now})
	if !s.tooManyObservers(v, next) {
		t.Error("let in, though both places are taken")
	}
	if s.tooManyObservers(v, v.Progress[1].Key) {
		t.Error("one that comes back to its old place is refused")
	}
}

// SC-01: two hundred observers come, fetch for two seconds, and come again with a new directory. The leader lists those
// that are there and of each the last that was, and is busy for less than a fifth of the time.
func TestSC01FlappingObserversKeepNobodyBusy(t *testing.T) {
	const observers = 200
	c := newCluster(t, 1, 0, fmt.Sprintf("quorum.max.observers=%d", 3*observers), fmt.Sprintf("max.connections.per.ip=%d", 2*observers))
	m := c.leader()
	before := c.status(m)
	ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
	defer cancel()
	var flapping sync.WaitGroup
	for i := range observers {
		flapping.Go(func() {
			for life := byte(1); ctx.Err() == nil; life++ {
				key := raft.ReplicaKey{ID: raft.NodeID(1000 + i), DirectoryID: raft.UUID{life, byte(i)}}
				if err := observe(ctx, m.listeners[config.Controller], key, before, 2*time.Second); err != nil && ctx.Err() == nil {
					t.Errorf("observer %d, life %d: %v", i, life, err)
					return
				}
			}
		})
	}
	flapping.Wait()
	after := c.status(m)
	if after.Role != "Leader" || after.Epoch != before.Epoch {
		t.Errorf("%s of epoch %d, was Leader of %d", after.Role, after.Epoch, before.Epoch)
	}
	if n := len(after.Observers); n < observers || n > 2*observers {
		t.Errorf("%d observers are listed, want %d and at most as many that have gone", n, observers)
	}
	idle := c.metric(m, "kafka_server_raft_metrics_poll_idle_ratio_avg")
	t.Logf("%.3f idle", idle)
	if idle < 0.8 {
		t.Errorf("the loop is idle for %.3f of the time, want 0.8", idle)
	}
}

// observe fetches as an observer that has what the leader has, for a while.
func observe(ctx context.Context, address string, key raft.ReplicaKey, leader *status.Member, life time.Duration) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in := bufio.NewReader(conn)
	versions, err := transport.Handshake(conn, in, "flapping")
	if err != nil {
		return err
	}
	codec := wire.Codec{Topic: topic, TopicID: raft.UUID{15: 1}, ClientID: "flapping"}
	r := raft.FetchRequest{
		ClusterID: new(testCluster), Replica: key, Epoch: raft.Epoch(leader.Epoch), Offset: leader.LogEndOffset, LastFetchedEpoch: raft.Epoch(leader.Epoch),
		HighWatermark: leader.HighWatermark, MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20,
	}
	for began, n := time.Now(), int32(1); time.Since(began) < life; n++ {
		version, _ := versions.VersionFor(r)
		frame, err := codec.EncodeRequest(version, n, r, nil)
		if err != nil {
			return err
		}
		if _, err := conn.Write(frame); err != nil {
			return err
		}
		answer, err := transport.ReadFrame(in)
		if err != nil {
			return err
		}
		reply, err := codec.DecodeResponse(wire.Header{Key: wire.KeyOf(r), Version: version, Correlation: n}, answer)
		if err != nil {
			return err
		}
		if f := reply.Response.(raft.FetchResponse); f.TopError != raft.NoError || f.Error != raft.NoError {
			return fmt.Errorf("fetch: %+v", f.Header)
		}
	}
	return nil
}
