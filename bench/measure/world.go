package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench"
)

// NewWorld returns the world of a test in job. If pin is set, it pins the calling goroutine. It gives ranks 0 and 1 a
// shared cache line. All ranks call it.
func NewWorld(ctx context.Context, job *softnd.Job, pin bool) (*World, error) {
	return newWorld(job, pin, func() (*bench.Line, error) { return shareLine(ctx, job) })
}

// NewWorldWith is [NewWorld] for a rank beside a helper. Both map the cache line in file, which [bench.NewLineFile] has
// created.
func NewWorldWith(job *softnd.Job, pin bool, file *os.File) (*World, error) {
	return newWorld(job, pin, func() (*bench.Line, error) { return bench.MapLine(file) })
}

func newWorld(job *softnd.Job, pin bool, mapLine func() (*bench.Line, error)) (*World, error) {
	if pin {
		if _, err := bench.Pin(job.Rank()); err != nil {
			return nil, err
		}
	}
	line, err := mapLine()
	if err != nil {
		return nil, fmt.Errorf("measure: a cache line that ranks 0 and 1 share: %w", err)
	}
	return &World{Job: job, limits: &limits{side: job.Rank(), line: line}}, nil
}

// shareLine creates the line in rank 0, and maps it in rank 1, which finds it by rank 0's process number. The ranks may
// start in any way, but must see each other in /proc. Other ranks get nil.
func shareLine(ctx context.Context, job *softnd.Job) (*bench.Line, error) {
	var file *os.File
	var err error
	var blob []byte
	if job.Rank() == 0 {
		if file, err = bench.NewLineFile(); err != nil {
			return nil, err
		}
		blob = binary.NativeEndian.AppendUint64(blob, uint64(os.Getpid()))
		blob = binary.NativeEndian.AppendUint64(blob, uint64(file.Fd()))
	}
	all, err := job.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	if job.Rank() == 1 {
		pid, fd := binary.NativeEndian.Uint64(all[0]), binary.NativeEndian.Uint64(all[0][8:])
		if file, err = os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), os.O_RDWR, 0); err != nil {
			return nil, fmt.Errorf("%w: start both ranks as one user, in one process namespace", err)
		}
	}
	if err := job.Barrier(ctx); err != nil {
		return nil, err
	}
	if file == nil {
		return nil, nil
	}
	line, err := bench.MapLine(file)
	return line, errors.Join(err, file.Close())
}
