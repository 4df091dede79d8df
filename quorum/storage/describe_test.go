package storage_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

func TestDescribe(t *testing.T) {
	fsys := formatted(t)
	d := open(t, fsys, opts)
	if err := d.WriteElectionState(raft.ElectionState{Epoch: 3, Leader: 1, Voted: raft.NoReplica}, 1, nil); err != nil {
		t.Fatal(err)
	}
	idempotent, err := record.NewBuilder(1005, record.None).Producer(77, 0, 4).
		Append(1005, []byte("key"), []byte("value")).Append(1006, []byte("key"), nil).Build(1, 3)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, d, record.EncodeControl(0, 3, 1000, raft.LeaderChange{Leader: 1, Voters: []raft.NodeID{1, 2}, Granting: []raft.NodeID{1}}), idempotent)
	mustFlush(t, d)
	d.MarkCommitted(0, 3)
	mustClose(t, d)
	writeFile(t, fsys, logDir+"/00000000000000000003.log", "x")

	const want = `.lock: not read
00000000000000000000-0000000000.checkpoint
  position: 0 offsets: 0-2 epoch: 0 records: 3 bytes: 159 time: 1000 crc: cdbde8a7 control
    offset: 0 SnapshotHeader lastContainedLogTimestamp: 1000
    offset: 1 KRaftVersion 1
    offset: 2 Voters 1@ABEiM0RVZneImaq7zN3u_w CONTROLLER://q-1:9093 kraft.version: 0-1
  position: 159 offsets: 3-3 epoch: 0 records: 1 bytes: 75 time: 1000 crc: 8db697cb control
    offset: 3 SnapshotFooter
00000000000000000000.log
  position: 0 offsets: 0-0 epoch: 3 records: 1 bytes: 96 time: 1000 crc: f1fcfdec control
    offset: 0 LeaderChange leader: 1 voters: [1 2] granting: [1]
  position: 96 offsets: 1-2 epoch: 3 records: 2 bytes: 86 time: 1006 crc: 02bb593d producer: 77 epoch: 0 sequences: 4-5
00000000000000000003.log
  damaged: position 0 of 1: batch is not whole
committed
  epoch: 3 offset: 3
leader-epoch-checkpoint
  epoch: 3 offset: 0
partition.metadata
  topicId: AAAAAAAAAAAAAAAAAAAAAQ
quorum-state
  epoch: 3 leader: 1 voted: -1
meta.properties
  clusterId: clusterA nodeId: 1 directoryId: ABEiM0RVZneImaq7zN3u_w
`
	var got strings.Builder
	if err := storage.Describe(&got, fsys, dataDir); err == nil || !strings.Contains(err.Error(), "00000000000000000003.log") {
		t.Errorf("the damaged file is not named: %v", err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}
