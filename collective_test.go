package softnd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/nd"
)

// dawdle waits for a random time, most often none.
func dawdle() {
	switch k := rand.IntN(100); {
	case k < 60:
	case k < 80:
		runtime.Gosched()
	case k < 97:
		for end := time.Now().Add(time.Duration(rand.IntN(200)) * time.Microsecond); time.Now().Before(end); {
		}
	default:
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	}
}

// round is a few barriers, and an exchange in which all ranks must be at the same round.
func round(ctx context.Context, j *Job, n int) error {
	for range rand.N(3) {
		dawdle()
	}
	for range 3 {
		dawdle()
		if err := j.Barrier(ctx); err != nil {
			return err
		}
	}
	all, err := j.Exchange(ctx, binary.LittleEndian.AppendUint64(nil, uint64(n)))
	if err != nil {
		return err
	}
	for rank, b := range all {
		if got := binary.LittleEndian.Uint64(b); got != uint64(n) {
			return fmt.Errorf("rank %d is in round %d, this one in %d", rank, got, n)
		}
	}
	return nil
}

var roleRounds = rankRole("rounds", playRounds)

func playRounds(ctx context.Context, j *Job, rounds int) error {
	for n := range rounds {
		if err := round(ctx, j, n); err != nil {
			return err
		}
	}
	fmt.Println(rounds)
	return nil
}

// A barrier ends for a rank when all ranks have entered it, and not before.
func TestBarrierWaitsForAllRanks(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 8} {
		t.Run(strconv.Itoa(ranks), func(t *testing.T) {
			rounds := 200
			if testing.Short() {
				rounds = 50
			}
			for _, r := range start(t, ranks, roleRounds, rounds) {
				r.Wait()
				if got := strings.TrimSpace(r.Out.String()); got != strconv.Itoa(rounds) {
					t.Errorf("%q rounds, want %d", got, rounds)
				}
			}
		})
	}
}

var roleVictim = rankRole("victim", playVictim)

// playVictim plays rounds until the last rank dies in one of them.
func playVictim(ctx context.Context, j *Job, last int) error {
	victim := j.Size() - 1
	for n := range last + 10 {
		if j.Rank() == victim && n == last {
			time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		}
		err := round(ctx, j, n)
		if err == nil {
			continue
		}
		if !errors.Is(err, nd.ConnectionAborted) {
			return fmt.Errorf("round %d: %w, want %v", n, err, nd.ConnectionAborted)
		}
		if again := j.Barrier(ctx); !errors.Is(again, nd.InvalidDeviceState) {
			return fmt.Errorf("a barrier after that: %w, want %v", again, nd.InvalidDeviceState)
		}
		fmt.Println(err)
		return nil
	}
	if j.Rank() == victim {
		select {} // it dies soon
	}
	return errors.New("all rounds have been played")
}

// A barrier ends with an error when a rank dies before, in, or after it.
func TestBarrierFailsAfterDeathOfARank(t *testing.T) {
	for _, ranks := range []int{2, 5} {
		for range 3 {
			all := start(t, ranks, roleVictim, 10)
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

var roleClosing = rankRole("closing", playClosing)

// playClosing closes the job of rank 0 while it is in a barrier.
func playClosing(ctx context.Context, j *Job, pause int) error {
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
		all := start(t, 3, roleClosing, pause)
		all[0].Wait()
		all[2].Wait()
	}
}

var roleCrossed = rankRole("crossed", playCrossed)

// playCrossed has rank 0 in a barrier while the others exchange something.
func playCrossed(ctx context.Context, j *Job, _ int) error {
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
		for _, r := range start(t, ranks, roleCrossed, 0) {
			r.Wait()
		}
	}
}

var roleTimed = rankRole("timed", playTimed)

// playTimed prints the time of n barriers, in nanoseconds.
func playTimed(ctx context.Context, j *Job, n int) error {
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
			for i, r := range start(b, ranks, roleTimed, b.N) {
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
