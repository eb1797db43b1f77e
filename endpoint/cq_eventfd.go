package endpoint

// TWIN c/src/endpoint/cq_notify.c.

import (
	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/nd"
)

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
