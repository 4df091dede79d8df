package record_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
)

// TestControlBatchHasRecords: C-115, B-41. An empty one is neither written nor believed, and several records may share one
// batch (C-116), each at its own offset.
func TestControlBatchHasRecords(t *testing.T) {
	func() {
		defer func() {
			if recover() == nil {
				t.Error("an empty control batch was made")
			}
		}()
		record.EncodeControl(0, 1, 1000)
	}()
	raw := record.EncodeControl(7, 3, 1000, raft.LeaderChange{Leader: 1, Voters: []raft.NodeID{1}}, raft.KRaftVersion{Version: 1})
	controls, err := record.DecodeControls(parse(t, raw))
	if err != nil || len(controls) != 2 || controls[0].Offset != 7 || controls[1].Offset != 8 {
		t.Errorf("%+v, %v", controls, err)
	}
	if b := parse(t, raw); !b.IsControl() || b.Epoch != 3 || b.Count != 2 || b.LastOffset() != 8 {
		t.Errorf("batch %+v", b.Header)
	}
	empty := append([]byte(nil), raw[:record.HeaderSize]...)
	binary.BigEndian.PutUint32(empty[8:], record.HeaderSize-12)
	binary.BigEndian.PutUint32(empty[57:], 0)
	record.Seal(empty)
	if _, err := record.Summary(parse(t, empty)); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("an empty control batch: %v, want it to be refused", err)
	}
}
