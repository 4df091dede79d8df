package sim

import (
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// network carries requests and answers over simulated TCP connections between hosts: members first, then clients.
//
// Within a connection nothing is lost, doubled or reordered, as TCP has it: a message that gets lost on the wire comes
// later, and so does all behind it. Between connections everything may be reordered. A cut link holds messages back until
// it heals, or swallows them for good, and neither side is told.
type network struct {
	w     *world
	dice  dice
	links [][]link        // from, to
	sent  []time.Duration // by sender: when the last of what it has sent arrives
	conns []*conn
	last  raft.ConnID
}

// link is one direction between two hosts.
type link struct {
	cutUntil  time.Duration
	slowUntil time.Duration
	slowBy    time.Duration // mean
}

func newNetwork(w *world, hosts int) *network {
	n := &network{w: w, dice: newDice(w.plan.seed, "network")}
	for range hosts {
		n.links = append(n.links, make([]link, hosts))
	}
	n.sent = make([]time.Duration, hosts)
	return n
}

func (n *network) cut(from, to int, d time.Duration) {
	l := &n.links[from][to]
	l.cutUntil = max(l.cutUntil, n.w.now+d)
}

func (n *network) isCut(from, to int) bool { return n.links[from][to].cutUntil > n.w.now }

// heal mends every link between the chosen hosts.
func (n *network) heal(chosen func(host int) bool) {
	for from := range n.links {
		for to := range n.links[from] {
			if chosen(from) && chosen(to) {
				n.links[from][to] = link{}
			}
		}
	}
}

// delay is how long one message takes, cuts aside.
func (n *network) delay(from, to int) time.Duration {
	p, l := &n.w.plan, &n.links[from][to]
	d := p.delayMin + n.dice.about(p.delayMean)
	if l.slowUntil > n.w.now {
		d += n.dice.about(l.slowBy)
	}
	for again := 200 * time.Millisecond; again < 2*time.Second && n.dice.chance(n.w.loss); again *= 2 {
		d += again
	}
	return d
}

// conn is one TCP connection.
type conn struct {
	id       raft.ConnID
	dialer   int // host
	caller   *caller
	listener *member
	life     int // of the listener's process
	closed   bool
	arrives  [2]time.Duration // when the last message of each direction arrives
	lost     [2]bool          // a message of this direction is lost for good: nothing after it arrives either
	lossy    bool             // what is in flight when it is closed is lost
	queue    []*exchange      // requests at the listener, in order: so are their answers
}

// The directions of a conn.
const (
	toListener = 0
	toDialer   = 1
)

// transmit lets deliver happen when a message that is sent now arrives, if it does.
func (n *network) transmit(c *conn, direction int, deliver func()) {
	from, to := c.dialer, c.listener.host
	if direction == toDialer {
		from, to = to, from
	}
	at := n.w.now + n.delay(from, to)
	if l := n.links[from][to]; l.cutUntil > n.w.now {
		if n.dice.chance(0.3) {
			c.lost[direction] = true
		}
		at = l.cutUntil + n.dice.about(300*time.Millisecond)
	}
	if c.lost[direction] {
		return
	}
	at = max(at, c.arrives[direction])
	c.arrives[direction], n.sent[from] = at, max(n.sent[from], at)
	n.w.at(at, deliver)
}

// dial tries to connect and tells the outcome: a connection, or nil if the host refused. A dead or unreachable machine
// does not answer at all.
func (n *network) dial(k *caller, done func(*conn)) {
	from, to := k.from, k.to
	if n.isCut(from, to.host) {
		return
	}
	n.w.in(n.delay(from, to.host), func() {
		if !to.powered || n.isCut(to.host, from) {
			return
		}
		back := n.delay(to.host, from)
		if !to.up {
			n.w.in(back, func() { done(nil) })
			return
		}
		n.last++
		c := &conn{id: n.last, dialer: from, caller: k, listener: to, life: to.life, lossy: n.dice.chance(0.5)}
		n.conns = append(n.conns, c)
		n.w.in(back, func() { done(c) })
	})
}

// gone tells the dialers of a process that ended, unless the whole machine did: then nobody is left to tell them.
func (n *network) gone(m *member) {
	kept := n.conns[:0]
	for _, c := range n.conns {
		switch {
		case c.closed:
		case c.dialer == m.host:
			c.closed = true
		case c.listener == m && m.powered:
			n.reset(c)
		case c.listener == m:
		default:
			kept = append(kept, c)
		}
	}
	clear(n.conns[len(kept):])
	n.conns = kept
}

// reset ends a connection; the dialer hears of it unless the way is cut.
func (n *network) reset(c *conn) {
	if !n.isCut(c.listener.host, c.dialer) {
		n.transmit(c, toDialer, func() { n.ended(c) })
	}
}

func (n *network) ended(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	c.caller.ended(c)
}

// exchange is one request and what becomes of it.
type exchange struct {
	conn    *conn
	payload any
	spoken  *spoken       // if it goes over the wire as bytes
	served  time.Duration // when the listener took it in
	open    bool          // the dialer waits for the outcome
	done    bool          // answered by the listener
	waited  bool          // … not at once
	answer  any
	outcome func(answer any, f raft.Failure)
}

// caller is a host's side of its connection to one member: dialed when first needed, dialed again once when it ends.
type caller struct {
	n       *network
	from    int
	to      *member
	conn    *conn
	dialing bool
	open    []*exchange
	timeout time.Duration
	// lost hears of connections that ended, and whether dialing again was refused. May be nil.
	lost func(refused bool)
	// single closes the connection before a request goes out while an earlier one has no outcome (rule 6 of package raft).
	single bool
	dead   bool // its process has ended
}

// call sends a request. The outcome comes exactly once unless the caller dies.
func (k *caller) call(payload any, outcome func(answer any, f raft.Failure)) {
	k.exchange(&exchange{payload: payload, outcome: outcome})
}

func (k *caller) exchange(x *exchange) {
	if k.single && len(k.open) > 0 {
		k.close()
		k.fail(raft.Disconnected)
	}
	x.open = true
	k.open = append(k.open, x)
	k.n.w.in(k.timeout, func() {
		if x.open && !k.dead { // a connection with a request as old as this is closed
			k.close()
			k.fail(raft.Disconnected)
		}
	})
	if k.conn != nil {
		k.transmit(x)
		return
	}
	k.dial(nil)
}

func (k *caller) dial(done func(refused bool)) {
	if k.dialing {
		return
	}
	k.dialing = true
	attempt := true
	finish := func(c *conn) {
		if !attempt || k.dead {
			if c != nil {
				c.closed = true
			}
			return
		}
		attempt, k.dialing = false, false
		if done != nil {
			done(c == nil)
		}
		if c == nil {
			k.fail(raft.Refused)
			return
		}
		k.conn = c
		if c.closed { // the other side is gone already
			k.ended(c)
			return
		}
		for _, x := range k.open {
			k.transmit(x)
		}
	}
	k.n.dial(k, finish)
	k.n.w.in(k.timeout, func() {
		if attempt && !k.dead {
			attempt, k.dialing = false, false
			if done != nil {
				done(false)
			}
			k.fail(raft.Disconnected)
		}
	})
}

// transmit puts a request on the connection, and perhaps a copy of it on another one that nobody listens to.
func (k *caller) transmit(x *exchange) {
	c := k.conn
	x.conn = c
	k.n.transmit(c, toListener, func() { c.arrived(x) })
	if _, peer := x.payload.(raft.Request); peer && k.n.dice.chance(k.n.w.duplicate) {
		again := &conn{dialer: c.dialer, listener: c.listener, life: c.life, closed: true}
		k.n.last++
		again.id = k.n.last
		copied := &exchange{conn: again, payload: x.payload, spoken: x.spoken}
		k.n.w.in(k.n.delay(c.dialer, c.listener.host)+k.n.dice.about(500*time.Millisecond), func() { again.arrived(copied) })
	}
}

// arrived is a request that has come in at the listener.
func (c *conn) arrived(x *exchange) {
	m := c.listener
	if c.closed && c.lossy {
		return
	}
	if !m.up || m.life != c.life {
		// The process that had the connection is gone; the machine, once it is up, says so.
		if m.powered {
			m.w.net.reset(c)
		}
		return
	}
	c.queue = append(c.queue, x)
	m.whenAwake(func() { m.serve(x) })
}

// reply hands the listener's answer over. Answers leave in the order of the requests.
func (x *exchange) reply(answer any) {
	if x.spoken != nil {
		answer = x.spoken.answer(x.conn.listener.w, answer)
	}
	x.done, x.answer = true, answer
	c := x.conn
	for len(c.queue) > 0 && c.queue[0].done {
		first := c.queue[0]
		c.queue = c.queue[1:]
		c.listener.w.net.transmit(c, toDialer, func() {
			if !c.closed {
				c.caller.answered(first)
			}
		})
	}
}

// close ends the connection from the dialer's side.
func (k *caller) close() {
	if k.conn != nil {
		k.conn.closed = true
		k.conn = nil
	}
}

// fail gives up all open requests. Their senders hear of it as of any other event, not in the midst of one.
func (k *caller) fail(f raft.Failure) {
	for _, x := range k.open {
		x.open = false
		k.n.w.in(0, func() { x.outcome(nil, f) })
	}
	k.open = nil
}

// ended is a connection that the other side closed: what is open on it failed, and one new attempt tells more.
func (k *caller) ended(c *conn) {
	if k.conn != c || k.dead {
		return
	}
	k.conn = nil
	k.fail(raft.Disconnected)
	if k.lost != nil {
		k.dial(k.lost)
	}
}

// answered takes an answer in.
func (k *caller) answered(x *exchange) {
	kept := k.open[:0]
	for _, o := range k.open {
		if o != x {
			kept = append(kept, o)
		}
	}
	clear(k.open[len(kept):])
	k.open = kept
	if x.open {
		x.open = false
		x.outcome(x.answer, raft.NoFailure)
	}
}
