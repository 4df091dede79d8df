//go:build !linux

package transport

import (
	"io"
	"net"
)

func sendFile(conn net.Conn, s Section) (sent int64, err error) { return io.Copy(conn, s) }
