package endpoint

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// raceMemory selects the memory in which runRace races.
const raceMemory = "SOFTND_TEST_RACE_MEMORY"

// exitRace is the exit status of a process in which the race detector has found a race.
const exitRace = 66

// TestRaceDetectorSeesRegisteredMemory states which memory the race detector watches: Go's heap,
// which a program can register, and not memory of Allocate.
func TestRaceDetectorSeesRegisteredMemory(t *testing.T) {
	for memory, want := range map[string]int{"allocated": 0, "registered": exitRace} {
		if !raceDetector {
			want = 0
		}
		cmd := proctest.Command(roleRace)
		cmd.Env = append(cmd.Env, raceMemory+"="+memory, "GORACE=exitcode=66")
		if got, _, errs := proctest.Run(t, cmd); got != want {
			t.Errorf("two goroutines that store to the same %s memory: exit status %d, want %d: %s", memory, got, want, errs)
		}
	}
}

var roleRace = proctest.Role("race", func(self *proctest.Self) error { return runRace(self.Ctx) })

// runRace accesses the same bytes of a region in two goroutines that do not synchronize. Each waits until the other has
// stored its byte: the race detector may miss a race with a goroutine that has ended.
func runRace(ctx context.Context) error {
	arena, err := shm.Create(shm.Config{Ranks: 1})
	if err != nil {
		return err
	}
	defer arena.Close()
	s, err := openSide(ctx, arena, sideOptions{})
	if err != nil {
		return err
	}
	defer s.leave()
	var mr nd.MemoryRegion
	switch memory := os.Getenv(raceMemory); memory {
	case "allocated":
		mr, err = s.adapter.Allocate(ctx, 4096, nd.AllowLocalWrite)
	case "registered":
		mr, err = s.adapter.Register(ctx, make([]byte, 4096), nd.AllowLocalWrite)
	default:
		err = fmt.Errorf("no memory %q", memory)
	}
	if err != nil {
		return err
	}
	defer mr.Close(ctx)
	var both sync.WaitGroup
	b := mr.Bytes()
	for mine := range 2 {
		both.Go(func() {
			for b[1-mine] == 0 {
				b[mine] = 1
				runtime.Gosched()
			}
			b[mine] = 1
		})
	}
	both.Wait()
	return nil
}
