package softnd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

// A barrier ends for a rank when all ranks have entered it, and not before.
func TestBarrierWaitsForAllRanks(t *testing.T) {
	t.Parallel()
	for _, ranks := range []int{1, 2, 3, 8} {
		t.Run(strconv.Itoa(ranks), func(t *testing.T) {
			rounds := 200
			if testing.Short() {
				rounds = 50
			}
			for _, r := range ranktest.Start(t, ranks, ranktest.RoleRounds, rounds) {
				r.Wait()
				if got := strings.TrimSpace(r.Out.String()); got != strconv.Itoa(rounds) {
					t.Errorf("%q rounds, want %d", got, rounds)
				}
			}
		})
	}
}

// A barrier ends with an error when a rank dies before, in, or after it.
func TestBarrierFailsAfterDeathOfARank(t *testing.T) {
	for _, ranks := range []int{2, 5} {
		for range 3 {
			all := ranktest.Start(t, ranks, ranktest.RoleVictim, 10)
			// First, so that the process is reaped and no zombie stays.
			all[ranks-1].WaitKilled()
			for _, r := range all[:ranks-1] {
				r.Wait()
				if got := r.Out.String(); !strings.Contains(got, "has died or left") {
					t.Errorf("the error is %q", got)
				}
			}
		}
	}
}

var roleClosing = ranktest.Role("closing", runClosing)

// runClosing closes the job of rank 0 while it is in a barrier.
func runClosing(ctx context.Context, j *softnd.Job, pause int) error {
	want := nd.ConnectionAborted
	switch j.Rank() {
	case 0:
		want = nd.Canceled
		time.AfterFunc(time.Duration(pause)*time.Microsecond, func() { j.Close() })
	case 1:
		<-ctx.Done() // is never in the barrier; killed by the test
	}
	if err := j.Barrier(ctx); !errors.Is(err, want) && !errors.Is(err, nd.InvalidHandle) {
		return fmt.Errorf("%w, want %v", err, want)
	}
	return nil
}

// Close ends a barrier of its rank, whether that spins or sleeps. The barriers of other ranks fail.
func TestCloseEndsBarrier(t *testing.T) {
	for _, pause := range []int{0, 50, 1000, 50_000} {
		all := ranktest.Start(t, 3, roleClosing, pause)
		all[0].Wait()
		all[2].Wait()
	}
}

var roleCrossed = ranktest.Role("crossed", runCrossed)

// runCrossed has rank 0 in a barrier while the others exchange something.
func runCrossed(ctx context.Context, j *softnd.Job, _ int) error {
	for range 2 {
		if _, err := j.Exchange(ctx, []byte{byte(j.Rank())}); err != nil {
			return err
		}
	}
	if j.Rank() == 0 {
		if err := j.Barrier(ctx); !errors.Is(err, nd.InvalidDeviceState) || !strings.Contains(err.Error(), "rank 1 makes another collective call") {
			return fmt.Errorf("the barrier: %w, want %v", err, nd.InvalidDeviceState)
		}
		return nil
	}
	all, err := j.Exchange(ctx, []byte("x"))
	if !errors.Is(err, nd.InvalidDeviceState) || !strings.Contains(err.Error(), "rank 0 makes another collective call") {
		return fmt.Errorf("%q, %w, want %v", all, err, nd.InvalidDeviceState)
	}
	if err := j.Barrier(ctx); !errors.Is(err, nd.InvalidDeviceState) {
		return fmt.Errorf("a barrier after that: %w, want %v", err, nd.InvalidDeviceState)
	}
	return nil
}

// An exchange fails, and returns no old bytes, if a rank calls Barrier instead. So does the barrier.
func TestExchangeAgainstABarrierFails(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		for _, r := range ranktest.Start(t, ranks, roleCrossed, 0) {
			r.Wait()
		}
	}
}

var roleTimed = ranktest.Role("timed", runTimed)

// runTimed prints the time of n barriers, in nanoseconds.
func runTimed(ctx context.Context, j *softnd.Job, n int) error {
	if j.Size() <= runtime.NumCPU() {
		runtime.LockOSThread()
		var one unix.CPUSet
		one.Set(j.Rank())
		_ = unix.SchedSetaffinity(0, &one) // where that core is not ours, the figure is less steady
	}
	var began time.Time
	for i := range 1000 + n {
		if i == 1000 {
			began = time.Now()
		}
		if err := j.Barrier(ctx); err != nil {
			return err
		}
	}
	fmt.Println(time.Since(began).Nanoseconds())
	return nil
}

func BenchmarkBarrier(b *testing.B) {
	for _, ranks := range []int{2, 8, 16} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			var ns int64
			for i, r := range ranktest.Start(b, ranks, roleTimed, b.N) {
				r.Wait()
				if i == 0 {
					if _, err := fmt.Sscan(r.Out.String(), &ns); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(ns)/float64(b.N), "ns/op")
		})
	}
}

// A collective call whose time is over says what it has waited for.
func TestLateRankIsReported(t *testing.T) {
	ended := make(chan struct{}) // until then, rank 1 does not leave
	softndtest.Run(t, 2, func(ctx context.Context, job *softnd.Job) error {
		if job.Rank() == 1 {
			<-ended
			return nil
		}
		defer close(ended)
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if err := job.Barrier(short); !errors.Is(err, nd.Canceled) || !strings.Contains(err.Error(), "nd: barrier on job: not all ranks have arrived") {
			return fmt.Errorf("barrier returns %w", err)
		}
		return nil
	})
}

// Blobs that are longer than the limit fail the exchange in all ranks. Later collective calls work.
func TestExchangeLimitFailsAllRanks(t *testing.T) {
	const ranks, limit = 3, 1 << 20
	softndtest.Run(t, ranks, func(ctx context.Context, j *softnd.Job) error {
		for _, c := range []struct {
			sizes [ranks]int
			fails bool
		}{
			{[ranks]int{1, limit + 1, 1}, true},
			{[ranks]int{0, 0, limit}, false},
			{[ranks]int{limit / 2, limit / 2, 1}, true},
			{[ranks]int{1, 2, 3}, false},
		} {
			all, err := j.Exchange(ctx, make([]byte, c.sizes[j.Rank()]))
			if c.fails != errors.Is(err, nd.InvalidBufferSize) || c.fails != (err != nil) || c.fails != (all == nil) {
				t.Errorf("rank %d, sizes %v: %d blobs, %v", j.Rank(), c.sizes, len(all), err)
			}
			for i, b := range all {
				if len(b) != c.sizes[i] {
					t.Errorf("rank %d, sizes %v: rank %d has %d", j.Rank(), c.sizes, i, len(b))
				}
			}
		}
		return j.Barrier(ctx)
	}, softnd.WithExchangeLimit(limit))
	if _, err := softnd.Join(t.Context(), "softnd-test-limit", 0, 1, softnd.WithExchangeLimit(0)); err == nil {
		t.Error("a limit of 0 bytes is taken")
	}
}

// A rank that announces more bytes than it has does not make the others copy them.
func TestExchangeDoesNotCopyMoreThanTheLimit(t *testing.T) {
	softndtest.Run(t, 2, func(ctx context.Context, j *softnd.Job) error {
		if j.Rank() == 0 {
			_, err := j.Exchange(ctx, nil)
			if !errors.Is(err, nd.InvalidBufferSize) {
				return fmt.Errorf("exchange: %w, want %v", err, nd.InvalidBufferSize)
			}
			return nil
		}
		inside := jobaccess.Of(j)
		const defaultLimit = 256 << 20
		inside.Group.Publish(inside.Arena.Info().HeapStart, defaultLimit+1) // which it need not have
		for range 2 {
			ticket := inside.Group.Arrive()
			proctest.Eventually(t, "rank 0 arrives", func() bool { return inside.Group.Passed(ticket) })
		}
		return nil
	})
}

// A rank whose Exchange fails keeps its blob: another rank may still copy it, and succeed. Later calls allocate nothing.
func TestFailedExchangeKeepsBlob(t *testing.T) {
	const ranks, slow, fails = 3, 2, 0
	ctx := proctest.Context(t)
	jobs := softndtest.New(t, ranks)
	member := jobaccess.Of(jobs[fails]).Member
	failing, cancel := context.WithCancel(ctx)
	defer cancel()
	before := member.InUse()
	end := make(chan error, 2)
	go func() {
		_, err := jobs[fails].Exchange(failing, []byte("hello"))
		end <- err
	}()
	other := make(chan error, 1)
	go func() {
		_, err := jobs[1].Exchange(ctx, []byte("hello"))
		other <- err
	}()
	// The slow rank makes the steps of Exchange: it publishes nothing, waits until all ranks have published, and copies.
	g, arena := jobaccess.Of(jobs[slow]).Group, jobaccess.Of(jobs[slow]).Arena
	g.Publish(0, 0)
	first := g.Arrive()
	proctest.Eventually(t, "all ranks have published", func() bool { return g.Passed(first) })
	proctest.Eventually(t, "the others wait at the end", func() bool { return arena.BarrierArrivals() == uint64(first)+ranks-1 })
	cancel()
	if err := proctest.Receive(t, "the exchange fails", end); !errors.Is(err, nd.Canceled) {
		t.Errorf("the exchange returns %v, want %v", err, nd.Canceled)
	}
	if b, err := g.Published(fails, 100); string(b) != "hello" || err != nil {
		t.Errorf("the slow rank copies %q, %v", b, err)
	}
	last := g.Arrive()
	if err := proctest.Receive(t, "the other exchange ends", other); err != nil || !g.Passed(last) {
		t.Errorf("the other rank's exchange returns %v", err)
	}
	kept := member.InUse()
	if kept == before {
		t.Error("the blob is free")
	}
	if _, err := jobs[fails].Exchange(ctx, []byte("hello")); !errors.Is(err, nd.InvalidDeviceState) || member.InUse() != kept {
		t.Errorf("a later exchange returns %v, and %d bytes are in use, %d before", err, member.InUse(), kept)
	}
}
