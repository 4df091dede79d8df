package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// DialFunc connects to an address, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Dial connects as net.Dialer does, but to a name's addresses in random order. A bootstrap server's name may stand for
// all members, as a headless Service's does: the first address may be our own, or that of one that knows no leader, and
// a resolver may give the same order for ever.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	hosts, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	var dialer net.Dialer
	var last error
	for i, h := range hosts {
		if deadline, ok := ctx.Deadline(); ok { // one that does not answer must leave time for the others
			dialer.Timeout = max(time.Until(deadline)/time.Duration(len(hosts)-i), time.Millisecond)
		}
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(h, port))
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}

// maxResponse bounds responses. The largest is a Fetch with a batch of 8 MiB beyond the bytes asked for.
const maxResponse = 64 << 20

// Handshake opens a connection as every Kafka client does: it asks what the other side speaks, twice if that is older
// than us. in reads from conn; deadlines are the caller's.
func Handshake(conn net.Conn, in *bufio.Reader, clientID string) (wire.Versions, error) {
	codec := wire.Codec{ClientID: clientID}
	version := wire.HandshakeVersion
	for {
		if _, err := conn.Write(codec.EncodeApiVersions(version, 0)); err != nil {
			return wire.Versions{}, err
		}
		frame, err := ReadFrame(in)
		if err != nil {
			return wire.Versions{}, err
		}
		v, err := wire.DecodeApiVersions(version, frame)
		if older, ok := errors.AsType[*wire.TooHighError](err); ok && older.Max < version {
			version = max(older.Max, 0)
			continue
		}
		return v, err
	}
}

// ReadFrame reads one response frame, without its length prefix. io.EOF: the other side closed the connection between
// two frames.
func ReadFrame(in *bufio.Reader) ([]byte, error) {
	if _, err := in.Peek(1); err != nil {
		return nil, err
	}
	size, err := frameSize(in, maxResponse)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(in, frame); err != nil {
		return nil, noEOF(err)
	}
	return frame, nil
}
