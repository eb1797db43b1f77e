package measure

import (
	"math/bits"
	"time"

	"github.com/softnd/softnd/bench/internal/median"
)

// width measures how many independent instructions the core of rank 0 executes in the time of one after the other. If a
// program uses the other thread of the core, which may be one of another machine on the same host, a chain of instructions
// takes the same time, but independent ones take up to twice as long. So do most of ours, while an exchange does not.
func (l *limits) width() (float64, error) { return l.alone(coreWidth) }

func coreWidth() float64 {
	var chains, sets []float64
	for range widthWindows {
		chains = append(chains, nsPerOp(timeOf(chained), widthRounds))
		sets = append(sets, nsPerOp(timeOf(independent), widthRounds))
	}
	return median.Of(chains) / median.Of(sets)
}

const (
	widthWindows = 25   // most of them after rank 1, perhaps on the other thread of this core, has begun to sleep
	widthRounds  = 8000 // of 8 instructions: 10 to 30 µs
)

func timeOf(loop func(n int, seed uint64) uint64) time.Duration {
	start := time.Now()
	loop(widthRounds, uint64(start.Nanosecond())) // a call that is not inlined is made, although nothing uses its result
	return time.Since(start)
}

// chained executes 8 n instructions, each with the result of the one before it.
//
//go:noinline
func chained(n int, seed uint64) uint64 {
	a, b := seed, bits.Reverse64(seed)
	for range n {
		a ^= b
		a += seed
		a ^= b
		a += seed
		a ^= b
		a += seed
		a ^= b
		a += seed
	}
	return a
}

// independent executes 8 n instructions, of which those of one round do not depend on each other.
//
//go:noinline
func independent(n int, seed uint64) uint64 {
	a, b, c, d := seed, seed+1, seed+2, seed+3
	e, f, g, h := seed+4, seed+5, seed+6, seed+7
	for range n {
		a ^= seed
		b += seed
		c ^= seed
		d += seed
		e ^= seed
		f += seed
		g ^= seed
		h += seed
	}
	return a + b + c + d + e + f + g + h
}
