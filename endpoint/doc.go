// Package endpoint is the NetworkDirect provider over shared memory: adapters,
// connections, queue pairs, completion queues, and the progress that moves
// them.
//
// # Who moves the bytes
//
// A request either runs in the process that posted it, which copies straight
// into the peer's window or posted receive (the initiator executor), or it
// travels as one or more pieces through a ring to the peer, which runs them
// (the target executor). Both copy through window.Guard. Requests of one
// endpoint run strictly in the order of posting: as long as pieces or small
// messages are under way, later requests travel as pieces too, and the end of a
// fast registration waits for pieces that may name its region.
//
// # What two processes share
//
// Each endpoint owns a half: its outbound ring, its posted receives, and the
// words that its peer reads. A connection is a record, owned by the active
// side, that names both halves and carries the state of the connection.
// See structs_unsafe.go for the words and their writers. An endpoint with a
// shared receive queue shows no receives: that queue is private to its process.
//
// # Progress
//
// Whoever polls or waits drives the endpoints concerned. In between, one
// engine goroutine per process keeps one-sided operations, connections and
// time-outs moving; it sleeps on its doorbell while there is nothing to do or
// the program polls by itself.
//
// # Locks
//
// All within one process, taken in this order:
//
//   - Provider.choring, by the one who does chores, who holds no other lock;
//   - Provider.mail, which is tried and never waited for;
//   - Listener, then Connector, then SharedAddress, then ports; or
//     MemoryRegion or MemoryWindow;
//   - Endpoint;
//   - CompletionQueue, SharedReceiveQueue, sleepers, Provider.mu and
//     connection.mu, which is held while a record is written: none of them
//     while another is held;
//   - those of packages window and shm.
package endpoint
