package bench

import "sync/atomic"

// Exchanges makes n atomic exchanges of a word that no other thread uses: what a
// full barrier costs this processor at least.
func Exchanges(n int) {
	word := new(atomic.Uint64)
	for i := range uint64(n) {
		word.Swap(i)
	}
}
