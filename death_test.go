package softnd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

var roleDying = ranktest.Role("dying", runDying)

// runDying lets ranks 2 and 3 die, and rank 1 leave. Rank 0 waits for the deaths.
func runDying(ctx context.Context, j *softnd.Job, _ int) error {
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
	all := ranktest.Start(t, 4, roleDying, 0)
	all[2].WaitKilled()
	all[3].WaitKilled()
	all[1].Wait()
	all[0].Wait()
	if got := all[0].Out.String(); got != "died: [2 3]\n" {
		t.Errorf("%q", got)
	}
}

// TestNextDeathOfRanksThatAreTakenAgain: a process takes the place of a rank that has died, before and after NextDeath has returned
// the death. Neither the death is lost, nor is the process dead while it lives.
func TestNextDeathOfRanksThatAreTakenAgain(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("early %v", early), func(t *testing.T) { testTakenAgain(t, early) })
	}
}

func testTakenAgain(t *testing.T, early bool) {
	t.Parallel()
	ctx := proctest.Context(t)
	name := fmt.Sprintf("softnd-test-taken-%d-%v", os.Getpid(), early)
	victim := proctest.StartWith(t, nil, ranktest.RoleJoins, name, 2)
	j := ranktest.Join(t, name, 2, 0, 1)[0]
	defer j.Close()
	victim.Expect("joined")
	died := func() {
		t.Helper()
		if rank, err := j.NextDeath(ctx); rank != 1 || err != nil {
			t.Fatalf("rank %d, %v", rank, err)
		}
	}
	noMore := func() {
		t.Helper()
		// NextDeath checks all ranks every 100 ms.
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if rank, err := j.NextDeath(short); !errors.Is(err, nd.Canceled) {
			t.Fatalf("rank %d has died, %v", rank, err)
		}
	}
	replace := func() *proctest.Process {
		arena := jobaccess.Of(j).Arena
		before, _ := arena.MemberOf(1)
		p := proctest.StartWith(t, nil, ranktest.RoleJoins, name, 2)
		proctest.Eventually(t, "the rank is taken", func() bool { id, _ := arena.MemberOf(1); return id != before })
		return p
	}
	victim.Kill()
	if !early {
		died()
	}
	second := replace()
	if early {
		died()
	}
	noMore()
	second.Kill()
	if !early {
		died()
	}
	third := replace()
	if early {
		died()
	}
	noMore()
	third.Kill()
	joining, leave := context.WithCancel(ctx)
	joined := make(chan error, 1)
	arena := jobaccess.Of(j).Arena
	before, _ := arena.MemberOf(1)
	go func() {
		_, err := softnd.Join(joining, name, 1, 2)
		joined <- err
	}()
	proctest.Eventually(t, "a process takes the place", func() bool { id, ok := arena.MemberOf(1); return ok && id != before })
	leave()
	if err := proctest.Receive(t, "it leaves", joined); !errors.Is(err, nd.Canceled) {
		t.Fatal(err)
	}
	died()
	noMore()
	replace().Kill()
	replace().Kill()
	died()
	died()
	noMore()
}

const highestAt = 512 // an offset in the arena: in a layout before this one; nothing lies there now

// words that the victim clears in its own record, and in the header, before it dies.
var wordsBeforeDeath = []func(slot int64) int64{
	func(slot int64) int64 { return ranktest.RecordsAt + slot*ranktest.RecordSize },      // state
	func(slot int64) int64 { return ranktest.RecordsAt + slot*ranktest.RecordSize + 8 },  // deathEpoch
	func(slot int64) int64 { return ranktest.RecordsAt + slot*ranktest.RecordSize + 16 }, // deathsSeen
	func(int64) int64 { return highestAt },
}

var roleHidden = ranktest.Role("hidden", runHidden)

// runHidden lets the last rank clear a word and die while the others wait for it.
func runHidden(ctx context.Context, j *softnd.Job, word int) error {
	if err := j.Barrier(ctx); err != nil {
		return err
	}
	if j.Rank() == j.Size()-1 {
		inside := jobaccess.Of(j)
		at := wordsBeforeDeath[word](int64(inside.Member.ID().Slot()))
		if _, err := inside.Arena.File().WriteAt(make([]byte, 8), at); err != nil {
			return err
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err := j.Barrier(ctx)
	if !errors.Is(err, nd.ConnectionAborted) {
		return fmt.Errorf("%w, want %v", err, nd.ConnectionAborted)
	}
	fmt.Println(err)
	return nil
}

// No word that a peer writes hides its death from a collective call.
func TestBarrierFindsDeathDespiteOverwrittenWord(t *testing.T) {
	t.Parallel()
	for word := range wordsBeforeDeath {
		for _, ranks := range []int{2, 4} {
			t.Run(fmt.Sprintf("word %d, %d ranks", word, ranks), func(t *testing.T) {
				t.Parallel()
				all := ranktest.Start(t, ranks, roleHidden, word)
				all[ranks-1].WaitKilled()
				for _, r := range all[:ranks-1] {
					r.Wait()
					if got := r.Out.String(); !strings.Contains(got, "has died or left") {
						t.Errorf("the error is %q", got)
					}
				}
			})
		}
	}
}

// Before the group is formed, a rank dies, or leaves and may come again. Its record has another owner then, whose process says nothing
// about the rank's.
func TestJoinDespiteTheNextOwnerOfARecord(t *testing.T) {
	ctx := proctest.Context(t)
	name := fmt.Sprintf("softnd-test-%d-owner", os.Getpid())
	arena, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	observer, err := arena.Join(-1)
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			observer.CheckLiveness(func(shm.MemberID) {})
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
		if err := observer.Leave(); err != nil {
			t.Error(err)
		}
	}()
	slotOf := func() string { id, _ := arena.MemberOf(1); return strconv.Itoa(id.Slot()) }

	victim := proctest.StartWith(t, nil, ranktest.RoleJoins, name, 2)
	proctest.Eventually(t, "the rank is taken", func() bool { _, ok := arena.MemberOf(1); return ok })
	victim.Kill()
	next, err := takeSlot(ctx, arena, slotOf())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := softnd.Join(ctx, name, 0, 2); !errors.Is(err, nd.ConnectionAborted) || !strings.Contains(err.Error(), "rank 1 has died or left") {
		t.Error(err)
	}
	if err := next.Leave(); err != nil {
		t.Error(err)
	}

	died, _ := arena.MemberOf(1)
	limit := 100 * time.Millisecond
	for now := died; now == died; now, _ = arena.MemberOf(1) { // on a loaded machine it may not get so far
		short, cancel := context.WithTimeout(ctx, limit)
		if _, err := softnd.Join(short, name, 1, 2); err == nil || ctx.Err() != nil {
			t.Fatalf("rank 1 joins alone: %v", err)
		}
		cancel()
		limit *= 2
	}
	owner := proctest.StartWith(t, nil, roleNextOwner, name, slotOf())
	owner.Expect("taken")
	owner.Kill()
	short, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	if _, err := softnd.Join(short, name, 0, 2); err == nil || errors.Is(err, nd.ConnectionAborted) {
		t.Errorf("rank 0 does not wait for rank 1, which may join again: %v", err)
	}
}

// Ranks do not wait for a rank that an option or a setting refuses, although its process goes on.
func TestJoinDoesNotWaitForARefusedRank(t *testing.T) {
	name := fmt.Sprintf("softnd-test-%d-refused", os.Getpid())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan error, 2)
	for rank := range 2 {
		go func() {
			_, err := softnd.Join(ctx, name, rank, 3)
			ended <- err
		}()
	}
	job, err := softnd.Join(ctx, name, 2, 3, softnd.WithReceiveTimeout(-1))
	if err == nil || !strings.Contains(err.Error(), "receive time-out of -1ns: want 0 or more") {
		t.Errorf("%v, %v", job, err)
	}
	for range 2 {
		err := proctest.Receive(t, "Join ends", ended)
		if !errors.Is(err, nd.ConnectionAborted) || !strings.Contains(err.Error(), "nd: join on job: ") || !strings.Contains(err.Error(), "has died or left") {
			t.Error(err)
		}
	}
}
