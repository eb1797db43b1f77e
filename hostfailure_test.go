package softnd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A host whose ranks fail in the middle of a collective call lets those of the other hosts fail in their next one.

// nextFails checks that the next barrier of jobs fails with a text.
func nextFails(t *testing.T, ctx context.Context, jobs []*Job, text string) {
	t.Helper()
	for rank, err := range eachJob(jobs, func(j *Job) error { return j.Barrier(ctx) }) {
		if err == nil || errors.Is(err, nd.Canceled) || !strings.Contains(err.Error(), text) {
			t.Errorf("next barrier, rank %d: %v, want %q", jobs[rank].Rank(), err, text)
		}
	}
}

// arrive lets a rank make the steps of a collective call up to a number of barriers, and then leave.
func arrive(t *testing.T, j *Job, barriers int) {
	t.Helper()
	j.group.Publish(0, 0)
	for range barriers {
		ticket := j.group.Arrive()
		proctest.Eventually(t, "the barrier is passed", func() bool { return j.group.Passed(ticket) })
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestRankLeavesInsideACall(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for barriers := 1; barriers <= 2; barriers++ {
		jobs := newHostJobs(t, placements["2x2"])
		call := func(j *Job) error {
			_, err := j.Exchange(ctx, []byte("blob"))
			return err
		}
		others := make(chan []error, 1)
		go func() { others <- eachJob([]*Job{jobs[0], jobs[2], jobs[3]}, call) }()
		arrive(t, jobs[1], barriers)
		errs := proctest.Receive(t, "the end of the call", others)
		if !errors.Is(errs[0], nd.ConnectionAborted) || !strings.Contains(errs[0].Error(), "rank 1 has died or left") {
			t.Errorf("%d barriers, rank 0: %v", barriers, errs[0])
		}
		if errs[1] != nil || errs[2] != nil {
			t.Errorf("%d barriers, the other host: %v", barriers, errs[1:])
		}
		nextFails(t, ctx, jobs[2:], "rank 1 has died or left")
	}
}

// A leader that cancels its call has told the others that it has arrived, and does not come again.
func TestLeaderCancels(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	jobs := newHostJobs(t, []int{0, 1, 1})
	over, end := context.WithCancel(ctx)
	end()
	if err := jobs[0].Barrier(over); !errors.Is(err, nd.Canceled) {
		t.Errorf("rank 0: %v", err)
	}
	for rank, err := range eachJob(jobs[1:], func(j *Job) error { return j.Barrier(ctx) }) {
		if err != nil {
			t.Errorf("rank %d: %v", 1+rank, err)
		}
	}
	nextFails(t, ctx, jobs[1:], "host 0")
}

// A host without memory for the blobs of the others.
func TestNoMemoryForTheResult(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	jobs := newHostJobsOf(t, placements["2x2"], 96<<20)
	const chunk = 64 << 10
	var taken []shm.Offset
	for {
		off, err := jobs[0].member.Alloc(chunk)
		if err != nil {
			break
		}
		taken = append(taken, off)
	}
	for _, off := range taken[len(taken)-4:] { // for the blobs of this host: a rank without memory for its own does not arrive
		jobs[0].member.Free(off)
	}
	long := make([]byte, 4*chunk)
	var noMemory *NoMemoryError
	errs := eachJob(jobs, func(j *Job) error {
		blob := []byte("blob")
		if j.hosts.Number == 1 {
			blob = long
		}
		_, err := j.Exchange(ctx, blob)
		return err
	})
	if !errors.As(errs[0], &noMemory) || errs[1] == nil || errs[1].Error() != errs[0].Error() || errs[2] != nil || errs[3] != nil {
		t.Errorf("exchange: %v", errs)
	}
	nextFails(t, ctx, jobs[2:], "host 0")
}

// The ranks of a host whose relay could not be connected learn the cause from their leader.
func TestLeaderWithoutAllOthers(t *testing.T) {
	cause := errors.New("no route")
	jobs := newHostJobs(t, []int{0, 0})
	jobs[0].hosts.leaders = failedLeaders{cause}
	for rank, err := range eachJob(jobs, func(j *Job) error { return j.Barrier(proctest.Context(t)) }) {
		if err == nil || err.Error() != cause.Error() {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A collective call fails in all ranks of a host whose relay dies, also one that has more to pass than the relay takes.
func TestRelayDiesInACall(t *testing.T) {
	ctx := proctest.Context(t)
	for name, rest := range map[string]string{"at once": "", "later": "sleep 0.1", "with a part": "head -c 100000 >/dev/null"} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "relay")
			script := "#!/bin/sh\nread line; echo '{\"control\":\"127.0.0.1:1\"}'; read line; echo '{\"ready\":true}'; " + rest + "\n"
			if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv(relayclient.EnvProgram, program)
			jobs := newHostJobs(t, placements["2x2"])
			leader := jobs[0]
			relay, err := relayclient.Start(ctx, leader.arena.File(), relayclient.Config{Pack: leader.maxPack()})
			if err == nil {
				err = relay.Connect(ctx, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			leader.hosts.relay, leader.hosts.leaders = relay, relayedLeaders{leader}
			self, err := leader.arena.Peer(leader.member.ID())
			if err != nil {
				t.Fatal(err)
			}
			over := make(chan struct{})
			defer close(over)
			go func() { // the relays of a job are members, whose death wakes the ranks
				for {
					select {
					case <-over:
						return
					case <-time.After(10 * time.Millisecond):
						self.Wake()
					}
				}
			}()
			for rank, err := range eachJob(jobs[:2], func(j *Job) error {
				_, err := j.Exchange(ctx, make([]byte, 1<<20))
				return err
			}) {
				if !errors.Is(err, nd.ConnectionAborted) || !strings.Contains(err.Error(), "the relay of this host has ended") {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}
