package hang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// job returns a snapshot of ranks that made progress for the last time one second ago.
func job(ranks ...rank) *Snapshot {
	const second = int64(time.Second)
	p := &Snapshot{at: 100 * second, ranks: ranks}
	for i := range p.ranks {
		r := &p.ranks[i]
		if !away(*r) {
			r.id = member(i)
		}
		if !away(*r) || r.Ended == "" {
			r.Process.PID = 100 + i
		}
		r.Process.Program = "prog"
		r.lastProgress = 99 * second
		if r.pid == 0 {
			r.pid = r.Process.PID
		}
		if r.state == 0 {
			r.state = 'S'
		}
	}
	p.resolve()
	return p
}

// absent is a rank that has not joined.
var absent = rank{Process: Process{Program: "away"}}

// unstarted is a rank that the launcher has not started.
func unstarted(why string) rank { return rank{Process: Process{Program: "away", Ended: why}} }

func away(r rank) bool { return r.Program == "away" }

func listening(to int) statuspage.Call {
	return statuspage.Call{Op: "notify disconnect", Object: "connector", Peer: member(to)}
}

// accepting is a call that waits for a client. inAccept is the call around it of a rank in C.
var (
	accepting = statuspage.Call{Op: "get connection request", Object: "listener"}
	inAccept  = statuspage.Call{Op: "accept", Object: "listener"}
)

func member(rank int) shm.MemberID { return shm.MemberID(1<<16 | rank) }

// in is an idle rank that waits in some calls.
func in(calls ...statuspage.Call) rank {
	return rank{idle: true, page: statuspage.Page{Calls: calls}}
}

// running adds a running goroutine to a rank.
func (r rank) running() rank {
	r.stacks = readStacks([]byte("goroutine 3 [runnable]:\nmain.compute()\n\t/src/main.go:3"))
	return r
}

func (r rank) with(endpoints ...statuspage.Endpoint) rank {
	r.page.Endpoints = endpoints
	return r
}

func barrier(round uint64) statuspage.Call {
	return statuspage.Call{Op: "barrier", Round: round, Since: int64(98 * time.Second)}
}

func waitAt(queue uint64) statuspage.Call {
	return statuspage.Call{Op: "wait", Queue: queue, Since: int64(98 * time.Second)}
}

// receiver is an endpoint with Receives outstanding for messages of a rank.
func receiver(of int) statuspage.Endpoint {
	return statuspage.Endpoint{Number: uint64(of) + 10, Peer: member(of), PeerNumber: 3, State: "connected", RequestQueue: 1, ReceiveQueue: 1, Receives: 2}
}

// sender is an endpoint with a Send outstanding to a rank.
func sender(to int, noReceive bool) statuspage.Endpoint {
	return statuspage.Endpoint{Number: uint64(to) + 10, Peer: member(to), PeerNumber: 3, State: "connected", RequestQueue: 1, ReceiveQueue: 1, Requests: 1, OldestRequest: "send", ReceiveMissing: noReceive}
}

func TestFindingsBeginWithTheCause(t *testing.T) {
	failing := sender(1, false)
	failing.Requests, failing.State, failing.Cause = 0, "failed", "send on endpoint 11: i/o timeout"
	news := in(statuspage.Call{Op: "notify", Object: "NotifyAny", Queue: 1})
	news.page.Queues = []statuspage.Queue{{Number: 1, Results: 3}}
	strange := rank{pageErr: shm.ErrDamaged}
	for name, tc := range map[string]struct {
		ranks []rank
		want  []string // each is part of the first cause or of its steps
	}{
		"circle of two":     {[]rank{in(barrier(4)), in(waitAt(1)).with(receiver(0))}, []string{"in a circle", "rank 0 waits for rank 1: barrier 4", "rank 1 waits for rank 0: a message on endpoint 10"}},
		"circle of three":   {[]rank{in(waitAt(1)).with(receiver(1)), in(waitAt(1)).with(receiver(2)), in(waitAt(1)).with(receiver(0))}, []string{"in a circle", "rank 0 waits for rank 1", "rank 1 waits for rank 2", "rank 2 waits for rank 0"}},
		"crossed connects":  {[]rank{in(statuspage.Call{Op: "accept", Peer: member(1)}), in(statuspage.Call{Op: "accept", Peer: member(0)})}, []string{"in a circle", "rank 0 waits for rank 1: accept"}},
		"stopped":           {[]rank{in(barrier(4)), {idle: true, state: 'T'}}, []string{"rank 1 (prog, pid 101) is not responding", "rank 0 waits for it (barrier 4)"}},
		"traced":            {[]rank{in(barrier(4)), {idle: true, state: 't'}}, []string{"rank 1 (prog, pid 101) is not responding"}},
		"stopped in circle": {[]rank{in(barrier(4)), func() rank { r := in(waitAt(1)).with(receiver(0)); r.state = 'T'; return r }()}, []string{"rank 1 (prog, pid 101) is not responding"}},
		"ended":             {[]rank{in(barrier(4)), {Process: Process{Ended: "exited with code 0"}}}, []string{"rank 1 (prog, pid 101) exited with code 0; rank 0 waits for it (barrier 4)"}},
		"left":              {[]rank{in(barrier(4)), {left: true, state: 'S'}}, []string{"rank 1 (prog, pid 101) has left the job (Job.Close) and still runs; rank 0"}},
		"missing receive":   {[]rank{in(waitAt(2)), in(waitAt(1)).with(sender(0, true))}, []string{"rank 0 has posted no receive on endpoint 3 for the send of rank 1 (on its endpoint 10), and is in wait at completion queue 2"}},
		"hopeless":          {[]rank{in(waitAt(2)), in(barrier(1))}, []string{"rank 0 waits for a result that cannot come (wait at completion queue 2)"}},
		"no client is left": {[]rank{in(waitAt(2), accepting), in(barrier(1))}, []string{"rank 0 waits for a result that cannot come (wait at completion queue 2)"}},
		"server in circle":  {[]rank{in(waitAt(1), inAccept, accepting).with(receiver(1)), in(waitAt(1)).with(receiver(0))}, []string{"in a circle", "rank 0 waits for rank 1"}},
		"failed":            {[]rank{in(waitAt(1)).with(failing), in(barrier(1))}, []string{"rank 0 waits for a result that cannot come", "endpoint 11 of rank 0 failed: send on endpoint 11: i/o timeout"}},
		"lost notify":       {[]rank{news.with(receiver(1)), in(barrier(1))}, []string{"rank 0 waits in notify (NotifyAny) at completion queue 1, which already holds results (3)"}},
		"computing":         {[]rank{in(barrier(4)), in()}, []string{"rank 1 (prog, pid 101) is in no call of softnd", "rank 0 waits for it"}},
		"working":           {[]rank{in(barrier(4)), {}}, []string{"rank 1 (prog, pid 101) is running", "rank 0 waits for it"}},
		"slow":              {[]rank{in(barrier(4)), {idle: true, busy: true, cpu: 7 * time.Second}}, []string{"rank 1 (prog, pid 101) is slow: it computes, or polls memory, and has used 7s of processor time; rank 0 waits for it (barrier 4) for 2s"}},
		"slow to receive":   {[]rank{in(waitAt(1)).with(sender(1, true)), {idle: true, busy: true}}, []string{"rank 1 (prog, pid 101) is slow"}},
		"outside of calls":  {[]rank{in(barrier(4)), {noAnswer: true, page: statuspage.Page{Manual: true}}}, []string{"rank 1 (prog, pid 101) is in no call of softnd", "rank 0 waits for it", "see its stack with gdb -p 101"}},
		"behind a wrapper":  {[]rank{in(barrier(4)), {left: true, state: 'Z', pid: 301}}, []string{"rank 1 (prog, pid 301) has ended, but the wrapper that started it still runs; rank 0"}},

		// A worker computes for ever. The master and the other worker wait for messages that depend on it.
		"master and workers": {[]rank{in(waitAt(1)).with(receiver(1), receiver(2)), in(waitAt(1)).with(receiver(0)), in().running()},
			[]string{"rank 2 (prog, pid 102) is in no call of softnd", "rank 0 waits for it (a message on endpoint 12)"}},
		// Each has another goroutine that receives.
		"background receivers": {[]rank{in(waitAt(1), barrier(2)).with(receiver(1), receiver(2)), in(waitAt(1), barrier(2)).with(receiver(0), receiver(2)),
			in(waitAt(1)).with(receiver(0), receiver(1)).running()},
			[]string{"rank 2 (prog, pid 102) is in wait at completion queue 1, and another of its goroutines runs; ranks 0-1 wait for it"}},
		// Each has another goroutine that waits for results of requests; none is outstanding.
		"idle reapers": {[]rank{in(waitAt(2), barrier(2)), in(waitAt(2), barrier(2)), in(waitAt(2)).running()},
			[]string{"rank 2 (prog, pid 102) is in wait at completion queue 2, and another of its goroutines runs; ranks 0-1 wait for it (barrier 2)"}},
		"stopped amid a transfer": {[]rank{func() rank { r := in(); r.state = 'T'; return r }(),
			in(statuspage.Call{Op: "deregister", Object: "memory region"}).with(statuspage.Endpoint{Number: 4, Peer: member(0), State: "connected", PeerCopying: true})},
			[]string{"rank 0 (prog, pid 100) is not responding", "rank 1 waits for it (the end of its transfer on endpoint 4, for deregister (memory region))"}},
		"listeners": {[]rank{in(listening(1), barrier(2)), in(listening(0))},
			[]string{"rank 1 (prog, pid 101) is in notify disconnect (connector); rank 0 waits for it (barrier 2)"}},
		"two circles of waits": {[]rank{in(waitAt(1), barrier(3)).with(receiver(1)), in(waitAt(1)).with(receiver(0))}, []string{"in a circle", "rank 1 waits for rank 0: a message"}},

		"nothing started": {[]rank{unstarted("was not started"), unstarted("waits to be started (--after listen)")}, []string{"no rank has been started yet: a busy machine"}},
		"only the first ended": {[]rank{{Process: Process{Ended: "exited with code 0"}}, unstarted("waits to be started (--after 1h)")},
			[]string{"rank 1 (prog) waits to be started (--after 1h), and no rank runs"}},
		"left before another starts": {[]rank{{left: true}, unstarted("waits to be started (--after 1h)")}, []string{"rank 0 (prog, pid 100) has left the job (Job.Close) and still runs"}},

		"unclear": {[]rank{in(barrier(4)), strange}, []string{"rank 1 (prog, pid 101) is somewhere that cannot be read: "}},
	} {
		t.Run(name, func(t *testing.T) {
			p := job(tc.ranks...)
			found := p.Findings()
			if len(found) == 0 {
				t.Fatal("no finding")
			}
			text := strings.Join(append([]string{found[0].Cause}, found[0].Steps...), "\n")
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			if lines := p.Lines(); !strings.HasPrefix(lines[0], "likely cause: "+found[0].Cause) {
				t.Errorf("first line: %s", lines[0])
			}
		})
	}
}

// Waits that end when another rank continues are no circle, so one cause gives one finding.
func TestFindingsReportOneCauseOnce(t *testing.T) {
	stopped := func(r rank) rank {
		r.state = 'T'
		return r
	}
	connecting := func(op string, to int) rank {
		return in(statuspage.Call{Op: op, Object: fmt.Sprintf("rank %d, port 1", to), Peer: member(to)})
	}
	two := []rank{in(waitAt(1)).with(receiver(1)), in(waitAt(1)).with(receiver(0))}
	for name, tc := range map[string]struct {
		ranks []rank
		want  string
	}{
		"stopped": {[]rank{in(waitAt(1)).with(receiver(1), receiver(2)), in(waitAt(1)).with(receiver(0), receiver(2)), stopped(in())},
			"rank 2 (prog, pid 102) is not responding"},
		"stopped before a barrier": {[]rank{in(barrier(2), waitAt(1)).with(receiver(1), receiver(2)), in(waitAt(1)).with(receiver(0), receiver(2)), stopped(in(barrier(1)))},
			"rank 2 (prog, pid 102) is not responding"},
		"ended": {[]rank{in(waitAt(1)).with(receiver(1), receiver(2)), in(waitAt(1)).with(receiver(0), receiver(2)), {Process: Process{Ended: "exited with code 0"}}},
			"rank 2 (prog, pid 102) exited with code 0; ranks 0-1 wait for it"},
		"connect": {append(two[:2:2], connecting("connect", 0)),
			"rank 2 waits in connect (rank 0, port 1) for rank 0, which does not connect with it: rank 0 is in wait at completion queue 1"},
		"accept": {append([]rank{connecting("accept", 1)}, in(waitAt(1)).with(receiver(2)), in(waitAt(1)).with(receiver(1))),
			"rank 0 waits in accept (rank 1, port 1) for rank 1, which does not connect with it: rank 1 is in wait at completion queue 1"},
		"connect in a circle": {[]rank{in(barrier(2)), connecting("connect", 0)}, "the ranks wait for each other in a circle"},
		"circle of connects":  {[]rank{connecting("accept", 1), connecting("accept", 2), connecting("connect", 0)}, "the ranks wait for each other in a circle"},
	} {
		found := job(tc.ranks...).Findings()
		if len(found) != 1 || !strings.HasPrefix(found[0].Cause, tc.want) {
			t.Errorf("%s: %q, want one cause that begins with %q", name, found, tc.want)
		}
	}
}

// Ranks that can continue give no finding.
func TestFindingsOfHealthyJobAreEmpty(t *testing.T) {
	for name, ranks := range map[string][]rank{
		"computing":     {in(), in()},
		"working":       {{}, {}},
		"served":        {in(waitAt(1)).with(receiver(1)), {}},
		"more than fit": {func() rank { r := in(waitAt(1)); r.page.Omitted = 1; return r }(), {}},
		"busy":          {in(waitAt(1)).with(statuspage.Endpoint{Number: 1, Busy: true, RequestQueue: 1, ReceiveQueue: 2}), {}},
		"all have left": {{left: true}, {left: true}},

		// Rank 1 or 2 may be the next client.
		"server":            {in(waitAt(1), accepting), in()},
		"server in C":       {in(waitAt(1), inAccept), in()},
		"server of several": {in(waitAt(1), accepting).with(receiver(1)), in(waitAt(1)).with(receiver(0)), in()},
		"server in accept":  {in(inAccept, accepting), in(waitAt(1)).with(receiver(0)), in()},
		"server at first":   {in(waitAt(1), accepting), unstarted("waits to be started (--after listen)")},
	} {
		for _, f := range job(ranks...).Findings() {
			served := name == "served" && strings.HasPrefix(f.Cause, "rank 1 (prog, pid 101) is running")
			if !served && f.Cause != "rank 1 (prog) waits to be started (--after listen), while others still run" {
				t.Errorf("%s: %s", name, f.Cause)
			}
		}
	}
}

// published returns what an observer reads when a member has published p.
func published(t *testing.T, p statuspage.Page) statuspage.Page {
	t.Helper()
	arena, err := shm.Create(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	m, err := arena.Join(shm.NoRank)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave()
	r, err := statuspage.NewReporter(m)
	if err != nil {
		t.Fatal(err)
	}
	o, err := statuspage.Observe(arena, m.ID())
	if err != nil {
		t.Fatal(err)
	}
	r.Write(p)
	got, ok, err := o.Read()
	if !ok || err != nil {
		t.Fatalf("published page: %v, %v", ok, err)
	}
	return got
}

// Hostile status pages and stacks cost bounded time and memory.
func TestHostilePagesAreBounded(t *testing.T) {
	var calls []statuspage.Call
	for i := range 2000 {
		calls = append(calls, statuspage.Call{Op: "barrier", Round: uint64(i)})
	}
	hostile := published(t, statuspage.Page{Calls: calls})
	deep := readStacks([]byte("goroutine 1 [x]:\n" + strings.Repeat("time.x\n\ty\n", 3<<20/10)))
	many := readStacks([]byte(strings.Repeat("goroutine 1 [x]:\nmain.x()\n\ty\n\n", 1<<15)))
	if len(deep) != 1 || !slices.Equal(deep[0].lines, []string{"time.x", "\ty", "..."}) || len(many) != maxBlocks {
		t.Errorf("%v and %d stacks", deep, len(many))
	}
	var ranks []rank
	for i := range 256 {
		r := rank{idle: true, page: hostile, stacks: deep}
		r.page.Queues = []statuspage.Queue{{Number: uint64(i)}}
		r.page.Calls = append([]statuspage.Call{{Op: "wait", Queue: 1}}, hostile.Calls...)
		ranks = append(ranks, r)
	}
	if lines := job(ranks...).Lines(); len(lines) > 100_000 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestAbsentRanksAreNamed(t *testing.T) {
	waiting := in(statuspage.Call{Op: "init", Round: 1})
	p := job(waiting, absent, absent)
	if got, want := p.Findings()[0].Cause, "ranks 1-2 never arrived: not in softnd.Init; rank 0 waits for it (init (barrier 1))"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	p = job(absent, absent)
	if got, want := p.Findings()[0].Cause, "no rank has called softnd.Init"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want\n%s", got, want)
	}
}

func TestAbsentRanksOfAJobThatMakesProgressAreNamed(t *testing.T) {
	if lines, ok := job(in(), in(), absent, absent).Moves(); !ok || lines[0] != "not in softnd.Init yet: ranks 2-3" {
		t.Errorf("%v, %q", ok, lines)
	}
	if lines, ok := job(in(), in()).Moves(); !ok || strings.Contains(lines[0], "yet") {
		t.Errorf("%v, %q", ok, lines)
	}
	if lines, ok := job(rank{left: true}, rank{left: true}).Moves(); ok {
		t.Errorf("no rank is in the job, but it makes progress: %q", lines)
	}
}

func TestProcessorTimeOfManyRanks(t *testing.T) {
	ranks := []rank{{left: true}} // is not counted
	for range maxTimes + 2 {
		ranks = append(ranks, in())
	}
	lines, ok := job(ranks...).Moves()
	if last := lines[len(lines)-1]; !ok || !strings.HasPrefix(last, "processor time: rank 1 0s, ") || !strings.HasSuffix(last, ", rank 32 0s, and 2 more") {
		t.Errorf("%v, %q", ok, lines)
	}
}

// Ranks in the same state share lines, even if their ages differ.
func TestLinesAreSharedByManyRanks(t *testing.T) {
	var ranks []rank
	for i := range 1024 {
		r := in(barrier(7))
		r.page.Calls[0].Since -= int64(i) * int64(time.Millisecond)
		if i == 500 {
			r = in()
		}
		ranks = append(ranks, r)
	}
	lines := job(ranks...).Lines()
	if len(lines) > 6 {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"rank 500 (prog, pid 600) is in no call of softnd", "ranks 0-499,501-1023 wait for it (barrier 7)",
		"ranks 0-499,501-1023 (prog, pid 100 and others): barrier 7 for 2s; last progress 1s ago\n  barrier 7: not arrived: rank 500",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// In a job of 1024 ranks, every second rank waits for the one before it. The search must be fast.
func TestFindingsOfLargeCircle(t *testing.T) {
	var ranks []rank
	for i := range 1024 {
		r := in(barrier(1))
		if i%2 == 1 {
			r = in(waitAt(1)).with(receiver(i - 1))
		}
		ranks = append(ranks, r)
	}
	if got := job(ranks...).Findings(); len(got) == 0 || len(got[0].Steps) != 2 {
		t.Errorf("found: %v", got)
	}
}

const answer = `goroutine 1 gp=0xc000002380 m=3 mp=0xc000080008 [chan receive, 2 minutes, locked to thread]:
github.com/softnd/softnd/internal/doorbell.(*Doorbell).Sleep({0x1, 0x2})
	/src/internal/doorbell/doorbell.go:1 +0x1d
github.com/softnd/softnd/endpoint/internal/waiter.(*Set).Sleep(0xc0001, {0x1, 0x2})
	/src/endpoint/internal/waiter/waiter.go:1 +0x1d
github.com/softnd/softnd/endpoint.(*completionQueue).Wait(0xc0001, {0x1, 0x2})
	/src/endpoint/cq.go:1 +0x1d
github.com/softnd/softnd/nd.WaitOne({0x1, 0x2}, {0x3, 0x4})
	/src/nd/wait.go:1 +0x1d
main.(*solver).exchange(0xc000012345)
	/src/main.go:17 +0x1d
main.main()
	/src/main.go:9 +0x20

goroutine 7 [select]:
github.com/softnd/softnd/endpoint.(*engine).run(0xc00)
	/src/progress_engine.go:1 +0x1

goroutine 9 [running]:
main.work.func1()
	/src/main.go:30 +0x20
created by main.work in goroutine 1
	/src/main.go:29 +0x99
`

func TestStacksAreSharedByRanks(t *testing.T) {
	p := job(in(), in(), in())
	for i, text := range []string{answer,
		strings.ReplaceAll(strings.ReplaceAll(answer, "goroutine 1 ", "goroutine 21 "), "0xc0", "0xd0"),
		"\xff\x00 nonsense\x1b[2J\n\ngoroutine 1 [idle]:\n\x1b[2Jx\u009b()\n\t/y:1",
	} {
		p.ranks[i].stacks = readStacks([]byte(text))
	}
	got := strings.Join(p.stackLines(), "\n")
	const want = `stack of ranks 0-1, chan receive:
  github.com/softnd/softnd/nd.WaitOne
  	/src/nd/wait.go:1
  main.(*solver).exchange
  	/src/main.go:17
  main.main
  	/src/main.go:9
stack of ranks 0-1, running:
  main.work.func1
  	/src/main.go:30
  created by main.work
  	/src/main.go:29
stack of rank 2, idle:
  ?[2Jx?
  	/y:1`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
