package state

import (
	"container/list"
	"fmt"
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// remembered is how many batches of a producer can be recognised as duplicates. Clients keep at most this many
// requests in flight (Kafka: max.in.flight.requests.per.connection with idempotence).
const remembered = 5

// NoProducer is the producer id of a batch whose sender is not idempotent.
const NoProducer int64 = -1

// Batch is what an idempotent producer put into the header of one record batch. Offsets are set once it is appended.
type Batch struct {
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Records       int32
	BaseOffset    int64
	LastOffset    int64
}

// lastSequence is the sequence of the last record; sequences go round from 2^31-1 to 0.
func (b Batch) lastSequence() int32 {
	return int32((int64(b.BaseSequence) + int64(b.Records) - 1) & (1<<31 - 1))
}

// Options bound the memory.
type Options struct {
	MaxProducers int           // beyond it, the one that has been silent longest is forgotten
	Expiration   time.Duration // a producer silent for longer is forgotten (producer.id.expiration.ms)
	MaxUndo      int           // appended batches that Truncate can take back without a rebuild; 0: 65536
}

// ID makes the counter-th producer id of a leader's epoch.
func ID(epoch raft.Epoch, counter uint32) int64 { return int64(epoch)<<32 | int64(counter) }

// Producers is the memory of one replica.
type Producers struct {
	options Options
	byID    map[int64]*list.Element // of producer
	byAge   *list.List              // oldest append first
	pending map[int64][]proposal    // proposed, not yet appended, in order
	undo    []undo                  // one for each appended batch at or above exactFrom
	// exactFrom is the lowest offset Truncate can restore to.
	exactFrom int64
}

// producer is what is known of one producer id.
type producer struct {
	id         int64
	epoch      int16
	recent     []sequences // at most remembered, oldest first
	lastAppend raft.Instant
}

// sequences are the sequence numbers of one appended batch and where it stands.
type sequences struct {
	first, last            int32
	baseOffset, lastOffset int64
}

type proposal struct {
	request raft.RequestID
	batch   Batch
}

// undo takes back one append: it holds the producer as it was before.
type undo struct {
	baseOffset, lastOffset int64
	id                     int64
	known                  bool
	epoch                  int16
	recent                 []sequences
}

// New returns an empty memory; the log begins at logStart.
func New(options Options, logStart int64) *Producers {
	if options.MaxUndo == 0 {
		options.MaxUndo = 1 << 16
	}
	return &Producers{
		options:   options,
		byID:      map[int64]*list.Element{},
		byAge:     list.New(),
		pending:   map[int64][]proposal{},
		exactFrom: logStart,
	}
}

// Live lists the ids of the producers that are remembered.
func (p *Producers) Live(now raft.Instant) map[int64]bool {
	p.expire(now)
	live := make(map[int64]bool, len(p.byID))
	for id := range p.byID {
		live[id] = true
	}
	return live
}

// Len is the number of producers that are remembered.
func (p *Producers) Len() int { return p.byAge.Len() }

// Decision is what to do with a batch that a client sent.
type Decision struct {
	Verdict Verdict
	Error   raft.ErrorCode // Refuse: the code for the client
	Message string         // Refuse: one sentence with the numbers
	// Duplicate: where the original stands. It may not be committed yet.
	BaseOffset, LastOffset int64
	// DuplicateInFlight: the request that proposed the original.
	Original raft.RequestID
}

// Verdict is the kind of a Decision.
type Verdict uint8

// The verdicts.
const (
	Accept Verdict = iota
	Duplicate
	DuplicateInFlight
	Refuse
)

// Check decides on a batch that was sent to the leader. The rules are those of Kafka's broker, but for an unknown
// producer that does not begin with sequence 0: Kafka takes it, we answer UNKNOWN_PRODUCER_ID. A client reacts by
// beginning anew under another id or epoch; taking it would let a later retry of its lost predecessors arrive out of order.
func (p *Producers) Check(now raft.Instant, b Batch) Decision {
	if b.ProducerID < 0 {
		return Decision{Verdict: Accept}
	}
	p.expire(now)
	known := p.find(b.ProducerID)
	if known != nil && known.epoch == b.ProducerEpoch {
		for _, s := range known.recent {
			if s.first == b.BaseSequence && s.last == b.lastSequence() {
				return Decision{Verdict: Duplicate, BaseOffset: s.baseOffset, LastOffset: s.lastOffset}
			}
		}
	}
	inFlight := p.pending[b.ProducerID]
	for _, o := range inFlight {
		if o.batch.ProducerEpoch == b.ProducerEpoch && o.batch.BaseSequence == b.BaseSequence && o.batch.Records == b.Records {
			return Decision{Verdict: DuplicateInFlight, Original: o.request}
		}
	}
	epoch, last, ok := p.tail(known, inFlight)
	switch {
	case !ok && b.BaseSequence != 0:
		return refuse(raft.UnknownProducerID, "producer %d is not known here, its batch begins with sequence %d, not 0", b.ProducerID, b.BaseSequence)
	case !ok:
		return Decision{Verdict: Accept}
	case b.ProducerEpoch < epoch:
		return refuse(raft.InvalidProducerEpoch, "producer %d has epoch %d, the batch has %d", b.ProducerID, epoch, b.ProducerEpoch)
	case b.ProducerEpoch > epoch && b.BaseSequence != 0:
		return refuse(raft.OutOfOrderSequence, "producer %d begins epoch %d with sequence %d, not 0", b.ProducerID, b.ProducerEpoch, b.BaseSequence)
	case b.ProducerEpoch > epoch:
		return Decision{Verdict: Accept}
	case b.BaseSequence != next(last):
		return refuse(raft.OutOfOrderSequence, "producer %d sent sequence %d, expected %d", b.ProducerID, b.BaseSequence, next(last))
	}
	return Decision{Verdict: Accept}
}

// tail is the newest batch of a producer, in flight or appended.
func (p *Producers) tail(known *producer, inFlight []proposal) (epoch int16, last int32, ok bool) {
	if n := len(inFlight); n > 0 {
		return inFlight[n-1].batch.ProducerEpoch, inFlight[n-1].batch.lastSequence(), true
	}
	if known == nil {
		return 0, 0, false
	}
	return known.epoch, known.recent[len(known.recent)-1].last, true
}

func next(sequence int32) int32 { return int32((int64(sequence) + 1) & (1<<31 - 1)) }

// Propose notes that an accepted batch is on its way into the log under that request.
func (p *Producers) Propose(request raft.RequestID, b Batch) {
	if b.ProducerID >= 0 {
		p.pending[b.ProducerID] = append(p.pending[b.ProducerID], proposal{request, b})
	}
}

// Drop forgets a proposal: it was refused, or it has been appended.
func (p *Producers) Drop(request raft.RequestID, producerID int64) {
	if producerID < 0 {
		return
	}
	rest := slices.DeleteFunc(p.pending[producerID], func(o proposal) bool { return o.request == request })
	if len(rest) == 0 {
		delete(p.pending, producerID)
		return
	}
	p.pending[producerID] = rest
}

// Append follows the log: the batch stands there now, whoever wrote it. Offsets must rise.
func (p *Producers) Append(now raft.Instant, b Batch) {
	if b.ProducerID < 0 {
		return
	}
	p.expire(now)
	element, known := p.byID[b.ProducerID]
	u := undo{baseOffset: b.BaseOffset, lastOffset: b.LastOffset, id: b.ProducerID, known: known}
	if known {
		before := element.Value.(*producer)
		u.epoch, u.recent = before.epoch, before.recent
		p.byAge.MoveToBack(element)
	} else {
		element = p.byAge.PushBack(&producer{id: b.ProducerID, epoch: b.ProducerEpoch})
		p.byID[b.ProducerID] = element
	}
	s := element.Value.(*producer)
	recent := s.recent
	if s.epoch != b.ProducerEpoch {
		recent = nil
	}
	if len(recent) == remembered {
		recent = recent[1:]
	}
	// A fresh slice: undo keeps the old one.
	s.recent = append(slices.Clip(slices.Clone(recent)), sequences{b.BaseSequence, b.lastSequence(), b.BaseOffset, b.LastOffset})
	s.epoch, s.lastAppend = b.ProducerEpoch, now
	p.note(u)
	for p.options.MaxProducers > 0 && p.byAge.Len() > p.options.MaxProducers {
		p.forget(p.byAge.Front())
	}
}

func (p *Producers) note(u undo) {
	if len(p.undo) >= p.options.MaxUndo {
		half := len(p.undo) / 2
		p.exactFrom = p.undo[half-1].lastOffset + 1
		p.undo = append(p.undo[:0:0], p.undo[half:]...)
	}
	p.undo = append(p.undo, u)
}

// Committed tells that nothing below the high watermark will be truncated: what is needed to take it back can go.
func (p *Producers) Committed(highWatermark int64) {
	n := 0
	for n < len(p.undo) && p.undo[n].lastOffset < highWatermark {
		n++
	}
	p.undo = p.undo[n:]
	if len(p.undo) == 0 {
		p.undo = nil // let the array go
	}
	p.exactFrom = max(p.exactFrom, highWatermark)
}

// Truncate follows the log: everything at and beyond offset is gone. It reports false if the memory does not reach
// back that far; the caller then makes a new one and feeds it the log.
func (p *Producers) Truncate(offset int64) bool {
	if offset < p.exactFrom {
		return false
	}
	for n := len(p.undo) - 1; n >= 0 && p.undo[n].lastOffset >= offset; n-- {
		u := p.undo[n]
		p.undo = p.undo[:n]
		element, known := p.byID[u.id]
		switch {
		case !u.known && known:
			p.forget(element)
		case u.known && known:
			s := element.Value.(*producer)
			s.epoch, s.recent = u.epoch, u.recent
		}
		// Forgotten in the meantime, by age or number: stays so.
	}
	return true
}

func (p *Producers) find(id int64) *producer {
	if element, ok := p.byID[id]; ok {
		return element.Value.(*producer)
	}
	return nil
}

func (p *Producers) expire(now raft.Instant) {
	if p.options.Expiration <= 0 {
		return
	}
	for element := p.byAge.Front(); element != nil; element = p.byAge.Front() {
		if element.Value.(*producer).lastAppend.Add(p.options.Expiration) > now {
			return
		}
		p.forget(element)
	}
}

func (p *Producers) forget(element *list.Element) {
	delete(p.byID, element.Value.(*producer).id)
	p.byAge.Remove(element)
}

func refuse(code raft.ErrorCode, format string, args ...any) Decision {
	return Decision{Verdict: Refuse, Error: code, Message: fmt.Sprintf(format, args...)}
}
