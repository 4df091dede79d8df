package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// indexInterval is how many bytes of a segment one index entry stands for, at least.
const indexInterval = 4096

// segment is one file of the log. Its index lives in memory only: Open reads the whole log anyway.
type segment struct {
	base int64 // offset of its first record; its name
	name string
	file *shared // nil for a moment in Reset: guarded by Log.mu

	// guarded by Log.mu
	size         int64
	next         int64 // offset after the last batch
	index        []indexEntry
	maxTimestamp int64 // at least the largest in the segment; a truncation does not lower it

	since raft.Instant // of the first append that this process saw; the owner's
	aged  bool         // since is set
}

// indexEntry says that a batch with this base offset starts at this position. All timestamps before it are lower than or
// equal to maxBefore.
type indexEntry struct {
	offset, position, maxBefore int64
}

func segmentName(base int64) string { return fmt.Sprintf("%020d.log", base) }

// parseSegmentName reads names of exactly twenty digits and .log.
func parseSegmentName(name string) (base int64, ok bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok || len(digits) != 20 {
		return 0, false
	}
	base, err := strconv.ParseInt(digits, 10, 64)
	return base, err == nil && base >= 0
}

// grow takes note of a batch that was written at the end.
func (s *segment) grow(h record.Header) {
	if n := len(s.index); n == 0 || s.size-s.index[n-1].position >= indexInterval {
		s.index = append(s.index, indexEntry{offset: h.BaseOffset, position: s.size, maxBefore: s.maxTimestamp})
	}
	s.size += int64(h.Size)
	s.next = h.NextOffset()
	s.maxTimestamp = max(s.maxTimestamp, h.MaxTimestamp)
}

// shrink takes note that the segment was cut to a batch boundary. Readers may still hold the longer index, so what
// follows must not be written into its memory.
func (s *segment) shrink(size, next int64) {
	n := sort.Search(len(s.index), func(i int) bool { return s.index[i].position >= size })
	s.index = slices.Clip(s.index[:n])
	s.size, s.next = size, next
}

// shared is an open file that may be removed while others read it: the last one to let go closes it.
type shared struct {
	vfs.File
	users atomic.Int32
}

func share(f vfs.File) *shared {
	s := &shared{File: f}
	s.users.Store(1)
	return s
}

// hold makes the caller another user; somebody must be one already.
func (s *shared) hold() *shared {
	if s != nil {
		s.users.Add(1)
	}
	return s
}

func (s *shared) release() {
	if s != nil && s.users.Add(-1) == 0 {
		_ = s.Close() // what was written to it is synced, or not to be
	}
}

// view is a file of batches as a reader saw it in one moment: a segment, or the data of a checkpoint.
type view struct {
	file       *shared
	name       string
	from, size int64 // positions where its batches begin and end
	next       int64
	index      []indexEntry
	step       int64 // bytes that an index entry stands for
}

// view is for a reader, who lets go of the file when done. The caller holds Log.mu.
func (s *segment) view() view {
	return view{file: s.file.hold(), name: s.name, size: s.size, next: s.next, index: s.index, step: indexInterval}
}

// position returns where to start looking for the batch that holds offset: at most a step and a batch before it.
func (v view) position(offset int64) int64 { return position(v.index, v.from, offset) }

// position searches an index by offset; from is the position before its first entry.
func position(index []indexEntry, from, offset int64) int64 {
	n := sort.Search(len(index), func(i int) bool { return index[i].offset > offset })
	if n == 0 {
		return from
	}
	return index[n-1].position
}

// scanner reads the batches of a file one after another, CRC checked.
type scanner struct {
	file     io.ReaderAt
	size     int64 // where to stop
	position int64 // of the next batch
	buf      []byte
	have     []byte // read and not consumed: the bytes at position
}

const scanBuffer = 1 << 20

// next returns the next batch, valid until the call after. The end is io.EOF; anything that is no whole batch is
// record.ErrShort or record.ErrCorrupt, and position stays where it begins.
func (s *scanner) next() (record.Batch, error) {
	for {
		b, err := record.Parse(s.have)
		switch {
		case err == nil:
			s.have = s.have[b.Size:]
			s.position += int64(b.Size)
			return b, nil
		case !errors.Is(err, record.ErrShort):
			return record.Batch{}, err
		case s.position+int64(len(s.have)) >= s.size && len(s.have) == 0:
			return record.Batch{}, io.EOF
		case s.position+int64(len(s.have)) >= s.size:
			return record.Batch{}, record.ErrShort
		}
		want := int(min(scanBuffer, s.size-s.position))
		if h, err := record.ParseHeader(s.have); err == nil {
			want = max(want, h.Size)
		}
		if err := s.fill(want); err != nil {
			return record.Batch{}, err
		}
	}
}

// fill reads on until want bytes are there or the file ends.
func (s *scanner) fill(want int) error {
	if cap(s.buf) < want {
		s.buf = make([]byte, want)
	}
	n := copy(s.buf[:cap(s.buf)], s.have)
	end := min(int64(cap(s.buf)), s.size-s.position)
	m, err := s.file.ReadAt(s.buf[n:end], s.position+int64(n))
	if err == io.EOF && m < int(end)-n {
		err = io.ErrUnexpectedEOF // shorter than its size
	}
	if err != nil && err != io.EOF {
		return err
	}
	s.have = s.buf[:n+m]
	return nil
}
