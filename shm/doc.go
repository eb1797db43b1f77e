// Package shm holds what softnd keeps in memory that several processes map:
// the arena and its layout, the member table and liveness, the ownership map
// of the heap, doorbells, single-producer single-consumer rings, the rank
// group, and the two ways into an arena (an inherited descriptor, a named
// fabric). It knows nothing of NetworkDirect.
//
// # Trust
//
// Every process of an arena may write all of it. The rules that keep a lying
// or dying peer from causing more than an error are the same everywhere:
//
//   - only offsets are stored, never pointers, and a view is made only after a
//     bounds and alignment check ([At], [Arena.Bytes]);
//   - a shared word is read once, the copy is checked, and the copy is used;
//   - geometry (sizes, table positions) is computed from constants and checked
//     against the header once, at attach, and kept in private memory;
//   - there is no lock in shared memory, so none can be orphaned.
//
// # Memory order
//
// All synchronising words are loaded with sync/atomic, which is sequentially
// consistent. They are stored with that or, where nothing is loaded afterwards
// that must not be older, or the other side pays for the barrier, with
// [asym.StoreRelease]. Each synchronising pair has a name, written as "ORDER name" at
// both of its ends. The layout itself, with every offset, is LAYOUT.txt.
//
// There is one exception to the consistency: in a program built with the race detector, an atomic
// store is only a release, and a later load may overtake it. So wherever two
// sides each store a word of their own and then load the other's, and one of
// the two must see the other, the store is an exchange.
package shm
