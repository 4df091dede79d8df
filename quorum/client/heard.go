package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// heard is why appends and reads do not get on, as far as anybody said so. The Kafka client tries again for as long as it
// may, and keeps to itself what members answer meanwhile; so it is listened to on its connections.
type heard struct {
	mu     sync.Mutex
	said   error // what a member answered last, if that was an error
	to     int16 // key of the request that it was the answer to
	dialed error // why a member could not be reached at last
}

// last is the last of it; nil: nothing. What a member says tells more than another's silence.
func (h *heard) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said != nil {
		return h.said
	}
	return h.dialed
}

// listen connects as dial does, and listens.
func (h *heard) listen(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			h.mu.Lock()
			h.dialed = short(address, err)
			h.mu.Unlock()
			return nil, err
		}
		return &heardConn{Conn: c, heard: h, address: address, asked: map[int32]wire.Header{}}, nil
	}
}

// heardConn follows the answers to what an append takes, and who leads.
type heardConn struct {
	net.Conn
	heard   *heard
	address string

	mu    sync.Mutex // of asked: one goroutine writes, another reads
	asked map[int32]wire.Header

	answer []byte // what has come of the answer that is being read
	skip   int    // bytes of one that is of no interest
}

// Write is called with one request, as the Kafka client does.
func (c *heardConn) Write(request []byte) (int, error) {
	if h, _, err := wire.ReadHeader(request[min(4, len(request)):]); err == nil {
		switch h.Key {
		case wire.Produce, wire.Metadata, wire.InitProducerID:
			c.mu.Lock()
			c.asked[h.Correlation] = h
			c.mu.Unlock()
		}
	}
	return c.Conn.Write(request)
}

func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for came := p[:n]; len(came) > 0; {
		if k := min(c.skip, len(came)); k > 0 {
			came, c.skip = came[k:], c.skip-k
			continue
		}
		came = c.take(came)
	}
	return n, err
}

// take reads on in an answer, and returns what came behind it.
func (c *heardConn) take(came []byte) []byte {
	const head = 8 // length, correlation
	more := func(size int) bool {
		k := min(size-len(c.answer), len(came))
		c.answer, came = append(c.answer, came[:k]...), came[k:]
		return len(c.answer) == size
	}
	if len(c.answer) < head && !more(head) {
		return came
	}
	size := 4 + int(binary.BigEndian.Uint32(c.answer))
	correlation := int32(binary.BigEndian.Uint32(c.answer[4:]))
	c.mu.Lock()
	h, wanted := c.asked[correlation]
	c.mu.Unlock()
	if !wanted {
		c.answer, c.skip = c.answer[:0], size-head
		return came
	}
	if more(size) {
		c.mu.Lock()
		delete(c.asked, correlation)
		c.mu.Unlock()
		c.hear(h, c.answer[4:])
		c.answer = nil
	}
	return came
}

// hear takes note of what an answer says of the one partition that there is.
func (c *heardConn) hear(h wire.Header, frame []byte) {
	resp := kmsg.ResponseForKey(h.Key)
	resp.SetVersion(h.Version)
	body := frame[4:]
	if resp.IsFlexible() {
		body = body[min(1, len(body)):] // no tags
	}
	if resp.ReadFrom(body) != nil {
		return // the Kafka client complains
	}
	var code int16
	var message *string
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				code, message = p.ErrorCode, p.ErrorMessage
			}
		}
	case *kmsg.InitProducerIDResponse:
		code = r.ErrorCode
	case *kmsg.MetadataResponse:
		for _, t := range r.Topics {
			code = t.ErrorCode
			for _, p := range t.Partitions {
				code = p.ErrorCode
			}
		}
	}
	if c := raft.ErrorCode(code); message == nil && (c == wire.LeaderNotAvailable || c == wire.CoordinatorNotAvailable) {
		message = new("it reaches no leader")
	}
	c.heard.mu.Lock()
	defer c.heard.mu.Unlock()
	switch err := check(code, message); {
	case err != nil:
		c.heard.said, c.heard.to = fmt.Errorf("%s answers %w", c.address, err), h.Key
	case h.Key == wire.Produce || h.Key == c.heard.to: // that somebody leads does not mean that he takes anything
		c.heard.said = nil
	}
}
