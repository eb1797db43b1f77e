package main

import (
	"time"

	"github.com/softnd/softnd"
)

// again is c/tests/again.c in Go.
func again() {
	for round := range 40 {
		job := must(softnd.Init(ctx))
		for rank, blob := range must(job.Exchange(ctx, []byte{byte(job.Rank()), byte(round), 0, 0})) {
			if int(blob[0]) != rank || int(blob[1]) != round {
				panic(blob)
			}
		}
		if (round+job.Rank())%4 == 0 {
			time.Sleep(3 * time.Millisecond)
		}
		if err := job.Close(); err != nil {
			panic(err)
		}
	}
}
