package softnd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

// oneQueue is the configuration of an endpoint with one new queue for both kinds of results.
func oneQueue(ctx context.Context, job *softnd.Job) (nd.CompletionQueue, nd.EndpointConfig, error) {
	cq, err := job.Adapter().CreateCompletionQueue(ctx, 64)
	return cq, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq, InlineSize: 16}, err
}

// Each rank sends its number to each other rank.
func TestConnectAllConnectsEachPairOfRanks(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		softndtest.Run(t, n, func(ctx context.Context, job *softnd.Job) error {
			cq, cfg, err := oneQueue(ctx, job)
			if err != nil {
				return err
			}
			memory, err := job.Adapter().Allocate(ctx, 8*n, nd.AllowLocalWrite)
			if err != nil {
				return err
			}
			endpoints, err := job.ConnectAll(ctx, cfg)
			if err != nil {
				return err
			}
			for peer, ep := range endpoints {
				if ep == nil {
					if peer != job.Rank() {
						return fmt.Errorf("no endpoint for rank %d", peer)
					}
					continue
				}
				if err := ep.Receive(0, nd.One(nd.SGEOf(memory, 8*peer, 8))); err != nil {
					return err
				}
				if err := nd.SendInline(ep, 1, []byte{byte(job.Rank())}, nd.SilentSuccess); err != nil {
					return err
				}
			}
			var seen []int
			for len(seen) < n-1 {
				r, err := nd.WaitOne(ctx, cq, nil)
				if err == nil {
					err = nd.Explain(endpoints[r.EndpointContext], r)
				}
				if err != nil {
					return err
				}
				peer := int(r.EndpointContext)
				if got := memory.Bytes()[8*peer]; int(got) != peer {
					return fmt.Errorf("the message of rank %d says %d", peer, got)
				}
				seen = append(seen, peer)
			}
			if slices.Sort(seen); len(slices.Compact(seen)) != n-1 {
				return fmt.Errorf("messages of ranks %v", seen)
			}
			return job.Barrier(ctx)
		}, softnd.WithReceiveTimeout(softnd.NoLimit)) // a rank may be late
	}
}

// A ConnectAll that fails leaves no connection: the peer's endpoint ends.
func TestConnectAllClosesItsEndpointsAfterAnError(t *testing.T) {
	connected := make(chan struct{}) // closed by rank 1
	softndtest.Run(t, 3, func(ctx context.Context, job *softnd.Job) error {
		_, cfg, err := oneQueue(ctx, job)
		if err != nil {
			return err
		}
		switch job.Rank() {
		case 0:
			brief, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-connected:
				case <-ctx.Done():
				}
				cancel()
			}()
			if _, err := job.ConnectAll(brief, cfg); !errors.Is(err, nd.Canceled) {
				return fmt.Errorf("without rank 2: %w, want Canceled", err)
			}
		case 1:
			ep, err := job.Connect(ctx, 0, cfg)
			if err != nil {
				return err
			}
			close(connected)
			select {
			case <-ep.Done():
			case <-ctx.Done():
				return errors.New("the connection with rank 0 stays")
			}
		}
		return job.Barrier(ctx)
	})
}

// ConnectAll ends in all ranks if one has left, because the ranks that fail leave too.
func TestConnectAllFailsIfARankLeaves(t *testing.T) {
	const n = 4
	for gone := range n {
		t.Run(fmt.Sprintf("rank %d", gone), func(t *testing.T) {
			softndtest.Run(t, n, func(ctx context.Context, job *softnd.Job) error {
				if job.Rank() == gone {
					return job.Close()
				}
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				_, cfg, err := oneQueue(ctx, job)
				if err != nil {
					return err
				}
				if _, err = job.ConnectAll(ctx, cfg); err == nil || errors.Is(err, nd.Canceled) {
					return fmt.Errorf("ConnectAll: %v, want a failure because of a rank that has left", err)
				}
				return job.Close()
			})
		})
	}
}

func TestConnectRefusesRanksThatAreNone(t *testing.T) {
	job := softndtest.New(t, 2)[0]
	_, cfg, err := oneQueue(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range []int{-1, 0, 2} {
		for name, connect := range map[string]func(context.Context, int, nd.EndpointConfig) (nd.Endpoint, error){"connect": job.Connect, "dial": job.Dial} {
			_, err := connect(t.Context(), peer, cfg)
			var op *nd.OpError
			if !errors.Is(err, nd.InvalidParameter) || !errors.As(err, &op) || op.Field != "peer" || op.Op != name ||
				op.Detail != "this is rank 0, and the job has ranks 0 to 1" {
				t.Errorf("%s with rank %d: %v", name, peer, err)
			}
		}
	}
}

func TestDialReachesAListener(t *testing.T) {
	const n = 4
	softndtest.Run(t, n, func(ctx context.Context, job *softnd.Job) error {
		cq, cfg, err := oneQueue(ctx, job)
		if err != nil {
			return err
		}
		var l *softnd.Listener
		if job.Rank() == 0 {
			if l, err = job.Listen(ctx); err != nil {
				return err
			}
			defer l.Close()
			if _, err := job.Listen(ctx); !errors.Is(err, nd.SharingViolation) {
				return fmt.Errorf("a second listener: %w, want SharingViolation", err)
			}
		}
		if err := job.Barrier(ctx); err != nil {
			return err
		}
		if job.Rank() > 0 {
			ep, err := job.Dial(ctx, 0, cfg)
			if err != nil {
				return err
			}
			defer ep.Close()
			if err := nd.SendInline(ep, 1, []byte{byte(job.Rank())}, 0); err != nil {
				return err
			}
			if _, err := nd.WaitOne(ctx, cq, ep); err != nil {
				return err
			}
			return job.Barrier(ctx)
		}
		memory, err := job.Adapter().Allocate(ctx, 8, nd.AllowLocalWrite)
		if err != nil {
			return err
		}
		var seen []int
		for range n - 1 {
			ep, peer, err := l.Accept(ctx, cfg)
			if err != nil {
				return err
			}
			defer ep.Close()
			if err := ep.Receive(0, nd.One(nd.SGEOf(memory, 0, 8))); err != nil {
				return err
			}
			if _, err := nd.WaitOne(ctx, cq, ep); err != nil {
				return err
			}
			if got := int(memory.Bytes()[0]); got != peer {
				return fmt.Errorf("rank %d was accepted as rank %d", got, peer)
			}
			seen = append(seen, peer)
		}
		if slices.Sort(seen); !slices.Equal(seen, []int{1, 2, 3}) {
			return fmt.Errorf("accepted ranks %v", seen)
		}
		return job.Barrier(ctx)
	}, softnd.WithReceiveTimeout(softnd.NoLimit)) // a rank may be late
}

func TestDialFailsWithoutAListener(t *testing.T) {
	jobs := softndtest.New(t, 2)
	_, cfg, err := oneQueue(t.Context(), jobs[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs[0].Dial(t.Context(), 1, cfg); !errors.Is(err, nd.ConnectionRefused) || !strings.HasPrefix(err.Error(), "softnd: dial to rank 1 from rank 0: ") {
		t.Errorf("%v, want ConnectionRefused", err)
	}
	for range 2 { // the address is free again after Close
		l, err := jobs[1].Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := jobs[0].Dial(t.Context(), 1, cfg); !errors.Is(err, nd.ConnectionRefused) {
		t.Errorf("after Close of the listener: %v, want ConnectionRefused", err)
	}
}

// Accept skips a request that its rank has given up.
func TestAcceptSkipsARequestThatIsGivenUp(t *testing.T) {
	jobs := softndtest.New(t, 3)
	l, err := jobs[0].Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, limit := range []time.Duration{time.Millisecond, time.Hour} {
		rank := i + 1
		_, cfg, err := oneQueue(t.Context(), jobs[rank])
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		dialed := make(chan error, 1)
		go func() {
			ep, err := jobs[rank].Dial(ctx, 0, cfg)
			if err == nil {
				err = ep.Close()
			}
			dialed <- err
		}()
		if rank == 1 {
			if err := <-dialed; !errors.Is(err, nd.Canceled) {
				t.Errorf("a Dial that is not accepted: %v, want Canceled", err)
			}
			continue
		}
		defer func() {
			if err := <-dialed; err != nil {
				t.Error(err)
			}
		}()
	}
	_, cfg, err := oneQueue(t.Context(), jobs[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, peer, err := l.Accept(t.Context(), cfg); err != nil || peer != 2 {
		t.Errorf("accepted rank %d, %v, want rank 2", peer, err)
	}
}

func TestAcceptEndsWithItsListener(t *testing.T) {
	job := softndtest.New(t, 1)[0]
	_, cfg, err := oneQueue(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	l, err := job.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { l.Close() })
	for range 2 { // once while Close is called, and once after it
		if _, _, err := l.Accept(t.Context(), cfg); !errors.Is(err, nd.Canceled) {
			t.Errorf("%v, want Canceled", err)
		}
	}
}

// An Accept that cannot create its endpoint refuses the request.
func TestAcceptRefusesTheRequestIfItsConfigurationIsWrong(t *testing.T) {
	jobs := softndtest.New(t, 2)
	l, err := jobs[0].Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, cfg, err := oneQueue(t.Context(), jobs[1])
	if err != nil {
		t.Fatal(err)
	}
	dialed := make(chan error, 1)
	go func() {
		_, err := jobs[1].Dial(t.Context(), 0, cfg)
		dialed <- err
	}()
	if _, _, err := l.Accept(t.Context(), nd.EndpointConfig{}); !errors.Is(err, nd.InvalidParameter) {
		t.Errorf("Accept: %v, want InvalidParameter", err)
	}
	if err := <-dialed; !errors.Is(err, nd.ConnectionRefused) {
		t.Errorf("Dial: %v, want ConnectionRefused", err)
	}
}

// TestConnectNamesRankThatLeft: Connect to a rank that has left says so, and does not advise to wait until it starts.
func TestConnectNamesRankThatLeft(t *testing.T) {
	ctx := proctest.Context(t)
	jobs := softndtest.New(t, 2)
	q, err := jobs[1].Adapter().CreateCompletionQueue(ctx, 16)
	if err == nil {
		err = jobs[0].Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = jobs[1].Connect(ctx, 0, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
	if !errors.Is(err, nd.HostUnreachable) || !strings.Contains(err.Error(), "the rank has died or left") {
		t.Errorf("Connect to a rank that has left: %v", err)
	}
}

// A rank that gives up and connects again, with a rank that is waiting for a third one,
// leaves nothing behind in either of them.
func TestConnectRetriesLeaveNothing(t *testing.T) {
	longer := scale.Of(0, 10*time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Timeout+longer)
	defer cancel()
	jobs := softndtest.New(t, 3)
	config := func(j *softnd.Job) nd.EndpointConfig {
		q, err := j.Adapter().CreateCompletionQueue(ctx, 16)
		if err != nil {
			t.Fatal(err)
		}
		return nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q}
	}
	waiting, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	cfg := config(jobs[0])
	busy.Go(func() {
		if _, err := jobs[0].Connect(waiting, 1, cfg); !errors.Is(err, nd.Canceled) {
			t.Errorf("connect with a rank that does not: %v", err)
		}
	})
	cfg2 := config(jobs[2])
	retry := func(times int) (kept int, inUse uint64) {
		for range times {
			short, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
			ep, err := jobs[2].Connect(short, 0, cfg2)
			cancel()
			if err == nil {
				ep.Close()
				t.Fatal("connected with a rank that waits for another")
			}
		}
		return jobaccess.Of(jobs[0]).Kept(2), jobaccess.Of(jobs[2]).Member.InUse()
	}
	const few, many, slack = 50, 400, 64 << 10
	_, before := retry(few)
	goroutines := runtime.NumGoroutine()
	end := time.Now().Add(longer)
	for again := true; again && !t.Failed(); again = time.Now().Before(end) {
		kept, after := retry(many)
		// A try's endpoint and record are given back when the other side has let go of them.
		proctest.Eventually(t, "the memory of the tries is given back", func() bool {
			after = jobaccess.Of(jobs[2]).Member.InUse()
			return after <= before+slack
		})
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		t.Logf("after %d tries more: %d requests kept, %d bytes of the arena in use (%d at first), %d goroutines (%d), %d bytes of heap",
			many, kept, after, before, runtime.NumGoroutine(), goroutines, m.HeapAlloc)
		if kept > few {
			t.Errorf("%d requests that were given up are kept", kept)
		}
		if n := runtime.NumGoroutine(); n > goroutines+few {
			t.Errorf("%d goroutines, %d at first", n, goroutines)
		}
	}
}
