package ranks

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
)

// adders are the ranks that add to a number of rank 0, which adds with instructions of the processor.
const adders = 4

var roleAdds = ranktest.Role("adds", runAdds)

// runAdds adds 1 to a number that each rank reaches, n times, and a hundredth as often to one in private memory, which
// rank 0 changes for the others.
func runAdds(ctx context.Context, j *softnd.Job, n int) error {
	cq, err := j.Adapter().CreateCompletionQueue(ctx, 1024)
	if err != nil {
		return err
	}
	endpoints, err := j.ConnectAll(ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq, InitiatorDepth: addsAtOnce, ReceiveDepth: 1})
	if err != nil {
		return err
	}
	for _, number := range []struct {
		private bool
		adds    int
	}{{false, n}, {true, n / 100}} {
		const rights = nd.AllowLocalWrite | nd.AllowRemoteAtomic
		memory := make([]byte, 4096)
		mr, err := j.Adapter().Register(ctx, memory, rights)
		if !number.private {
			mr, err = j.Adapter().Allocate(ctx, 4096, rights)
		}
		if err != nil {
			return err
		}
		all, err := j.ExchangeWindows(ctx, nd.DescriptorOf(mr))
		if err != nil {
			return err
		}
		words, err := nd.View[uint64](mr.Bytes())
		if err != nil {
			return err
		}
		var seen uint64 // sum of the old values
		if j.Rank() == 0 {
			for range number.adds {
				seen += atomic.AddUint64(&words[0], 1) - 1
			}
		} else if seen, err = addTo(ctx, endpoints[0], cq, mr, all[0], number.adds); err != nil {
			return err
		}
		sums, err := j.Exchange(ctx, binary.NativeEndian.AppendUint64(nil, seen))
		if err != nil {
			return err
		}
		total, got := uint64(adders+1)*uint64(number.adds), uint64(0)
		for _, b := range sums {
			got += binary.NativeEndian.Uint64(b)
		}
		if want := total * (total - 1) / 2; got != want {
			return fmt.Errorf("the old values of %d additions have the sum %d, want %d", total, got, want)
		}
		if sum := atomic.LoadUint64(&words[0]); j.Rank() == 0 && sum != total {
			return fmt.Errorf("%d additions have the sum %d", total, sum)
		}
	}
	return j.Barrier(ctx)
}

const addsAtOnce = 16

// addTo adds 1 to a number of the peer n times, and returns the sum of the old values, each of which is above the one before.
func addTo(ctx context.Context, ep nd.Endpoint, cq nd.CompletionQueue, mr nd.MemoryRegion, far nd.WindowDescriptor, n int) (sum uint64, err error) {
	var results [addsAtOnce]nd.Result
	last := uint64(0)
	for posted, done := 0, 0; done < n; {
		for ; posted < n && posted-done < addsAtOnce; posted++ {
			if err := ep.FetchAndAdd(uint64(posted), nd.SGEOf(mr, 64+posted%addsAtOnce*8, 8), far.Address, far.Token, 1, 0); err != nil {
				return 0, err
			}
		}
		taken, err := cq.Wait(ctx, results[:])
		if err != nil {
			return 0, err
		}
		for _, r := range results[:taken] {
			if err := r.Err(); err != nil {
				return 0, err
			}
			old := binary.NativeEndian.Uint64(mr.Bytes()[64+r.RequestContext%addsAtOnce*8:])
			if done > 0 && old <= last {
				return 0, fmt.Errorf("addition %d found %d, and the one before %d", r.RequestContext, old, last)
			}
			last, sum, done = old, sum+old, done+1
		}
	}
	return sum, nil
}

// No addition of four ranks and of the processor of the owner is lost. SOFTND_ATOMICS is how many there are.
func TestAtomicSum(t *testing.T) {
	n := scale.Of(5_000_000, 100_000_000)
	if testing.Short() {
		n /= 10
	}
	n = scale.Number(t, "SOFTND_ATOMICS", n)
	all := ranktest.Start(t, 1+adders, roleAdds, n/(1+adders))
	for _, r := range all {
		r.NoLimit()
	}
	for _, r := range all {
		r.Wait()
	}
}
