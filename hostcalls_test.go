package softnd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// memoryLeaders connects leaders inside this process, in place of relays.
type memoryLeaders struct {
	host int
	to   [][]chan leaderCall // by sender and receiver
}

type leaderCall struct {
	kind callKind
	blob []byte
	err  error
}

func (m memoryLeaders) exchange(ctx context.Context, _ string, kind callKind, blob []byte) ([][]byte, error) {
	all := make([][]byte, len(m.to))
	all[m.host] = blob
	m.tell(leaderCall{kind: kind, blob: bytes.Clone(blob)})
	for host := range all {
		if host == m.host {
			continue
		}
		select {
		case c := <-m.to[host][m.host]:
			if c.err == nil && c.kind != kind {
				c.err = &nd.OpError{Op: "exchange", Object: "job", Status: nd.InvalidDeviceState, Detail: fmt.Sprintf("host %d calls %v", host, c.kind)}
			}
			if c.err != nil {
				return nil, failedAt("exchange", host, nd.StatusOf(c.err), c.err.Error())
			}
			all[host] = c.blob
		case <-ctx.Done():
			return nil, nd.CanceledError(ctx, "exchange", "job")
		}
	}
	return all, nil
}

func (m memoryLeaders) fail(cause error) { m.tell(leaderCall{err: cause}) }

func (m memoryLeaders) tell(c leaderCall) {
	for host, to := range m.to[m.host] {
		if host != m.host {
			to <- c
		}
	}
}

// newHostJobs makes a job whose ranks run on hosts, each with an arena of its own in this process.
func newHostJobs(t *testing.T, of []int, options ...Option) []*Job {
	t.Helper()
	return newHostJobsOf(t, of, 0, options...)
}

// newHostJobsOf is newHostJobs with arenas of a size in bytes, 0 for the default.
func newHostJobsOf(t *testing.T, of []int, size uint64, options ...Option) []*Job {
	t.Helper()
	count := 0
	for _, host := range of {
		count = max(count, host+1)
	}
	to := make([][]chan leaderCall, count)
	for i := range to {
		for range count {
			to[i] = append(to[i], make(chan leaderCall, 8))
		}
	}
	name := "softnd-test-" + rand.Text()
	jobs := make([]*Job, len(of))
	t.Cleanup(func() {
		for _, j := range jobs {
			if j != nil {
				_ = j.Close()
			}
		}
	})
	s, err := readSettings(options)
	if err != nil {
		t.Fatal(err)
	}
	for rank, host := range of {
		h := newHosts(&bootstrap.Hosts{Number: host, Count: count, Of: of})
		arena, err := shm.OpenFabric(proctest.Context(t), fmt.Sprintf("%s-%d", name, host), shm.Config{Ranks: len(h.local), Host: host, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		j := newJob(arena)
		jobs[rank] = j
		j.hosts, j.rank, j.size = h, rank, len(of)
		if err := j.enter(proctest.Context(t), h.position[rank], s); err != nil {
			t.Fatal(err)
		}
		if j.isLeader() {
			h.leaders = memoryLeaders{host, to}
			if h.notice, err = j.member.Alloc(maxNotice); err != nil {
				t.Fatal(err)
			}
		}
	}
	for rank, err := range eachJob(jobs, func(j *Job) error { return j.form(proctest.Context(t), "init") }) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return jobs
}

// eachJob calls f for each rank at the same time, and returns the errors.
func eachJob(jobs []*Job, f func(j *Job) error) []error {
	errs := make([]error, len(jobs))
	var done sync.WaitGroup
	for i, j := range jobs {
		done.Go(func() { errs[i] = f(j) })
	}
	done.Wait()
	return errs
}

var placements = map[string][]int{
	"2x2":        {0, 0, 1, 1},
	"cyclic":     {0, 1, 0, 1, 0},
	"2x1":        {0, 1},
	"three":      {0, 1, 1, 1, 2, 2},
	"one is all": {0, 0, 0, 1},
}

func TestCollectiveCallsOverHosts(t *testing.T) {
	for name, of := range placements {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(proctest.Context(t))
			defer cancel(nil)
			jobs := newHostJobs(t, of)
			blob := func(rank, round int) []byte {
				return bytes.Repeat([]byte{byte(rank + 1)}, (rank*7+round*1000)%5000)
			}
			for _, err := range eachJob(jobs, func(j *Job) (err error) {
				defer func() {
					if err != nil {
						cancel(err)
					}
				}()
				if err := j.exchangeAddresses(ctx); err != nil {
					return err
				}
				for round := range 50 {
					if round%3 == 0 {
						if err := j.Barrier(ctx); err != nil {
							return err
						}
					}
					all, err := j.Exchange(ctx, blob(j.Rank(), round))
					if err != nil || len(all) != len(of) {
						return fmt.Errorf("rank %d: %d blobs, %w", j.Rank(), len(all), err)
					}
					for rank, b := range all {
						if !bytes.Equal(b, blob(rank, round)) {
							return fmt.Errorf("rank %d, round %d: blob of rank %d has %d bytes", j.Rank(), round, rank, len(b))
						}
					}
				}
				for rank, host := range of {
					a, ok := j.addressOf(rank)
					want, _ := jobs[rank].addressOf(rank)
					if !ok || a != want || a.As4()[1] != byte(77+host) || j.isRemote(rank) != (host != j.hosts.Number) {
						return fmt.Errorf("rank %d: rank %d has the address %v", j.Rank(), rank, a)
					}
				}
				return nil
			}) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A barrier holds until the last rank of any host has arrived.
func TestBarrierOverHostsWaits(t *testing.T) {
	ctx := proctest.Context(t)
	jobs := newHostJobs(t, placements["2x2"])
	for late := range jobs {
		arrived, passed := make(chan error, len(jobs)), 0
		for rank, j := range jobs {
			if rank != late {
				go func() { arrived <- j.Barrier(ctx) }()
			}
		}
		time.Sleep(5 * time.Millisecond)
		if len(arrived) != 0 {
			t.Fatalf("%d ranks have passed the barrier before rank %d came", len(arrived), late)
		}
		go func() { arrived <- jobs[late].Barrier(ctx) }()
		for ; passed < len(jobs); passed++ {
			if err := proctest.Receive(t, "a rank passes", arrived); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// If the blobs of all hosts together are too long, all ranks get the error, and remain in step.
func TestExchangeOverHostsIsLimited(t *testing.T) {
	ctx := proctest.Context(t)
	jobs := newHostJobs(t, placements["2x2"], WithExchangeLimit(1000))
	for _, sizes := range [][]int{{1001, 0, 0, 0}, {600, 0, 0, 600}, {0, 0, 600, 600}, {250, 250, 250, 250}} {
		total := 0
		for _, n := range sizes {
			total += n
		}
		for rank, err := range eachJob(jobs, func(j *Job) error {
			_, err := j.Exchange(ctx, make([]byte, sizes[j.Rank()]))
			return err
		}) {
			if total > 1000 != errors.Is(err, nd.InvalidBufferSize) || total <= 1000 && err != nil {
				t.Errorf("%v, rank %d: %v", sizes, rank, err)
			}
		}
	}
}

// Ranks that make different collective calls get errors if the first rank of a host is concerned.
func TestDifferentCallsOverHosts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	jobs := newHostJobs(t, placements["2x2"])
	for rank, err := range eachJob(jobs, func(j *Job) error {
		if j.hosts.Number == 1 {
			return j.Barrier(ctx)
		}
		_, err := j.Exchange(ctx, nil)
		return err
	}) {
		if !errors.Is(err, nd.InvalidDeviceState) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A barrier of a host fails if another rank of that host makes an exchange.
func TestExchangeWithinAHostFailsItsBarrier(t *testing.T) {
	for crossed := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		jobs := newHostJobs(t, placements["2x2"])[:2]
		for rank, err := range eachJob(jobs, func(j *Job) error {
			if j.rank == crossed {
				_, err := j.Exchange(ctx, nil)
				return err
			}
			return j.Barrier(ctx)
		}) {
			if !errors.Is(err, nd.InvalidDeviceState) {
				t.Errorf("rank %d exchanges; rank %d: %v", crossed, rank, err)
			}
		}
	}
}

// A rank that leaves is noticed by the ranks of all hosts, which name it.
func TestRankLeavesOverHosts(t *testing.T) {
	ctx := proctest.Context(t)
	for _, call := range []string{"barrier", "exchange"} {
		jobs := newHostJobs(t, placements["2x2"])
		if err := jobs[3].Close(); err != nil {
			t.Fatal(err)
		}
		for rank, err := range eachJob(jobs[:3], func(j *Job) error {
			if call == "barrier" {
				return j.Barrier(ctx)
			}
			_, err := j.Exchange(ctx, []byte("blob"))
			return err
		}) {
			if !errors.Is(err, nd.ConnectionAborted) || !strings.Contains(err.Error(), "rank 3 has died or left") {
				t.Errorf("%s, rank %d: %v", call, rank, err)
			}
		}
		for rank, err := range eachJob(jobs[:3], func(j *Job) error { return j.Barrier(ctx) }) {
			if !errors.Is(err, nd.InvalidDeviceState) {
				t.Errorf("%s, rank %d, next call: %v", call, rank, err)
			}
		}
	}
}

// A leader that loses another host tells the ranks of its host, with which it stays in the job.
func TestLinkEndsAndLeaderStays(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, lost := newHostJobs(t, placements["2x2"])[0].packsOf(&relayclient.Answer{Outcome: relayclient.Lost, Host: 1}, "barrier", barrierCall)
	if !strings.Contains(lost.Error(), "host 1: rank 2, the first of that host, has died or left") {
		t.Error(lost)
	}
	for _, err := range []error{lost, &nd.OpError{Op: "exchange", Object: "job", Status: nd.ConnectionAborted, Err: nd.Canceled}} {
		jobs := newHostJobs(t, placements["2x2"])
		jobs[0].hosts.leaders = failedLeaders{err}
		for rank, got := range eachJob(jobs[:2], func(j *Job) error { return j.Barrier(ctx) }) {
			if !errors.Is(got, nd.ConnectionAborted) {
				t.Errorf("%v: rank %d: %v", err, rank, got)
			}
		}
	}
}

// A call that one rank cancels fails at other hosts with an error that names the host, in all ranks.
func TestCancelAtOneHost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	over, end := context.WithCancel(ctx)
	end()
	jobs := newHostJobs(t, placements["2x2"])
	if err := jobs[2].Barrier(over); !errors.Is(err, nd.Canceled) { // rank 3 is late
		t.Fatalf("rank 2: %v", err)
	}
	for rank, err := range eachJob(jobs[:2], func(j *Job) error { return j.Barrier(ctx) }) {
		if !errors.Is(err, nd.ConnectionAborted) || errors.Is(err, nd.Canceled) || !strings.Contains(err.Error(), "host 1") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// The error of a host that has no relay fits in a value of PMI, whatever its characters are.
func TestFailedStartFits(t *testing.T) {
	for _, part := range []string{"a", "<\n", "\x00", "ä", "\xff", "\u2028"} {
		for _, n := range []int{1, 100, 1000} {
			text := strings.Repeat(part, n)
			a := failedStart(errors.New(text))
			b, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(url.QueryEscape(string(b))); got > maxAnnouncement || !strings.HasPrefix(strings.ToValidUTF8(text, ""), a.Error) || n == 1000 && part != "\xff" && got < maxAnnouncement-40 {
				t.Errorf("%d times %q: %d bytes, %q", n, part, got, a.Error)
			}
		}
	}
}

// A host whose exchange limit is lower than that of another says so.
func TestPackAboveTheLimit(t *testing.T) {
	j := &Job{exchangeLimit: 10, hosts: newHosts(&bootstrap.Hosts{Count: 2, Of: []int{0, 1}})}
	_, err := j.packsOf(&relayclient.Answer{Outcome: relayclient.TooLong, Host: 1}, "exchange", exchangeCall)
	if !errors.Is(err, nd.InvalidBufferSize) || !strings.Contains(err.Error(), "host 1") {
		t.Error(err)
	}
}

// The length of the longest answer of a relay is a number of 64 bits, whatever the limit.
func TestLargestPack(t *testing.T) {
	j := &Job{exchangeLimit: ^uint64(0), size: 1024}
	if n := j.maxPack(); n < 1<<48 || n > 1<<49 || 17*(n+8) < n {
		t.Errorf("%d bytes", n)
	}
}

// An answer that no relay gives is an error.
func TestDamagedAnswer(t *testing.T) {
	j := &Job{hosts: newHosts(&bootstrap.Hosts{Count: 2, Of: []int{0, 1}})}
	for _, a := range []relayclient.Answer{{}, {Outcome: relayclient.Met}, {Outcome: relayclient.Met, Bytes: make([]byte, 9)}, {Outcome: relayclient.Lost, Host: 2}, {Outcome: relayclient.Lost + 1}} {
		if _, err := j.packsOf(&a, "exchange", exchangeCall); !errors.Is(err, nd.InternalError) {
			t.Errorf("%+v: %v", a, err)
		}
	}
}

func FuzzPacks(f *testing.F) {
	f.Add(appendPack(nil, [][]byte{[]byte("a"), nil}, false), appendPack(nil, nil, true))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		h := newHosts(&bootstrap.Hosts{Number: 0, Count: 3, Of: []int{0, 1, 1, 2}})
		j := &Job{hosts: h, size: 4}
		all, err := j.unpack([][]byte{appendPack(nil, [][]byte{nil}, false), a, b})
		if err == nil && len(all) != 4 {
			t.Errorf("%q", all)
		}
	})
}
