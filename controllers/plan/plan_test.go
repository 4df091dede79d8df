package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// row is one sentence about the policy: an observation, the reason it leads to, and what is done.
type row struct {
	o       Observation
	reason  string
	actions []Action
	stalled bool
}

func run(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			s := Next(r.o)
			got := Step{Reason: s.Reason, Stalled: s.Stalled, Actions: s.Actions}
			if diff := cmp.Diff(Step{Reason: r.reason, Stalled: r.stalled, Actions: r.actions}, got); diff != "" {
				t.Errorf("step differs (-want +got), message %q:\n%s", s.Message, diff)
			}
			if s.RequeueAfter <= 0 {
				t.Error("no next look: the quorum sends no watch events")
			}
			if again := Next(r.o); !cmp.Equal(s, again) {
				t.Errorf("the same facts give another step:\n%s", cmp.Diff(s, again))
			}
		})
	}
}

func TestQuietTimes(t *testing.T) {
	run(t, map[string]row{
		"nothing is left to do":      {o: quiet(), reason: v1alpha1.ReasonUpToDate},
		"a quorum of one is content": {o: build(1, 0), reason: v1alpha1.ReasonUpToDate},
		"a deleted quorum is left to the garbage collector": {
			o: quiet(upgrade(), noPod(0), want(func(w *Want) { w.Deleting = true })), reason: v1alpha1.ReasonDeleting,
		},
		"OP-14 a paused quorum is left alone whatever else is wrong": {
			o: quiet(upgrade(), noPod(0), ended(1), want(func(w *Want) { w.Paused, w.Observers = true, 9 })), reason: v1alpha1.ReasonPaused,
		},
		"what is absent is made and what differs is mended": {
			o: quiet(func(o *Observation) {
				o.Shared = []Shared{{KindBudget, "orders-voters", "u-b", SharedOutdated}, {KindService, "orders-peers", "", SharedAbsent}, {KindServiceAccount, "orders-member", "u", SharedDeleting}}
			}),
			reason:  v1alpha1.ReasonApplying,
			actions: []Action{ApplyShared{KindBudget, "orders-voters", "u-b"}, CreateShared{KindService, "orders-peers"}},
		},
		"a member that isn't well is named": {
			o: quiet(unready(1001)), reason: v1alpha1.ReasonMemberNotReady, stalled: true,
		},
		"a view that is too old is no view": {
			o: quiet(func(o *Observation) { o.View.At = now.Add(-3 * time.Second) }), reason: v1alpha1.ReasonViewStale,
		},
		"claims follow storage.whenDeleted, parked ones too": {
			o:      quiet(parked(1001), noPod(1001), want(func(w *Want) { w.DeleteWithQuorum, w.Observers = true, 1 })),
			reason: v1alpha1.ReasonApplying,
			actions: []Action{
				OwnClaim{"c0", "u-c0", true},
				OwnClaim{"c1", "u-c1", true},
				OwnClaim{"c2", "u-c2", true},
				OwnClaim{"c1000", "u-c1000", true},
				OwnClaim{"c1001", "u-c1001", true},
			},
		},
		"a spec that went back to an old revision makes that one the newest": {
			o:      quiet(func(o *Observation) { o.Revision.Newest = false }),
			reason: v1alpha1.ReasonApplying, actions: []Action{RaiseRevision{newRevision}},
		},
		"revisions that nobody uses are dropped beyond ten, the oldest first": {
			o: quiet(func(o *Observation) {
				for _, n := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
					o.Revisions = append(o.Revisions, OldRevision{Name: n, UID: "u", Config: "v"})
				}
				o.Pods[0].Revision = "a" // and so not dropped
			}, func(o *Observation) { o.Want.Paused = false }),
			reason:  v1alpha1.ReasonReplacing, // voter 0 is outdated
			actions: []Action{DeleteRevision{"b", "u", "v"}, EvictPod{"orders-0", "u-0", 0}},
		},
	})
}

func TestRollout(t *testing.T) {
	restart := now.Add(-time.Minute)
	restarted := want(func(w *Want) { w.RestartedAt = restart })
	run(t, map[string]row{
		"one observer goes first, after the API server has seen its new Pod": {
			o: quiet(upgrade()), reason: v1alpha1.ReasonReplacing,
			actions: []Action{CheckPod{1000, "c1000", newRevision}, EvictPod{"orders-1000", "u-1000", 1000}},
		},
		"then a follower, not the second observer": {
			o: quiet(upgrade(1000)), reason: v1alpha1.ReasonReplacing, actions: []Action{EvictPod{"orders-2", "u-2", 2}},
		},
		"without observers a follower is the first": {
			o: build(3, 0, upgrade()), reason: v1alpha1.ReasonReplacing,
			actions: []Action{CheckPod{2, "c2", newRevision}, EvictPod{"orders-2", "u-2", 2}},
		},
		"the next follower when the last one has settled": {
			o: quiet(upgrade(1000, 2)), reason: v1alpha1.ReasonReplacing, actions: []Action{EvictPod{"orders-0", "u-0", 0}},
		},
		"it waits while the last one shuts down": {
			o: quiet(upgrade(1000), terminating(2)), reason: v1alpha1.ReasonMemberTerminating,
		},
		"it waits while the last one has no Pod, and makes it": {
			o: quiet(upgrade(1000), noPod(2)), reason: v1alpha1.ReasonCreatingMembers,
			actions: []Action{CreateMemberPod{2, "c2", newRevision, time.Time{}}},
		},
		"it waits while the last one is not ready": {
			o: quiet(upgrade(1000, 2), fresh(2), unready(2)), reason: v1alpha1.ReasonMemberNotReady,
		},
		"RL-06 it waits while the last one is ready and not caught up": {
			o: quiet(upgrade(1000, 2), lagging(3*time.Second, 2)), reason: v1alpha1.ReasonMemberNotCaughtUp, stalled: true,
		},
		"RL-06 an unknown offset counts as not caught up": {
			o: quiet(upgrade(1000, 2), fresh(2), notFollowing(2)), reason: v1alpha1.ReasonMemberNotCaughtUp,
		},
		"RL-06 what the leader knew of it before its restart counts for nothing": {
			o: quiet(upgrade(1000, 2), fresh(2), pods(func(p *Pod) { p.Started = now }, 2), lagging(time.Second, 2)), reason: v1alpha1.ReasonMemberNotCaughtUp,
		},
		"A1 a voter that is behind counts for nothing, however patient its followers are": {
			o:      quiet(upgrade(1000), lagging(20*time.Second, 0), want(func(w *Want) { w.FetchTimeout = time.Minute }), func(o *Observation) { o.Memory.LastLeaderChange = now }),
			reason: v1alpha1.ReasonMemberNotCaughtUp,
		},
		"it waits until the last one has settled": {
			o: quiet(upgrade(1000, 2), fresh(2)), reason: v1alpha1.ReasonSettling,
		},
		"the leader hands over once, to the updated voter that holds most": {
			o: quiet(upgrade(1000, 0, 2), logEnd(99, 0)), reason: v1alpha1.ReasonHandingOff,
			actions: []Action{HandOff{Leader: 1, Epoch: 7, Target: 2, TargetDir: dir(2), Candidates: []int32{2, 0}, MaxPause: 250 * time.Millisecond, CatchUpTimeout: 10 * time.Second}},
		},
		"it waits while the leader hands over": {
			o:      quiet(upgrade(1000, 0, 2), func(o *Observation) { o.Handoff = &Handoff{From: 1, To: 2, FromEpoch: 7, Running: true} }),
			reason: v1alpha1.ReasonHandingOff,
		},
		"a handoff that failed is tried again, not at once": {
			o:      quiet(upgrade(1000, 0, 2), func(o *Observation) { o.Memory.HandoffFailures, o.Memory.LastHandoffEnd = 1, now.Add(-9*time.Second) }),
			reason: v1alpha1.ReasonHandoffBackoff,
		},
		"the second failure doubles the wait": {
			o:      quiet(upgrade(1000, 0, 2), func(o *Observation) { o.Memory.HandoffFailures, o.Memory.LastHandoffEnd = 2, now.Add(-19*time.Second) }),
			reason: v1alpha1.ReasonHandoffBackoff,
		},
		"nor in the pass that sees it fail": {
			o:      quiet(upgrade(1000, 0, 2), func(o *Observation) { o.Handoff = &Handoff{ID: "h1", From: 1, To: 2, FromEpoch: 7, Ended: now} }),
			reason: v1alpha1.ReasonHandoffBackoff,
		},
		"RL-04 nobody to hand over to": {
			o: quiet(upgrade(1000, 0, 2), unready(0, 2), fresh(0, 2)), reason: v1alpha1.ReasonMemberNotReady,
		},
		"the old leader goes as a follower": {
			o: quiet(upgrade(1000, 0, 2), leader(2)), reason: v1alpha1.ReasonReplacing, actions: []Action{EvictPod{"orders-1", "u-1", 1}},
		},
		"not before a majority names the new leader": {
			o:      quiet(upgrade(1000, 0, 2), leader(2), func(o *Observation) { o.View.ConfirmedBy = 1 }),
			reason: v1alpha1.ReasonLeaderNotConfirmed,
		},
		"not before the new leader has committed": {
			o:      quiet(upgrade(1000, 0, 2), leader(2), func(o *Observation) { o.View.Committed = false }),
			reason: v1alpha1.ReasonLeaderNotCommitting,
		},
		"not before the old leader follows, or has had time to": {
			o: quiet(upgrade(1000, 0, 2), leader(2), notFollowing(1), func(o *Observation) {
				o.View.Epoch, o.Memory.Epoch, o.Memory.LastLeaderChange = 8, 8, now.Add(-time.Second)
			}),
			reason: v1alpha1.ReasonMemberNotCaughtUp,
		},
		"an old leader that never follows goes all the same": {
			o:      quiet(upgrade(1000, 0, 2), leader(2), notFollowing(1)),
			reason: v1alpha1.ReasonReplacingBroken, actions: []Action{DeletePod{"orders-1", "u-1", 1}},
		},
		"a leader that was updated by itself needs no handoff": {
			o: quiet(upgrade(1000, 1), leader(1)), reason: v1alpha1.ReasonReplacing, actions: []Action{EvictPod{"orders-2", "u-2", 2}},
		},
		"the other observers come last": {
			o: quiet(upgrade(1000, 0, 1, 2)), reason: v1alpha1.ReasonReplacing, actions: []Action{EvictPod{"orders-1001", "u-1001", 1001}},
		},
		"an observer that isn't ready is deleted, nobody reads from it": {
			o: quiet(upgrade(1000, 0, 1, 2), unready(1001)), reason: v1alpha1.ReasonReplacing, actions: []Action{DeletePod{"orders-1001", "u-1001", 1001}},
		},
		"A1 no voter goes while another one is behind": {
			o: quiet(upgrade(1000), lagging(5*time.Second, 0)), reason: v1alpha1.ReasonMemberNotCaughtUp,
		},
		"A1 a voter that is long behind goes first, if the others are a majority without it": {
			o: quiet(upgrade(1000), lagging(time.Minute, 0)), reason: v1alpha1.ReasonReplacingBroken, actions: []Action{DeletePod{"orders-0", "u-0", 0}},
		},
		"A1 of two voters behind none goes": {
			o: quiet(upgrade(1000), lagging(time.Minute, 0, 2)), reason: v1alpha1.ReasonQuorumAtStake,
		},
		"A1 five voters keep one to spare": {
			o:      build(5, 0, upgrade(), lagging(time.Minute, 4), func(o *Observation) { o.Pods[4].Revision = newRevision }, noPod(4)),
			reason: v1alpha1.ReasonCreatingMembers, actions: []Action{CreateMemberPod{4, "c4", newRevision, time.Time{}}},
		},
		"a claim that is being deleted keeps its Pod": {
			o: quiet(upgrade(1000), deletingClaim(2)), reason: v1alpha1.ReasonClaimDeleting, stalled: true,
		},
		"a quorum of one is restarted by plain deletion": {
			o: build(1, 0, upgrade()), reason: v1alpha1.ReasonSingleVoterRestart,
			actions: []Action{CheckPod{0, "c0", newRevision}, DeletePod{"orders-0", "u-0", 0}},
		},
		"leadership that moved more than three times in a roll stops it": {
			o:      quiet(upgrade(1000), func(o *Observation) { o.Memory.LeaderChanges, o.Memory.LastLeaderChange = 4, now.Add(-time.Minute) }),
			reason: v1alpha1.ReasonLeadershipUnstable, stalled: true,
		},
		"until it has been calm": {
			o:      quiet(upgrade(1000), func(o *Observation) { o.Memory.LeaderChanges, o.Memory.LastLeaderChange = 4, now.Add(-6*time.Minute) }),
			reason: v1alpha1.ReasonReplacing, actions: []Action{EvictPod{"orders-2", "u-2", 2}},
		},
		"OP-06 a Pod that never ends is named, and never forced": {
			o:      quiet(upgrade(1000), terminating(2), pods(func(p *Pod) { p.TerminatingSince = now.Add(-3 * time.Minute) }, 2)),
			reason: v1alpha1.ReasonTerminatingOnLostNode, stalled: true,
		},
		"a restart that is due takes every older member": {
			o: quiet(restarted), reason: v1alpha1.ReasonReplacing, actions: []Action{EvictPod{"orders-1000", "u-1000", 1000}},
		},
		"a restart takes a broken member first": {
			o: quiet(restarted, waiting("CrashLoopBackOff", 0)), reason: v1alpha1.ReasonReplacingBroken, actions: []Action{DeletePod{"orders-0", "u-0", 0}},
		},
		"a restart in the future waits": {
			o: quiet(want(func(w *Want) { w.RestartedAt = now.Add(time.Hour) })), reason: v1alpha1.ReasonUpToDate,
		},
		"RL-12 a member made since then is not restarted again": {
			o: quiet(restarted, created(restart, 1000)), reason: v1alpha1.ReasonReplacing, actions: []Action{EvictPod{"orders-2", "u-2", 2}},
		},
		"RL-12 nor one that says so, if clocks differ": {
			o:      quiet(restarted, created(restart.Add(-time.Second), 0, 1, 2, 1000, 1001), pods(func(p *Pod) { p.RestartedAt = restart }, 0, 1, 2, 1000, 1001)),
			reason: v1alpha1.ReasonUpToDate,
		},
		"the restart is written on the Pod that it makes": {
			o: quiet(restarted, noPod(1000), created(restart, 0, 1, 2, 1001)), reason: v1alpha1.ReasonCreatingMembers,
			actions: []Action{CreateMemberPod{1000, "c1000", newRevision, restart}},
		},
		"a revision that isn't stored yet is stored first": {
			o: quiet(upgrade(), func(o *Observation) { o.Revision = Revision{Name: newRevision} }), reason: v1alpha1.ReasonApplying,
			actions: []Action{CreateRevision{newRevision}},
		},
		"a spec that can't be rendered restarts nobody": {
			o: quiet(upgrade(), func(o *Observation) { o.Revision = Revision{Name: newRevision, Invalid: "bad"} }), reason: v1alpha1.ReasonInvalidTemplate, stalled: true,
		},
	})
}

func TestBrokenMembers(t *testing.T) {
	run(t, map[string]row{
		"RL-01 a bad image stops the roll at the member it hit, and says so": {
			o: quiet(upgrade(1000), waiting("ImagePullBackOff", 1000), created(now.Add(-90*time.Second), 1000)), reason: v1alpha1.ReasonMemberNotReady, stalled: true,
		},
		"RL-01 not at once: an image registry may answer the second time": {
			o: quiet(upgrade(1000), waiting("ErrImagePull", 1000), created(now.Add(-30*time.Second), 1000)), reason: v1alpha1.ReasonMemberNotReady,
		},
		"RL-01 a corrected spec replaces the stuck Pod before anything else": {
			o:      quiet(upgrade(0, 1, 1001), pods(func(p *Pod) { p.Revision = "orders-bad" }, 1000), waiting("ImagePullBackOff", 1000), upgrade(0, 1, 1001, 1000), pods(func(p *Pod) { p.Revision = "orders-bad" }, 1000)),
			reason: v1alpha1.ReasonReplacingBroken, actions: []Action{DeletePod{"orders-1000", "u-1000", 1000}},
		},
		"RL-07 when all voters crash on a bad spec, the corrected one gets through without a quorum": {
			o: quiet(upgrade(), waiting("CrashLoopBackOff", 0, 1, 2), noView), reason: v1alpha1.ReasonReplacingBroken,
			actions: []Action{CheckPod{0, "c0", newRevision}, DeletePod{"orders-0", "u-0", 0}},
		},
		"RL-07 A2 one after the other": {
			o: quiet(upgrade(), waiting("CrashLoopBackOff", 0, 1, 2), terminating(0), noView), reason: v1alpha1.ReasonNoLeader,
		},
		"RL-07 the next one as soon as the last one runs, ready or not": {
			o: quiet(upgrade(0), waiting("CrashLoopBackOff", 1, 2), unready(0), noView), reason: v1alpha1.ReasonReplacingBroken,
			actions: []Action{DeletePod{"orders-1", "u-1", 1}},
		},
		"RL-07 not before: the corrected spec may be as bad as the last": {
			o: quiet(upgrade(0), waiting("CrashLoopBackOff", 1, 2), waiting("", 0), noView), reason: v1alpha1.ReasonNoLeader,
		},
		"RL-01 a spec that broke one member breaks no second one that ails": {
			o: quiet(upgrade(1000), waiting("ImagePullBackOff", 1000), waiting("CrashLoopBackOff", 0)), reason: v1alpha1.ReasonMemberNotReady, stalled: true,
		},
		"RL-01 nor one whose node was drained: it comes back as it was": {
			o: quiet(upgrade(1000), waiting("ImagePullBackOff", 1000), noPod(0), func(o *Observation) {
				o.Revisions = []OldRevision{{oldRevision, "u-old", "u-config"}}
			}),
			reason: v1alpha1.ReasonCreatingMembers, actions: []Action{CreateMemberPod{0, "c0", oldRevision, time.Time{}}},
		},
		"RL-01 of two that are gone one tries a spec that nobody has run": {
			o: quiet(upgrade(), noPod(0, 1000), func(o *Observation) {
				o.Revisions = []OldRevision{{oldRevision, "u-old", "u-config"}}
			}),
			reason: v1alpha1.ReasonCreatingMembers, actions: []Action{CreateMemberPod{0, "c0", newRevision, time.Time{}}, CreateMemberPod{1000, "c1000", oldRevision, time.Time{}}},
		},
		"a container that has just ended is left to its restart": {
			o: quiet(upgrade(1000), pods(func(p *Pod) { p.Running, p.Ready = false, false }, 0)), reason: v1alpha1.ReasonMemberNotCaughtUp,
		},
		"RL-07 with two of three pending, the running one waits": {
			o: quiet(upgrade(0, 2), waiting("Unschedulable", 0, 2), noLeader), reason: v1alpha1.ReasonMemberNotReady, stalled: true,
		},
		"a Pod that has ended is made again, outdated or not": {
			o: quiet(ended(2)), reason: v1alpha1.ReasonReplacingBroken, actions: []Action{DeletePod{"orders-2", "u-2", 2}},
		},
		"RL-10 missing Pods are made together, without a quorum": {
			o: quiet(noPod(0, 1, 2), noView), reason: v1alpha1.ReasonNoLeader,
			actions: []Action{CreateMemberPod{0, "c0", newRevision, time.Time{}}, CreateMemberPod{1, "c1", newRevision, time.Time{}}, CreateMemberPod{2, "c2", newRevision, time.Time{}}},
		},
		"RL-10 members that are not ready are left alone": {
			o: quiet(unready(0, 1, 2), noLeader), reason: v1alpha1.ReasonNoLeader,
		},
		"RL-10 also when they are outdated: they may hold the quorum": {
			o: quiet(upgrade(), unready(0, 1, 2), noLeader), reason: v1alpha1.ReasonNoLeader,
		},
		"a missing Pod comes back as it was, while the new spec can't be rendered": {
			o: quiet(upgrade(), noPod(2), func(o *Observation) {
				o.Revision = Revision{Name: newRevision, Invalid: "bad"}
				o.Revisions = []OldRevision{{oldRevision, "u-old", "u-config"}}
			}),
			reason: v1alpha1.ReasonInvalidTemplate, stalled: true, actions: []Action{CreateMemberPod{2, "c2", oldRevision, time.Time{}}},
		},
		"a broken Pod is left if its claim would go with it": {
			o: quiet(upgrade(), waiting("CrashLoopBackOff", 0), deletingClaim(0)), reason: v1alpha1.ReasonClaimDeleting, stalled: true,
		},
		"so is one that has ended: it holds its claim as well": {
			o: quiet(ended(0), deletingClaim(0)), reason: v1alpha1.ReasonClaimDeleting, stalled: true,
		},
		"RL-07 a Pod that never ends, on a node that is gone, keeps no broken one from its corrected spec": {
			o: quiet(upgrade(), waiting("CrashLoopBackOff", 0, 1, 2), terminating(0), noView,
				pods(func(p *Pod) { p.TerminatingSince = now.Add(-3 * time.Minute) }, 0)),
			reason: v1alpha1.ReasonReplacingBroken, actions: []Action{CheckPod{1, "c1", newRevision}, DeletePod{"orders-1", "u-1", 1}},
		},
		"and is named when nothing else can be done": {
			o: quiet(upgrade(1, 2), waiting("", 1), terminating(0), noView,
				pods(func(p *Pod) { p.TerminatingSince = now.Add(-3 * time.Minute) }, 0)),
			reason: v1alpha1.ReasonTerminatingOnLostNode, stalled: true,
		},
		"no Pod is made on a claim that is being deleted": {
			o: quiet(noPod(2), deletingClaim(2)), reason: v1alpha1.ReasonClaimDeleting,
		},
		"no Pod is made without its ServiceAccount": {
			o: quiet(noPod(2), func(o *Observation) { o.Shared[1].State = SharedAbsent }), reason: v1alpha1.ReasonCreatingMembers,
			actions: []Action{CreateShared{KindServiceAccount, "orders-member"}},
		},
		"a voter whose claim is gone gets another one, never the old one's identity": {
			o: quiet(noPod(2), noClaim(2)), reason: v1alpha1.ReasonVoterReplaced,
			actions: []Action{CreateClaim{claimName("orders", "u-orders", 2, 1), 2, "cluster", "quorum:1", plan3()}},
		},
		"not without a quorum": {
			o: quiet(noPod(2), noClaim(2), noView), reason: v1alpha1.ReasonNoLeader,
		},
		"ST-23 a majority of claims lost is for a person": {
			o: quiet(noPod(0, 2), noClaim(0, 2), noView), reason: v1alpha1.ReasonMajorityLost, stalled: true,
		},
		"ST-23 so is a majority of disks that were emptied, one of them before the quorum was lost": {
			o: quiet(noPod(0), noClaim(0), noLeader, unready(1, 2), emptied(2)), reason: v1alpha1.ReasonMajorityLost, stalled: true,
		},
		"ST-23 two of five are no majority": {
			o: build(5, 0, noPod(0, 2), noClaim(0, 2), noLeader), reason: v1alpha1.ReasonNoLeader,
		},
		"ST-04 a member that ended on a fault is named by its word, and nothing is done to its disk": {
			o: quiet(crashed("LOG_CORRUPT", 2)), reason: "LogCorrupt", stalled: true,
		},
		"ST-04 so are those that the majority is lost with": {
			o: quiet(crashed("LOG_CORRUPT", 0, 2), noLeader), reason: "LogCorrupt", stalled: true,
		},
		"a word that is none of the quorum's is no reason": {
			o: quiet(crashed("UP_TO_DATE", 2)), reason: v1alpha1.ReasonMemberNotReady, stalled: true,
		},
		"a corrected spec gets through a fault of the old one": {
			o: quiet(upgrade(), crashed("CONFIG_INVALID", 0, 1, 2), noView), reason: v1alpha1.ReasonReplacingBroken,
			actions: []Action{CheckPod{0, "c0", newRevision}, DeletePod{"orders-0", "u-0", 0}},
		},
		"ST-02 a follower without room is named": {
			o: quiet(full(2), unready(2)), reason: v1alpha1.ReasonDiskFull, stalled: true,
		},
		"ST-02 a majority without room that nobody leads is for a person": {
			o: quiet(full(0, 2), unready(0, 1, 2), noLeader), reason: v1alpha1.ReasonDiskFull, stalled: true,
		},
		"ST-02 some that ended for want of room, others that run without any": {
			o: quiet(full(0), unready(0, 1), crashed("DISK_FULL", 2), noLeader), reason: v1alpha1.ReasonDiskFull, stalled: true,
		},
		"a voter under a new directory id is said to be an observer": {
			o: quiet(notFollowing(2), func(o *Observation) {
				o.Claims[2].Name, o.Claims[2].FormattedFor = "c2-b", ""
				o.View.Observers = append([]Progress{{2, "dir-b", 100, new(time.Duration(0))}}, o.View.Observers...)
			}),
			reason: v1alpha1.ReasonVoterReplaced, stalled: true,
		},
		"and counts for nothing when another one should go": {
			o: quiet(upgrade(1000, 2), notFollowing(2), func(o *Observation) {
				o.Claims[2].Name, o.Claims[2].FormattedFor = "c2-b", ""
				o.View.Observers = append([]Progress{{2, "dir-b", 100, new(time.Duration(0))}}, o.View.Observers...)
			}),
			reason: v1alpha1.ReasonQuorumAtStake,
		},
	})
}

func plan3() []InitialVoter { return withoutClaimUIDs(quiet().Identity.Voters) }

func TestBootstrap(t *testing.T) {
	fresh3 := Identity{ClusterID: deriveUUID("u-orders", "cluster"), Image: "quorum:1"}
	for n := range int32(3) {
		fresh3.Voters = append(fresh3.Voters, InitialVoter{NodeID: n, Claim: claimName("orders", "u-orders", n, 0), DirectoryID: deriveUUID("u-orders", "directory/"+fmt.Sprint(n))})
	}
	rebuilt := func(uids ...string) Identity {
		id := Identity{ClusterID: "cluster", Image: "quorum:1", Voters: plan3(), Sealed: len(uids) > 0}
		for i, u := range uids {
			id.Voters[i].ClaimUID = cmpUID(u)
		}
		return id
	}
	formatPod := func(f func(*FormatPod), ids ...int32) change {
		return func(o *Observation) {
			for _, id := range ids {
				p := FormatPod{Name: FormatPodName("orders", id), UID: "u-format", NodeID: id, Claim: o.Claims[id].Name, ClaimUID: o.Claims[id].UID, Revision: newRevision, Phase: "Running"}
				f(&p)
				o.FormatPods = append(o.FormatPods, p)
			}
		}
	}
	bare := func(changes ...change) Observation {
		return build(3, 0, append([]change{noPod(0, 1, 2), noView}, changes...)...)
	}
	create := func(id int32) Action {
		c := "c" + fmt.Sprint(id)
		return CreateFormatPod{id, c, cmpUID("u-" + c), newRevision, "cluster", quiet().Identity.Voters}
	}
	run(t, map[string]row{
		"first it's written down who the quorum is": {
			o: empty(), reason: v1alpha1.ReasonBootstrapping, actions: []Action{CreateIdentity{fresh3}},
		},
		"a given cluster id is never bootstrapped": {
			o: empty(want(func(w *Want) { w.ClusterID = "cluster" })), reason: v1alpha1.ReasonClaimsMissing, stalled: true,
		},
		"then all claims are made, and nothing formats": {
			o: bare(unsealed, unformatted(0, 1, 2), noClaim(1, 2)), reason: v1alpha1.ReasonBootstrapping,
			actions: []Action{CreateClaim{"c1", 1, "cluster", "quorum:1", plan3()}, CreateClaim{"c2", 2, "cluster", "quorum:1", plan3()}},
		},
		"then the record is sealed": {
			o: bare(unsealed, unformatted(0, 1, 2)), reason: v1alpha1.ReasonBootstrapping, actions: []Action{SealIdentity{"u-identity", quiet().Identity.Voters}},
		},
		"a seal that was lost gives no lost claim its identity back": {
			o: bare(unsealed, noClaim(1)), reason: v1alpha1.ReasonBootstrapping, actions: []Action{SealIdentity{"u-identity", rebuilt("u-c0", "", "u-c2").Voters}},
		},
		"then each claim is formatted by a Pod of its own": {
			o: bare(unformatted(0, 1, 2)), reason: v1alpha1.ReasonBootstrapping, actions: []Action{create(0), create(1), create(2)},
		},
		"not before the revision is stored": {
			o:      bare(unformatted(0, 1, 2), func(o *Observation) { o.Revision = Revision{Name: newRevision} }),
			reason: v1alpha1.ReasonBootstrapping, actions: []Action{CreateRevision{newRevision}},
		},
		"success is recorded before the member's Pod is made": {
			o: bare(unformatted(0), formatPod(func(p *FormatPod) { p.Phase = "Succeeded" }, 0)), reason: v1alpha1.ReasonBootstrapping,
			actions: []Action{
				CreateMemberPod{1, "c1", newRevision, time.Time{}},
				CreateMemberPod{2, "c2", newRevision, time.Time{}},
				RecordFormatted{"c0", "u-c0"},
				DeleteFormatPod{"orders-0-format", "u-format"},
			},
		},
		"a format that failed says so, and is tried again later": {
			o:      build(3, 0, unformatted(0), noPod(0), formatPod(func(p *FormatPod) { p.Phase, p.Token, p.Finished = "Failed", "NOT_WRITABLE", now.Add(-time.Second) }, 0)),
			reason: v1alpha1.ReasonFormatFailed, stalled: true,
		},
		"later": {
			o:      build(3, 0, unformatted(0), noPod(0), formatPod(func(p *FormatPod) { p.Phase, p.Token, p.Finished = "Failed", "NOT_WRITABLE", now.Add(-time.Minute) }, 0)),
			reason: v1alpha1.ReasonFormatFailed, stalled: true, actions: []Action{DeleteFormatPod{"orders-0-format", "u-format"}},
		},
		"a corrected spec replaces a stuck format Pod": {
			o:      build(3, 0, unformatted(0), noPod(0), formatPod(func(p *FormatPod) { p.Phase, p.Revision, p.Problem = "Pending", oldRevision, "ImagePullBackOff" }, 0)),
			reason: v1alpha1.ReasonBootstrapping, actions: []Action{DeleteFormatPod{"orders-0-format", "u-format"}},
		},
		"a claim that was lost after the seal is never formatted again": {
			o: build(3, 0, noClaim(0), noPod(0)), reason: v1alpha1.ReasonVoterReplaced,
			actions: []Action{CreateClaim{claimName("orders", "u-orders", 0, 1), 0, "cluster", "quorum:1", plan3()}},
		},
		"CV-09 a claim of the planned name that somebody else made is not trusted": {
			o:      bare(unformatted(0, 1, 2), claims(func(c *Claim) { c.UID = "u-other" }, 0)),
			reason: v1alpha1.ReasonIdentityConflict, stalled: true,
		},
		"OP-10 claims without a record are adopted": {
			o: bare(noIdentity), reason: v1alpha1.ReasonBootstrapping, actions: []Action{CreateIdentity{rebuilt("u-c0", "u-c1", "u-c2")}},
		},
		"OP-10 whatever voters.replicas says": {
			o: bare(noIdentity, want(func(w *Want) { w.Voters = 5 })), reason: v1alpha1.ReasonBootstrapping, actions: []Action{CreateIdentity{rebuilt("u-c0", "u-c1", "u-c2")}},
		},
		"OP-10 a claim that is missing then was lost": {
			o: bare(noIdentity, noClaim(1)), reason: v1alpha1.ReasonBootstrapping, actions: []Action{CreateIdentity{rebuilt("u-c0", "", "u-c2")}},
		},
		"ST-24 unless nothing was ever formatted": {
			o: bare(noIdentity, noClaim(1), unformatted(0, 2)), reason: v1alpha1.ReasonBootstrapping, actions: []Action{CreateIdentity{rebuilt()}},
		},
		"ST-24 an observer's claim proves that there was a quorum": {
			o: build(3, 1, noIdentity, noClaim(1), unformatted(0, 2), noPod(0, 1, 2, 1000), noView), reason: v1alpha1.ReasonBootstrapping,
			actions: []Action{CreateIdentity{rebuilt("u-c0", "", "u-c2")}},
		},
		"ST-24 a claim planned as initial and not on record may still be formatted": {
			o: build(3, 0, unformatted(0), noPod(0)), reason: v1alpha1.ReasonBootstrapping, actions: []Action{create(0)},
		},
		"OP-10 the claims of another cluster are not": {
			o: bare(noIdentity, want(func(w *Want) { w.ClusterID = "other" })), reason: v1alpha1.ReasonIdentityConflict, stalled: true,
		},
		"OP-10 nor is a record of another cluster": {
			o: quiet(want(func(w *Want) { w.ClusterID = "other" })), reason: v1alpha1.ReasonIdentityConflict, stalled: true,
		},
		"claims that disagree with each other are a person's to sort": {
			o: bare(noIdentity, claims(func(c *Claim) { c.ClusterID = "other" }, 2)), reason: v1alpha1.ReasonIdentityConflict, stalled: true,
		},
		"a record that can't be read is a person's to mend, and nothing is made over it": {
			o:      bare(noIdentity, func(o *Observation) { o.Unreadable = "ConfigMap orders-identity: no" }),
			reason: v1alpha1.ReasonIdentityConflict, stalled: true,
		},
		"a restored claim is a person's to judge": {
			o: bare(noIdentity, claims(func(c *Claim) { c.UID = "u-restored" }, 2)), reason: v1alpha1.ReasonIdentityConflict, stalled: true,
		},
		"also beside a running quorum": {
			o: quiet(upgrade(), claims(func(c *Claim) { c.UID = "u-restored" }, 2)), reason: v1alpha1.ReasonIdentityConflict, stalled: true,
		},
		"OP-07 a claim that is being deleted is waited for": {
			o: bare(noIdentity, deletingClaim(2)), reason: v1alpha1.ReasonClaimDeleting,
		},
		"OP-10 objects of a deleted quorum of this name are waited for": {
			o:      empty(func(o *Observation) { o.Conflicts = []Conflict{{KindConfigMap, "orders-identity", true}} }),
			reason: v1alpha1.ReasonOldOwner,
		},
		"OP-10 its claims, too, if they go with it": {
			o:      empty(func(o *Observation) { o.Conflicts = []Conflict{{KindClaim, "c0", true}} }),
			reason: v1alpha1.ReasonOldOwner,
		},
		"CV-09 an object of somebody else stops what touches it, and members, and nothing else": {
			o: quiet(upgrade(), func(o *Observation) {
				o.Conflicts = []Conflict{{KindService, "orders-bootstrap", false}}
				o.Shared[0].State = SharedAbsent
			}),
			reason: v1alpha1.ReasonNameConflict, stalled: true, actions: []Action{CreateShared{KindService, "orders-peers"}, CheckPod{1000, "c1000", newRevision}},
		},
		"a spec that can't be rendered bootstraps nothing": {
			o:      bare(unformatted(0, 1, 2), func(o *Observation) { o.Revision = Revision{Name: newRevision, Invalid: "bad"} }),
			reason: v1alpha1.ReasonInvalidTemplate, stalled: true,
		},
	})
}

func TestObservers(t *testing.T) {
	scale := func(n int32) change { return want(func(w *Want) { w.Observers = n }) }
	claim := func(id int32) Action {
		return CreateClaim{claimName("orders", "u-orders", id, 0), id, "cluster", "quorum:1", plan3()}
	}
	run(t, map[string]row{
		"RL-08 scaling up touches nobody": {
			o: quiet(scale(4)), reason: v1alpha1.ReasonScalingObservers, actions: []Action{claim(1002), claim(1003)},
		},
		"scaling down parks the claim before the Pod goes": {
			o: quiet(scale(1)), reason: v1alpha1.ReasonScalingObservers, actions: []Action{ParkClaim{"c1001", "u-c1001"}},
		},
		"then the Pod": {
			o: quiet(scale(1), parked(1001)), reason: v1alpha1.ReasonScalingObservers, actions: []Action{DeletePod{"orders-1001", "u-1001", 1001}},
		},
		"one Pod a pass": {
			o: quiet(scale(0), parked(1000, 1001)), reason: v1alpha1.ReasonScalingObservers, actions: []Action{DeletePod{"orders-1000", "u-1000", 1000}},
		},
		"and the claim stays": {
			o: quiet(scale(1), parked(1001), noPod(1001)), reason: v1alpha1.ReasonUpToDate,
		},
		"unless storage.whenScaled says Delete": {
			o:      quiet(scale(1), parked(1001), noPod(1001), want(func(w *Want) { w.DeleteWhenScaled = true })),
			reason: v1alpha1.ReasonScalingObservers, actions: []Action{DeleteClaim{"c1001", "u-c1001"}},
		},
		"ST-25 a parked claim is never used again: the next observer has another id": {
			o: quiet(scale(2), parked(1000), noPod(1000)), reason: v1alpha1.ReasonScalingObservers, actions: []Action{claim(1002)},
		},
		"OP-03 an observer whose claim exists is not made twice": {
			o: quiet(noPod(1001)), reason: v1alpha1.ReasonCreatingMembers, actions: []Action{CreateMemberPod{1001, "c1001", newRevision, time.Time{}}},
		},
		"scaling goes on while a roll waits": {
			o: quiet(scale(3), upgrade(1000), lagging(time.Minute, 0, 2)), reason: v1alpha1.ReasonQuorumAtStake, actions: []Action{claim(1002)},
		},
		"scaling goes on without a quorum": {
			o: quiet(scale(1), noView), reason: v1alpha1.ReasonNoLeader, actions: []Action{ParkClaim{"c1001", "u-c1001"}},
		},
		"A2 an observer that goes keeps the roll from disrupting in the same pass": {
			o: quiet(scale(1), parked(1001), upgrade(1000)), reason: v1alpha1.ReasonScalingObservers, actions: []Action{DeletePod{"orders-1001", "u-1001", 1001}},
		},
		"an observer's claim that is being deleted holds its place": {
			o: quiet(deletingClaim(1001), noPod(1001)), reason: v1alpha1.ReasonClaimDeleting,
		},
		"an observer without a claim goes": {
			o: quiet(scale(1), noClaim(1001)), reason: v1alpha1.ReasonScalingObservers, actions: []Action{DeletePod{"orders-1001", "u-1001", 1001}},
		},
		"none is made before a voter's disk is formatted": {
			o: build(3, 0, scale(2), unsealed, unformatted(0, 1, 2), noPod(0, 1, 2), noView), reason: v1alpha1.ReasonBootstrapping,
			actions: []Action{SealIdentity{"u-identity", quiet().Identity.Voters}},
		},
	})
}
