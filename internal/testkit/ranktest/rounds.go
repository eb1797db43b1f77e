package ranktest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/softnd/softnd"
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

// Round is a few barriers, and an exchange in which all ranks must be at the same round.
func Round(ctx context.Context, j *softnd.Job, n int) error {
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

// RoleRounds plays as many rounds as its argument says, and prints that number.
var RoleRounds = Role("rounds", runRounds)

func runRounds(ctx context.Context, j *softnd.Job, rounds int) error {
	for n := range rounds {
		if err := Round(ctx, j, n); err != nil {
			return err
		}
	}
	fmt.Println(rounds)
	return nil
}

// RoleVictim plays rounds until the last rank dies in the one that its argument names. The others print the error.
var RoleVictim = Role("victim", runVictim)

func runVictim(ctx context.Context, j *softnd.Job, last int) error {
	victim := j.Size() - 1
	for n := range last + 10 {
		if j.Rank() == victim && n == last {
			time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		}
		err := Round(ctx, j, n)
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
