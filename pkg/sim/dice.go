package sim

import (
	"math/rand/v2"
	"time"
)

// Dice is a source of randomness.
type Dice struct{ *rand.Rand }

// NewDice returns dice that fall as the seed says. Streams of one seed have nothing to do with each other.
func NewDice(seed, stream uint64) Dice {
	return Dice{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15+stream*0xd1342543de82ef95))}
}

// Chance is true in perMille of a thousand cases.
func (d Dice) Chance(perMille int) bool {
	return perMille > 0 && d.IntN(1000) < perMille
}

// Between returns a random duration, lo and hi included.
func (d Dice) Between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(d.Int64N(int64(hi-lo)+1))
}
