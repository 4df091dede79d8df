package raft

import (
	"math/rand/v2"
	"testing"
)

// What a snapshot makes a replica forget of the voters changes nothing about what it does: who is in force, whether it may
// still be a voter for others, whether it was one once.
func TestForgettingOldVotersChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	leaving, was := 0, 0
	for range 5000 {
		self := testKey(1)
		h := voterHistory{}
		for offset := int64(-1); offset < 40; offset += 1 + rng.Int64N(20) {
			ids := []NodeID{2, 3}
			if rng.IntN(2) == 0 {
				ids = append(ids, 1)
			}
			h.add(offset, Voters{testVoters(ids...)})
			if rng.IntN(3) == 0 {
				h.add(offset, KRaftVersion{int16(len(h.versions))})
			}
		}
		committed := rng.Int64N(50)
		current, version, offset, had, may := h.current(), h.version(), h.offset(), h.had(self), h.mayCount(self, committed)
		for range 3 {
			h.trim(rng.Int64N(committed+1), self)
			if !sameSet(h.current(), current) || h.version() != version || h.offset() != offset || h.had(self) != had || h.mayCount(self, committed) != may {
				t.Fatalf("with all up to %d committed, voters at %d, had %v, may %v became voters at %d, had %v, may %v: %+v",
					committed, offset, had, may, h.offset(), h.had(self), h.mayCount(self, committed), h)
			}
		}
		if may {
			leaving++
		}
		if had {
			was++
		}
	}
	if leaving == 0 || was == leaving {
		t.Errorf("%d were voters, %d may still be: the test shows nothing", was, leaving)
	}
}
