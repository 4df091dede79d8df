package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// now is the time of every observation in the tables.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const (
	oldRevision = "orders-old"
	newRevision = "orders-new"
)

// change is what a case differs by from a quiet quorum.
type change func(*Observation)

// quiet is a quorum in which nothing is left to do: voters 0, 1, 2, led by 1 in epoch 7, observers 1000 and 1001, all at
// newRevision for an hour.
func quiet(changes ...change) Observation {
	return build(3, 2, changes...)
}

func build(voters, observers int, changes ...change) Observation {
	o := Observation{
		Now: now,
		Want: Want{
			Name: "orders", UID: "u-orders", Image: "quorum:1", Voters: int32(voters), Observers: int32(observers),
			FetchTimeout: 2 * time.Second, MinReady: 10 * time.Second, MemberTimeout: 10 * time.Minute,
			HandoffMaxPause: 250 * time.Millisecond, HandoffCatchUp: 10 * time.Second,
		},
		Identity: &Identity{UID: "u-identity", ClusterID: "cluster", Image: "quorum:1", Sealed: true},
		Revision: Revision{Name: newRevision, Stored: true, Newest: true, Config: true},
		View:     &View{Leader: 1, Epoch: 7, ConfirmedBy: int32(voters), At: now, Committed: true, HighWatermark: 100, LogEnd: 100},
		Memory:   Memory{Revision: newRevision, Epoch: 7, LastLeaderChange: now.Add(-time.Hour)},
		Shared: []Shared{
			{KindService, "orders-peers", "u-peers", SharedCurrent},
			{KindServiceAccount, "orders-member", "u-account", SharedCurrent},
		},
	}
	if voters == 1 {
		o.View.Leader = 0
	}
	for id := range int32(voters) {
		claim := fmt.Sprintf("c%d", id)
		o.Identity.Voters = append(o.Identity.Voters, InitialVoter{id, claim, dir(id), types.UID("u-" + claim)})
	}
	plan := withoutClaimUIDs(o.Identity.Voters)
	ids := []int32{}
	for id := range int32(voters) {
		ids = append(ids, id)
		o.View.Voters = append(o.View.Voters, following(id))
	}
	for i := range int32(observers) {
		ids = append(ids, 1000+i)
		o.View.Observers = append(o.View.Observers, following(1000+i))
	}
	for _, id := range ids {
		claim := fmt.Sprintf("c%d", id)
		c := Claim{Name: claim, UID: types.UID("u-" + claim), NodeID: id, ClusterID: "cluster", Image: "quorum:1", Initial: plan}
		if id < 1000 {
			c.FormattedFor = c.UID
		}
		o.Claims = append(o.Claims, c)
		o.Pods = append(o.Pods, runningPod(id, newRevision))
	}
	for _, c := range changes {
		c(&o)
	}
	return o
}

func dir(id int32) string { return fmt.Sprintf("dir-%d", id) }

func following(id int32) Progress {
	return Progress{NodeID: id, DirectoryID: dir(id), LogEnd: 100, CaughtUpAge: new(time.Duration(0))}
}

func runningPod(id int32, revision string) Pod {
	start := now.Add(-time.Hour)
	return Pod{
		Name: PodName("orders", id), UID: types.UID(fmt.Sprintf("u-%d", id)), NodeID: id, Claim: fmt.Sprintf("c%d", id),
		Revision: revision, Created: start, Started: start, Phase: corev1.PodRunning, Running: true,
		Ready: true, ReadySince: start, Grace: time.Minute, Node: "n1", IP: "10.0.0.1",
	}
}

// Changes of Pods.

func pods(f func(*Pod), ids ...int32) change {
	return func(o *Observation) {
		for i := range o.Pods {
			if slices.Contains(ids, o.Pods[i].NodeID) {
				f(&o.Pods[i])
			}
		}
	}
}

// upgrade: a new spec, and only the members named run it.
func upgrade(updated ...int32) change {
	return func(o *Observation) {
		for i := range o.Pods {
			if !slices.Contains(updated, o.Pods[i].NodeID) {
				o.Pods[i].Revision = oldRevision
			}
		}
	}
}

func waiting(problem string, ids ...int32) change {
	return pods(func(p *Pod) {
		p.Phase, p.Running, p.Ready, p.Started, p.Problem = corev1.PodPending, false, false, time.Time{}, problem
	}, ids...)
}

// crashed: the process ends with a token, again and again.
func crashed(token string, ids ...int32) change {
	return pods(func(p *Pod) {
		p.Running, p.Ready, p.Started, p.Problem, p.Token = false, false, time.Time{}, "CrashLoopBackOff", token
	}, ids...)
}

func terminating(ids ...int32) change {
	return pods(func(p *Pod) { p.Terminating, p.TerminatingSince = true, now.Add(-time.Second) }, ids...)
}

func ended(ids ...int32) change {
	return pods(func(p *Pod) { p.Phase, p.Running, p.Ready = corev1.PodFailed, false, false }, ids...)
}

func unready(ids ...int32) change { return pods(func(p *Pod) { p.Ready = false }, ids...) }

func fresh(ids ...int32) change {
	return pods(func(p *Pod) {
		p.Created, p.Started, p.ReadySince = now.Add(-5*time.Second), now.Add(-4*time.Second), now.Add(-3*time.Second)
	}, ids...)
}

func created(at time.Time, ids ...int32) change {
	return pods(func(p *Pod) { p.Created = at }, ids...)
}

func noPod(ids ...int32) change {
	return func(o *Observation) {
		o.Pods = slices.DeleteFunc(o.Pods, func(p Pod) bool { return slices.Contains(ids, p.NodeID) })
	}
}

// Changes of claims.

func claims(f func(*Claim), ids ...int32) change {
	return func(o *Observation) {
		for i := range o.Claims {
			if slices.Contains(ids, o.Claims[i].NodeID) {
				f(&o.Claims[i])
			}
		}
	}
}

func noClaim(ids ...int32) change {
	return func(o *Observation) {
		o.Claims = slices.DeleteFunc(o.Claims, func(c Claim) bool { return slices.Contains(ids, c.NodeID) })
	}
}

func parked(ids ...int32) change      { return claims(func(c *Claim) { c.Parked = true }, ids...) }
func unformatted(ids ...int32) change { return claims(func(c *Claim) { c.FormattedFor = "" }, ids...) }

func deletingClaim(ids ...int32) change {
	return claims(func(c *Claim) { c.Deleting = true }, ids...)
}

// Changes of the quorum's view.

func noView(o *Observation)   { o.View = nil }
func noLeader(o *Observation) { o.View.Leader = -1 }

func full(ids ...int32) change    { return func(o *Observation) { o.View.BelowReserve = ids } }
func emptied(ids ...int32) change { return func(o *Observation) { o.View.Emptied = ids } }

func leader(id int32) change { return func(o *Observation) { o.View.Leader = id } }

func lagging(age time.Duration, ids ...int32) change {
	return func(o *Observation) {
		for _, list := range [][]Progress{o.View.Voters, o.View.Observers} {
			for i := range list {
				if slices.Contains(ids, list[i].NodeID) {
					list[i].CaughtUpAge, list[i].LogEnd = &age, 40
				}
			}
		}
	}
}

func notFollowing(ids ...int32) change {
	return func(o *Observation) {
		for _, list := range [][]Progress{o.View.Voters, o.View.Observers} {
			for i := range list {
				if slices.Contains(ids, list[i].NodeID) {
					list[i].CaughtUpAge, list[i].LogEnd = nil, -1
				}
			}
		}
	}
}

func logEnd(end int64, id int32) change {
	return func(o *Observation) {
		for i := range o.View.Voters {
			if o.View.Voters[i].NodeID == id {
				o.View.Voters[i].LogEnd = end
			}
		}
	}
}

// Changes of the rest.

func want(f func(*Want)) change { return func(o *Observation) { f(&o.Want) } }

func noIdentity(o *Observation) { o.Identity = nil }

func unsealed(o *Observation) {
	o.Identity.Sealed = false
	o.Identity.Voters = withoutClaimUIDs(o.Identity.Voters)
}

// empty is a resource that was just applied.
func empty(changes ...change) Observation {
	o := Observation{
		Now:      now,
		Want:     quiet().Want,
		Revision: Revision{Name: newRevision},
	}
	o.Want.Observers = 0
	for _, c := range changes {
		c(&o)
	}
	return o
}

func cmpUID(s string) types.UID { return types.UID(s) }
