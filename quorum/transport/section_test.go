package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// testSection counts how often it is closed.
type testSection struct {
	*io.SectionReader
	closed atomic.Int32
}

func (s *testSection) Close() { s.closed.Add(1) }

const sectionAt = 1000

// sections are the same bytes in a file, for the kernel to send, and in memory.
func sections(t *testing.T, size int) (content []byte, kinds map[string]*testSection, file *os.File) {
	t.Helper()
	all := make([]byte, sectionAt+size+sectionAt)
	for i := range all {
		all[i] = byte(rand.Uint32())
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if _, err := file.Write(all); err != nil {
		t.Fatal(err)
	}
	return all[sectionAt : sectionAt+size], map[string]*testSection{
		"file":   {SectionReader: io.NewSectionReader(file, sectionAt, int64(size))},
		"memory": {SectionReader: io.NewSectionReader(bytes.NewReader(all), sectionAt, int64(size))},
	}, file
}

// pieces is a frame that announces a section behind its first piece.
func pieces(section int) [][]byte {
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len("head")+section+len("tail"))), "head"...)
	return [][]byte{head, []byte("tail")}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

func TestSectionIsSentBehindTheFirstPiece(t *testing.T) {
	const size = 3 << 20 // more than the sockets hold: it takes several calls
	content, kinds, _ := sections(t, size)
	for name, section := range kinds {
		t.Run(name, func(t *testing.T) {
			requests := make(chan *Inbound, 3)
			s := &Server{Limits: Limits{InFlight: 3, FrameBytes: 8 << 20}, Handle: func(in *Inbound) error { requests <- in; return nil }}
			c := dial(t, serve(t, s))
			for range 3 {
				_, _ = c.Write(frame("request"))
			}
			first, second, third := <-requests, <-requests, <-requests
			third.Reply([][]byte{frame("after")})
			second.ReplyWith(pieces(size), section)
			first.Reply([][]byte{frame("before")})
			time.Sleep(20 * time.Millisecond) // let it fill the sockets
			for _, want := range []string{"before", "head" + string(content) + "tail", "after"} {
				n, err := frameSize(c, 8<<20)
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, n)
				if _, err := io.ReadFull(c, got); err != nil {
					t.Fatal(err)
				}
				if string(got) != want {
					t.Fatalf("an answer of %d bytes %.20q, want %d bytes %.20q", len(got), got, len(want), want)
				}
			}
			await(t, "the section is closed", func() bool { return section.closed.Load() == 1 })
		})
	}
}

// TestTwoConnectionsSendFromOneFile: they do not share a place in it.
func TestTwoConnectionsSendFromOneFile(t *testing.T) {
	const size = 1 << 20
	content, _, file := sections(t, size)
	s := &Server{Limits: Limits{InFlight: 1}, Handle: func(in *Inbound) error {
		in.ReplyWith(pieces(size), &testSection{SectionReader: io.NewSectionReader(file, sectionAt, size)})
		return nil
	}}
	address := serve(t, s)
	failed := make(chan error, 4)
	for range cap(failed) {
		c := dial(t, address)
		go func() {
			got := make([]byte, 4+4+size+4)
			for range 20 {
				_, _ = c.Write(frame("request"))
				if _, err := io.ReadFull(c, got); err != nil {
					failed <- err
					return
				}
				if !bytes.Equal(got[8:8+size], content) {
					failed <- errors.New("other bytes than the section's")
					return
				}
			}
			failed <- nil
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// TestSectionThatWasCutEndsTheConnection: an answer that cannot be as long as announced must not leave its reader waiting.
func TestSectionThatWasCutEndsTheConnection(t *testing.T) {
	const size = 100 << 10
	_, kinds, file := sections(t, size)
	if err := file.Truncate(sectionAt + size/2); err != nil {
		t.Fatal(err)
	}
	kinds["memory"].SectionReader = io.NewSectionReader(bytes.NewReader(make([]byte, sectionAt+size/2)), sectionAt, size)
	for name, section := range kinds {
		t.Run(name, func(t *testing.T) {
			why := make(chan error, 1)
			s := &Server{
				Limits: Limits{InFlight: 1},
				Handle: func(in *Inbound) error { in.ReplyWith(pieces(size), section); return nil },
				Closed: func(_ *Conn, err error) { why <- err },
			}
			c := dial(t, serve(t, s))
			_, _ = c.Write(frame("request"))
			if got, err := io.ReadAll(c); err != nil || len(got) != 8+size/2 {
				t.Errorf("got %d bytes, %v; want %d and the end", len(got), err, 8+size/2)
			}
			if err := <-why; !errors.Is(err, ErrUnreadable) {
				t.Errorf("closed for %v, want ErrUnreadable", err)
			}
			if n := section.closed.Load(); n != 1 {
				t.Errorf("the section was closed %d times", n)
			}
		})
	}
}

// TestSlowReaderOfASectionIsGivenUp when the time for one answer is over, as of an answer from memory.
func TestSlowReaderOfASectionIsGivenUp(t *testing.T) {
	const size = 32 << 20
	_, kinds, _ := sections(t, size)
	for name, section := range kinds {
		t.Run(name, func(t *testing.T) {
			why := make(chan error, 1)
			s := &Server{
				Limits: Limits{InFlight: 1, Write: 100 * time.Millisecond},
				Handle: func(in *Inbound) error { in.ReplyWith(pieces(size), section); return nil },
				Closed: func(_ *Conn, err error) { why <- err },
			}
			c := dial(t, serve(t, s))
			_, _ = c.Write(frame("request"))
			if err := <-why; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("closed for %v, want os.ErrDeadlineExceeded", err)
			}
			if n := section.closed.Load(); n != 1 {
				t.Errorf("the section was closed %d times", n)
			}
		})
	}
}

// TestSectionIsClosedIfItIsNeverSent: the connection may end before the answer is there, or before its turn has come.
func TestSectionIsClosedIfItIsNeverSent(t *testing.T) {
	for name, answeredFirst := range map[string]bool{"answered before the end": true, "answered after it": false} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan *Inbound, 3)
			ended := make(chan struct{})
			s := &Server{
				Limits: Limits{InFlight: 3},
				Handle: func(in *Inbound) error { requests <- in; return nil },
				Closed: func(*Conn, error) { close(ended) },
			}
			c := dial(t, serve(t, s))
			var all []*testSection
			var held []*Inbound
			for range 3 {
				_, _ = c.Write(frame("request"))
				held = append(held, <-requests)
				all = append(all, &testSection{SectionReader: io.NewSectionReader(bytes.NewReader(make([]byte, 9)), 0, 9)})
			}
			answer := func() {
				for i, in := range held[1:] { // the first holds them up
					in.ReplyWith(pieces(9), all[i+1])
				}
			}
			if answeredFirst {
				answer()
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			<-ended
			if !answeredFirst {
				answer()
			}
			held[0].ReplyWith(pieces(9), all[0])
			for i, s := range all {
				if n := s.closed.Load(); n != 1 {
					t.Errorf("section %d was closed %d times", i, n)
				}
			}
		})
	}
}
