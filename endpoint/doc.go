// Package endpoint implements NetworkDirect's model over shared memory: adapters, connections,
// queue pairs, completion queues, and their progress. It is for people who extend softnd and has
// no compatibility promise.
//
// # Requester and responder
//
// The requester is the process that posted a request. If it can reach the memory of both sides, it
// copies directly into or out of the peer's window or posted receive. Otherwise it sends the
// request to the peer as ring entries, called fragments, and the peer, the responder, copies.
// Both copy through window.Guard. Requests of one endpoint start in the order of posting. Later
// requests may run before a Read that the peer copies is complete.
// While fragments or small messages are in flight, later requests travel as fragments as well.
// The end of a fast registration waits for fragments that may name its region.
//
// # Shared state
//
// Each endpoint owns shared queue-pair state: its outbound ring, its posted receives, and the
// words that its peer reads. The active side of a connection owns a connection record, which
// names the state of both sides and holds the state of the connection. Package
// endpoint/internal/wire describes the words and their writers. An endpoint with a shared
// receive queue shows no receives, because that queue is private to its process.
//
// # Progress
//
// A call that polls or waits makes progress on the endpoints concerned. Otherwise one engine
// goroutine per process makes progress on one-sided operations, connections and time-outs. It
// sleeps on its doorbell while there is nothing to do or the program polls. The housekeeper,
// another goroutine, checks the liveness of peers and updates the status page.
//
// # Locks
//
// All locks are within one process. They are taken in this order:
//
//   - Provider.deferredMu, while deferred work runs; its holder holds no other lock when it takes it;
//   - Provider.inboxMu, on which only the housekeeper blocks;
//   - listener, then connector, then sharedAddress, then ports; or memoryRegion or memoryWindow;
//   - queuePair;
//   - completionQueue, sharedReceiveQueue, the waiters' lock: none of them while another is held;
//   - Provider.mu, then connection.mu, which is held while a connection record is written;
//   - those of packages window and shm.
package endpoint
