package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/shm"
)

// startAlone creates an arena, starts this program again with the same arguments for each further rank, and becomes
// rank 0.
func (s *session) startAlone(ctx context.Context, ranks int) (*softnd.Job, error) {
	arena, err := shm.Create(shm.Config{Ranks: ranks})
	if err != nil {
		return nil, err
	}
	defer arena.Close()
	var started []<-chan error
	for rank := 1; rank < ranks; rank++ {
		ended, err := startRank(arena, rank, ranks, s.over)
		if err != nil {
			return nil, err
		}
		started = append(started, ended)
	}
	s.wait = func() error {
		var errs []error
		for _, ended := range started {
			errs = append(errs, <-ended)
		}
		return errors.Join(errs...)
	}
	own, err := unix.Dup(int(arena.File().Fd())) // as if inherited: Init leaves it open
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	for name, value := range rankEnv(0, ranks, own) {
		os.Setenv(name, value)
	}
	return softnd.Init(ctx)
}

func rankEnv(rank, ranks, fd int) map[string]string {
	return map[string]string{
		softnd.EnvRank:    strconv.Itoa(rank),
		softnd.EnvSize:    strconv.Itoa(ranks),
		softnd.EnvArenaFD: strconv.Itoa(fd),
	}
}

// startRank starts one rank. The kernel kills the rank when the calling thread exits; see main. If the rank exits
// before over is set, this process exits, too, because it would wait for the rank forever.
func startRank(arena *shm.Arena, rank, ranks int, over *atomic.Bool) (<-chan error, error) {
	const firstExtra = 3 // the descriptor of the first of ExtraFiles
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Env = os.Environ()
	for name, value := range rankEnv(rank, ranks, firstExtra) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.ExtraFiles = []*os.File{arena.File()}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start rank %d: %w", rank, err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if !over.Load() {
			abandon(rank, err)
		}
		ended <- err
	}()
	return ended, nil
}

// abandon exits because a rank has exited: loops that wait for a change of its memory check nothing else.
func abandon(rank int, err error) {
	cause := ""
	if err != nil {
		cause = " (" + err.Error() + ")"
	}
	fmt.Fprintf(os.Stderr, "ndbench: rank %d exited before the end of the test%s: see its messages above\n", rank, cause)
	os.Exit(exitFailure)
}
