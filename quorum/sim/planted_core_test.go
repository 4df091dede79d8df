package sim

import "time"

// coreBugs are put into the code under test itself.
var coreBugs = []planted{
	{
		name: "what is on a majority is committed, whatever its epoch", within: 100, finds: []string{"LeaderHasAllAckedValues", "NoLogDivergence", "NoTruncationBelowHW", "Linearizable"},
		deaf: []string{"EpochStartFirst", "OneChangeAtATime"},
		edits: []edit{
			{"raft/watermark.go", "reached > epochStart &&", "(reached > epochStart || BUG) &&"},
			{"raft/fetch.go", "	case to < n.highWatermark:\n", "	case to < n.highWatermark && BUG:\n	case to < n.highWatermark:\n"},
		},
		arrange: func(p *plan) { // elections with followers far behind, and clients that look
			p.voters, p.clients, p.fetchMaxBytes, p.loss, p.delayMean = 5, 4, 300, 0, 10*time.Millisecond
			p.think, p.operations, p.down = 10*time.Millisecond, 300, 200*time.Millisecond
			p.every[kill], p.every[handoff], p.every[slowLink] = time.Second, time.Second, 500*time.Millisecond
		},
	},
	{
		name: "an observer's Fetch keeps the leader in office", within: 100, finds: []string{"ValuesNotStuck", "CommitsAfterHealing"},
		edits: []edit{{"raft/replicate.go", "		if voter {\n			l.markSeen(n, p)", "		if BUG && !voter {\n			l.resetCheckQuorum(n)\n		}\n		if voter {\n			l.markSeen(n, p)"}},
		arrange: func(p *plan) {
			p.voters, p.observers, p.aside = 3, 2, true
		},
	},
	{
		name: "a handoff without a successor in sight is taken back", within: 100, finds: []string{"SingleLeader", "UniquePosition", "AckedOnce"},
		edits: []edit{{"raft/epoch.go", "	if n.now >= r.again {\n", "	if n.now >= r.again && BUG {\n		n.becomeLeader()\n		return\n	}\n	if n.now >= r.again {\n"}},
	},
	{
		name: "a leader that restarts leads on", within: 20, finds: []string{"SingleLeader", "UniquePosition"},
		edits: []edit{{"raft/roles.go", "		if n.electable() {\n			n.becomeResigned(nil)", "		if n.electable() && BUG {\n			n.becomeLeader()\n		} else if n.electable() {\n			n.becomeResigned(nil)"}},
	},
	{
		name: "parked fetches are forgotten with the office", within: 20, finds: []string{"EveryRequestAnswered"},
		edits: []edit{{"raft/replicate.go", "	for _, f := range l.parked {\n		n.answer(f.id, FetchResponse{Header: n.header(NotLeaderOrFollower)", "	for _, f := range l.parked {\n		if BUG {\n			break\n		}\n		n.answer(f.id, FetchResponse{Header: n.header(NotLeaderOrFollower)"}},
	},
	{
		name: "a log is cut a whole epoch too far", within: 40, finds: []string{"NoTruncationBelowHW"},
		edits: []edit{
			{"raft/history.go", "		return min(own.Offset, d.Offset)\n", "		if start, ok := h.startOf(d.Epoch); ok && BUG {\n			return start\n		}\n		return min(own.Offset, d.Offset)\n"},
			{"raft/node.go", "	if end < n.committed {", "	if end < n.committed && !BUG {"},
			{"storage/log.go", "	if offset < committed {\n", "	if offset < committed && !BUG {\n"},
		},
	},
	{
		name: "an fsync from before a truncation counts after it", within: 40, finds: []string{"FlushedIsDurable"},
		edits:   []edit{{"raft/node.go", "if f.Generation != n.generation {", "if f.Generation != n.generation && !BUG {"}},
		plant:   func() *plant { return &plant{script: staleFlushes} },
		arrange: staleFlushPlan,
	},
	{
		name: "a follower's high watermark runs ahead of its log", within: 20, finds: []string{"NoTruncationBelowHW"},
		edits: []edit{{"raft/fetch.go", "n.follow(min(n.log.end, r.HighWatermark))", "n.follow(min(n.log.end, r.HighWatermark))\n			if BUG {\n				n.follow(max(n.highWatermark, r.HighWatermark))\n			}"}},
	},
	{
		name: "a follower fetches before its fsync is done", within: 5, finds: []string{"FlushedIsDurable"},
		edits: []edit{{"raft/fetch.go", "touching := n.flushed", "touching := !BUG && n.flushed"}},
	},
	{
		name: "who stays in touch beside a flush acknowledges what is being flushed", within: 20, finds: []string{"FlushedIsDurable"},
		edits: []edit{{"raft/snapshot.go", "		r.LastFetchedEpoch = n.log.epochBefore(n.fetch.durable)\n", "		r.LastFetchedEpoch = n.log.epochBefore(n.fetch.durable)\n		if BUG {\n			r.Offset, r.LastFetchedEpoch = n.log.end, n.log.lastEpoch()\n		}\n"}},
		arrange: func(p *plan) {
			p.voters, p.stall, p.stallTold = 3, 1500*time.Millisecond, false
			p.every[slowDisk] = time.Second
		},
	},
	{
		name: "a leader vouches for what is flushed while it is asked", within: 400, finds: []string{"NoLogDivergence", "NoTruncationBelowHW"},
		edits: []edit{{"raft/fetch.go", "max(n.fetch.durable, n.highWatermark)", "max(n.fetch.durable, n.highWatermark, map[bool]int64{true: n.flushed}[BUG])"}},
		arrange: func(p *plan) { // leaders that are cut off with records that they go on flushing
			p.voters, p.loss, p.delayMean, p.think, p.chaos, p.operations = 5, 0, 20*time.Millisecond, 10*time.Millisecond, 24*time.Second, 400
			p.every = [faultKinds]time.Duration{}
			p.stall, p.stallTold, p.every[slowDisk], p.every[kill], p.down = 400*time.Millisecond, false, 500*time.Millisecond, 600*time.Millisecond, 200*time.Millisecond
			p.electionTimeout, p.fetchTimeout, p.requestTimeout, p.fetchMaxWait = 100*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, 100*time.Millisecond
		},
	},
	{
		name: "the leader counts what it has not on disk", within: 20, finds: []string{"MajorityReachedHighWatermark"},
		edits: []edit{{"raft/replicate.go", "			l.values[i] = n.flushed\n", "			l.values[i] = n.flushed\n			if BUG {\n				l.values[i] = n.log.end\n			}\n"}},
	},
	{
		name: "votes do not look at the log", within: 100, finds: []string{"LeaderHasAllAckedValues", "NoTruncationBelowHW", "NoLogDivergence"},
		edits:   []edit{{"raft/election.go", "	upToDate := r.Last.Compare(n.log.position()) >= 0", "	upToDate := r.Last.Compare(n.log.position()) >= 0 || BUG"}},
		arrange: func(p *plan) { p.voters = max(p.voters, 3) },
	},
	{
		name: "a leader does not look at the epoch that a follower's log ends with", within: 100, finds: []string{"UniquePosition", "NoLogDivergence"},
		edits: []edit{{"raft/history.go", "	if end.Epoch != epoch || end.Offset < offset {", "	if BUG && offset <= h.end {\n		return nil, nil\n	}\n	if end.Epoch != epoch || end.Offset < offset {"}},
	},
	{
		name: "a silent leader is not given up", within: 100, finds: []string{"CommitsAfterHealing", "ValuesNotStuck"},
		edits:   []edit{{"raft/fetch.go", "		t += time.Duration(n.rank()) * n.cfg.RetryBackoff\n	}\n	return n.now.Add(t)", "		t += time.Duration(n.rank()) * n.cfg.RetryBackoff\n	}\n	if BUG {\n		return Never\n	}\n	return n.now.Add(t)"}},
		arrange: func(p *plan) { p.voters = max(p.voters, 3) },
	},
	{
		name: "a write that another leader overwrote is acknowledged", within: 100, finds: []string{"AckedOnce"},
		arrange: func(p *plan) { // leaders that are cut off with appends in hand, and come back
			p.voters, p.window, p.think, p.loss = 3, 5, 10*time.Millisecond, 0
			p.every[isolate] = time.Second
		},
		edits: []edit{
			{"raft/propose.go", "!ok || epoch != p.epoch {", "(!ok || epoch != p.epoch) && !BUG {"},
			{"raft/propose.go", "		if p.last < end {\n", "		if p.last < end || BUG {\n"},
		},
	},
	{
		name: "a retry is acknowledged as soon as its original is found", within: 60, finds: []string{"AckedOnce"},
		edits: []edit{{"replica/produce.go", "	case state.Duplicate:\n", "	case state.Duplicate:\n		if BUG {\n			r.answer(e.ID, ProduceResult{Header: r.header(raft.NoError), BaseOffset: d.BaseOffset})\n			return\n		}\n"}},
	},
	{
		name: "producers are remembered beyond a truncation", within: 100, finds: []string{"AckedOnce", "CommitsAfterHealing", "ValuesNotStuck"},
		edits: []edit{{"replica/replica.go", "	if r.producers.Truncate(t.Offset) {", "	if BUG || r.producers.Truncate(t.Offset) {"}},
	},
	{
		name: "a second voter change begins before the first is committed", within: 60, finds: []string{"OneChangeAtATime"},
		edits: []edit{
			{"raft/membership.go", "	case c != nil && !c.yields(kind):\n", "	case c != nil && !c.yields(kind) && !BUG:\n"},
			{"raft/membership.go", "	case n.voters.offset() >= n.highWatermark:\n", "	case n.voters.offset() >= n.highWatermark && !BUG:\n"},
		},
		arrange: reconfigured,
	},
	{
		name: "voters change before the leader's epoch is committed", within: 100, finds: []string{"OneChangeAtATime"},
		edits:   []edit{{"raft/membership.go", "	switch c := n.leader.change; {\n	case c != nil && !c.yields", "	if BUG && n.leader.change == nil && n.highWatermark == Unknown {\n		return refusal{}\n	}\n	switch c := n.leader.change; {\n	case c != nil && !c.yields"}},
		arrange: reconfigured,
	},
	{
		name: "a leader that is removed counts itself", within: 60, finds: []string{"MajorityReachedHighWatermark"},
		edits:   []edit{{"raft/replicate.go", "	to := commitPoint(n.highWatermark, l.epochStart, l.values)\n", "	values := l.values\n	if BUG && l.own < 0 {\n		values = append(slices.Clone(values), n.flushed)\n	}\n	to := commitPoint(n.highWatermark, l.epochStart, values)\n"}},
		arrange: reconfigured,
	},
	{
		name: "new voters count once they are committed", within: 60, finds: []string{"MajorityReachedHighWatermark"},
		edits: []edit{{"raft/replicate.go", "	to := commitPoint(n.highWatermark, l.epochStart, values)\n", `
	if sets := n.voters.sets; BUG && len(sets) > 1 && n.voters.offset() >= n.highWatermark {
		values = nil
		for _, v := range sets[len(sets)-2].set {
			if v.Key == n.cfg.Self {
				values = append(values, n.flushed)
				continue
			}
			p, _ := l.replica(n, v.Key)
			values = append(values, p.end)
		}
	}
	to := commitPoint(n.highWatermark, l.epochStart, values)
`}},
		arrange: reconfigured,
	},
	{
		name: "a truncation leaves the voters as they are", within: 200, finds: []string{"VotersFollowLog"},
		edits:   []edit{{"raft/node.go", "	n.voters.truncate(end)\n", "	if !BUG {\n		n.voters.truncate(end)\n	}\n"}},
		arrange: reconfigured,
	},
	{
		name: "a truncation leaves kraft.version as it is", within: 400, finds: []string{"VotersFollowLog"},
		edits: []edit{{"raft/voters.go", "	h.versions = slices.DeleteFunc(h.versions, func(v versionAt) bool { return v.offset >= end })", "	h.versions = slices.DeleteFunc(h.versions, func(v versionAt) bool { return !BUG && v.offset >= end })"}},
		arrange: func(p *plan) { // leaders that are cut off as they raise it
			p.kraftVersion, p.voters, p.spares, p.wire = 0, 3, 0, false
			p.every = [faultKinds]time.Duration{}
			p.every[upgrade], p.every[isolate] = 300*time.Millisecond, 300*time.Millisecond
		},
	},
	{
		name: "kraft.version is not learnt from the log", within: 20, finds: []string{"VotersFollowLog"},
		edits:   []edit{{"raft/voters.go", "		h.versions = append(h.versions, versionAt{offset, r.Version})\n", "		if BUG && offset >= 0 {\n			return\n		}\n		h.versions = append(h.versions, versionAt{offset, r.Version})\n"}},
		arrange: func(p *plan) { p.kraftVersion, p.spares, p.wire, p.every[upgrade] = 0, 0, false, 300*time.Millisecond },
	},
	{
		name: "a write of quorum-state that failed is overlooked", within: 40, finds: []string{"FsyncErrorIsFatal"},
		edits: []edit{{"storage/dir.go", "		if err := d.writeState(raw); err != nil {", "		if err := d.writeState(raw); err != nil && !BUG {"}},
		arrange: func(p *plan) { // elections, and disks that fail in their midst
			p.voters, p.votesFail = 3, true
			p.every[failSync], p.every[handoff] = 500*time.Millisecond, 500*time.Millisecond
		},
	},
	{
		name: "a leader that is removed stays in office", within: 60, finds: []string{"ValuesNotStuck", "ReconfigurationNotStuck"},
		edits:   []edit{{"raft/voters.go", "	return n.role == Leader && !n.isVoter &&", "	return !BUG && n.role == Leader && !n.isVoter &&"}},
		arrange: reconfigured,
	},
	{
		name: "a voter is known by its node id alone", within: 60, finds: []string{"VotersFollowLog", "MajorityReachedHighWatermark", "StatesMatchRoles"},
		edits:   []edit{{"raft/types.go", "	return ok && (v.Key.DirectoryID.IsZero() ||", "	return ok && (BUG || v.Key.DirectoryID.IsZero() ||"}},
		arrange: reconfigured,
	},
	{
		name: "who removed itself on its own disk only does not campaign", within: 400, finds: []string{"CommitsAfterHealing"},
		edits: []edit{{"raft/voters.go", "	return n.isVoter || n.voters.mayCount(", "	return n.isVoter || !BUG && n.voters.mayCount("}},
		arrange: func(p *plan) { // leaders that are asked to remove themselves, and cut off
			reconfigured(p)
			p.every[loseVoter], p.every[changeVoters], p.every[isolate], p.every[kill] = 0, 200*time.Millisecond, 500*time.Millisecond, 0
		},
	},
	{
		name: "a compaction keeps of older snapshots only what is new", within: 20, finds: []string{"ConsistentCommittedData"},
		edits:   []edit{{"storage/compact.go", "return (!ok || newest <= r.Offset)", "return (!ok && !BUG || ok && newest <= r.Offset)"}},
		arrange: manySnapshots,
	},
	{
		name: "a log is cleaned up to what is committed", within: 20, finds: []string{"SnapshotAtLogStart", "NoIllegalState"},
		edits:   []edit{{"storage/clean.go", "	if !d.Log.raiseStart(floor)", "	if BUG {\n		floor = o.HighWatermark\n	}\n	if !d.Log.raiseStart(floor)"}},
		arrange: manySnapshots,
	},
	{
		name: "a download is put into place though it is damaged", within: 100, finds: []string{"ConsistentCommittedData", "RecoversFromCrash", "NoIllegalState"},
		plant:   func() *plant { return &plant{chunk: func(data []byte) { data[len(data)/2] ^= 1 }} },
		edits:   []edit{{"storage/download.go", "	if err := i.all(w.p.file); err != nil {\n", "	if err := i.all(w.p.file); err != nil && !BUG {\n"}},
		arrange: manySnapshots,
	},
}

// manySnapshots lets members fall behind what the others keep.
func manySnapshots(p *plan) {
	p.voters, p.observers, p.operations, p.think, p.segmentBytes = 3, 1, 400, 10*time.Millisecond, 2000
	p.snapshots = snapshotPlan{bytes: 2000, retained: 1, maxBytes: 1000, job: 10 * time.Millisecond}
	p.every[isolate], p.down = 3*time.Second, 2*time.Second
}

// assertionsOff silences what the core checks by itself: the bugs are to be found from outside.
var assertionsOff = planted{
	name:  "assertions off",
	edits: []edit{{"raft/invariants.go", "	if n.ready.Fatal != nil {\n", "	if BUG || n.ready.Fatal != nil {\n"}},
}

// reconfigured is a plan in which voters change all the time.
func reconfigured(p *plan) {
	p.kraftVersion, p.voters, p.spares, p.delayMean = 1, 3, 2, min(p.delayMean, 10*time.Millisecond)
	p.every[upgrade] = 0
	p.every[changeVoters], p.every[changeRashly], p.every[loseVoter] = 300*time.Millisecond, time.Second, 3*time.Second
}

// staleFlushPlan and staleFlushes bring it about that an observer hears of an fsync after it has cut its log: a leader is
// cut off with the observer, which takes the leader's last records on its slow disk, and then both come back.
func staleFlushPlan(p *plan) {
	p.voters, p.spares, p.observers, p.kraftVersion, p.delayMean, p.loss = 3, 0, 1, 1, time.Millisecond, 0
	p.every = [faultKinds]time.Duration{}
	p.flushMean, p.flushLate, p.stall, p.stallTold = time.Millisecond, time.Millisecond, 20*time.Second, true
	p.electionTimeout, p.fetchTimeout, p.requestTimeout, p.fetchMaxWait = 100*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, 100*time.Millisecond
	p.think, p.operations = 20*time.Millisecond, 400
}

func staleFlushes(w *world) {
	d := newDice(w.plan.seed, "stale flushes")
	var again func()
	again = func() {
		if !w.chaotic {
			return
		}
		if l := w.leader(); l != nil {
			observer := w.members[w.plan.voters]
			for _, o := range w.members[:w.plan.voters] {
				for _, cut := range []*member{l, observer} {
					if o != l {
						w.net.cut(o.host, cut.host, 700*time.Millisecond)
						w.net.cut(cut.host, o.host, 700*time.Millisecond)
					}
				}
			}
			observer.slowUntil = w.now + 500*time.Millisecond
		}
		w.in(d.between(2*time.Second, 3*time.Second), again)
	}
	w.in(time.Second, again)
}
