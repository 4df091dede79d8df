package controllers

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// trouble is a pass at three voters, of which 1 leads, after a change to their Pods and to what they answer. A member
// without an answer is nil.
func trouble(change func(s *scene, answers []*status.Member)) *scene {
	mq := &v1alpha1.MetadataQuorum{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns", UID: "u-q", Generation: 3}}
	s := &scene{mq: mq, obs: plan.Observation{
		Now: passTime, Want: wantOf(mq, "image"), Identity: &plan.Identity{ClusterID: "cluster", Sealed: true},
		Revision: plan.Revision{Name: "r", Stored: true, Newest: true, Config: true},
	}}
	var voters []status.Replica
	for id := range int32(3) {
		claim, since := fmt.Sprintf("c%d", id), passTime.Add(-plan.MaxViewAge*1000)
		uid := types.UID("u-" + claim)
		s.obs.Identity.Voters = append(s.obs.Identity.Voters, plan.InitialVoter{NodeID: id, Claim: claim, ClaimUID: uid})
		s.obs.Claims = append(s.obs.Claims, plan.Claim{Name: claim, UID: uid, NodeID: id, ClusterID: "cluster", FormattedFor: uid})
		s.obs.Pods = append(s.obs.Pods, plan.Pod{
			Name: fmt.Sprintf("q-%d", id), NodeID: id, Claim: claim, Revision: "r", Phase: corev1.PodRunning,
			Running: true, Ready: true, Created: since, Started: since, ReadySince: since,
		})
		voters = append(voters, status.Replica{NodeID: id, DirectoryID: fmt.Sprintf("dir-%d", id), LogEndOffset: 100})
	}
	for i := range s.obs.Claims {
		for _, v := range s.obs.Identity.Voters {
			s.obs.Claims[i].Initial = append(s.obs.Claims[i].Initial, plan.InitialVoter{NodeID: v.NodeID, Claim: v.Claim})
		}
	}
	answers := make([]*status.Member, 3)
	for id := range int32(3) {
		answers[id] = &status.Member{
			NodeID: id, DirectoryID: voters[id].DirectoryID, Role: "Follower", IsVoter: true, Epoch: 7, Voters: voters,
			Leader: &status.Leader{NodeID: 1, Epoch: 7}, HighWatermark: 100, LogEndOffset: 100, EpochCommitted: true,
		}
	}
	answers[1].Role = roleLeader
	change(s, answers)
	var heard []*status.Member
	for _, m := range answers {
		if m != nil {
			heard = append(heard, m)
		}
	}
	s.obs.View = viewOf(heard, passTime)
	return s
}

// crash: a voter's process ends with a token, and says nothing any more.
func crash(s *scene, answers []*status.Member, id int, token string) {
	p := &s.obs.Pods[id]
	p.Running, p.Ready, p.Problem, p.Token = false, false, "CrashLoopBackOff", token
	answers[id] = nil
}

// noRoom: a voter's disk falls below its reserve. A follower is then not ready, a leader is.
func noRoom(s *scene, answers []*status.Member, id int) {
	answers[id].Disk.BelowReserve = true
	s.obs.Pods[id].Ready = answers[id].Role == roleLeader
}

// leaderGone: nobody leads any more.
func leaderGone(answers []*status.Member) {
	for _, m := range answers {
		if m != nil {
			m.Role, m.Leader, m.EpochCommitted = "Prospective", nil, false
		}
	}
}

// TestTroubleInConditions: what a person reads who asks why a quorum does not serve, or not with all members (ST-02, ST-04,
// ST-23). Conditions are shown as they are once the step of the same facts was taken.
func TestTroubleInConditions(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(s *scene, answers []*status.Member)
		available string // status and reason of QuorumAvailable
		stalled   string // reason; "" if it is not there
		ready     string // a part of Ready's message
		member    int    // whose message has
		message   string // this part
	}{
		"ST-02 all disks are full and the leader still leads": {
			change: func(s *scene, a []*status.Member) {
				for id := range a {
					noRoom(s, a, id)
				}
			},
			available: "False DiskFull", stalled: "DiskFull", ready: "q-0", member: 1, message: "less free space than its reserve",
		},
		"ST-02 all disks are full and nobody leads": {
			change: func(s *scene, a []*status.Member) {
				leaderGone(a)
				for id := range a {
					noRoom(s, a, id)
				}
			},
			available: "False DiskFull", stalled: "DiskFull", ready: "q-0", member: 2, message: "less free space than its reserve",
		},
		"ST-02 all have ended since a vote could not be written": {
			change: func(s *scene, a []*status.Member) {
				for id := range a {
					crash(s, a, id, "DISK_FULL")
				}
			},
			available: "False DiskFull", stalled: "DiskFull", ready: "DISK_FULL", member: 0, message: "CrashLoopBackOff: DISK_FULL",
		},
		"ST-02 the leader's disk alone is full": {
			change:    func(s *scene, a []*status.Member) { noRoom(s, a, 1) },
			available: "False DiskFull", ready: "leader 1: its disk", member: 1, message: "less free space than its reserve",
		},
		"ST-02 a follower's disk alone is full": {
			change:    func(s *scene, a []*status.Member) { noRoom(s, a, 2) },
			available: "True Available", stalled: "DiskFull", ready: "q-2 is not ready: its disk", member: 2, message: "less free space than its reserve",
		},
		"ST-02 two disks of three have room again": {
			change:    func(s *scene, a []*status.Member) { noRoom(s, a, 0) },
			available: "True Available", stalled: "DiskFull", ready: "q-0", member: 1, message: "",
		},
		"ST-04 a follower's log is damaged": {
			change:    func(s *scene, a []*status.Member) { crash(s, a, 2, "LOG_CORRUPT") },
			available: "True Available", stalled: "LogCorrupt", ready: "q-2 is not ready: LOG_CORRUPT", member: 2, message: "LOG_CORRUPT",
		},
		"ST-04 damage costs the majority": {
			change: func(s *scene, a []*status.Member) {
				crash(s, a, 0, "LOG_CORRUPT")
				crash(s, a, 1, "STATE_FILE_CORRUPT")
				leaderGone(a)
			},
			available: "False LogCorrupt", stalled: "LogCorrupt", ready: "LOG_CORRUPT", member: 1, message: "STATE_FILE_CORRUPT",
		},
		"ST-23 a majority of claims is gone": {
			change: func(s *scene, a []*status.Member) {
				s.obs.Claims, s.obs.Pods = s.obs.Claims[2:], s.obs.Pods[2:]
				a[0], a[1] = nil, nil
				leaderGone(a)
			},
			available: "False MajorityLost", stalled: "MajorityLost", ready: "1 of 3 voters have their disks", member: 0, message: "there is no Pod",
		},
		"ST-23 a majority came back on empty disks": {
			change: func(s *scene, a []*status.Member) {
				for id := range 2 {
					a[id].DirectoryID, a[id].IsVoter, a[id].Voters = "new", false, nil
					s.obs.Pods[id].Ready = false
				}
				leaderGone(a)
			},
			available: "False MajorityLost", stalled: "MajorityLost", ready: "1 of 3 voters have their disks", member: 2, message: "",
		},
		"a voter set without directory ids does not make its voters strangers": {
			change: func(_ *scene, a []*status.Member) {
				for i := range a[0].Voters { // all share it
					a[0].Voters[i].DirectoryID = ""
				}
				leaderGone(a)
			},
			available: "False NoLeader", ready: "no voter knows a leader", member: 2, message: "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := trouble(c.change)
			step := plan.Next(s.obs)
			for _, a := range step.Actions {
				if _, observerOnly := a.(plan.CreateClaim); plan.Disruptive(a) || observerOnly {
					t.Errorf("it does %T %v, want nothing of this kind without a person", a, a)
				}
			}
			next := statusOf(s, step, nil)
			available := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionQuorumAvailable)
			if got := string(available.Status) + " " + available.Reason; got != c.available {
				t.Errorf("QuorumAvailable=%s: %s, want %s", got, available.Message, c.available)
			}
			stalled := ""
			if cond := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionStalled); cond != nil {
				stalled = cond.Reason
			}
			if stalled != c.stalled {
				t.Errorf("Stalled has reason %q, want %q (step: %s)", stalled, c.stalled, step.Message)
			}
			ready := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionReady)
			if ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, c.ready) {
				t.Errorf("Ready=%s: %s, want False with %q", ready.Status, ready.Message, c.ready)
			}
			if got := next.Members[c.member].Message; !strings.Contains(got, c.message) || (c.message == "" && got != "") {
				t.Errorf("member %d: %q, want %q", c.member, got, c.message)
			}
		})
	}
}

// TestST23MajorityLostIsAnEvent: it is told once, as the quorum's loss and as what a person is asked for.
func TestST23MajorityLostIsAnEvent(t *testing.T) {
	well := trouble(func(*scene, []*status.Member) {})
	before := statusOf(well, plan.Next(well.obs), nil)
	s := trouble(func(s *scene, a []*status.Member) {
		s.obs.Claims, s.obs.Pods = s.obs.Claims[2:], s.obs.Pods[2:]
		a[0], a[1] = nil, nil
		leaderGone(a)
	})
	s.mq.Status = before
	lost := statusOf(s, plan.Next(s.obs), nil)
	recorder := events.NewFakeRecorder(10)
	r := &MetadataQuorumReconciler{Recorder: recorder}
	r.announce(s, &before, &lost)
	r.announce(s, &lost, &lost)
	close(recorder.Events)
	var got []string
	for e := range recorder.Events {
		got = append(got, e)
	}
	if len(got) != 2 || !strings.HasPrefix(got[0], "Warning QuorumLost MajorityLost: 1 of 3") || !strings.HasPrefix(got[1], "Warning MajorityLost 1 of 3") {
		t.Errorf("the events are %q, want QuorumLost and MajorityLost", got)
	}
}
