package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

var testSecret = []byte("a secret of the tests")

// lines collects what Logf prints.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf(format, args...))
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// job is a job whose ranks are in this process.
type job struct {
	config  Config
	clients []*Client
	ended   []chan End
	log     *lines
}

func newJob(t testing.TB, size int) *job {
	t.Helper()
	j := &job{log: new(lines), clients: make([]*Client, size)}
	j.config = Config{Root: proctest.FreeAddress(t), Secret: testSecret, Size: size, Logf: j.log.logf}
	for range size {
		j.ended = append(j.ended, make(chan End, 1))
	}
	return j
}

// of returns the configuration of a rank.
func (j *job) of(rank int) Config {
	c := j.config
	c.Rank, c.Ended = rank, func(e End) { j.ended[rank] <- e }
	return c
}

// join lets ranks join, the last first.
func (j *job) join(t testing.TB, ranks ...int) {
	t.Helper()
	ctx := proctest.Context(t)
	var wg sync.WaitGroup
	for _, rank := range ranks {
		wg.Go(func() {
			c, err := Join(ctx, j.of(rank))
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			j.clients[rank] = c
			t.Cleanup(func() { _ = c.HangUp() })
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// each calls f for all ranks at once.
func (j *job) each(t testing.TB, f func(rank int, c *Client) error) {
	t.Helper()
	var wg sync.WaitGroup
	for rank, c := range j.clients {
		wg.Go(func() {
			if err := f(rank, c); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func TestRanksMeet(t *testing.T) {
	ctx := proctest.Context(t)
	j := newJob(t, 5)
	j.join(t, 4, 3, 2, 1, 0)
	j.each(t, func(rank int, c *Client) error {
		for round := range 20 {
			key := func(rank int) string { return fmt.Sprintf("key-%d-%d", round, rank) }
			if err := c.Put(ctx, key(rank), fmt.Sprint(rank*round)); err != nil {
				return err
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			for other := range j.clients {
				if v, err := c.Get(ctx, key(other)); err != nil || v != fmt.Sprint(other*round) {
					return fmt.Errorf("value of rank %d: %q, %v", other, v, err)
				}
			}
		}
		if c.JobName() != j.clients[0].JobName() || c.LocalAddress().String() != "127.0.0.1" {
			return fmt.Errorf("job %s, address %v", c.JobName(), c.LocalAddress())
		}
		return nil
	})
	j.each(t, func(_ int, c *Client) error { return c.Leave() })
	for rank, ended := range j.ended {
		select {
		case e := <-ended:
			t.Errorf("rank %d got %v", rank, e)
		default:
		}
	}
	if text := j.log.String(); text != "" {
		t.Error(text)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	ctx := proctest.Context(t)
	j := newJob(t, 1)
	j.join(t, 0)
	c := j.clients[0]
	if err := c.Put(ctx, "key", "value"); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", maxValue+1)
	for what, err := range map[string]error{
		"again":     c.Put(ctx, "key", "value"),
		"no key":    c.Put(ctx, "", "value"),
		"long key":  c.Put(ctx, long[:maxKey+1], "value"),
		"long":      c.Put(ctx, "long", long),
		"no value":  func() error { _, err := c.Get(ctx, "other"); return err }(),
		"no number": func() error { _, err := c.ask(ctx, message{Kind: "number"}); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "refused by rank 0: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if v, err := c.Get(ctx, "key"); v != "value" || err != nil {
		t.Errorf("value %q, %v", v, err)
	}
}

func TestJoinRefused(t *testing.T) {
	ctx := proctest.Context(t)
	j := newJob(t, 3)
	j.join(t, 0, 1)
	refused := func(what string, c Config, want string) {
		t.Helper()
		_, err := Join(ctx, c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	c := j.of(2)
	c.Secret = []byte("another secret")
	refused("wrong secret", c, ErrSecret.Error())
	c = j.of(2)
	c.Size = 4
	refused("wrong size", c, "refuses rank 2: it has 4 as the number of ranks, rank 0 has 3: set the same SOFTND_SIZE for all")
	refused("two of a number", j.of(1), "refuses rank 1: a process at 127.0.0.1:")
	c = j.of(7)
	refused("no such rank", c, "the job has ranks 0 to 2")
	refused("port taken", j.of(0), "address already in use: give each job a port of its own")
	c = j.of(0)
	c.Root = netip.MustParseAddrPort("192.0.2.1:7000") // an address for documentation
	refused("another host", c, "it has to be an address of the host on which rank 0 runs")

	j.join(t, 2) // none of it has harmed the job
	j.each(t, func(_ int, c *Client) error { return c.Barrier(ctx) })
	proctest.Eventually(t, "rank 0 prints the stranger", func() bool { return strings.Contains(j.log.String(), "a connection to SOFTND_ROOT") })
	if text := j.log.String(); !strings.Contains(text, "refused rank 2 from 127.0.0.1:") || strings.Count(text, errOtherSecret.Error()) != 1 {
		t.Errorf("rank 0 has printed: %s", text)
	}
}

func TestRankThatNeverArrives(t *testing.T) {
	j := newJob(t, 4)
	j.join(t, 0, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, rank := range []int{0, 2} {
		err := j.clients[rank].Barrier(ctx)
		want := "missing: rank 1, rank 3"
		if rank == 0 { // before rank 2 has arrived
			want = "missing: rank 1, rank 2, rank 3"
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestRootThatNeverListens(t *testing.T) {
	j := newJob(t, 2)
	var err error
	for limit := range proctest.Limits(t, "a connection is refused", time.Second) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err = Join(ctx, j.of(1))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.ECONNREFUSED) {
			break
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, unix.ECONNREFUSED) || !strings.Contains(err.Error(), "check that rank 0 runs") {
		t.Error(err)
	}
}

// A process that accepts connections at the address and does not answer is not waited for beyond ctx.
func TestRootThatIsMute(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	j := newJob(t, 2)
	j.config.Root = netip.MustParseAddrPort(l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Join(ctx, j.of(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// mustEnd checks with what Ended is called in a rank.
func (j *job) mustEnd(t *testing.T, rank int, want End) {
	t.Helper()
	if e := proctest.Receive(t, "Ended is called", j.ended[rank]); e != want {
		t.Errorf("rank %d got %+v", rank, e)
	}
}

func TestDeathEndsTheJob(t *testing.T) {
	for _, victim := range []int{0, 1} {
		t.Run(fmt.Sprintf("rank %d", victim), func(t *testing.T) {
			j := newJob(t, 3)
			j.join(t, 0, 1, 2)
			if err := j.clients[1].Put(t.Context(), "first", "request"); err != nil {
				t.Fatal(err)
			}
			blocked := make(chan error, 1)
			go func() { blocked <- j.clients[2].Barrier(t.Context()) }()
			proctest.Eventually(t, "rank 2 is in the barrier", func() bool {
				r := j.clients[0].root
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.arrived) == 1
			})
			want := End{Rank: victim, Text: "rank 1 (at 127.0.0.1) has died, or has ended without leaving the job"}
			if err := j.clients[victim].HangUp(); err != nil {
				t.Error(err)
			}
			if victim == 0 {
				want.Text = "rank 0 has ended without leaving the job"
			} else {
				j.mustEnd(t, 0, want)
			}
			j.mustEnd(t, 2, want)
			if err := proctest.Receive(t, "Barrier returns", blocked); err == nil || !strings.Contains(err.Error(), want.Text) {
				t.Error(err)
			}
		})
	}
}

// The process of rank 0 is killed, so its connections end without a message.
func TestDeathOfRoot(t *testing.T) {
	j := newJob(t, 2)
	j.join(t, 0, 1)
	r := j.clients[0].root
	r.mu.Lock()
	r.ranks[1].conn.Close()
	r.mu.Unlock()
	j.mustEnd(t, 1, End{Rank: 0, Text: "rank 0 has died, or has ended without leaving the job"})
}

func TestAbortEndsTheJob(t *testing.T) {
	for _, culprit := range []int{0, 2} {
		t.Run(fmt.Sprintf("rank %d", culprit), func(t *testing.T) {
			j := newJob(t, 3)
			j.join(t, 0, 1, 2)
			if err := j.clients[culprit].Abort(7, "the disk is full"); err != nil {
				t.Error(err)
			}
			for rank := range j.clients {
				if rank != culprit {
					j.mustEnd(t, rank, End{Rank: culprit, Code: 7, Text: "the disk is full"})
				}
			}
		})
	}
}

// Rank 0 leaves last: until then it tells the others of deaths and aborts, and serves them.
func TestRootLeavesLast(t *testing.T) {
	ctx := proctest.Context(t)
	leave := func(t *testing.T) (j *job, left chan error) {
		j = newJob(t, 3)
		j.join(t, 0, 1, 2)
		left = make(chan error, 1)
		go func() { left <- j.clients[0].Leave() }()
		r := j.clients[0].root
		proctest.Eventually(t, "rank 0 leaves", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.leaves == 1
		})
		return j, left
	}
	t.Run("all leave", func(t *testing.T) {
		j, left := leave(t)
		if err := j.clients[1].Put(ctx, "late", "value"); err != nil {
			t.Error(err)
		}
		if err := j.clients[1].Leave(); err != nil {
			t.Error(err)
		}
		if v, err := j.clients[2].Get(ctx, "late"); err != nil || v != "value" || len(left) != 0 {
			t.Errorf("%q, %v; rank 0 has left: %d", v, err, len(left))
		}
		if err := j.clients[2].Leave(); err != nil {
			t.Error(err)
		}
		if err := proctest.Receive(t, "Leave returns", left); err != nil {
			t.Error(err)
		}
		for rank, ended := range j.ended {
			if len(ended) != 0 {
				t.Errorf("rank %d: %v", rank, <-ended)
			}
		}
	})
	t.Run("abort", func(t *testing.T) {
		j, left := leave(t)
		if err := j.clients[1].Abort(7, "the disk is full"); err != nil {
			t.Error(err)
		}
		j.mustEnd(t, 2, End{Rank: 1, Code: 7, Text: "the disk is full"})
		if err := proctest.Receive(t, "Leave returns", left); err == nil || !strings.Contains(err.Error(), "rank 1 has aborted the job with code 7: the disk is full") {
			t.Error(err)
		}
	})
	t.Run("death", func(t *testing.T) {
		j, left := leave(t)
		if err := j.clients[1].Put(ctx, "first", "request"); err != nil {
			t.Error(err)
		}
		if err := j.clients[1].HangUp(); err != nil {
			t.Error(err)
		}
		const text = "rank 1 (at 127.0.0.1) has died, or has ended without leaving the job"
		j.mustEnd(t, 2, End{Rank: 1, Text: text})
		if err := proctest.Receive(t, "Leave returns", left); err == nil || !strings.Contains(err.Error(), text) {
			t.Error(err)
		}
	})
}

// All ranks leave at once, many times.
func TestRanksLeaveAtOnce(t *testing.T) {
	times := 300
	if testing.Short() {
		times = 30
	}
	for range times {
		j := newJob(t, 3)
		j.join(t, 0, 1, 2)
		j.each(t, func(_ int, c *Client) error { return c.Leave() })
	}
}

// A rank that joins again before rank 0 has left waits for the next meeting.
func TestRankJoinsAgain(t *testing.T) {
	ctx := proctest.Context(t)
	j := newJob(t, 2)
	for range 3 {
		j.join(t, 0, 1)
		j.each(t, func(rank int, c *Client) error {
			if rank != 1 {
				return c.Barrier(ctx)
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			return c.Leave()
		})
		again := make(chan error, 1)
		go func() {
			c, err := Join(ctx, j.of(1))
			j.clients[1] = c
			again <- err
		}()
		if err := j.clients[0].Leave(); err != nil {
			t.Error(err)
		}
		j.join(t, 0)
		if err := proctest.Receive(t, "rank 1 joins again", again); err != nil {
			t.Fatal(err)
		}
		j.each(t, func(_ int, c *Client) error { return c.Leave() })
	}
	if text := j.log.String(); text != "" {
		t.Error(text)
	}
}
