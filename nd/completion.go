package nd

import (
	"context"
	"time"
)

// CompletionQueue collects the results of requests. One completion queue may serve several queues of
// several endpoints. The functions [WaitOne] and [Results] take results one by one.
//
// The results of an endpoint's initiator queue are in the order of posting. The results of its
// receive queue are in the order of posting too. There is no order between the two queues, or
// between endpoints. After an endpoint is closed, its last results may still arrive.
//
// A completion queue has room for at least as many results as the depth that the program asked for. A
// provider should make room for twice as many, because some existing programs ask for a smaller depth
// than they need. If there is no room for a result, the queue overruns, and is then broken permanently. Its
// endpoints fail, no further result arrives, and Notify and Wait fail with [BufferOverflow]. Results
// that arrived before the overrun can still be taken. If the program takes its results in time, the
// queue does not overrun.
// Source: NetworkDirect IND2CompletionQueue, NDK_CQ.
type CompletionQueue interface {
	// Poll takes up to len(results) results, oldest first. It stores them in results, and returns
	// their number. It never blocks. If it returns less than len(results), the queue was empty at that
	// moment.
	// Source: IND2CompletionQueue::GetResults, NdkGetCqResultsEx.
	Poll(results []Result) int

	// Wait is Poll, but blocks until it can take at least one result. Several goroutines may wait;
	// each result goes to one of them.
	//
	// Errors (Wait takes no result then):
	//
	//   - [Canceled]: ctx has ended, or the queue was closed.
	//   - [BufferOverflow]: the queue has overrun and is empty.
	//   - [InternalError]: the queue is broken for another reason and is empty.
	//   - [InvalidParameter]: results is empty.
	Wait(ctx context.Context, results []Result) (int, error)

	// Notify blocks until the queue has a new result of type t, and takes no result. A result is new
	// until a call of Notify has returned because of it. If the queue already has a new result of
	// type t, Notify returns at once. Therefore a program does not miss a result that arrives between
	// its last Poll and its Notify.
	//
	// Calls of Notify that wait at the same time all wait for the widest of their types: see
	// [NotifyType.Combine]. When a result of that type arrives, all of them return. After that, this
	// result and all earlier results are not new.
	//
	// The usual loop is: Poll until it returns less than len(results), Notify, Poll again.
	//
	// Errors:
	//
	//   - [Canceled]: ctx has ended, or the queue was closed. Close ends all calls, oldest first.
	//   - [BufferOverflow]: the queue has overrun.
	//   - [InternalError]: the queue is broken for another reason.
	//   - [InvalidParameter]: t is not a constant of NotifyType.
	//
	// Source: IND2CompletionQueue::Notify, NdkArmCq.
	Notify(ctx context.Context, t NotifyType) error

	// EventFD returns a file descriptor that becomes readable when a result is added to the queue.
	// Programs that wait in poll(2) or epoll_wait(2) use it. When the descriptor is readable, read from
	// it, call Poll until the queue is empty, and wait again. The descriptor belongs to the queue: do
	// not close it, and do not use it after Close. Every call returns the same descriptor.
	//
	// Errors: [NotSupported]; [InsufficientResources] if the process has no descriptor left.
	EventFD() (int, error)

	// Resize changes the depth. The queue may be in use, and loses no result.
	//
	// Errors (the depth is unchanged after each):
	//
	//   - [BufferOverflow]: the queue has more than depth results.
	//   - [InvalidParameter]: depth is out of range.
	//   - [NotSupported]: the adapter does not have [CQResizeSupported].
	//
	// Source: IND2CompletionQueue::Resize, NdkResizeCq.
	Resize(depth int) error

	// NotifyAffinity returns the processors that serve notifications: the number of a processor group,
	// and a mask of processors in this group. A group has 64 processors.
	//
	// Errors: [NotSupported].
	// Source: IND2CompletionQueue::GetNotifyAffinity.
	NotifyAffinity() (group uint16, mask uint64, err error)

	// Close ends waiting calls with [Canceled], and drops the results that were not taken. The queue
	// itself is released when the last endpoint that uses it is closed.
	Close() error

	extensible // implemented by embedding UnsupportedCompletionQueue
}

// InterruptModerator is an optional interface of completion queues. They implement it if the adapter
// has [InterruptModerationSupported].
type InterruptModerator interface {
	// ModerateInterrupts delays the events that end Notify and make EventFD readable. They are delayed
	// until count results have arrived, or the oldest of these results is as old as interval. If count
	// is negative, only interval limits the delay; if interval is negative, only count does. A failed
	// result raises its event at once, together with the delayed events.
	//
	// Errors: [InvalidParameterMix] if both are negative.
	// Source: NdkControlCqInterruptModeration.
	ModerateInterrupts(interval time.Duration, count int) error
}

// SharedReceiveQueue holds receives for several endpoints. Each message to one of these endpoints
// takes the oldest receive. The result of the receive goes to the [EndpointConfig].ReceiveCQ completion
// queue of that endpoint. A message that arrives while the queue is empty waits without limit, and
// its connection stays up.
//
// A receive of this queue is outstanding until a message takes it. If the endpoint of that message
// then fails, or is flushed or closed, the receive completes as a receive of the endpoint's own queue
// would. The receives that no message has taken stay in the queue for the other endpoints. A receive
// that no message ever takes has no result.
// Source: NetworkDirect IND2SharedReceiveQueue, NDK_SRQ.
type SharedReceiveQueue interface {
	// Receive posts a receive, also while no endpoint is connected. sge has the rules of
	// [Endpoint.Receive].
	//
	// Errors (nothing is queued then):
	//
	//   - [NoMoreEntries]: Depth receives are outstanding.
	//   - [DataOverrun]: sge has too many entries.
	//   - [BufferOverflow]: the buffers have more than MaxTransferLength bytes.
	//   - [InvalidHandle]: the queue is closed.
	//
	// Source: IND2SharedReceiveQueue::Receive, NdkSrqReceive.
	Receive(reqCtx uint64, sge SGL) error

	// Notify blocks until fewer receives are outstanding than the threshold. If there are already
	// fewer, it returns at once. When the number falls below the threshold, all waiting calls return,
	// even if receives are posted before the waiting goroutines run. If the threshold is 0, Notify
	// returns only with an error.
	//
	// Errors: [Canceled] if ctx ends or the queue is closed; [Unsuccessful] if the queue is broken.
	// Source: IND2SharedReceiveQueue::Notify.
	Notify(ctx context.Context) error

	// Modify changes the depth and the threshold. If an argument is 0, its value is unchanged.
	//
	// Errors (nothing changes then):
	//
	//   - [BufferOverflow]: more than depth receives are outstanding.
	//   - [InvalidParameter]: an argument is out of range, or the threshold is greater than the depth.
	//   - [InvalidHandle]: the queue is closed.
	//
	// Source: IND2SharedReceiveQueue::Modify, NdkModifySrq.
	Modify(depth, threshold int) error

	// NotifyAffinity returns the processors that serve notifications: see
	// [CompletionQueue.NotifyAffinity].
	// Source: IND2SharedReceiveQueue::GetNotifyAffinity.
	NotifyAffinity() (group uint16, mask uint64, err error)

	// Close ends waiting calls with [Canceled], and refuses further receives. The queue itself is
	// released when the last endpoint that uses it is closed.
	Close() error

	extensible // implemented by embedding UnsupportedSharedReceiveQueue
}
