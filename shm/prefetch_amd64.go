package shm

import "sync/atomic"

// How a producer claims slots; see [Producer.ClaimAhead]. The processor can be asked for one line with each message, without
// waiting for it, but for AMD's: those do nothing if they have a copy that is right, even if it is not the only one. There a
// store must do. The stores of a core are carried out one after the other, so one with each message would make each message
// wait; several in a row wait together.
const claims = true

var (
	claimsByStore = vendor() == [3]uint32{0x68747541, 0x69746e65, 0x444d4163} // AuthenticAMD
	claimedAtOnce = claimsAtOnce()
)

func claimsAtOnce() uint64 {
	if claimsByStore {
		return 8
	}
	return 1
}

// vendor returns the name of the processor's maker, as the processor spells it.
func vendor() (name [3]uint32)

// claim asks for the cache line of a word that is to be stored soon, and does not
// wait for it.
//
//go:noescape
func claim(w *atomic.Uint64)

// fetch asks for the cache line of a word that is to be loaded soon, and does not wait
// for it.
//
//go:noescape
func fetch(w *atomic.Uint64)
