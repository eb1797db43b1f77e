package launcher

import (
	"os"
	"strings"
	"testing"

	"github.com/softnd/softnd/shm"
)

// The launcher does not import package shm, whose arenas hold the ranks of a job.
func TestRankLimitIsThatOfArenas(t *testing.T) {
	if maxRanks != shm.MaxRanks {
		t.Errorf("a job has up to %d ranks, an arena %d", maxRanks, shm.MaxRanks)
	}
}

// A prepared job that is not run leaves no process and no cgroup.
func TestCloseWithoutRun(t *testing.T) {
	for range 5 {
		p := Prepare(3)
		p.Close()
		p.Close()
	}
	if left, err := descendants(os.Getpid()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestRunFailsWithOtherRanksThanPrepared(t *testing.T) {
	p := Prepare(3)
	cfg := config("plan", 2)
	if r, err := p.Run(t.Context(), cfg); r != nil || err == nil || !strings.Contains(err.Error(), "2 ranks in Config, but 3 in the call of Prepare") {
		t.Errorf("%v, %v", r, err)
	}
	if left, err := descendants(os.Getpid()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
