package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// The writer's transfers follow from the seed, so that the owner knows what each of them writes
// without being told.

const (
	// slack is how much longer the pattern is than the largest transfer: a transfer may start
	// anywhere in it.
	slack = 1 << 20
	// grain is the unit of these starts.
	grain = 64
)

// newPattern returns the bytes that all transfers are taken from. No two of its words are equal,
// so two transfers from different starts differ in every word that they write.
func newPattern(seed uint64, largest int) []byte {
	b := make([]byte, (largest+slack+7)&^7)
	fillPattern(b, seed)
	return b
}

// fillPattern computes the pattern. The words are a one-to-one function of their index.
func fillPattern(b []byte, seed uint64) {
	for i := range len(b) / 8 {
		x := seed + uint64(i)*0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		binary.NativeEndian.PutUint64(b[8*i:], x^x>>31)
	}
}

// transfer is one write, of a part of the pattern, to the start of the window.
type transfer struct{ from, size int }

// of returns the bytes that the transfer writes.
func (t transfer) of(pattern []byte) []byte { return pattern[t.from : t.from+t.size] }

// plan is the sequence of a writer's transfers in one round.
type plan struct {
	rng      *rand.Rand
	min, max int
	last     int
}

func newPlan(set settings, writer int, round uint64) *plan {
	rng := rand.New(rand.NewPCG(set.seed, uint64(writer)<<40|round))
	return &plan{rng: rng, min: set.min, max: set.max, last: -1}
}

// next returns the next transfer. Every order of magnitude is equally likely, and no two
// neighbours start at the same place in the pattern.
func (p *plan) next() transfer {
	low, high := math.Log(float64(p.min)), math.Log(float64(p.max)+1)
	t := transfer{size: int(math.Exp(low + p.rng.Float64()*(high-low)))}
	t.size = min(max(t.size, p.min), p.max)
	for t.from = p.last; t.from == p.last; {
		t.from = grain * p.rng.IntN(slack/grain)
	}
	p.last = t.from
	return t
}
