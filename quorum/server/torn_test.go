package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// TestST03StartsOnATornTailAndCatchesUp: a follower that was killed in mid-write finds half a batch at the end of its log.
// It cuts it off, says from where, and has the same log as the others soon after.
func TestST03StartsOnATornTailAndCatchesUp(t *testing.T) {
	c := newCluster(t, 3, 0)
	leader := c.leader()
	follower := c.members[(int(leader.id)+1)%3]
	client := c.client()
	for i := range 10 {
		c.append(client, keyed("k", fmt.Sprint(i)))
	}
	c.killMember(follower)
	segment := filepath.Join(follower.dir, topic+"-0", "00000000000000000000.log")
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	// The last batch stands for one that was being written. Where it is known to be committed, a copy of it behind does.
	var last int
	var end int64
	for b, err := range record.All(raw) {
		if err != nil {
			t.Fatal(err)
		}
		last, end = len(raw)-b.Size, b.BaseOffset
	}
	found, err := storage.Verify(vfs.OS, follower.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	torn := raw[:len(raw)-(len(raw)-last)/2]
	if p := found.Logs[0].Committed; p != nil && p.Offset > end {
		torn, last, end = slices.Concat(raw, raw[last:len(raw)-10]), len(raw), found.Logs[0].End
	}
	if err := os.WriteFile(segment, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	c.append(client, keyed("k", "while it was away"))
	c.start(follower)
	c.leader()
	said := follower.said.with("Cut a torn tail off the log")
	if want := fmt.Sprintf("position=%d bytes=%d offset=%d ", last, len(torn)-last, end); len(said) != 1 || !strings.Contains(said[0], want) {
		t.Errorf("said %q, want %s", said, want)
	}
	c.append(client, keyed("k", "after"))
	c.await("the follower to have all", func() bool {
		a, b := c.status(leader), c.status(follower)
		return a != nil && b != nil && b.LogEndOffset == a.LogEndOffset && b.HighWatermark == a.HighWatermark
	})
	c.stop(follower)
	if got := follower.said.with("level=ERROR"); len(got) > 0 {
		t.Errorf("errors: %s", got)
	}
	client.Close()
	for _, m := range c.members {
		if m != follower {
			c.stop(m)
		}
	}
	want, err := os.ReadFile(filepath.Join(leader.dir, topic+"-0", "00000000000000000000.log"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(segment); err != nil || !strings.HasPrefix(string(want), string(got)) || !strings.HasPrefix(string(got), string(raw)) {
		t.Errorf("the follower has %d bytes of log, the leader %d, and they differ: %v", len(got), len(want), err)
	}
}
