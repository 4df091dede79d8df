package raft

import (
	"slices"
	"testing"
)

// TestCommitPoint is C-117 to C-122 and PR-02.
func TestCommitPoint(t *testing.T) {
	for name, c := range map[string]struct {
		current, epochStart int64
		ends                []int64
		want                int64
	}{
		"one voter: itself":                        {Unknown, 0, []int64{5}, 5},
		"two voters: the lower":                    {Unknown, 0, []int64{5, 3}, 3},
		"three voters: the middle":                 {Unknown, 0, []int64{5, 3, 4}, 4},
		"four voters: the third":                   {Unknown, 0, []int64{5, 3, 4, 2}, 3},
		"five voters: the third":                   {Unknown, 0, []int64{9, 1, 4, 2, 8}, 4},
		"unheard voters come last":                 {Unknown, 0, []int64{5, Unknown, Unknown}, Unknown},
		"up to the epoch start is not committed":   {Unknown, 4, []int64{6, 4, 4}, Unknown},
		"the first record of the epoch commits it": {Unknown, 4, []int64{6, 5, 4}, 5},
		"never falls":                              {7, 2, []int64{9, 6, 5}, 7},
		"a voter set of nobody commits nothing":    {3, 2, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got := commitPoint(c.current, c.epochStart, slices.Clone(c.ends)); got != c.want {
				t.Errorf("commitPoint(%d, %d, %v) = %d, want %d", c.current, c.epochStart, c.ends, got, c.want)
			}
		})
	}
}
