package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// sendFile calls sendfile(2) itself. The net package would go by the file's own position, which those who read the file
// at the same time have in common.
func sendFile(conn net.Conn, s Section) (sent int64, err error) {
	file, offset, size := s.Outer()
	from, isFile := file.(syscall.Conn)
	to, isTCP := conn.(*net.TCPConn)
	if !isFile || !isTCP {
		return io.Copy(conn, s)
	}
	in, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	out, err := to.SyscallConn()
	if err != nil {
		return 0, err
	}
	position := offset
	var failed error
	send := func(out, in uintptr) (done bool) {
		for position < offset+size {
			n, err := syscall.Sendfile(int(out), int(in), &position, int(offset+size-position))
			switch {
			case errors.Is(err, syscall.EINTR):
			case errors.Is(err, syscall.EAGAIN):
				return false // called again when there is room, or the deadline has passed
			case err != nil:
				failed = os.NewSyscallError("sendfile", err)
				return true
			case n == 0: // the file ends here by now
				return true
			}
		}
		return true
	}
	var writing error
	err = in.Control(func(in uintptr) {
		writing = out.Write(func(out uintptr) bool { return send(out, in) })
	})
	return position - offset, errors.Join(err, writing, failed)
}
