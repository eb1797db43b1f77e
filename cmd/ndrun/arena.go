package main

import (
	"fmt"

	"github.com/softnd/softnd/shm"
)

// createArena creates the memory that the ranks share, of size bytes, or of the default size if
// size is 0. It has no name and is freed with the last process that has it open. It holds the fault plan.
func createArena(ranks int, size uint64, injected *injectedFaults) (*shm.Arena, error) {
	arena, err := shm.Create(shm.Config{Ranks: ranks, Size: size, FaultRules: injected.count()})
	if err == nil {
		err = injected.store(arena)
	}
	if err != nil && size > 0 {
		return nil, fmt.Errorf("create shared memory: %w: change --arena-size or omit it", err)
	}
	if err != nil {
		return nil, fmt.Errorf("create shared memory: %w", err)
	}
	return arena, nil
}
