package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync" //nolint:depguard // decoders are dear to make and are pooled; nothing else is shared

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is how the records of a batch are compressed, as in its attributes.
type Codec int8

// Kafka's codecs.
const (
	None Codec = iota
	Gzip
	Snappy // Java clients frame it (xerial), others send one raw block; both are read
	LZ4    // frame format
	Zstd
)

func (c Codec) String() string {
	if c < None || c > Zstd {
		return fmt.Sprintf("codec %d", int8(c))
	}
	return [...]string{"none", "gzip", "snappy", "lz4", "zstd"}[c]
}

// MaxDecoded bounds what the records of one batch may unpack to, in bytes: checkpoints hold them unpacked, in one batch.
const MaxDecoded = MaxSize - HeaderSize

// zstdMemory bounds what the decoder may take, in bytes. It refuses frames whose window is larger, however little they
// hold, and compressors at high levels declare large ones.
const zstdMemory = 4 * MaxSize

// ErrTooLarge says that a batch, or what it unpacks to, is over its limit.
var ErrTooLarge = errors.New("over the size limit")

// xerial's header: magic, version 1, lowest compatible version 1; then blocks of {int32 length, snappy block}.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

var (
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdReader  = sync.OnceValue(func() *zstd.Decoder {
		// Without a stream no goroutine is started; DecodeAll may be called from many.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(zstdMemory), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err) // options are constants
		}
		return d
	})
	zstdWriter = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err)
		}
		return e
	})
)

// decode unpacks the records of a batch to at most limit bytes. For None it returns src itself.
func decode(c Codec, src []byte, limit int) ([]byte, error) {
	var out []byte
	var err error
	switch c {
	case None:
		return src, nil
	case Gzip:
		r := gzipReaders.Get().(*gzip.Reader)
		defer gzipReaders.Put(r)
		if err = r.Reset(bytes.NewReader(src)); err == nil {
			out, err = readLimited(r, len(src), limit)
		}
	case Snappy:
		out, err = decodeSnappy(src, limit)
	case LZ4:
		r := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(bytes.NewReader(src))
		out, err = readLimited(r, len(src), limit)
	case Zstd:
		out, err = decodeZstd(src, limit)
	default:
		return nil, fmt.Errorf("%w: %s", ErrUnknown, c)
	}
	if err != nil && !errors.Is(err, ErrTooLarge) {
		return nil, corrupt("%s records: %v", c, err)
	}
	return out, err
}

// readLimited reads r to its end; the buffer grows with what really comes, not with what a header promises.
func readLimited(r io.Reader, sizeHint, limit int) ([]byte, error) {
	buf := bytes.NewBuffer(make([]byte, 0, min(4*sizeHint, limit)+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(r, int64(limit)+1)); err != nil {
		return nil, err
	}
	if buf.Len() > limit {
		return nil, fmt.Errorf("records unpack to more than %d bytes: %w", limit, ErrTooLarge)
	}
	return buf.Bytes(), nil
}

func decodeSnappy(src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return appendSnappy(nil, src, limit)
	}
	if len(src) < xerialHeader {
		return nil, errors.New("header cut off")
	}
	out := []byte{}
	for src = src[xerialHeader:]; len(src) > 0; {
		if len(src) < 4 {
			return nil, errors.New("block length cut off")
		}
		n := binary.BigEndian.Uint32(src)
		if src = src[4:]; uint64(n) > uint64(len(src)) {
			return nil, fmt.Errorf("block of %d bytes in %d", n, len(src))
		}
		var err error
		if out, err = appendSnappy(out, src[:n], limit); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return out, nil
}

func appendSnappy(out, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	if n > limit-len(out) {
		return nil, fmt.Errorf("records unpack to more than %d bytes: %w", limit, ErrTooLarge)
	}
	// A block of snappy shrinks to no less than about 1/64: what promises more is not snappy, and not worth the memory.
	if n > 64*len(block)+64 {
		return nil, fmt.Errorf("block of %d bytes claims to unpack to %d", len(block), n)
	}
	start := len(out)
	out = append(out, make([]byte, n)...)
	if _, err := s2.Decode(out[start:], block); err != nil {
		return nil, err
	}
	return out, nil
}

func decodeZstd(src []byte, limit int) ([]byte, error) {
	out, err := zstdReader().DecodeAll(src, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) || err == nil && len(out) > limit {
		return nil, fmt.Errorf("records unpack to more than %d bytes: %w", limit, ErrTooLarge)
	}
	return out, err
}

// encode packs records as a producer would.
func encode(c Codec, src []byte) ([]byte, error) {
	var buf bytes.Buffer
	switch c {
	case None:
		return src, nil
	case Gzip:
		w := gzip.NewWriter(&buf)
		if _, err := w.Write(src); err != nil {
			return nil, err
		}
		err := w.Close()
		return buf.Bytes(), err
	case Snappy:
		return s2.EncodeSnappy(nil, src), nil
	case LZ4:
		w := lz4.NewWriter(&buf)
		if _, err := w.Write(src); err != nil {
			return nil, err
		}
		err := w.Close()
		return buf.Bytes(), err
	case Zstd:
		return zstdWriter().EncodeAll(src, nil), nil
	default:
		return nil, fmt.Errorf("%w: %s", ErrUnknown, c)
	}
}
