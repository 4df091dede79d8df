package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// ErrUnreadable is why a connection was closed in the middle of an answer: a file is shorter than it was, or its disk fails.
var ErrUnreadable = errors.New("a file to be sent cannot be read")

// Section is a part of a file, as io.SectionReader is one.
type Section interface {
	io.Reader
	Size() int64
	Outer() (file io.ReaderAt, offset, size int64)
	Close()
}

// sendSection sends all of a section, or fails. On a file of the machine it is the kernel that reads: no copy is made here.
func sendSection(conn net.Conn, s Section) error {
	sent, err := sendFile(conn, s)
	if err == nil && sent < s.Size() {
		err = io.ErrUnexpectedEOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EIO) {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if err != nil {
		return fmt.Errorf("after %d of %d bytes of a file: %w", sent, s.Size(), err)
	}
	return nil
}
