// Package nd is the NetworkDirect model in Go: the objects of remote direct memory access as
// interfaces, and the numbers (statuses, flags, limits) that go with them. It holds no
// implementation and assumes none; a provider implements it, and programs written against it
// run over any provider.
//
// # Objects
//
// A [Provider] knows local addresses and opens an [Adapter]. The adapter creates the rest:
//
//	MemoryRegion        registered memory, with a local token for own requests and a remote
//	                    token for peers
//	MemoryWindow        a part of a region lent to peers, until it is invalidated
//	CompletionQueue     where the results of requests arrive
//	Endpoint            a queue pair: work requests are posted here
//	SharedReceiveQueue  receives for several endpoints
//	Connector, Listener join an endpoint with one of a peer, reliably and in order
//
// Send and Receive move messages. Read and Write reach into the peer's memory by address and
// token, and the program at the other end takes no part.
//
// A [Library] finds the adapter of an address among several providers.
//
// # Two kinds of calls
//
// Control calls take a [context.Context] and return when they are done. The end of the context
// cancels this one call, which then reports [Canceled]; [errors.Is] finds the context's own error
// in it too. A call that finished at the same moment reports how it finished. Where a canceled
// call may have had an effect, its comment says so.
//
// Data calls (the methods of [Endpoint] and [SharedReceiveQueue.Receive]) post a request and
// return at once. An error from the call means that nothing was posted. Otherwise the outcome is
// a [Result] in a completion queue, and a failed one ends the connection.
//
// # Errors
//
// Every error of a method is an [*OpError], in which errors.Is finds a [Status]. A comment that
// lists errors names what errors.Is finds. Every creating call, and every call on an adapter that
// has vanished, may also fail with [DeviceRemoved]; closing still works then.
//
// Arguments that belong to another adapter, or a value outside its range, are refused with the
// number of the parameter in version 2 of the model, [InvalidParameter1] to
// [InvalidParameter10], counting from the first after the object itself. Version 2 passes a
// slice as two parameters.
//
// # Rules for all objects
//
// All methods may be called by any number of goroutines at once. Requests that are posted to one
// queue at the same time are ordered in some way.
//
// Objects may be closed in any order: what another open object needs lives on until that one is
// closed. Close cancels the calls that are waiting on the object, oldest first, and nothing is
// delivered for it afterwards. A method of a closed object returns [InvalidHandle], except that
// Poll returns 0, that initiator posts return [ConnectionInvalid], that a region's or window's
// tokens stay readable, and that Close returns nil.
//
// # Flavours
//
// The model follows version 2 of NetworkDirect. From version 1 it takes SendAndInvalidate and
// request batches, from NDK, the kernel flavour, fast registration, deferred posts and results
// that name an invalidated token. Comments give the origin of each method under "Source".
// Numbers are those of version 2. NDK's, where they differ, have types of their own
// ([NDKOpFlags], [NDKOperationType]) so that the two cannot be mixed.
//
// Parts that only some providers have are interfaces of their own, found by type assertion:
// [InterruptModerator], [RouteResolver], [NDKAdapter], [SharedAddressConnector].
package nd
