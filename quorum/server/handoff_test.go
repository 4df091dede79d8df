package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// post sends a handoff request to one member, following no redirect. In a new quorum the voters tell the leader their
// listeners, one after the other: while it writes that down no handoff begins, so it is asked again.
func (c *cluster) post(m *testMember, request any) (code int, answer []byte, header http.Header) {
	c.t.Helper()
	c.await("no voter change to be under way", func() bool {
		code, answer, header = c.postOnce(m, request)
		return !bytes.Contains(answer, []byte("a voter change is under way"))
	})
	return code, answer, header
}

func (c *cluster) postOnce(m *testMember, request any) (int, []byte, http.Header) {
	c.t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		c.t.Fatal(err)
	}
	client := *httpClient
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := client.Post("http://"+m.listeners[config.Admin]+status.HandoffPath, "application/json", bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Body.Close()
	answer, _ := io.ReadAll(r.Body)
	return r.StatusCode, answer, r.Header
}

// lead waits for a leader, and hands the lead to m if it is another. m may run in another process.
func (c *cluster) lead(m *testMember) {
	c.t.Helper()
	if leader := c.leader(); leader != m {
		h := map[string]any{"target": map[string]any{"nodeID": m.id}}
		c.await("the lead to be handed over", func() bool { // not before the target is known to be there
			code, answer, _ := c.post(leader, h)
			if code != http.StatusAccepted {
				c.t.Logf("handoff to %d: %d %s", m.id, code, answer)
			}
			return code == http.StatusAccepted
		})
	}
	c.await("the member to lead", func() bool { s := c.status(m); return s != nil && s.Role == "Leader" && s.EpochCommitted })
}

func TestHandoffUnderLoadMovesTheLeadToTheTarget(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	l := c.load(4)
	c.appendsGoOn()
	for i, target := range []*testMember{c.members[0], c.members[1], c.members[2], c.members[0]} {
		if target == leader {
			continue
		}
		before := c.status(leader)
		code, body, _ := c.post(leader, status.HandoffRequest{ExpectEpoch: before.Epoch, Target: &status.ReplicaKey{NodeID: int32(target.id)}})
		var accepted status.HandoffAccepted
		if err := json.Unmarshal(body, &accepted); code != http.StatusAccepted || err != nil || accepted.ID == "" {
			t.Fatalf("handoff %d: %d %s", i, code, body)
		}
		var done *status.Handoff
		c.await("the handoff to be over", func() bool {
			s := c.status(leader)
			if s == nil || s.Handoff == nil || s.Handoff.ID != accepted.ID || !s.Handoff.Done() {
				return false
			}
			done = s.Handoff
			return true
		})
		if done.Phase != status.Succeeded || done.To != int32(target.id) || done.ToEpoch != before.Epoch+1 {
			t.Fatalf("handoff %d from epoch %d to node %d ended as %+v", i, before.Epoch, target.id, done)
		}
		if gap := done.WriteGap.Std(); gap <= 0 || gap > time.Second || done.MeasuredBy != "old-leader" {
			t.Errorf("handoff %d: write gap %v measured by %q", i, gap, done.MeasuredBy)
		}
		t.Logf("handoff to %d: converge %v, write gap %v", target.id, done.Converge, done.WriteGap)
		leader = target
		c.appendsGoOn()
	}
	t.Logf("longest gap %v", l.end())
}

func TestHandoffIsRefusedWithAReason(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	epoch := c.status(leader).Epoch
	tests := []struct {
		name    string
		request any
		code    int
		says    string
	}{
		{"another epoch", status.HandoffRequest{ExpectEpoch: epoch + 1}, http.StatusConflict, "epoch"},
		{"to an observer", status.HandoffRequest{Target: &status.ReplicaKey{NodeID: 1000}}, http.StatusConflict, "1000"},
		{"to itself", status.HandoffRequest{Target: &status.ReplicaKey{NodeID: int32(leader.id)}}, http.StatusConflict, fmt.Sprint(leader.id)},
		{"to nobody", status.HandoffRequest{Target: &status.ReplicaKey{NodeID: 77}}, http.StatusConflict, "77"},
		{"a negative id", status.HandoffRequest{Target: &status.ReplicaKey{NodeID: -4}}, http.StatusBadRequest, "-4"},
		{"a field that is not known", map[string]any{"targt": 1}, http.StatusBadRequest, "targt"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, body, _ := c.post(leader, test.request)
			var p status.Problem
			if err := json.Unmarshal(body, &p); err != nil || code != test.code || !strings.Contains(p.Message, test.says) {
				t.Errorf("answered %d %s, want %d and a message with %q", code, body, test.code, test.says)
			}
		})
	}
	if s := c.status(leader); s.Role != "Leader" || s.Epoch != epoch {
		t.Errorf("after refusals: %s in epoch %d", s.Role, s.Epoch)
	}
}

func TestHandoffDryRunChangesNothing(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	epoch := c.status(leader).Epoch
	code, body, _ := c.post(leader, status.HandoffRequest{DryRun: true})
	var accepted status.HandoffAccepted
	if err := json.Unmarshal(body, &accepted); err != nil || code != http.StatusOK || !accepted.DryRun || accepted.ID != "" || accepted.Target.NodeID == int32(leader.id) {
		t.Fatalf("dry run: %d %s", code, body)
	}
	if s := c.status(leader); s.Role != "Leader" || s.Epoch != epoch || s.Handoff != nil {
		t.Errorf("after a dry run: %s in epoch %d, handoff %+v", s.Role, s.Epoch, s.Handoff)
	}
}

func TestAdminRedirectsToTheLeader(t *testing.T) {
	c := newCluster(t, 3, 1)
	leader := c.leader()
	for _, m := range c.members {
		if m == leader {
			continue
		}
		code, body, header := c.post(m, status.HandoffRequest{DryRun: true})
		want := "http://" + leader.listeners[config.Admin] + status.HandoffPath
		if code != http.StatusTemporaryRedirect || header.Get("Location") != want {
			t.Errorf("member %d answered %d to %q (%s), want a redirect to %s", m.id, code, header.Get("Location"), body, want)
		}
	}
}
