// Heat computes the diffusion of heat on a grid with one cell per pixel of a picture, divided among
// the ranks of a job. The brightness of a pixel is its temperature at the start.
//
//	go run ./cmd/ndrun -n 4 ./examples/heat -in photo.jpeg -out heat.png -steps 2000 -verify
//	go run ./examples/heat -out heat.png
//
// Each rank owns a block of rows. It reads its rows from rank 0's memory. After each step it writes
// its first and last row directly into windows of its neighbours. An empty message after each row
// says that the row has arrived, so a rank that waits sleeps. In the end rank 0 reads all blocks
// from the other ranks' memory and writes a PNG.
//
// Black is 0 degrees and white is 100; colours count by their brightness, and transparent pixels
// count as black. The cells at the rim keep their temperature. With -verify rank 0
// computes everything once more by itself, and every bit of the two results must agree.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// startPicture is used without -in.
//
//go:generate go run ./internal/mkpicture -o start.png
//go:embed start.png
var startPicture []byte

// settings are the command line; every rank sees the same one.
type settings struct {
	in, out          string
	steps            int
	verify, progress bool
}

// parse parses the command line.
func parse(args []string) (settings, error) {
	var s settings
	var help bytes.Buffer
	flags := flag.NewFlagSet("heat", flag.ContinueOnError)
	flags.SetOutput(&help)
	flags.StringVar(&s.in, "in", "", "PNG or JPEG `file` with the temperatures to start from (default: a picture that comes with the program)")
	flags.StringVar(&s.out, "out", "", "PNG `file` to write the result to (default: none)")
	flags.IntVar(&s.steps, "steps", 500, "how many steps to compute")
	flags.BoolVar(&s.verify, "verify", false, "recompute on one rank and compare bit for bit")
	flags.BoolVar(&s.progress, "progress", false, "report progress even if the output is not a terminal")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return s, helpRequested{help.String()}
	case err != nil:
		return s, fmt.Errorf("%w (-h lists the flags)", err)
	case flags.NArg() > 0:
		return s, fmt.Errorf("%q is not a flag: give the picture with -in", flags.Arg(0))
	case s.steps < 0:
		return s, fmt.Errorf("-steps %d: want 0 or more", s.steps)
	}
	return s, nil
}

// helpRequested is the error of parse for -h, with the help text.
type helpRequested struct{ text string }

func (h helpRequested) Error() string { return h.text }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) }) // later signals end the process at once
	status := run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

// run is main with the exit status as its result.
func run(ctx context.Context, args []string) int {
	set, problem := parse(args)
	job, err := softnd.Init(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "heat:", err)
		return 1
	}
	defer job.Close()

	var help helpRequested
	if errors.As(problem, &help) {
		if job.Rank() == 0 {
			fmt.Print(help.text)
		}
		return 0
	}

	err = heat(ctx, job, set, problem)
	var common commonError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil: // a signal caused the error
		if job.Rank() == 0 {
			fmt.Fprintln(os.Stderr, "heat: stopped by a signal")
		}
	case errors.As(err, &common):
		if job.Rank() == 0 {
			fmt.Fprintln(os.Stderr, "heat:", err)
		}
		job.Barrier(ctx) // so that no rank's exit ends the job before the message is printed
	case job.Rank() == 0:
		fmt.Fprintln(os.Stderr, "heat:", err)
	case !isConsequence(err):
		fmt.Fprintf(os.Stderr, "heat: rank %d: %v\n", job.Rank(), err)
	}
	return 1
}

// isConsequence reports whether err means that another rank has ended. Only rank 0 prints such errors.
func isConsequence(err error) bool {
	return errors.Is(err, nd.Canceled) || errors.Is(err, nd.ConnectionAborted) ||
		errors.Is(err, nd.ConnectionDisconnected) || errors.Is(err, nd.HostUnreachable)
}

// heat is the whole computation. problem is an error of this rank before it: heat then fails in all
// ranks.
func heat(ctx context.Context, job *softnd.Job, set settings, problem error) error {
	var pic *picture
	var out *output
	if job.Rank() == 0 && problem == nil {
		if pic, problem = openPicture(set.in, job.Size()); problem == nil {
			out, problem = createOutput(set.out)
		}
		defer out.discard()
	}
	sizes, err := gather(ctx, job, problem, pic.size().extent())
	if err != nil {
		return err
	}
	whole := size{int(sizes[0].Width), int(sizes[0].Height)}

	b, err := newBlock(ctx, job, whole)
	defer b.close()
	if _, err = gather(ctx, job, err, struct{}{}); err != nil {
		return err
	}
	if job.Rank() == 0 {
		pic.temperatures(b.sheet.cells)
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	windows, err := gather(ctx, job, nil, b.windows())
	if err != nil {
		return err
	}
	b.setNeighbours(windows)
	if err := b.load(ctx, windows[0].Sheet); err != nil {
		return err
	}

	if err := job.Barrier(ctx); err != nil {
		return err
	}
	if err := b.invalidateSheet(ctx); err != nil { // all ranks have their rows
		return err
	}
	show := newProgress(os.Stdout, set.progress, set.steps)
	start := time.Now()
	err = b.compute(ctx, set.steps, func(step int) {
		if job.Rank() == 0 {
			show.update(step)
		}
	})
	show.clear()
	if err != nil {
		return err
	}
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	elapsed := time.Since(start)

	if err := b.bindResult(ctx, set.steps); err != nil {
		return err
	}
	results, err := gather(ctx, job, nil, b.result())
	if err != nil {
		return err
	}
	if job.Rank() == 0 {
		if err := b.readResults(ctx, results, set.steps); err != nil {
			return err
		}
	}
	if err := job.Barrier(ctx); err != nil { // rank 0 has read the results: the windows can be closed
		return err
	}
	if job.Rank() != 0 {
		return nil
	}

	moved := b.moved
	for _, r := range results[1:] {
		moved += r.Moved
	}
	fmt.Println(closingLine(whole, job.Size(), set.steps, elapsed, moved))
	if err := out.write(b.sheet.cells, whole); err != nil {
		return err
	}
	if set.verify {
		return verify(pic, b.sheet.cells, set.steps)
	}
	return nil
}

// verify compares the result with that of the serial computation.
func verify(pic *picture, got []float64, steps int) error {
	size := pic.size()
	want := make([]float64, size.Width*size.Height)
	pic.temperatures(want)
	want = serial(want, size.Width, size.Height, steps)
	if err := compare(got, want, size.Width); err != nil {
		return err
	}
	fmt.Println("heat: identical to the serial result")
	return nil
}

// closingLine says what was done, and how fast.
func closingLine(s size, ranks, steps int, elapsed time.Duration, moved uint64) string {
	word := "ranks"
	if ranks == 1 {
		word = "rank"
	}
	seconds := elapsed.Seconds()
	rate := 0.0
	if seconds > 0 {
		rate = float64(steps) / seconds
	}
	return fmt.Sprintf("heat: %v, %d %s, %d steps in %.2f s: %.0f steps/s, %s moved through windows",
		s, ranks, word, steps, seconds, rate, bytesText(moved))
}

// bytesText writes a number of bytes with three digits or so.
func bytesText(n uint64) string {
	value, units := float64(n), []string{"bytes", "kB", "MB", "GB", "TB", "PB"}
	for value >= 999.5 && len(units) > 1 {
		value, units = value/1000, units[1:]
	}
	if units[0] == "bytes" {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}
