package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
)

// meet joins the job that the server and the client have named.
func (o *options) meet(ctx context.Context, ranks int, over *atomic.Bool) (*softnd.Job, error) {
	rank, name := 0, o.server
	if o.client != "" {
		rank, name = 1, o.client
	}
	if ranks != 2 {
		return nil, fmt.Errorf("--ranks %d: --server and --client are 2 ranks: omit --ranks, or use ndrun -n %d", ranks, ranks)
	}
	if rank == 0 && !o.quiet {
		fmt.Fprintf(os.Stderr, "waiting for the same command with --client %s\n", name)
	}
	job, err := softnd.Join(ctx, name, rank, ranks)
	if err != nil {
		return nil, err
	}
	if err := watchOthers(ctx, job, over); err != nil {
		return nil, errors.Join(err, job.Close())
	}
	return job, nil
}

// watchOthers ends this process if another rank exits before over is set.
func watchOthers(ctx context.Context, job *softnd.Job, over *atomic.Bool) error {
	all, err := job.Exchange(ctx, binary.NativeEndian.AppendUint64(nil, uint64(os.Getpid())))
	if err != nil {
		return err
	}
	for rank, b := range all {
		if rank == job.Rank() {
			continue
		}
		pid := int(binary.NativeEndian.Uint64(b))
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("watch rank %d (process %d): %w: start both in one process namespace", rank, pid, err)
		}
		go func() {
			defer unix.Close(fd)
			wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			for {
				if _, err := unix.Poll(wait, -1); err != unix.EINTR {
					break
				}
			}
			if !over.Load() {
				abandon(rank, nil)
			}
		}()
	}
	return nil
}
