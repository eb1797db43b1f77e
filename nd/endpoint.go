package nd

import "context"

// Endpoint is a queue pair: a queue of receives, and a queue of initiator requests (all others).
//
// Posting returns at once. A post that returns an error queues nothing, and neither the endpoint
// nor later requests are affected. A post that returns nil yields exactly one [Result], except
// that [SilentSuccess] suppresses the one of a success. The first failed result ends the
// connection: every other outstanding request, at both sides, completes with [Canceled].
//
// Errors that every initiator post shares, after which the endpoint stays usable:
// [ConnectionInvalid] before the connection is complete and after Disconnect or Close;
// [NoMoreEntries] when InitiatorDepth requests are outstanding (take results, then retry).
// Once the connection has failed, or the peer has disconnected, posts succeed and their results
// are [Canceled]. When a completion queue of the endpoint has overrun, posts of both kinds may fail
// with [InternalError] instead: their results would be lost.
//
// A request counts as outstanding until its result is taken; one that succeeds silently until it
// has run. Requests of one queue complete in the order of posting. At the peer, the effects of
// Send, Write, Bind and Invalidate appear in the order of posting too. A Read may still be under
// way while later requests run, unless those carry [ReadFence]. Nothing is ordered between the
// two queues, or between endpoints.
//
// Results of every request may show [Success], [Canceled], [InvalidDeviceRequest] or
// [InternalError]. Further statuses are named at each method.
// Source: NetworkDirect IND2QueuePair, INDEndpoint, NDK_QP.
type Endpoint interface {
	// Send transfers a message into the oldest posted Receive of the peer. sge may be empty: an
	// empty message takes a Receive as well. A Send succeeds only once its message has a Receive;
	// without one it waits a bounded time, without limit for a shared receive queue.
	//
	// Errors: [DataOverrun] for too many entries; [BufferOverflow] for more than
	// MaxTransferLength bytes, or, with [Inline], more than InlineSize; [InvalidParameter4] for
	// flags that Send does not take.
	// Results: [IOTimeout] when the peer posted no Receive; [RemoteError] when its Receive was
	// too small or invalid; [AccessViolation] when an entry's token does not cover it;
	// [DataOverrun].
	// Source: IND2QueuePair::Send, NdkSend.
	Send(reqCtx uint64, sge []SGE, flags OpFlags) error

	// SendAndInvalidate is Send that also invalidates the peer's window, or fast-register region,
	// of the given remote token. Earlier Writes through it are placed first; earlier Reads need
	// [ReadFence]. When the peer sees the result of its Receive, of type
	// [RequestReceiveAndInvalidate] and with the token in it, no transfer uses that memory any
	// more. The result here is a [RequestSend].
	//
	// Errors: as Send.
	// Results: as Send, and [RemoteError] for a token that is unknown, not bound, bound on another
	// connection, a plain region's, or that of a region to which windows are bound. The peer's
	// Receive then shows [InvalidDeviceRequest].
	// Source: INDEndpoint::SendAndInvalidate, NdkSendAndInvalidate.
	SendAndInvalidate(reqCtx uint64, sge []SGE, remote Token, flags OpFlags) error

	// Receive offers buffers for one message, in any state of the connection: before it is made
	// receives wait, after its end their results are [Canceled]. sge may be empty. Data fills the
	// entries in order; an empty message touches nothing. With a shared receive queue post there
	// instead.
	//
	// Errors: [NoMoreEntries] when ReceiveDepth requests are outstanding; [DataOverrun] for too
	// many entries; [BufferOverflow] for more than MaxTransferLength bytes;
	// [InvalidDeviceRequest] with a shared receive queue. Never [ConnectionInvalid].
	// Results: [BufferOverflow] when the message was larger than the buffers; [AccessViolation]
	// when an entry's token does not cover it or lacks [AllowLocalWrite]; [IOTimeout];
	// [RemoteError].
	// Source: IND2QueuePair::Receive, NdkReceive.
	Receive(reqCtx uint64, sge []SGE) error

	// Bind grants peers access to buf, a part of mr.Bytes(), through mw, which must be
	// invalidated when the request runs; an Invalidate right before it will do. flags holds the
	// rights, and decides alone: the region's AllowRemote flags do not matter here. With neither
	// right the window grants nothing. Any connected peer that holds the token may use the window,
	// unless [ThisEndpointOnly] is set.
	//
	// mw.RemoteToken is new when Bind returns. Tell it to the peer with a later Send on this
	// endpoint; before telling it in another way wait for the result.
	//
	// Errors: [AccessViolation] when buf is empty or not within mr, mr is not registered, or
	// [AllowWrite] is asked for without the region's [AllowLocalWrite]; [InvalidParameter2] or
	// [InvalidParameter3] for an mr or mw of another adapter; [InvalidParameter6] for flags that
	// Bind does not take.
	// Results: [InvalidDeviceRequest] when mw is still bound.
	// Source: IND2QueuePair::Bind, NdkBind.
	Bind(reqCtx uint64, mr MemoryRegion, mw MemoryWindow, buf []byte, flags OpFlags) error

	// Invalidate ends the access through mw, which must have been bound on this endpoint. Once
	// its result is visible no byte of the range is read or written through the window. A transfer
	// that was in progress fails at the peer with [AccessViolation], and that failure ends the
	// connection; so let the peer say first that it is done, or use SendAndInvalidate.
	//
	// Errors: [InvalidParameter2] for an mw of another adapter; [InvalidParameter3] for flags that
	// Invalidate does not take.
	// Results: [InvalidDeviceRequest] when mw is not bound, or bound on another endpoint.
	// Source: IND2QueuePair::Invalidate, INDEndpoint::Invalidate, NdkInvalidate.
	Invalidate(reqCtx uint64, mw MemoryWindow, flags OpFlags) error

	// InvalidateRegion is Invalidate for a region registered by FastRegister on this endpoint, and
	// ends its local token as well; the region may then be registered again, and the mapping of
	// its pages be closed. Requests posted before it may use the region: they run first. Windows
	// bound to the region have to be invalidated before.
	//
	// Errors: [InvalidDeviceRequest] for a region that is not of this kind (use
	// [MemoryRegion.Deregister]), which stays as it is; [NotSupported]; others as Invalidate.
	// Results: [InvalidDeviceRequest] when mr is not registered, registered on another endpoint,
	// or has windows bound to it.
	// Source: NdkInvalidate.
	InvalidateRegion(reqCtx uint64, mr MemoryRegion, flags OpFlags) error

	// FastRegister registers length bytes, which begin offset bytes into the first of pages, in a
	// region set up by [MemoryRegion.InitializeFastRegister]. pages come from live mappings of the
	// adapter, in any order; peers see them one after the other, and address the first byte as
	// baseAddress, which must not be 0. The region's tokens are new when the call returns;
	// requests posted later on this endpoint may use them. A Bind to the region needs the
	// registration's result first.
	//
	// An [SGE] with the local token names the memory by the owner's slice of it, as anywhere; this
	// is possible for pages that are neighbours in the given order. baseAddress is for peers alone.
	//
	// The tokens serve every connection of the adapter, but the registration is this endpoint's,
	// as a bind is: it is invalidated here, and ends when the endpoint fails, disconnects or is
	// closed. Windows bound to it on other endpoints stay then, and the region cannot be
	// registered again, nor the mapping be closed, before they are gone.
	//
	// Errors: [AccessViolation] when rights holds remote ones and the region was not set up for
	// them; [InvalidParameter2] for an mr of another adapter or kind; [InvalidParameter3] for
	// no pages, or more than mr was set up for; [InvalidParameter4] for pages that are none of the
	// adapter's; [InvalidParameter5] or [InvalidParameter6] when offset or length leaves the
	// pages, or what was mapped of them; [InvalidParameter7] for a baseAddress of 0 or one too
	// high for the length; [InvalidParameter8] for unknown rights or flags;
	// [InsufficientResources]; [NotSupported].
	// Results: [InvalidDeviceRequest] when mr is still registered.
	// Source: NdkFastRegister.
	FastRegister(reqCtx uint64, mr MemoryRegion, pages []LogicalPage, offset, length int, baseAddress uint64, rights RegionFlags, flags OpFlags) error

	// Read copies the peer's memory from remoteAddr on into the entries of sge, in order. The
	// address is in host byte order, and may be any within the range that remote stands for. An
	// empty Read asks whether the connection lives; address and token are not looked at then.
	// More Reads than the outbound limit wait their turn.
	//
	// Errors: [DataOverrun] for more than MaxReadSGE entries or those of the endpoint;
	// [BufferOverflow] for more than MaxTransferLength bytes; [InvalidParameter6] for flags that
	// Read does not take; [RemoteError] where the provider knows at once that the range ends
	// beyond the remote memory.
	// Results: [AccessViolation] when the remote token is not valid, does not allow reading or
	// does not cover the range, or a local token does not cover its entry with
	// [AllowLocalWrite]; [DataOverrun]; [IOTimeout]; [RemoteError]. The peer gets no result for
	// such an offence, only the end of the connection.
	// Source: IND2QueuePair::Read, NdkRead.
	Read(reqCtx uint64, sge []SGE, remoteAddr uint64, remote Token, flags OpFlags) error

	// Write copies the entries of sge, in order, into the peer's memory from remoteAddr on. What
	// is said of Read's addresses holds. A message sent later on this endpoint is seen by the peer
	// after the data; with [InOrderDMASupported] the last byte of a Write is seen last.
	//
	// Errors: as Read, the limit of entries being the endpoint's, with [Inline] InlineSize bytes.
	// Results: as Read, with writing for reading; a source needs no right.
	// Source: IND2QueuePair::Write, NdkWrite.
	Write(reqCtx uint64, sge []SGE, remoteAddr uint64, remote Token, flags OpFlags) error

	// Flush completes everything outstanding in both queues with [Canceled], each queue in the
	// order of posting; the results are in the completion queues when it returns. It waits for
	// copies by the peer that are under way; what the peer has completed by then keeps its result.
	// It works in any state. The endpoint has failed then: it transfers no more and cannot be
	// connected.
	// Posts that lose a race against Flush complete with [Canceled].
	// Source: IND2QueuePair::Flush, NdkFlush.
	Flush() error

	// FlushContext is Flush for a bounded time: a peer whose process is stopped in the middle of
	// a copy blocks Flush for as long as it lives. Errors: [Canceled]. After it the endpoint has
	// failed all the same. The results follow when the copy has ended; another call waits for that.
	FlushContext(ctx context.Context) error

	// StartRequestBatch begins a run of posts that may be held back until SubmitRequestBatch. A
	// hint, with the effect of [Defer] on each post between; posts of other goroutines may fall
	// into the run. Source: INDEndpoint::StartRequestBatch.
	StartRequestBatch()

	// SubmitRequestBatch starts whatever was held back.
	// Source: INDEndpoint::SubmitRequestBatch.
	SubmitRequestBatch()

	// Err returns why the endpoint left the connected state, nil while it has not. It is the
	// first cause, in words, and does not change afterwards: [ConnectionDisconnected] for a
	// graceful disconnect, [ConnectionAborted] when the peer closed, died or did not answer,
	// [Canceled] for Flush and Close, else the status of the request that failed, here or there.
	// A provider that knows why the peer has ended the connection reports it at both sides. Once a
	// failed result has been taken, Err is not nil: see [Result.Err].
	Err() error

	// Done returns a channel that is closed when the endpoint leaves the connected state for
	// good: the connection has failed, the peer has disconnected or died, or the endpoint was
	// flushed, disconnected or closed. From then on Err is not nil. The program need not
	// poll, wait or post a receive for that. Outstanding requests may still be completing then;
	// Flush waits for them. The channel of an endpoint that
	// is idle or connecting stays open. Every call returns the same one.
	Done() <-chan struct{}

	// Connector returns the [Connector] that has connected the endpoint, nil until the connection
	// is complete. It gives Disconnect, NotifyDisconnect and the addresses to a program that did
	// not make the connector itself.
	Connector() Connector

	// Close flushes the endpoint, invalidates the windows bound on it, and releases it. A
	// connection that is still up is aborted for the peer. Results may be taken afterwards.
	Close() error
}
