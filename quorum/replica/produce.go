package replica

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/state"
)

// ClientBatch is a client's batch that may be appended as it is. Only CheckProduce makes one.
type ClientBatch struct {
	bytes    []byte // owned by the Replica from Produce on: base offset and epoch are written into it
	records  int32
	producer state.Batch
}

// CheckProduce checks the records of a Produce request, on whatever goroutine received it: unpacking may take a while.
// maxBytes bounds the batch. Any error is a *record.Rejection. The slice is kept.
func CheckProduce(raw []byte, mode record.Mode, maxBytes int) (ClientBatch, error) {
	if len(raw) > maxBytes {
		return ClientBatch{}, &record.Rejection{Code: record.MessageTooLarge, Record: -1, Reason: fmt.Sprintf("batch of %d bytes, message.max.bytes is %d", len(raw), maxBytes)}
	}
	b, err := record.CheckProduce(raw, mode)
	if err != nil {
		return ClientBatch{}, err
	}
	return ClientBatch{bytes: raw, records: b.Count, producer: producerBatch(b.Header)}, nil
}

// proposal is a client's batch between Produce and its answer, or a duplicate that waits for its original.
type proposal struct {
	bytes      []byte    // nil once they are in the log
	producerID int64     // NoProducer if the producer state need not hear of the outcome
	waiting    []waiting // the first request and its retries; empty once they have timed out
}

// waiting is a request that is answered at until at the latest.
type waiting struct {
	id    raft.RequestID
	until raft.Instant
}

// produce decides on a client's batch. What this member must not append the core refuses or, just after the lead was
// lost, holds until the next leader is known; it is checked all the same, for the next leader may be this one again.
func (r *Replica) produce(e Produce) {
	r.beforeAppend()
	w := waiting{id: e.ID, until: raft.Never}
	if e.Timeout > 0 {
		w.until = r.now.Add(e.Timeout)
		r.nextTimeout = min(r.nextTimeout, w.until)
	}
	d := r.producers.Check(r.now, e.Batch.producer)
	switch d.Verdict {
	case state.Refuse:
		if !r.leads { // nobody else's word: only the leader's log has all
			d.Error, d.Message = raft.NotLeaderOrFollower, ""
		}
		r.answer(e.ID, ProduceResult{Header: r.header(d.Error), BaseOffset: raft.Unknown, LogStart: r.topicStart(), Message: d.Message})
	case state.DuplicateInFlight:
		original := r.proposals[d.Original]
		original.waiting = append(original.waiting, w)
	case state.Duplicate:
		r.proposals[e.ID] = &proposal{producerID: state.NoProducer, waiting: []waiting{w}}
		r.feed(raft.Await{ID: e.ID, BaseOffset: d.BaseOffset, LastOffset: d.LastOffset})
	case state.Accept:
		r.proposals[e.ID] = &proposal{bytes: e.Batch.bytes, producerID: e.Batch.producer.ProducerID, waiting: []waiting{w}}
		r.producers.Propose(e.ID, e.Batch.producer)
		r.feed(raft.Propose{ID: e.ID, Records: e.Batch.records, Bytes: len(e.Batch.bytes)})
	}
}

// proposed completes a proposal and its repeats.
func (r *Replica) proposed(id raft.RequestID, result raft.ProposeResult) {
	p := r.proposals[id]
	delete(r.proposals, id)
	r.producers.Drop(id, p.producerID)
	answer := ProduceResult{Header: result.Header, BaseOffset: result.BaseOffset, LogStart: r.topicStart()}
	for _, w := range p.waiting {
		r.answer(w.id, answer)
	}
}

// timeOutProposals answers those whose fate took too long to become known. The proposals stay: nothing takes back what
// may be in the log already.
func (r *Replica) timeOutProposals() {
	if r.now < r.nextTimeout {
		return
	}
	r.nextTimeout = raft.Never
	late := func(w waiting) bool {
		if w.until > r.now {
			r.nextTimeout = min(r.nextTimeout, w.until)
			return false
		}
		r.answer(w.id, ProduceResult{Header: r.header(raft.RequestTimedOut), BaseOffset: raft.Unknown, LogStart: r.topicStart(), Message: "not committed in time"})
		return true
	}
	for _, id := range slices.Sorted(maps.Keys(r.proposals)) { // sorted: answers leave in a fixed order
		p := r.proposals[id]
		p.waiting = slices.DeleteFunc(p.waiting, late)
	}
}

// initProducer hands out an id that no other leader, nor this one, has handed out before.
func (r *Replica) initProducer(e InitProducer) {
	if !r.leads {
		r.answer(e.ID, InitProducerResult{Header: r.header(raft.NotLeaderOrFollower), ProducerID: state.NoProducer, ProducerEpoch: -1})
		return
	}
	if r.idEpoch != r.epoch {
		r.idEpoch, r.idCounter = r.epoch, 0
	}
	id := state.ID(r.epoch, r.idCounter)
	r.idCounter++
	r.answer(e.ID, InitProducerResult{Header: r.header(raft.NoError), ProducerID: id})
}
