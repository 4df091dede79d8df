package sim

import (
	"encoding/binary"
	"hash/fnv"
	"path"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// batch is one batch in some log. It never changes, so logs that hold the same share it in effect by its chain.
type batch struct {
	record.Header
	base, last int64
	epoch      raft.Epoch
	raw        []byte
	// chain stands for this batch and all before it: logs with equal chains are equal up to here.
	chain uint64
	// voters is the set that it puts in force; nil for most.
	voters raft.VoterSet
	// version is the kraft.version that it puts in force; unchanged for most.
	version int16

	segment  string
	position int64
}

// unchanged is no kraft.version.
const unchanged = -1

// shadow is a log as the calls on the file system tell it.
type shadow struct {
	segments []*shadowSegment
	batches  []*batch
	sets     []*batch // those of them that change the voter set
	versions []*batch // … and kraft.version
	durable  int      // this many batches, from the first, would survive a power cut
	grown    int      // batches from here on were appended since the oracle looked last
	end      int64
}

type shadowSegment struct {
	name   string
	linked bool  // its directory entry is durable
	synced int64 // bytes
}

func (l *shadow) segment(name string) *shadowSegment {
	for _, s := range l.segments {
		if s.name == name {
			return s
		}
	}
	s := &shadowSegment{name: name}
	l.segments = append(l.segments, s)
	return s
}

func (l *shadow) create(name string) {
	s := l.segment(name)
	l.cut(name, 0)
	s.synced = 0
}

func (l *shadow) remove(name string) {
	if !l.first(name) {
		l.cut(name, 0)
	}
	l.segments = slices.DeleteFunc(l.segments, func(s *shadowSegment) bool { return s.name == name })
}

// write takes in whole batches; storage never writes anything else to a segment.
func (l *shadow) write(name string, position int64, p []byte) {
	s := l.segment(name)
	l.cut(name, position)
	s.synced = min(s.synced, position)
	for h, err := range record.Headers(p) {
		if err != nil {
			return
		}
		l.add(name, position, h, slices.Clone(p[:h.Size]))
		position += int64(h.Size)
		p = p[h.Size:]
	}
}

func (l *shadow) add(name string, position int64, h record.Header, raw []byte) {
	b := &batch{
		Header: h, base: h.BaseOffset, last: h.LastOffset(), epoch: h.Epoch,
		raw: raw, segment: name, position: position,
	}
	var before uint64
	if n := len(l.batches); n > 0 {
		before = l.batches[n-1].chain
	}
	b.chain = chain(before, b)
	l.batches = append(l.batches, b)
	l.end = b.last + 1
	b.voters, b.version = inForce(b)
	l.learn(b)
}

// learn notes what a batch that has got into the log puts in force.
func (l *shadow) learn(b *batch) {
	if b.voters != nil {
		l.sets = append(l.sets, b)
	}
	if b.version != unchanged {
		l.versions = append(l.versions, b)
	}
}

// inForce are the voter set and the kraft.version that a batch puts in force; nil and unchanged if it leaves them as they are.
func inForce(b *batch) (set raft.VoterSet, version int16) {
	if !b.IsControl() {
		return nil, unchanged
	}
	parsed, err := record.Parse(b.raw)
	if err != nil {
		return nil, unchanged // the checksum is the replica's business
	}
	records, err := record.DecodeControl(parsed)
	if err != nil {
		return nil, unchanged
	}
	version = unchanged
	for _, r := range records {
		switch r := r.(type) {
		case raft.Voters:
			set = r.Set
		case raft.KRaftVersion:
			version = r.Version
		case raft.LeaderChange:
		}
	}
	return set, version
}

func chain(before uint64, b *batch) uint64 {
	var p [28]byte
	binary.BigEndian.PutUint64(p[:], before)
	binary.BigEndian.PutUint64(p[8:], uint64(b.base))
	binary.BigEndian.PutUint32(p[16:], uint32(b.epoch))
	binary.BigEndian.PutUint32(p[20:], b.CRC)
	binary.BigEndian.PutUint32(p[24:], uint32(b.LastOffsetDelta))
	h := fnv.New64a()
	_, _ = h.Write(p[:])
	return h.Sum64()
}

// cut removes what lies in a segment at or beyond a position.
func (l *shadow) cut(name string, position int64) {
	n := len(l.batches)
	if n == 0 {
		return
	}
	if last := l.batches[n-1]; last.segment == name && last.position+int64(last.Size) <= position {
		return // an append
	}
	gone := func(b *batch) bool { return b.segment == name && b.position+int64(b.Size) > position }
	l.batches = slices.DeleteFunc(l.batches, gone)
	for _, learnt := range []*[]*batch{&l.sets, &l.versions} {
		for n := len(*learnt); n > 0 && gone((*learnt)[n-1]); n-- {
			*learnt = (*learnt)[:n-1]
		}
	}
	l.durable, l.grown = min(l.durable, len(l.batches)), min(l.grown, len(l.batches))
	l.end = 0
	if n := len(l.batches); n > 0 {
		l.end = l.batches[n-1].last + 1
	}
}

func (l *shadow) truncate(name string, size int64) {
	s := l.segment(name)
	l.cut(name, size)
	s.synced = min(s.synced, size)
}

func (l *shadow) sync(name string, size int64) {
	l.segment(name).synced = size
	l.advance()
}

func (l *shadow) syncDir(dir string) {
	for _, s := range l.segments {
		if path.Dir(s.name) == dir {
			s.linked = true
		}
	}
	l.advance()
}

func (l *shadow) advance() {
	for ; l.durable < len(l.batches); l.durable++ {
		b := l.batches[l.durable]
		if s := l.segment(b.segment); !s.linked || b.position+int64(b.Size) > s.synced {
			return
		}
	}
}

// durableEnd is the offset up to which a power cut would leave the log.
func (l *shadow) durableEnd() int64 {
	if l.durable == 0 {
		return 0
	}
	return l.batches[l.durable-1].last + 1
}

// position is how far the log goes, as votes compare it.
func (l *shadow) position() raft.OffsetAndEpoch {
	if len(l.batches) == 0 {
		return raft.OffsetAndEpoch{Offset: l.end}
	}
	return raft.OffsetAndEpoch{Offset: l.end, Epoch: l.batches[len(l.batches)-1].epoch}
}

// holds reports whether the log holds that batch and the same before it, and whether durably so.
func (l *shadow) holds(b *batch) (held, durably bool) {
	own := find(l.batches, b.base)
	if own == nil || own.chain != b.chain {
		return false, false
	}
	return true, b.last < l.durableEnd()
}

// rescan takes in the content of a segment after a power cut, as far as it is whole.
func (l *shadow) rescan(name string, content []byte) {
	s := l.segment(name)
	s.linked, s.synced = true, int64(len(content))
	if n := len(l.segments); n > 1 && l.torn() {
		return
	}
	position := int64(0)
	for b, err := range record.All(content) {
		if err != nil {
			break
		}
		if b.BaseOffset < l.end { // leftovers of a longer log
			break
		}
		l.add(name, position, b.Header, slices.Clone(b.Raw))
		position += int64(b.Size)
	}
	l.durable, l.grown = len(l.batches), 0
}

// torn reports whether an earlier segment ended before its file did: what comes behind is cut by recovery.
func (l *shadow) torn() bool {
	before := l.segments[len(l.segments)-2]
	n := len(l.batches)
	return n == 0 || l.batches[n-1].segment != before.name && before.synced > 0 ||
		l.batches[n-1].segment == before.name && l.batches[n-1].position+int64(l.batches[n-1].Size) != before.synced
}
