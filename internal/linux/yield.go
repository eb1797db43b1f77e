package linux

import "golang.org/x/sys/unix"

// Yield lets another thread run on this core. Waiters call it while there are more ranks than
// cores: it costs much less than sleeping and being woken.
//
// It is not inlined, so that each call checks whether the runtime wants to preempt the goroutine.
// A loop that yields on a crowded core is in the kernel whenever the runtime's preemption signal
// arrives, and cannot be preempted there.
//
//go:noinline
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
