package server

import (
	"context"
	"errors"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// loop is the state of the one goroutine that owns the replica.
type loop struct {
	lastID  raft.RequestID
	waiting map[raft.RequestID]waiter // who is answered by the replica

	fatal   *Fatal
	stopped bool // the replica has nothing left to do
	over    bool // the loop has ended: nothing happens to the replica any more

	stopping      bool
	leads         bool
	epoch         raft.Epoch
	leaderContact raft.Instant
	caughtUp      bool
	nextPrune     raft.Instant
	late          raft.Instant              // the last deadline that was met late
	jobs          map[*replica.Job]struct{} // that run
	claims        claims
}

// waiter is a request that the replica has. Neither function may block.
type waiter struct {
	reply func(result any)
	drop  func() // there will be no answer
}

type flushed struct {
	flush *replica.Flush
	err   error
	took  time.Duration
}

// beatEvery is how often the loop comes round even if nothing happens, which /livez watches.
const beatEvery = time.Second

// lateAfter is how late a deadline may be met before it is counted as late: a small part of the timeouts that elect leaders.
const lateAfter = 100 * time.Millisecond

// roundSize bounds the events of one round, after which timers and flushes get their turn.
const roundSize = 256

// post hands f to the loop. It reports false if the loop has ended.
func (s *server) post(f func()) bool {
	select {
	case <-s.done: // alone first: with room in the inbox the choice below is a toss
		return false
	default:
	}
	select {
	case s.inbox <- f:
		return true
	case <-s.done:
		return false
	}
}

// runLoop owns the replica until it has stopped, failed, or was killed.
func (s *server) runLoop(ctx context.Context) error {
	s.metrics.idle.add(0) // its time begins
	s.carryOut(s.replica.Start(s.now()))
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	var giveUp <-chan time.Time
	for {
		s.publish()
		switch {
		case s.fatal != nil:
			return s.fatal
		case s.stopped:
			return nil
		}
		since, due := s.now(), s.due()
		timer.Reset(time.Duration(due - since))
		select {
		case f := <-s.inbox:
			s.woke(since, due)
			f()
			s.round()
		case f := <-s.flushed:
			s.woke(since, due)
			s.afterFlush(f)
		case <-timer.C:
			s.woke(since, due)
			s.round() // what has come already comes first: a late wake-up is no silent leader
			s.step(replica.Tick{})
		case <-stop:
			stop = nil
			giveUp = s.stop()
		case <-giveUp:
			s.Log.Warn("Stopped without a successor: nobody took the leadership in time", "duration", s.cfg.ShutdownTimeout)
			return nil
		case <-s.Kill:
			return ErrKilled
		}
	}
}

// round runs more events that are already there.
func (s *server) round() {
	for range roundSize {
		if s.fatal != nil {
			return
		}
		select {
		case f := <-s.inbox:
			f()
		default:
			return
		}
	}
}

// due is when the loop has to come round next.
func (s *server) due() raft.Instant {
	return min(s.replica.Deadline(), s.now().Add(beatEvery))
}

// woke notes how long the loop has waited, and whether for longer than it may. A deadline that passed while it worked is late
// as well, but only once.
func (s *server) woke(since, due raft.Instant) {
	now := s.now()
	s.metrics.idle.add(time.Duration(now - since).Seconds())
	if now > due.Add(lateAfter) && due != s.late {
		s.late = due
		s.metrics.lateTicks.Add(1)
	}
}

// stop begins a graceful stop: a leader hands over, everybody else has nothing to wait for.
func (s *server) stop() (giveUp <-chan time.Time) {
	s.stopping = true
	s.Log.Info("Stopping", "role", s.replica.Status().Role.String(), "epoch", s.epoch)
	s.step(replica.Core{Event: raft.Shutdown{Timeout: s.cfg.ShutdownTimeout}})
	return time.After(s.cfg.ShutdownTimeout + time.Second)
}

// step lets one event happen to the replica and does what comes of it.
func (s *server) step(event replica.Event) {
	if s.fatal == nil && !s.over {
		s.carryOut(s.replica.Step(s.now(), event))
	}
}

// ask is step for an event that is answered.
func (s *server) ask(w waiter, event func(id raft.RequestID) replica.Event) {
	if s.over {
		w.drop()
		return
	}
	s.lastID++
	s.waiting[s.lastID] = w
	s.step(event(s.lastID))
}

// turnAway takes events until closed, and lets those who ask for something go at once. An event that was handed in as the
// loop ended would else never be looked at: its client would wait for the end of the drain, and a new leader is there.
func (s *server) turnAway(closed <-chan struct{}) {
	for {
		select {
		case f := <-s.inbox:
			f()
		case <-closed:
			return
		}
	}
}

// dropWaiting lets everybody go who is still waiting when the loop has ended.
func (s *server) dropWaiting() {
	s.over = true
	for _, w := range s.waiting {
		w.drop()
	}
	clear(s.waiting)
}

// carryOut does the work of an Output.
func (s *server) carryOut(out replica.Output) {
	if out.Fatal != nil {
		s.fatal = &Fatal{Token: out.Fatal.Reason, Message: out.Fatal.Message}
		return
	}
	s.noteLeadership()
	for _, err := range out.Dropped {
		s.metrics.droppedBatches.Add(1)
		s.Log.Warn("Dropped fetched records", "err", err)
	}
	if out.Flush != nil {
		s.flushes <- out.Flush
	}
	if out.WriteCommitted {
		select {
		case s.notes <- struct{}{}:
		default:
		}
	}
	for _, job := range out.Jobs {
		s.runJob(job)
	}
	for _, a := range out.Answers {
		w := s.waiting[a.ID]
		delete(s.waiting, a.ID)
		w.reply(a.Result)
	}
	for _, send := range out.Sends {
		var tag *wire.FetchTag
		if _, ok := send.Request.(raft.FetchRequest); ok {
			tag = &wire.FetchTag{
				TableVersion: s.members.version,
				Listeners:    s.advertised,
				Rack:         s.cfg.Rack,
				BelowReserve: s.replica.BelowReserve(),
			}
		}
		s.peers.Send(send, tag)
	}
	s.stopped = s.stopped || out.Stopped
}

// noteLeadership keeps the member table and the log of what happened in step with the core.
func (s *server) noteLeadership() {
	leads, epoch := s.replica.Leads()
	if leads {
		if !s.leads || s.epoch != epoch {
			s.members.lead(s.now(), epoch)
			s.nextPrune = s.now().Add(forgetAfter)
		}
		s.members.setSelf(s.now(), epoch, s.replica.BelowReserve())
		if s.now() >= s.nextPrune {
			s.members.prune(s.now(), epoch, s.replica.Status().Voters)
			s.nextPrune = s.now().Add(beatEvery)
		}
	}
	if epoch != s.epoch {
		s.leaderContact, s.caughtUp = -1, s.caughtUp && !leads
	}
	s.leads, s.epoch = leads, epoch
}

// publish shows everybody else how things stand.
func (s *server) publish() {
	now := s.now()
	v := &view{
		Status:        s.replica.Status(),
		now:           now,
		shown:         s.replica.HighWatermark(),
		counts:        s.replica.Counts(),
		snapshots:     s.replica.Snapshots(),
		belowReserve:  s.replica.BelowReserve(),
		leaderContact: s.leaderContact,
		caughtUp:      s.caughtUp,
		queue:         len(s.inbox),
		stopping:      s.stopping,
		fetchTimeout:  int64(s.cfg.FetchTimeout),
	}
	before := s.view.Load()
	if before != nil && before.table.Version == s.members.version && before.VotersOffset == v.VotersOffset {
		v.table = before.table
	} else {
		v.table = s.members.table(v.Voters)
	}
	s.logChanges(before, v)
	s.metrics.observe(before, v)
	s.view.Store(v)
	s.beat.Store(int64(now))
}

func (s *server) logChanges(before, v *view) {
	if before == nil {
		return
	}
	if before.Role != v.Role || before.Leader != v.Leader || before.Election.Epoch != v.Election.Epoch {
		s.Log.Info("Changed role", "role", v.Role.String(), "leader", v.Leader, "epoch", v.Election.Epoch, "voter", v.IsVoter,
			"offset", v.LogEnd.Offset, "highWatermark", v.Status.HighWatermark)
	}
	if before.Role == raft.Leader && v.Role != raft.Leader {
		if silent := before.silent(v.now); len(before.Voters)-len(silent) < before.Voters.Majority() {
			s.Log.Warn("Gave up the lead: no majority of the voters fetches any more", "epoch", before.Election.Epoch, "silent", silent)
		}
	}
	if h := v.Handoff; h.Phase != before.Handoff.Phase || h.WriteGap != before.Handoff.WriteGap {
		s.Log.Info("Handoff", "phase", string(h.Phase), "from", h.From, "target", h.Target.String(), "leader", h.To, "epoch", h.ToEpoch,
			"reason", h.Message, "writeGap", h.WriteGap, "measuredBy", h.MeasuredBy)
	}
	if n := v.snapshots.Newest; n.ID != before.snapshots.Newest.ID {
		s.Log.Info("Got a new snapshot", "offset", n.ID.Offset, "epoch", n.ID.Epoch, "bytes", n.Size, "records", n.Records)
	}
	if before.LogStart != v.LogStart {
		s.Log.Info("Cut the log at its start", "offset", v.LogStart)
	}
	if d := v.Download; d != nil && (before.Download == nil || before.Download.Snapshot != d.Snapshot) {
		s.Log.Info("Began to download a snapshot", "leader", v.Leader, "offset", d.Snapshot.Offset, "epoch", d.Snapshot.Epoch)
	}
	if before.VotersOffset != v.VotersOffset {
		s.Log.Info("Changed voter set", "voters", len(v.Voters), "offset", v.VotersOffset)
	}
	if before.belowReserve != v.belowReserve {
		s.Log.Warn("Free space crossed the reserve", "below", v.belowReserve, "reserve", s.cfg.ReserveBytes,
			"ballast", s.replica.Dir().HasBallast())
	}
}

// flushLoop runs the flushes, one after the other.
func (s *server) flushLoop() {
	for f := range s.flushes {
		began := time.Now()
		err := f.Run()
		s.flushed <- flushed{flush: f, err: err, took: time.Since(began)} // has room: one is outstanding
	}
}

// noteLoop renews the committed file. A fault of the disk ends the process at once: the log serves nobody after it, and in
// a quiet hour nothing else would notice.
func (s *server) noteLoop() {
	for range s.notes {
		err := s.replica.Dir().WriteCommitted()
		if err == nil {
			continue
		}
		s.Log.Warn("Could not write the committed file", "err", err)
		if _, ok := errors.AsType[*storage.Fault](err); ok {
			s.post(func() {
				if s.fatal == nil {
					s.fatal = fatalOf(s.cfg.LogDir, err)
				}
			})
			return
		}
	}
}

func (s *server) afterFlush(f flushed) {
	s.metrics.fsync.observe(f.took)
	s.step(replica.Flushed{Flush: f.flush, Err: f.err})
}

// onReply takes in a peer's answer. It runs on the peer's goroutine.
func (s *server) onReply(r transport.Reply) {
	s.post(func() {
		if piece, ok := r.Outcome.Response.(raft.FetchSnapshotResponse); ok {
			s.step(replica.FetchedSnapshot{Correlation: r.Outcome.Correlation, Response: piece, Data: r.Records})
			if piece.TopError == raft.NoError && piece.Error == raft.NoError && piece.Epoch == s.epoch {
				s.leaderContact = s.now()
			}
			return
		}
		fetch, ok := r.Outcome.Response.(raft.FetchResponse)
		if !ok {
			s.step(replica.Core{Event: r.Outcome})
			return
		}
		if r.Table != nil && !s.leads && r.Table.Version > s.members.version {
			s.members.learn(r.Table)
		}
		s.step(replica.Fetched{Correlation: r.Outcome.Correlation, Response: fetch, Records: r.Records})
		if fetch.TopError == raft.NoError && fetch.Error == raft.NoError && fetch.Diverging == nil && fetch.Epoch == s.epoch {
			s.leaderContact = s.now()
			if fetch.HighWatermark >= 0 && s.replica.Dir().Log.End() >= fetch.HighWatermark {
				s.caughtUp = true
			}
		}
	})
}
