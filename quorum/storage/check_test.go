package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// TestST08CheckFindsRot: in a checkpoint that lies there and is served. The next start does without it.
func TestST08CheckFindsRot(t *testing.T) {
	fsys := formatted(t)
	d := filled(t, fsys, 40)
	older := compactTo(t, d, 60)
	newest := compactTo(t, d, 120)
	check := func(id raft.OffsetAndEpoch, cancel bool) error {
		t.Helper()
		c, err := d.BeginCheck(id)
		if err != nil {
			return err
		}
		if cancel {
			c.Cancel()
		}
		return c.Run()
	}
	if err := errors.Join(check(older.ID, false), check(newest.ID, false)); err != nil {
		t.Fatal(err)
	}
	if err := check(newest.ID, true); !errors.Is(err, storage.ErrCanceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := check(at(7, 1), false); !errors.Is(err, storage.ErrNoCheckpoint) {
		t.Errorf("one that is not there: %v", err)
	}
	if err := fsys.Rot(checkpointFile(newest.ID), newest.Size/2); err != nil {
		t.Fatal(err)
	}
	if err := check(older.ID, false); err != nil {
		t.Errorf("the older one: %v", err)
	}
	if err := check(newest.ID, false); !storage.IsToken(err, storage.LogCorrupt) || !strings.Contains(err.Error(), checkpointFile(newest.ID)) {
		t.Errorf("a damaged one: %v", err)
	}
	if err := d.Log.Append(0, batch(d.Log.End(), 1, 1)); !storage.IsToken(err, storage.LogCorrupt) {
		t.Errorf("appended after that: %v", err)
	}
	d.Abandon()
	d = open(t, fsys, opts)
	defer d.Abandon()
	if all := d.Checkpoints(); len(all) != 1 || all[0].ID != older.ID || d.Log.End() != 120 {
		t.Errorf("after a restart: checkpoints %v, log end %d", all, d.Log.End())
	}
}
