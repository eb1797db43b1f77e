package measure

import (
	"fmt"
	"time"

	"github.com/softnd/softnd/bench"
	"github.com/softnd/softnd/bench/report"
)

// limits implements [Limits].
type limits struct {
	side     int // 0 measures, 1 answers
	line     *bench.Line
	from, to []byte
}

func (l *limits) RawLine() (float64, error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	trip := 0.0
	l.bounces(l.line.Echo, func() {
		trip = repeatedly(func(n int) {
			for range n {
				l.line.Bounce()
			}
		})
	})
	return trip / 2, nil
}

func (l *limits) SampleRawLine(n int, h *Histogram) error {
	if err := l.usable(); err != nil {
		return err
	}
	clock := NewClock()
	l.bounces(l.line.Echo, func() {
		for range n {
			start := clock.Now()
			l.line.Bounce()
			h.Record(clock.Ns(start, clock.Now()) / 2)
		}
	})
	return nil
}

func (l *limits) Switch() (float64, error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	trip := 0.0
	err := bench.OnCore(0, func() error {
		l.bounces(l.line.EchoYielding, func() {
			trip = repeatedly(func(n int) {
				for range n {
					l.line.BounceYielding()
				}
			})
		})
		return nil
	})
	return trip / 2, err
}

// bounces runs f on rank 0 while rank 1 runs echo, which f's end stops.
func (l *limits) bounces(echo, f func()) {
	if l.side == 1 {
		l.line.Meet(1)
		echo()
		l.line.Meet(1)
		return
	}
	l.line.Restart()
	l.line.Meet(0)
	f()
	l.line.Stop()
	l.line.Meet(0)
}

func (l *limits) Exchange() (float64, error) {
	return l.alone(func() float64 { return repeatedly(bench.Exchanges) })
}

func (l *limits) Memcpy(size int) (float64, error) {
	return l.alone(func() float64 {
		if len(l.from) != size {
			l.from, l.to = make([]byte, size), make([]byte, size)
			pattern(l.from)
			copy(l.to, l.from)
		}
		return repeatedly(func(n int) {
			for range n {
				copy(l.to, l.from)
			}
		})
	})
}

// alone runs f on rank 0 while rank 1 rests. Rank 1 returns 0.
func (l *limits) alone(f func() float64) (float64, error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	l.line.Meet(l.side)
	defer l.line.Meet(l.side)
	if l.side == 1 {
		return 0, nil
	}
	return f(), nil
}

const (
	limitTime   = 2 * time.Millisecond // in which a limit is measured, if its rounds are short
	windows     = 9                    // parts of that time, each with a figure of its own
	fewWindows  = 3                    // are enough of rounds that take longer
	longestTime = 4 * limitTime        // for more windows than that
)

// repeatedly returns the nanoseconds of one round of the loop: the median of
// several windows, so that an interruption of one of them does not count.
func repeatedly(loop func(n int)) float64 {
	timed := func(n int) time.Duration {
		start := time.Now()
		loop(n)
		return time.Since(start)
	}
	n := 1
	for timed(n) < limitTime/windows {
		n *= 2
	}
	var figures []float64
	for start := time.Now(); len(figures) < fewWindows || len(figures) < windows && time.Since(start) < longestTime; {
		figures = append(figures, NsPerOp(timed(n), n))
	}
	return report.Median(figures)
}

func (l *limits) usable() error {
	if l.side > 1 {
		return fmt.Errorf("measure: a limit was asked for on rank %d; ranks 0 and 1 measure it", l.side)
	}
	return nil
}
