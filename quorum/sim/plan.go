package sim

import (
	"fmt"
	"strings"
	"time"
)

// plan is all that a seed draws before the world begins: the quorum's shape, its timers, and how bad things will be.
type plan struct {
	seed   uint64
	voters int
	// observers have ids from 1000, as the operator gives them.
	observers int
	// spares are members that are no voters at first and may become some.
	spares       int
	clients      int
	kraftVersion int16 // 1: voters by record, 0: static

	chaos time.Duration // how long

	electionTimeout, fetchTimeout, requestTimeout time.Duration
	retryBackoff, linger, fetchMaxWait            time.Duration
	fetchMaxBytes                                 int
	segmentBytes                                  int64

	delayMin, delayMean time.Duration // of one message, one way
	loss                float64       // share of messages that TCP has to send again
	duplicate           float64       // share of peers' requests that arrive a second time, some time later
	wire                bool          // messages between members pass as bytes, in versions old and new
	driftPPM            int           // clocks run up to this much too fast or too slow

	flushMean time.Duration // how long an fsync takes
	flushLate time.Duration // how much later the replica hears of it, at most
	stall     time.Duration // how much longer an fsync takes on a slow disk
	stallTold bool          // … in the telling: the fsync is done, the process is slow to hear of it

	window int           // appends that an idempotent client has in flight
	think  time.Duration // mean time between a client's operations
	// operations bounds the appends of a client, and with them the time that checking its history takes.
	operations int
	nimble     bool // clients tell a newer leader from an older one, and remember who did not answer

	snapshots snapshotPlan
	votesFail bool // an fsync that fails may be one of quorum-state

	ballast int64 // bytes that a directory keeps for when a disk is full
	untold  bool  // a full disk says that it has plenty of room

	aside    bool                      // who is cut off at the end is cut off from the other voters only
	autoJoin bool                      // who is no voter but might be asks to be made one
	down     time.Duration             // mean time until a dead process is started again
	every    [faultKinds]time.Duration // mean time between faults of a kind; 0: never
}

// generation counts the ways in which plans have been drawn. What is new is drawn last, faults are added last, and both
// stay out of older generations: else the seeds in testdata would not mean any more what they meant when they failed.
const generation = 9

// draw makes the plan of a seed.
func draw(seed uint64) plan { return drawAs(seed, generation) }

func drawAs(seed uint64, generation int) plan {
	d := newDice(seed, "plan")
	p := plan{
		seed:         seed,
		voters:       oneOf(d, 1, 2, 3, 3, 3, 3, 3, 4, 5, 5),
		observers:    oneOf(d, 0, 0, 1, 2),
		clients:      2 + d.IntN(3),
		kraftVersion: oneOf[int16](d, 1, 1, 1, 0),
		chaos:        d.between(4*time.Second, 24*time.Second),

		electionTimeout: time.Second,
		fetchTimeout:    2 * time.Second,
		requestTimeout:  2 * time.Second,
		retryBackoff:    20 * time.Millisecond,
		linger:          oneOf(d, 0, 0, 5*time.Millisecond, 25*time.Millisecond),
		fetchMaxWait:    500 * time.Millisecond,
		fetchMaxBytes:   oneOf(d, 1<<20, 1<<20, 2000, 300),
		segmentBytes:    oneOf[int64](d, 1<<30, 16<<10, 2000),

		delayMin:  oneOf(d, 100*time.Microsecond, time.Millisecond),
		delayMean: oneOf(d, time.Millisecond, 2*time.Millisecond, 10*time.Millisecond, 40*time.Millisecond),
		loss:      oneOf(d, 0, 0, 0.01, 0.05, 0.2),
		duplicate: oneOf(d, 0, 0, 0.02, 0.1),
		driftPPM:  oneOf(d, 0, 1000, 50_000, 200_000),

		flushMean: oneOf(d, 0, time.Millisecond, 5*time.Millisecond, 50*time.Millisecond),
		stall:     300 * time.Millisecond,
		flushLate: oneOf(d, 0, time.Millisecond, 20*time.Millisecond, 200*time.Millisecond),

		window:     oneOf(d, 1, 1, 3, 5),
		think:      oneOf(d, 20*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond),
		operations: 120,

		down: oneOf(d, 20*time.Millisecond, 200*time.Millisecond, time.Second, 4*time.Second),
	}
	if d.chance(0.15) { // impatient timers: more elections in the same time
		p.electionTimeout, p.fetchTimeout, p.requestTimeout = 300*time.Millisecond, 700*time.Millisecond, 700*time.Millisecond
		p.fetchMaxWait = 200 * time.Millisecond // even by a slow clock well below the follower's patience by a fast one
	}
	for k := range fullDisk { // what came later is drawn later, and never into a quiet world
		if d.chance(0.45) {
			p.every[k] = d.between(700*time.Millisecond, 10*time.Second)
		}
	}
	if d.chance(0.2) { // a storm
		for k := range p.every {
			p.every[k] /= 4
		}
	}
	quiet := d.chance(0.05)
	if quiet {
		p.every = [faultKinds]time.Duration{} // a quiet world must be quiet
	}
	p.wire = d.chance(0.3)
	if d.chance(0.25) && !quiet {
		p.every[fullDisk] = d.between(time.Second, 8*time.Second)
	}
	if generation >= 2 {
		if d.chance(0.25) && !quiet {
			p.every[clockJump] = d.between(time.Second, 8*time.Second)
		}
		if d.chance(0.2) && !quiet && p.kraftVersion > 0 { // static voters have no directory ids: there a lost disk is a lost vote
			p.every[loseVoter] = d.between(2*time.Second, 10*time.Second)
		}
		p.aside = d.chance(0.5)
		p.stall = oneOf(d, p.stall, p.stall, 1500*time.Millisecond)
		p.stallTold = d.chance(0.3)
	}
	if generation >= 3 && !quiet {
		if changes := d.chance(0.5); changes && p.kraftVersion > 0 {
			p.spares = d.IntN(3)
			p.autoJoin = d.chance(0.2)
			p.every[changeVoters] = d.between(300*time.Millisecond, 4*time.Second)
			if d.chance(0.4) {
				p.every[changeRashly] = d.between(500*time.Millisecond, 4*time.Second)
			}
		} else if changes && !p.wire {
			p.every[upgrade] = d.between(500*time.Millisecond, 3*time.Second)
		}
	}
	if generation >= 4 {
		p.snapshots = drawSnapshots(d)
		if p.snapshots.bytes > 0 && d.chance(0.7) {
			p.segmentBytes = 2000 // else there is nothing to clean
		}
	}
	if generation >= 5 && p.every[changeVoters] > 0 && d.chance(0.5) { // where voters can be replaced, they had better be
		p.every[loseVoter] = d.between(2*time.Second, 8*time.Second)
	}
	p.nimble = generation >= 6
	p.votesFail = generation >= 7
	if generation >= 8 && !quiet && d.chance(0.25) {
		p.every[slowDisks] = d.between(2*time.Second, 8*time.Second)
	}
	if generation >= 9 {
		p.ballast = oneOf[int64](d, 0, 64<<10)
		p.untold = d.chance(0.3)
	}
	return p
}

// String tells what a failing seed was about.
func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d voters (kraft.version %d) and %d spares, auto-join %v, %d observers, %d clients with window %d thinking %v; chaos for %v\n",
		p.seed, p.voters, p.kraftVersion, p.spares, p.autoJoin, p.observers, p.clients, p.window, p.think, p.chaos)
	fmt.Fprintf(&b, "  timers: election %v, fetch %v, request %v, linger %v; fetch %d bytes, segments %d bytes\n",
		p.electionTimeout, p.fetchTimeout, p.requestTimeout, p.linger, p.fetchMaxBytes, p.segmentBytes)
	fmt.Fprintf(&b, "  network: delay %v+%v, loss %v, duplicates %v, as bytes %v; clocks drift %d ppm; fsync %v, on a slow disk %v more (in the telling: %v), told up to %v late\n",
		p.delayMin, p.delayMean, p.loss, p.duplicate, p.wire, p.driftPPM, p.flushMean, p.stall, p.stallTold, p.flushLate)
	fmt.Fprintf(&b, "  %v\n", p.snapshots)
	fmt.Fprintf(&b, "  ballast %d bytes; full disks are untold %v\n", p.ballast, p.untold)
	fmt.Fprintf(&b, "  at the end who is cut off sees observers %v\n", p.aside)
	fmt.Fprintf(&b, "  dead processes are down for %v; faults, mean time between:", p.down)
	for k, every := range p.every {
		if every > 0 {
			fmt.Fprintf(&b, " %v %v;", faultKind(k), every.Round(time.Millisecond))
		}
	}
	return b.String()
}
