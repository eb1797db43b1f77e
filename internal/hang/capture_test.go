package hang

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// The members of this process: one writes its page, one writes garbage, one writes nothing.
func TestCaptureReadsMembers(t *testing.T) {
	arena, err := shm.Create(shm.Config{Ranks: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	var reporters []*statuspage.Reporter
	for rank := range 3 {
		m, err := arena.Join(rank)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Leave()
		if _, err := m.JoinGroup(); err != nil {
			t.Fatal(err)
		}
		r, err := statuspage.NewReporter(m)
		if err != nil {
			t.Fatal(err)
		}
		reporters = append(reporters, r)
	}
	reporters[0].Write(statuspage.Page{Calls: []statuspage.Call{barrier(1)}})
	reporters[1].Write(statuspage.Page{})
	first, err := arena.Bytes(arena.Info().StatusPages+shm.StatusPageSize+64, 1)
	if err != nil {
		t.Fatal(err)
	}
	first[0] = '?' // instead of a brace
	var answering sync.WaitGroup
	defer answering.Wait()
	answering.Go(func() {
		for !reporters[0].StacksRequested() {
			time.Sleep(time.Millisecond)
		}
		if err := reporters[0].PublishStacks([]byte(answer)); err != nil {
			t.Error(err)
		}
	})
	me := Process{PID: os.Getpid(), Program: "test"}
	p := Capture(arena, []Process{me, me, me, {PID: 1 << 30, Program: "test", Ended: "exited with code 3"}}, 5*time.Second)
	text := strings.Join(p.Lines(), "\n")
	for _, want := range []string{
		"likely cause: rank 3 (test, pid 1073741824) exited with code 3 without having called softnd.Init (in C snd_job_init); rank 0 waits for it (barrier 1)\n",
		fmt.Sprintf("rank 0 (test, pid %d): barrier 1 for ", os.Getpid()),
		"  barrier 1: not arrived: ranks 1-3\n",
		fmt.Sprintf("rank 1 (test, pid %d): decode status page: ", os.Getpid()),
		fmt.Sprintf("rank 2 (test, pid %d): running, not responding\n", os.Getpid()),
		"stack of rank 0, chan receive:\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// A goroutine that waits in softnd may spin or yield at that moment; it does not compute.
func TestWaitingGoroutineIsNotComputing(t *testing.T) {
	const waiting = "goroutine 1 [runnable]:\ngithub.com/softnd/softnd/endpoint.(*Provider).spin(0xc0)\n\t/src/progress_wait.go:1\n" +
		"github.com/softnd/softnd/endpoint.(*Provider).wait(0xc0)\n\t/src/progress_wait.go:2\nmain.main()\n\t/src/main.go:3"
	const computing = "goroutine 2 [running]:\nmain.compute()\n\t/src/main.go:4"
	for stacks, want := range map[string]bool{waiting: false, computing: true, waiting + "\n\n" + computing: true} {
		r := rank{stacks: readStacks([]byte(stacks))}
		if len(r.stacks) == 0 || r.isComputing() != want {
			t.Errorf("isComputing is %v with %d stacks read of\n%s", r.isComputing(), len(r.stacks), stacks)
		}
	}
}

// The endpoints of verbs programs are named by their queue pairs, and those that wait for their peers name these.
func TestQueuePairsAreNamed(t *testing.T) {
	pair := func(state string, peer shm.MemberID) statuspage.Endpoint {
		return statuspage.Endpoint{Number: 1, PeerNumber: 2, QueuePair: 0x40, PeerQueuePair: 0x80, State: state, Peer: peer}
	}
	missing := pair("connected", member(1))
	missing.RequestQueue, missing.Requests, missing.OldestRequest, missing.ReceiveMissing = 1, 1, "send", true
	p := job(in(waitAt(1)).with(missing), in(waitAt(1)))
	if got, want := p.Findings()[0].Cause, "rank 1 has posted no receive on queue pair 0x80 for the send of rank 0 (on its queue pair 0x40)"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want\n%s", got, want)
	}
	for _, tc := range []struct {
		e    statuspage.Endpoint
		want string
	}{
		{pair("connected", member(1)), "queue pair 0x40 with queue pair 0x80 of rank 1: connected"},
		{pair("connecting", member(1)), "queue pair 0x40: waits for queue pair 0x80 of rank 1 to name it at RTR"},
		{pair("connecting", member(7)), "queue pair 0x40: waits for queue pair 0x80 of another process to name it at RTR"},
		{pair("connecting", 0), "queue pair 0x40: waits for queue pair 0x80, which no process has"},
		{statuspage.Endpoint{Number: 3, State: "connecting"}, "endpoint 3 with another process: connecting"},
		{statuspage.Endpoint{Number: 3, Busy: true}, "endpoint 3: busy"},
	} {
		if got := p.connection(tc.e); got != tc.want {
			t.Errorf("%s, want\n%s", got, tc.want)
		}
	}
}

// A process that has joined for a rank without taking it shows the work of that rank.
func TestMemberWithoutRank(t *testing.T) {
	arena, err := shm.Create(shm.Config{Ranks: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	var ids []shm.MemberID
	for range 2 {
		m, err := arena.Join(1)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Leave()
		ids = append(ids, m.ID())
	}
	for rank := range 3 {
		if id, ok := MemberOf(arena, rank); ok != (rank == 1) || ok && id != ids[0] {
			t.Errorf("member %v of rank %d, %v; those of rank 1 are %v", id, rank, ok, ids)
		}
	}
}
