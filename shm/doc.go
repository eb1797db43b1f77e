// Package shm implements the shared memory of softnd: the arena that several processes map, its
// layout, its members and their liveness, its heap, and the rank group. A process gets an arena
// through an inherited descriptor or from a named fabric. The package does not depend on
// NetworkDirect.
//
// The package is for people who extend softnd; there is no compatibility promise. Programs use
// packages softnd and nd.
//
// # Trust
//
// Every process of an arena can write all of it. The same rules everywhere keep a hostile or dying
// peer from causing more than an error:
//
//   - Shared memory holds offsets, never pointers. A view of memory is made only after a check of
//     bounds and alignment ([At], [Slice], [Arena.Bytes]).
//   - A shared word is loaded once; the copy is checked, and the copy is used.
//   - Geometry (sizes, positions of tables) is computed from constants, checked against the header
//     once, in Attach, and kept in private memory.
//   - There is no lock in shared memory, so a process that dies cannot leave one locked.
//
// # Memory order
//
// All synchronising words are loaded with sync/atomic, which is sequentially consistent. They are
// stored with sync/atomic too, or with [asym.StoreRelease], a release store. A release store is
// sufficient in two cases: the storing side afterwards loads no word whose value must be current, or
// the other side issues the barrier for both sides. Each synchronising pair has a name, written as
// "ORDER name" at both of its ends. LAYOUT.txt in internal/layout lists the layout with every offset.
//
// In some handshakes each of two sides stores its own word and then loads the word of the other side.
// At least one side must then see the store of the other. Such a store is an exchange, because with
// the race detector an atomic store is only a release store: a later load may overtake it.
package shm
