// Package endpoint implements NetworkDirect's model over shared memory: adapters, connections,
// queue pairs, completion queues, and their progress. It is for people who extend softnd and has
// no compatibility promise.
//
// # Requester and responder
//
// The requester is the process that posted a request. The responder is its peer. If the requester
// can reach the memory of both sides, it copies directly into or out of the responder's window or
// posted receive. Otherwise it sends the request to the responder as ring entries, called fragments,
// and the responder copies. Both copy through window.Guard.
//
// Requests of one endpoint start in the order of posting. A Read that the responder copies may
// complete after later requests have run. While fragments or small messages are in flight, later
// requests travel as fragments as well. The end of a fast registration waits for fragments that may
// name its region.
//
// # Shared state
//
// Each endpoint owns shared queue-pair state: its outbound ring, its posted receives, and the
// words that its peer reads. The active side of a connection owns a connection record. The record
// holds the state of the connection, and the offsets of the shared queue-pair states of both sides.
// Package endpoint/internal/wire describes the words and their writers. If an endpoint has a shared
// receive queue, its receives are not in shared memory, because that queue is private to its process.
//
// # Progress
//
// A poll drives endpoints of its completion queue, a wait drives all objects of the process. In
// addition, each process has a progress engine, a goroutine that drives the endpoints when the program does
// not. It rests while the program waits, and polls rarely, with its doorbell disarmed, while
// the program polls. Otherwise it arms its doorbell, and sleeps until a peer rings. Another goroutine,
// the housekeeper, checks the liveness of peers and updates the status page.
//
// # Files
//
// The beginning of a file's name says which part of the package it is:
//
//	provider_  the provider of a member: its options and adapters; how it opens and closes
//	adapter_   the adapter: the objects that it makes and closes
//	limits     the limits of an adapter
//	address    the addresses of members
//	parameter  errors that name a parameter
//	cm_        connections: listeners, connectors, the end, the peer's death; package endpoint/internal/cm has the record, its states, and ports
//	mr_        memory regions, mappings and fast registrations; memory windows
//	qp_        queue pairs: how they begin and end, their states, posts, receives, errors
//	req_       the requester: posted requests run and complete
//	resp_      the responder: ring entries are served
//	cq_        completion queues: polls, notifications; package endpoint/internal/cq has the results and the events
//	srq        shared receive queues
//	progress_  what drives the endpoints: waits, the engine, the housekeeper; polls are in cq_poll.go
//	hook_      where requests and calls ask a mode
//	modes      which modes an endpoint has; package endpoint/internal/mode has the modes
//	forward    the endpoints of a relay
//	event      events for the program's log
//	stats      counters
//
// # Locks
//
// All locks are within one process. They are taken in this order:
//
//   - that of Provider.deferred, while deferred work runs; its holder holds no other lock when it takes it;
//   - Provider.inboxMu, on which only the housekeeper blocks;
//   - listener, then connector, then sharedAddress, then cm.Ports; or memoryRegion or memoryWindow;
//   - queuePair;
//   - completionQueue, sharedReceiveQueue, the waiters' lock: none of them while another is held;
//   - Provider.mu, then that of cm.Record, which is held while a connection record is written;
//   - those of packages window and shm, and of ownedObjects.
package endpoint
