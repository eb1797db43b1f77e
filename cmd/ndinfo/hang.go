package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/softnd/softnd/internal/hang"
	"github.com/softnd/softnd/internal/proctable"
	"github.com/softnd/softnd/shm"
)

const (
	findTime   = 5 * time.Second // in which a process of the job has to hand over the arena
	answerTime = 2 * time.Second // in which ranks have to give their stacks
)

// tellHang prints why a job hangs whose ranks met under a name. It returns the exit
// status.
func tellHang(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintf(stderr, "ndinfo: hang: want the name of one job, as given to softnd.Join (have %d arguments)\n", len(args))
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	fabric, err := shm.FindFabric(ctx, args[0])
	if err != nil {
		fmt.Fprintf(stderr, "ndinfo: hang: %v\n", err)
		return 1
	}
	defer fabric.Close()
	for _, line := range hang.Capture(fabric.Arena(), processesOf(fabric.Arena()), answerTime).Lines() {
		if _, err := fmt.Fprintln(stdout, line); err != nil {
			fmt.Fprintln(stderr, "ndinfo: hang: writing the report:", err)
			return 1
		}
	}
	return 0
}

// processesOf lists what is known of the processes of a job that no common launcher has
// started, by rank.
func processesOf(arena *shm.Arena) []hang.Process {
	all := make([]hang.Process, arena.Ranks())
	for rank := range all {
		all[rank].Program = "unknown process"
		id, ok := arena.MemberOf(rank)
		if !ok {
			continue
		}
		peer, err := arena.Peer(id)
		if err != nil {
			continue
		}
		if pid, ok := peer.PID(); ok {
			all[rank].PID = pid
			if p, err := proctable.Read(pid); err == nil {
				all[rank].Program = p.Name
			}
		}
	}
	return all
}
