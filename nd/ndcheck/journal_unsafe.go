package ndcheck

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// rankWord is a word of the record of a rank, nil if there is no such rank.
func (j *Journal) rankWord(rank, at int) *atomic.Int64 {
	b := j.rankSlot(rank)
	if b == nil {
		return nil
	}
	return (*atomic.Int64)(unsafe.Pointer(&b[at])) // aligned: at and all sizes are multiples of 8
}

// learnedWord is the word of the record of a rank that says when the rank has last learned something from others. It
// is stored without the lock, because a rank learns something with each message.
func (j *Journal) learnedWord(rank int) *atomic.Int64 { return j.rankWord(rank, 64) }

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

// missedWord is the word of the record of a rank that says when a process may last have written to any memory of the rank.
func (j *Journal) missedWord(rank int) *atomic.Int64 { return j.rankWord(rank, 56) }

// missWrite notes that a process may have written to any memory of a rank. It needs no lock: a stopped process may keep
// that, and the rank still has to know why its bytes change.
func (j *Journal) missWrite(owner int, at int64) {
	w := j.missedWord(owner)
	if w == nil {
		return
	}
	for old := w.Load(); at > old && !w.CompareAndSwap(old, at); old = w.Load() { // ORDER missed: before the process posts the Write, or a message after it
	}
}

// endMissedWrites notes that Writes to a rank whose end was not known have ended at a time.
func (j *Journal) endMissedWrites(owner int, at int64) {
	if w := j.missedWord(owner); w != nil {
		w.CompareAndSwap(math.MaxInt64, at) // ORDER missed: another process may store a time at this moment
	}
}

// missedWrite returns when a process may last have written to any memory of a rank, 0 = never.
func (j *Journal) missedWrite(rank int) int64 {
	w := j.missedWord(rank)
	if w == nil {
		return math.MaxInt64
	}
	return w.Load() // ORDER missed: pairs with the store in missWrite
}
