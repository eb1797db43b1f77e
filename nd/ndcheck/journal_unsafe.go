package ndcheck

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// learnedWord is the word of the record of a rank that says when the rank has last learned something from others. It
// is stored without the lock, because a rank learns something with each message.
func (j *Journal) learnedWord(rank int) *atomic.Int64 {
	b := j.rankSlot(rank)
	if b == nil {
		return nil
	}
	return (*atomic.Int64)(unsafe.Pointer(&b[64])) // aligned: all sizes are multiples of 8
}

// learn notes that a rank is about to learn something.
func (j *Journal) learn(rank int, at int64) {
	if w := j.learnedWord(rank); w != nil {
		w.Store(at) // ORDER learned: before the rank posts a Write, whose record the load in learnedAt follows
	}
}

// learnedAt returns when a rank has last learned something.
func (j *Journal) learnedAt(rank int) int64 {
	w := j.learnedWord(rank)
	if w == nil {
		return math.MaxInt64
	}
	return w.Load() // ORDER learned: pairs with the store in learn
}
