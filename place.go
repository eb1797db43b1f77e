package softnd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/controlchannel"
	"github.com/softnd/softnd/internal/pmi"
	"github.com/softnd/softnd/shm"
)

// place is what a process needs to become a rank, and how it speaks with the launcher
// that gave it the place. But for abort it is for one goroutine at a time.
type place struct {
	found  string // which launcher, for people
	rank   int
	twice  string // what to do if another process is this rank already
	arena  *shm.Arena
	detach func() error // gives the arena up

	// What there is to say to the launcher; nil if it does not listen.
	leave  func() error                        // this rank ends well
	hangUp func() error                        // it does not
	abort  func(code int, reason string) error // the job has to end
	mute   bool                                // it does not print reasons
}

// findPlace asks the environment who has started this process. The launcher closest to
// it is asked first: ndrun sets its own variables over those of one that has started it.
func findPlace(ctx context.Context) (*place, error) {
	set := func(name string) bool {
		_, ok := os.LookupEnv(name)
		return ok
	}
	var p *place
	var err error
	switch {
	case set(EnvArenaFD) || set(EnvFabric):
		p, err = placeByNdrun(ctx)
	case set(pmi.EnvFD):
		p, err = placeByPMI(ctx)
	case set(pmi.EnvPort):
		return nil, fmt.Errorf("the launcher wants to be called by network (%s), which softnd does not do; "+
			"start the program with one that sets %s, such as mpiexec.hydra without -pmi-port", pmi.EnvPort, pmi.EnvFD)
	case set(openMPI.rank):
		p, err = openMPI.place(ctx)
	case set(slurm.rank) && set(slurm.job[0]):
		p, err = slurm.place(ctx)
	case set(EnvRank) || set(EnvSize):
		return nil, fmt.Errorf("%s or %s is set, but nothing that leads to the memory of a job (%s, %s); start the program with ndrun, or unset both to have it alone",
			EnvRank, EnvSize, EnvArenaFD, EnvFabric)
	default:
		p, err = placeAlone()
	}
	if err == nil && os.Getenv(EnvDebug) == "1" {
		fmt.Fprintf(os.Stderr, "softnd: rank %d of %d, %s\n", p.rank, p.arena.Ranks(), p.found)
	}
	return p, err
}

func placeAlone() (*place, error) {
	arena, err := shm.Create(shm.Config{Ranks: 1})
	if err != nil {
		return nil, err
	}
	return &place{found: "alone: no launcher's variables are set", arena: arena, detach: arena.Close}, nil
}

// placeByNdrun takes the arena from the inherited descriptor if it is the right one,
// else from the launcher, which also wants to hear how this rank ends.
func placeByNdrun(ctx context.Context) (*place, error) {
	rank, err := strconv.ParseUint(os.Getenv(EnvRank), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is no rank; start the program with ndrun", EnvRank, os.Getenv(EnvRank))
	}
	p := &place{rank: int(rank), found: "started by ndrun", twice: takenUnderNdrun()}
	var home *controlchannel.Address
	if text, ok := os.LookupEnv(EnvFabric); ok {
		a, err := controlchannel.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%q: %w; start the program with ndrun, or unset it", EnvFabric, text, err)
		}
		home = &a
	}
	arena, lost := inheritedArena(ctx, home)
	if errors.Is(lost, shm.ErrVersion) {
		return nil, lost
	}
	if home != nil {
		channel, file, err := controlchannel.Dial(ctx, *home, p.rank, arena == nil)
		switch {
		case err == nil:
			p.leave, p.hangUp, p.abort = channel.Leave, channel.Close, channel.Abort
		case arena == nil:
			return nil, errors.Join(lost, fmt.Errorf("%s: %w", EnvFabric, err))
		default:
			p.found += fmt.Sprintf(" (which does not listen: %v)", err)
		}
		if file != nil {
			defer file.Close()
			p.found += " behind a wrapper, arena from ndrun"
			if arena, err = shm.Attach(ctx, file); err != nil {
				return nil, errors.Join(fmt.Errorf("the arena from ndrun: %w", err), p.quit())
			}
		}
	}
	if arena == nil {
		return nil, lost
	}
	if size := os.Getenv(EnvSize); size != strconv.Itoa(arena.Ranks()) || rank >= uint64(arena.Ranks()) {
		return nil, errors.Join(fmt.Errorf("%s=%d and %s=%q do not fit an arena for %d ranks", EnvRank, rank, EnvSize, size, arena.Ranks()), arena.Close(), p.quit())
	}
	p.arena, p.detach = arena, arena.Close
	return p, nil
}

// takenUnderNdrun is the next step for a process that finds its rank taken. A launcher
// that runs as a rank of ndrun hands ndrun's variables on to its own ranks.
func takenUnderNdrun() string {
	unset := []string{EnvArenaFD, EnvFabric}
	for _, inner := range []environment{openMPI, slurm} {
		if _, ok := os.LookupEnv(inner.rank); ok {
			unset = append(unset, pmi.EnvFD) // ndrun's too, and Init would use it first
			break
		}
	}
	return fmt.Sprintf("if a launcher that runs under ndrun has started this process, start that launcher with env -u %s; else start each rank once",
		strings.Join(unset, " -u "))
}

// inheritedArena attaches the arena in the descriptor that the launcher handed down.
// If there is a home, its launcher knows which arena it has to be.
func inheritedArena(ctx context.Context, home *controlchannel.Address) (*shm.Arena, error) {
	fd, err := strconv.ParseUint(os.Getenv(EnvArenaFD), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is no descriptor number; start the program with ndrun, or unset it", EnvArenaFD, os.Getenv(EnvArenaFD))
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d (%s; did a wrapper close it?): %w", fd, EnvArenaFD, err)
	}
	file := os.NewFile(uintptr(own), "arena")
	defer file.Close()
	arena, err := shm.Attach(ctx, file)
	if errors.Is(err, shm.ErrVersion) {
		return nil, err // which is the right descriptor
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d (%s; did a wrapper close or replace it?): %w", fd, EnvArenaFD, err)
	}
	if home != nil && arena.ID() != home.File {
		return nil, errors.Join(fmt.Errorf("descriptor %d (%s) is the arena of another job", fd, EnvArenaFD), arena.Close())
	}
	// The inherited descriptor stays open for another Init, but is not handed on
	// to programs that this one starts.
	unix.CloseOnExec(int(fd))
	return arena, nil
}

// bye tells the launcher that this rank ends well.
func (p *place) bye() error {
	if p == nil || p.leave == nil {
		return nil
	}
	return p.leave()
}

// quit hangs up: the launcher will take this rank for one that has failed.
func (p *place) quit() error {
	if p == nil || p.hangUp == nil {
		return nil
	}
	return p.hangUp()
}
