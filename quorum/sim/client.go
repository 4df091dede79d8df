package sim

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// client behaves as an ordinary Kafka client does: it looks for the leader, appends with a producer id and repeats what
// was not acknowledged, in order, until it is. Every fourth client has no producer id and never repeats anything. Now and
// then it reads a key: it asks the leader for the latest offset, which is a barrier, and catches up to there at any member.
type client struct {
	w    *world
	id   int
	host int
	dice dice

	peers      []*caller
	leader     search // by where appends went
	asked      search // by where reads went: a reader that only reads hears later of a new leader
	idempotent bool
	producer   int64 // -1: none yet
	sequence   int32
	asking     bool // for a producer id
	next       int  // number of the next append
	window     []*appendOp
	round      int  // of sending the window; what comes of older rounds can only be good news
	resending  bool // a round is about to begin
	reading    *readOp
	closed     bool      // nothing new is begun
	probe      *appendOp // the append that shows that the healed quorum is live

	// what it has read
	position int64
	view     map[string]string
}

// clientCall is a client's request on its way.
type clientCall struct {
	what      string
	operation any   // *appendOp or *readOp, if it serves one
	offset    int64 // of a read
	event     func(raft.RequestID) replica.Event
}

// appendOp is one batch from its first sending to its acknowledgement.
type appendOp struct {
	client   int
	number   int
	keys     []string
	values   []string
	sequence int32
	raw      []byte // as the client made it
	called   time.Duration
	floor    int64 // what had been acknowledged to anybody before it began: its offset must be beyond
	acked    int   // positive answers on their way
}

func (op *appendOp) String() string {
	return fmt.Sprintf("append %d of client %d", op.number, op.client)
}

// readOp is one read of a key.
type readOp struct {
	key      string
	called   time.Duration
	floor    int64
	latest   int64 // answer to the barrier; -1 until it comes
	attempts int
}

func newClient(w *world, id int) *client {
	c := &client{
		w: w, id: id, host: len(w.members) + id, dice: newDice(w.plan.seed, fmt.Sprintf("client %d", id)),
		idempotent: id%4 != 3, producer: -1, view: map[string]string{},
	}
	for _, m := range w.members {
		c.peers = append(c.peers, &caller{n: w.net, from: c.host, to: m, timeout: 1500 * time.Millisecond})
	}
	at := c.dice.IntN(w.plan.voters)
	c.leader, c.asked = newSearch(c, at), newSearch(c, at)
	return c
}

// turn begins something new if there is room, and comes again after a while.
func (c *client) turn() {
	if c.closed || c.next >= c.w.plan.operations {
		return
	}
	switch {
	case c.idempotent && c.producer < 0:
		c.askID()
	case c.dice.chance(0.25):
		if c.reading == nil {
			c.beginRead()
		}
	case c.mayAppend():
		c.beginAppend()
	}
	c.w.in(c.dice.about(c.w.plan.think), c.turn)
}

// mayAppend reports whether one more append may be in flight. The oldest without an acknowledgement counts, not their
// number: a leader remembers the last five batches of a producer, and a repetition must find its own among them.
func (c *client) mayAppend() bool {
	return len(c.window) == 0 || c.idempotent && c.next-c.window[0].number < c.w.plan.window
}

// call sends a request to a member; the answer is nil if none came.
func (c *client) call(to int, call clientCall, then func(answer any)) {
	c.peers[to].call(call, func(answer any, _ raft.Failure) { then(answer) })
}

func (c *client) pause() time.Duration {
	return c.dice.between(5*time.Millisecond, 150*time.Millisecond)
}

func (c *client) askID() {
	if c.asking {
		return
	}
	c.asking = true
	call := clientCall{what: "InitProducerId", event: func(id raft.RequestID) replica.Event { return replica.InitProducer{ID: id} }}
	c.leader.call(call, func(answer any) {
		c.asking = false
		r, ok := answer.(replica.InitProducerResult)
		switch {
		case !ok:
			c.leader.redirect(nil)
		case r.Error != raft.NoError:
			c.leader.redirect(&r.Header)
		default:
			c.producer, c.sequence = r.ProducerID, 0
			c.w.trace.client(c, "has producer id %d", r.ProducerID)
		}
	})
}

func (c *client) beginAppend() {
	op := &appendOp{client: c.id, number: c.next, sequence: -1, called: c.w.now, floor: c.w.history.floor}
	b := record.NewBuilder(1_700_000_000_000+c.w.now.Milliseconds(), record.None)
	for i := range 1 + c.dice.IntN(3) {
		op.keys = append(op.keys, fmt.Sprintf("k%d", (c.dice.IntN(2)+i)%keys))
		op.values = append(op.values, fmt.Sprintf("c%d.%d.%d", c.id, c.next, i))
		b.Append(1_700_000_000_000+c.w.now.Milliseconds(), []byte(op.keys[i]), []byte(op.values[i]))
	}
	if c.idempotent {
		op.sequence = c.sequence
		b.Producer(c.producer, 0, c.sequence)
		c.sequence += int32(len(op.keys))
	}
	raw, err := b.Build(0, 0)
	if err != nil {
		panic(err)
	}
	op.raw = raw
	c.next++
	c.window = append(c.window, op)
	c.w.history.began(op)
	if !c.resending {
		c.sendAppend(op)
	}
}

func (c *client) sendAppend(op *appendOp) {
	raw := slices.Clone(op.raw)
	if b := c.w.plant; b != nil && b.clientBatch != nil {
		raw = b.clientBatch(raw)
	}
	batch, err := replica.CheckProduce(raw, record.Keyed, record.MaxSize)
	if err != nil {
		panic(err)
	}
	timeout := oneOf(c.dice, 0, 500*time.Millisecond, 1500*time.Millisecond)
	call := clientCall{
		what: fmt.Sprintf("%v, sequence %d+%d", op, op.sequence, len(op.keys)), operation: op,
		event: func(id raft.RequestID) replica.Event { return replica.Produce{ID: id, Batch: batch, Timeout: timeout} },
	}
	round := c.round
	c.leader.call(call, func(answer any) { c.appended(op, round, answer) })
}

func (c *client) appended(op *appendOp, round int, answer any) {
	r, ok := answer.(replica.ProduceResult)
	if ok && r.Error == raft.NoError {
		if i := slices.Index(c.window, op); i >= 0 {
			c.window = slices.Delete(c.window, i, i+1)
			c.w.counts.acked++
			c.w.trace.client(c, "%v is acknowledged at %d", op, r.BaseOffset)
			c.w.history.appended(c.w, op, r.BaseOffset)
		}
		return
	}
	if round != c.round || c.resending {
		return
	}
	if ok {
		c.leader.redirect(&r.Header)
		c.w.trace.client(c, "%v is refused with %d %s", op, r.Error, r.Message)
	} else {
		c.leader.redirect(nil)
	}
	if !c.idempotent {
		c.window = nil // nobody knows, and a repetition might double it
		return
	}
	c.resending = true
	c.w.in(c.pause(), func() {
		c.resending = false
		c.round++
		for _, op := range slices.Clone(c.window) {
			c.sendAppend(op)
		}
	})
}

func (c *client) beginRead() {
	op := &readOp{key: fmt.Sprintf("k%d", c.dice.IntN(keys)), called: c.w.now, floor: c.w.history.floor, latest: -1}
	c.reading = op
	c.askLatest(op)
}

func (c *client) retryRead(op *readOp, again func(*readOp)) {
	if op.attempts++; op.attempts > 8 || c.closed {
		c.reading = nil
		return
	}
	c.w.in(c.pause(), func() { again(op) })
}

func (c *client) askLatest(op *readOp) {
	call := clientCall{what: "ListOffsets latest", operation: op, event: func(id raft.RequestID) replica.Event {
		return replica.ListOffsets{ID: id, LeaderEpoch: -1, Timestamp: replica.Latest}
	}}
	c.asked.call(call, func(answer any) {
		r, ok := answer.(replica.ListOffsetsResult)
		switch {
		case !ok:
			c.asked.redirect(nil)
			c.retryRead(op, c.askLatest)
		case r.Error != raft.NoError:
			c.asked.redirect(&r.Header)
			c.retryRead(op, c.askLatest)
		default:
			op.latest = r.Offset
			c.w.trace.client(c, "latest is %d", r.Offset)
			c.w.history.barrier(c.w, op)
			c.catchUp(op)
		}
	})
}

// catchUp reads at any member, observers too, until the barrier's offset.
func (c *client) catchUp(op *readOp) {
	if c.position >= op.latest {
		c.reading = nil
		c.w.counts.reads++
		c.w.trace.client(c, "read %s = %q", op.key, c.view[op.key])
		c.w.history.read(c, op, c.view[op.key])
		return
	}
	from := c.position
	call := clientCall{what: fmt.Sprintf("Fetch from %d", from), operation: op, offset: from, event: func(id raft.RequestID) replica.Event {
		return replica.Read{ID: id, LeaderEpoch: -1, Offset: from, MinBytes: 1, MaxBytes: 4000, MaxWait: 300 * time.Millisecond}
	}}
	c.call(c.dice.IntN(len(c.w.members)), call, func(answer any) {
		r, ok := answer.(replica.ReadResult)
		if !ok || r.Error != raft.NoError || len(r.Records) == 0 {
			c.retryRead(op, c.catchUp)
			return
		}
		for b := range batchesOf(r.Records) {
			for _, kv := range records(b.Raw) {
				c.view[kv.key] = kv.value
			}
			if b.BaseOffset > c.position || int64(b.Count) < b.NextOffset()-b.BaseOffset {
				// A record that is left out has a newer one, but that may stand behind the offset that was to be read up to.
				op.latest = max(op.latest, r.HighWatermark)
			}
			c.position = b.NextOffset()
		}
		c.catchUp(op)
	})
}

// keys is how many keys there are: few, so that clients meet.
const keys = 3

// batchesOf walks the whole batches of a client's Fetch answer.
func batchesOf(p []byte) iter.Seq[record.Batch] {
	return func(yield func(record.Batch) bool) {
		for b, err := range record.All(p) {
			if err != nil || !yield(b) {
				return
			}
		}
	}
}

type keyValue struct{ key, value string }

// records walks the records of one batch, with their offset deltas; a control batch has none for clients.
func records(raw []byte) iter.Seq2[int, keyValue] {
	return func(yield func(int, keyValue) bool) {
		b, err := record.Parse(raw)
		if err != nil || b.IsControl() {
			return
		}
		for r, err := range b.Records() {
			if err != nil || !yield(int(r.Offset-b.BaseOffset), keyValue{string(r.Key), string(r.Value)}) {
				return
			}
		}
	}
}
