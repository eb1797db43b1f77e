// Queue passes numbers from many producers to one consumer, rank 0, through a bounded queue in its memory. A producer takes a
// ticket with FetchAndAdd, waits until its slot is free, and fills it with WriteImmediate. The immediate data is the ticket.
//
//	go run ./cmd/ndrun -n 4 ./examples/atomics/queue
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const (
	items             = 500 // of each producer
	slots             = 8
	tail, head, first = 0, 64, 128 // places in the memory of rank 0: tickets taken, slots consumed, the slots
)

func main() {
	ctx := context.Background()
	job := softnd.Must(softnd.Init(ctx))
	softnd.Check(run(ctx, job))
	softnd.Check(job.Close())
}

func run(ctx context.Context, job *softnd.Job) error {
	adapter := job.Adapter()
	mr, err := adapter.Allocate(ctx, 4096, nd.AllowLocalWrite|nd.AllowRemoteWrite|nd.AllowRemoteAtomic)
	if err != nil {
		return err
	}
	cq, err := adapter.CreateCompletionQueue(ctx, 64*job.Size())
	if err != nil {
		return err
	}
	srq, err := adapter.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{Depth: slots}) // one Receive for each slot that is free
	if err != nil {
		return err
	}
	for range slots {
		if err := srq.Receive(0, nd.SGL{}); err != nil {
			return err
		}
	}
	endpoints, err := job.ConnectAll(ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq, SharedReceive: srq, InitiatorDepth: 4})
	if err != nil {
		return err
	}
	windows, err := job.ExchangeWindows(ctx, nd.DescriptorOf(mr))
	if err != nil {
		return err
	}
	if job.Rank() == 0 {
		err = consume(ctx, mr, cq, srq, items*uint64(job.Size()-1))
	} else {
		err = produce(ctx, mr, cq, endpoints[0], windows[0])
	}
	return errors.Join(err, job.Barrier(ctx))
}

// consume takes n numbers out of the queue, in the order of their tickets.
func consume(ctx context.Context, mr nd.MemoryRegion, cq nd.CompletionQueue, srq nd.SharedReceiveQueue, n uint64) error {
	words, err := nd.View[uint64](mr.Bytes()) // for instructions that are atomic with the requests of other ranks
	if err != nil {
		return err
	}
	var isFull [slots]bool
	sum := uint64(0)
	for ticket := uint64(0); ticket < n; {
		r, err := nd.WaitOne(ctx, cq, nil)
		if err != nil {
			return err
		}
		filled, _ := r.Immediate()
		isFull[filled%slots] = true // a later ticket can arrive first
		for ; isFull[ticket%slots]; ticket++ {
			isFull[ticket%slots] = false
			sum += binary.NativeEndian.Uint64(mr.Bytes()[first+8*(ticket%slots):])
			if err := srq.Receive(0, nd.SGL{}); err != nil {
				return err
			}
			atomic.StoreUint64(&words[head/8], ticket+1) // frees the slot
		}
	}
	if want := n * (items + 1) / 2; sum != want {
		return fmt.Errorf("the sum is %d, want %d", sum, want)
	}
	fmt.Printf("queue: %d numbers arrived\n", n)
	return nil
}

// produce puts the numbers from 1 to items into the queue.
func produce(ctx context.Context, mr nd.MemoryRegion, cq nd.CompletionQueue, ep nd.Endpoint, far nd.WindowDescriptor) error {
	old, item := nd.SGEOf(mr, 0, 8), nd.SGEOf(mr, 64, 8)
	add := func(at, n uint64) (uint64, error) {
		err := ep.FetchAndAdd(0, old, far.Address+at, far.Token, n, 0)
		if err == nil {
			_, err = nd.WaitOne(ctx, cq, ep)
		}
		return binary.NativeEndian.Uint64(old.Buffer), err
	}
	for i := range uint64(items) {
		ticket, err := add(tail, 1)
		for consumed := uint64(0); err == nil && consumed+slots <= ticket; {
			consumed, err = add(head, 0)
		}
		if err != nil {
			return err
		}
		binary.NativeEndian.PutUint64(item.Buffer, i+1)
		if err := ep.WriteImmediate(0, nd.One(item), far.Address+first+8*(ticket%slots), far.Token, uint32(ticket), 0); err != nil {
			return err
		}
		if _, err := nd.WaitOne(ctx, cq, ep); err != nil {
			return err
		}
	}
	return nil
}
