// Package bootstrap finds the rank of this process and the memory of its job. The launcher that has
// started the process says both in the environment: ndrun, a launcher that speaks PMI, Open MPI's
// mpirun, or Slurm's srun. Without a launcher the user says it, or the process is a job of its own.
//
// A job of ndrun, mpirun, or srun without PMI runs on one host. Others may run on several hosts: then the ranks of each
// host have an arena of their own.
package bootstrap

// TWIN c/src/meet/bootstrap.c.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/meet/controlchannel"
	"github.com/softnd/softnd/internal/meet/pmi"
	"github.com/softnd/softnd/shm"
)

// Variables of the environment. docs/environment.md says who sets each.
const (
	EnvRank    = "SOFTND_RANK"     // 0 to size-1
	EnvSize    = "SOFTND_SIZE"     // number of ranks
	EnvArenaFD = "SOFTND_ARENA_FD" // number of the inherited descriptor of the arena
	EnvControl = "SOFTND_CONTROL"  // address of ndrun's control channel
	EnvDebug   = "SOFTND_DEBUG"    // 1: Find prints a line about the launcher that it has found
)

// Place is a process's place in a job. It is for use by one goroutine at a time, except Abort.
type Place struct {
	Rank, Size int
	Local      int // number of the rank among those of its host
	Arena      *shm.Arena
	Hosts      *Hosts // nil if all ranks run on one host

	// Journal is that of the checker, if the caller of Find wants it and the launcher has it. The caller closes it.
	Journal *os.File

	RankTakenHint string // the next step for the user if another process has the rank already
	// LauncherHidesReason reports that the launcher does not print the reasons that it is given.
	LauncherHidesReason bool

	launcher string // for people

	// These tell the launcher something; nil if it does not listen.
	leave  func() error
	hangUp func(cause error) error
	abort  func(code int, reason string) error
	ending *ending // nil if the launcher ends the ranks
}

// Find finds the place of this process, and the journal of the checker if it is wanted. It asks the innermost launcher first: ndrun sets its own
// variables over those of a launcher that has started ndrun. EnvRoot comes next, because a user sets it on purpose.
func Find(ctx context.Context, wantJournal bool) (*Place, error) {
	set := func(name string) bool {
		_, ok := os.LookupEnv(name)
		return ok
	}
	debug := os.Getenv(EnvDebug)
	if debug != "" && debug != "0" && debug != "1" {
		return nil, fmt.Errorf("%s: invalid value %q: want 0 or 1", EnvDebug, debug)
	}
	var p *Place
	var err error
	switch {
	case set(EnvArenaFD) || set(EnvControl):
		p, err = placeUnderNdrun(ctx, wantJournal)
	case set(EnvRoot):
		p, err = placeAtRoot(ctx)
	case set(pmi.EnvFD):
		p, err = placeOverPMI(ctx)
	case set(pmi.EnvPort):
		return nil, fmt.Errorf("the launcher offers PMI over the network only (%s), which softnd does not support; "+
			"start the program with a launcher that sets %s, such as mpiexec.hydra without -pmi-port", pmi.EnvPort, pmi.EnvFD)
	case set(openMPI.rank):
		p, err = openMPI.place(ctx)
	case set(slurm.rank) && set(slurm.job[0]):
		p, err = slurm.place(ctx)
	case set(EnvRank) || set(EnvSize):
		return nil, fmt.Errorf("%s or %s is set, but none of %s, %s and %s, through which the ranks meet: start the program with ndrun, or unset both to run it alone",
			EnvRank, EnvSize, EnvArenaFD, EnvControl, EnvRoot)
	default:
		p, err = placeAlone()
	}
	if err == nil && debug == "1" {
		fmt.Fprintf(os.Stderr, "softnd: rank %d of %d, %s\n", p.Rank, p.Size, p.launcher)
	}
	return p, err
}

// Leave tells the launcher, if it listens, that this rank ends well. p may be nil.
func (p *Place) Leave() error {
	if p == nil || p.leave == nil {
		return nil
	}
	return p.leave()
}

// HangUp closes the connection with the launcher, which then takes this rank for failed. If the launcher may end this process
// before it can print the cause, HangUp prints it; nil = there is none.
func (p *Place) HangUp(cause error) error {
	if p.hangUp == nil {
		return nil
	}
	return p.hangUp(cause)
}

// Abort asks the launcher to end the job with an exit code. The launcher prints the reason unless
// p.LauncherHidesReason. Abort returns false if the launcher was not told: it does not listen, or cannot be
// reached. p may be nil. Any goroutine may call Abort at any time.
func (p *Place) Abort(code int, reason string) bool {
	return p != nil && p.abort != nil && p.abort(code, reason) == nil
}

// placeAlone makes a job of this process alone.
func placeAlone() (*Place, error) {
	arena, err := shm.Create(shm.Config{Ranks: 1})
	if err != nil {
		return nil, err
	}
	return &Place{launcher: "alone: no launcher's variables are set", Size: 1, Arena: arena}, nil
}

// placeUnderNdrun takes the arena from the inherited descriptor, or, if that is not the arena of the job,
// from ndrun over the control channel. So it does with the journal.
func placeUnderNdrun(ctx context.Context, wantJournal bool) (*Place, error) {
	rank, err := strconv.ParseUint(os.Getenv(EnvRank), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is not a rank number: start the program with ndrun", EnvRank, os.Getenv(EnvRank))
	}
	p := &Place{Rank: int(rank), Local: int(rank), launcher: "started by ndrun", RankTakenHint: takenUnderNdrun()}
	var home *controlchannel.Address
	if text, ok := os.LookupEnv(EnvControl); ok {
		a, err := controlchannel.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%q: %w: start the program with ndrun, or unset it", EnvControl, text, err)
		}
		home = &a
	}
	arena, lost := inheritedArena(ctx, home)
	if errors.Is(lost, shm.ErrVersion) {
		return nil, lost
	}
	if home != nil {
		channel, files, err := controlchannel.Dial(ctx, *home, p.Rank, controlchannel.Wanted{File: arena == nil, Journal: wantJournal})
		switch {
		case err == nil:
			p.leave, p.hangUp, p.abort = channel.Leave, func(error) error { return channel.Close() }, channel.Abort
		case arena == nil:
			return nil, errors.Join(lost, fmt.Errorf("%s: %w", EnvControl, refusal{err}))
		default:
			p.launcher += fmt.Sprintf(" (which does not listen: %v)", err)
		}
		p.Journal = files.Journal
		if file := files.File; file != nil {
			defer file.Close()
			p.launcher += " behind a wrapper, arena from ndrun"
			if arena, err = shm.Attach(ctx, file); err != nil {
				return nil, errors.Join(fmt.Errorf("the arena from ndrun: %w", err), p.HangUp(nil))
			}
		}
	}
	if arena == nil {
		return nil, lost
	}
	if size := os.Getenv(EnvSize); size != strconv.Itoa(arena.Ranks()) || rank >= uint64(arena.Ranks()) {
		return nil, errors.Join(fmt.Errorf("%s=%d and %s=%q do not match the arena, which is that of a job of size %d: start the program with ndrun, and keep its variables", EnvRank, rank, EnvSize, size, arena.Ranks()), arena.Close(), p.HangUp(nil))
	}
	p.Size, p.Arena = arena.Ranks(), arena
	return p, nil
}

// refusal is the error of a launcher that has refused this process. A launcher of another release says so in its text.
type refusal struct{ error }

func (r refusal) Is(target error) bool {
	return target == shm.ErrVersion && strings.Contains(r.Error(), shm.ErrVersion.Error())
}

// takenUnderNdrun says what the user can do if another process holds the rank already. A launcher
// that runs as a rank of ndrun passes ndrun's variables on to its own ranks.
func takenUnderNdrun() string {
	unset := []string{EnvArenaFD, EnvControl}
	for _, inner := range []environment{openMPI, slurm} {
		if _, ok := os.LookupEnv(inner.rank); ok {
			unset = append(unset, pmi.EnvFD) // ndrun sets it too, and Find prefers it
			break
		}
	}
	return fmt.Sprintf("if a launcher that runs under ndrun has started this process, start that launcher with env -u %s; else start each rank once",
		strings.Join(unset, " -u "))
}

// inheritedArena attaches the arena behind the inherited descriptor. If home is not nil, it must be
// the arena that home names.
func inheritedArena(ctx context.Context, home *controlchannel.Address) (*shm.Arena, error) {
	fd, err := strconv.ParseUint(os.Getenv(EnvArenaFD), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is not a descriptor number: start the program with ndrun, or unset it", EnvArenaFD, os.Getenv(EnvArenaFD))
	}
	own, err := linux.DuplicateAboveStandard(int(fd))
	if err != nil {
		return nil, fmt.Errorf("descriptor %d (%s; did a wrapper close or replace it?): %w", fd, EnvArenaFD, err)
	}
	file := os.NewFile(uintptr(own), "arena")
	defer file.Close()
	arena, err := shm.Attach(ctx, file)
	if errors.Is(err, shm.ErrVersion) {
		return nil, err // the descriptor is the right one
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d (%s; did a wrapper close or replace it?): %w", fd, EnvArenaFD, err)
	}
	if home != nil && arena.Info().ID != home.File {
		return nil, errors.Join(fmt.Errorf("descriptor %d (%s) is the arena of another job: start the program with ndrun, or unset the variables of ndrun", fd, EnvArenaFD), arena.Close())
	}
	// The inherited descriptor stays open for another Init, but programs that this process starts
	// do not inherit it.
	unix.CloseOnExec(int(fd))
	return arena, nil
}
