package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a Server on loopback until the test ends.
func serve(t *testing.T, s *Server) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
	return ln.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func frame(payload string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

func readFrame(t *testing.T, c net.Conn) string {
	t.Helper()
	size, err := frameSize(c, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// echo answers each frame with itself.
func echo(in *Inbound) error {
	in.Reply([][]byte{frame(string(in.Frame))})
	return nil
}

func TestAnswersKeepTheOrderOfRequests(t *testing.T) {
	requests := make(chan *Inbound, 4)
	s := &Server{Limits: Limits{InFlight: 4}, Handle: func(in *Inbound) error { requests <- in; return nil }}
	c := dial(t, serve(t, s))
	var held []*Inbound
	for i := range 4 {
		_, _ = c.Write(frame(fmt.Sprint(i)))
		held = append(held, <-requests)
	}
	held[3].Reply([][]byte{frame("3")})
	held[2].Drop()
	held[1].Reply([][]byte{frame("1")})
	held[0].Reply([][]byte{frame("0")[:4], []byte("0")})
	for _, want := range []string{"0", "1", "3"} {
		if got := readFrame(t, c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestInFlightBound(t *testing.T) {
	requests := make(chan *Inbound, 10)
	s := &Server{Limits: Limits{InFlight: 2}, Handle: func(in *Inbound) error { requests <- in; return nil }}
	c := dial(t, serve(t, s))
	for i := range 3 {
		_, _ = c.Write(frame(fmt.Sprint(i)))
	}
	first := <-requests
	<-requests
	select {
	case in := <-requests:
		t.Fatalf("request %q was taken although two were open", in.Frame)
	case <-time.After(50 * time.Millisecond):
	}
	first.Reply([][]byte{frame("0")})
	<-requests
}

func TestFrameTooLargeClosesWithoutAllocating(t *testing.T) {
	why := make(chan error, 1)
	s := &Server{Limits: DefaultLimits(), Handle: echo, Closed: func(_ *Conn, err error) { why <- err }}
	c := dial(t, serve(t, s))
	_, _ = c.Write(frame("warm"))
	readFrame(t, c)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _ = c.Write([]byte{0x7f, 0xff, 0xff, 0xff})
	err := <-why
	runtime.ReadMemStats(&after)
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("closed for %v", err)
	}
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 16<<10 {
		t.Errorf("%d bytes were allocated for a frame that never came", grew)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}

func TestBoundsOfConnections(t *testing.T) {
	for name, limits := range map[string]Limits{"all": {Connections: 2}, "one address": {PerIP: 2}} {
		t.Run(name, func(t *testing.T) {
			refused := make(chan string, 1)
			s := &Server{Limits: limits, Handle: echo, Refused: func(_ net.Addr, why string) { refused <- why }}
			address := serve(t, s)
			a, b := dial(t, address), dial(t, address)
			for _, c := range []net.Conn{a, b} {
				_, _ = c.Write(frame("x"))
				readFrame(t, c)
			}
			if _, err := dial(t, address).Read(make([]byte, 1)); err == nil {
				t.Error("a third connection was served")
			}
			t.Log(<-refused)
			_ = a.Close()
			for s.Connections() > 1 {
				runtime.Gosched()
			}
			c := dial(t, address)
			_, _ = c.Write(frame("x"))
			readFrame(t, c)
		})
	}
}

func TestDeadlines(t *testing.T) {
	const short = 30 * time.Millisecond
	for name, test := range map[string]struct {
		limits Limits
		send   []byte
	}{
		"nothing is ever sent":    {Limits{FirstByte: short}, nil},
		"the length does not end": {Limits{Frame: short}, []byte{0, 0}},
		"the frame does not end":  {Limits{Frame: short, QueuedBytes: 1 << 30}, []byte{0, 7, 0, 0, 1, 2, 3}},
		"idle after a request":    {Limits{Idle: short}, frame("x")},
	} {
		t.Run(name, func(t *testing.T) {
			why := make(chan error, 1)
			s := &Server{Limits: test.limits, Handle: echo, Closed: func(_ *Conn, err error) { why <- err }}
			c := dial(t, serve(t, s))
			_, _ = c.Write(test.send)
			var timeout net.Error
			if err := <-why; !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("closed for %v", err)
			}
		})
	}
}

func TestQueuedBytesAreBounded(t *testing.T) {
	requests := make(chan *Inbound, 10)
	s := &Server{Limits: Limits{InFlight: 4, QueuedBytes: 1000}, Handle: func(in *Inbound) error { requests <- in; return nil }}
	address := serve(t, s)
	a, b := dial(t, address), dial(t, address)
	_, _ = a.Write(frame(string(make([]byte, 600))))
	first := <-requests
	_, _ = b.Write(frame(string(make([]byte, 600))))
	select {
	case <-requests:
		t.Fatal("more was read than may be in memory")
	case <-time.After(50 * time.Millisecond):
	}
	first.Reply([][]byte{frame("done")})
	(<-requests).Reply([][]byte{frame("done")})
	readFrame(t, b)

	// A connection that ends gives back what it held.
	_, _ = a.Write(frame(string(make([]byte, 900))))
	held := <-requests
	_ = a.Close()
	_, _ = b.Write(frame(string(make([]byte, 900))))
	(<-requests).Reply([][]byte{frame("done")})
	held.Reply(nil)
}

func TestDrainAnswersWhatWasRead(t *testing.T) {
	requests := make(chan *Inbound, 1)
	s := &Server{Limits: DefaultLimits(), Handle: func(in *Inbound) error { requests <- in; return nil }}
	address := serve(t, s)
	busy, idle := dial(t, address), dial(t, address)
	_, _ = busy.Write(frame("x"))
	in := <-requests
	drained := make(chan struct{})
	go func() { s.Drain(t.Context()); close(drained) }()
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection ended with %v", err)
	}
	select {
	case <-drained:
		t.Fatal("drained with an open request")
	default:
	}
	in.Reply([][]byte{frame("last")})
	if got := readFrame(t, busy); got != "last" {
		t.Errorf("got %q", got)
	}
	<-drained
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("the listener is still open")
	}
}

func TestDrainGivesUp(t *testing.T) {
	requests := make(chan *Inbound, 1)
	s := &Server{Limits: DefaultLimits(), Handle: func(in *Inbound) error { requests <- in; return nil }}
	c := dial(t, serve(t, s))
	_, _ = c.Write(frame("x"))
	<-requests
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.Drain(ctx)
}

func TestHandlerErrorClosesTheConnection(t *testing.T) {
	why := make(chan error, 1)
	bad := errors.New("bad")
	s := &Server{Limits: DefaultLimits(), Handle: func(in *Inbound) error { return bad }, Closed: func(_ *Conn, err error) { why <- err }}
	c := dial(t, serve(t, s))
	_, _ = c.Write(frame("x"))
	if err := <-why; !errors.Is(err, bad) {
		t.Errorf("closed for %v", err)
	}
}

func TestPacer(t *testing.T) {
	p := pacer{perSecond: 10}
	now := time.Unix(1000, 0)
	for i := range 10 {
		if d := p.take(now); d > 0 {
			t.Errorf("event %d of a burst waits %v", i, d)
		}
	}
	if d := p.take(now); d != 100*time.Millisecond {
		t.Errorf("the eleventh waits %v, want 100ms", d)
	}
	if d := p.take(now.Add(5 * time.Second)); d > 0 {
		t.Errorf("after a quiet time one waits %v", d)
	}
}
