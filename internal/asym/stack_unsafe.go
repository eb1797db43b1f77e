//go:build amd64 && !race

package asym

import (
	"sync/atomic"
	"unsafe"
)

// stack is the bounds of a goroutine's stack, with which the runtime's record of the goroutine begins. Go does not promise
// that; see stackcheck_unsafe.go. The runtime moves a stack that has to grow or can shrink, and changes the bounds. It
// never frees a record, but uses it again for another goroutine after the first has ended.
type stack struct{ lo, hi uintptr }

// currentStack returns the running goroutine's record.
func currentStack() *stack

// pointer is unsafe.Pointer, with which LockBiased needs no calls.
type pointer = unsafe.Pointer

// LockBiased locks m and returns true if m is biased toward the calling goroutine. TWIN c/src/shm/fabric.h. Else it returns false and has changed
// nothing; the caller then calls Lock. Callers use it before Lock because the compiler can inline it.
//
// The caller has the bias if it runs within bias.bounds, and the record still has these bounds. This takes a few loads
// and no call. A goroutine that was given the old stack of the biased one, or a part of it, finds that the record has
// other bounds now. A stack moves only in a call, and the only calls before the answer are to nosplit functions, which do
// not grow the stack. If a record was given to another goroutine, that goroutine has the bias as well as the first: only
// one goroutine runs on a stack at a time.
//
//go:nosplit
func (m *BiasedMutex) LockBiased() bool {
	var here byte
	b := (*bias)(atomic.LoadPointer(&m.bias))
	if b == nil || *b.record != b.bounds || uintptr(unsafe.Pointer(&here))-b.bounds.lo >= b.bounds.hi-b.bounds.lo || m.heldByBias { // held by the caller itself: Lock has to block
		return false
	}
	StoreRelease32(&b.inside, 1)
	if (*bias)(atomic.LoadPointer(&m.bias)) != b { // ORDER bias: after inside, with no fence in between; pairs with Heavy in revokeBias
		StoreRelease32(&b.inside, 0)
		return false
	}
	m.heldByBias = true
	return true
}
