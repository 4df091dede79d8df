package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"

	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// DialFunc connects to an address, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

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
