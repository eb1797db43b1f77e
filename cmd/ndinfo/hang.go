package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/softnd/softnd/internal/hang"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/shm"
)

const (
	findTimeout  = 5 * time.Second // for a process of the job to pass the arena
	stackTimeout = 2 * time.Second // for ranks to write their stacks
)

// printHangReport prints why the job hangs whose ranks called softnd.Join with a name, the only
// argument. It returns the exit status.
func printHangReport(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintf(stderr, "ndinfo: hang: %d arguments: want one, the name that the ranks pass to softnd.Join\n", len(args))
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), findTimeout)
	defer cancel()
	arena, err := shm.FindFabric(ctx, args[0])
	if err != nil {
		fmt.Fprintf(stderr, "ndinfo: hang: %v\n", err)
		return 1
	}
	defer arena.Close()
	for _, line := range hang.Capture(arena, processesOf(arena), stackTimeout).Lines() {
		if _, err := fmt.Fprintln(stdout, line); err != nil {
			fmt.Fprintln(stderr, "ndinfo: hang: write the report:", err)
			return 1
		}
	}
	return 0
}

// processesOf returns the processes of a job by rank, for a job without a common launcher. Unknown
// fields are zero.
func processesOf(arena *shm.Arena) []hang.Process {
	all := make([]hang.Process, arena.Ranks())
	for rank := range all {
		all[rank].Program = "unknown process"
		id, ok := hang.MemberOf(arena, rank)
		if !ok {
			continue
		}
		peer, err := arena.Peer(id)
		if err != nil {
			continue
		}
		if pid, ok := peer.PID(); ok {
			all[rank].PID = pid
			if p, err := linux.ReadProcess(pid); err == nil {
				all[rank].Program = p.Name
			}
		}
	}
	return all
}
