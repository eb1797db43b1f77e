package main

import (
	"sync/atomic"
	"unsafe"
)

// numberIn returns the number in the first 8 bytes of b, for instructions that are atomic with the requests of other ranks. The address
// of b is a multiple of 8.
func numberIn(b []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b[:8][0])) }
