package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bounds what strangers can make a Server hold. Zero values mean no bound (or, for times, no deadline).
type Limits struct {
	FrameBytes  int           // largest frame; a connection that announces more is closed
	QueuedBytes int64         // of frames not answered yet, over all connections: beyond it nothing more is read
	InFlight    int           // requests of one connection that are not answered yet; at least 1
	Connections int           // more are closed at once
	PerIP       int           // of one address; more are closed at once
	AcceptRate  int           // new connections a second; more wait in the backlog
	FirstByte   time.Duration // from accepting to the first byte
	Frame       time.Duration // from a frame's first byte to its last
	Write       time.Duration // for one answer
	Idle        time.Duration // between two requests
}

// DefaultLimits returns the bounds of a listener of which nothing else is known.
func DefaultLimits() Limits {
	return Limits{
		FrameBytes:  8<<20 + 64<<10,
		QueuedBytes: 64 << 20,
		InFlight:    5,
		Connections: 1000,
		PerIP:       64,
		AcceptRate:  200,
		FirstByte:   10 * time.Second,
		Frame:       30 * time.Second,
		Write:       30 * time.Second,
		Idle:        10 * time.Minute,
	}
}

// uncounted is how much of a frame is read before room for the rest is asked for. A stranger who announces a large
// frame and sends little of it must not take room from others.
const uncounted = 16 << 10

// Server serves one listener. Set the fields before Serve.
type Server struct {
	Limits Limits
	// Handle gets each frame. It is called by the connection's reading goroutine, in order; while it blocks, nothing
	// more is read from that connection. An error closes the connection and is handed to Closed.
	Handle func(in *Inbound) error
	// Closed is told once for each connection that it has ended, and why: io.EOF if the peer closed it. May be nil.
	Closed func(c *Conn, why error)
	// Refused is told of connections that a bound turned away. May be nil.
	Refused func(remote net.Addr, why string)

	once   sync.Once
	closed chan struct{}
	budget budget
	wg     sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[*Conn]struct{}
	perIP     map[netip.Addr]int
	nextID    uint64
	draining  bool
}

// Conn is one accepted connection.
type Conn struct {
	ID     uint64 // unique in the Server, from 1
	Remote net.Addr

	net    net.Conn
	ip     netip.Addr
	queue  chan *Inbound // in order of arrival; the reader is its only sender and closes it
	closed chan struct{}
	once   sync.Once
	why    error // why it ended; set before closed is closed
}

// Inbound is one request frame. Exactly one of Reply, ReplyWith, Drop and Close must be called, by any goroutine at any
// later time. Frame stays valid for ever: it is not reused.
type Inbound struct {
	Conn  *Conn
	Frame []byte // without its length prefix

	done    chan struct{}
	reply   [][]byte
	section Section     // belongs behind the first piece of reply
	met     atomic.Bool // answered, or given up by the connection: the second to come closes the section
}

// Reply sends a whole frame, length prefix included, once all earlier requests of the connection are answered. It does
// not block. The slice is used up and its bytes must not change any more.
func (in *Inbound) Reply(frame [][]byte) {
	in.reply = frame
	close(in.done) // panics if the request is answered twice
}

// ReplyWith is Reply with a section of a file behind the frame's first piece. It is closed once it is sent, or never will
// be.
func (in *Inbound) ReplyWith(frame [][]byte, section Section) {
	in.section = section
	in.Reply(frame)
	if in.met.Swap(true) {
		section.Close()
	}
}

// giveUp is called for a request whose answer will not be sent.
func (in *Inbound) giveUp() {
	if in.met.Swap(true) && in.section != nil {
		in.section.Close()
	}
}

// Drop says that the request gets no answer (Produce with acks=0).
func (in *Inbound) Drop() { in.Reply(nil) }

// Close closes the connection instead of answering.
func (in *Inbound) Close(why error) {
	in.Conn.close(why)
	in.Reply(nil)
}

var errClosing = errors.New("the listener is closing")

func (s *Server) start() {
	s.once.Do(func() {
		s.closed = make(chan struct{})
		s.conns = map[*Conn]struct{}{}
		s.perIP = map[netip.Addr]int{}
		s.budget.init(s.Limits.QueuedBytes)
	})
}

// Serve accepts connections until Close or Drain, which make it return nil.
func (s *Server) Serve(ln net.Listener) error {
	s.start()
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners = append(s.listeners, ln)
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()

	pace := pacer{perSecond: s.Limits.AcceptRate}
	for {
		if wait := pace.take(time.Now()); wait > 0 && !s.sleep(wait) {
			return nil
		}
		conn, err := ln.Accept()
		switch {
		case err == nil:
			s.admit(conn)
		case errors.Is(err, net.ErrClosed):
			return nil
		case s.isDraining():
			return nil
		default:
			// Out of descriptors, or the peer gave up while it waited: neither ends the listener.
			if !s.sleep(50 * time.Millisecond) {
				return nil
			}
		}
	}
}

func (s *Server) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.closed:
		return false
	}
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func (s *Server) admit(conn net.Conn) {
	ip := addressOf(conn.RemoteAddr())
	s.mu.Lock()
	why := ""
	switch {
	case s.draining:
		why = errClosing.Error()
	case s.Limits.Connections > 0 && len(s.conns) >= s.Limits.Connections:
		why = fmt.Sprintf("max.connections: %d are open", len(s.conns))
	case s.Limits.PerIP > 0 && ip.IsValid() && s.perIP[ip] >= s.Limits.PerIP:
		why = fmt.Sprintf("max.connections.per.ip: %d are open from %s", s.perIP[ip], ip)
	}
	if why != "" {
		s.mu.Unlock()
		_ = conn.Close()
		if s.Refused != nil {
			s.Refused(conn.RemoteAddr(), why)
		}
		return
	}
	s.nextID++
	c := &Conn{
		ID: s.nextID, Remote: conn.RemoteAddr(), net: conn, ip: ip,
		queue:  make(chan *Inbound, max(s.Limits.InFlight, 1)-1), // the writer holds one more
		closed: make(chan struct{}),
	}
	s.conns[c] = struct{}{}
	s.perIP[ip]++
	s.wg.Add(1)
	s.mu.Unlock()
	tune(conn)
	go s.serve(c)
}

func addressOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// serve reads on a goroutine of its own and writes on this one.
func (s *Server) serve(c *Conn) {
	defer s.wg.Done()
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(c.queue)
		if err := s.read(c); !errors.Is(err, errClosing) {
			c.close(err) // else what is in the queue is still answered
		}
	})
	s.write(c)
	c.close(errClosing)
	for in := range c.queue {
		s.budget.release(len(in.Frame))
		in.giveUp()
	}
	reading.Wait()

	s.mu.Lock()
	delete(s.conns, c)
	if s.perIP[c.ip]--; s.perIP[c.ip] == 0 {
		delete(s.perIP, c.ip)
	}
	s.mu.Unlock()
	if s.Closed != nil {
		s.Closed(c, c.why)
	}
}

func (c *Conn) close(why error) {
	c.once.Do(func() {
		c.why = why
		close(c.closed)
		_ = c.net.Close()
	})
}

// read takes frames off the connection until it ends. It returns errClosing if Drain made it stop.
func (s *Server) read(c *Conn) error {
	in := bufio.NewReaderSize(c.net, 4<<10)
	wait := s.Limits.FirstByte
	for {
		if !s.setReadDeadline(c, wait) {
			return errClosing
		}
		if _, err := in.Peek(1); err != nil {
			if s.isDraining() {
				return errClosing
			}
			return err
		}
		_ = c.net.SetReadDeadline(deadline(s.Limits.Frame))
		frame, err := s.readFrame(c, in)
		if err != nil {
			return err
		}
		request := &Inbound{Conn: c, Frame: frame, done: make(chan struct{})}
		select {
		case c.queue <- request:
		case <-c.closed:
			s.budget.release(len(frame))
			return c.why
		}
		if err := s.Handle(request); err != nil {
			return err
		}
		wait = s.Limits.Idle
	}
}

// setReadDeadline reports false if the server drains: its own deadline, in the past, must stay.
func (s *Server) setReadDeadline(c *Conn, wait time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	_ = c.net.SetReadDeadline(deadline(wait))
	return true
}

func deadline(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// readFrame returns the next frame, which then counts against QueuedBytes.
func (s *Server) readFrame(c *Conn, in *bufio.Reader) ([]byte, error) {
	size, err := frameSize(in, s.Limits.FrameBytes)
	if err != nil {
		return nil, err
	}
	first := make([]byte, min(size, uncounted))
	if _, err := io.ReadFull(in, first); err != nil {
		return nil, noEOF(err)
	}
	if !s.budget.acquire(size, c.closed) {
		return nil, c.why
	}
	if size == len(first) {
		return first, nil
	}
	_ = c.net.SetReadDeadline(deadline(s.Limits.Frame)) // waiting for room was not the peer's fault
	frame := make([]byte, size)
	if _, err := io.ReadFull(in, frame[copy(frame, first):]); err != nil {
		s.budget.release(size)
		return nil, noEOF(err)
	}
	return frame, nil
}

// frameSize reads a length prefix.
func frameSize(in io.Reader, most int) (int, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(in, prefix[:]); err != nil {
		return 0, noEOF(err)
	}
	size := int32(binary.BigEndian.Uint32(prefix[:]))
	if size <= 0 || most > 0 && int(size) > most {
		return 0, fmt.Errorf("a frame of %d bytes was announced: want 1 to %d", size, most)
	}
	return int(size), nil
}

// noEOF keeps io.EOF for connections that end between frames.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// write answers the requests of a connection in order until the reader has ended and all are answered, or the
// connection is closed. Answers that are ready together leave in one write, up to a section of a file.
func (s *Server) write(c *Conn) {
	var ahead *Inbound // taken from the queue but not answered yet
	defer func() {
		if ahead != nil {
			s.budget.release(len(ahead.Frame))
			ahead.giveUp()
		}
	}()
	for {
		in, ok := ahead, true
		if ahead = nil; in == nil {
			select {
			case in, ok = <-c.queue:
			case <-c.closed:
				return
			}
		}
		if !ok {
			return
		}
		select {
		case <-in.done:
		case <-c.closed:
			s.budget.release(len(in.Frame))
			in.giveUp()
			return
		}
		out, size := net.Buffers(in.reply), len(in.Frame)
		if in.section == nil {
			if ahead = next(c.queue); ahead != nil && joins(ahead) {
				out = append(net.Buffers{}, out...)
				for ahead != nil && joins(ahead) {
					out, size = append(out, ahead.reply...), size+len(ahead.Frame)
					ahead = next(c.queue)
				}
			}
		}
		s.budget.release(size)
		if len(out) == 0 {
			continue
		}
		_ = c.net.SetWriteDeadline(deadline(s.Limits.Write))
		if err := send(c.net, out, in.section); err != nil {
			c.close(fmt.Errorf("write an answer: %w", err))
			return
		}
	}
}

// send writes a frame with its section, if it has one, behind the first piece.
func send(conn net.Conn, frame net.Buffers, s Section) error {
	if s != nil {
		defer s.Close()
		if _, err := conn.Write(frame[0]); err != nil {
			return err
		}
		if err := sendSection(conn, s); err != nil {
			return err
		}
		frame = frame[1:]
	}
	_, err := frame.WriteTo(conn)
	return err
}

// next takes a request from the queue if there is one.
func next(queue chan *Inbound) *Inbound {
	select {
	case in := <-queue: // nil if the reader has ended
		return in
	default:
		return nil
	}
}

// joins reports whether a request is answered by now, from memory.
func joins(in *Inbound) bool {
	select {
	case <-in.done:
		return in.section == nil
	default:
		return false
	}
}

// Drain stops accepting and reading, and waits until all requests that were read are answered and their answers
// written, or ctx ends. Close must follow.
func (s *Server) Drain(ctx context.Context) {
	s.start()
	s.mu.Lock()
	s.draining = true
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
	for c := range s.conns {
		_ = c.net.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }() // ends with Close at the latest
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Close closes the listeners and all connections, and waits for their goroutines. Answers that are not written yet are
// lost: see Drain.
func (s *Server) Close() {
	s.start()
	s.mu.Lock()
	s.draining = true
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
	for c := range s.conns {
		c.close(errClosing)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Connections is how many are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
