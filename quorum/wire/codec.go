package wire

import (
	"fmt"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Codec knows what one listener speaks. It holds no state and may be used by all connections at once.
type Codec struct {
	Serves    Serves
	Listener  string // name of the listener: responses carry addresses of this one
	ClusterID string
	Topic     string
	TopicID   raft.UUID
	ClientID  string // what requests to peers carry

	KRaft    *raft.VersionRange // kraft.version we support; nil (observer.only) leaves the feature out, so that nobody adds us as a voter
	Features func() Features    // what is finalized; may be called by any goroutine; nil: not known
}

// Extra is what responses need beside the core's answer.
type Extra struct {
	Records [][]byte     // Fetch: whole batches; FetchSnapshot: bytes of the snapshot. Sent as they are and not copied
	Apart   int          // FetchSnapshot, or Fetch that Splits: how many of these bytes the sender puts behind the frame's first piece
	Table   *MemberTable // Fetch of a replica: sent if not nil
	Now     raft.Instant // DescribeQuorum: what the clocks show at this moment
	Wall    time.Time
}

// Decode reads one request frame (without its length prefix). The result may alias the frame. An error means that the
// connection must be closed; it says why in one sentence.
func (c *Codec) Decode(frame []byte) (*Request, error) {
	h, body, err := ReadHeader(frame)
	if err != nil {
		return nil, err
	}
	r := &Request{Header: h}
	offered, ok := c.Serves.find(h.Key)
	if !ok {
		return nil, fmt.Errorf("request with key %d (%s) is not served by listener %s", h.Key, KeyName(h.Key), c.Listener)
	}
	if h.Version < offered.Min || h.Version > offered.Max {
		if h.Key == ApiVersions {
			r.Answer = c.apiVersionsTooHigh(h)
			return r, nil
		}
		return nil, fmt.Errorf("%v is not served by listener %s: versions %d to %d are", h, c.Listener, offered.Min, offered.Max)
	}
	switch {
	case h.Key == ApiVersions:
		err = c.decodeApiVersions(r, body)
	case h.Key == DescribeCluster:
		err = c.decodeDescribeCluster(r, body)
	case h.Key == DescribeQuorum:
		err = c.decodeDescribeQuorum(r, body)
	case h.Key == UpdateFeatures:
		err = c.decodeUpdateFeatures(r, body)
	case c.Serves == Peers:
		err = c.decodePeer(r, body)
	default:
		err = c.decodeClient(r, body)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Encode makes the response frame to r. The response is a raft.Response or one of this package's …Response types,
// the one that matches r.Body; a ProduceRequest with Acks 0 must not be answered at all.
func (c *Codec) Encode(r *Request, response any, x Extra) Frame {
	switch response := response.(type) {
	case raft.DescribeQuorumResponse:
		return responseFrame(r.Header, c.describeQuorum(response, x))
	case raft.FetchResponse:
		return fetchFrame(r.Header, c.peerFetchResponse(r.Header, response, x), x.Records, x.Apart)
	case raft.FetchSnapshotResponse:
		return splice(r.Header, c.fetchSnapshotResponse(response), c.snapshotBytesAt(), x.Records, x.Apart)
	case raft.Response:
		return responseFrame(r.Header, c.peerResponse(response))
	case *DescribeClusterResponse:
		return responseFrame(r.Header, c.describeCluster(response))
	case *UpdateFeaturesResponse:
		return responseFrame(r.Header, c.updateFeatures(r, response))
	default:
		return c.encodeClient(r, response, x)
	}
}

func (c *Codec) decodeApiVersions(r *Request, body []byte) error {
	req := kmsg.NewPtrApiVersionsRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if r.Version >= 3 && !(software.MatchString(req.ClientSoftwareName) && software.MatchString(req.ClientSoftwareVersion)) {
		resp.ErrorCode = int16(raft.InvalidRequest)
		r.Answer = responseFrame(r.Header, resp)
		return nil
	}
	for _, o := range offers[c.Serves] {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = o.key, o.Min, o.Max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	// Before version 4 a feature that starts at 0 must not be shown: it crashes old clients (KAFKA-17011).
	if c.KRaft != nil && (c.KRaft.Min > 0 || r.Version >= 4) {
		f := kmsg.NewApiVersionsResponseSupportedFeature()
		f.Name, f.MinVersion, f.MaxVersion = kraftVersion, c.KRaft.Min, c.KRaft.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, f)
	}
	if c.Features != nil {
		if f := c.Features(); f.Epoch >= 0 {
			resp.FinalizedFeaturesEpoch = f.Epoch
			if f.KRaftVersion > 0 {
				v := kmsg.NewApiVersionsResponseFinalizedFeature()
				v.Name, v.MinVersionLevel, v.MaxVersionLevel = kraftVersion, f.KRaftVersion, f.KRaftVersion
				resp.FinalizedFeatures = append(resp.FinalizedFeatures, v)
			}
		}
	}
	r.Answer = responseFrame(r.Header, resp)
	return nil
}

const kraftVersion = "kraft.version"

// software is what Kafka takes for the name and the version of a client's software.
var software = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)

// apiVersionsTooHigh tells a peer that speaks a newer ApiVersions what we speak of it. It must be version 0: the peer
// could not read anything else.
func (c *Codec) apiVersionsTooHigh(h Header) Frame {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = int16(raft.UnsupportedVersion)
	offered, _ := c.Serves.find(ApiVersions)
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = ApiVersions, offered.Min, offered.Max
	resp.ApiKeys = append(resp.ApiKeys, k)
	h.Version = 0
	return responseFrame(h, resp)
}
