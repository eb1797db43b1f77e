//go:build amd64 && !race

package asym

import (
	"sync/atomic"
	"unsafe"
)

// stack is where a goroutine's stack lies, by which it is known: no other goroutine has its stack there. It is good for as
// long as the stack stays, which the runtime moves when it has to grow, and when it can shrink; then the goroutine is
// nobody until it is known anew, and the place may become that of another, which is then as good as the one before it.
// The runtime does neither but in a call, so what isMine has said is good until the next one; those of [Mutex.Enter], where
// the compiler has left any, are to functions that find the stack large enough as it is (nosplit).
type stack struct{ lo, size uintptr }

// isMine tells whether the caller runs on that stack.
//
//go:nosplit
func (s *stack) isMine() bool {
	var here byte
	return uintptr(unsafe.Pointer(&here))-s.lo < s.size
}

// mine returns the caller's stack.
func mine() stack {
	lo, hi := bounds()
	return stack{lo, hi - lo}
}

// load is Load of the pointer.
//
//go:nosplit
func load[T any](w *atomic.Pointer[T]) *T {
	return (*T)(atomic.LoadPointer((*unsafe.Pointer)(unsafe.Pointer(w))))
}

// bounds returns the ends of the caller's stack.
func bounds() (lo, hi uintptr)
