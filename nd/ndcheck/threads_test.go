//go:build linux

package ndcheck_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/softndtest"
)

// TestManyThreads has several goroutines that post on their endpoints, with shared queues, silent requests and a shared
// receive queue. Others take the results.
func TestManyThreads(t *testing.T) {
	journal, err := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := softnd.WithChecker(ndcheck.Options{Journal: journal, Report: func(f ndcheck.Finding) { t.Error(f) }})
	softndtest.Run(t, 2, func(ctx context.Context, job *softnd.Job) error {
		ctx, cancel := context.WithTimeout(ctx, watchdog)
		defer cancel()
		return postMany(ctx, job)
	}, check)
}

const (
	posters  = 4
	messages = 300
	slot     = 64
)

// poster is one connection of postMany.
type poster struct {
	ep   nd.Endpoint
	free chan int // slots whose messages are complete
	to   nd.WindowDescriptor
}

func postMany(ctx context.Context, job *softnd.Job) error {
	a := job.Adapter()
	mr, err := a.Allocate(ctx, 4*posters*8*slot, nd.AllowLocalWrite|nd.AllowRemoteWrite)
	if err != nil {
		return err
	}
	q, err := a.CreateCompletionQueue(ctx, 1024)
	if err != nil {
		return err
	}
	if m, ok := q.(nd.InterruptModerator); ok {
		if err := m.ModerateInterrupts(time.Millisecond, 8); err != nil && !errors.Is(err, nd.NotSupported) {
			return err
		}
	}
	shared, err := a.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{})
	if err != nil {
		return err
	}
	receiveAt := func(i int) nd.SGL { return nd.One(nd.SGEOf(mr, (posters*8+i)*slot, slot)) }
	for i := range 2 * posters * 8 {
		if err := shared.Receive(uint64(1000+i), receiveAt(i)); err != nil {
			return err
		}
	}
	all, err := job.ExchangeWindows(ctx, nd.DescriptorOf(mr))
	if err != nil {
		return err
	}
	list := make([]*poster, posters)
	for i := range list {
		ep, err := job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, SharedReceive: shared, Context: uint64(i)})
		if err != nil {
			return err
		}
		p := &poster{ep: ep, free: make(chan int, 8)}
		if p.to, err = all[1-job.Rank()].Slice((3*posters*8+i*8)*slot, 8*slot); err != nil {
			return err
		}
		for k := range 8 {
			p.free <- k
		}
		list[i] = p
	}
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var work, posting sync.WaitGroup
	received := make(chan struct{}, 2*posters*messages)
	stop, end := context.WithCancel(ctx)
	for range 3 { // takers
		work.Go(func() {
			var results [5]nd.Result
			for {
				n, err := q.Wait(stop, results[:])
				if err != nil {
					if stop.Err() == nil {
						fail(err)
					}
					return
				}
				for _, r := range results[:n] {
					p := list[r.EndpointContext]
					switch {
					case r.Status != nd.Success:
						fail(nd.Explain(p.ep, r))
					case r.RequestType == nd.RequestReceive:
						i := int(r.RequestContext - 1000)
						clear(receiveAt(i).First.Buffer)
						if err := shared.Receive(r.RequestContext, receiveAt(i)); err != nil {
							fail(err)
						}
						received <- struct{}{}
					default: // it completes the silent Write before it, too
						k := int(r.RequestContext)
						mr.Bytes()[(int(r.EndpointContext)*8+k)*slot]++
						p.free <- k
					}
				}
			}
		})
	}
	for i, p := range list {
		posting.Go(func() {
			for range messages {
				var k int
				select {
				case k = <-p.free:
				case <-ctx.Done():
					return
				}
				sge := nd.One(nd.SGEOf(mr, (i*8+k)*slot, slot))
				to, err := p.to.Slice(k*slot, slot)
				if err == nil {
					err = nd.WriteTo(p.ep, uint64(k), sge, to, nd.SilentSuccess)
				}
				if err == nil {
					err = p.ep.Send(uint64(k), sge, 0)
				}
				if err != nil {
					fail(err)
					return
				}
			}
		})
	}
	for range posters * messages {
		select {
		case <-received:
		case <-ctx.Done():
			end()
			work.Wait()
			return context.Cause(ctx)
		}
	}
	posting.Wait()
	for _, p := range list {
		for range 8 {
			<-p.free
		}
	}
	err = job.Barrier(ctx)
	end()
	work.Wait()
	return err
}
