package softnd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/softnd/softnd/nd"
)

var roleDying = rankRole("dying", playDying)

// playDying lets ranks 2 and 3 die, and rank 1 leave. Rank 0 waits for the deaths.
func playDying(ctx context.Context, j *Job, _ int) error {
	if err := j.Barrier(ctx); err != nil {
		return err
	}
	switch j.Rank() {
	case 1:
		return j.Close()
	case 2, 3:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	var died []int
	for range 2 {
		rank, err := j.NextDeath(ctx)
		if err != nil {
			return err
		}
		died = append(died, rank)
	}
	slices.Sort(died)
	over, end := context.WithCancel(ctx)
	end()
	if rank, err := j.NextDeath(over); !errors.Is(err, nd.Canceled) {
		return fmt.Errorf("a third death: rank %d, %w", rank, err)
	}
	if err := j.Barrier(ctx); !errors.Is(err, nd.ConnectionAborted) {
		return fmt.Errorf("barrier without ranks 1 to 3: %w, want %v", err, nd.ConnectionAborted)
	}
	fmt.Println("died:", died)
	if err := j.Close(); err != nil {
		return err
	}
	if _, err := j.NextDeath(ctx); !errors.Is(err, nd.InvalidHandle) {
		return fmt.Errorf("after Close: %w, want %v", err, nd.InvalidHandle)
	}
	return nil
}

// NextDeath returns each rank that has died once, and no rank that has left.
func TestNextDeath(t *testing.T) {
	all := start(t, 4, roleDying, 0)
	all[2].WaitKilled()
	all[3].WaitKilled()
	all[1].Wait()
	all[0].Wait()
	if got := all[0].Out.String(); got != "died: [2 3]\n" {
		t.Errorf("%q", got)
	}
}
