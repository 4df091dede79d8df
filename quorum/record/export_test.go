package record

import (
	"encoding/binary"
	"hash/crc32"
)

// Seal sets the CRC of the batch that p begins with, as far as p reaches.
func Seal(p []byte) {
	if len(p) < HeaderSize {
		return
	}
	end := len(p)
	if h, err := ParseHeader(p); err == nil {
		end = min(end, h.Size)
	}
	binary.BigEndian.PutUint32(p[17:], crc32.Checksum(p[crcStart:end], castagnoli))
}
