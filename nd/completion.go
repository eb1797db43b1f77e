package nd

import (
	"context"
	"time"
)

// CompletionQueue collects the outcomes of work requests, of one endpoint queue or of many.
//
// Entries of one endpoint's initiator queue appear in the order of posting, those of its receive
// queue likewise; nothing orders the two queues or two endpoints. Entries of an endpoint that
// was closed may still turn up.
//
// A provider keeps room for the asked depth at least, and had better keep twice as much, since
// programs in the field ask for less than they use. An entry that finds no room breaks the
// queue for good: its endpoints fail, no further entry arrives, Notify and Wait return
// [BufferOverflow]; entries stored before stay readable. Results taken in time cannot be lost.
// Source: NetworkDirect IND2CompletionQueue, NDK_CQ.
type CompletionQueue interface {
	// Poll takes up to len(results) entries, oldest first, and returns their number. It never
	// blocks. A number below len(results) means that the queue was empty at that moment.
	// Source: IND2CompletionQueue::GetResults, NdkGetCqResultsEx.
	Poll(results []Result) int

	// Wait is Poll that blocks until there is at least one entry. Several goroutines may wait;
	// each entry goes to one of them.
	//
	// Errors, each with 0 entries: [Canceled] when ctx ends or the queue is closed;
	// [BufferOverflow] or [InternalError] when the queue is broken and empty;
	// [InvalidParameter] for empty results.
	Wait(ctx context.Context, results []Result) (int, error)

	// Notify blocks until an entry that satisfies t is queued, and takes no entry. It returns at
	// once if such an entry came after the last one that ended a Notify and has not been taken,
	// so nothing is missed between the last Poll and this call. One entry ends all Notify calls
	// that are waiting, and ends none a second time. Calls that wait together wait for the widest
	// of their types, see [NotifyType.Combine].
	//
	// The usual loop: Poll until it returns less than asked for, Notify, Poll again.
	//
	// Errors: [Canceled] when ctx ends (this call only) or the queue is closed (all calls, oldest
	// first); [BufferOverflow] after an overrun; [InternalError] after a breakdown;
	// [InvalidParameter1] for an unknown t.
	// Source: IND2CompletionQueue::Notify, NdkArmCq.
	Notify(ctx context.Context, t NotifyType) error

	// EventFD returns a descriptor that becomes readable when an entry is queued, for programs
	// that wait in poll or epoll. Read it empty first, then Poll until empty, then wait again.
	// It belongs to the queue: do not close it, and do not use it after Close. Every call returns
	// the same one.
	//
	// Errors: [NotSupported]; [InsufficientResources] when no descriptor is left.
	EventFD() (int, error)

	// Resize changes the depth, while in use, without losing entries.
	//
	// Errors: [BufferOverflow] when more than depth entries are stored; [InvalidParameter] for
	// depth out of range; [NotSupported] without [CQResizeSupported]. The depth is unchanged
	// after each. Source: IND2CompletionQueue::Resize, NdkResizeCq.
	Resize(depth int) error

	// NotifyAffinity returns the processors that serve notifications: a processor group and a
	// mask in it. Errors: [NotSupported].
	// Source: IND2CompletionQueue::GetNotifyAffinity.
	NotifyAffinity() (group uint16, mask uint64, err error)

	// Close ends waiting calls with [Canceled] and drops entries that were not taken. The queue
	// itself goes when the last endpoint that uses it is closed.
	Close() error
}

// InterruptModerator is implemented by completion queues of adapters that show
// [InterruptModerationSupported].
type InterruptModerator interface {
	// ModerateInterrupts lets events wait until count entries are there or the oldest is as old
	// as interval. A negative value leaves one of the two out. A failed entry makes its event at
	// once, and those that were held make theirs with it.
	//
	// Errors: [InvalidParameterMix] when both are left out.
	// Source: NdkControlCqInterruptModeration.
	ModerateInterrupts(interval time.Duration, count int) error
}

// SharedReceiveQueue holds receives for several endpoints; each message takes the oldest, and its
// completion goes to the receive queue of the endpoint that the message came in on. A message
// that finds the queue empty waits, without limit, and the connection lives on.
//
// A receive is outstanding until a message takes it. When an endpoint of the queue fails, is
// flushed or closed, a receive that a message of it has taken completes there like any other;
// those outstanding stay for the other endpoints. A queue has no results of its own: receives
// that no message takes get none.
// Source: NetworkDirect IND2SharedReceiveQueue, NDK_SRQ.
type SharedReceiveQueue interface {
	// Receive posts a receive; no endpoint needs to be connected. sge follows [Endpoint.Receive].
	//
	// Errors: [NoMoreEntries] when Depth receives are outstanding; [DataOverrun] for too many
	// entries; [BufferOverflow] for more than MaxTransferLength bytes; [InvalidHandle] after
	// Close. Nothing is queued then.
	// Source: IND2SharedReceiveQueue::Receive, NdkSrqReceive.
	Receive(reqCtx uint64, sge []SGE) error

	// Notify blocks until fewer receives are outstanding than the threshold says, and returns at
	// once if that is so already. One event ends all waiting calls, even if receives are posted
	// before they look. With a threshold of 0 there are no events.
	//
	// Errors: [Canceled] when ctx ends or the queue is closed; [Unsuccessful] when the queue is
	// broken. Source: IND2SharedReceiveQueue::Notify.
	Notify(ctx context.Context) error

	// Modify changes depth and threshold; 0 leaves a value alone.
	//
	// Errors: [BufferOverflow] when more than depth receives are outstanding; [InvalidParameter]
	// for values out of range, and for a threshold above the depth; [InvalidHandle] after Close.
	// Nothing is changed then.
	// Source: IND2SharedReceiveQueue::Modify, NdkModifySrq.
	Modify(depth, threshold int) error

	// NotifyAffinity is as for [CompletionQueue].
	// Source: IND2SharedReceiveQueue::GetNotifyAffinity.
	NotifyAffinity() (group uint16, mask uint64, err error)

	// Close ends waiting calls with [Canceled] and refuses further receives. The queue itself
	// goes when the last endpoint that uses it is closed.
	Close() error
}
