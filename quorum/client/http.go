package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// maxBody bounds what a member may answer.
const maxBody = 4 << 20

// Status asks one member for its own view: GET /v1/status on HEALTH. Address is HOST:PORT or a URL.
func (c *Client) Status(ctx context.Context, address string) (*status.Member, error) {
	var m status.Member
	if err := c.call(ctx, http.MethodGet, address, status.MemberPath, nil, &m, false); err != nil {
		return nil, err
	}
	return &m, nil
}

// Handoff asks the member at an ADMIN address to hand leadership over. If it does not lead, the leader that it names
// is asked instead, unless here is set: then that answer is a *status.Problem like any other refusal.
func (c *Client) Handoff(ctx context.Context, address string, request status.HandoffRequest, here bool) (*status.HandoffAccepted, error) {
	var accepted status.HandoffAccepted
	if err := c.call(ctx, http.MethodPost, address, status.HandoffPath, request, &accepted, !here); err != nil {
		return nil, err
	}
	return &accepted, nil
}

// graceForGap is how long AwaitHandoff waits for the old leader's figure once it knows how a handoff ended: the old
// leader measures the whole gap, the successor only its part of it.
const graceForGap = 500 * time.Millisecond

// AwaitHandoff polls until an accepted handoff has ended, by the word of any of the members at these HEALTH addresses:
// the old leader and those who may succeed it. seen, if not nil, is told of each new phase. The error says that the
// context ended first; the result is then the last that was seen, if any.
func (c *Client) AwaitHandoff(ctx context.Context, accepted *status.HandoffAccepted, health []string, seen func(status.Handoff)) (*status.Handoff, error) {
	var last *status.Handoff
	var ended time.Time
	for {
		for _, m := range c.Look(ctx, health) {
			if m == nil || m.Handoff == nil || !sameHandoff(m.Handoff, accepted) || last != nil && progress(*m.Handoff) <= progress(*last) {
				continue
			}
			if seen != nil && (last == nil || last.Phase != m.Handoff.Phase) {
				seen(*m.Handoff)
			}
			if last = m.Handoff; last.Done() && ended.IsZero() {
				ended = time.Now()
			}
		}
		done := last != nil && last.Done()
		if done && (last.Phase != status.Succeeded || last.WriteGap > 0 && last.MeasuredBy == oldLeader || time.Since(ended) > graceForGap) {
			return last, nil
		}
		t := time.NewTimer(5 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			if done {
				return last, nil
			}
			return last, fmt.Errorf("the handoff from node %d to node %d did not end in time", accepted.From, accepted.Target.NodeID)
		}
	}
}

const oldLeader = "old-leader"

// progress orders what members tell of one handoff: later phases, then better measured gaps.
func progress(h status.Handoff) int {
	n := 4 * slices.Index([]string{status.Converging, status.Pausing, status.Resigned, status.Succeeded, status.Aborted, status.Failed}, h.Phase)
	if h.WriteGap > 0 {
		n++
	}
	if h.WriteGap > 0 && h.MeasuredBy == oldLeader {
		n++
	}
	return n
}

// sameHandoff recognizes a handoff: the old leader knows its id, the successor only from where and in which epoch.
func sameHandoff(h *status.Handoff, a *status.HandoffAccepted) bool {
	return h.ID == a.ID && a.ID != "" || h.ID == "" && h.From == a.From && h.FromEpoch == a.Epoch
}

func (c *Client) call(ctx context.Context, method, address, path string, in, out any, follow bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	url := strings.TrimSuffix(address, "/")
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	if !strings.HasSuffix(url, path) {
		url += path
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	h := http.Client{
		// One connection a question: members come and go with their addresses.
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return c.dial(ctx, address) },
			DisableKeepAlives: true,
		},
	}
	if !follow {
		h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	resp, err := h.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: does not answer in time", address)
		}
		return short(address, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return short(address, err)
	}
	if resp.StatusCode >= 300 {
		problem := &status.Problem{}
		if json.Unmarshal(answer, problem) == nil && problem.Code != "" {
			return fmt.Errorf("%s: %w", resp.Request.URL.Host, problem)
		}
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("answer of %s: %w", url, err)
	}
	return nil
}
