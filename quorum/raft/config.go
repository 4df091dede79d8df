package raft

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Config is all that a Node is told at birth.
type Config struct {
	Self         ReplicaKey // ID None: a reader without identity
	ClusterID    string
	RequireID    bool       // refuse a null cluster id in peers' requests (cluster.id.optional=false)
	Endpoints    []Endpoint // own advertised listeners
	Listener     string     // name of the controller listener, e.g. CONTROLLER
	KRaft        VersionRange
	ObserverOnly bool // never a voter: its Fetch need not wait for the flush
	AutoJoin     bool // an observer asks to be made a voter by itself, in the place of its lost disk if there was one

	StaticVoters VoterSet      // controller.quorum.voters; used until the log or checkpoint has a voter set
	Bootstrap    []Destination // controller.quorum.bootstrap.servers, ids -2, -3, …; if empty, the static voters

	ElectionTimeout    time.Duration // each timer draws from [T, 2T)
	FetchTimeout       time.Duration // a follower's patience; also the base of check-quorum (1.5 F) and heartbeats (F/2)
	ElectionBackoffMax time.Duration // orders the successors that EndQuorumEpoch names
	RequestTimeout     time.Duration
	RetryBackoff       time.Duration // after a failed request; doubles up to ten times that while a destination keeps failing
	AppendLinger       time.Duration // how long a proposal may wait for company; 0: it does not
	FetchMaxWait       time.Duration
	FetchMaxBytes      int
	SnapshotMaxBytes   int // of one FetchSnapshot; 0: FetchMaxBytes
	MaxPending         int // proposals waiting; beyond it they are refused with ThrottlingQuotaExceeded

	Rand    *rand.Rand
	State   ElectionState // from quorum-state; Epoch 0, Leader None, Voted NoReplica if the directory is new
	Log     LogState
	Reserve Reserve // of the disk, as it was found
}

// LogState describes the log as storage recovered it. All of it is durable.
type LogState struct {
	Start    int64
	End      int64
	Epochs   []OffsetAndEpoch // epoch → its first offset, ascending (Offset is the start)
	Snapshot *OffsetAndEpoch  // newest checkpoint other than 0-0
	Earliest *OffsetAndEpoch  // oldest kept one
	// Control records in force, oldest first: from the bootstrap checkpoint or newest snapshot (Offset -1, or the last that
	// the snapshot covers) and from the log.
	Control []ControlAt
}

// ControlAt is a KRaftVersion or Voters record and where it stands; Offset -1: bootstrap checkpoint 0-0.
type ControlAt struct {
	Offset int64
	Record ControlRecord
}

func (c *Config) validate(voters voterHistory) error {
	for _, t := range []struct {
		name string
		d    time.Duration
	}{
		{"controller.quorum.election.timeout.ms", c.ElectionTimeout},
		{"controller.quorum.fetch.timeout.ms", c.FetchTimeout},
		{"controller.quorum.request.timeout.ms", c.RequestTimeout},
		{"controller.quorum.retry.backoff.ms", c.RetryBackoff},
	} {
		if t.d <= 0 {
			return fmt.Errorf("%s is %v: want more than 0", t.name, t.d)
		}
	}
	switch {
	case c.ElectionBackoffMax < 0 || c.AppendLinger < 0 || c.FetchMaxWait < 0:
		return fmt.Errorf("election back-off %v, append linger %v, fetch wait %v: want none negative", c.ElectionBackoffMax, c.AppendLinger, c.FetchMaxWait)
	case c.FetchMaxBytes < 1 || c.SnapshotMaxBytes < 0 || c.MaxPending < 1:
		return fmt.Errorf("fetch size %d, snapshot fetch size %d, pending proposals %d: want at least 1 each", c.FetchMaxBytes, c.SnapshotMaxBytes, c.MaxPending)
	case c.Rand == nil:
		return errors.New("no source of randomness")
	case c.Self.ID == None && c.State.Voted.ID != None:
		return fmt.Errorf("quorum-state holds a vote for node %d but this process has no node id", c.State.Voted.ID)
	case c.Self.ID != None && c.Self.DirectoryID.IsZero() && voters.version() > 0:
		return fmt.Errorf("node %d has no directory id: kraft.version %d needs one", c.Self.ID, voters.version())
	case len(voters.current()) == 0 && len(c.Bootstrap) == 0:
		return errors.New("neither voters nor bootstrap servers: set controller.quorum.bootstrap.servers or controller.quorum.voters")
	case voters.version() < c.KRaft.Min || voters.version() > c.KRaft.Max:
		return fmt.Errorf("kraft.version of the log is %d: this version supports %d to %d", voters.version(), c.KRaft.Min, c.KRaft.Max)
	}
	return nil
}
