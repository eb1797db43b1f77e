package ndc

/*
#include "softnd/softnd.h"
static snd_status q_receive(snd_srq *q, uint64_t context, uintptr_t sge, uint32_t n) { return snd_srq_receive(q, context, (const snd_sge *)sge, n); }
*/
import "C"

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

type sharedQueue struct {
	nd.UnsupportedSharedReceiveQueue
	adapter *adapter
	c       *C.snd_srq
	closed  atomic.Bool
}

func (q *sharedQueue) isClosed() bool { return q.closed.Load() }

func (a *adapter) CreateSharedReceiveQueue(ctx context.Context, cfg nd.SharedReceiveQueueConfig) (nd.SharedReceiveQueue, error) {
	const op = "create shared receive queue"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	c := C.snd_srq_config{depth: C.uint32_t(cfg.Depth), max_sge: C.uint32_t(cfg.MaxSGE), threshold: C.uint32_t(cfg.Threshold)}
	q := &sharedQueue{adapter: a}
	return q, status(op, func() C.snd_status { return C.snd_srq_create(C.sizeof_snd_srq_config, a.c, &c, &q.c) })
}

func (q *sharedQueue) Receive(ctx uint64, sge nd.SGL) error {
	const op = "receive"
	if q.isClosed() {
		return refuse(op, nd.InvalidHandle, "the queue is closed")
	}
	list, at, n := elements(sge)
	defer runtime.KeepAlive(list)
	return status(op, func() C.snd_status { return C.q_receive(q.c, C.uint64_t(ctx), at, n) })
}

func (q *sharedQueue) Notify(ctx context.Context) error {
	const op = "notify"
	if q.isClosed() {
		return refuse(op, nd.Canceled, "the queue is closed")
	}
	err := repeat(ctx, op, func(timeout C.int64_t) C.snd_status { return C.snd_srq_notify(q.c, timeout) })
	if nd.StatusOf(err) == nd.InvalidHandle {
		return refuse(op, nd.Canceled, "the queue was closed")
	}
	return err
}

func (q *sharedQueue) Modify(depth, threshold int) error {
	const op = "modify"
	if q.isClosed() {
		return refuse(op, nd.InvalidHandle, "the queue is closed")
	}
	return status(op, func() C.snd_status { return C.snd_srq_modify(q.c, C.uint32_t(depth), C.uint32_t(threshold)) })
}

func (q *sharedQueue) NotifyAffinity() (uint16, uint64, error) {
	var group C.uint16_t
	var mask C.uint64_t
	err := status("get notify affinity", func() C.snd_status { return C.snd_srq_notify_affinity(q.c, &group, &mask) })
	return uint16(group), uint64(mask), err
}

func (q *sharedQueue) Close() error {
	if q.closed.Swap(true) {
		return nil
	}
	return status("close", func() C.snd_status { return C.snd_srq_close(q.c) })
}
