package transport

import (
	"net"
	"time"
)

// A connection whose other end vanished without a word (power cut, partition) is noticed by nobody who only waits for
// its next request. Keep-alive probes end it within keepAliveIdle plus count × interval, and what is being sent to it
// for longer than userTimeout ends it too (Linux).
const (
	keepAliveIdle     = 10 * time.Second
	keepAliveInterval = 3 * time.Second
	keepAliveCount    = 3
	userTimeout       = 20 * time.Second
)

// tune sets TCP up so that half-open connections die. Other kinds of connections are left alone.
func tune(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount})
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { setUserTimeout(fd, userTimeout) })
	}
}
