package nd

import (
	"context"
	"time"
)

// CompletionQueue collects the results of work requests, from one queue of an endpoint or from many.
// The functions [WaitOne] and [Results] take results one by one.
//
// Entries of an endpoint's initiator queue are in the order of posting, and so are those of its
// receive queue. There is no order between the two queues, or between endpoints. After an endpoint
// is closed, its entries may still arrive.
//
// A provider has room for at least the depth asked for, and should have twice as much, because
// existing programs use more entries than they ask for. If there is no room for an entry, the queue is
// broken permanently: its endpoints fail, no further entry arrives, and Notify and Wait return
// [BufferOverflow]. Entries that arrived before can still be taken. A program that takes its
// results in time loses none.
// Source: NetworkDirect IND2CompletionQueue, NDK_CQ.
type CompletionQueue interface {
	// Poll takes up to len(results) entries, oldest first, and returns their number. It never
	// blocks. If the number is below len(results), the queue was empty at that moment.
	// Source: IND2CompletionQueue::GetResults, NdkGetCqResultsEx.
	Poll(results []Result) int

	// Wait is like Poll, but blocks until there is at least one entry. Several goroutines may wait;
	// each entry goes to one of them.
	//
	// Errors, each with 0 entries: [Canceled] when ctx ends or the queue is closed;
	// [BufferOverflow] or [InternalError] when the queue is broken and empty;
	// [InvalidParameter] for empty results.
	Wait(ctx context.Context, results []Result) (int, error)

	// Notify blocks until an entry that satisfies t is queued, and takes no entry. The entry ends
	// all Notify calls that are waiting. A later call considers only newer entries, and
	// returns at once if one that satisfies t is already queued. So a program misses
	// no entry that arrives between its last Poll and this call. Calls that wait at the same time
	// all wait for the widest of their types, see [NotifyType.Combine].
	//
	// The usual loop is: Poll until it returns fewer entries than asked for, Notify, Poll again.
	//
	// Errors: [Canceled] when ctx ends (this call only) or the queue is closed (all calls, oldest
	// first); [BufferOverflow] after an overrun; [InternalError] when the queue is broken otherwise;
	// [InvalidParameter1] for an unknown t.
	// Source: IND2CompletionQueue::Notify, NdkArmCq.
	Notify(ctx context.Context, t NotifyType) error

	// EventFD returns a file descriptor that becomes readable when an entry is queued, for programs
	// that wait in poll or epoll. After it has become readable, read it, then Poll until the queue
	// is empty, then wait again. The descriptor belongs to the queue: do not close it, and do not
	// use it after Close. Every call returns the same one.
	//
	// Errors: [NotSupported]; [InsufficientResources] when no descriptor is left.
	EventFD() (int, error)

	// Resize changes the depth. The queue may be in use, and loses no entry.
	//
	// Errors: [BufferOverflow] when more than depth entries are stored; [InvalidParameter] for a
	// depth out of range; [NotSupported] without [CQResizeSupported]. The depth is unchanged
	// after each. Source: IND2CompletionQueue::Resize, NdkResizeCq.
	Resize(depth int) error

	// NotifyAffinity returns the processors that serve notifications, as a processor group and a
	// mask in it. Errors: [NotSupported].
	// Source: IND2CompletionQueue::GetNotifyAffinity.
	NotifyAffinity() (group uint16, mask uint64, err error)

	// Close ends waiting calls with [Canceled] and drops entries that were not taken. The queue
	// itself is released when the last endpoint that uses it is closed.
	Close() error
}

// InterruptModerator is implemented by completion queues of adapters with
// [InterruptModerationSupported].
type InterruptModerator interface {
	// ModerateInterrupts delays events until count entries have arrived, or the oldest entry is as
	// old as interval. A negative value disables that condition. A failed entry raises its event at
	// once, together with the events that were delayed.
	//
	// Errors: [InvalidParameterMix] when both are negative.
	// Source: NdkControlCqInterruptModeration.
	ModerateInterrupts(interval time.Duration, count int) error
}

// SharedReceiveQueue holds receives for several endpoints. Each message takes the oldest receive,
// and the result goes to the completion queue for receives of the endpoint that got the message. A
// message that arrives while the queue is empty waits without limit; its connection stays up.
//
// A receive of this queue is outstanding only until a message takes it. When an endpoint of the
// queue fails, is flushed or closed, a receive that one of its messages has taken completes there
// like any other. Outstanding receives stay for the other endpoints. The queue itself has no
// results: a receive that no message takes gets none.
// Source: NetworkDirect IND2SharedReceiveQueue, NDK_SRQ.
type SharedReceiveQueue interface {
	// Receive posts a receive; no endpoint needs to be connected. sge is as for [Endpoint.Receive].
	//
	// Errors: [NoMoreEntries] when Depth receives are outstanding; [DataOverrun] for too many
	// entries; [BufferOverflow] for more than MaxTransferLength bytes; [InvalidHandle] after
	// Close. Nothing is queued then.
	// Source: IND2SharedReceiveQueue::Receive, NdkSrqReceive.
	Receive(reqCtx uint64, sge []SGE) error

	// Notify blocks until fewer receives are outstanding than the threshold, and returns at once if
	// there are fewer already. One event ends all waiting calls, even if receives are posted before
	// the waiting goroutines run. With a threshold of 0 there are no events.
	//
	// Errors: [Canceled] when ctx ends or the queue is closed; [Unsuccessful] when the queue is
	// broken. Source: IND2SharedReceiveQueue::Notify.
	Notify(ctx context.Context) error

	// Modify changes depth and threshold. A value of 0 leaves it unchanged.
	//
	// Errors: [BufferOverflow] when more than depth receives are outstanding; [InvalidParameter]
	// for values out of range, and for a threshold above the depth; [InvalidHandle] after Close.
	// Nothing changes then.
	// Source: IND2SharedReceiveQueue::Modify, NdkModifySrq.
	Modify(depth, threshold int) error

	// NotifyAffinity is as for [CompletionQueue].
	// Source: IND2SharedReceiveQueue::GetNotifyAffinity.
	NotifyAffinity() (group uint16, mask uint64, err error)

	// Close ends waiting calls with [Canceled] and refuses further receives. The queue itself is
	// released when the last endpoint that uses it is closed.
	Close() error
}
