package shm

import "golang.org/x/sys/unix"

// Yield lets another process run on this core. It is what a waiter does while
// ranks outnumber cores: much cheaper than to sleep and be woken.
//
// It stands apart so that each call asks whether the runtime wants to stop this
// goroutine. A loop that yields on a crowded core is always within the kernel when
// the runtime's signal comes, where it cannot be stopped.
//
//go:noinline
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
