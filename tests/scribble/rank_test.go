package scribble

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/traffic"
)

var roleScribbled = proctest.Role("scribbled", runScribbled)

// runScribbled is an honest rank, for a while.
func runScribbled(s *proctest.Self) error {
	span, err1 := time.ParseDuration(s.Args[0])
	seed, err2 := strconv.ParseUint(s.Args[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	j, err := softnd.Init(ctx)
	if err != nil {
		return nil // the arena was damaged before
	}
	var done sync.WaitGroup
	var sum work
	random := func(i uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, i)) }
	done.Go(func() { honestTraffic(ctx, j, random(0), &sum) })
	done.Go(func() { traffic.Objects(ctx, j.Adapter(), random(1), func() { sum.add(allocations, 1) }) })
	done.Go(func() { honestTogether(ctx, j, random(2), &sum) })
	ended := make(chan struct{})
	go func() {
		done.Wait()
		close(ended)
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(time.Second): // a drain may wait for a hazard that is none
	}
	j.Close()
	<-ended
	s.Say("%d %d %d %d", sum[0], sum[1], sum[2], sum[3])
	return nil
}

// honestTogether makes collective calls as long as they succeed.
func honestTogether(ctx context.Context, j *softnd.Job, r *rand.Rand, sum *work) {
	for ctx.Err() == nil {
		blob := make([]byte, 5000)
		if os.Getenv(envScribbleC) == "" { // else a rank in C wants those of all to have the length of its own
			blob = blob[:r.IntN(len(blob))]
		}
		if _, err := j.Exchange(ctx, blob); err != nil {
			return
		}
		if err := j.Barrier(ctx); err != nil {
			return
		}
		sum.add(collectives, 2)
	}
}

// honestTraffic connects with the other ranks, and moves bytes. Each time, it does so for a moment.
func honestTraffic(ctx context.Context, j *softnd.Job, r *rand.Rand, sum *work) {
	for ctx.Err() == nil {
		var done sync.WaitGroup
		for peer := range j.Size() {
			if peer == j.Rank() {
				continue
			}
			l := &traffic.Link{Rand: rand.New(rand.NewPCG(r.Uint64(), 1)), Job: j, Peer: peer, Posts: true, Errs: true, Wild: true, Steps: 10_000}
			done.Go(func() {
				c, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
				defer cancel()
				l.Run(c)
				sum.add(sessions, l.Counts[traffic.Sessions].Load())
				sum.add(transfers, l.Counts[traffic.Done].Load())
			})
		}
		done.Wait()
		time.Sleep(time.Millisecond) // all others may have died
	}
}
