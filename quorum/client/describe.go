package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// Quorum is what the leader knows of its quorum (DescribeQuorum).
type Quorum struct {
	ClusterID            string    `json:"clusterId"`
	LeaderID             int32     `json:"leaderId"`
	LeaderEpoch          int32     `json:"leaderEpoch"`
	HighWatermark        int64     `json:"highWatermark"`        // -1: not known yet in this epoch
	MaxFollowerLag       int64     `json:"maxFollowerLag"`       // offsets, of the voter that is furthest behind
	MaxFollowerLagTimeMs int64     `json:"maxFollowerLagTimeMs"` // since that voter was last caught up; -1: never
	Voters               []Replica `json:"voters"`
	Observers            []Replica `json:"observers"`
}

// Replica is one line of a Quorum. Times are milliseconds since 1970 by the leader's clock, -1 if it never happened.
type Replica struct {
	NodeID                int32      `json:"nodeId"`
	DirectoryID           string     `json:"directoryId"` // 22 zeros of base64url: none
	LogEndOffset          int64      `json:"logEndOffset"`
	Lag                   int64      `json:"lag"`
	LastFetchTimestamp    int64      `json:"lastFetchTimestamp"`
	LastCaughtUpTimestamp int64      `json:"lastCaughtUpTimestamp"`
	Status                string     `json:"status"` // Leader, Follower or Observer
	Endpoints             []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is a listener of a voter.
type Endpoint struct {
	Name string `json:"name"`
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

func (e Endpoint) String() string { return e.Name + "://" + e.Address() }

// Address is HOST:PORT.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Leader returns the leader's own line.
func (q *Quorum) Leader() (Replica, bool) {
	for _, list := range [][]Replica{q.Voters, q.Observers} {
		for _, r := range list {
			if r.NodeID == q.LeaderID {
				return r, true
			}
		}
	}
	return Replica{}, false
}

// Endpoint returns the address of a voter's listener, if the quorum tells it.
func (q *Quorum) Endpoint(node int32, listener string) (Endpoint, bool) {
	for _, r := range q.Voters {
		if r.NodeID != node {
			continue
		}
		for _, e := range r.Endpoints {
			if e.Name == listener {
				return e, true
			}
		}
	}
	return Endpoint{}, false
}

// DescribeQuorum finds the leader by way of any of the bootstrap servers (addresses of CONTROLLER listeners) and asks
// it. While there is none, it goes on trying until the context ends; if no server can help at all, it says at once why.
func (c *Client) DescribeQuorum(ctx context.Context, bootstrap []string) (*Quorum, error) {
	v, err := c.view(ctx, bootstrap)
	if err != nil {
		return nil, err
	}
	return v.Quorum, nil
}

// view is a quorum as its leader describes it, and how the members are reached.
type view struct {
	*Quorum
	leader string           // the leader's CONTROLLER address
	nodes  map[int32]string // CONTROLLER addresses of the members that are known
}

func (c *Client) view(ctx context.Context, bootstrap []string) (*view, error) {
	var why error
	for {
		var failed attempts
		again := false
		for _, address := range bootstrap {
			v, soon, err := c.viewBy(ctx, address)
			if err == nil {
				return v, nil
			}
			failed.add(err)
			again = again || soon
		}
		if why == nil || !over(ctx) { // a round that the end of the time cut short says less than the one before
			why = failed.error("no leader was found")
		}
		if !again || !pause(ctx, retryAfter) {
			return nil, why
		}
	}
}

// viewBy asks one member who leads, and then that one. soon tells that an error is one of an election that is under way,
// and may pass by itself.
func (c *Client) viewBy(ctx context.Context, address string) (v *view, soon bool, err error) {
	v = &view{nodes: map[int32]string{}}
	var clusterID string
	var leaderID int32
	err = c.with(ctx, address, func(k *conn) error {
		cluster, err := k.describeCluster()
		if err != nil {
			return err
		}
		clusterID, leaderID = cluster.ClusterID, cluster.ControllerID
		for _, b := range cluster.Brokers {
			v.nodes[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
		v.leader = v.nodes[cluster.ControllerID]
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if v.leader == "" {
		return nil, true, fmt.Errorf("%s: knows no leader", address)
	}
	err = c.with(ctx, v.leader, func(k *conn) error {
		v.Quorum, err = c.describeQuorum(k)
		return err
	})
	if _, answered := errors.AsType[*Error](err); err != nil && !answered && v.leader != address {
		err = fmt.Errorf("%s says that node %d leads: %w", address, leaderID, err)
	}
	if err != nil {
		return nil, true, err
	}
	v.ClusterID = clusterID
	return v, false, nil
}

func (k *conn) describeCluster() (*kmsg.DescribeClusterResponse, error) {
	req, resp := kmsg.NewPtrDescribeClusterRequest(), kmsg.NewPtrDescribeClusterResponse()
	req.EndpointType = wire.EndpointControllers
	if err := k.request(req, 1, resp); err != nil {
		return nil, err
	}
	if raft.ErrorCode(resp.ErrorCode) == wire.MismatchedEndpointType {
		return nil, errors.New("is for clients: want the CONTROLLER address of a member")
	}
	return resp, check(resp.ErrorCode, resp.ErrorMessage)
}

func (c *Client) describeQuorum(k *conn) (*Quorum, error) {
	req, resp := kmsg.NewPtrDescribeQuorumRequest(), kmsg.NewPtrDescribeQuorumResponse()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: c.topic(), Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	if err := k.request(req, 0, resp); err != nil {
		return nil, err
	}
	if err := check(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("answers for %d topics instead of %s", len(resp.Topics), c.topic())
	}
	p := resp.Topics[0].Partitions[0]
	if err := check(p.ErrorCode, p.ErrorMessage); err != nil {
		return nil, err
	}
	return quorumOf(p, resp.Nodes), nil
}

func quorumOf(p kmsg.DescribeQuorumResponseTopicPartition, nodes []kmsg.DescribeQuorumResponseNode) *Quorum {
	q := &Quorum{LeaderID: p.LeaderID, LeaderEpoch: p.LeaderEpoch, HighWatermark: p.HighWatermark, Voters: []Replica{}, Observers: []Replica{}}
	leader := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	for _, s := range append(append([]kmsg.DescribeQuorumResponseTopicPartitionReplicaState{}, p.Observers...), p.CurrentVoters...) {
		if s.ReplicaID == p.LeaderID {
			leader = s
		}
	}
	line := func(s kmsg.DescribeQuorumResponseTopicPartitionReplicaState, status string) Replica {
		if s.ReplicaID == p.LeaderID {
			status = "Leader"
		}
		return Replica{
			NodeID: s.ReplicaID, DirectoryID: raft.UUID(s.ReplicaDirectoryID).String(), LogEndOffset: s.LogEndOffset,
			Lag: leader.LogEndOffset - s.LogEndOffset, LastFetchTimestamp: s.LastFetchTimestamp,
			LastCaughtUpTimestamp: s.LastCaughtUpTimestamp, Status: status,
		}
	}
	for _, s := range p.CurrentVoters {
		r := line(s, "Follower")
		for _, n := range nodes {
			if n.NodeID != s.ReplicaID {
				continue
			}
			for _, l := range n.Listeners {
				r.Endpoints = append(r.Endpoints, Endpoint{l.Name, l.Host, l.Port})
			}
		}
		q.Voters = append(q.Voters, r)
		q.MaxFollowerLag = max(q.MaxFollowerLag, r.Lag)
		switch {
		case r.Status == "Leader" || q.MaxFollowerLagTimeMs < 0:
		case r.LastCaughtUpTimestamp < 0:
			q.MaxFollowerLagTimeMs = -1
		default:
			q.MaxFollowerLagTimeMs = max(q.MaxFollowerLagTimeMs, leader.LastCaughtUpTimestamp-r.LastCaughtUpTimestamp)
		}
	}
	for _, s := range p.Observers {
		q.Observers = append(q.Observers, line(s, "Observer"))
	}
	return q
}
