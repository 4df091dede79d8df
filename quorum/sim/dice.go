package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// dice is chance for one purpose. Purposes never share one: an additional draw in the network must not change what the
// clients do, or a seed that failed would no longer say anything after the smallest change.
type dice struct{ *rand.Rand }

func newDice(seed uint64, purpose string) dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return dice{rand.New(rand.NewPCG(seed, h.Sum64()))}
}

// chance is true with probability p.
func (d dice) chance(p float64) bool { return d.Float64() < p }

// between draws uniformly from [low, high].
func (d dice) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.Int64N(int64(high-low)+1))
}

// about draws an exponential time with that mean, at most eight times it.
func (d dice) about(mean time.Duration) time.Duration {
	return time.Duration(min(d.ExpFloat64(), 8) * float64(mean))
}

// oneOf draws one of the values.
func oneOf[T any](d dice, values ...T) T { return values[d.IntN(len(values))] }
