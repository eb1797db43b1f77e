package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"

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
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for rank := 1; rank < ranks; rank++ {
		if err := s.startRank(exec.Command(path, os.Args[1:]...), arena, rank, ranks); err != nil {
			return nil, err
		}
	}
	return becomeRank(ctx, arena, 0, ranks)
}

func rankEnv(rank, ranks, fd int) map[string]string {
	return map[string]string{
		softnd.EnvRank:    strconv.Itoa(rank),
		softnd.EnvSize:    strconv.Itoa(ranks),
		softnd.EnvArenaFD: strconv.Itoa(fd),
	}
}

const firstExtra = 3 // the descriptor of the first of ExtraFiles

// startRank starts one rank, which inherits the arena and then the files. The kernel kills the rank when the calling
// thread exits; see main. If the rank exits before the session is over, this process exits, too, because it would wait
// for the rank forever.
func (s *session) startRank(cmd *exec.Cmd, arena *shm.Arena, rank, ranks int, files ...*os.File) error {
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Env = os.Environ()
	for name, value := range rankEnv(rank, ranks, firstExtra) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.ExtraFiles = append([]*os.File{arena.File()}, files...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start rank %d: %w", rank, err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if !s.over.Load() {
			abandon(rank, err)
		}
		ended <- err
	}()
	s.started = append(s.started, ended)
	return nil
}

// becomeRank makes this process a rank of the arena.
func becomeRank(ctx context.Context, arena *shm.Arena, rank, ranks int) (*softnd.Job, error) {
	own, err := unix.Dup(int(arena.File().Fd())) // as if inherited: Init leaves it open
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	for name, value := range rankEnv(rank, ranks, own) {
		os.Setenv(name, value)
	}
	return softnd.Init(ctx, softnd.WithExit())
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
