// Package client asks members of a quorum from outside: what Kafka's quorum tools ask (DescribeCluster,
// DescribeQuorum), and what members tell by HTTP (status, handoff). The command line and the operator use it.
//
// Every call is bounded by its context; each attempt at one member besides by Client.Timeout.
package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// DialFunc connects to an address, as net.Dialer.DialContext does.
type DialFunc = transport.DialFunc

// Client asks members. The zero value is ready.
type Client struct {
	Dial    DialFunc      // nil: a net.Dialer
	Timeout time.Duration // for one attempt at one member; 0: 3 s
	Topic   string        // empty: __cluster_metadata
}

const (
	defaultTimeout = 3 * time.Second
	defaultTopic   = "__cluster_metadata"
	retryAfter     = 100 * time.Millisecond
	clientID       = "quorum"
)

func (c *Client) dial(ctx context.Context, address string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, "tcp", address)
	}
	return (&net.Dialer{Timeout: c.timeout()}).DialContext(ctx, "tcp", address)
}

func (c *Client) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return defaultTimeout
}

func (c *Client) topic() string {
	if c.Topic != "" {
		return c.Topic
	}
	return defaultTopic
}

// conn is one connection to a member, for one request at a time.
type conn struct {
	net.Conn
	in       *bufio.Reader
	versions wire.Versions
	next     int32
}

// with connects to a member and calls f; both have to be done within the timeout of one attempt.
func (c *Client) with(ctx context.Context, address string, f func(*conn) error) error {
	return c.within(ctx, c.timeout(), address, f)
}

func (c *Client) within(ctx context.Context, limit time.Duration, address string, f func(*conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	nc, err := c.dial(ctx, address)
	if err != nil {
		return short(address, err)
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	k := &conn{Conn: nc, in: bufio.NewReader(nc)}
	if k.versions, err = transport.Handshake(nc, k.in, clientID); err != nil {
		err = fmt.Errorf("%w: is it a listener that speaks Kafka's protocol?", plainEOF(err))
	} else {
		err = f(k)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("does not answer in time")
	}
	return short(address, err)
}

// short names the member once: errors of package net name the address too, in many words.
func short(address string, err error) error {
	if err == nil {
		return nil
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", address, op.Err)
	}
	return fmt.Errorf("%s: %w", address, plainEOF(err))
}

// plainEOF says what an EOF is to people.
func plainEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the connection was closed")
	}
	return err
}

// request sends req in the newest version both sides speak, not below lowest, and reads the answer into resp.
func (k *conn) request(req kmsg.Request, lowest int16, resp kmsg.Response) error {
	version, ok := k.versions.Pick(req.Key(), lowest, req.MaxVersion())
	if !ok {
		return fmt.Errorf("does not serve %s version %d or newer", kmsg.NameForKey(req.Key()), lowest)
	}
	req.SetVersion(version)
	resp.SetVersion(version)
	k.next++
	if _, err := k.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, k.next)); err != nil {
		return err
	}
	frame, err := transport.ReadFrame(k.in)
	if err != nil {
		return err
	}
	if got, _ := wire.ReadCorrelation(frame); got != k.next {
		return fmt.Errorf("answers request %d instead of %d", got, k.next)
	}
	body := frame[4:]
	if resp.IsFlexible() {
		body, err = skipTags(body)
	}
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil {
		return fmt.Errorf("answer to %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return nil
}

// skipTags steps over the tagged fields of a response header. Nobody sends any.
func skipTags(body []byte) ([]byte, error) {
	if len(body) == 0 || body[0] != 0 {
		return nil, errors.New("tagged fields in its header")
	}
	return body[1:], nil
}

// Error is an error code that a member answered with.
type Error struct {
	Code    raft.ErrorCode
	Message string
}

func (e *Error) Error() string {
	name := wire.ErrorName(e.Code)
	if e.Message == "" {
		return name
	}
	return name + ": " + e.Message
}

func check(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	e := &Error{Code: raft.ErrorCode(code)}
	if message != nil {
		e.Message = *message
	}
	return e
}

// attempts collects why each member could not help, to say so once at the end.
type attempts []string

func (a *attempts) add(err error) {
	for _, known := range *a {
		if known == err.Error() {
			return
		}
	}
	*a = append(*a, err.Error())
}

func (a attempts) error(what string) error {
	return fmt.Errorf("%s: %s", what, strings.Join(a, "; "))
}

// pause waits before the next round; false: the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
