package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrMalformed is wrapped by every error about bytes that are no message of their kind. The connection is closed:
// where the next message begins cannot be trusted any more.
var ErrMalformed = errors.New("malformed message")

// maxSmall bounds the body of every request but Produce. A decoder makes room for an array before it has read the
// elements, so what a small frame can ask for must be small.
const maxSmall = 64 << 10

// ReadHeader splits a request frame (without its length prefix) into header and body.
func ReadHeader(frame []byte) (Header, []byte, error) {
	if len(frame) < 10 {
		return Header{}, nil, fmt.Errorf("%w: %d bytes are too few for a request header", ErrMalformed, len(frame))
	}
	h := Header{
		Key:         int16(binary.BigEndian.Uint16(frame)),
		Version:     int16(binary.BigEndian.Uint16(frame[2:])),
		Correlation: int32(binary.BigEndian.Uint32(frame[4:])),
	}
	idLen := int(int16(binary.BigEndian.Uint16(frame[8:])))
	rest := frame[10:]
	if idLen > len(rest) {
		return h, nil, fmt.Errorf("%w: %v: client id of %d bytes in %d", ErrMalformed, h, idLen, len(rest))
	}
	if idLen > 0 {
		h.ClientID, rest = string(rest[:idLen]), rest[idLen:]
	}
	if flexible(h.Key, h.Version) {
		r := reader{src: rest}
		r.skipTags()
		if r.bad {
			return h, nil, fmt.Errorf("%w: %v: tagged fields of the header", ErrMalformed, h)
		}
		rest = r.src
	}
	return h, rest, nil
}

// flexible reports whether a version of a request has header version 2.
func flexible(key, version int16) bool {
	first, ok := firstFlexible[key]
	return ok && version >= first
}

// firstFlexible is the first flexible version of each request that has one.
var firstFlexible = func() map[int16]int16 {
	first := map[int16]int16{}
	for key := range kmsg.MaxKey + 1 {
		r := kmsg.RequestForKey(int16(key))
		if r == nil {
			continue
		}
		for version := range r.MaxVersion() + 1 {
			if r.SetVersion(version); r.IsFlexible() {
				first[int16(key)] = version
				break
			}
		}
	}
	return first
}()

// read decodes a request body. All of it must be used up.
func read(h Header, body []byte, into kmsg.Request) error {
	if len(body) > maxSmall {
		return fmt.Errorf("%w: %v: body of %d bytes, at most %d are allowed", ErrMalformed, h, len(body), maxSmall)
	}
	into.SetVersion(h.Version)
	if err := into.ReadFrom(body); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrMalformed, h, err)
	}
	return nil
}

// requestFrame is header and body of a request with the length in front.
func requestFrame(h Header, body kmsg.Request) []byte {
	body.SetVersion(h.Version)
	dst := make([]byte, 4, 256)
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Correlation))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(h.ClientID)))
	dst = append(dst, h.ClientID...)
	if body.IsFlexible() {
		dst = append(dst, 0)
	}
	dst = body.AppendTo(dst)
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-4))
	return dst
}

// responseFrame is header and body of a response with the length in front.
func responseFrame(h Header, body kmsg.Response) Frame {
	dst := appendResponse(make([]byte, 4, 256), h, body)
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-4))
	return Frame{dst}
}

// appendResponse appends header and body. ApiVersions alone never has tagged fields in its header: who asks cannot
// know yet what we speak.
func appendResponse(dst []byte, h Header, body kmsg.Response) []byte {
	body.SetVersion(h.Version)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Correlation))
	if body.IsFlexible() && h.Key != ApiVersions {
		dst = append(dst, 0)
	}
	return body.AppendTo(dst)
}

// ReadCorrelation returns the correlation id of a response frame (without its length prefix).
func ReadCorrelation(frame []byte) (int32, error) {
	if len(frame) < 4 {
		return 0, fmt.Errorf("%w: %d bytes are too few for a response header", ErrMalformed, len(frame))
	}
	return int32(binary.BigEndian.Uint32(frame)), nil
}

// readResponse decodes a response frame to a request with header h.
func readResponse(h Header, frame []byte, into kmsg.Response) error {
	into.SetVersion(h.Version)
	r := reader{src: frame}
	r.take(4)
	if into.IsFlexible() && h.Key != ApiVersions {
		r.skipTags()
	}
	if r.bad {
		return fmt.Errorf("%w: response header of %v", ErrMalformed, h)
	}
	if err := into.ReadFrom(r.src); err != nil {
		return fmt.Errorf("%w: response of %v: %w", ErrMalformed, h, err)
	}
	return nil
}

// reader takes values off the front of a message. The first that does not fit sets bad; all later ones are zero.
type reader struct {
	src []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.src) {
		r.bad = true
		return nil
	}
	b := r.src[:n:n]
	r.src = r.src[n:]
	return b
}

func (r *reader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) uuid() (u [16]byte) {
	copy(u[:], r.take(16))
	return u
}

func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.src)
	if n <= 0 || n > 5 || v > 1<<31-1 {
		r.bad = true
		return 0
	}
	r.take(n)
	return int(v)
}

// compact returns the bytes of a compact string or bytes; nil stands for null.
func (r *reader) compact() []byte {
	n := r.uvarint()
	if n == 0 {
		return nil
	}
	return r.take(n - 1)
}

// count returns the length of a compact array, which is bad if that many elements cannot be there.
func (r *reader) count() int {
	n := r.uvarint() - 1
	if n > len(r.src) {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return max(n, 0)
}

func (r *reader) skipTags() {
	for range r.uvarint() {
		r.uvarint()
		r.take(r.uvarint())
		if r.bad {
			return
		}
	}
}

func appendCompact(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s)+1)), s...)
}
