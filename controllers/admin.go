package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kraft-operator/kraft-operator/controllers/resources"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// Target is a member as the operator reaches it: at the address that its Pod
// has now. Names in DNS may still point to the Pod before it.
type Target struct {
	NodeID int32
	IP     string
	Host   string // its name: what TLS will ask for
}

// QuorumAdmin is what the reconciler needs from a running quorum.
type QuorumAdmin interface {
	// Look asks all targets at once for their own view. The answers are in the
	// targets' order; nil stands for a member that didn't answer in time.
	Look(ctx context.Context, targets []Target) []*status.Member
	// HandOff asks a leader to begin a transfer of leadership. A *status.Problem
	// is the leader's refusal.
	HandOff(ctx context.Context, leader Target, request status.HandoffRequest) (*status.HandoffAccepted, error)
}

const (
	// lookTimeout bounds one look: a member that takes longer to tell its own
	// state is as good as gone, and one pass must not wait for the slowest.
	lookTimeout    = time.Second
	handOffTimeout = 5 * time.Second // to begin; the handoff itself is polled for
	maxAnswerBytes = 1 << 20
)

// httpAdmin asks the members' HEALTH and ADMIN listeners.
type httpAdmin struct{ client *http.Client }

// NewAdmin returns a QuorumAdmin that dials with the given function; nil is
// the usual one.
func NewAdmin(dial func(ctx context.Context, network, address string) (net.Conn, error)) QuorumAdmin {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &httpAdmin{&http.Client{
		// One connection a question: members come and go with their addresses,
		// and an idle connection to one that is gone would only delay its
		// being found out.
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		// A leader that has just resigned would redirect to its successor, and
		// the successor must not be asked to hand over in its place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (a *httpAdmin) Look(ctx context.Context, targets []Target) []*status.Member {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answers := make([]*status.Member, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			m := &status.Member{}
			if a.call(ctx, http.MethodGet, t, resources.HealthPort, status.MemberPath, nil, m) == nil {
				answers[i] = m
			}
		})
	}
	wg.Wait()
	return answers
}

func (a *httpAdmin) HandOff(ctx context.Context, leader Target, request status.HandoffRequest) (*status.HandoffAccepted, error) {
	ctx, cancel := context.WithTimeout(ctx, handOffTimeout)
	defer cancel()
	accepted := &status.HandoffAccepted{}
	if err := a.call(ctx, http.MethodPost, leader, resources.AdminPort, status.HandoffPath, request, accepted); err != nil {
		return nil, err
	}
	return accepted, nil
}

// call makes one request. A body that is a status.Problem becomes the error.
func (a *httpAdmin) call(ctx context.Context, method string, t Target, port int, path string, in, out any) error {
	var body io.Reader = http.NoBody
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	url := "http://" + net.JoinHostPort(t.IP, strconv.Itoa(port)) + path
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if resp.StatusCode >= 300 {
		problem := &status.Problem{}
		if json.Unmarshal(answer, problem) == nil && problem.Code != "" {
			return problem
		}
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	return nil
}
