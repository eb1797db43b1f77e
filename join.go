package softnd

import (
	"context"
	"errors"
	"fmt"

	"github.com/softnd/softnd/shm"
)

// Join makes the process a rank of the job that goes by a name, for processes
// that no common launcher starts: in two terminals, say. All ranks give the same
// name, 1 to 64 characters out of A-Z a-z 0-9 . _ and -, and size, and each a
// rank of its own. The first of them makes the job's memory, see
// [shm.OpenFabric]; the name is free again when the last has gone. Join returns
// when all ranks are there or ctx ends. Options, EnvExec and EnvReceiveTimeout count as in [Init].
//
// Errors: those of [shm.OpenFabric]; one that says that the rank is taken; one
// that names the ranks that had not come when ctx ended.
func Join(ctx context.Context, name string, rank, size int, options ...Option) (*Job, error) {
	s, err := readSettings(options)
	if err != nil {
		return nil, fmt.Errorf("softnd: join: %w", err)
	}
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("softnd: join: rank %d of %d; want a rank from 0 to the number of ranks less 1", rank, size)
	}
	fabric, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: size})
	if err != nil {
		return nil, fmt.Errorf("softnd: join: %w", err)
	}
	j := newJob(fabric.Arena(), fabric.Close)
	if err := j.start(ctx, rank, s); err != nil {
		if errors.Is(err, shm.ErrTaken) {
			err = fmt.Errorf("%w; start each rank once", err)
		}
		return nil, errors.Join(fmt.Errorf("softnd: join %q: rank %d of %d: %w", name, rank, size, err), j.Close())
	}
	current.Store(j)
	return j, nil
}
