package bench

import "sync/atomic"

// Exchanges makes n atomic exchanges of a word that no other thread uses. This
// is the least cost of a full barrier on this processor.
func Exchanges(n int) {
	word := new(atomic.Uint64)
	for i := range uint64(n) {
		word.Swap(i)
	}
}
