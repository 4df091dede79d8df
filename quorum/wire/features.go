package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// decodeUpdateFeatures reads the request to raise kraft.version, the one feature there is: what kafka-features sends.
func (c *Codec) decodeUpdateFeatures(r *Request, body []byte) error {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	if err := read(r.Header, body, req); err != nil {
		return err
	}
	refuse := func(code raft.ErrorCode, format string, args ...any) error {
		r.Answer = c.Encode(r, &UpdateFeaturesResponse{Error: code, Message: fmt.Sprintf(format, args...)}, Extra{})
		return nil
	}
	switch {
	case len(req.FeatureUpdates) != 1:
		return refuse(raft.InvalidRequest, "%d features: want one, %s", len(req.FeatureUpdates), kraftVersion)
	case req.FeatureUpdates[0].Feature != kraftVersion:
		return refuse(raft.InvalidUpdateVersion, "feature %q: want %s, there is no other", req.FeatureUpdates[0].Feature, kraftVersion)
	case req.ValidateOnly:
		return refuse(raft.InvalidRequest, "%s cannot be tried without being raised", kraftVersion)
	}
	r.Body = &UpdateFeaturesRequest{KRaftVersion: req.FeatureUpdates[0].MaxVersionLevel}
	return nil
}

func (c *Codec) updateFeatures(r *Request, u *UpdateFeaturesResponse) kmsg.Response {
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	resp.ErrorCode, resp.ErrorMessage = int16(u.Error), message(u.Message)
	if u.Error == raft.NoError && r.Version < 2 { // later the one error stands for all
		resp.Results = []kmsg.UpdateFeaturesResponseResult{{Feature: kraftVersion}}
	}
	return resp
}
