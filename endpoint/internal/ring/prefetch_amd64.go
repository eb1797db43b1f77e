package ring

import "sync/atomic"

// hasPrefetch says that producers prefetch ring slots for write; see [Producer.PrefetchForWrite].
//
// An Intel core takes exclusive ownership of a line with PREFETCHW, without waiting: one slot for
// each entry published. On AMD, PREFETCHW does nothing if the core has a valid copy of the line,
// even a shared one, so the producer must store to the slot instead. A core commits stores in
// order, so one store for each entry would delay each entry. Several consecutive stores wait
// together, so there the producer prefetches a batch of slots.
const hasPrefetch = true

var (
	prefetchByStore = cpuVendor() == [3]uint32{0x68747541, 0x69746e65, 0x444d4163} // AuthenticAMD
	prefetchBatch   = batchSize()
)

func batchSize() uint64 {
	if prefetchByStore {
		return 8
	}
	return 1
}

// cpuVendor returns the vendor string that CPUID reports: EBX, EDX, ECX.
func cpuVendor() (name [3]uint32)

// prefetchWrite requests exclusive ownership of the cache line of w, and does not wait for it.
//
//go:noescape
func prefetchWrite(w *atomic.Uint64)

// prefetchRead requests the cache line of w, and does not wait for it.
//
//go:noescape
func prefetchRead(w *atomic.Uint64)
