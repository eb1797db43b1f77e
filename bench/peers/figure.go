package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/softnd/softnd/bench/report"
)

// small is the size of the messages that rates are measured with.
const small = 8

// Figure is what is looked for: one test with one size or number of ranks.
type Figure struct {
	Test  string
	Size  int // bytes; 0 where there are none
	Ranks int
}

func (f Figure) String() string {
	if f.Test == "barrier" {
		return fmt.Sprintf("%s of %d", f.Test, f.Ranks)
	}
	return fmt.Sprintf("%s of %d B", f.Test, f.Size)
}

// Figures are those that o asks for, in the order of the table. A peer may lack
// some of them.
func Figures(o Options) ([]Figure, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return figures(o), nil
}

func figures(o Options) []Figure {
	var all []Figure
	wanted := func(test string) bool { return o.Tests == nil || slices.Contains(o.Tests, test) }
	add := func(test string, sizes ...int) {
		if !wanted(test) {
			return
		}
		for _, size := range sizes {
			all = append(all, Figure{test, size, 2})
		}
	}
	add("write_lat", o.Sizes...)
	add("posted", small)
	add("write_bw", o.Sizes...)
	add("send_lat", o.Sizes...)
	add("send_bw", o.Sizes...)
	add("msg_rate", small)
	if wanted("barrier") {
		for _, n := range o.Ranks {
			all = append(all, Figure{"barrier", 0, n})
		}
	}
	return all
}

// unit is what the figure is told in, and whether less of it is better.
func (f Figure) unit() (name, better string) {
	switch f.Test {
	case "write_bw", "send_bw":
		return "MB/s", "more"
	case "msg_rate":
		return "msg/s", "more"
	default:
		return "ns", "less"
	}
}

// in converts the time of one operation.
func (f Figure) in(ns float64) float64 {
	switch name, _ := f.unit(); name {
	case "MB/s":
		return float64(f.Size) / ns * 1e3
	case "msg/s":
		return 1e9 / ns
	default:
		return ns
	}
}

// way is one of the ways in which a peer can do what a figure asks for.
type way struct {
	name string
	// run makes some repeats, and returns those that it finished even if it
	// fails after them.
	run func(ctx context.Context, repeats int) (sample, error)
}

// sample is what repeats have found.
type sample struct {
	ns         []float64 // of one operation, for each repeat
	iterations int
}

// besideLimit is measure with the limit of the machine around it, if the user
// has one: the mean of what it was before and after.
func (s *session) besideLimit(ctx context.Context, f Figure, ways []way) (*report.Result, error) {
	if s.o.Before != nil {
		s.o.Before(f)
	}
	if s.o.Limit == nil {
		return s.measure(ctx, f, ways)
	}
	before, err := s.o.Limit(f.Test, f.Size)
	if err != nil {
		return nil, err
	}
	r, failed := s.measure(ctx, f, ways)
	if r == nil || before == nil {
		return r, failed
	}
	after, err := s.o.Limit(f.Test, f.Size)
	if err != nil || after == nil {
		return r, errors.Join(failed, err)
	}
	value := (before.Value + after.Value) / 2
	r.Limit = &report.Limit{Name: before.Name, Unit: before.Unit, Value: value, Ratio: r.Value / value}
	return r, failed
}

// measure tries all ways and tells of the best. It returns what it has, which
// may be nothing, and an error if a way has not brought a single repeat.
func (s *session) measure(ctx context.Context, f Figure, ways []way) (*report.Result, error) {
	var best *report.Result
	var failed error
	for _, w := range ways {
		found, trouble := s.collect(ctx, w)
		if len(found.ns) == 0 {
			failed = errors.Join(failed, trouble)
			continue
		}
		r := s.result(f, found)
		r.Note = w.name
		if trouble != nil {
			r.Note += fmt.Sprintf("; %d of %d repeats, one try ended with: %v", len(found.ns), s.o.Repeats, trouble)
		}
		if _, better := f.unit(); best == nil || better == "less" == (r.Value < best.Value) {
			best = r
		}
	}
	return best, failed
}

// collect runs a way until it has all repeats, and once more if that fails.
func (s *session) collect(ctx context.Context, w way) (found sample, trouble error) {
	for try := 0; try < 2 && len(found.ns) < s.o.Repeats; try++ {
		more, err := w.run(ctx, s.o.Repeats-len(found.ns))
		found.ns = append(found.ns, more.ns...)
		found.iterations = max(found.iterations, more.iterations)
		if err != nil {
			trouble = fmt.Errorf("%s: %w", w.name, err)
		}
		if ctx.Err() != nil {
			return found, trouble
		}
	}
	return found, trouble
}

// result has an interval from the least to the greatest repeat: 94 % of five,
// more of more.
func (s *session) result(f Figure, found sample) *report.Result {
	r := &report.Result{
		Test:     f.Test,
		Settings: report.Settings{Size: f.Size, Iterations: found.iterations, Ranks: f.Ranks, Mode: "polling", Pinned: s.o.Pinned},
	}
	r.Unit, r.Better = f.unit()
	for _, ns := range found.ns {
		r.Repeats = append(r.Repeats, f.in(ns))
	}
	r.Value, r.Low, r.High = median(r.Repeats), slices.Min(r.Repeats), slices.Max(r.Repeats)
	return r
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
