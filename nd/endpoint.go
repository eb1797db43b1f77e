package nd

import "context"

// Endpoint is a queue pair: a queue of receives, and a queue of initiator requests, which are all
// other requests.
//
// Posting returns at once. A post that fails queues nothing, and affects neither the endpoint nor
// later requests. A post that returns nil yields exactly one [Result], except that [SilentSuccess]
// suppresses the result of a success. The first failed result ends the connection: all other
// requests that are not complete, at both sides, complete with [Canceled]. Exception: if a Send
// fails, the peer's matching Receive completes with an error status of its own.
//
// Every initiator post may fail with these errors, and the endpoint stays usable after them:
// [ConnectionInvalid] before the endpoint is connected, and after Disconnect or Close;
// [NoMoreEntries] when InitiatorDepth requests are outstanding (take results, then retry). Once the
// connection has failed, or the peer has disconnected, posts succeed and their results are
// [Canceled]. When a completion queue of the endpoint has overrun, posts of both kinds may fail
// with [InternalError] instead, because their results would be lost.
//
// A request is outstanding until its result is taken. A request that succeeds silently is
// outstanding until it has run. Requests of one queue complete in the order of posting. At the
// peer, the effects of Send, Write, Bind and Invalidate appear in the order of posting. Later
// requests may run before a Read is complete, unless they have [ReadFence]. There is no order
// between the two queues, or between endpoints.
//
// The result of any request may be [Success], [Canceled], [InvalidDeviceRequest] or
// [InternalError]. The comment of each method lists further ones.
// Source: NetworkDirect IND2QueuePair, INDEndpoint, NDK_QP.
type Endpoint interface {
	// Send transfers a message into the oldest posted Receive of the peer. sge may be empty: an
	// empty message uses a Receive too. A Send succeeds only if its message has a Receive. It waits
	// a bounded time for one, or without limit if the peer uses a shared receive queue.
	//
	// Errors: [DataOverrun] for too many entries; [BufferOverflow] for more than
	// MaxTransferLength bytes, or, with [Inline], more than InlineSize; [InvalidParameter4] for
	// flags that Send does not take.
	// Results: [IOTimeout] when the peer posted no Receive; [RemoteError] when its Receive was
	// too small or invalid; [AccessViolation] when the token of an entry does not cover it;
	// [DataOverrun].
	// Source: IND2QueuePair::Send, NdkSend.
	Send(reqCtx uint64, sge []SGE, flags OpFlags) error

	// SendAndInvalidate is Send that also invalidates the peer's window or fast-registered region
	// with the remote token. Earlier Writes with this token take effect first. To wait for earlier
	// Reads, set [ReadFence]. The result of the peer's Receive is of type
	// [RequestReceiveAndInvalidate] and has the token. Once the peer has taken it, no transfer uses
	// that memory through the token. The result here is a [RequestSend].
	//
	// Errors: as Send.
	// Results: as Send, and [RemoteError] for a token that is unknown, not bound, or bound on
	// another connection. The same holds for the token of a plain region, or of a region to which
	// windows are bound. The peer's Receive then completes with [InvalidDeviceRequest].
	// Source: INDEndpoint::SendAndInvalidate, NdkSendAndInvalidate.
	SendAndInvalidate(reqCtx uint64, sge []SGE, remote Token, flags OpFlags) error

	// Receive posts buffers for one message. It works in any state of the connection. A receive
	// that is posted before the connection is made waits for it. A receive that is posted after its
	// end completes with [Canceled]. sge may be empty. A message fills the entries in order; an
	// empty one changes nothing. An endpoint with a shared receive queue takes its receives from
	// that queue.
	//
	// Errors: [NoMoreEntries] when ReceiveDepth requests are outstanding; [DataOverrun] for too
	// many entries; [BufferOverflow] for more than MaxTransferLength bytes;
	// [InvalidDeviceRequest] with a shared receive queue. Never [ConnectionInvalid].
	// Results: [BufferOverflow] when the message was larger than the buffers; [AccessViolation]
	// when the token of an entry does not cover it or lacks [AllowLocalWrite]; [IOTimeout];
	// [RemoteError].
	// Source: IND2QueuePair::Receive, NdkReceive.
	Receive(reqCtx uint64, sge []SGE) error

	// Bind gives peers access to buf, a part of mr.Bytes(), through mw. When the request runs, mw
	// must not be bound; an Invalidate posted right before the Bind is enough. The rights are those
	// in flags; the AllowRemote flags of the region do not matter. A window with neither right
	// gives no access. Every connected peer that has the token may use the window, unless
	// [ThisEndpointOnly] is set.
	//
	// Once Bind has returned, mw.RemoteToken returns the new token. A program may send it to the
	// peer in a later Send on this endpoint. Before it passes the token in any other way, it must
	// wait for the Bind's result.
	//
	// Errors: [AccessViolation] when buf is empty or not within mr, when mr is not registered, or
	// when flags has [AllowWrite] and the region lacks [AllowLocalWrite]; [InvalidParameter2] or
	// [InvalidParameter3] for an mr or mw of another adapter; [InvalidParameter6] for flags that
	// Bind does not take.
	// Results: [InvalidDeviceRequest] when mw is still bound.
	// Source: IND2QueuePair::Bind, NdkBind.
	Bind(reqCtx uint64, mr MemoryRegion, mw MemoryWindow, buf []byte, flags OpFlags) error

	// Invalidate ends the access through mw, which must have been bound on this endpoint. Once the
	// result is in the queue, no byte of the range is read or written through the window. A
	// transfer in progress fails at the peer with [AccessViolation], and that ends the connection.
	// To keep the connection, let the peer first send a message that it is done, or let it use
	// SendAndInvalidate.
	//
	// Errors: [InvalidParameter2] for an mw of another adapter; [InvalidParameter3] for flags that
	// Invalidate does not take.
	// Results: [InvalidDeviceRequest] when mw is not bound, or bound on another endpoint.
	// Source: IND2QueuePair::Invalidate, INDEndpoint::Invalidate, NdkInvalidate.
	Invalidate(reqCtx uint64, mw MemoryWindow, flags OpFlags) error

	// InvalidateRegion is Invalidate for a region registered by FastRegister on this endpoint. It
	// ends the local token too. Afterwards the region may be registered again, and the mapping of
	// its pages may be closed. Requests posted before it run first, so they may use the region.
	// Windows bound to the region must be invalidated before.
	//
	// Errors: [InvalidDeviceRequest] for a region that is not set up for fast registration, without
	// effect (use [MemoryRegion.Deregister]); [NotSupported]; others as Invalidate.
	// Results: [InvalidDeviceRequest] when mr is not registered, registered on another endpoint,
	// or has windows bound to it.
	// Source: NdkInvalidate.
	InvalidateRegion(reqCtx uint64, mr MemoryRegion, flags OpFlags) error

	// FastRegister registers length bytes of pages, beginning offset bytes into the first page. The
	// region must be set up by [MemoryRegion.InitializeFastRegister]. The function [FastRegister]
	// takes these parameters in a struct. pages come from live mappings of the adapter, in any
	// order. Peers access them as one range of addresses, in the given order, that begins at
	// baseAddress, which must not be 0. The region's tokens are new when the call returns; requests
	// posted later on this endpoint may use them. To bind a window to the region, wait for the
	// registration's result first.
	//
	// An [SGE] with the local token has a slice of the owner's memory, as for any other region. So
	// the pages of an SGE must be contiguous in the owner's memory, in the given order. Only peers
	// use baseAddress.
	//
	// The tokens are valid on every connection of the adapter. The registration belongs to this
	// endpoint, as a bind does: InvalidateRegion works on this endpoint only, and the registration
	// ends when the endpoint fails, disconnects or is closed. Windows that were bound to the region
	// on other endpoints remain bound. Invalidate them before you register the region again
	// or close the mapping.
	//
	// Errors: [AccessViolation] when rights has remote rights and the region was not set up for
	// them; [InvalidParameter2] for an mr of another adapter or kind; [InvalidParameter3] for no
	// pages, or more than mr was set up for; [InvalidParameter4] for pages of no live mapping of
	// the adapter; [InvalidParameter5] or [InvalidParameter6] when the range is not
	// within the pages, or not within the mapped bytes of them; [InvalidParameter7] for a baseAddress of 0 or one too high
	// for the length; [InvalidParameter8] for unknown rights or flags; [InsufficientResources];
	// [NotSupported].
	// Results: [InvalidDeviceRequest] when mr is still registered.
	// Source: NdkFastRegister.
	FastRegister(reqCtx uint64, mr MemoryRegion, pages []LogicalPage, offset, length int, baseAddress uint64, rights RegionFlags, flags OpFlags) error

	// Read copies the peer's memory from remoteAddr on into the entries of sge, in order. See
	// [ReadFrom] for a Read with a descriptor. remoteAddr is an address, in host byte order, within
	// the range that remote gives access to. An empty Read checks that the connection works; its
	// address and token are ignored. Reads above the outbound limit wait until earlier ones are
	// complete.
	//
	// Errors: [DataOverrun] for more entries than MaxReadSGE or the endpoint's limit;
	// [BufferOverflow] for more than MaxTransferLength bytes; [InvalidParameter6] for flags that
	// Read does not take; [RemoteError] if the provider knows at once that the range ends
	// beyond the remote memory.
	// Results: [AccessViolation] when the remote token is not valid, does not allow reading or does
	// not cover the range; [AccessViolation] when a local token does not cover its entry with
	// [AllowLocalWrite]; [DataOverrun]; [IOTimeout]; [RemoteError]. The peer gets no result for
	// such a failure, but its connection ends.
	// Source: IND2QueuePair::Read, NdkRead.
	Read(reqCtx uint64, sge []SGE, remoteAddr uint64, remote Token, flags OpFlags) error

	// Write copies the entries of sge, in order, into the peer's memory from remoteAddr on. See
	// [WriteTo] for a Write with a descriptor. Addresses, and empty Writes, are as for Read. The
	// data is in place before the peer gets a message sent later on this endpoint. With
	// [InOrderDMASupported] the last byte of a Write is visible last.
	//
	// Errors: as Read, but the limit of entries is the endpoint's, and, with [Inline],
	// [BufferOverflow] for more than InlineSize bytes.
	// Results: as Read, but the remote token must allow writing, and the local tokens need no
	// right.
	// Source: IND2QueuePair::Write, NdkWrite.
	Write(reqCtx uint64, sge []SGE, remoteAddr uint64, remote Token, flags OpFlags) error

	// Flush ends all requests of both queues that are not complete. They complete with [Canceled],
	// each queue in the order of posting. When Flush returns, the results are in the completion
	// queues. It waits for copies by the peer that are in progress; a request that completes in the
	// meantime keeps its result. Flush works in any state. Afterwards the endpoint has failed: it
	// transfers no more and cannot be connected. A post that races with Flush may complete with
	// [Canceled].
	// Source: IND2QueuePair::Flush, NdkFlush.
	Flush() error

	// FlushContext is Flush with a bound on the wait. A peer that is stopped in the middle of a
	// copy blocks Flush until it continues or dies.
	//
	// Errors: [Canceled] when ctx ends. The endpoint has failed even so. The results follow when
	// the copy has ended; another call waits for them.
	FlushContext(ctx context.Context) error

	// StartRequestBatch allows the provider to hold back requests until SubmitRequestBatch. It is a
	// hint: all posts in between, also those of other goroutines, are treated as if they had
	// [Defer]. Source: INDEndpoint::StartRequestBatch.
	StartRequestBatch()

	// SubmitRequestBatch starts all requests that were held back.
	// Source: INDEndpoint::SubmitRequestBatch.
	SubmitRequestBatch()

	// Err returns why the endpoint left the connected state, and nil as long as it has not. It is
	// the first cause and does not change afterwards. [errors.Is] finds in it:
	//
	//   - [ConnectionDisconnected] after a graceful disconnect;
	//   - [ConnectionAborted] when the peer closed, died or did not answer;
	//   - [Canceled] after Flush and Close;
	//   - else the status of the request that failed, here or at the peer.
	//
	// A provider that knows why the peer has ended the connection reports it at both sides. Err is
	// not nil once a failed result has been taken; see [Result.Err].
	Err() error

	// Done returns a channel that is closed when the endpoint leaves the connected state
	// permanently. Then the connection has failed, the peer has disconnected or died, or the
	// endpoint was flushed, disconnected or closed. From then on Err is not nil. The channel is
	// closed even if the program does not poll, wait or post a receive. Requests may still be
	// completing then; Flush waits for them. While the endpoint is idle or connecting, the channel
	// is open. Every call returns the same channel.
	Done() <-chan struct{}

	// Connector returns the [Connector] that has connected the endpoint, and nil until the
	// connection is complete. A program that did not create the connector itself needs it for
	// Disconnect, NotifyDisconnect and the addresses.
	Connector() Connector

	// Close flushes the endpoint, invalidates the windows bound on it, and releases it. If it is
	// connected, the peer's connection is aborted. Results may be taken afterwards. Close need not
	// wait for copies by the peer that are in progress: the results of their requests follow, and
	// their buffers belong to the requests until then. To wait, call FlushContext first.
	Close() error
}
