package controllers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
)

// TestSC01StatusIsBounded: 500 observers' claims with the longest names, and a leader whose books hold 12,000 more that came
// and went (SC-01), make no object that the API server refuses, and no voter is missing in it.
func TestSC01StatusIsBounded(t *testing.T) {
	s := appending(passTime, 1<<62)
	long := func(n int, id int32) string { return fmt.Sprintf("%s-%d", strings.Repeat("x", n-5), id) }
	follows := func(id int32, dir string) plan.Progress {
		return plan.Progress{NodeID: id, DirectoryID: dir, LogEnd: 1 << 61, CaughtUpAge: new(time.Duration(0))}
	}
	for n := range int32(500) {
		id := v1alpha1.FirstObserverID + n
		claim := long(63, id)
		s.obs.Claims = append(s.obs.Claims, plan.Claim{Name: claim, UID: types.UID(claim), NodeID: id})
		s.obs.Pods = append(s.obs.Pods, plan.Pod{
			Name: long(63, id), NodeID: id, Claim: claim, Phase: "Running", Node: long(253, id), Revision: long(63, id),
			Problem: "CreateContainerConfigError", Token: "DIRECTORY_ID_MISMATCH",
		})
		s.obs.View.Observers = append(s.obs.View.Observers, follows(id, fmt.Sprintf("%022d", id)))
	}
	for n := range int32(12_000) {
		s.obs.View.Observers = append(s.obs.View.Observers, follows(2000+n%200, fmt.Sprintf("%022d", n)))
	}
	next := statusOf(s, plan.Step{Reason: v1alpha1.ReasonUpToDate}, nil)
	text, err := json.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d members are listed in %d bytes", len(next.Members), len(text))
	if len(text) >= 256<<10 {
		t.Errorf("the status has %d bytes, want less than 256 KiB", len(text))
	}
	if len(next.Members) != 1+maxObserversListed || next.Members[0].Role != v1alpha1.RoleVoter {
		t.Errorf("%d members are listed, want the voter and %d observers", len(next.Members), maxObserversListed)
	}
	if next.Observers.Replicas != 500 {
		t.Errorf("%d observers are counted, want 500", next.Observers.Replicas)
	}
}
