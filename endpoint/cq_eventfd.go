package endpoint

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/nd"
)

// descriptor lets a program wait for results in poll or epoll. It exists when
// it has been asked for. The queue's lock guards it, also against a write to a
// descriptor that has been closed.
type descriptor struct {
	fd int
	// signaled: written, and the queue not empty since. A program that polls
	// until the queue is empty needs no further write until then, because it
	// has read the descriptor before.
	signaled bool
}

const noDescriptor = -1

// one is what is added to an event descriptor.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// EventFD returns a descriptor that becomes readable when a result is queued,
// and when the queue overruns.
func (q *CompletionQueue) EventFD() (int, error) {
	const op = "get event descriptor"
	q.share()
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed || q.provider.sleep.shut.Load():
		return noDescriptor, q.fail(op, nd.InvalidHandle, "the queue or its provider is closed", "create another")
	case q.fd != noDescriptor:
		return q.fd, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return noDescriptor, &nd.OpError{Op: op, Object: "completion queue", Status: nd.InsufficientResources, Err: err, Next: "raise ulimit -n or use Wait"}
	}
	q.fd = fd
	q.provider.engine.loops.Add(1)
	q.provider.engine.nudge()
	if q.overrun || q.events()[nd.NotifyAny] > q.head.Load() {
		q.signal()
	}
	return fd, nil
}

// signal makes the descriptor readable, if there is one and it is not.
func (q *CompletionQueue) signal() {
	if q.fd != noDescriptor && (!q.signaled || q.overrun) {
		q.signaled = true
		_, _ = unix.Write(q.fd, one) // fails only when the count is full, and then it is readable
	}
}

// closeDescriptor closes it when the queue is closed and has no users any more.
func (q *CompletionQueue) closeDescriptor() {
	if q.closed && len(*q.users.Load()) == 0 && q.fd != noDescriptor {
		_ = unix.Close(q.fd)
		q.fd = noDescriptor
		q.provider.engine.loops.Add(-1)
	}
}
