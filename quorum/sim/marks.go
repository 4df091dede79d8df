package sim

// mark is something that a run may come across. A simulation that never gets there tests nothing of it, however many
// seeds are clean: TestEverythingHappens insists.
type mark int

const (
	truncated          mark = iota // a follower cut its log
	diverging                      // a leader told a follower where their logs part
	preVoteRefused                 // …
	voteRefused                    //
	votedTwiceAsked                // a second candidate of an epoch was refused by a voter that had voted
	candidateRestarted             // a process found its own vote in quorum-state
	leaderRestarted                // a process found itself as leader in quorum-state
	tornTail                       // recovery cut a torn tail
	handoffSucceeded               //
	handoffAborted                 //
	handoffRefused                 //
	ackedAfterOffice               // an append was acknowledged by a member that did not lead any more
	barrierAnswered                //
	barrierRefused                 // the leader lost its office while a barrier waited
	notAvailable                   // a client came with an offset that is not known to be committed yet
	appendRepeated                 // a retry found its original in the log
	appendTimedOut                 // REQUEST_TIMED_OUT
	diedInside                     // a process died between two calls on its disk
	fsyncFailed                    //
	stoppedGracefully              //
	segmentRolled                  //
	belowReserve                   // a member has less room than it wants to keep
	appendWithoutRoom              // an append is refused for that
	flushedTooLate                 // the replica heard of an fsync after it had cut the log
	changeGranted                  // a voter was added or removed
	changeRefused                  //
	leaderRemoved                  // … the leader
	leftInOffice                   // a leader led on that is no voter any more
	upgraded                       // kraft.version went to 1
	setUndone                      // a truncation took a voter set back
	snapshotMade                   //
	logCleaned                     // … and the log cut behind it
	snapshotOffered                // a download begins
	downloadDropped                // … and comes to nothing
	snapshotInstalled              // … or into its place
	compactedRead                  // a client is shown less than was appended
	votedInAgain                   // a node that lost its disk is a voter with the new one
	keptInTouch                    // one that may vote asked beside a flush for what it has already
	noRoomForEpoch                 // a member has no room to open an epoch
	votedWithoutRoom               // … and votes
	voteNotSynced                  // an fsync of quorum-state failed
	upgradeUndone                  // a truncation took kraft.version back
	ballastReleased                // a write found room in the ballast
	nobodyElectable                // a disk was lost in the midst of a change of voters, and the logs that are left elect nobody
	markCount          = int(nobodyElectable) + 1
)

func (k mark) String() string {
	return [...]string{
		"log truncated", "diverging logs", "pre-vote refused", "vote refused", "second vote of an epoch refused", "candidate restarted",
		"leader restarted", "torn tail cut", "handoff succeeded", "handoff aborted", "handoff refused",
		"acknowledged after the office", "barrier answered", "barrier refused", "offset not available", "retry found its original",
		"append timed out", "died inside a step", "fsync failed", "stopped gracefully", "segment rolled", "below the disk reserve", "append refused for want of room",
		"flush told after a truncation",
		"voter change granted", "voter change refused", "leader removed", "led without a vote", "kraft.version raised", "voter set taken back",
		"snapshot made", "log cleaned", "snapshot offered", "download dropped", "snapshot installed", "compacted topic read",
		"voted in again", "fetched beside a flush", "no room to open an epoch", "voted without room to lead", "fsync of quorum-state failed",
		"kraft.version taken back", "room found in the ballast", "logs that elect nobody",
	}[k]
}

func (w *world) saw(k mark) { w.counts.marks[k]++ }
