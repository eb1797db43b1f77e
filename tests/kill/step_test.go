//go:build failpoints

package kill

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/shm"
)

// The other side of the kill matrix: a process is in the middle of a step when its peer dies.

// usesPeer lists the steps in which an endpoint uses memory of its peer. That memory must not be reclaimed before the
// step has ended: it may be another process's then.
var usesPeer = []failpoint.Point{
	failpoint.EntryChecked, failpoint.ChunkCopied, failpoint.EntryRechecked, failpoint.HazardCleared,
	failpoint.SlotFilled, failpoint.SlotPublished, failpoint.SlotConsumed, failpoint.SlotsReleased, failpoint.CreditRefreshed,
	failpoint.FaultStatusStored, failpoint.FaultStored,
}

func TestKillInStepOfPeer(t *testing.T) {
	repeats, seed := kills(t)
	t.Cleanup(failpoint.Disarm)
	var report killReport
	defer report.log(t)
	for _, point := range pointsOf(failpoint.Job) {
		for _, executor := range executorsOf(seed + uint64(point)) {
			t.Run(fmt.Sprintf("%s/%s", point.Name(), executor), func(t *testing.T) {
				for i := range repeats {
					killInStep(t, point, executor, rand.New(rand.NewPCG(seed, uint64(i)<<32|uint64(point))), &report)
				}
			})
		}
	}
}

// stepTime is how long such a step takes after the peer's death: long enough for a hasty survivor.
const stepTime = 300 * time.Millisecond

// killInStep runs one job, whose survivors have connections with the victim only.
func killInStep(t *testing.T, point failpoint.Point, executor string, r *rand.Rand, report *killReport) {
	t.Helper()
	k := startKillJob(t, killRanks, executor, victimRank, roleVictim, string(bystander), fmt.Sprint(r.Uint64()), "")
	w := k.work(bystander, r)
	w.ended.Go(func() {
		for !k.isVictimDead() {
			k.joinAndLeaveOnce()
		}
	})
	k.victim.Expect("works")
	died, early := int64(0), false
	inStep := make(chan struct{})
	failpoint.ArmFunc(point, 1+r.Int64N(20), func() {
		defer func() {
			k.heldUntil = linux.HostClock()
			close(inStep)
		}()
		died = linux.HostClock()
		k.victim.Kill()
		for end := time.Now().Add(killLimit); !k.isVictimDead() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if slices.Contains(usesPeer, point) { // all survivors wait for this step, however long it takes
			for end := time.Now().Add(stepTime); !early && time.Now().Before(end); early = k.isReclaimed() {
				time.Sleep(time.Millisecond)
			}
		}
	})
	proctest.Receive(t, "a survivor is in the step, and the victim dies", inStep)
	failpoint.Disarm()
	if early {
		t.Error("the memory of the dead was reclaimed while a survivor used it")
	}
	w.mustEnd(died, report)
	w.meet(r)
	w.mustContinue()
	heir := k.mustReclaim()
	w.stop()
	w.count(report)
	heir.mustKeep(t)
	k.close()
	_ = k.victim.End()
}

// joinAndLeaveOnce lets a member come and go.
func (k *killJob) joinAndLeaveOnce() {
	m, err := k.arena.Join(shm.NoRank)
	if err != nil {
		k.t.Error(err)
		return
	}
	_, _ = m.Alloc(200_000)
	_, _ = m.ClaimWindowBlock()
	if err := m.Leave(); err != nil {
		k.t.Error(err)
	}
	time.Sleep(time.Millisecond)
}
