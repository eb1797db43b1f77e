package softnd

import (
	"context"
	"errors"
	"fmt"

	"github.com/softnd/softnd/shm"
)

// Join makes the process a rank of a named job. It is for processes that no common launcher starts,
// for example in two terminals. Join blocks until all ranks have called it. All ranks pass the same
// name and size, and each rank passes its own number. The name has 1 to 64 characters of A-Z a-z 0-9
// . _ and -. The first rank creates the memory of the job. When the last rank
// has left, the name is free again. Options, EnvExec and EnvReceiveTimeout have the same effect as
// with [Init].
//
// Errors:
//
//   - [ErrVersion]: a rank that has joined uses another release of softnd.
//   - [NoMemoryError]: the limits of this process do not allow the memory of the job.
//   - [nd.Canceled]: ctx has ended before all ranks have called Join. The error names the ranks that
//     are missing, also those that have not closed an earlier job of this name. A process that takes the place of
//     a rank which has died waits for them.
//   - An error without a status: another process is this rank. The same holds if the name belongs to
//     another user, to a job of another size, or to a process that does not run softnd.
func Join(ctx context.Context, name string, rank, size int, options ...Option) (*Job, error) {
	s, refusal := readSettings(options)
	if size < 1 || size > shm.MaxRanks {
		return nil, fmt.Errorf("softnd: join %q: size %d: want 1 to %d", name, size, shm.MaxRanks)
	}
	if rank < 0 || rank >= size {
		return nil, fmt.Errorf("softnd: join %q: rank %d of %d: want 0 to %d", name, rank, size, size-1)
	}
	fabric, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: size})
	if err != nil {
		if refusal != nil {
			err = refusal
		}
		return nil, fmt.Errorf("softnd: join: %w", err)
	}
	j := newJob(fabric.Arena, fabric.Close)
	if refusal != nil {
		j.refuse(ctx, rank)
		return nil, errors.Join(fmt.Errorf("softnd: join: %w", refusal), j.Close())
	}
	if err := j.start(ctx, rank, s, "join"); err != nil {
		if errors.Is(err, shm.ErrTaken) {
			err = fmt.Errorf("%w: start each rank once", err)
		}
		return nil, errors.Join(fmt.Errorf("softnd: join %q: rank %d of %d: %w", name, rank, size, err), j.Close())
	}
	current.Store(j)
	return j, nil
}
