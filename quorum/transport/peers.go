package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// Reply is what became of a request: its Outcome for the core and what came beside it.
type Reply struct {
	Outcome raft.Outcome
	To      raft.Destination
	Records []byte            // of a Fetch response, unchecked; owned by the receiver
	Table   *wire.MemberTable // of a Fetch response; nil if there was none
}

// maxQueued bounds the requests that wait for one destination to be connected. Only the newest is of use; what is over the
// bound is dropped without a word.
const maxQueued = 64

// Peers sends the core's requests to other members. It keeps one connection to each destination, made when first
// needed. When the other side ends it, it is made anew once: that tells a dead process from a cut connection, which is
// what fast failover needs to know.
//
// A connection carries one request at a time (rule 6 of package raft). The core sends another to the same destination only
// once it has no use for the first any more, which is then reported as Disconnected and its connection closed: the other
// side must not take the newer request for an answer to what it said to the older one.
type Peers struct {
	Codec *wire.Codec
	Dial  DialFunc
	// RequestTimeout bounds dialing with handshake, and each request: a connection with an older request is closed.
	RequestTimeout time.Duration
	// OnReply and OnLost are called by goroutines of Peers, one at a time for each destination. They may block, but
	// must return once their owner is about to call Close.
	OnReply func(Reply)
	OnLost  func(raft.ConnectionLost)

	mu     sync.Mutex
	peers  map[raft.NodeID]*peer
	closed chan struct{}
	wg     sync.WaitGroup
}

// Send sends a request; what becomes of it is reported to OnReply, never from inside Send. It does not block. Tag is
// for Fetch requests and may be nil.
func (p *Peers) Send(s raft.Send, tag *wire.FetchTag) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start()
	if isClosed(p.closed) {
		return
	}
	w := p.peers[s.To.ID]
	if w == nil || w.to != s.To {
		if w != nil {
			w.cancel() // it has moved
		}
		ctx, cancel := context.WithCancel(context.Background())
		w = &peer{owner: p, to: s.To, cancel: cancel, gone: ctx.Done(), wake: make(chan struct{}, 1), lost: make(chan *conn)}
		p.peers[s.To.ID] = w
		p.wg.Go(func() { w.run(ctx) })
	}
	w.push(s, tag)
}

// Close closes all connections and waits for all goroutines. Requests that are open are not reported any more.
func (p *Peers) Close() {
	p.mu.Lock()
	p.start()
	if !isClosed(p.closed) {
		close(p.closed)
	}
	for _, w := range p.peers {
		w.cancel()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Peers) start() {
	if p.peers == nil {
		p.peers = map[raft.NodeID]*peer{}
		p.closed = make(chan struct{})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// peer is one destination. Its goroutine dials and writes; each connection has another that reads.
type peer struct {
	owner  *Peers
	to     raft.Destination
	cancel context.CancelFunc
	gone   <-chan struct{} // closed when the destination is given up
	wake   chan struct{}   // capacity 1: there is something in queue
	lost   chan *conn      // a connection that the other side ended, after its requests were reported

	mu     sync.Mutex
	queue  []outbound
	report sync.Mutex // held while a callback runs
}

type outbound struct {
	send raft.Send
	tag  *wire.FetchTag
}

func (w *peer) push(s raft.Send, tag *wire.FetchTag) {
	w.mu.Lock()
	if len(w.queue) == maxQueued {
		w.queue = w.queue[1:]
	}
	w.queue = append(w.queue, outbound{s, tag})
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *peer) take() []outbound {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue
	w.queue = nil
	return q
}

// newest gives up all requests but the last.
func (w *peer) newest(requests []outbound) outbound {
	last := len(requests) - 1
	w.fail(requests[:last], raft.Disconnected)
	return requests[last]
}

// run connects and writes until the destination is given up.
func (w *peer) run(ctx context.Context) {
	var c *conn // nil: not connected
	overdue := time.NewTimer(time.Hour)
	defer overdue.Stop()
	for {
		select {
		case <-ctx.Done():
			if c != nil {
				c.end()
			}
			w.fail(w.take(), raft.Disconnected)
			return
		case ended := <-w.lost:
			if ended == c {
				c = w.again(ctx, c)
			}
		case <-w.wake:
			requests := w.take()
			if len(requests) == 0 {
				continue // taken along with earlier ones
			}
			if c != nil && (w.to.ID < 0 || c.busy() && !c.isOver()) {
				// A bootstrap server's name may stand for many members, and the one that we got is asked again because
				// it did not know the leader. Two members that have each other would ask for ever.
				c.end()
				c = nil
			}
			if c != nil && c.isOver() {
				select { // the reader is about to say so
				case <-w.lost:
				case <-ctx.Done():
					w.fail(requests, raft.Disconnected)
					continue
				}
				c = w.again(ctx, c)
			}
			if c = w.write(ctx, c, w.newest(requests)); c != nil {
				if left, busy := c.patience(); busy {
					overdue.Reset(left)
				}
			}
		case <-overdue.C:
			// The peer is there but does not answer, or is gone without a word. Dial anew for the next request.
			if c == nil {
				continue
			}
			if left, busy := c.patience(); busy && left > 0 {
				overdue.Reset(left)
			} else if busy {
				c.end()
				c = nil
			}
		}
	}
}

// write sends a request, connecting first if need be. It returns the connection to go on with.
func (w *peer) write(ctx context.Context, c *conn, r outbound) *conn {
	if c == nil {
		var err error
		c, err = w.connect(ctx)
		r = w.newest(append([]outbound{r}, w.take()...)) // it may have taken long
		if err != nil {
			why := raft.Disconnected
			if errors.Is(err, syscall.ECONNREFUSED) {
				why = raft.Refused
			}
			w.fail([]outbound{r}, why)
			return nil
		}
	}
	if err := c.write(r); err != nil {
		c.end() // reports r as well
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return w.again(ctx, c)
	}
	return c
}

// again dials once more after the other side has ended a connection, and tells what came of it. A connection that
// nothing was ever sent on is not worth it: it was itself a second attempt, and a peer that accepts and closes would
// keep us busy for ever.
func (w *peer) again(ctx context.Context, lost *conn) *conn {
	if !lost.used() {
		w.tellLost(false)
		return nil
	}
	c, err := w.connect(ctx)
	w.tellLost(errors.Is(err, syscall.ECONNREFUSED))
	return c
}

func (w *peer) tellLost(refused bool) {
	if w.to.ID < 0 || w.owner.OnLost == nil || isClosed(w.gone) {
		return
	}
	w.report.Lock()
	defer w.report.Unlock()
	w.owner.OnLost(raft.ConnectionLost{Peer: w.to.ID, Refused: refused})
}

func (w *peer) fail(requests []outbound, why raft.Failure) {
	for _, r := range requests {
		w.tell(Reply{Outcome: raft.Outcome{Correlation: r.send.Correlation, Failure: why}, To: w.to})
	}
}

func (w *peer) tell(r Reply) {
	w.report.Lock()
	defer w.report.Unlock()
	if !isClosed(w.owner.closed) {
		w.owner.OnReply(r)
	}
}

// connect dials and shakes hands. On an error there is no connection.
func (w *peer) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.owner.RequestTimeout)
	defer cancel()
	nc, err := w.owner.Dial(ctx, "tcp", net.JoinHostPort(w.to.Host, strconv.Itoa(int(w.to.Port))))
	if err != nil {
		return nil, err
	}
	tune(nc)
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	c := &conn{peer: w, net: nc, in: bufio.NewReaderSize(nc, 16<<10), ended: make(chan struct{})}
	c.versions, err = Handshake(nc, c.in, w.owner.Codec.ClientID)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	w.owner.wg.Go(c.read)
	return c, nil
}

// conn is one connection to a peer. Responses come in the order of the requests.
type conn struct {
	peer     *peer
	net      net.Conn
	in       *bufio.Reader
	versions wire.Versions
	ended    chan struct{}

	mu       sync.Mutex
	next     int32
	inFlight []pending
	over     bool // no more requests are taken
}

type pending struct {
	header      wire.Header
	correlation raft.Correlation
	sent        time.Time
}

// write sends one request. After an error the connection must be ended, which reports it.
func (c *conn) write(r outbound) error {
	version, ok := c.versions.VersionFor(r.send.Request)
	if !ok {
		c.peer.fail([]outbound{r}, raft.UnsupportedByPeer)
		return nil
	}
	c.mu.Lock()
	c.next++
	p := pending{wire.Header{Key: wire.KeyOf(r.send.Request), Version: version, Correlation: c.next}, r.send.Correlation, time.Now()}
	if c.over {
		c.mu.Unlock()
		c.peer.fail([]outbound{r}, raft.Disconnected)
		return net.ErrClosed
	}
	c.inFlight = append(c.inFlight, p)
	c.mu.Unlock()

	frame, err := c.peer.owner.Codec.EncodeRequest(version, p.header.Correlation, r.send.Request, r.tag)
	if err != nil {
		panic(fmt.Sprintf("transport: %v", err)) // VersionFor has just said that it can be sent
	}
	_ = c.net.SetWriteDeadline(deadline(c.peer.owner.RequestTimeout))
	_, err = c.net.Write(frame)
	return err
}

// read reports responses until the connection ends, and then what is left without one.
func (c *conn) read() {
	err := c.responses()
	_ = c.net.Close()
	c.mu.Lock()
	c.over = true
	left := c.inFlight
	c.mu.Unlock()
	for _, p := range left {
		c.peer.tell(Reply{Outcome: raft.Outcome{Correlation: p.correlation, Failure: raft.Disconnected}, To: c.peer.to})
	}
	close(c.ended)
	if errors.Is(err, net.ErrClosed) {
		return // we ended it
	}
	select {
	case c.peer.lost <- c:
	case <-c.peer.gone:
	}
}

func (c *conn) responses() error {
	for {
		frame, err := ReadFrame(c.in)
		if err != nil {
			return err
		}
		correlation, err := wire.ReadCorrelation(frame)
		if err != nil {
			return err
		}
		c.mu.Lock()
		if len(c.inFlight) == 0 || c.inFlight[0].header.Correlation != correlation {
			c.mu.Unlock()
			return fmt.Errorf("a response came to no request (correlation id %d)", correlation)
		}
		p := c.inFlight[0]
		c.mu.Unlock()
		reply, err := c.peer.owner.Codec.DecodeResponse(p.header, frame)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.inFlight = c.inFlight[1:]
		c.mu.Unlock()
		c.peer.tell(Reply{
			Outcome: raft.Outcome{Correlation: p.correlation, Response: reply.Response},
			To:      c.peer.to, Records: reply.Records, Table: reply.Table,
		})
	}
}

// patience is how long the oldest open request may still take; false if there is none.
func (c *conn) patience() (left time.Duration, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inFlight) == 0 {
		return 0, false
	}
	return time.Until(c.inFlight[0].sent.Add(c.peer.owner.RequestTimeout)), true
}

// busy reports whether a request has no response yet.
func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inFlight) > 0
}

// used reports whether a request was ever sent.
func (c *conn) used() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next > 0
}

func (c *conn) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// end closes the connection and waits until its requests are reported.
func (c *conn) end() {
	_ = c.net.Close()
	<-c.ended
}
