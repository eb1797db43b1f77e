//go:build failpoints

package kill

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/shm"
)

// killJob is a job with a victim.
type killJob struct {
	t         *testing.T
	arena     *shm.Arena
	survivors map[int]*softnd.Job
	victim    *proctest.Process
	slot      uint64 // of the victim's record
	live      uint64 // state word of that record while the victim lives
	endedAt   int64  // when the kernel had ended the victim; valid when over is closed
	over      chan struct{}
	heldUntil int64 // until when the test has held a survivor in a step
	inUse     map[int]uint64
}

// startKillJob starts the victim in a process, and the other ranks in this one.
func startKillJob(t *testing.T, ranks int, executor string, victim int, role string, args ...string) *killJob {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: ranks, Size: 192 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k := &killJob{t: t, over: make(chan struct{}), arena: arena, survivors: make(map[int]*softnd.Job), inUse: make(map[int]uint64)}
	cmd := ranktest.Command(arena, role, victim, ranks, args...)
	cmd.Env = append(cmd.Env, softnd.EnvExec+"="+executor)
	k.victim = proctest.Start(t, cmd)
	go k.noteEnd()
	var started sync.WaitGroup
	var mu sync.Mutex
	for rank := range ranks {
		if rank == victim {
			continue
		}
		a, err := shm.Attach(proctest.Context(t), arena.File())
		if err != nil {
			t.Fatal(err)
		}
		started.Go(func() {
			e, err := endpoint.ParseExecutor(executor)
			if err != nil {
				t.Error(err)
				return
			}
			j, err := jobaccess.Join(proctest.Context(t), a, rank, true, softnd.WithExecutor(e), softnd.WithReceiveTimeout(softnd.NoLimit))
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			mu.Lock()
			defer mu.Unlock()
			k.survivors[rank] = j.(*softnd.Job)
		})
	}
	if started.Wait(); t.Failed() {
		t.FailNow()
	}
	for rank, j := range k.survivors {
		k.inUse[rank] = jobaccess.Of(j).Member.InUse()
	}
	id, _ := arena.MemberOf(victim)
	k.slot = uint64(id.Slot())
	k.live = k.victimRecord()
	return k
}

// noteEnd notes when the kernel has ended the victim. It blocks in a system call, so that no other goroutine delays it.
func (k *killJob) noteEnd() {
	defer close(k.over)
	fd, err := unix.PidfdOpen(k.victim.PID(), 0)
	if err != nil {
		k.t.Error(err)
		return
	}
	defer unix.Close(fd)
	for n := 0; n < 1; {
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1) // a signal may interrupt it
	}
	k.endedAt = linux.HostClock()
}

// diesAt waits for the death of the victim, and returns its time.
func (k *killJob) diesAt(point failpoint.Point) (at int64) {
	k.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = k.victim.End()
	}()
	select {
	case <-ended:
	case <-time.After(killLimit):
		k.victim.Kill()
		<-ended
	}
	if at = killedAt(k.victim, point); at == 0 {
		k.t.Errorf("the victim has not reached the point\n%s", k.victim.Err)
	}
	return at
}

// killedAt returns the time at which a process said that it dies at a point; 0 if it did not.
func killedAt(p *proctest.Process, point failpoint.Point) (at int64) {
	if _, said, ok := strings.Cut(p.Err.String(), "failpoint "+point.Name()+" "); ok {
		var action string
		fmt.Sscanf(said, "%s at %d", &action, &at)
	}
	return at
}

// mustReclaim checks that nothing of the victim is left in the arena, and that the arena can be used.
func (k *killJob) mustReclaim() *heir {
	k.t.Helper()
	var left []string
	proctest.Eventually(k.t, "the memory of the dead is reclaimed", func() bool {
		left = ranktest.LeftInArena(k.t, k.arena, k.lives)
		return len(left) == 0
	}, &left)
	return k.newHeir()
}

// victimRecord returns the state word of the victim's record, as docs/shared-memory.md has it.
func (k *killJob) victimRecord() uint64 {
	words, err := shm.Slice[atomic.Uint64](k.arena, shm.Offset(ranktest.RecordsAt+k.slot*ranktest.RecordSize), 1)
	if err != nil {
		k.t.Error(err)
		return 0
	}
	return words[0].Load()
}

// isVictimDead reports whether the victim counts as dead, and isReclaimed whether its memory may have another owner.
func (k *killJob) isVictimDead() bool { return k.victimRecord() != k.live }
func (k *killJob) isReclaimed() bool {
	const fromLiveToDead = 1
	return k.isVictimDead() && k.victimRecord() != k.live+fromLiveToDead
}

// heir is a member that has the memory of the dead.
type heir struct {
	*shm.Member
	memory [][]byte
}

var heirPattern = bytes.Repeat([]byte{0xe1}, ranktest.ChunkSize)

// newHeir allocates the first free chunks of the arena, which must be cleared, and fills them.
func (k *killJob) newHeir() *heir {
	k.t.Helper()
	m, err := k.arena.Join(shm.NoRank)
	if err != nil {
		k.t.Fatal(err)
	}
	h := &heir{Member: m}
	for range 32 {
		at, err := m.Alloc(ranktest.ChunkSize)
		if err != nil {
			k.t.Fatal(err)
		}
		b, err := k.arena.Bytes(at, ranktest.ChunkSize)
		if err != nil {
			k.t.Fatal(err)
		}
		if !bytes.Equal(b, make([]byte, ranktest.ChunkSize)) {
			k.t.Errorf("memory at %#x of the arena is not cleared", uint64(at))
		}
		copy(b, heirPattern)
		h.memory = append(h.memory, b)
	}
	return h
}

// mustKeep checks that no process has changed the memory, and frees it.
func (h *heir) mustKeep(t *testing.T) {
	t.Helper()
	for i, b := range h.memory {
		if !bytes.Equal(b, heirPattern) {
			t.Errorf("chunk %d of the heir of the dead has changed", i)
		}
	}
	if err := h.Leave(); err != nil {
		t.Error(err)
	}
}

// lives reports whether the member in a slot is a survivor.
func (k *killJob) lives(slot int) bool {
	for _, j := range k.survivors {
		if jobaccess.Of(j).Member.ID().Slot() == slot {
			return true
		}
	}
	return false
}

// close ends the job, and checks that the survivors have freed everything but the blob of the failed Exchange.
func (k *killJob) close() {
	k.t.Helper()
	var held []string
	proctest.Eventually(k.t, "the survivors free their memory", func() bool {
		held = nil
		for rank, j := range k.survivors {
			ranktest.DropRequests(j)
			if n := jobaccess.Of(j).Member.InUse(); n > k.inUse[rank]+killBlob {
				held = append(held, fmt.Sprintf("rank %d holds %d bytes, before %d", rank, n, k.inUse[rank]))
			}
		}
		return len(held) == 0
	}, &held)
	for rank, j := range k.survivors {
		if err := j.Close(); err != nil {
			k.t.Errorf("rank %d: %v", rank, err)
		}
	}
	if err := k.arena.Close(); err != nil {
		k.t.Error(err)
	}
}
