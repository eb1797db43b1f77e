package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// endings are the ways in which a rank ends its job, by name.
var endings = map[string]func(job *softnd.Job, ep nd.Endpoint) error{
	"panic": func(*softnd.Job, nd.Endpoint) error { panic(diskFull) },
	"panic past Endpoint.Close": func(_ *softnd.Job, ep nd.Endpoint) error {
		defer ep.Close()
		panic(diskFull)
	},
	"panic past both": func(job *softnd.Job, ep nd.Endpoint) error {
		defer job.Close()
		defer func() { ep.Close() }()
		panic(diskFull)
	},
	"error": func(*softnd.Job, nd.Endpoint) error { return errors.New(diskFull) },
	"error past Endpoint.Close": func(_ *softnd.Job, ep nd.Endpoint) error {
		defer ep.Close()
		return errors.New(diskFull)
	},
	"error past Job.Close": func(job *softnd.Job, _ nd.Endpoint) error {
		defer job.Close()
		return errors.New(diskFull)
	},
	"abort past Endpoint.Close": func(_ *softnd.Job, ep nd.Endpoint) error {
		ep.Close()
		softnd.Abort(5, diskFull)
		return nil
	},
}

const diskFull = "the disk is full"

// runCause is one of two ranks. The rank in the second argument ends the job as the first
// argument says. The other rank, its victim, fails because of that.
func runCause() error {
	ctx := context.Background()
	job, err := softnd.Init(ctx)
	if err != nil {
		return err
	}
	cq, err := job.Adapter().CreateCompletionQueue(ctx, 8)
	if err != nil {
		return err
	}
	region, err := job.Adapter().Allocate(ctx, 4096, nd.AllowLocalWrite)
	if err != nil {
		return err
	}
	cfg := nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq, ReceiveDepth: 4, InitiatorDepth: 4, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}
	ep, err := job.Connect(ctx, 1-job.Rank(), cfg)
	if err != nil {
		return err
	}
	if err := ep.Receive(1, nd.One(nd.SGE{Buffer: region.Bytes()[:8], Token: region.LocalToken()})); err != nil {
		return err
	}
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	if fmt.Sprint(job.Rank()) == os.Args[2] {
		return endings[os.Args[1]](job, ep)
	}
	results := make([]nd.Result, 1)
	switch os.Args[3] {
	case "barrier":
		err = job.Barrier(ctx)
	case "abort":
		_, _ = cq.Wait(ctx, results)
		softnd.Abort(6, ep.Err().Error())
	default:
		for cq.Poll(results) == 0 {
		}
		err = ep.Err()
	}
	return fmt.Errorf("victim: %w", err)
}

// The rank that caused the end of a job is the first to fail, not its victim, and its error is
// printed.
func TestCauseIsFirstToFail(t *testing.T) {
	t.Parallel()
	runs := scale.Of(2, 60) // each rank is the cause
	for i, how := range slices.Sorted(maps.Keys(endings)) {
		for j, victim := range []string{"poll", "barrier", "abort"} {
			switch {
			case victim == "barrier" && strings.Contains(how, "Endpoint.Close"):
				continue // which a barrier does not notice
			case testing.Short() && (i+j)%2 != 0:
				continue // each ending and each victim is in the others, too
			}
			t.Run(how+", "+victim, func(t *testing.T) {
				wrong, status := 0, proctest.ExitError
				switch {
				case strings.HasPrefix(how, "panic"):
					status = 2
				case strings.HasPrefix(how, "abort"):
					status = 5
				}
				for run, late := 0, 0; run < runs; run++ {
					cause := run % 2
					got, _, errOut := proctest.Run(t, ndrun(t, "-n", "2", "-env", proctest.RoleEnv+"=cause", testBinary(t), how, fmt.Sprint(cause), victim))
					if strings.Contains(errOut, "the other rank was stopped") && late < 4*runs {
						// On a loaded machine the victim may fail before the cause has ended. Then no launcher can tell.
						late, run = late+1, run-1
						continue
					}
					said := strings.Contains(errOut, diskFull)
					first := strings.Contains(errOut, fmt.Sprintf("ndrun: rank %d (", cause)) && !strings.Contains(errOut, fmt.Sprintf("ndrun: rank %d (", 1-cause))
					if !said || !first || got != status {
						wrong++
						t.Logf("exit status %d, want %d:\n%s", got, status, errOut)
					}
				}
				if wrong > 0 {
					t.Errorf("%d of %d runs name the wrong rank, or not what it said", wrong, runs)
				}
			})
		}
	}
}

// causes follows lost peers back in time as long as the losses are recent.
func TestCauses(t *testing.T) {
	arena, err := shm.Create(shm.Config{Ranks: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	var members []*shm.Member
	for rank := range 4 {
		m, err := arena.Join(rank)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Leave()
		if _, err := m.JoinGroup(); err != nil {
			t.Fatal(err)
		}
		members = append(members, m)
	}
	blame := func(rank, peer int) { members[rank].RecordLostPeer(members[peer].ID()) }
	if got := causes(arena, 1); len(got) > 0 {
		t.Errorf("the causes are %d though no rank blames another", got)
	}
	blame(2, 3)
	blame(1, 2)
	blame(1, 0) // follows from the first
	blame(3, 0) // happened after what rank 2 blames it for
	if got := fmt.Sprint(causes(arena, 1)); got != "[2 3]" {
		t.Errorf("the causes of the end of rank 1 are %s, want [2 3]", got)
	}
	if got := fmt.Sprint(causes(arena, 0)); got != "[]" {
		t.Errorf("the causes of the end of rank 0, which blames none, are %s", got)
	}
}
