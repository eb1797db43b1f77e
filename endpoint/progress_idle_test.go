package endpoint

import (
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/shm"
)

// As many idle members as a job can have ranks, all in this process, and one member of another
// process that is killed. Its death is noticed. The log shows how long that takes, and at full scale the processor time of the idle
// members.
func TestManyIdleMembers(t *testing.T) {
	if !scale.IsFull() { // at full scale, only the idle members take processor time
		t.Parallel()
	}
	members, idle := scale.Of(128, shm.MaxRanks), time.Duration(scale.Of(1, 2))*time.Second
	arena := newArena(t)
	for range members - 1 {
		m, err := arena.Join(shm.NoRank)
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if err := m.Leave(); err != nil {
				t.Error(err)
			}
		}()
	}
	victim := newSide(t, arena, "victim", sideOptions{}, true)
	time.Sleep(2 * quietInterval) // until all housekeepers are quiet
	used := processorTime(t)
	time.Sleep(idle)
	if scale.IsFull() {
		t.Logf("%d idle members take %.2f %% of a core", members, 100*(processorTime(t)-used).Seconds()/idle.Seconds())
	}
	victim.process.kill()
	killed := time.Now()
	proctest.Eventually(t, "the death is counted", func() bool { return arena.Deaths() != 0 })
	t.Logf("the death is found within %v", time.Since(killed))
}
