//go:build interop

package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// equal waits until all members have the same bytes up to the high watermark, finds in them all that was acknowledged,
// and prints the figures of the run.
func (c *cluster) equal(v view, least int) {
	c.t.Helper()
	var log []byte
	eventually(c.t, time.Minute, func() string {
		log = nil
		for _, m := range c.members {
			// The member that was started last may have a tail of its own, and catches up.
			other, end := c.log(m, v.highWatermark)
			if end != v.highWatermark {
				return fmt.Sprintf("the log of member %d (%s) to reach offset %d; now %d", m.id, m.kind, v.highWatermark, end)
			}
			if log == nil {
				log = other
			}
			if !bytes.Equal(log, other) {
				return fmt.Sprintf("equal logs below offset %d: member %d has %d bytes and member %d (%s) %d; they part at byte %d", v.highWatermark,
					c.members[0].id, len(log), m.id, m.kind, len(other), partAt(log, other))
			}
		}
		return ""
	})
	for _, m := range c.members {
		select {
		case <-m.process.done:
			c.t.Errorf("member %d (%s) has ended by itself", m.id, m.kind)
		default:
		}
		if m.kind == ours && strings.Contains(m.process.text(), "level=ERROR") {
			c.t.Errorf("member %d has logged an error:\n%s", m.id, m.process.text())
		}
	}
	if len(log) < least {
		c.t.Errorf("only %d bytes were compared, want at least %d", len(log), least)
	}
	for _, tail := range c.tails {
		if bytes.HasPrefix(log, tail) {
			c.t.Errorf("the tail that one leader alone had is in the log below offset %d", v.highWatermark)
		}
	}
	from := 0 // they are nearly in order
	for _, value := range c.acknowledged {
		at := bytes.Index(log[from:], []byte(value))
		if at < 0 {
			from, at = 0, bytes.Index(log, []byte(value))
		}
		if at < 0 {
			c.t.Errorf("%q was acknowledged and is not below offset %d", value, v.highWatermark)
			continue
		}
		from += at
	}
	c.t.Logf("interop: %s records=%d bytes=%d equal=%d/%d epochs=%d acknowledged=%d cut=%d gaps=[%s]", c.t.Name(), v.highWatermark, len(log),
		len(c.members), len(c.members), v.epoch, len(c.acknowledged), len(c.tails), strings.Join(c.gaps, ", "))
}

// log returns the batches of a member's log that end below the high watermark, and where they end. It may be at work.
func (c *cluster) log(m *member, highWatermark int64) (all []byte, end int64) {
	segments, _ := filepath.Glob(filepath.Join(m.dir, c.topic.name+"-0", "*.log"))
	slices.Sort(segments)
	for _, name := range segments {
		b, err := os.ReadFile(name)
		if err != nil {
			return all, end
		}
		const header = 61 // of a record batch, version 2; the length counts from behind its own field
		for len(b) >= header {
			size := 12 + int(binary.BigEndian.Uint32(b[8:]))
			base := int64(binary.BigEndian.Uint64(b))
			last := base + int64(binary.BigEndian.Uint32(b[23:]))
			if base != end || size < header || size > len(b) || last >= highWatermark {
				break
			}
			all, end = append(all, b[:size]...), last+1
			b = b[size:]
		}
	}
	return all, end
}

func partAt(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
