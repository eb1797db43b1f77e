package ndc

/*
#include "softnd/softnd.h"
*/
import "C"

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/softnd/softnd/nd"
)

type queue struct {
	nd.UnsupportedCompletionQueue
	adapter *adapter
	c       *C.snd_cq
	closed  atomic.Bool
}

func (q *queue) isClosed() bool { return q.closed.Load() }

// nd.Result and snd_result have the same fields in the same order.
var _ = [1]struct{}{}[unsafe.Sizeof(nd.Result{})-C.sizeof_snd_result]

func (q *queue) Poll(results []nd.Result) int {
	if len(results) == 0 || q.isClosed() {
		return 0
	}
	return max(0, int(C.snd_cq_poll(q.c, (*C.snd_result)(unsafe.Pointer(&results[0])), C.uint32_t(len(results)))))
}

func (q *queue) Wait(ctx context.Context, results []nd.Result) (int, error) {
	const op = "wait"
	if len(results) == 0 {
		return 0, refuse(op, nd.InvalidParameter, "results is empty")
	}
	if q.isClosed() {
		return 0, refuse(op, nd.Canceled, "the queue is closed")
	}
	if n := q.Poll(results); n > 0 {
		return n, nil
	}
	var n C.uint32_t
	err := repeat(ctx, op, func(timeout C.int64_t) C.snd_status {
		return C.snd_cq_wait(q.c, (*C.snd_result)(unsafe.Pointer(&results[0])), C.uint32_t(len(results)), timeout, &n)
	})
	return int(n), q.ended(op, err)
}

// ended makes the error of a call on a queue that was closed meanwhile.
func (q *queue) ended(op string, err error) error {
	if nd.StatusOf(err) == nd.InvalidHandle {
		return refuse(op, nd.Canceled, "the queue was closed")
	}
	return err
}

func (q *queue) Notify(ctx context.Context, t nd.NotifyType) error {
	const op = "notify"
	if q.isClosed() {
		return refuse(op, nd.Canceled, "the queue is closed")
	}
	err := repeat(ctx, op, func(timeout C.int64_t) C.snd_status { return C.snd_cq_notify(q.c, C.uint32_t(t), timeout) })
	return q.ended(op, err)
}

func (q *queue) EventFD() (int, error) {
	var fd C.int
	if q.isClosed() {
		return -1, refuse("get event descriptor", nd.InvalidHandle, "the queue is closed")
	}
	err := status("get event descriptor", func() C.snd_status { return C.snd_cq_event_fd(q.c, &fd) })
	return int(fd), err
}

func (q *queue) Resize(depth int) error {
	if depth < 0 {
		depth = 0 // which is no depth either: the parameter in C is unsigned
	}
	return status("resize", func() C.snd_status { return C.snd_cq_resize(q.c, C.uint32_t(depth)) })
}

func (q *queue) NotifyAffinity() (uint16, uint64, error) {
	var group C.uint16_t
	var mask C.uint64_t
	err := status("get notify affinity", func() C.snd_status { return C.snd_cq_notify_affinity(q.c, &group, &mask) })
	return uint16(group), uint64(mask), err
}

func (q *queue) ModerateInterrupts(interval time.Duration, count int) error {
	const op = "moderate interrupts"
	if interval < 0 && count < 0 { // C has one status for all arguments
		return refuse(op, nd.InvalidParameterMix, "")
	}
	return status(op, func() C.snd_status { return C.snd_cq_moderate(q.c, C.int64_t(interval), C.int32_t(count)) })
}

func (q *queue) Close() error {
	if q.closed.Swap(true) {
		return nil
	}
	return status("close", func() C.snd_status { return C.snd_cq_close(q.c) })
}
