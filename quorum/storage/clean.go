package storage

import (
	"slices"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// CleanOptions are the limits of retention. The newest checkpoint always stays, and the log behind the oldest that stays.
type CleanOptions struct {
	Now           raft.Instant  // the clock of appends
	HighWatermark int64         // the log's start is never raised above it
	MaxBytes      int64         // metadata.max.retention.bytes: of log and checkpoints together; 0: no limit
	MaxAge        time.Duration // metadata.max.retention.ms: of a checkpoint since this process first saw it; 0: no limit
	ReadBytes     int64         // of log, to a segment, that stay for a checkpoint that is being read; 0: none stays for that
}

// Cleaning is what BeginClean took out and Run removes.
type Cleaning struct {
	d           *Dir
	checkpoints []*checkpoint
}

// keepRead is how long a checkpoint stays that somebody reads: a slow follower must get somewhere.
const keepRead = 30 * time.Second

// BeginClean takes checkpoints and segments that nobody needs out of the list, oldest first; whoever reads them just now may
// finish. What a FetchSnapshot has read since the last call stays for another 30 seconds, and the log behind it, as far as
// ReadBytes go; of several the oldest, and no other. The owner calls it; it touches no disk. Nil: there is nothing to clean.
//
// Why the oldest: who has begun first gets to the end. If the youngest were kept, two readers that each need some time would
// put one another out for ever: the one that has been put out begins with the newest, which is soon the younger of both.
func (d *Dir) BeginClean(o CleanOptions) *Cleaning {
	gone, floor := d.checkpoints.expire(o, d.Log)
	if !d.Log.raiseStart(floor) && len(gone) == 0 {
		return nil
	}
	return &Cleaning{d: d, checkpoints: gone}
}

// expire takes out what retention lets go, and says down to which offset the log must stay.
func (c *checkpoints) expire(o CleanOptions, l *Log) (gone []*checkpoint, floor int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		return nil, 0
	}
	newest := c.list[len(c.list)-1]
	bytes := int64(0)
	for _, p := range c.list {
		if bytes += p.Size; !p.aged {
			p.seen, p.until, p.aged = o.Now, o.Now, true
		}
		if p.asked {
			p.until, p.asked = o.Now.Add(keepRead), false
		}
	}
	read := func(p *checkpoint) bool {
		return p.until > o.Now && o.ReadBytes > 0 && l.sizeWithin(p.ID.Offset, newest.ID.Offset) <= o.ReadBytes
	}
	due := func(p *checkpoint) bool {
		return o.MaxBytes > 0 && bytes+l.sizeFrom(floor) > o.MaxBytes || o.MaxAge > 0 && time.Duration(o.Now-p.seen) > o.MaxAge
	}
	// What lies before a checkpoint is the log there and the checkpoints that are older.
	kept := slices.Clone(c.list)
	for kept[0].ID.Offset <= o.HighWatermark && due(kept[0]) {
		floor = kept[0].ID.Offset
		if len(kept) == 1 || read(kept[0]) || kept[1].ID.Offset > o.HighWatermark || !due(kept[0]) {
			break
		}
		gone, bytes, kept = append(gone, kept[0]), bytes-kept[0].Size, kept[1:]
	}
	// One that is held up holds up none that is younger, or they would pile up behind a download that takes days.
	if read(kept[0]) {
		kept = slices.DeleteFunc(kept, func(p *checkpoint) bool {
			old := p != kept[0] && p != newest && due(p)
			if old {
				gone, bytes = append(gone, p), bytes-p.Size
			}
			return old
		})
	}
	c.list = kept
	return gone, floor
}

// raiseStart takes out the segments that end at or below offset, and reports whether there are any. The last always stays.
func (l *Log) raiseStart(offset int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.segments)-1 && l.segments[n].next <= offset {
		n++
	}
	if n == 0 {
		return false
	}
	l.doomed = append(l.doomed, l.segments[:n]...)
	l.segments = slices.Clone(l.segments[n:])
	// The epochs before the new start melt into one.
	start := l.segments[0].base
	first := 0
	for first < len(l.epochs)-1 && l.epochs[first+1].Offset <= start {
		first++
	}
	if len(l.epochs) > 0 {
		l.epochs, l.epochsStale = slices.Clone(l.epochs[first:]), true
		l.epochs[0].Offset = max(l.epochs[0].Offset, start)
	}
	return true
}

// Run removes the files. It may run on another goroutine, beside everything else but Close. A crash in between is harmless:
// each segment's removal is durable before the next one's, oldest first, whatever runs beside, so that the log never has a
// hole. A checkpoint that stays behind is removed by Open once the log does not reach down to it.
func (c *Cleaning) Run() error {
	l := c.d.Log
	if err := l.failure(); err != nil {
		return err
	}
	for _, p := range c.checkpoints {
		p.file.release()
		if err := l.fs.Remove(p.name); err != nil {
			return l.fail(err)
		}
	}
	if len(c.checkpoints) > 0 {
		if err := l.fs.SyncDir(l.dir); err != nil {
			return l.fail(&vfs.SyncError{Path: l.dir, Err: err})
		}
	}
	return l.fail(l.removeDoomed())
}

// removeDoomed removes the files of segments that are no more in the log.
func (l *Log) removeDoomed() error {
	l.cleanMu.Lock()
	defer l.cleanMu.Unlock()
	for {
		l.mu.Lock()
		if len(l.doomed) == 0 {
			l.doomed = nil
			l.mu.Unlock()
			return nil
		}
		oldest := l.doomed[0]
		l.doomed = l.doomed[1:]
		l.mu.Unlock()
		if err := l.remove([]*segment{oldest}); err != nil {
			return err
		}
	}
}
