//go:build failpoints

package kill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/internal/testkit/traffic"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Deaths while a job starts, in jobs of two ranks, and of ranks that make no progress; and ranks that are stopped.

var roleBarriers = proctest.Role("barriers", runBarriers)

// runBarriers calls Barrier again and again. The first argument is the point at which it dies after Init, the second
// says how often it must reach it. The point armed by the environment may come earlier.
func runBarriers(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx)
	if err != nil {
		return err
	}
	if len(s.Args) == 2 {
		point, _ := failpoint.Named(s.Args[0])
		n, err := strconv.ParseInt(s.Args[1], 10, 64)
		if err != nil {
			return err
		}
		failpoint.Arm(point, n, failpoint.Kill)
	}
	for {
		if err := j.Barrier(s.Ctx); err != nil {
			return err
		}
	}
}

// A rank dies while it joins the job. The others fail: either they learn of the death, or their context ends some time after it.
func TestKillAtStart(t *testing.T) {
	const ranks = 3
	repeats, _ := kills(t)
	points := append(pointsOf(failpoint.Start), failpoint.MemberLocked, failpoint.MemberTaken, failpoint.MemberCovered, failpoint.MemberFilled, failpoint.MemberLive, failpoint.LivenessRequested)
	for _, point := range points {
		t.Run(point.Name(), func(t *testing.T) {
			t.Parallel()
			victim := 1
			if point == failpoint.RankAdmitted { // rank 0 admits the others
				victim = 0
			}
			for range repeats {
				arena, err := shm.Create(shm.Config{Ranks: ranks})
				if err != nil {
					t.Fatal(err)
				}
				defer arena.Close()
				cmd := ranktest.Command(arena, roleBarriers, victim, ranks)
				cmd.Env = append(cmd.Env, failpoint.Env+"="+point.Name()+":1")
				isLast := point == failpoint.LivenessRequested // which a process reaches if there are others when it joins
				var p *proctest.Process
				if !isLast {
					p = proctest.Start(t, cmd)
				}
				ctx, cancel := context.WithCancel(proctest.Context(t))
				defer cancel()
				type end struct {
					job *softnd.Job
					err error
				}
				ends := make(chan end)
				for rank := range ranks {
					if rank == victim {
						continue
					}
					a, err := shm.Attach(ctx, arena.File())
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						job, err := jobaccess.Join(ctx, a, rank, true)
						j := job.(*softnd.Job)
						if err == nil { // the victim dies when it has admitted this rank, or later
							err = j.Barrier(ctx)
						}
						ends <- end{j, err}
					}()
				}
				if isLast {
					proctest.Eventually(t, "the other ranks have joined", func() bool { return arena.LiveMemberCount() == ranks-1 })
					p = proctest.Start(t, cmd)
				}
				p.WaitKilled()
				defer time.AfterFunc(4*time.Second, cancel).Stop()
				for range ranks - 1 {
					e := proctest.Receive(t, "Init returns", ends)
					defer e.job.Close() // when both have failed: the other error would name this rank
					if e.err == nil || !strings.Contains(e.err.Error(), fmt.Sprintf("rank %d", victim)) {
						t.Errorf("the error is %v, want one that names rank %d", e.err, victim)
					}
				}
			}
		})
	}
}

// roleCloses dies at the point that its argument names, while it leaves the job.
var roleCloses = proctest.Role("closes", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx)
	if err != nil {
		return err
	}
	if err := j.Barrier(s.Ctx); err != nil {
		return err
	}
	point, _ := failpoint.Named(s.Args[0])
	failpoint.Arm(point, 1, failpoint.Kill)
	return j.Close()
})

// A rank dies while it leaves the job. It has left then, and the barriers of the others fail.
func TestKillAtLeave(t *testing.T) {
	const victim = 1
	repeats, _ := kills(t)
	for _, point := range pointsOf(failpoint.Leave) {
		for _, executor := range []string{"auto", "target"} {
			t.Run(point.Name()+"/"+executor, func(t *testing.T) {
				for range repeats {
					k := startKillJob(t, 3, executor, victim, roleCloses, point.Name())
					k.mustAbort(victim)
					k.diesAt(point)
					if k.arena.HasDied(victim) {
						t.Error("a rank that has left counts as one that has died")
					}
					k.mustReclaim().mustKeep(t)
					k.close()
				}
			})
		}
	}
}

// One of two ranks dies in a barrier.
func TestKillPair(t *testing.T) {
	repeats, seed := kills(t)
	for _, point := range pointsOf(failpoint.Pair) {
		for victim := range 2 {
			t.Run(fmt.Sprintf("%s/rank %d", point.Name(), victim), func(t *testing.T) {
				for i := range repeats {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					k := startKillJob(t, 2, "auto", victim, roleBarriers, point.Name(), strconv.Itoa(1+r.IntN(50)))
					k.mustAbort(victim)
					k.diesAt(point)
					k.mustReclaim().mustKeep(t)
					k.close()
				}
			})
		}
	}
}

// A rank that makes no progress dies while it writes its status page, or answers an observer.
func TestKillIdle(t *testing.T) {
	const victim = 1
	repeats, seed := kills(t)
	for _, point := range pointsOf(failpoint.Idle) {
		t.Run(point.Name(), func(t *testing.T) {
			t.Parallel()
			for i := range repeats {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				k := startKillJob(t, 3, "auto", victim, roleBarriers, point.Name(), strconv.Itoa(1+r.IntN(3)))
				over := make(chan struct{})
				observed := make(chan error)
				go func() { observed <- k.observe(victim, over) }()
				k.diesAt(point)
				k.mustAbort(victim)
				close(over)
				if err := proctest.Receive(t, "the observer returns", observed); err != nil {
					t.Error(err)
				}
				k.mustReclaim().mustKeep(t)
				k.close()
			}
		})
	}
}

// observe reads a rank's status page and asks for its stacks until over is closed.
func (k *killJob) observe(rank int, over chan struct{}) error {
	id, _ := k.arena.MemberOf(rank)
	o, err := statuspage.Observe(k.arena, id)
	if err != nil {
		return err
	}
	for {
		request := o.RequestStacks()
		for range 50 {
			select {
			case <-over:
				return nil
			case <-time.After(time.Millisecond):
			}
			_, _, _ = o.Read() // fails if the rank dies while it writes
			if _, ok, _ := o.Stacks(request); ok {
				break
			}
		}
	}
}

// mustAbort checks that barriers of the survivors fail, and name the victim.
func (k *killJob) mustAbort(victim int) {
	k.t.Helper()
	errs := make(chan error)
	for _, j := range k.survivors {
		go func() {
			for {
				if err := j.Barrier(proctest.Context(k.t)); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range k.survivors {
		err := proctest.Receive(k.t, "a barrier fails", errs)
		if !errors.Is(err, nd.ConnectionAborted) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d", victim)) {
			k.t.Errorf("the barrier fails with %v, want %v and the name of rank %d", err, nd.ConnectionAborted, victim)
		}
	}
}

// A rank that is stopped in the middle of a step is not dead: no request fails because of that, and all go on when it
// continues. An owner that waits for its copy waits until then. The seed chooses some steps and executors. With SOFTND_KILLS, the
// rank stops in each step with each executor.
func TestStoppedIsNotDead(t *testing.T) {
	const sample, apart = 12, 11 // apart has no factor in common with the number of cases, so that they are different
	_, seed := kills(t)
	var report killReport
	defer report.log(t)
	points, executors := pointsOf(failpoint.Job), []string{"auto", "target"}
	all := len(points) * len(executors)
	n := sample
	if isTimed() {
		n = all
	}
	for i := range n {
		c := int((seed%uint64(all) + uint64(i*apart)) % uint64(all))
		point, executor := points[c/len(executors)], executors[c%len(executors)]
		t.Run(point.Name()+"/"+executor, func(t *testing.T) {
			stopAt(t, point, executor, rand.New(rand.NewPCG(seed, uint64(c))), &report)
		})
	}
}

// stopAt runs one job.
func stopAt(t *testing.T, point failpoint.Point, executor string, r *rand.Rand, report *killReport) {
	t.Helper()
	k := startKillJob(t, killRanks, executor, victimRank, roleVictim, victimArgs(initiator, r, point, 1, failpoint.Stop)...)
	w := k.work(initiator, r)
	w.meet(r)
	k.victim.Expect("works")
	proctest.Watch(t, k.victim.PID()).AwaitState('T')
	time.Sleep(2 * promised)
	id, _ := k.arena.MemberOf(victimRank)
	victim, err := k.arena.Peer(id)
	if err != nil || victim.Gone() {
		t.Errorf("the stopped rank counts as dead: %v", err)
	}
	for _, l := range w.touching {
		if err := l.Last.Load(); err != nil && strings.Contains((*err).Error(), "died") {
			t.Errorf("link of rank %d: %v", l.Job.Rank(), *err)
		}
	}
	var before []int64
	for _, l := range w.touching {
		before = append(before, l.Counts[traffic.Done].Load())
	}
	k.victim.Resume()
	for i, l := range w.touching {
		proctest.Eventually(t, fmt.Sprintf("rank %d goes on with the one that was stopped", l.Job.Rank()), func() bool { return l.Counts[traffic.Done].Load() > before[i] })
	}
	died := linux.HostClock()
	k.victim.Kill()
	k.victim.WaitKilled()
	w.mustEnd(died, report)
	w.mustContinue()
	heir := k.mustReclaim()
	w.stop()
	w.count(report)
	heir.mustKeep(t)
	k.close()
}
