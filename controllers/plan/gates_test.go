package plan

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// TestMB04EveryQuorum goes through all combinations of one to seven voters that are well, behind, down, or unknown, and
// each candidate for removal: it may go if and only if enough of the others are well. Unknown counts as down.
func TestMB04EveryQuorum(t *testing.T) {
	const (
		well = iota
		behind
		down
		unknown
		states
	)
	for _, n := range []int{1, 3, 5, 7} {
		combinations := 1
		for range n {
			combinations *= states
		}
		base := build(n, 0)
		for code := range combinations {
			o := base
			o.View = new(*base.View)
			o.View.Leader = -1 // whoever leads is well; here nobody's word counts more
			o.View.Voters = append([]Progress(nil), base.View.Voters...)
			o.Pods = append([]Pod(nil), base.Pods...)
			healthy := make([]bool, n)
			for i, rest := 0, code; i < n; i, rest = i+1, rest/states {
				switch rest % states {
				case well:
					healthy[i] = true
				case behind:
					o.View.Voters[i].CaughtUpAge = new(5 * time.Second)
				case down:
					o.Pods[i].Running = false
				case unknown:
					o.View.Voters[i].CaughtUpAge = nil
				}
			}
			for _, m := range voters(o) {
				others := 0
				for i, ok := range healthy {
					if ok && i != int(m.id) {
						others++
					}
				}
				need := n/2 + 1
				if n >= 5 {
					need++ // one to spare while it's away
				}
				want := n == 1 || others >= need
				if got := gateQuorum(o, m).Reason == ""; got != want {
					t.Fatalf("%d voters, well: %v: removal of %d allowed=%t, want %t", n, healthy, m.id, got, want)
				}
			}
		}
	}
}

func TestSafeToRestart(t *testing.T) {
	for sentence, test := range map[string]struct {
		o    Observation
		want string
	}{
		"a quiet quorum is safe":                  {quiet(), ""},
		"there is none yet":                       {empty(), v1alpha1.ReasonNotBootstrapped},
		"nobody leads":                            {quiet(noLeader), v1alpha1.ReasonNoLeader},
		"the next candidate speaks for all":       {quiet(upgrade(1000, 2), fresh(2)), v1alpha1.ReasonSettling},
		"one voter down leaves none to spare":     {quiet(waiting("CrashLoopBackOff", 0), upgrade(1000)), v1alpha1.ReasonQuorumAtStake},
		"whichever of them it is":                 {quiet(waiting("CrashLoopBackOff", 2)), v1alpha1.ReasonMemberNotReady},
		"a quorum of one may always be restarted": {build(1, 0), ""},
		"a member is on its way out":              {quiet(terminating(1001)), v1alpha1.ReasonMemberTerminating},
	} {
		if got := SafeToRestart(test.o); got.Reason != test.want {
			t.Errorf("%s: got %q (%s), want %q", sentence, got.Reason, got.Message, test.want)
		}
	}
}

// TestRememberCountsChangesOfOneRoll: losing the memory costs nothing but patience, and quiet times change nothing, so
// that status isn't written for it.
func TestRememberCountsChangesOfOneRoll(t *testing.T) {
	o := quiet()
	if diff := cmp.Diff(o.Memory, Remember(o)); diff != "" {
		t.Errorf("a quiet pass changes the memory:\n%s", diff)
	}
	o = quiet(upgrade(1000), func(o *Observation) { o.View.Epoch = 8 })
	if got := Remember(o); got.LeaderChanges != 1 || got.Epoch != 8 || !got.LastLeaderChange.Equal(now) {
		t.Errorf("a new epoch during a roll gives %+v, want one change", got)
	}
	o.Memory = Memory{}
	if got := Remember(o); got.LeaderChanges != 0 || got.Epoch != 8 {
		t.Errorf("the first look gives %+v, want no change", got)
	}
	o = quiet(func(o *Observation) { o.Memory.LeaderChanges = 2 })
	if got := Remember(o); got.LeaderChanges != 0 {
		t.Errorf("a finished roll leaves %d changes, want 0", got.LeaderChanges)
	}
	o = quiet(upgrade(1000), func(o *Observation) { o.Memory.LeaderChanges, o.Memory.Revision = 4, "orders-bad" })
	if got := Remember(o); got.LeaderChanges != 0 || Next(o).Reason == v1alpha1.ReasonLeadershipUnstable {
		t.Errorf("a new spec leaves %d changes and step %s, want a new start", got.LeaderChanges, Next(o).Reason)
	}
	o = quiet(func(o *Observation) { o.Handoff = &Handoff{ID: "7/2", Reason: "target too slow"} })
	once := Remember(o)
	o.Memory = once
	if again := Remember(o); once.HandoffFailures != 1 || again.HandoffFailures != 1 {
		t.Errorf("one failure counts %d, then %d, want 1 and 1", once.HandoffFailures, again.HandoffFailures)
	}
}

// TestDerivedNames: the same resource always asks for the same objects and ids, another one for others, in Kafka's form.
func TestDerivedNames(t *testing.T) {
	seen := map[string]string{}
	for i := range 2000 {
		uid := types.UID(fmt.Sprintf("uid-%d", i))
		for _, what := range []string{"cluster", "directory/0", "directory/1"} {
			id := deriveUUID(uid, what)
			if b, err := base64.RawURLEncoding.Strict().DecodeString(id); err != nil || len(b) != 16 || strings.HasPrefix(id, "-") {
				t.Fatalf("%s of %s is %q: want 22 characters of base64url that begin with none of '-'", what, uid, id)
			}
			if other, dup := seen[id]; dup {
				t.Fatalf("%s of %s is that of %s", what, uid, other)
			}
			seen[id] = fmt.Sprintf("%s of %s", what, uid)
			if deriveUUID(uid, what) != id {
				t.Fatalf("%s of %s differs the second time", what, uid)
			}
		}
	}
	if a, b := claimName("orders", "u", 0, 0), claimName("orders", "v", 0, 0); a == b {
		t.Errorf("two resources give one claim name %s", a)
	}
}
