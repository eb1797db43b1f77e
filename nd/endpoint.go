package nd

import "context"

// Endpoint is a queue pair. It has a queue of receives, and a queue of initiator requests, which are
// all other requests.
//
// A post returns without waiting for its request. A post that fails queues nothing, and affects
// neither the endpoint nor later requests. If a post returns nil, its request has exactly one
// [Result]. The exception is a request with [SilentSuccess]: if it succeeds, it has no result. Each
// post takes reqCtx, a number that the program chooses. It is the RequestContext of the Result.
//
// The first failed result ends the connection. All other incomplete requests of both sides then
// complete with [Canceled]. There is one exception. If a Send fails and its message has a Receive at
// the peer, that Receive completes with an error status of its own.
//
// The post of an initiator request may fail with the following errors. The endpoint stays usable.
//
//   - [ConnectionInvalid]: the endpoint is not yet connected, or this side has called Disconnect or
//     Close.
//   - [NoMoreEntries]: InitiatorDepth requests are outstanding. Take results, or call WaitSlot, then retry.
//
// After the connection has failed, or the peer has disconnected, posts succeed and their results are
// [Canceled]. If a completion queue of the endpoint has overrun, a post of any kind may instead fail
// with [InternalError], because its result would be lost.
//
// A request is outstanding until the program takes its result. A request with [SilentSuccess] that
// succeeds has no result: it is outstanding until it completes.
//
// Requests of one queue complete in the order of posting. At the peer, the effects of Send, Write,
// Bind and Invalidate appear in the order of posting. A request that is posted after a Read may run
// before the Read is complete, unless it has [ReadFence]. There is no order between the two queues,
// or between endpoints.
//
// The result of any request may be [Success], [Canceled], [InvalidDeviceRequest] or
// [InternalError]. The comment of each method lists further statuses of its results.
// Source: NetworkDirect IND2QueuePair, INDEndpoint, NDK_QP.
type Endpoint interface {
	// Send transfers a message into the oldest posted Receive of the peer. It succeeds only if its
	// message has a Receive. sge may be empty: an empty message uses a Receive too. If the peer has no
	// Receive posted, the Send waits for one for a limited time. If the peer uses a shared receive
	// queue, the Send waits without limit.
	//
	// Errors:
	//
	//   - [DataOverrun]: sge has too many entries.
	//   - [BufferOverflow]: the message has more than MaxTransferLength bytes, or, with [Inline],
	//     more than InlineSize.
	//   - [InvalidParameter]: Send does not take these flags.
	//
	// Results:
	//
	//   - [IOTimeout]: the peer posted no Receive in time.
	//   - [RemoteError]: the peer's Receive was too small or invalid.
	//   - [AccessViolation]: the local token of an entry does not cover its buffer.
	//   - [DataOverrun]: the message has more data than the adapter can send.
	//   - [DataChecksumError]: the data changed in flight; see [EndpointConfig].
	//
	// Source: IND2QueuePair::Send, NdkSend.
	Send(reqCtx uint64, sge SGL, flags OpFlags) error

	// SendAndInvalidate is Send, and also invalidates the peer's window or fast-registered region
	// that has the token remoteToken. Earlier Writes with this token take effect before the
	// invalidation. To make the request wait for earlier Reads, set [ReadFence].
	//
	// The result of the peer's Receive is of type [RequestReceiveAndInvalidate] and contains the
	// token. Once the peer has taken this result, no transfer accesses the memory through the token.
	// The result at this side is of type [RequestSend].
	//
	// Errors: those of Send.
	//
	// Results: those of Send, and [RemoteError] if the peer cannot invalidate the token. The peer's
	// Receive then completes with [InvalidDeviceRequest]. The peer cannot invalidate a token that is
	//
	//   - unknown, not bound, or bound on another connection;
	//   - the token of a region that is not fast-registered;
	//   - the token of a region to which windows are bound.
	//
	// Source: INDEndpoint::SendAndInvalidate, NdkSendAndInvalidate.
	SendAndInvalidate(reqCtx uint64, sge SGL, remoteToken Token, flags OpFlags) error

	// Receive posts buffers for one message. It works in any state of the connection. Before the
	// connection is made, the receive waits. After the connection has ended, the receive completes
	// with [Canceled]. The message fills the entries of sge in order; an empty message changes
	// nothing. sge may be empty: the receive is then for an empty message. If the endpoint has a
	// shared receive queue, post receives to that queue instead.
	//
	// Errors ([ConnectionInvalid] is never one of them):
	//
	//   - [NoMoreEntries]: ReceiveDepth receives are outstanding.
	//   - [DataOverrun]: sge has too many entries.
	//   - [BufferOverflow]: the buffers have more than MaxTransferLength bytes.
	//   - [InvalidDeviceRequest]: the endpoint has a shared receive queue.
	//
	// Results:
	//
	//   - [BufferOverflow]: the message was larger than the buffers.
	//   - [AccessViolation]: the local token of an entry does not cover its buffer, or lacks
	//     [AllowLocalWrite].
	//   - [DataChecksumError]: the data changed in flight; see [EndpointConfig].
	//   - [IOTimeout], [RemoteError]: with some providers.
	//
	// Source: IND2QueuePair::Receive, NdkReceive.
	Receive(reqCtx uint64, sge SGL) error

	// Bind gives peers access to buf, a part of mr.Bytes(), through the window mw. When the request
	// runs, mw must not be bound. It is enough to post an Invalidate of mw right before the Bind.
	//
	// flags contains the rights of the window: any of [AllowRead], [AllowWrite] and [AllowAtomic]. The
	// AllowRemote flags of the region do not matter. Every connected peer that has the token may use
	// the window, unless flags has [ThisEndpointOnly].
	//
	// mw.RemoteToken returns the new token as soon as Bind has returned. A program may send the
	// token to the peer in a later Send on this endpoint. Before it passes the token in any other
	// way, it must wait for the result of the Bind.
	//
	// Errors:
	//
	//   - [AccessViolation]: buf is empty or not within mr; or mr is not registered; or flags has
	//     AllowWrite or AllowAtomic and mr lacks [AllowLocalWrite].
	//   - [InvalidParameter]: mr or mw is of another adapter, or Bind does not take these flags.
	//
	// Results: [InvalidDeviceRequest] if mw is still bound.
	// Source: IND2QueuePair::Bind, NdkBind.
	Bind(reqCtx uint64, mr MemoryRegion, mw MemoryWindow, buf []byte, flags OpFlags) error

	// Invalidate ends the access through the window mw, which must have been bound on this endpoint.
	// Once the result is in the completion queue, no transfer accesses the memory through the
	// window.
	//
	// If a peer's transfer through the window is in progress, the transfer fails with
	// [AccessViolation], and the connection ends. To keep the connection, call Invalidate only after
	// the peer has reported that its transfers are complete, or let the peer call SendAndInvalidate.
	//
	// Errors: [InvalidParameter] if mw is of another adapter, or Invalidate does not take these flags.
	// Results: [InvalidDeviceRequest] if mw is not bound, or bound on another endpoint.
	// Source: IND2QueuePair::Invalidate, INDEndpoint::Invalidate, NdkInvalidate.
	Invalidate(reqCtx uint64, mw MemoryWindow, flags OpFlags) error

	// InvalidateRegion is Invalidate for a region that was registered by FastRegister on this
	// endpoint. It invalidates both tokens, local and remote. Once the result is in the
	// completion queue, the region may be registered again, and the mapping of its pages may be
	// closed. Requests of this endpoint that were posted before InvalidateRegion may use the region,
	// because they run first. Windows that are bound to the region must be invalidated first.
	//
	// Errors: those of Invalidate, with mr in the place of mw; [NotSupported]; and
	// [InvalidDeviceRequest] if mr is not set up for fast registration. In that case, call
	// [MemoryRegion.Deregister] instead.
	// Results: [InvalidDeviceRequest] if mr is not registered, is registered on another endpoint,
	// or has windows bound to it.
	// Source: NdkInvalidate.
	InvalidateRegion(reqCtx uint64, mr MemoryRegion, flags OpFlags) error

	// FastRegister registers r.Length bytes of r.Pages as the memory of r.Region. The first byte is
	// r.Offset bytes into the first page. The region must be set up by
	// [MemoryRegion.InitializeFastRegister]. The pages are from open mappings of the adapter, in any
	// order: see [Adapter.BuildLogicalAddressMapping].
	//
	// Peers access the memory as one range of addresses that begins at r.BaseAddress and follows the
	// order of pages. Only peers use that address, which must not be 0. An [SGE] of the owner has a
	// slice of the owner's memory, as for any other region. The slice can extend over several pages
	// only if they are contiguous in the owner's memory, in the order of pages.
	//
	// The region has new tokens when the call returns. Requests that are posted later on this
	// endpoint may use the tokens. Before you bind a window to the region, wait for the result of
	// FastRegister.
	//
	// The tokens are valid on every connection of the adapter, but the registration belongs to this
	// endpoint. Only InvalidateRegion of this endpoint can invalidate it. The registration also ends
	// if the endpoint fails, disconnects or is closed. Windows that were bound to the region on
	// other endpoints stay bound even then. Invalidate these windows before you register the region
	// again or close the mapping.
	//
	// Errors:
	//
	//   - [AccessViolation]: r.Rights has remote rights, and the region was not set up for them.
	//   - [InvalidParameter]: the region is of another adapter, or not set up for fast registration;
	//     r.Pages is empty, has more pages than the region was set up for, or a page that is not of an open
	//     mapping of the adapter; r.Offset or r.Length reaches beyond the pages, or beyond the mapped part
	//     of a page (the first and last page of a mapping may be mapped in part); r.BaseAddress is 0, or
	//     too high for the length; r.Rights or flags has an unknown bit.
	//   - [InsufficientResources], [NotSupported].
	//
	// Results: [InvalidDeviceRequest] if the region is still registered.
	// Source: NdkFastRegister.
	FastRegister(reqCtx uint64, r FastRegistration, flags OpFlags) error

	// Read copies bytes of the peer's memory, beginning at remoteAddress, into the entries of sge in
	// order. remoteAddress is in host byte order, and lies within the memory of remoteToken. If sge
	// has no bytes, the Read only checks that the connection works, and ignores remoteAddress and
	// remoteToken. The function [ReadFrom] takes a descriptor instead of an address and a token.
	//
	// The outbound read limit of [Connector.ReadLimits] limits the Reads in progress. Further Reads
	// wait until earlier Reads are complete.
	//
	// Errors:
	//
	//   - [DataOverrun]: sge has more entries than MaxReadSGE or the endpoint's limit.
	//   - [BufferOverflow]: the buffers have more than MaxTransferLength bytes.
	//   - [InvalidParameter]: Read does not take these flags.
	//   - [RemoteError]: the range ends beyond the remote memory, and the provider detects this in the
	//     post.
	//
	// Results:
	//
	//   - [AccessViolation]: the remote token is not valid, does not allow reading, or does not cover
	//     the range. Or the local token of an entry does not cover its buffer, or lacks
	//     [AllowLocalWrite].
	//   - [DataChecksumError]: the data changed in flight; see [EndpointConfig].
	//   - [DataOverrun], [IOTimeout], [RemoteError]: with some providers.
	//
	// If a Read fails, the peer gets no result, but its connection ends.
	// Source: IND2QueuePair::Read, NdkRead.
	Read(reqCtx uint64, sge SGL, remoteAddress uint64, remoteToken Token, flags OpFlags) error

	// Write copies the entries of sge, in order, into the peer's memory, beginning at remoteAddress.
	// The rules of Read for remoteAddress, remoteToken and requests without bytes apply. The function
	// [WriteTo] takes a descriptor instead of an address and a token.
	//
	// The data is in the peer's memory before the peer receives any message that is sent later on
	// this endpoint. If the adapter has [InOrderDMASupported], the last byte of a Write becomes
	// visible last.
	//
	// Errors: those of Read, with two differences. MaxReadSGE does not apply, and with [Inline] a Write
	// of more than InlineSize bytes fails with [BufferOverflow].
	// Results: those of Read, with two differences. The remote token must allow writing, and the
	// local tokens need no right.
	// Source: IND2QueuePair::Write, NdkWrite.
	Write(reqCtx uint64, sge SGL, remoteAddress uint64, remoteToken Token, flags OpFlags) error

	// SendImmediate is Send, and the result of the peer's Receive also has the number immediate: its type is
	// [RequestReceiveImmediate]. The result at this side is of type [RequestSend].
	//
	// Errors: those of Send; [NotSupported] if the adapter or the peer's does not have [ImmediateSupported].
	// Results: those of Send.
	// Source: IBV_WR_SEND_WITH_IMM of verbs; the model has none.
	SendImmediate(reqCtx uint64, sge SGL, immediate uint32, flags OpFlags) error

	// WriteImmediate is Write, and when its bytes are in the peer's memory, it also completes the oldest posted Receive of
	// the peer, with the number immediate. The buffers of the Receive are not touched, and may be smaller than the Write. The
	// result there is of type [RequestReceiveWriteImmediate], and its BytesTransferred is the length of the Write. sge may
	// be empty: the peer then only gets the number. If the peer has no Receive posted, the request waits for one as a Send does.
	// In the order of the peer's receives, it counts as a message.
	//
	// flags are those of Write, and [SendAndSolicitEvent].
	//
	// Errors: those of Write; [NotSupported] if the adapter or the peer's does not have [ImmediateSupported].
	// Results: those of Write, and [IOTimeout] if the peer posted no Receive in time. Bytes of a Write that fails may have
	// been written.
	// Source: IBV_WR_RDMA_WRITE_WITH_IMM of verbs; the model has none.
	WriteImmediate(reqCtx uint64, sge SGL, remoteAddress uint64, remoteToken Token, immediate uint32, flags OpFlags) error

	// FetchAndAdd adds a number to the 8 bytes of the peer's memory at remoteAddress, and stores what they were before in
	// old, an entry of exactly 8 bytes. Numbers are unsigned, in the byte order of the host, and wrap around.
	//
	// The access is atomic with respect to all atomics of all endpoints, on every host, and to atomic instructions of the
	// peer's own program on the same 8 bytes. It counts as a Read in the read limits and for [ReadFence]. Its effect in the
	// peer's memory appears in the order of posting.
	//
	// Errors:
	//
	//   - [InvalidBufferSize]: old has not 8 bytes.
	//   - [InvalidParameter]: remoteAddress is not a multiple of 8, or the request does not take these flags.
	//   - [NotSupported]: the adapter or the peer's does not have [AtomicsSupported].
	//
	// Results:
	//
	//   - [AccessViolation]: the remote token is not valid, does not allow atomics, or does not cover the 8 bytes. Or the
	//     local token does not cover old, or lacks [AllowLocalWrite].
	//   - [DataOverrun], [IOTimeout], [RemoteError]: with some providers.
	//
	// If the local entry is refused, the number may have been added.
	// Source: IBV_WR_ATOMIC_FETCH_AND_ADD of verbs; the model has none.
	FetchAndAdd(reqCtx uint64, old SGE, remoteAddress uint64, remoteToken Token, add uint64, flags OpFlags) error

	// CompareAndSwap is FetchAndAdd, but stores swap if the 8 bytes equal compare. If the old value that it returns is
	// compare, it has stored swap.
	//
	// Errors, Results: those of FetchAndAdd.
	// Source: IBV_WR_ATOMIC_CMP_AND_SWP of verbs; the model has none.
	CompareAndSwap(reqCtx uint64, old SGE, remoteAddress uint64, remoteToken Token, compare, swap uint64, flags OpFlags) error

	// Swap is FetchAndAdd, but stores value.
	//
	// Errors, Results: those of FetchAndAdd.
	// Source: none; verbs has it for some cards only.
	Swap(reqCtx uint64, old SGE, remoteAddress uint64, remoteToken Token, value uint64, flags OpFlags) error

	// WaitSlot blocks until fewer than InitiatorDepth requests are outstanding. The next post then does not
	// fail with [NoMoreEntries], unless another goroutine posts first. WaitSlot takes no results: a slot
	// becomes free when another goroutine takes a result, or when a request with [SilentSuccess] succeeds. A
	// program with one goroutine takes results instead, for example with [CompletionQueue.Wait]. Before it waits,
	// WaitSlot submits the requests with [Defer].
	//
	// Errors: [Canceled] if ctx ends; [ConnectionInvalid] if the endpoint is closed; [NotSupported].
	// Source: none.
	WaitSlot(ctx context.Context) error

	// Flush ends the connection, and completes all incomplete requests of both queues with
	// [Canceled], each queue in the order of posting. Flush blocks until copies by the peer that are
	// in progress have ended. A request that succeeds in the meantime keeps its result. When Flush
	// returns nil, all results are in the completion queues.
	//
	// Flush works in any state. Afterwards the endpoint has failed: it transfers nothing and cannot
	// be connected. A request that is posted during Flush may complete with Canceled. A peer that is
	// stopped in the middle of a copy blocks Flush until the peer continues or dies, or ctx ends.
	//
	// Errors: [Canceled] if ctx ends first. The endpoint has failed even so, and the results follow when
	// the copy has ended. To wait for them, call Flush again.
	// Source: IND2QueuePair::Flush, NdkFlush.
	Flush(ctx context.Context) error

	// Err returns the reason why the endpoint left the connected state. While the endpoint is
	// connected, and before, it returns nil. If there are several reasons, it returns the first.
	// errors.Is finds in it:
	//
	//   - [ConnectionDisconnected] after a graceful disconnect;
	//   - [ConnectionAborted] if the peer closed its endpoint, died, or did not answer;
	//   - [Canceled] if this side called Flush or Close;
	//   - otherwise the status of the failed request, which was a request of either side.
	//
	// If the peer ended the connection and the provider knows the peer's reason, Err returns that
	// reason. Once the program has taken a failed result, Err is not nil. See also [Explain].
	Err() error

	// Done returns a channel that is closed when the endpoint leaves the connected state permanently.
	// The reason may be a failure, a Disconnect of either side, the peer's death, or a Flush or Close
	// of this side. Err is not nil then. The channel is closed even if the program does not poll,
	// wait or post a receive. Incomplete requests may complete later; Flush waits for them. While
	// the endpoint is not yet connected, the channel is open. Every call returns the same channel.
	Done() <-chan struct{}

	// Connector returns the [Connector] that connected the endpoint, and nil until the connection is
	// made. A program that did not create the connector itself needs it for Disconnect,
	// NotifyDisconnect and the addresses.
	Connector() Connector

	// Close flushes the endpoint, invalidates the windows that were bound on it, and releases it. If
	// the endpoint is connected, the peer's connection is aborted. The program may still take
	// results afterwards.
	//
	// Close may return while the peer copies data for a request that was posted here. The result of
	// that request then follows later, and its buffers belong to the request until then. To wait for the results,
	// call Flush before Close. Also, a peer's copy through an invalidated window may be in
	// progress when Close returns. No process accesses that memory through the window after the Close
	// of the window, or the Deregister or Close of its region, has returned.
	Close() error

	extensible // implemented by embedding UnsupportedEndpoint
}
