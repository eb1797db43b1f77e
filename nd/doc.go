// Package nd is the NetworkDirect model in Go: the objects of remote direct memory access (RDMA) as
// interfaces, with the statuses, flags and limits that belong to them. It has no implementation. A
// provider implements the interfaces, and a program written against them runs over any provider.
//
// # Objects
//
// A [Provider] knows local addresses and opens an [Adapter]. The adapter creates the rest:
//
//	MemoryRegion        registered memory, with a local token for this process and a remote
//	                    token for peers
//	MemoryWindow        gives peers access to a part of a region until it is invalidated
//	CompletionQueue     receives the results of requests
//	Endpoint            a queue pair: work requests are posted here
//	SharedReceiveQueue  receives for several endpoints
//	Connector, Listener connect an endpoint with one of a peer, reliably and in order
//
// Send and Receive move messages. Read and Write access the peer's memory by address and token;
// the peer's program takes no part in them.
//
// # Two kinds of calls
//
// Control calls return when they are done. Calls that may block for long take a [context.Context].
// The end of the context cancels this one call, which then fails with [Canceled]; [errors.Is] finds
// the context's own error too. A call that completes just as the context ends returns its own
// result. If a canceled call may have had an effect, its comment says so. Flush and Close take no
// context, but may block until a copy in progress has ended; FlushContext and CloseContext bound
// the wait.
//
// Data calls (the posting methods of [Endpoint], and [SharedReceiveQueue.Receive]) post a request
// and return at once. An error of the call means that nothing was posted. Otherwise the outcome is
// a [Result] in a completion queue. A failed result ends the connection.
//
// # Functions for common cases
//
// These functions work with any provider:
//
//	SGEOf, DescriptorOf     the entry of a scatter/gather list, or the descriptor, for memory of a region
//	WriteTo, ReadFrom       Write and Read with a descriptor, and a check of the length
//	SendInline              Send of bytes that are not registered
//	WaitOne, Results        wait for results, with errors that say why a request failed
//	FastRegister            Endpoint.FastRegister with named parameters
//	View                    registered memory as a slice of numbers or structs
//
// # Errors
//
// Methods return errors of type [*OpError]. errors.Is finds in them the statuses that the comment
// of the method lists. Every call that creates an object, and every call on an adapter that has
// vanished, may also fail with [DeviceRemoved]; closing still works then.
//
// A call refuses an argument of another adapter, and a value out of range, with one of
// [InvalidParameter1] to [InvalidParameter10]. The number is the position of the parameter in the C
// function of version 2, not in the Go method. For example, CreateCompletionQueue refuses a depth
// out of range with InvalidParameter3. [OpError].Field has the name of the parameter, if the provider sets it.
//
// # Rules for all objects
//
// All methods may be called by any number of goroutines at once. Requests that several goroutines
// post to one queue at the same time are posted in some order.
//
// Objects may be closed in any order: an object that another open object needs lives on until that
// one is closed. Close cancels the calls that are waiting on the object, oldest first, and nothing
// is delivered for it afterwards. Methods of a closed object that return an error return
// [InvalidHandle]. Exceptions: initiator posts return [ConnectionInvalid]; Flush works; Close works. Methods without an error result: Poll returns 0, Bytes returns nil, Address returns
// 0, and tokens, Err and Done stay readable.
//
// # Versions of the model
//
// The model follows version 2 of NetworkDirect. SendAndInvalidate and request batches are from
// version 1. Fast registration, deferred posts and results that name an invalidated token are from
// NDK, the kernel interface. Comments give the origin of each method under "Source". Numbers are
// those of version 2. Package [github.com/softnd/softnd/nd/ndcompat] has NDK's numbers where they
// differ, overlapped requests, and the helper library for several providers.
//
// Optional parts of the model are interfaces of their own, which a program finds by type assertion:
// [InterruptModerator], [RouteResolver], [NDKAdapter], [SharedAddressConnector].
package nd
