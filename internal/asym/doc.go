// Package asym has synchronisation that costs its frequent side next to nothing, and its rare side about a microsecond:
// asymmetric memory fences and a biased lock.
//
// The fences are for handshakes in which each of two sides stores its own word and then loads the other's, and at least
// one must see the other's store. Usually each side needs a full fence between its store and its load, on amd64 some 20
// cycles. Here the frequent side has none: it calls [Light], which costs nothing. The rare side stores, calls [Heavy],
// and loads. Heavy runs membarrier(2), which makes every other running thread of the process pass a full fence. So either
// the frequent side's store is visible after Heavy, or its load comes later and sees the rare side's store. The C++
// proposal P1202 calls the pair asymmetric_thread_fence_light and asymmetric_thread_fence_heavy.
//
// [BiasedMutex] is a lock built on this handshake.
//
// Where membarrier is not available, both sides use ordinary atomics and [BiasedMutex] is a [sync.Mutex]. That is so on
// processors other than amd64, with an old kernel, in a container that refuses the call, and under the race detector,
// which does not know membarrier.
package asym
