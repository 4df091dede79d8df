package plan

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	corev1 "k8s.io/api/core/v1"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// pass is one round of observe → plan → act → report, in which act fails after `works` actions.
func (m *model) pass(works int) Step {
	o := m.observe()
	s := Next(o)
	if again := Next(m.observe()); !reflect.DeepEqual(s, again) {
		m.fail("the same facts give another step:\n%s", cmp.Diff(s, again))
	}
	for i, a := range s.Actions {
		if Disruptive(a) && i != len(s.Actions)-1 {
			m.fail("disruptive action %T is not the last of %v", a, s.Actions)
		}
	}
	m.memory = Remember(o)
	for _, a := range s.Actions[:min(works, len(s.Actions))] {
		m.apply(a)
	}
	m.tick()
	return s
}

const everything = 1000 // actions of a pass that work

// settle runs until nothing is left to do.
func (m *model) settle(bound int) {
	var last Step
	for range bound {
		if last = m.pass(everything); last.Reason == v1alpha1.ReasonUpToDate && len(last.Actions) == 0 {
			return
		}
	}
	m.fail("not up to date after %d passes: %s: %s\n%s", bound, last.Reason, last.Message, m)
}

func (m *model) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %s, leader %d, epoch %d\n", m.revision, m.leader, m.epoch)
	for _, id := range slices.Sorted(maps.Keys(m.pods)) {
		p := m.pods[id]
		fmt.Fprintf(&b, "pod %d: revision %s claim %s running %t ready %t terminating %t %s\n", id, p.Revision, p.Claim, p.Running, p.Ready, p.Terminating, p.Problem)
	}
	for _, n := range slices.Sorted(maps.Keys(m.claims)) {
		c := m.claims[n]
		fmt.Fprintf(&b, "claim %s: dir %s formatted %s parked %t deleting %t\n", n, c.dir, c.FormattedFor, c.Parked, c.Deleting)
	}
	return b.String()
}

// TestConvergence throws faults at a quorum under the planner's care: A1, A2 and A3 hold at every act, no directory id is
// ever given twice, and once the faults stop, everything is as the spec wants it.
func TestConvergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		voters := rapid.SampledFrom([]int32{1, 3, 5}).Draw(t, "voters")
		m := newModel(voters, rapid.Int32Range(0, 3).Draw(t, "observers"), t.Fatalf)
		specs := 1
		lost := 0
		for range rapid.IntRange(20, 150).Draw(t, "passes") {
			fault := rapid.IntRange(0, 24).Draw(t, "fault")
			id := rapid.Int32Range(0, voters-1).Draw(t, "id")
			works := everything
			switch fault {
			case 0: // a new spec
				specs++
				m.revision = fmt.Sprintf("r%d", specs)
				m.bad[m.revision] = rapid.IntRange(0, 3).Draw(t, "bad") == 0
			case 1: // the old spec again
				m.revision = fmt.Sprintf("r%d", rapid.IntRange(1, specs).Draw(t, "back to"))
			case 2:
				m.want.Observers = rapid.Int32Range(0, 4).Draw(t, "scale")
			case 3: // somebody deletes a Pod
				m.kill(id)
			case 4: // a process dies
				if p := m.pods[id]; p != nil && p.Running {
					p.Running, p.Ready, p.Created = false, false, m.now
				}
			case 5: // the kubelet gives a Pod up
				if p := m.pods[id]; p != nil && !p.Terminating {
					p.Phase, p.Running, p.Ready = corev1.PodFailed, false, false
				}
			case 6:
				if m.isCut(id) {
					delete(m.cut, id)
				} else {
					m.cut[id] = m.now
				}
			case 7: // leadership moves by itself
				if good := m.goodOrNone(); m.leader >= 0 && slices.Contains(good, id) && id != m.leader {
					m.lead(id)
				}
			case 8:
				m.silent = !m.silent
			case 9, 10: // the API server refuses from the k-th write on
				works = rapid.IntRange(0, 3).Draw(t, "works")
			case 11: // status is deleted
				m.memory = Memory{}
			case 12: // a restart is asked for
				m.want.RestartedAt = m.now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "at")) * time.Second)
			case 13: // the record is deleted by a person
				m.identity = nil
			case 14: // an observer's claim is deleted by a person
				for _, name := range slices.Sorted(maps.Keys(m.claims)) {
					if c := m.claims[name]; c.NodeID >= v1alpha1.FirstObserverID {
						c.Deleting = true
						m.kill(c.NodeID)
						break
					}
				}
			case 15: // a voter's disk is lost
				if p := m.pods[id]; lost == 0 && voters > 1 && p != nil && m.identity != nil && m.isVoter(id) {
					lost++
					m.claims[p.Claim].Deleting = true
					m.kill(id)
				}
			}
			m.pass(works)
		}
		// The faults stop, the last spec is a good one.
		m.cut, m.silent = map[int32]time.Time{}, false
		specs++
		m.revision = fmt.Sprintf("r%d", specs)
		if lost > 0 { // a voter that lost its disk keeps a quorum of three from being rolled, and is a person's to see
			m.endsWithALostVoter()
			return
		}
		m.settle(1200)
		for id, p := range m.pods {
			if p.Revision != m.revision {
				t.Fatalf("pod %d runs %s, want %s", id, p.Revision, m.revision)
			}
		}
		if got := len(observerSlots(m.observe())); got != int(m.want.Observers) {
			t.Fatalf("%d observers, want %d", got, m.want.Observers)
		}
	})
}

func (m *model) goodOrNone() []int32 {
	if m.identity == nil {
		return nil
	}
	return m.good()
}

// endsWithALostVoter: the quorum goes on with the others, and the step says what a person has to know, and stays with it.
func (m *model) endsWithALostVoter() {
	var last Step
	for steady := 0; steady < 60; {
		last = m.pass(everything)
		switch last.Reason {
		case v1alpha1.ReasonVoterReplaced, v1alpha1.ReasonQuorumAtStake, v1alpha1.ReasonUpToDate:
			steady++
		default:
			steady = 0
		}
		if m.now.Sub(now) > time.Hour {
			m.fail("still at %s: %s\n%s", last.Reason, last.Message, m)
		}
	}
	if m.leader < 0 || len(m.good()) < m.majority() {
		m.fail("no quorum is left after one lost disk: %s: %s\n%s", last.Reason, last.Message, m)
	}
}

// TestOneHandoffPerRoll: without faults a roll restarts each member once and moves leadership once.
func TestOneHandoffPerRoll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		voters := rapid.SampledFrom([]int32{1, 3, 5, 7}).Draw(t, "voters")
		m := newModel(voters, rapid.Int32Range(0, 5).Draw(t, "observers"), t.Fatalf)
		m.settle(300)
		if id := rapid.Int32Range(0, voters-1).Draw(t, "leader"); id != m.leader {
			m.lead(id)
			m.settle(300)
		}
		epoch := m.epoch
		before := map[int32]Pod{}
		for id, p := range m.pods {
			before[id] = p.Pod
		}
		if rapid.Bool().Draw(t, "by restart") {
			m.want.RestartedAt = m.now
		} else {
			m.revision = "r2"
		}
		m.settle(1000)
		handoffs, elections := 1, int32(1)
		if voters == 1 {
			handoffs = 0 // nobody to hand over to: it elects itself again
		}
		if m.handoffs != handoffs || m.epoch-epoch != elections {
			t.Fatalf("%d handoffs and %d elections, want %d and %d", m.handoffs, m.epoch-epoch, handoffs, elections)
		}
		for id, p := range m.pods {
			if p.UID == before[id].UID {
				t.Fatalf("pod %d was not replaced", id)
			}
		}
	})
}

// TestRL01OneBrokenMemberAtMost: a spec that can't run breaks one member and no second one, whatever Pods are deleted and
// whichever processes die meanwhile, as long as the faults alone leave a majority; and it's taken back without help.
func TestRL01OneBrokenMemberAtMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		voters := rapid.SampledFrom([]int32{3, 5}).Draw(t, "voters")
		m := newModel(voters, rapid.Int32Range(0, 2).Draw(t, "observers"), t.Fatalf)
		m.settle(300)
		m.revision = "bad"
		m.bad["bad"] = true
		for range 200 {
			id := rapid.Int32Range(0, voters-1).Draw(t, "id")
			// The broken one apart, one member at a time has a fault, and not while that costs the quorum by itself.
			if len(m.good()) == int(voters) || (voters == 5 && len(m.good()) == 4) {
				switch p := m.pods[id]; rapid.IntRange(0, 8).Draw(t, "fault") {
				case 0:
					m.kill(id)
				case 1:
					if p != nil && p.Running {
						p.Running, p.Ready, p.Created, p.Problem = false, false, m.now, "CrashLoopBackOff"
					}
				}
			}
			m.pass(everything)
			broken := 0
			for _, p := range m.pods {
				if p.Revision == "bad" {
					broken++
				}
			}
			if broken > 1 {
				t.Fatalf("%d members were broken by one spec\n%s", broken, m)
			}
		}
		m.revision = "r1"
		m.settle(300)
	})
}

// TestGoldenRoll is a whole upgrade as a person would watch it: three voters led by 1, two observers.
func TestGoldenRoll(t *testing.T) {
	m := newModel(3, 2, t.Fatalf)
	m.settle(300)
	m.lead(1)
	m.settle(300)
	m.revision, m.now = "r2", now.Add(time.Hour)
	start := m.now
	var b strings.Builder
	last := ""
	for range 1000 {
		at := m.now.Sub(start)
		s := m.pass(everything)
		line := fmt.Sprintf("%-18s %s\n", s.Reason, s.Message)
		for _, a := range s.Actions {
			line += fmt.Sprintf("                 %s\n", strings.TrimPrefix(fmt.Sprintf("%T%+v", a, a), "plan."))
		}
		if line != last {
			fmt.Fprintf(&b, "%6s %s", at, line)
			last = line
		}
		if s.Reason == v1alpha1.ReasonUpToDate {
			break
		}
	}
	golden(t, filepath.Join("testdata", "roll.txt"), b.String())
}

// golden compares with a file, and writes it anew when REWRITE is set.
func golden(t *testing.T, name, got string) {
	t.Helper()
	for i := 1; i < 200; i++ { // UIDs count up; the file needs no numbers of theirs
		got = strings.ReplaceAll(got, fmt.Sprintf("uid-%d ", i), "… ")
		got = strings.ReplaceAll(got, fmt.Sprintf("uid-%d}", i), "…}")
	}
	if os.Getenv("REWRITE") != "" {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); REWRITE=1 go test writes it anew:\n%s", name, diff)
	}
}
