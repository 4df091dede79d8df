// Package raft is KRaft, Kafka's pull-based Raft (KIP-595, 630, 853, 996, 1166), as a state machine without I/O.
//
// # Contract of the driver
//
// One goroutine owns a Node. For everything that happens it calls Step(now, event), then Ready, does the work in the
// order of the fields, and calls Advance. It calls Step with Deadline when the instant of Node.Deadline has come.
//
//  1. Persist is durable before anything else of the same Ready is done: a vote is never forgotten. If that took a while,
//     Persisted is the next event, as soon as the Ready is done.
//  2. Truncate before Appends; Appends before Flush; Flush runs beside the rest and is answered by the event Flushed. So
//     does Verify, answered by SnapshotVerified.
//  3. Answers and Sends leave only after 1, Install, and the writes (not the fsync) of 2. What must wait for the fsync
//     waits in the core.
//  4. A Fatal ends the process; nothing else in that Ready is done.
//  5. Fetched bytes are validated before the core hears of them, and kept until the Ready that follows; what that Ready does
//     not name is dropped.
//  6. Before a Send goes to a destination whose earlier request has no outcome yet, that connection is closed: a sender has at
//     most one request outstanding on a connection, and answers come in order.
//  7. The driver makes snapshots of what is below Settled, ending between two batches, and cleans the log behind them, when
//     it likes: it tells by SnapshotCreated and Cleaned.
//  8. Messages that have already arrived are given before a Deadline that is due: a late wake-up is not a silent leader.
//
// The core knows positions (offset, epoch, size), never payload bytes; it has no clock, socket, disk, goroutine or logger.
// The same events give the same effects: randomness comes from Config.Rand alone, and no map is ever iterated.
//
// # What always holds
//
//   - An epoch has at most one leader; a replica votes once an epoch, and remembers it before it says so.
//   - Committed is what a majority of the newest voter set, appended or committed, has on disk, once that includes the first
//     record of the leader's epoch. It is never truncated: a leader that asks for it ends the process.
//   - Nothing counts that is not flushed: no share of the leader's own in the high watermark, no offset in a Fetch
//     (observer-only replicas, which never count, excepted), no answer to a write.
//   - At most one batch group (8 MiB) is unsynced, so that recovery can tell a torn tail from damage.
//   - A write is acknowledged only if it stands in the log, in its epoch, below the high watermark; also across a change of
//     leader. Whatever is unsure is answered with NOT_LEADER_OR_FOLLOWER.
//   - Observers fetch and learn; they never count, never vote for themselves, and keep no leader in office.
//   - The voters change by one at a time, and the next change waits until the last is committed. Who joins has caught up
//     and has answered at its address. A leader that is removed commits that without counting itself, hands over, and goes.
//   - A snapshot never takes away what is committed. Where the log begins, one ends.
//   - A timer that has no action is no deadline: nobody spins.
//
// invariants.go checks after each step what one replica can check by itself.
//
// # Where this is not Kafka, though no Kafka peer can tell
//
//   - The high watermark waits for the leader's own fsync; the fsync runs beside replication.
//   - A follower whose fsync takes long asks meanwhile for what it has already: both stay sure of each other. It does not
//     campaign before it is done.
//   - EndQuorumEpoch makes followers grant pre-votes, and its first successor skips its own: the best one wins at once.
//   - A handoff pauses writes and waits for the target's last fetch before it resigns.
//   - A refused connection to the leader starts an election by rank (fast failover).
//   - Who was long in writing down a vote, or who leads, begins its patience after that, and gives others as much time.
//   - A leader hands over by itself if its disk is nearly full, or far slower than the others'.
//   - Fetch timers are set apart by rank; back-off doubles while a destination keeps failing.
//   - A follower whose Fetch went to a bootstrap server goes back to its leader when that announces itself.
//   - Parked fetches fail whenever the leader leaves office; a Fetch with the leader's own id gets INVALID_REQUEST.
//   - A follower takes a snapshot whose end is behind its log's in the order of votes, if what it loses is not committed; a
//     whole log is never replaced for want of an epoch in it; while a snapshot is checked its last byte is asked for again.
//   - A replica that voted for itself and then learnt of a leader restarts as its follower, not as a candidate.
//   - A newcomer must have caught up within the last fetch timeout, not once in its life; a voter that was removed does not
//     join again by itself, unless it restarts when only a snapshot tells of the voters; a voter's own update makes way for
//     an addition or a removal.
//   - A removed leader goes whenever it sees that its removal is committed, also if the request timed out (KIP-853 forgets).
//   - A replica whose own removal may stand nowhere but in its log campaigns on, without counting itself: without it, a
//     quorum of KIP-853 could be left with nobody who can win (see electable in voters.go).
//   - A follower whose leader is silent for a fetch timeout grants pre-votes even if it has not heard that it is a voter.
//   - An observer does not enter a later epoch that has no leader, except to give a vote: it could be locked out there. It
//     answers the asker in the asker's epoch, naming no leader.
//   - Who campaigns or has resigned looks for a leader at the bootstrap servers, too, when none announces itself.
//   - A leader that has resigned names its next successor first when it has heard of none for 150 ms.
//   - After a change of voters the leader has a whole fetch timeout to hear from a majority of the new set.
//   - An UpdateRaftVoter that is refused as INVALID_REQUEST does not end the process; it is sent again later.
//   - At most 1024 fetches are parked, and a replica's next Fetch completes the one before. EndQuorumEpoch tells endpoints.
//
// # Reading order
//
// types.go, event.go, ready.go and config.go are the contract; node.go is the frame; roles.go has every transition. Then
// election.go, epoch.go (BeginQuorumEpoch, EndQuorumEpoch, Resigned), fetch.go (follower), replicate.go (leader),
// history.go (where logs part), snapshot.go, watermark.go (what is committed), propose.go (writes), voters.go (voter sets
// and what follows from them), membership.go (their changes, on the leader), join.go (on followers), handoff.go, leave.go,
// conn.go.
//
// # Stories
//
// testdata/scripts holds golden scripts, one scenario each, named after what happens in it (PR-nn and MB-nn are public bug
// reports retold): election, prevote, divergence_two_epochs, figure8_pr02, pr01 to pr13, single_voter, static_voters,
// check_quorum_observers_pr14, observer_discovery, observer_cut_off_server, barrier, update_voter,
// mb02_leader_removes_itself, mb02_self_removal_survives_on_one_disk, mb07_newcomers, mb08_changes_at_once,
// mb09_removed_voter_stays_out, pr12_removed_voter, pr31_new_voter_grants, upgrade_kraft_version, reserve, slow_fsync_st14,
// shutdown, the handoff_… and snapshot_… families, writes_over_a_handoff, parked_write_truncated, fast_failover,
// fast_failover_once, candidate_restarts, leader_lost_by_turns.
package raft
