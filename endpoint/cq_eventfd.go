package endpoint

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/nd"
)

// eventDescriptor lets a program wait for results in poll or epoll. It is created on the first
// call of EventFD. The queue's lock guards it, so that nothing writes to a closed descriptor.
type eventDescriptor struct {
	fd int
	// signaled: written, and the queue was not empty since. A program reads the descriptor and
	// then polls until the queue is empty. It needs no further write before that.
	signaled bool
}

const noDescriptor = -1

// eventIncrement is the value that a write adds to an event descriptor.
var eventIncrement = binary.NativeEndian.AppendUint64(nil, 1)

// EventFD returns a descriptor that becomes readable when a result is queued and when the queue
// overruns.
func (q *completionQueue) EventFD() (int, error) {
	const op = "get event descriptor"
	q.makeShared()
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed || q.provider.waiters.IsClosed():
		return noDescriptor, q.opError(op, nd.InvalidHandle, "the queue or its provider is closed", "create another")
	case q.fd != noDescriptor:
		return q.fd, nil
	}
	fd, err := linux.AboveStandard(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))
	if err != nil {
		return noDescriptor, &nd.OpError{Op: op, Object: "completion queue", Status: nd.InsufficientResources, Err: err, Next: "raise ulimit -n or use Wait"}
	}
	q.fd = fd
	q.provider.engine.eventLoops.Add(1)
	q.provider.engine.wake()
	if q.hasOverrun || q.eventsByType()[nd.NotifyAny] > q.head.Load() {
		q.signal()
	}
	return fd, nil
}

// signal makes the descriptor readable if it exists and is not readable yet.
func (q *completionQueue) signal() {
	if q.fd != noDescriptor && (!q.signaled || q.hasOverrun) {
		q.signaled = true
		_, _ = unix.Write(q.fd, eventIncrement) // fails only at the maximal count, when the descriptor is readable
	}
}

// closeDescriptor closes the descriptor if the queue is closed and no endpoint uses it.
func (q *completionQueue) closeDescriptor() {
	if q.closed && len(*q.endpoints.Load()) == 0 && q.fd != noDescriptor {
		_ = unix.Close(q.fd)
		q.fd = noDescriptor
		q.provider.engine.eventLoops.Add(-1)
	}
}
