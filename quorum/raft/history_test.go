package raft

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func historyOf(end int64, epochs ...OffsetAndEpoch) logHistory {
	return logHistory{end: end, epochs: epochs}
}

// TestValidate is C-170 and the vectors of kraft-spec 5.3.
func TestValidate(t *testing.T) {
	plain := historyOf(2, OffsetAndEpoch{0, 1}, OffsetAndEpoch{1, 3})
	snapshot := &OffsetAndEpoch{Offset: 10, Epoch: 4}
	newest := &OffsetAndEpoch{Offset: 15, Epoch: 5}
	trimmed := logHistory{start: 10, end: 20, epochs: []OffsetAndEpoch{{10, 5}, {16, 7}}, latest: newest, earliest: snapshot}
	for name, c := range map[string]struct {
		log       logHistory
		offset    int64
		epoch     Epoch
		diverging *OffsetAndEpoch
		snapshot  *OffsetAndEpoch
	}{
		"beginning of an empty log":       {logHistory{}, 0, 0, nil, nil},
		"anything beyond an empty log":    {logHistory{}, 5, 2, &OffsetAndEpoch{0, 0}, nil},
		"inside":                          {plain, 1, 1, nil, nil},
		"at the end":                      {plain, 2, 3, nil, nil},
		"older epoch claims later offset": {plain, 2, 1, &OffsetAndEpoch{1, 1}, nil},
		"epoch between two":               {plain, 1, 2, &OffsetAndEpoch{1, 1}, nil},
		"epoch above the last":            {plain, 5, 9, &OffsetAndEpoch{2, 3}, nil},
		"offset above the end":            {plain, 3, 3, &OffsetAndEpoch{2, 3}, nil},
		"epoch below the first":           {plain, 1, 0, &OffsetAndEpoch{0, 0}, nil},
		"below the log start":             {trimmed, 9, 4, nil, newest},
		"at the log start, right epoch":   {trimmed, 10, 4, nil, nil},
		"at the log start, wrong epoch":   {trimmed, 10, 5, nil, newest},
		"epoch below the oldest snapshot": {trimmed, 12, 3, nil, newest},
		"from zero":                       {trimmed, 0, 0, nil, newest},
		"beyond, larger epoch":            {trimmed, 25, 9, &OffsetAndEpoch{20, 7}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d, s := c.log.validate(c.offset, c.epoch)
			if !samePosition(d, c.diverging) || !samePosition(s, c.snapshot) {
				t.Errorf("validate(%d, %d) = diverging %v, snapshot %v; want %v, %v", c.offset, c.epoch, d, s, c.diverging, c.snapshot)
			}
		})
	}
}

func samePosition(a, b *OffsetAndEpoch) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func TestAssignAndTruncate(t *testing.T) {
	h := historyOf(10, OffsetAndEpoch{0, 1}, OffsetAndEpoch{4, 3})
	h.assign(3, 7)
	h.assign(5, 10) // a leader that never wrote
	if got, want := h.epochs, []OffsetAndEpoch{{0, 1}, {4, 3}, {10, 5}}; !slices.Equal(got, want) {
		t.Fatalf("after assigning: %v, want %v", got, want)
	}
	if got := h.position(); got != (OffsetAndEpoch{10, 5}) {
		t.Errorf("position %v", got)
	}
	h.truncate(10) // C-154: no record goes, but the dangling epoch does
	if got, want := h.epochs, []OffsetAndEpoch{{0, 1}, {4, 3}}; !slices.Equal(got, want) {
		t.Errorf("after truncating to the end: %v, want %v", got, want)
	}
	h.assign(4, 6) // overwrites nothing that is still there
	h.assign(2, 4) // an older epoch at an earlier place removes what contradicts it
	if got, want := h.epochs, []OffsetAndEpoch{{0, 1}, {4, 2}}; !slices.Equal(got, want) {
		t.Errorf("after an older epoch: %v, want %v", got, want)
	}
	for offset, want := range map[int64]Epoch{0: 1, 3: 1, 4: 2, 9: 2} {
		if got, ok := h.at(offset); !ok || got != want {
			t.Errorf("at(%d) = %d, %v; want %d", offset, got, ok, want)
		}
	}
	if _, ok := h.at(10); ok {
		t.Error("there is no record at the end")
	}
}

// TestDivergenceEndsAtCommonPrefix lets random followers find where their log parts from a random leader's: rounds must
// strictly lower (end, last epoch), never cut below the common prefix, and end on it.
func TestDivergenceEndsAtCommonPrefix(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 3000 {
		// As in a real quorum, the leader of each epoch extends one log, and every log is a prefix of some leader's.
		logs := [][]Epoch{nil}
		pick := func() []Epoch {
			log := logs[rng.IntN(len(logs))]
			return log[:rng.IntN(len(log)+1)]
		}
		for epoch := Epoch(1); epoch <= 6; epoch++ {
			log := slices.Clone(pick())
			for range rng.IntN(4) {
				log = append(log, epoch)
			}
			logs = append(logs, log)
		}
		build := func(log []Epoch) logHistory {
			var h logHistory
			for i, e := range log {
				h.assign(e, int64(i))
				h.end = int64(i) + 1
			}
			return h
		}
		a, b := pick(), pick()
		leader, follower := build(a), build(b)
		common := 0
		for common < len(a) && common < len(b) && a[common] == b[common] {
			common++
		}
		for steps := 0; ; steps++ {
			before := follower.position()
			d, _ := leader.validate(before.Offset, before.Epoch)
			if d == nil {
				break
			}
			follower.truncate(follower.cut(*d))
			if after := follower.position(); after.Offset > before.Offset || after.Epoch > before.Epoch || after == before || steps > 20 {
				t.Fatalf("round %d: leader %v, follower %v: no progress at %v after %v", round, a, b, after, d)
			}
			if follower.end < int64(common) {
				t.Fatalf("round %d: leader %v, follower %v: cut to %d, below the common prefix %d", round, a, b, follower.end, common)
			}
		}
		if follower.end != int64(common) {
			t.Fatalf("round %d: leader %v, follower %v: stopped at %d, common prefix %d", round, a, b, follower.end, common)
		}
	}
}
