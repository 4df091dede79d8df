package wire

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// decodeDescribeQuorum reads the request for the quorum's progress. For any other topic each partition gets an error.
func (c *Codec) decodeDescribeQuorum(r *Request, body []byte) error {
	req := kmsg.NewPtrDescribeQuorumRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	if len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1 && c.named(req.Topics[0].Topic, req.Topics[0].Partitions[0].Partition) {
		r.Body = raft.DescribeQuorumRequest{}
		return nil
	}
	resp := kmsg.NewPtrDescribeQuorumResponse()
	for _, t := range req.Topics {
		topic := kmsg.DescribeQuorumResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out := kmsg.NewDescribeQuorumResponseTopicPartition()
			out.Partition, out.ErrorCode = p.Partition, int16(raft.UnknownTopicOrPartition)
			out.ErrorMessage = new(fmt.Sprintf("this quorum keeps partition 0 of topic %s", c.Topic))
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	r.Answer = responseFrame(r.Header, resp)
	return nil
}

func (c *Codec) describeQuorum(d raft.DescribeQuorumResponse, x Extra) kmsg.Response {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.ErrorCode, p.LeaderID, p.LeaderEpoch, p.HighWatermark = int16(d.Error), int32(d.Leader), int32(d.Epoch), d.HighWatermark
	p.CurrentVoters, p.Observers = replicaStates(d.Voters, x), replicaStates(d.Observers, x)
	resp.Topics = []kmsg.DescribeQuorumResponseTopic{{Topic: c.Topic, Partitions: []kmsg.DescribeQuorumResponseTopicPartition{p}}}
	for _, v := range d.Nodes {
		node := kmsg.DescribeQuorumResponseNode{NodeID: int32(v.Key.ID)}
		for _, e := range v.Endpoints {
			node.Listeners = append(node.Listeners, kmsg.DescribeQuorumResponseNodeListener{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		resp.Nodes = append(resp.Nodes, node)
	}
	return resp
}

func replicaStates(progress []raft.ReplicaProgress, x Extra) []kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	out := make([]kmsg.DescribeQuorumResponseTopicPartitionReplicaState, 0, len(progress))
	for _, p := range progress {
		out = append(out, kmsg.DescribeQuorumResponseTopicPartitionReplicaState{
			ReplicaID: int32(p.Key.ID), ReplicaDirectoryID: p.Key.DirectoryID, LogEndOffset: p.LogEnd,
			LastFetchTimestamp: wallMillis(p.LastFetch, x), LastCaughtUpTimestamp: wallMillis(p.LastCaughtUp, x),
		})
	}
	return out
}

// wallMillis turns the core's monotonic time into Kafka's. It is never in the future: Kafka's tool refuses that.
func wallMillis(at raft.Instant, x Extra) int64 {
	if at < 0 {
		return -1
	}
	return x.Wall.Add(-max(time.Duration(x.Now-at), 0)).UnixMilli()
}

// decodeDescribeCluster reads the request for the members' addresses. Each listener answers for its own kind
// (KIP-919): controllers on the one for peers, brokers on the one for clients.
func (c *Codec) decodeDescribeCluster(r *Request, body []byte) error {
	req := kmsg.NewPtrDescribeClusterRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	own, other := c.endpointType(), EndpointBrokers+EndpointControllers-c.endpointType()
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterID, resp.ControllerID, resp.EndpointType = c.ClusterID, -1, req.EndpointType
	switch {
	case r.Version == 0 && c.Serves == Peers:
		resp.ErrorCode = int16(raft.InvalidRequest)
		resp.ErrorMessage = new("controllers are described from version 1 on")
	case req.EndpointType == own:
		r.Body = &DescribeClusterRequest{}
		return nil
	case req.EndpointType == other:
		resp.ErrorCode = int16(MismatchedEndpointType)
		resp.ErrorMessage = new(fmt.Sprintf("listener %s describes endpoints of type %d", c.Listener, own))
	default:
		resp.ErrorCode = int16(UnsupportedEndpointType)
		resp.ErrorMessage = new(fmt.Sprintf("endpoint type %d is not known", req.EndpointType))
	}
	r.Answer = responseFrame(r.Header, resp)
	return nil
}

func (c *Codec) endpointType() int8 {
	if c.Serves == Peers {
		return EndpointControllers
	}
	return EndpointBrokers
}

func (c *Codec) describeCluster(d *DescribeClusterResponse) kmsg.Response {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType, resp.ClusterID, resp.ControllerID = c.endpointType(), c.ClusterID, -1
	for _, n := range d.Nodes {
		resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: int32(n.ID), Host: n.Host, Port: int32(n.Port), Rack: message(n.Rack)})
		if n.ID == d.Controller {
			resp.ControllerID = int32(n.ID)
		}
	}
	return resp
}
