// Package asym is synchronisation whose costs are not shared evenly: what happens all the time is nearly free, and
// what happens rarely pays for both.
//
// It rests on membarrier(2): a thread that calls it makes every other running thread of the process pass a full memory
// barrier. So the frequent side of a store-then-load handshake needs no barrier of its own, which on x86 costs some 20
// cycles each time; the rare side stores, calls [Heavy], and loads. Either the frequent side's store is seen, or its
// load, which came later, saw the rare side's store.
//
// Where membarrier is not to be had (another processor, an old kernel, a container that refuses the call), and under
// the race detector, which would not understand, everything works the ordinary way.
package asym
