package controllers

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
)

// The parts of a pass that need no API server.

var passTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// appending is a pass at a quorum of one whose leader's log ends at end.
func appending(at time.Time, end int64) *scene {
	mq := &v1alpha1.MetadataQuorum{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns", UID: "u-q", Generation: 3}}
	o := plan.Observation{
		Now: at, Want: wantOf(mq, "image"),
		Identity: &plan.Identity{ClusterID: "cluster", Sealed: true, Voters: []plan.InitialVoter{{NodeID: 0, Claim: "c0", ClaimUID: "u-c0"}}},
		Claims:   []plan.Claim{{Name: "c0", UID: "u-c0", FormattedFor: "u-c0"}},
		Pods:     []plan.Pod{{Name: "q-0", UID: "u-0", Claim: "c0", Phase: "Running", Running: true, Ready: true, Started: passTime.Add(-time.Hour)}},
		View: &plan.View{
			Leader: 0, Epoch: 7, ConfirmedBy: 1, At: at, Committed: true, HighWatermark: end, LogEnd: end,
			Voters: []plan.Progress{{NodeID: 0, LogEnd: end, CaughtUpAge: new(time.Duration(0))}},
		},
	}
	return &scene{mq: mq, obs: o}
}

// TestOP01OffsetsAloneAreNoWrite: appends move offsets all the time. That's no change worth a write, and no condition's
// transition.
func TestOP01OffsetsAloneAreNoWrite(t *testing.T) {
	step := plan.Step{Reason: v1alpha1.ReasonUpToDate, Message: "as it should be"}
	first := appending(passTime, 100)
	first.mq.Status = statusOf(first, step, nil)

	later := appending(passTime.Add(20*time.Second), 90_000)
	later.mq.Status = first.mq.Status
	later.obs.Memory = memoryOf(later.mq)
	next := statusOf(later, step, nil)
	if next.Quorum.LogEndOffset != 90_000 {
		t.Fatalf("log end is %d, want 90000", next.Quorum.LogEndOffset)
	}
	if !equality.Semantic.DeepEqual(settledPart(first.mq.Status), settledPart(next)) {
		t.Errorf("more than offsets differs:\n%+v\n%+v", settledPart(first.mq.Status), settledPart(next))
	}
	if !equality.Semantic.DeepEqual(first.mq.Status.Conditions, next.Conditions) {
		t.Errorf("conditions differ:\n%v\n%v", first.mq.Status.Conditions, next.Conditions)
	}

	later.mq.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: &metav1.Time{Time: passTime}}}
	r := &MetadataQuorumReconciler{} // it has no client: a write would panic
	again, err := r.report(t.Context(), later, step, nil)
	if want := 10 * time.Second; again != want || err != nil {
		t.Errorf("report looks again after %s, %v, want %s: thirty seconds after the last write", again, err, want)
	}
}

// TestDisruptionNeedsAFreshView: the writes before it may have taken long, and what was seen then counts for nothing.
func TestDisruptionNeedsAFreshView(t *testing.T) {
	s := appending(passTime, 100)
	r := &MetadataQuorumReconciler{Now: func() time.Time { return passTime.Add(3 * time.Second) }} // it has no client: a write would panic
	err := r.act(t.Context(), s, plan.Step{Actions: []plan.Action{plan.EvictPod{Pod: "q-0", UID: "u-0"}}})
	var refused *refusal
	if !errors.As(err, &refused) || refused.Reason != v1alpha1.ReasonViewStale {
		t.Errorf("an eviction on a view three seconds old gives %v, want %s", err, v1alpha1.ReasonViewStale)
	}
}

// TestEventsFit: the API server takes notes up to 1 kB and refuses the whole event otherwise, which is seen nowhere.
func TestEventsFit(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	r := &MetadataQuorumReconciler{Recorder: recorder}
	r.event(&v1alpha1.MetadataQuorum{}, nil, "Warning", "InvalidTemplate", actionObserve, "%s", "the API server refuses it: "+strings.Repeat("ß", 2000))
	note := strings.TrimPrefix(<-recorder.Events, "Warning InvalidTemplate ")
	if len(note) > 1024 || !utf8.ValidString(note) || !strings.HasPrefix(note, "the API server refuses it: ß") {
		t.Errorf("the note has %d bytes, want at most 1024: %.60s", len(note), note)
	}
}
