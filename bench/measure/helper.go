package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// greeting is the first line of a helper. It changes with the commands.
const greeting = "softnd_perf 1"

// helper is a rank in another language: a process that obeys commands, one a line, and answers each with a line.
// c/bench/perf.c lists the commands.
type helper struct {
	in  io.Writer
	out *bufio.Reader
}

func (h *helper) line() (string, error) {
	text, err := h.out.ReadString('\n')
	if err == io.EOF {
		err = errors.New("it has exited: see its messages above")
	}
	return strings.TrimSuffix(text, "\n"), err
}

// greet reads the first line.
func (h *helper) greet() error {
	text, err := h.line()
	if err == nil && text != greeting {
		err = fmt.Errorf("it is %q, want %q: build it from the same revision", text, greeting)
	}
	return err
}

func (h *helper) command(text string) error {
	_, err := io.WriteString(h.in, text+"\n")
	return err
}

// answer reads the answer to a command: "ok" and a figure.
func (h *helper) answer() (float64, error) {
	text, err := h.line()
	if err != nil {
		return 0, err
	}
	number, ok := strings.CutPrefix(text, "ok ")
	figure, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(figure >= 0) {
		return 0, fmt.Errorf("answer %q: want ok and a number", text)
	}
	return figure, nil
}

// samples reads the nanoseconds of n operations.
func (h *helper) samples(n int, record func(ns float64)) error {
	for range n {
		text, err := h.line()
		if err != nil {
			return err
		}
		ns, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ns >= 0) {
			return fmt.Errorf("operation of %q ns: want a number", text)
		}
		record(ns)
	}
	return nil
}

// crew is two ranks of which at least one is a helper. It stands for the job in a [loop]: this process decides alone, and
// the helpers meet in the operations.
type crew struct {
	helpers [2]*helper // by rank; nil for this process
	own     *World     // nil if both ranks are helpers
}

// newCrew returns the ranks with these standard inputs and outputs, nil for this process.
func newCrew(pipes [2]io.ReadWriter, own *World) (*crew, error) {
	c := &crew{own: own}
	for rank, p := range pipes {
		if p == nil {
			continue
		}
		c.helpers[rank] = &helper{in: p, out: bufio.NewReader(p)}
		if err := c.helpers[rank].greet(); err != nil {
			return nil, helperError(rank, err)
		}
	}
	return c, nil
}

func helperError(rank int, err error) error {
	return fmt.Errorf("measure: rank %d, a helper: %w", rank, err)
}

func (c *crew) Barrier(context.Context) error { return nil }

func (c *crew) Exchange(_ context.Context, mine []byte) ([][]byte, error) { return [][]byte{mine}, nil }

func (c *crew) Rank() int { return 0 }

func (c *crew) Size() int { return 2 }

func (c *crew) rawLine() (float64, error) {
	return c.together("line", func() (float64, error) { return c.own.limits.rawLine() })
}

func (c *crew) exchange() (float64, error) {
	return c.together("exchange", func() (float64, error) { return c.own.limits.exchange() })
}

func (c *crew) memcpy(size int) (float64, error) {
	return c.together(fmt.Sprintf("memcpy %d", size), func() (float64, error) { return c.own.limits.memcpy(size) })
}

// together lets all ranks do the same, the helpers by a command and this process by own. It returns the figure of rank 0.
func (c *crew) together(command string, own func() (float64, error)) (float64, error) {
	for rank, h := range c.helpers {
		if h == nil {
			continue
		}
		if err := h.command(command); err != nil {
			return 0, helperError(rank, err)
		}
	}
	var figures [2]float64
	for _, ours := range []bool{true, false} { // this process first, because the helpers need it
		for rank, h := range c.helpers {
			if (h == nil) != ours {
				continue
			}
			var err error
			if ours {
				figures[rank], err = own()
			} else if figures[rank], err = h.answer(); err != nil {
				err = helperError(rank, err)
			}
			if err != nil {
				return 0, err
			}
		}
	}
	return figures[0], nil
}

// open is [World.open] for a job with helpers.
func (c *crew) open(ctx context.Context, o Options, lc linkConfig, res *report.Result, t steps) (*party, error) {
	o.Pairs = max(o.Pairs, 1)
	lc.fit(o.Pairs)
	var l *link
	command := fmt.Sprintf("open %s %d %d %d %d %d %d %d %d %d", res.Test, lc.size, lc.depth, lc.receives, lc.spare, o.Pairs,
		bit(lc.repost), bit(o.Private), bit(o.mustPoll()), bit(o.Inline))
	_, err := c.together(command, func() (_ float64, err error) {
		l, err = openLink(ctx, c.own, o, lc)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	// between calls f between two barriers, as the helpers do.
	between := func(f func() (float64, error)) func() (float64, error) {
		return func() (float64, error) {
			if err := c.own.Job.Barrier(ctx); err != nil {
				return 0, err
			}
			figure, err := f()
			return figure, errors.Join(err, c.own.Job.Barrier(ctx))
		}
	}
	return &party{
		settings: o.settings(lc.size),
		repeat: func(n int) (time.Duration, error) {
			ns, err := c.together(fmt.Sprintf("run %d", n), between(func() (float64, error) {
				took, err := t.repeat(l, n)
				return float64(took), err
			}))
			return time.Duration(max(ns, 1)), err
		},
		sample: func(n int, h *histogram) error {
			count, err := c.together(fmt.Sprintf("sample %d", n), between(func() (float64, error) { return 0, t.sample(l, n, h) }))
			if err != nil || c.helpers[0] == nil {
				return err
			}
			if int(count) != n {
				return helperError(0, fmt.Errorf("%v operations timed, want %d", count, n))
			}
			if err := c.helpers[0].samples(n, func(ns float64) { h.record(t.figure(ns, lc.size)) }); err != nil {
				return helperError(0, err)
			}
			return nil
		},
		close: func() error {
			_, err := c.together("close", func() (float64, error) { return 0, l.Close() })
			return err
		},
	}, nil
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// checkHelped returns an error if the test, with these options, does not support these ranks as helpers.
func (t Test) checkHelped(o Options, helped [2]bool) error {
	object, next := "", ""
	switch {
	case !helped[0] && !helped[1]:
		return nil
	case !t.helped:
		object, next = "ranks in C", "use --lang go, or a test of transfers"
	case t.Name == "bind_invalidate" && helped[0] != helped[1]:
		object, next = "ranks in different languages", "use --lang go or --lang c: only rank 0 works in this test"
	case o.Bidirectional:
		object, next = "both ways at once in C", "omit --bidirectional, or use --lang go"
	case o.Events:
		object, next = "event mode in C", "omit --events, or use --lang go"
	case o.Validate:
		object, next = "the check of data in C", "omit --validate, or use --lang go"
	default:
		return nil
	}
	return &nd.OpError{Op: t.Name, Object: object, Status: nd.NotSupported, Detail: "softnd_perf does not have it", Next: next}
}
