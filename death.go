package softnd

import (
	"context"
	"sync"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// deathWatch is what NextDeath has returned.
type deathWatch struct {
	mu        sync.Mutex
	returned  []uint64  // number of deaths of each rank of this host that NextDeath has returned, see shm.Arena.RankDeaths; guarded by mu
	deaths    uint64    // number of deaths at the last check of all ranks; guarded by mu
	checkedAt time.Time // time of that check; guarded by mu
}

// NextDeath blocks until a rank has died, and returns the rank. It returns each death once. If several ranks have died, it
// returns the lowest rank first. A rank has died if its process has ended without Job.Close. A rank that has called Close
// is no death. If another process becomes the rank, its death is another one.
//
// A launcher usually ends the job when a rank dies. The other ranks go on with ndrun --on-death continue, with srun -K0, and
// in jobs of [Join]. After a death, connections to the rank end, and collective calls fail. Any number of goroutines may call
// NextDeath at once; one of them gets the death. In a job on several hosts, which ends with the first death, NextDeath returns
// ranks of this host only.
//
// Errors:
//
//   - [nd.Canceled]: ctx has ended, or the job was closed during the call. If ctx has ended before the call, NextDeath still
//     returns a death that it finds at once.
//   - [nd.InvalidHandle]: the job is closed.
func (j *Job) NextDeath(ctx context.Context) (rank int, err error) {
	const op = "next death"
	if err := j.usable(op); err != nil {
		return 0, err
	}
	found := -1
	err = j.provider.WaitFor(ctx, statuspage.Call{Op: op}, func() bool {
		if found < 0 {
			found = j.newDeath()
		}
		return found >= 0
	})
	if found < 0 {
		return 0, endpoint.Canceled(ctx, err, op, "job")
	}
	return j.rankAt(found), nil
}

// newDeath returns a rank of this host that has died and was not returned yet, -1 if there is none. A death is not lost if another
// process takes the rank before the check: that process counts it. TWIN c/src/job/death.c.
func (j *Job) newDeath() int {
	w := &j.deathWatch
	w.mu.Lock()
	defer w.mu.Unlock()
	deaths, now := j.arena.Deaths(), time.Now()
	if w.returned == nil {
		w.returned = make([]uint64, j.arena.Ranks())
	} else if deaths == w.deaths && now.Sub(w.checkedAt) < checkInterval {
		return -1
	}
	for local, returned := range w.returned {
		if j.arena.RankDeaths(local) != returned {
			w.returned[local] = (returned + 1) & shm.MaxRankDeaths
			return local
		}
	}
	w.deaths, w.checkedAt = deaths, now
	return -1
}
