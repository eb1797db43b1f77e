package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench"
)

// NewWorld makes the world of a test out of a job, pins the calling goroutine
// if wanted, and gives ranks 0 and 1 a cache line to bounce. All ranks call it.
func NewWorld(ctx context.Context, job *softnd.Job, pin bool) (*World, error) {
	if pin {
		if err := bench.Pin(job.Rank()); err != nil {
			return nil, err
		}
	}
	line, err := shareLine(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("measure: a cache line that ranks 0 and 1 share: %w", err)
	}
	return &World{Job: job, Limits: &limits{side: job.Rank(), line: line}}, nil
}

// shareLine makes the line in rank 0 and maps it in rank 1, which finds it by
// rank 0's process number. That works however the two were started, as long as
// they see each other in /proc. Other ranks get nil.
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
			return nil, fmt.Errorf("%w; start both ranks as one user, in one process namespace", err)
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

// limits implements [Limits].
type limits struct {
	side     int // 0 measures, 1 answers
	line     *bench.Line
	from, to []byte
}

// tellingLimit is how long a limit is measured.
const tellingLimit = 4 * time.Millisecond

func (l *limits) RawLine() (time.Duration, error) { return rounded(l.rawLine()) }

func (l *limits) Memcpy(size int) (time.Duration, error) { return rounded(l.memcpy(size)) }

func rounded(ns float64, err error) (time.Duration, error) {
	return time.Duration(math.Round(ns)), err
}

// rawLine is RawLine in unrounded nanoseconds. Rank 1 gets 0.
func (l *limits) rawLine() (float64, error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	trip := 0.0
	l.bounces(func() {
		trip = repeatedly(func(n int) {
			for range n {
				l.line.Bounce()
			}
		})
	})
	return trip / 2, nil
}

// bounces runs f on rank 0 while rank 1 echoes the line.
func (l *limits) bounces(f func()) {
	if l.side == 1 {
		l.line.Meet(1)
		l.line.Echo()
		l.line.Meet(1)
		return
	}
	l.line.Restart()
	l.line.Meet(0)
	f()
	l.line.Stop()
	l.line.Meet(0)
}

func (l *limits) SampleRawLine(n int, h *Histogram) error {
	if err := l.usable(); err != nil {
		return err
	}
	clock := NewClock()
	l.bounces(func() {
		for range n {
			start := clock.Now()
			l.line.Bounce()
			h.Record(clock.Ns(start, clock.Now()) / 2)
		}
	})
	return nil
}

// memcpy is Memcpy in unrounded nanoseconds. Rank 1 gets 0.
func (l *limits) memcpy(size int) (float64, error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	l.line.Meet(l.side)
	defer l.line.Meet(l.side)
	if l.side == 1 {
		return 0, nil
	}
	if len(l.from) != size {
		l.from, l.to = make([]byte, size), make([]byte, size)
		for i := range l.from { // pages that nobody has written are all the same one
			l.from[i] = byte(i)
		}
		copy(l.to, l.from)
	}
	return repeatedly(func(n int) {
		for range n {
			copy(l.to, l.from)
		}
	}), nil
}

// repeatedly runs ever longer loops until one is long enough to tell, and
// returns the nanoseconds of one of its rounds.
func repeatedly(loop func(n int)) float64 {
	for n := 16; ; n *= 2 {
		start := time.Now()
		loop(n)
		if took := time.Since(start); took >= tellingLimit {
			return NsPerOp(took, n)
		}
	}
}

func (l *limits) usable() error {
	if l.side > 1 {
		return fmt.Errorf("measure: a limit was asked for on rank %d; ranks 0 and 1 measure it", l.side)
	}
	return nil
}

// RawLineNs is Limits.RawLine in nanoseconds, unrounded if the limits can tell.
func (w *World) RawLineNs() (float64, error) {
	if l, ok := w.Limits.(*limits); ok {
		return l.rawLine()
	}
	d, err := w.Limits.RawLine()
	return float64(d.Nanoseconds()), err
}

// MemcpyNs is Limits.Memcpy in nanoseconds, unrounded if the limits can tell.
func (w *World) MemcpyNs(size int) (float64, error) {
	if l, ok := w.Limits.(*limits); ok {
		return l.memcpy(size)
	}
	d, err := w.Limits.Memcpy(size)
	return float64(d.Nanoseconds()), err
}
