// Package nd is the NetworkDirect model of remote direct memory access (RDMA) in Go. It consists of
// interfaces, and of the statuses, flags and limits that belong to them. It has no implementation: a
// provider implements the interfaces. A program that is written against them runs with any provider.
//
// # Objects
//
// A [Provider] knows local addresses and opens an [Adapter]. The adapter creates all other objects:
//
//	MemoryRegion        registered memory, with a local token for this process and a remote
//	                    token for peers
//	MemoryWindow        gives peers access to a part of a region until it is invalidated
//	CompletionQueue     receives the results of requests
//	Endpoint            a queue pair: requests are posted to it
//	SharedReceiveQueue  receives for several endpoints
//	Connector           connects an endpoint with an endpoint of a peer, reliably and in order
//	Listener            accepts connection requests
//
// Send and Receive move messages. Read and Write access the peer's memory by address and token;
// the peer's program takes no part in them.
//
// # Terms
//
//	adapter             an RDMA device with one protection domain
//	token               a number that grants access to registered memory: the local token is the
//	                    lkey of verbs, the remote token is the rkey
//	descriptor          the address, length and remote token of a window or region (WindowDescriptor)
//	entry, SGE          an entry of a scatter/gather list: a buffer and its local token
//	initiator request   any request but a Receive; the initiator queue is the send queue of verbs
//	result              an entry of a completion queue: the outcome of one request
//	to complete         a request completes when its outcome is decided; its result is then added
//	                    to the completion queue
//	to take a result    to get it from the completion queue, for example with Poll
//	outstanding         posted, and the result is not yet taken
//	to flush            to complete all incomplete requests of an endpoint with status Canceled
//	active, passive     the side of a connection that calls Connect, and the side that accepts
//	version 1, 2; NDK   versions 1 and 2 of NetworkDirect, and its interface in the Windows kernel
//
// # Control calls and data calls
//
// A control call returns when its work is done. A control call that may block for long takes a
// [context.Context]. If the context ends first, this call fails with [Canceled], and [errors.Is] also
// finds the context's own error. If the work is done just as the context ends, the call may return
// its normal outcome. If a canceled call may have had an effect, its comment describes the effect.
// Each call has one form. So Flush, and the Close of a region, window, mapping or adapter, take a context,
// because they block until copies in progress have ended. Close of any other object waits for no peer,
// and takes no context. To wait for the copies of an endpoint, call its Flush before its Close.
//
// The data calls are the posting methods of [Endpoint], and [SharedReceiveQueue.Receive]. A data call
// posts a request and returns without waiting for it. If the call returns an error, nothing was
// posted. Otherwise the outcome of the request is a [Result] in a completion queue. A failed result
// ends the connection.
//
// # Functions for common cases
//
// These functions work with any provider:
//
//	SGEOf               returns a scatter/gather entry for memory of a region
//	DescriptorOf        returns the descriptor of a region
//	WriteTo, ReadFrom   post a Write or Read to a descriptor, and check the length first
//	SendInline          posts a Send of bytes that are not registered
//	WaitOne, Results    wait for results, and return errors that say why a request failed
//	Explain             returns the error of a result, with the cause that its endpoint knows
//	View                returns registered memory as a slice of numbers or structs
//
// # Errors
//
// Methods return errors of type [*OpError]. The comment of a method lists statuses under "Errors";
// errors.Is finds the status in the error. Under "Results", the comment lists statuses that the
// [Result] of the posted request may have. A status that is listed without a condition has the
// meaning that its own comment gives. Names of limits that begin with Max, such as
// MaxTransferLength, are fields of [AdapterInfo]. Other names of limits, such as InlineSize, are
// fields of [EndpointConfig].
//
// If an adapter has vanished, calls on it and calls that create an object may fail with
// [DeviceRemoved]. Close still works.
//
// If an argument is an object of another adapter, or a value out of range, a call fails with
// [InvalidParameter], and OpError.Field names the parameter or configuration field. ndcompat.StatusOf
// returns the status of version 2, which has the number of the parameter in the C function.
//
// # Rules for all objects
//
// All methods may be called by any number of goroutines at once. If several goroutines post to one
// queue at the same time, the order of their requests is undefined.
//
// Close of an adapter closes its objects. They may also be closed one by one, in any order: if an open
// object still uses a closed object, the provider keeps the part that is needed until the open object
// is closed too. Close cancels the calls that block on the object, oldest first. The object reports no
// event afterwards.
//
// Methods of a closed object fail with [InvalidHandle], with these exceptions:
//
//   - methods whose comment gives another status for a closed object;
//   - posts of initiator requests fail with [ConnectionInvalid];
//   - Flush and Close work;
//   - Poll returns 0, Bytes returns nil, and Address returns 0;
//   - tokens and Err keep their values; the Close of an endpoint sets Err if it was nil, and closes the
//     channel of Done.
//
// # Versions of the model
//
// The model follows version 2 of NetworkDirect. SendAndInvalidate is from version 1. Fast
// registration, deferred posts and results that name an invalidated token are from NDK. Comments give
// the origin of each method under "Source". The numbers of statuses and flags are those of version 2,
// unless the comment says otherwise. Package [github.com/softnd/softnd/nd/ndcompat] has what belongs
// to an interface in C: the numbers of NDK where they differ, statuses that number a parameter,
// structure versions, request batches, overlapped requests, and the helper library for several
// providers.
//
// Optional parts of the model are separate interfaces: [InterruptModerator], [RouteResolver],
// [NDKAdapter], [SharedAddressConnector]. A program finds them by type assertion.
package nd
