package softnd

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// Blobs that are longer than the limit fail the exchange in all ranks. Later collective calls work.
func TestExchangeLimitFailsAllRanks(t *testing.T) {
	const ranks, limit = 3, 1 << 20
	ctx := proctest.Context(t)
	var done sync.WaitGroup
	for rank := range ranks {
		done.Go(func() {
			j, err := Join(ctx, fmt.Sprint("softnd-test-limit-", os.Getpid()), rank, ranks, WithExchangeLimit(limit))
			if err != nil {
				t.Error(err)
				return
			}
			defer j.Close()
			for _, c := range []struct {
				sizes [ranks]int
				fails bool
			}{
				{[ranks]int{1, limit + 1, 1}, true},
				{[ranks]int{0, 0, limit}, false},
				{[ranks]int{limit / 2, limit / 2, 1}, true},
				{[ranks]int{1, 2, 3}, false},
			} {
				all, err := j.Exchange(ctx, make([]byte, c.sizes[rank]))
				if c.fails != errors.Is(err, nd.InvalidBufferSize) || c.fails != (err != nil) || c.fails != (all == nil) {
					t.Errorf("rank %d, sizes %v: %d blobs, %v", rank, c.sizes, len(all), err)
				}
				for i, b := range all {
					if len(b) != c.sizes[i] {
						t.Errorf("rank %d, sizes %v: rank %d has %d", rank, c.sizes, i, len(b))
					}
				}
			}
			if err := j.Barrier(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if _, err := Join(ctx, "softnd-test-limit", 0, 1, WithExchangeLimit(0)); err == nil {
		t.Error("a limit of 0 bytes is taken")
	}
}

// A rank that announces more bytes than it has does not make the others copy them.
func TestExchangeDoesNotCopyMoreThanTheLimit(t *testing.T) {
	ctx := proctest.Context(t)
	const huge = defaultExchangeLimit + 1
	var done sync.WaitGroup
	for rank := range 2 {
		done.Go(func() {
			j, err := Join(ctx, fmt.Sprint("softnd-test-announce-", os.Getpid()), rank, 2)
			if err != nil {
				t.Error(err)
				return
			}
			defer j.Close()
			if err := func() error {
				if rank == 0 {
					_, err := j.Exchange(ctx, nil)
					if !errors.Is(err, nd.InvalidBufferSize) {
						return fmt.Errorf("exchange: %w, want %v", err, nd.InvalidBufferSize)
					}
					return nil
				}
				j.group.Publish(j.arena.Info().HeapStart, huge) // which it need not have
				if err := j.localBarrier(ctx, "exchange"); err != nil {
					return err
				}
				return j.localBarrier(ctx, "exchange")
			}(); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	done.Wait()
}
