package main

import (
	"fmt"

	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/shm"
)

func _() { // a constant or index error here means that launcher and arena differ in the ranks of a job
	var at [1]struct{}
	_ = at[launcher.MaxRanks-shm.MaxRanks]
}

// createArena makes the memory that the ranks share, of size bytes or, for 0, as large
// as makes sense. It has no name, and goes with the last process that holds it.
func createArena(ranks int, size uint64) (*shm.Arena, error) {
	arena, err := shm.Create(shm.Config{Ranks: ranks, Size: size})
	if err != nil && size > 0 {
		return nil, fmt.Errorf("create the job's shared memory for %d ranks: %w; change --arena-size, or leave it out", ranks, err)
	}
	if err != nil {
		return nil, fmt.Errorf("create the job's shared memory for %d ranks: %w", ranks, err)
	}
	return arena, nil
}
