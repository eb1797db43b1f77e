package softnd

import (
	"context"
	"errors"
	"fmt"

	"github.com/softnd/softnd/shm"
)

// Join makes the process a rank of a named job, for processes that no common launcher starts: in
// two terminals, for example. All ranks pass the same name and size, and each a different rank. The
// name has 1 to 64 characters of A-Z a-z 0-9 . _ and -. The first rank creates the memory of the
// job, see [shm.OpenFabric]. When the last rank has left, the name is free again. Join returns when
// all ranks have called it, or ctx ends. Options, EnvExec and EnvReceiveTimeout have the effect
// that they have in [Init].
//
// Errors: those of [shm.OpenFabric]; an error if another process has the rank; [nd.Canceled] when
// ctx ends, with the ranks that are missing.
func Join(ctx context.Context, name string, rank, size int, options ...Option) (*Job, error) {
	s, err := readSettings(options)
	if err != nil {
		return nil, fmt.Errorf("softnd: join: %w", err)
	}
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("softnd: join: rank %d of %d: want a rank from 0 to size-1", rank, size)
	}
	fabric, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: size})
	if err != nil {
		return nil, fmt.Errorf("softnd: join: %w", err)
	}
	j := newJob(fabric.Arena, fabric.Close)
	if err := j.start(ctx, rank, s); err != nil {
		if errors.Is(err, shm.ErrTaken) {
			err = fmt.Errorf("%w; start each rank once", err)
		}
		return nil, errors.Join(fmt.Errorf("softnd: join %q: rank %d of %d: %w", name, rank, size, err), j.Close())
	}
	current.Store(j)
	return j, nil
}
