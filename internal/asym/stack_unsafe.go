//go:build amd64 && !race

package asym

import (
	"sync/atomic"
	"unsafe"
)

// stack is where a goroutine's stack lies, between two addresses. The runtime's record of the goroutine begins with it. The
// record is never freed, but may become that of another goroutine, which is then as good as the one before it. The stack
// moves when it has to grow, and when it can shrink.
type stack struct{ lo, hi uintptr }

// mine returns the caller's stack as the runtime has it.
func mine() *stack

// pointer is unsafe.Pointer, with which Enter needs no calls.
type pointer = unsafe.Pointer

// Enter locks m if the caller is its owner, and tells whether it did. The compiler can put it where it is called; there it
// stands for Lock, which follows if it is false.
//
// The caller is the owner if it runs where the owner's stack lay when it became the owner, and that lies there still. This
// takes a few loads, and no call. Another goroutine that has got the owner's old stack, or a part of it, finds that the
// owner has moved. If it has not heard of that yet, it is as good an owner: there is one goroutine on a stack. No stack
// moves but in a call, and there is none before the answer but to functions that find the stack large enough as it is
// (nosplit).
//
//go:nosplit
func (m *Mutex) Enter() bool {
	var here byte
	o := (*owner)(atomic.LoadPointer(&m.owner))
	if o == nil || *o.now != o.then || uintptr(unsafe.Pointer(&here))-o.then.lo >= o.then.hi-o.then.lo || m.byOwner { // held by ourselves: no other way in than for others
		return false
	}
	Store32(&o.inside, 1)
	if (*owner)(atomic.LoadPointer(&m.owner)) != o { // ORDER asym-owner: after inside, with no barrier in between; pairs with the barrier in dispossess
		Store32(&o.inside, 0)
		return false
	}
	m.byOwner = true
	return true
}
