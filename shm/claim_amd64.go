package shm

import "sync/atomic"

// claims tells whether claim is of any use here. Of its processors AMD's do not do it for a line that they hold already,
// as this one is held that the consumer has read: a copy of it, and the right one, if memory has another (state Owned).
var claims = vendor() != [3]uint32{0x68747541, 0x69746e65, 0x444d4163} // AuthenticAMD

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
