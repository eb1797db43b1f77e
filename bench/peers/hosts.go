package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/softnd/softnd/bench/internal/median"
	"github.com/softnd/softnd/bench/report"
)

// ranks are ranks 0 and 1 of a job, on two hosts.
type ranks interface {
	Rank() int
	Exchange(ctx context.Context, mine []byte) ([][]byte, error)
}

// OverHosts says which program of libfabric is measured between two hosts.
type OverHosts struct {
	Test       string        // of softnd, to compare with
	Provider   string        // libfabric's name
	Address    string        // of rank 1's host
	Iterations int           // of one repeat; 0 = as many as Duration takes at the limit
	Duration   time.Duration // of one repeat; 0 = 200 ms
	Repeats    int
}

// fabricPrograms are the programs by the tests of softnd.
var fabricPrograms = map[string][]string{
	"send_lat": {"fi_pingpong"},
	"write_bw": {"fi_rma_bw", "-o", "write"},
	"read_bw":  {"fi_rma_bw", "-o", "read"},
}

// RunOverHosts measures softnd and the program in rounds. In each, own makes one repeat, and returns its results on rank 0.
// Then the program makes one repeat for each of these results, with the client on rank 0. The results of both are pooled.
// Each repeat of the program is compared with the limit in the result of own.
//
// Ranks 0 and 1 call it together. If the program is missing on a host, the notes of own's results say so. If it fails,
// rank 0 calls failed, and goes on without it. An error means that own has failed, that libfabric has no program for
// the test, or that the other rank is lost.
func RunOverHosts(ctx context.Context, x ranks, h OverHosts, own func() ([]report.Result, error), failed func(error)) (results []report.Result, err error) {
	f, err := openFabric(ctx, x, h)
	if err != nil {
		return nil, err
	}
	defer f.close()
	for range h.Repeats {
		found, err := own()
		if err != nil {
			return nil, err
		}
		beside, err := f.repeat(ctx, found)
		if err != nil {
			return nil, err
		}
		results = report.Pool(report.Pool(results, found), beside)
	}
	if f.failed != nil {
		failed(f.failed)
	}
	return results, nil
}

// fabric is one call of RunOverHosts.
type fabric struct {
	OverHosts
	ranks   ranks
	s       *session // nil if the program is missing
	missing string   // why; ""
	failed  error    // the first failure, on rank 0; the program does not run again
}

// openFabric locks the calling goroutine to its thread until close.
func openFabric(ctx context.Context, x ranks, h OverHosts) (*fabric, error) {
	f := &fabric{OverHosts: h, ranks: x}
	argv := fabricPrograms[h.Test]
	if argv == nil {
		return nil, errors.New("libfabric has no program for this test: use send_lat, write_bw or read_bw, or omit the option")
	}
	o, err := Options{Duration: h.Duration, Repeats: h.Repeats}.withDefaults()
	if err != nil {
		return nil, err
	}
	mine := ""
	if _, err := exec.LookPath(argv[0]); err != nil {
		mine = "-"
	}
	all, err := x.Exchange(ctx, []byte(mine))
	if err != nil {
		return nil, err
	}
	var without []string
	for rank, blob := range all {
		if len(blob) > 0 {
			without = append(without, fmt.Sprintf("rank %d", rank))
		}
	}
	if without != nil {
		f.missing = fmt.Sprintf("%s is not installed at the host of %s", argv[0], strings.Join(without, " and "))
		return f, nil
	}
	if f.s, err = open(o); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	return f, nil
}

// close ends the processes of this rank and removes their files.
func (f *fabric) close() {
	if f.s != nil {
		f.s.close()
		runtime.UnlockOSThread()
	}
}

// order is what rank 0 wants of rank 1: a server for one repeat. Size 0 is the end.
type order struct{ Size, Iterations int }

// offer is the answer.
type offer struct{ Port, Error string }

// repeat makes one repeat for each result of softnd on rank 0, and compares it with the limit in the result. If the
// program is missing, it notes that in the results. An error means that the other rank is lost.
func (f *fabric) repeat(ctx context.Context, own []report.Result) (found []report.Result, err error) {
	if f.s == nil {
		for i := range own {
			own[i].Note = strings.TrimPrefix(own[i].Note+"; "+f.missing, "; ")
		}
		return nil, nil
	}
	if f.ranks.Rank() != 0 {
		return nil, f.serve(ctx)
	}
	for i := range own {
		if f.failed != nil {
			break
		}
		one, err := f.measure(ctx, &own[i])
		if err != nil {
			return nil, err
		}
		if one != nil {
			found = append(found, *one)
		}
	}
	_, err = f.tell(ctx, order{})
	return found, err
}

// measure makes one repeat on rank 0. The result is nil if the program failed.
func (f *fabric) measure(ctx context.Context, own *report.Result) (*report.Result, error) {
	fig := Figure{Test: f.Test, Size: own.Size, Ranks: 2}
	n := f.iterations(fig, own.Limit)
	if _, err := f.tell(ctx, order{own.Size, n}); err != nil {
		return nil, err
	}
	blob, err := f.tell(ctx, struct{}{}) // when the server listens
	if err != nil {
		return nil, err
	}
	var o offer
	var ns float64
	failed := json.Unmarshal(blob, &o)
	if failed == nil && o.Error != "" {
		failed = errors.New(o.Error)
	}
	if failed == nil {
		limited, cancel := f.s.limit(ctx)
		ns, failed = f.s.ask(limited, f.pair(own.Size), o.Port, n)
		cancel()
	}
	if _, err := f.tell(ctx, struct{}{}); err != nil { // the server may end
		return nil, err
	}
	if failed != nil {
		f.failed = fmt.Errorf("peers: %s between hosts: %s: %w", f.name(), fig, failed)
		return nil, nil
	}
	v := fig.in(ns)
	one := &report.Result{
		Test: f.Test, Provider: "libfabric", Note: f.name(),
		Settings: report.Settings{Size: own.Size, Iterations: n, Ranks: 2, Hosts: 2, Mode: "polling"},
		Repeats:  []float64{v}, Value: v,
	}
	one.Unit, one.Better = own.Unit, own.Better
	one.Low, one.High = median.Interval(one.Repeats)
	if l := own.Limit; l != nil {
		one.Limit = &report.Limit{Name: l.Name, Unit: l.Unit, Value: l.Value, Ratio: v / l.Value, Ratios: []float64{v / l.Value}}
	}
	return one, nil
}

// iterations returns how many operations take about the duration of a repeat.
func (f *fabric) iterations(fig Figure, limit *report.Limit) int {
	if f.Iterations > 0 || limit == nil {
		return max(f.Iterations, 1)
	}
	const fewest, most = 20, 1e6
	ns := limit.Value
	if limit.Unit == "MB/s" {
		ns = float64(fig.Size) / limit.Value * 1e3
	}
	return int(min(max(float64(f.s.o.Duration)/ns, fewest), most))
}

// serve runs servers until rank 0 wants no more.
func (f *fabric) serve(ctx context.Context) error {
	for {
		blob, err := f.tell(ctx, struct{}{})
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal(blob, &o); err != nil || o.Size == 0 {
			return err
		}
		if err := f.serveOnce(ctx, o); err != nil {
			return err
		}
	}
}

func (f *fabric) serveOnce(ctx context.Context, o order) error {
	limited, cancel := f.s.limit(ctx)
	defer cancel()
	defer f.s.sweep()
	var mine offer
	server, port, err := f.s.serve(limited, f.pair(o.Size), o.Iterations)
	if err != nil {
		mine.Error = err.Error()
	} else {
		mine.Port = port
		defer server.end()
	}
	if _, err := f.tell(ctx, mine); err != nil {
		return err
	}
	_, err = f.tell(ctx, struct{}{}) // the client has ended
	return err
}

// tell gives the other rank a message, and returns that of the other rank.
func (f *fabric) tell(ctx context.Context, mine any) ([]byte, error) {
	blob, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := f.ranks.Exchange(ctx, blob)
	if err != nil {
		return nil, err
	}
	return all[1-f.ranks.Rank()], nil
}

func (f *fabric) argv() []string {
	argv := fabricPrograms[f.Test]
	return append([]string{argv[0], "-p", f.Provider}, argv[1:]...)
}

func (f *fabric) name() string { return strings.Join(f.argv(), " ") }

func (f *fabric) pair(size int) pair { return fabricPair(f.argv(), size, f.Address) }
