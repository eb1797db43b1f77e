package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench"
	"github.com/softnd/softnd/nd"
)

// NewWorld returns the world of a test in job. If pin is set, it pins the calling goroutine. It gives ranks 0 and 1 a
// shared cache line. All ranks call it.
//
// The element of helpers for a rank is nil, or the standard input and output of the helper that is this rank. With
// helpers, the cache line is in file, which [bench.NewLineFile] has created. If both ranks are helpers, job is nil.
func NewWorld(ctx context.Context, job *softnd.Job, pin bool, helpers [2]io.ReadWriter, file *os.File) (w *World, err error) {
	if job != nil {
		if w, err = ownWorld(ctx, job, pin, file); err != nil {
			return nil, err
		}
	}
	if helpers == ([2]io.ReadWriter{}) {
		return w, nil
	}
	c, err := newCrew(helpers, w)
	return &World{crew: c}, err
}

// ownWorld returns the world of this process as a rank. file is nil if all ranks are in Go.
func ownWorld(ctx context.Context, job *softnd.Job, pin bool, file *os.File) (_ *World, err error) {
	if len(job.Hosts()) > 1 {
		x, err := connectWire(ctx, job)
		return &World{Job: job, wire: x}, err
	}
	if pin {
		if _, err := bench.Pin(job.Rank()); err != nil {
			return nil, err
		}
	}
	var line *bench.Line
	if file != nil {
		line, err = bench.MapLine(file)
	} else {
		line, err = shareLine(ctx, job)
	}
	if err != nil {
		return nil, fmt.Errorf("measure: a cache line that ranks 0 and 1 share: %w", err)
	}
	allocate := func(size int) (nd.MemoryRegion, error) { return job.Adapter().Allocate(ctx, size, nd.AllowLocalWrite) }
	return &World{Job: job, limits: &limits{side: job.Rank(), line: line, allocate: allocate}}, nil
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
