// Lock protects a number in the memory of rank 0 with a ticket lock: each other rank takes a ticket with FetchAndAdd, and waits
// until it is served.
//
//	go run ./cmd/ndrun -n 4 ./examples/atomics/lock
package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const (
	rounds                = 200
	next, serving, shared = 0, 64, 128 // places in the memory of rank 0: two numbers of the lock, and the protected one
)

func main() {
	ctx := context.Background()
	job := softnd.Must(softnd.Init(ctx))
	softnd.Check(run(ctx, job))
	softnd.Check(job.Close())
}

func run(ctx context.Context, job *softnd.Job) error {
	const rights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
	mr, err := job.Adapter().Allocate(ctx, 4096, rights)
	if err != nil {
		return err
	}
	cq, err := job.Adapter().CreateCompletionQueue(ctx, 64*job.Size())
	if err != nil {
		return err
	}
	endpoints, err := job.ConnectAll(ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq, InitiatorDepth: 4, ReceiveDepth: 4})
	if err != nil {
		return err
	}
	windows, err := job.ExchangeWindows(ctx, nd.DescriptorOf(mr))
	if err != nil {
		return err
	}
	if job.Rank() > 0 {
		l := &lock{ctx, endpoints[0], cq, windows[0], nd.SGEOf(mr, 0, 8)}
		for range rounds {
			if err := l.increment(); err != nil {
				return err
			}
		}
	}
	if err := job.Barrier(ctx); err != nil || job.Rank() > 0 {
		return err
	}
	n, want := binary.NativeEndian.Uint64(mr.Bytes()[shared:]), uint64(rounds*(job.Size()-1))
	if n != want {
		return fmt.Errorf("the number is %d, want %d", n, want)
	}
	fmt.Printf("lock: %d increments, and none was lost\n", n)
	return nil
}

// lock is the lock of rank 0, as another rank sees it.
type lock struct {
	ctx  context.Context
	ep   nd.Endpoint
	cq   nd.CompletionQueue
	far  nd.WindowDescriptor
	word nd.SGE // own memory for one number
}

// increment adds 1 to the shared number with a Read and a Write, which only the lock makes safe.
func (l *lock) increment() error {
	ticket, err := l.add(next, 1)
	if err != nil {
		return err
	}
	for turn := ticket + 1; turn != ticket; {
		if turn, err = l.add(serving, 0); err != nil {
			return err
		}
	}
	if err := l.wait(l.ep.Read(0, nd.One(l.word), l.far.Address+shared, l.far.Token, 0)); err != nil {
		return err
	}
	binary.NativeEndian.PutUint64(l.word.Buffer, binary.NativeEndian.Uint64(l.word.Buffer)+1)
	if err := l.wait(l.ep.Write(0, nd.One(l.word), l.far.Address+shared, l.far.Token, 0)); err != nil {
		return err
	}
	_, err = l.add(serving, 1) // when the Write is complete: the next holder finds its bytes
	return err
}

// add adds n to a number of rank 0, and returns what it was before. With n = 0 it reads the number.
func (l *lock) add(at, n uint64) (old uint64, err error) {
	err = l.wait(l.ep.FetchAndAdd(0, l.word, l.far.Address+at, l.far.Token, n, 0))
	return binary.NativeEndian.Uint64(l.word.Buffer), err
}

// wait waits for the only outstanding request. err is the error of its post.
func (l *lock) wait(err error) error {
	if err == nil {
		_, err = nd.WaitOne(l.ctx, l.cq, l.ep)
	}
	return err
}
