package replica

import (
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// TestVoterIsAddedAndRemembered: the change passes through to the log, and a restart finds it there.
func TestVoterIsAddedAndRemembered(t *testing.T) {
	d := newDriver(t, 1)
	key := raft.ReplicaKey{ID: 1, DirectoryID: raft.UUID{0: 0x10, 15: 1}}
	fetch := func() {
		d.step(Core{Event: raft.Inbound{ID: d.id(), Conn: 1, Request: raft.FetchRequest{
			ClusterID: new("c"), Replica: key, Epoch: d.r.epoch, Offset: d.r.log.End(), LastFetchedEpoch: d.r.epoch, MaxBytes: 1 << 20,
		}}})
	}
	fetch()
	id := d.id()
	d.sends = nil
	d.step(Core{Event: raft.Inbound{ID: id, Request: raft.AddRaftVoterRequest{Voter: key, Endpoints: endpoints(1), AckWhenCommitted: true}}})
	if len(d.sends) != 1 || d.answered(id) {
		t.Fatalf("sends %+v, answered %v: want a probe first", d.sends, d.answered(id))
	}
	d.step(Core{Event: raft.Outcome{Correlation: d.sends[0].Correlation, Response: raft.ApiVersionsResponse{KRaft: &raft.VersionRange{Max: 1}}}})
	if c := d.r.Status().VoterChange; c == nil || c.Kind != raft.ChangeAdd || c.Voter != key {
		t.Errorf("change %+v", c)
	}
	fetch()
	if got := answer[raft.AddRaftVoterResponse](d, id); got.Error != raft.NoError || got.Message != "" {
		t.Fatalf("%+v", got)
	}
	d.reopen()
	if s := d.r.Status(); len(s.Voters) != 2 || !s.Voters.Contains(key) || s.VotersOffset < 0 {
		t.Errorf("after a restart: voters %v of offset %d", s.Voters, s.VotersOffset)
	}
}

// TestLastVoterStays: a refusal comes through with its reason.
func TestLastVoterStays(t *testing.T) {
	d := newDriver(t, 1)
	id := d.id()
	d.step(Core{Event: raft.Inbound{ID: id, Request: raft.RemoveRaftVoterRequest{Voter: self}}})
	if got := answer[raft.RemoveRaftVoterResponse](d, id); got.Error != raft.VoterNotFound || !strings.Contains(got.Message, "last voter") {
		t.Errorf("%+v", got)
	}
}

// TestQuorumStateFollowsKRaftVersion: at version 0 quorum-state has no directory ids, as Kafka wrote it before KIP-853.
func TestQuorumStateFollowsKRaftVersion(t *testing.T) {
	d := &driver{t: t, fs: vfs.NewMem(), answers: map[raft.RequestID]any{}}
	d.static = raft.VoterSet{{Key: raft.ReplicaKey{ID: 0}, Endpoints: endpoints(0)}}
	if err := storage.Format(d.fs, "/data", storage.FormatOptions{ClusterID: "c", NodeID: 0, DirectoryID: self.DirectoryID}); err != nil {
		t.Fatal(err)
	}
	d.open()
	expect := func(version string) {
		t.Helper()
		raw, err := vfs.ReadFile(d.fs, "/data/__cluster_metadata-0/quorum-state")
		if err != nil || !strings.Contains(string(raw), `"data_version":`+version) {
			t.Errorf("quorum-state %s, %v: want version %s", raw, err, version)
		}
	}
	expect("0")
	id := d.id()
	d.step(Core{Event: raft.UpgradeKRaft{ID: id, Version: 1}})
	if got := answer[raft.UpgradeResult](d, id); got.Error != raft.NoError {
		t.Fatalf("%+v", got)
	}
	d.reopen()
	expect("1")
	if s := d.r.Status(); s.KRaftVersion != 1 || s.Role != raft.Leader || !s.Voters.Contains(self) || s.Voters.Contains(raft.ReplicaKey{ID: 0}) {
		t.Errorf("%+v", s)
	}
}
