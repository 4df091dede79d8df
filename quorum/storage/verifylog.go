package storage

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// logVerifier checks one <topic>-0 directory: first what each file says, then whether they agree.
type logVerifier struct {
	*verifier
	LogReport
	names []string
	sizes map[string]int64

	epochFile []raft.OffsetAndEpoch
	epochs    []epochStart // as the log has them
	leaders   map[raft.Epoch]raft.LeaderChange
	voters    []votersAt // of the log
	version   int16      // newest kraft.version of the log; -1: none

	next    int64  // where the next batch must begin; -1: not known after damage
	last    string // where the batch before begins, for people
	damaged bool   // the log is: what follows from it is not compared
	cut     bool   // the log ends in a torn tail

	boundaries  map[int64]bool // offsets that checkpoints are named for: does a batch begin there?
	bootstrap   *checkpointContent
	checkpoints []checkpointContent // the whole ones, ascending
}

type epochStart struct {
	raft.OffsetAndEpoch
	file     string
	position int64
}

type votersAt struct {
	offset int64
	set    raft.VoterSet
	file   string
	at     int64 // position of its batch
}

type checkpointContent struct {
	id      raft.OffsetAndEpoch
	file    string
	set     raft.VoterSet
	version int16
}

// errTorn ends the reading of a log at its torn tail.
var errTorn = errors.New("torn tail")

func (l *logVerifier) run() error {
	// committed and leader-epoch-checkpoint before the log, quorum-state after it: beside a running member the first may
	// be behind, and the last ahead.
	for _, step := range []func() error{l.readSmallFiles, l.readCheckpoints, l.readSegments, l.readState} {
		if err := step(); err != nil {
			return err
		}
	}
	l.checkCommitted()
	l.checkStart()
	l.checkEpochs()
	l.checkState()
	l.checkCheckpoints()
	l.checkVoters()
	l.checkIdentity()
	for _, e := range l.epochs {
		l.Epochs = append(l.Epochs, e.OffsetAndEpoch)
	}
	return nil
}

func (l *logVerifier) file(name string) string { return path.Join(l.Name, name) }
func (l *logVerifier) has(name string) bool    { return slices.Contains(l.names, name) }
func (l *logVerifier) ran() bool               { return slices.ContainsFunc(l.names, provesRun) }
func (l *logVerifier) damage(file, do string, format string, args ...any) {
	l.find(Damage, l.file(file), -1, -1, do, format, args...)
}

func (l *logVerifier) readSmallFiles() error {
	if l.has(committedFile) {
		var err error
		if l.Committed, err = readSmall[raft.OffsetAndEpoch](l.verifier, l.file(committedFile), doCommitted); err != nil {
			return err
		}
	}
	if l.has(epochFile) {
		p, err := readSmall[[]raft.OffsetAndEpoch](l.verifier, l.file(epochFile), doEpochs)
		if err != nil {
			return err
		}
		if p != nil {
			l.epochFile = *p
		}
	}
	if l.has(partitionFile) {
		id, err := readSmall[raft.UUID](l.verifier, l.file(partitionFile), doPartition)
		if err != nil {
			return err
		}
		if id != nil && l.Name == DefaultTopic+"-0" && *id != DefaultTopicID {
			l.damage(partitionFile, doPartition, "topic id %s, want %s for %s, unless topic.id is configured so", *id, DefaultTopicID, DefaultTopic)
		}
	}
	for _, name := range l.names {
		if KindOf(name) == KindProducers {
			if _, err := readSmall[any](l.verifier, l.file(name), doProducers); err != nil {
				return err
			}
		}
	}
	return nil
}

// read is inspect with progress.
func (l *logVerifier) read(name, do string, visit func(Part) error) error {
	was := l.done
	err := l.inspect(l.file(name), do, func(p Part) error {
		l.done = was + p.Position + p.Bytes
		if l.progress != nil {
			l.progress(l.done, l.total)
		}
		return visit(p)
	})
	l.done = was + l.sizes[name]
	return err
}

func (l *logVerifier) readCheckpoints() error {
	l.boundaries = map[int64]bool{}
	for _, name := range l.names {
		if KindOf(name) != KindCheckpoint {
			continue
		}
		c := checkpointContent{file: name}
		c.id, _ = parseCheckpointName(name)
		whole := true
		err := l.read(name, doCheckpoint, func(p Part) error {
			if p.Err != nil {
				whole = false
				l.find(Damage, l.file(name), p.Position, -1, doCheckpoint, "%v", p.Err)
				return nil //nolint:nilerr // it is found
			}
			controls, err := controlsOf(p)
			for _, r := range controls {
				switch r := r.Record.(type) {
				case raft.Voters:
					c.set = r.Set
				case raft.KRaftVersion:
					c.version = r.Version
				case raft.LeaderChange:
				}
			}
			return err
		})
		switch {
		case errors.Is(err, errUnread):
		case err != nil:
			return err
		case !whole:
		case c.id == raft.OffsetAndEpoch{}:
			l.bootstrap = &c
		default:
			l.checkpoints = append(l.checkpoints, c)
			l.boundaries[c.id.Offset] = false
		}
	}
	slices.SortFunc(l.checkpoints, func(a, b checkpointContent) int { return a.id.Compare(b.id) })
	for _, c := range l.checkpoints {
		l.Checkpoints = append(l.Checkpoints, c.id)
	}
	return nil
}

// controlsOf returns the control records of a part, if it is a batch of them.
func controlsOf(p Part) ([]record.Control, error) {
	if b, ok := p.Value.(record.Batch); ok && b.IsControl() {
		return record.DecodeControls(b)
	}
	return nil, nil
}

func (l *logVerifier) readSegments() error {
	l.version, l.leaders = -1, map[raft.Epoch]raft.LeaderChange{}
	var names []string
	var behind int64 // bytes from the segment that is read on
	for _, name := range l.names {
		if KindOf(name) == KindSegment {
			names = append(names, name)
			behind += l.sizes[name]
		}
	}
	l.Segments = len(names)
	for i, name := range names {
		base, _ := parseSegmentName(name)
		if i == 0 {
			l.Start, l.End, l.next = base, base, base
		}
		if l.next >= 0 && base != l.next {
			if err := l.broken(name, Part{Err: outOfPlace("the segment begins at offset %d, the one before ends at %d", base, l.next)}, behind); err != nil {
				return nil //nolint:nilerr // the torn tail is where the log ends
			}
		}
		l.next = base
		err := l.read(name, doReplace, func(p Part) error {
			if p.Err != nil {
				return l.broken(name, p, behind-p.Position)
			}
			return l.take(name, p)
		})
		switch {
		case errors.Is(err, errTorn):
			return nil
		case errors.Is(err, errUnread):
			l.damaged, l.next = true, -1
		case err != nil:
			return err
		}
		l.Bytes += l.sizes[name]
		behind -= l.sizes[name]
	}
	return nil
}

// broken tells a torn tail, which only a write that was never synced leaves, from damage. The rule is that of recoverer.judge.
func (l *logVerifier) broken(name string, p Part, behind int64) error {
	offset := l.next
	misplaced := p.Value == nil || errors.Is(p.Err, errOutOfPlace)
	if misplaced && !l.damaged && l.Committed != nil && l.next >= l.Committed.Offset && behind <= MaxGroup {
		why := "a crash left it, and the next start cuts it off"
		if l.report.InUse {
			why = "the member may be writing it just now"
		}
		l.cut = true
		l.find(Note, l.file(name), p.Position, offset, "", "torn tail of %d bytes, never synced and never acknowledged: %v; %s", behind, p.Err, why)
		return errTorn
	}
	do := doReplace
	if misplaced && l.Committed == nil && behind <= MaxGroup {
		do = doUncommitted
	}
	l.damaged, l.next = true, -1
	l.find(Damage, l.file(name), p.Position, offset, do, "%v", p.Err)
	return nil
}

// take adds a good batch of the log.
func (l *logVerifier) take(name string, p Part) error {
	b := p.Value.(record.Batch)
	l.next, l.End = b.NextOffset(), b.NextOffset()
	l.Batches++
	l.Records += int64(b.Count)
	if _, ok := l.boundaries[b.BaseOffset]; ok {
		l.boundaries[b.BaseOffset] = true
	}
	controls, err := controlsOf(p)
	if err != nil {
		return err
	}
	begins := false
	for _, c := range controls {
		switch r := c.Record.(type) {
		case raft.LeaderChange:
			begins = true
			l.leaders[b.Epoch] = r
		case raft.KRaftVersion:
			l.version = r.Version
		case raft.Voters:
			l.voters = append(l.voters, votersAt{c.Offset, r.Set, name, p.Position})
		}
	}
	n, before := len(l.epochs), l.last
	l.last = fmt.Sprintf("%s at position %d", name, p.Position)
	if n > 0 && l.epochs[n-1].Epoch == b.Epoch {
		return nil
	}
	l.epochs = append(l.epochs, epochStart{raft.OffsetAndEpoch{Offset: b.BaseOffset, Epoch: b.Epoch}, name, p.Position})
	if !begins && !l.damaged && b.BaseOffset > l.Start {
		l.find(Damage, l.file(name), p.Position, b.BaseOffset, doReplace, "epoch %d begins without a LeaderChange, which each leader writes first: the epoch of this batch or of the one before (%s) is not what it was", b.Epoch, before)
	}
	return nil
}

func (l *logVerifier) readState() error {
	if !l.has(stateFile) {
		if l.ran() {
			l.damage(stateFile, doKeepState, "is missing beside a log: this member may have voted in an epoch that nothing here remembers")
		}
		return nil
	}
	s, err := readSmall[State](l.verifier, l.file(stateFile), doKeepState)
	l.State = s
	return err
}

// lastEpoch is that of the log's last batch; 0 if it has none.
func (l *logVerifier) lastEpoch() raft.Epoch {
	if n := len(l.epochs); n > 0 {
		return l.epochs[n-1].Epoch
	}
	return 0
}

// epochBefore is the epoch of the record before an offset, where the log has it.
func (l *logVerifier) epochBefore(offset int64) (raft.Epoch, bool) {
	if offset <= l.Start || offset > l.End {
		return 0, false
	}
	for _, e := range slices.Backward(l.epochs) {
		if e.Offset < offset {
			return e.Epoch, true
		}
	}
	return 0, false
}

// newest is the last whole checkpoint, if there is one.
func (l *logVerifier) newest() (checkpointContent, bool) {
	if n := len(l.checkpoints); n > 0 {
		return l.checkpoints[n-1], true
	}
	return checkpointContent{}, false
}

// replaced reports a checkpoint ahead of the log, which the next start puts in its place.
func (l *logVerifier) replaced() bool {
	c, ok := l.newest()
	return ok && c.id.Compare(raft.OffsetAndEpoch{Offset: l.End, Epoch: l.lastEpoch()}) > 0
}

func (l *logVerifier) checkCommitted() {
	if l.Committed == nil {
		if l.Segments > 0 && !l.has(committedFile) && l.Batches > 0 {
			l.find(Note, l.file(committedFile), -1, -1, "", "is not there: of damage at the end of the log nobody can tell whether it was ever synced")
		}
		return
	}
	c := *l.Committed
	newest, _ := l.newest()
	switch e, known := l.epochBefore(c.Offset); {
	case l.damaged || l.replaced() && newest.id.Offset >= c.Offset:
	case c.Offset > l.End:
		l.damage(committedFile, doReplace, "all before offset %d was committed and synced, but the log ends at %d", c.Offset, l.End)
	case known && e != c.Epoch:
		l.damage(committedFile, doReplace, "epoch %d was committed before offset %d, where the log has epoch %d", c.Epoch, c.Offset, e)
	}
}

// checkStart: what is before the log must be in a checkpoint (ST-07).
func (l *logVerifier) checkStart() {
	c, ok := l.newest()
	switch {
	case l.Start == 0 || ok && c.id.Offset >= l.Start:
		if l.replaced() {
			l.find(Note, l.file(c.file), -1, c.id.Offset, "", "is ahead of the log, which ends at offset %d: a crash right after it came, or after the log up to it was removed, leaves it so; the next start begins the log there", l.End)
		}
	case ok:
		l.damage(segmentName(l.Start), doReplace, "the log starts at offset %d, but the newest whole checkpoint ends at %d: what is between is lost", l.Start, c.id.Offset)
	default:
		l.damage(segmentName(l.Start), doReplace, "the log starts at offset %d, and no whole checkpoint holds what is before", l.Start)
	}
}

// checkEpochs compares leader-epoch-checkpoint with the log. It may be behind by what is not committed, and have an epoch
// that no record followed.
func (l *logVerifier) checkEpochs() {
	if l.damaged || !l.ran() {
		return
	}
	settled := l.Start // entries before it are final
	if l.Committed != nil {
		settled = l.Committed.Offset
	}
	behind := false
	for i, e := range l.epochs {
		f, ok := inEpochs(l.epochFile, e.Epoch)
		switch {
		case ok && f.Offset == e.Offset:
		case ok && i == 0 && f.Offset < l.Start:
			l.find(Warning, l.file(epochFile), -1, f.Offset, doEpochs, "epoch %d begins at offset %d, before the log does (%d): a crash right after old segments were removed leaves it so", f.Epoch, f.Offset, l.Start)
		case ok:
			l.damage(epochFile, doEpochs, "epoch %d begins at offset %d, in %s at position %d it begins at %d", f.Epoch, f.Offset, e.file, e.position, e.Offset)
		case e.Offset < settled:
			l.damage(epochFile, doEpochs, "epoch %d is missing, which begins at offset %d in %s at position %d", e.Epoch, e.Offset, e.file, e.position)
		default:
			behind = true
		}
	}
	for _, f := range l.epochFile {
		if _, ok := inEpochs(l.starts(), f.Epoch); ok || f.Offset < l.Start {
			continue
		}
		switch {
		case f.Offset >= l.End && f.Epoch > l.lastEpoch():
			// a leader that wrote nothing, or a tail that was cut
		case l.Committed != nil && f.Offset >= settled:
			l.find(Warning, l.file(epochFile), -1, f.Offset, doEpochs, "epoch %d begins at offset %d, but the log has no such epoch: a crash right after a truncation leaves it so", f.Epoch, f.Offset)
		default:
			e, _ := l.epochBefore(f.Offset + 1)
			l.damage(epochFile, doEpochs, "epoch %d begins at offset %d, where the log has epoch %d", f.Epoch, f.Offset, e)
		}
	}
	if behind && !l.report.InUse {
		l.find(Note, l.file(epochFile), -1, -1, "", "is behind the log: the next start writes it again")
	}
}

func (l *logVerifier) starts() []raft.OffsetAndEpoch {
	var all []raft.OffsetAndEpoch
	for _, e := range l.epochs {
		all = append(all, e.OffsetAndEpoch)
	}
	return all
}

func inEpochs(entries []raft.OffsetAndEpoch, e raft.Epoch) (raft.OffsetAndEpoch, bool) {
	i := slices.IndexFunc(entries, func(p raft.OffsetAndEpoch) bool { return p.Epoch == e })
	if i < 0 {
		return raft.OffsetAndEpoch{}, false
	}
	return entries[i], true
}

// checkState: a member hears of an epoch before its records, and remembers it first.
func (l *logVerifier) checkState() {
	if l.State == nil {
		return
	}
	s := *l.State
	if n := len(l.epochs); n > 0 && !l.damaged && l.lastEpoch() > s.Epoch {
		last := l.epochs[n-1]
		l.damage(stateFile, doKeepState, "epoch %d, but in %s at position %d epoch %d begins", s.Epoch, last.file, last.position, last.Epoch)
	}
	if c, ok := l.newest(); ok && c.id.Epoch > s.Epoch {
		l.damage(stateFile, doKeepState, "epoch %d, but %s has epoch %d", s.Epoch, c.file, c.id.Epoch)
	}
	if n := len(l.epochFile); n > 0 && l.epochFile[n-1].Epoch > s.Epoch {
		l.damage(stateFile, doKeepState, "epoch %d, but %s has epoch %d", s.Epoch, epochFile, l.epochFile[n-1].Epoch)
	}
	lc, known := l.leaders[s.Epoch]
	if known && s.Leader != raft.None && s.Leader != lc.Leader {
		l.damage(stateFile, doKeepState, "leader %d of epoch %d, whose LeaderChange in the log names %d", s.Leader, s.Epoch, lc.Leader)
	}
	if known && s.Version == 0 && !sameNodes(s.Voters, lc.Voters) {
		l.damage(stateFile, doKeepState, "voters %v in epoch %d, whose LeaderChange in the log names %v", s.Voters, s.Epoch, lc.Voters)
	}
	if s.Version == 0 && s.Voted.ID != raft.None && !slices.Contains(s.Voters, s.Voted.ID) {
		l.damage(stateFile, doKeepState, "a vote for node %d, which is none of the voters %v", s.Voted.ID, s.Voters)
	}
	if s.Version == 1 && s.Voted.DirectoryID.IsZero() != (s.Voted.ID == raft.None) {
		l.find(Warning, l.file(stateFile), -1, -1, doKeepState, "a vote for node %d with directory id %s, want both or neither", s.Voted.ID, s.Voted.DirectoryID)
	}
}

func sameNodes(a, b []raft.NodeID) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// checkCheckpoints compares the names and voters of checkpoints with the log, where it still has that part.
func (l *logVerifier) checkCheckpoints() {
	if l.damaged {
		return
	}
	for _, c := range l.checkpoints {
		e, known := l.epochBefore(c.id.Offset)
		if !known {
			continue
		}
		if e != c.id.Epoch {
			l.find(Damage, l.file(c.file), -1, c.id.Offset, doCheckpoint, "is of epoch %d, but the log has epoch %d before offset %d", c.id.Epoch, e, c.id.Offset)
			continue
		}
		if !l.boundaries[c.id.Offset] && c.id.Offset != l.End {
			l.find(Warning, l.file(c.file), -1, c.id.Offset, doCheckpoint, "ends inside a batch of the log")
		}
		set, known := l.votersBefore(c.id.Offset)
		if known && !slices.EqualFunc(set, c.set, equalVoter) {
			l.find(Damage, l.file(c.file), -1, c.id.Offset, doCheckpoint, "has the voters %s, the log %s at that offset", keys(c.set), keys(set))
		}
	}
}

func equalVoter(a, b raft.Voter) bool {
	return a.Key == b.Key && a.KRaft == b.KRaft && slices.Equal(a.Endpoints, b.Endpoints)
}

// votersBefore is the set in force at an offset, if the log or the bootstrap checkpoint knows it.
func (l *logVerifier) votersBefore(offset int64) (raft.VoterSet, bool) {
	for _, v := range slices.Backward(l.voters) {
		if v.offset < offset {
			return v.set, true
		}
	}
	if l.Start == 0 && l.bootstrap != nil {
		return l.bootstrap.set, true
	}
	return nil, false
}

func keys(set raft.VoterSet) []raft.ReplicaKey {
	all := []raft.ReplicaKey{}
	for _, v := range set {
		all = append(all, v.Key)
	}
	return all
}

// checkVoters: one voter comes or goes at a time (KIP-853), so that any two majorities in a row meet.
func (l *logVerifier) checkVoters() {
	var last raft.VoterSet
	if l.Start == 0 && l.bootstrap != nil {
		last = l.bootstrap.set
	}
	if l.Start > 0 && len(l.checkpoints) > 0 && l.checkpoints[0].id.Offset == l.Start {
		last = l.checkpoints[0].set
	}
	for _, v := range l.voters {
		if n := changes(last, v.set); n > 1 && len(last) > 0 {
			l.find(Warning, l.file(v.file), v.at, v.offset, "", "the voters change from %s to %s: want one at a time", keys(last), keys(v.set))
		}
		last = v.set
	}
	if c, ok := l.newest(); ok && (l.replaced() || len(l.voters) == 0) {
		last = c.set
	}
	l.Voters = keys(last)
}

// changes counts the voters that are only in one of the sets.
func changes(a, b raft.VoterSet) (n int) {
	for _, pair := range [][2]raft.VoterSet{{a, b}, {b, a}} {
		for _, v := range pair[0] {
			if w, ok := pair[1].ByID(v.Key.ID); !ok || w.Key != v.Key {
				n++
			}
		}
	}
	return n
}

// checkIdentity looks for this member among the voters.
func (l *logVerifier) checkIdentity() {
	m := l.report.Meta
	if m.DirectoryID.IsZero() {
		return
	}
	for _, k := range l.Voters {
		switch {
		case k.DirectoryID == m.DirectoryID && k.ID != m.NodeID:
			l.find(Damage, metaFile, -1, -1, doMeta, "node.id=%d, but directory.id=%s is that of voter %d", m.NodeID, m.DirectoryID, k.ID)
		case k.ID != m.NodeID || k.DirectoryID == m.DirectoryID || k.DirectoryID.IsZero():
		case !l.ran():
			l.find(Damage, metaFile, -1, -1, doMeta, "directory.id=%s, but it was formatted for voter %s", m.DirectoryID, k)
		default:
			l.find(Warning, metaFile, -1, -1, doMeta, "directory.id=%s, but the voter is %s: on this disk the member is an observer", m.DirectoryID, k)
		}
	}
	if version, want := cmp.Or(max(l.version, 0), l.knownVersion()), l.State; want != nil && want.Version == 1 && version == 0 {
		l.find(Warning, l.file(stateFile), -1, -1, "", "is of version 1, but kraft.version is 0")
	}
}

// knownVersion is kraft.version as the newest checkpoint has it.
func (l *logVerifier) knownVersion() int16 {
	if c, ok := l.newest(); ok {
		return c.version
	}
	if l.bootstrap != nil {
		return l.bootstrap.version
	}
	return 0
}
