package sim

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// The scenarios below are public bug reports replayed by hand; all of them run with the oracle watching.

// PR-01 (KAFKA-15489): a leader that is cut off from its majority stops acting as one, and acknowledges nothing.
func TestPR01LeaderCutOffFromItsMajorityStepsDown(t *testing.T) {
	w := settled(t, quiet(1, 3))
	old := w.leader()
	epoch, at := old.seen.epoch, w.now
	w.isolates(old, true, true, time.Minute)
	w.until(at + 50*time.Millisecond)
	committed := old.seen.highWatermark
	w.untilIs(at+4*time.Second, func() bool { return old.seen.role != raft.Leader })
	w.holds(t)
	if took := w.now - at; old.seen.role == raft.Leader || took > 3100*time.Millisecond {
		t.Errorf("cut off for %v, the leader is a %v; want it to leave within 3s", took, old.seen.role)
	}
	if old.seen.highWatermark > committed {
		t.Errorf("cut off, it moved its high watermark from %d to %d", committed, old.seen.highWatermark)
	}
	w.untilIs(at+5*time.Second, func() bool { l := w.leader(); return l != nil && l != old })
	w.holds(t)
	if l := w.leader(); l == nil || l == old || l.seen.epoch <= epoch {
		t.Errorf("5s later nobody else leads: %s", w.situation())
	}
}

// PR-05 (KAFKA-10527, KAFKA-17333): a leader that crashed with appends that it had not flushed does not go on in its old epoch,
// nor serve anything.
func TestPR05RestartedLeaderIsResigned(t *testing.T) {
	var old *member
	refused, alone := 0, false
	w := settledWith(t, quiet(5, 3), &plant{answer: func(m *member, a *replica.Answer) {
		if r, ok := a.Result.(replica.ProduceResult); ok && alone && m == old {
			if refused++; r.Error != raft.NotLeaderOrFollower {
				t.Errorf("a %v answers an append with %+v, want NOT_LEADER_OR_FOLLOWER", m.seen.role, r)
			}
		}
	}})
	old = w.leader()
	epoch := old.seen.epoch
	if !w.untilIs(w.now+time.Second, func() bool { return old.disk.log.end > old.disk.log.durableEnd() }) {
		t.Fatal("nothing was ever waiting for its flush")
	}
	for _, m := range w.members {
		m.die(m == old)
	}
	old.start()
	if old.seen.role != raft.Resigned || old.seen.epoch != epoch {
		t.Fatalf("the old leader of epoch %d restarts as %v of epoch %d, want Resigned of the same", epoch, old.seen.role, old.seen.epoch)
	}
	alone = true
	for refused < 3 {
		w.until(w.now + time.Second)
		w.holds(t)
		if w.now > time.Minute {
			t.Fatalf("alone it has answered %d appends in a minute", refused)
		}
	}
	w.until(w.now + 5*time.Second)
	w.holds(t)
	alone = false
	if old.seen.role == raft.Leader {
		t.Fatalf("alone it leads epoch %d", old.seen.epoch)
	}
	for _, m := range w.members {
		m.start()
	}
	w.untilIs(w.now+10*time.Second, w.followed)
	w.holds(t)
	if l := w.leader(); l == nil || l.seen.epoch <= epoch {
		t.Errorf("no leader of a later epoch than %d: %s", epoch, w.situation())
	}
}

// PR-06 (KAFKA-10677): what the followers wait for in Fetch does not delay the election after a resignation.
func TestPR06ParkedFetchesDoNotDelayTheNextElection(t *testing.T) {
	p := quiet(6, 3)
	p.operations = 5 // idle soon: both followers are parked
	w := settled(t, p)
	w.until(w.now + 3*time.Second)
	old, at := w.leader(), w.now
	old.gracefulStop(time.Minute)
	w.untilIs(at+time.Second, func() bool { l := w.leader(); return l != nil && l != old })
	w.holds(t)
	if took := w.now - at; took > 100*time.Millisecond {
		t.Errorf("the next leader took %v, want less than 100ms", took)
	}
}

var flagStarts = flag.Int("starts", 200, "how many quorums TestPR08ElectionsEnd starts")

// PR-08 (KAFKA-18345): voters that start at once on slow links do not collide for ever.
func TestPR08ElectionsEnd(t *testing.T) {
	worst := raft.Epoch(0)
	seeds := *flagStarts
	if testing.Short() {
		seeds = min(seeds, 20)
	}
	for seed := range uint64(seeds) {
		p := quiet(800+seed, 3+2*int(seed%2))
		p.delayMin, p.delayMean, p.clients = 50*time.Millisecond, 100*time.Microsecond, 1
		w := newWorld(p, nil, nil)
		for _, m := range w.members {
			m.format()
			m.start()
		}
		w.untilIs(20*time.Second, w.followed)
		w.holds(t)
		l := w.leader()
		if l == nil {
			t.Fatalf("seed %d: nobody leads after 20s: %s", p.seed, w.situation())
		}
		worst = max(worst, l.seen.epoch)
	}
	if t.Logf("the worst of %d starts took %d epochs", seeds, worst); worst > 6 {
		t.Errorf("a leader took %d epochs, want at most 6", worst)
	}
}

// PR-09 (KIP-996): a follower that was cut off and comes back, again and again, disturbs nobody.
func TestPR09ReturningFollowerDoesNotDisturb(t *testing.T) {
	p := quiet(9, 3)
	p.operations, p.think, p.clients = 1<<30, time.Second, 1
	w := settled(t, p)
	leader, epoch := w.leader(), w.leader().seen.epoch
	m := w.follower()
	for range 20 {
		w.isolates(m, true, true, time.Minute)
		w.until(w.now + time.Minute)
		if m.seen.epoch > epoch {
			t.Fatalf("cut off, it went to epoch %d; the quorum's is %d", m.seen.epoch, epoch)
		}
		w.net.heal(func(int) bool { return true })
		w.until(w.now + 5*time.Second)
		w.holds(t)
		if leader.seen.role != raft.Leader || leader.seen.epoch != epoch || m.seen.leader != leader.id {
			t.Fatalf("its return disturbed epoch %d of node %d: %s", epoch, leader.id, w.situation())
		}
	}
}

// PR-11 (hashicorp/raft 605): a leader resigns, with one voter dead, and its EndQuorumEpoch gets lost. Soon it leads again or
// is replaced, counted from the resignation; and whoever was told that it serves no more refuses it no pre-vote because of it.
func TestPR11UnheardResignationEndsSoon(t *testing.T) {
	for name, resign := range map[string]func(old *member){
		"lives on": func(old *member) {
			old.asks("hand over", func(id raft.RequestID) replica.Event {
				return replica.Core{Event: raft.Handoff{ID: id, Target: raft.NoReplica}}
			})
		},
		"stops and is started again": func(old *member) { old.gracefulStop(0) },
	} {
		t.Run(name, func(t *testing.T) {
			var old *member
			lost, told, asked, refused := 0, false, 0, 0
			bug := &plant{
				swallows: func(m *member, s *raft.Send) bool {
					_, end := s.Request.(raft.EndQuorumEpochRequest)
					if end {
						lost++
					}
					return end
				},
				fetched: func(_ *member, f *replica.Fetched) {
					told = old != nil && (told || f.Response.Error == raft.NotLeaderOrFollower)
				},
				answer: func(m *member, a *replica.Answer) {
					if x := m.requests[a.ID]; told && x != nil {
						r, vote := x.payload.(raft.VoteRequest)
						if answer, _ := a.Result.(raft.VoteResponse); vote && r.PreVote && r.Replica == old.key {
							asked++
							if !answer.Granted && answer.Leader == old.id {
								refused++
							}
						}
					}
				},
			}
			w := settledWith(t, quiet(11, 3), bug)
			old = w.leader()
			w.follower().die(true)
			epoch := old.seen.epoch
			resign(old)
			w.untilIs(w.now+stopTimeout, func() bool { return old.seen.role == raft.Resigned })
			w.holds(t)
			at := w.now
			w.untilIs(at+10*time.Second, func() bool { l := w.leader(); return l != nil && l.seen.epoch > epoch })
			w.holds(t)
			t.Logf("%v after the resignation node %d leads; %d EndQuorumEpoch were lost, %d pre-votes asked of one who knew", w.now-at, w.leader().id, lost, asked)
			if limit := 2*w.plan.fetchTimeout + w.plan.electionTimeout; w.now-at > limit {
				t.Errorf("a leader came after %v, want %v at most: %s", w.now-at, limit, w.situation())
			}
			if lost == 0 || refused > 0 {
				t.Errorf("%d EndQuorumEpoch were lost, want some; %d pre-votes of node %d were refused since it was thought to lead", lost, refused, old.id)
			}
		})
	}
}

var flagPowerCuts = flag.Int("powercuts", 60, "how many quorums TestPR13PowerCutsLoseNothing runs, each with some thirty power cuts")

// PR-13 (KAFKA-10533, KAFKA-17332): power is cut from one or from everybody, over and over; what was acknowledged stays.
// Meanwhile members become voters and cease to be: a Fetch of one that was none a moment ago counts, too.
func TestPR13PowerCutsLoseNothing(t *testing.T) {
	seeds := *flagPowerCuts
	if testing.Short() {
		seeds = min(seeds, 5)
	}
	total := runAll(t, func(i int) (plan, bool) {
		p := draw(1300 + uint64(i))
		p.chaos, p.down = 8*time.Second, 20*time.Millisecond
		p.delayMean, p.loss = time.Millisecond, 0
		p.electionTimeout, p.fetchTimeout, p.requestTimeout, p.fetchMaxWait = 100*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, 100*time.Millisecond
		p.every = [faultKinds]time.Duration{}
		p.every[powerCutAll], p.every[powerCut] = 800*time.Millisecond, 300*time.Millisecond
		if p.kraftVersion > 0 {
			p.spares, p.every[changeVoters] = max(p.spares, 1), 200*time.Millisecond
		}
		return p, i < seeds
	})
	cuts := total.counts.faults[powerCut] + total.counts.faults[powerCutAll]
	t.Logf("power was cut %d times", cuts)
	if cuts < 20*seeds {
		t.Errorf("power was cut %d times in %d runs", cuts, seeds)
	}
	if n := total.counts.marks[changeGranted]; n < seeds {
		t.Errorf("voters were changed %d times in %d runs: the test shows nothing of them", n, seeds)
	}
}

// A replica hears of an fsync after it has cut its log: what it is told says nothing about the log of now.
func TestFlushToldAfterATruncation(t *testing.T) {
	seen := 0
	for seed := range uint64(3) {
		p := draw(1400 + seed)
		staleFlushPlan(&p)
		w := newWorld(p, &plant{script: staleFlushes}, nil)
		_ = w.run()
		w.holds(t)
		seen += w.counts.marks[flushedTooLate]
	}
	if seen == 0 {
		t.Error("it did not happen")
	}
}

// PR-20 (KAFKA-17751, KAFKA-19605): nobody is busy with doing nothing.
func TestPR20NobodySpins(t *testing.T) {
	idle := func(w *world, role raft.Role, m *member) {
		t.Helper()
		before, from := m.allTicks, w.now
		w.until(w.now + time.Minute)
		w.holds(t)
		if rate := float64(m.allTicks-before) / (w.now - from).Seconds(); rate >= 50 {
			t.Errorf("node %d, a %v, now %v: %.0f ticks a second, want less than 50", m.id, role, m.seen.role, rate)
		}
	}
	p := quiet(20, 3)
	p.observers, p.operations = 1, 5
	w := settled(t, p)
	w.until(w.now + 2*time.Second)
	observer := w.members[3]
	idle(w, raft.Leader, w.leader())
	idle(w, raft.Follower, w.follower())
	idle(w, raft.Follower, observer)

	old, kept := w.leader(), w.follower()
	for _, m := range w.members {
		if m.voter && m != kept {
			m.die(m.host%2 == 0)
		}
	}
	idle(w, raft.Prospective, kept)
	idle(w, raft.Follower, observer)
	kept.die(true)
	idle(w, raft.Unattached, observer)
	old.start() // Resigned, and alone
	idle(w, raft.Resigned, old)
}

// PR-22: a node that can send but not receive raises no epoch; a leader that is so resigns.
func TestPR22DeafNodes(t *testing.T) {
	w := settled(t, quiet(22, 3))
	leader, epoch := w.leader(), w.leader().seen.epoch
	w.isolates(w.follower(), true, false, time.Minute)
	w.until(w.now + time.Minute)
	w.holds(t)
	if leader.seen.role != raft.Leader || leader.seen.epoch != epoch {
		t.Fatalf("a deaf follower has ended epoch %d: %s", epoch, w.situation())
	}
	w.net.heal(func(int) bool { return true })
	w.until(w.now + 5*time.Second)

	at := w.now
	w.isolates(leader, true, false, time.Minute)
	w.untilIs(at+10*time.Second, func() bool { return leader.seen.role != raft.Leader })
	if took := w.now - at; leader.seen.role == raft.Leader || took > 3100*time.Millisecond {
		t.Errorf("deaf for %v, the leader is a %v; want it to resign within 3s", took, leader.seen.role)
	}
	w.untilIs(at+10*time.Second, func() bool { l := w.leader(); return l != nil && l != leader })
	w.holds(t)
	if l := w.leader(); l == nil || l == leader || l.seen.epoch > epoch+2 || w.now-at > 6*time.Second {
		t.Errorf("%v after the leader of epoch %d went deaf: %s", w.now-at, epoch, w.situation())
	}
}

// PR-23: A sees B, B sees C, A and C do not see each other; C leads. Nothing happens, for ten minutes.
func TestPR23ChainPartitionChangesNothing(t *testing.T) {
	p := quiet(23, 3)
	p.operations, p.think, p.loss = 1<<30, 300*time.Millisecond, 0.05
	w := settled(t, p)
	c, epoch := w.leader(), w.leader().seen.epoch
	a := w.follower()
	w.net.cut(a.host, c.host, 10*time.Minute)
	w.net.cut(c.host, a.host, 10*time.Minute)
	w.until(w.now + 10*time.Second) // what was on its way is through
	lag := func() int64 { return c.disk.log.end - a.disk.log.end }
	for range 59 {
		before, behind, end := w.counts.acked, lag(), a.disk.log.end
		w.until(w.now + 10*time.Second)
		w.holds(t)
		if c.seen.role != raft.Leader || c.seen.epoch != epoch {
			t.Fatalf("epoch %d of node %d has ended: %s", epoch, c.id, w.situation())
		}
		if w.counts.acked == before {
			t.Fatalf("no append was acknowledged within 10s: %s", w.situation())
		}
		if a.disk.log.end != end || lag() <= behind || a.seen.leader != c.id && a.seen.leader != raft.None {
			t.Fatalf("node %d names leader %d and is %d records behind, was %d: want %d or none, and no progress: %s",
				a.id, a.seen.leader, lag(), behind, c.id, w.situation())
		}
	}
	t.Logf("node %d fell %d records behind", a.id, lag())
	w.net.heal(func(int) bool { return true })
	if !w.untilIs(w.now+5*time.Second, func() bool { return w.followed() && lag() < 5 }) {
		t.Errorf("not whole 5s after healing: %s", w.situation())
	}
}

// PR-34 (redpanda 2071): restarts of followers under load, gentle or not, move the lead to nobody.
func TestPR34FollowerRestartsKeepTheLeader(t *testing.T) {
	p := quiet(34, 3)
	p.operations, p.think, p.clients, p.window = 1<<30, 17*time.Millisecond, 6, 5
	w := settled(t, p)
	leader, epoch := w.leader(), w.leader().seen.epoch
	restarts := 100
	if testing.Short() {
		restarts = 10
	}
	d := newDice(34, "restarts")
	acked, began := w.counts.acked, w.now
	for i := range restarts {
		m := w.follower()
		down := d.between(10*time.Millisecond, 500*time.Millisecond)
		if i%8 == 0 {
			down *= 8 // longer than the fetch timeout, now and then
		}
		switch i % 3 {
		case 0:
			m.gracefulStop(down)
		default:
			m.die(i%3 == 1)
			w.in(down, m.start)
		}
		w.until(w.now + down)
		w.untilIs(w.now+5*time.Second, w.followed)
		w.holds(t)
		if leader.seen.role != raft.Leader || leader.seen.epoch != epoch {
			t.Fatalf("restart %d of node %d has ended epoch %d of node %d: %s", i, m.id, epoch, leader.id, w.situation())
		}
	}
	perSecond := float64(w.counts.acked-acked) / (w.now - began).Seconds()
	if t.Logf("%d restarts, %.0f appends a second", restarts, perSecond); perSecond < 200 {
		t.Errorf("%.0f appends a second, want 200", perSecond)
	}
	w.history.check(w)
	w.holds(t)
}

// ST-02 (ArcadeDB 5345): all disks are full to the last byte, and everybody is restarted. Nobody ends, nobody campaigns, and
// whoever has room again is voted for by those that have none; with a majority that has room, appends are committed.
func TestST02DiskFullEverywhere(t *testing.T) {
	p := quiet(102, 3)
	p.operations = 1 << 30
	w := settled(t, p)
	epoch := w.leader().seen.epoch
	for _, m := range w.members {
		m.disk.fill(0) // at once: no member had a warning
	}
	w.until(w.now + 5*time.Second)
	for _, m := range w.members {
		m.die(true)
	}
	for _, m := range w.members {
		m.start()
	}
	w.until(w.now + time.Minute)
	w.holds(t)
	for _, m := range w.members {
		if !m.up || !m.seen.full || m.life != 2 || m.seen.epoch != epoch {
			t.Fatalf("a minute later, without room: %s", w.situation())
		}
	}
	w.members[0].disk.drain()
	w.untilIs(w.now+10*time.Second, func() bool { return w.leader() == w.members[0] })
	w.holds(t)
	if w.leader() != w.members[0] {
		t.Fatalf("one has room, and does not lead: %s", w.situation())
	}
	w.members[1].disk.drain()
	committed := w.oracle.committedEnd()
	w.untilIs(w.now+10*time.Second, func() bool { return w.oracle.committedEnd() > committed+3 })
	w.holds(t)
	if end := w.oracle.committedEnd(); end <= committed+3 {
		t.Errorf("two have room: committed up to %d, was %d; %s", end, committed, w.situation())
	}
	for _, m := range w.members {
		if m.life != 2 {
			t.Errorf("node %d is in its life %d, want the second", m.id, m.life)
		}
	}
}

// ST-14 (etcd 7617, 7312): a disk that is slow, and all of them. Followers stay in touch while they flush, and a leader whose
// disk alone is slow hands over.
func TestST14SlowFsync(t *testing.T) {
	const minutes = 5
	slow := map[string]func(w *world) []*member{
		"leader":   func(w *world) []*member { return []*member{w.leader()} },
		"follower": func(w *world) []*member { return []*member{w.follower()} },
		"all":      func(w *world) []*member { return w.members },
	}
	for _, c := range []struct {
		who     string
		fsync   time.Duration
		epochs  raft.Epoch // more than there were, at most
		leaves  bool       // the lead goes to another
		appends int        // acknowledged, at least
	}{
		{"leader", 100 * time.Millisecond, 0, false, 2000},
		{"leader", time.Second, 0, false, 250},
		{"leader", 5 * time.Second, 1, true, 2000},
		{"follower", 100 * time.Millisecond, 0, false, 2000},
		{"follower", time.Second, 0, false, 2000},
		{"follower", 5 * time.Second, 0, false, 2000},
		{"all", 100 * time.Millisecond, 0, false, 2000},
		{"all", time.Second, 0, false, 300},
		{"all", 2500 * time.Millisecond, 0, false, 100},
		{"all", 5 * time.Second, 0, false, 50},
	} {
		for _, voters := range []int{3, 5} {
			t.Run(fmt.Sprintf("%s/%v/%d", c.who, c.fsync, voters), func(t *testing.T) {
				p := quiet(140+uint64(voters), voters)
				p.operations, p.think = 1<<30, 200*time.Millisecond
				w := settled(t, p)
				leader, epoch := w.leader(), w.leader().seen.epoch
				for _, m := range slow[c.who](w) {
					m.fsync = c.fsync
				}
				before := w.counts.acked
				for range minutes {
					w.until(w.now + time.Minute)
					w.holds(t)
				}
				now, acked := w.leader(), w.counts.acked-before
				t.Logf("%d epochs more, %d appends acknowledged", now.seen.epoch-epoch, acked)
				if now.seen.epoch > epoch+c.epochs || c.leaves == (now == leader) || acked < c.appends {
					t.Errorf("node %d led epoch %d, node %d leads epoch %d, %d appends acknowledged: want %d epochs more at most, another leader %v, %d appends at least: %s",
						leader.id, epoch, now.id, now.seen.epoch, acked, c.epochs, c.leaves, c.appends, w.situation())
				}
			})
		}
	}
}

// ST-14: an election on slow disks ends, too. Each vote is two fsyncs, for which its giver waits.
func TestST14ElectionOnSlowDisks(t *testing.T) {
	for _, fsync := range []time.Duration{100 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second} {
		for _, voters := range []int{3, 5} {
			longest := time.Duration(0)
			for seed := range uint64(8) {
				p := quiet(1440+seed, voters)
				p.operations, p.think = 1<<30, 200*time.Millisecond
				w := settled(t, p)
				old, epoch := w.leader(), w.leader().seen.epoch
				for _, m := range w.members {
					m.fsync = fsync
				}
				w.until(w.now + 30*time.Second)
				at := w.now
				old.die(false)
				committed := w.oracle.committedEnd()
				done := w.untilIs(at+5*time.Second+30*fsync, func() bool { l := w.leader(); return l != nil && l.seen.highWatermark > committed })
				w.holds(t)
				if l := w.leader(); !done || l == nil || l.seen.epoch > epoch+3 {
					t.Errorf("seed %d: %v after the leader of epoch %d, want the next to have committed, in 3 epochs at most: %s", p.seed, w.now-at, epoch, w.situation())
				}
				longest = max(longest, w.now-at)
			}
			t.Logf("%d voters whose fsyncs take %v: without a leader for %v at most", voters, fsync, longest.Round(10*time.Millisecond))
		}
	}
}
