// Revoke checks that access through a window ends with its invalidation. Rank 0 binds a window on
// its memory for every other rank, and invalidates it while that rank writes through it as fast as
// it can. Each invalidation interrupts a transfer. After it has completed, no byte of the memory may
// change.
//
//	go run ./cmd/ndrun -n 4 ./examples/revoke -seconds 5
//
// When the invalidation has completed, rank 0 records the memory. When the writer has reported its
// failed transfer, and a millisecond later, rank 0 compares every byte. It also checks that every byte
// comes from a transfer that the writer reports as done or failed, and that the bytes of all done
// transfers are there.
//
// A failed transfer counts as "in flight" if it had begun to change the memory, and as "refused"
// otherwise. It ends its connection, so each round makes a new one.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// settings are the command line; every rank sees the same one.
type settings struct {
	seconds  float64
	min, max int // bytes of one transfer
	seed     uint64
	private  bool
}

const (
	smallest = 64 << 10
	largest  = 16 << 20
	ceiling  = 256 << 20 // for -max: each writer costs rank 0 twice as much memory
)

// parse reads the command line.
func parse(args []string) (settings, error) {
	var s settings
	var help bytes.Buffer
	flags := flag.NewFlagSet("revoke", flag.ContinueOnError)
	flags.SetOutput(&help)
	flags.Float64Var(&s.seconds, "seconds", 5, "how long to bind and invalidate windows")
	flags.IntVar(&s.min, "min", smallest, "`bytes` of the smallest transfer")
	flags.IntVar(&s.max, "max", largest, "`bytes` of the largest transfer")
	flags.Uint64Var(&s.seed, "seed", 0, "repeats the sizes and pauses of another run (default: a new seed, printed)")
	flags.BoolVar(&s.private, "private", false, "use ordinary memory of the process instead of memory from the adapter")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return s, helpRequested{help.String()}
	case err != nil:
		return s, fmt.Errorf("%w (-h lists the flags)", err)
	case flags.NArg() > 0:
		return s, fmt.Errorf("%q is not a flag", flags.Arg(0))
	case !(s.seconds > 0 && s.seconds <= 1e6):
		return s, fmt.Errorf("-seconds %v: want more than 0, and at most 1e6", s.seconds)
	case s.min < 1 || s.max > ceiling || s.min > s.max:
		return s, fmt.Errorf("-min %d -max %d: want 1 to %d bytes, and -min at most -max", s.min, s.max, ceiling)
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
		fmt.Fprintln(os.Stderr, "revoke:", err)
		return 1
	}
	defer job.Close()

	var help helpRequested
	switch {
	case errors.As(problem, &help):
		if job.Rank() == 0 {
			fmt.Print(help.text)
		}
		return 0
	case problem == nil && job.Size() < 2:
		problem = errors.New("needs at least 2 ranks: start it with ndrun -n 2")
	}
	if problem != nil { // all ranks have the same one
		if job.Rank() == 0 {
			fmt.Fprintln(os.Stderr, "revoke:", problem)
		}
		job.Barrier(ctx) // so that no rank's exit ends the job before the message is printed
		return 1
	}

	if job.Rank() == 0 {
		err = runOwner(ctx, job, set)
	} else {
		err = runWriter(ctx, job, set)
	}
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil: // a signal caused the error
		if job.Rank() == 0 {
			fmt.Fprintln(os.Stderr, "revoke: stopped by a signal")
		}
	case job.Rank() == 0:
		fmt.Fprintln(os.Stderr, "revoke:", err)
	case !isConsequence(err):
		fmt.Fprintf(os.Stderr, "revoke: rank %d: %v\n", job.Rank(), err)
	}
	return 1
}

// isConsequence reports whether err means that another rank has ended. Only rank 0 prints such errors.
func isConsequence(err error) bool {
	return errors.Is(err, nd.Canceled) || errors.Is(err, nd.ConnectionAborted) ||
		errors.Is(err, nd.ConnectionDisconnected) || errors.Is(err, nd.HostUnreachable)
}

// runOwner is the part of rank 0, the owner of the memory: it serves all writers at the same time, and reports.
func runOwner(ctx context.Context, job *softnd.Job, set settings) error {
	for set.seed == 0 {
		set.seed = rand.Uint64()
	}
	if _, err := job.Exchange(ctx, binary.BigEndian.AppendUint64(nil, set.seed)); err != nil {
		return err
	}
	fmt.Printf("revoke: seed %d, %d writers, transfers of %s to %s\n",
		set.seed, job.Size()-1, bytesText(uint64(set.min)), bytesText(uint64(set.max)))

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type outcome struct {
		tally tally
		err   error
	}
	outcomes := make(chan outcome)
	pattern := newPattern(set.seed, set.max)
	start := time.Now()
	deadline := start.Add(time.Duration(set.seconds * float64(time.Second)))
	for writer := 1; writer < job.Size(); writer++ {
		go func() {
			t, err := serve(ctx, job, set, writer, pattern, deadline)
			if err != nil {
				err = fmt.Errorf("serving rank %d: %w", writer, err)
				cancel(err) // stops the other goroutines
			}
			outcomes <- outcome{t, err}
		}()
	}
	var total tally
	var failed error
	for range job.Size() - 1 {
		o := <-outcomes
		total.add(o.tally)
		if failed == nil {
			failed = o.err
		}
	}
	if failed != nil {
		return failed
	}
	fmt.Println(total.text(time.Since(start)))
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	return total.err()
}

// runWriter is the part of every other rank: it writes through windows of rank 0.
func runWriter(ctx context.Context, job *softnd.Job, set settings) error {
	blobs, err := job.Exchange(ctx, nil)
	if err != nil {
		return err
	}
	if len(blobs[0]) != 8 {
		return fmt.Errorf("rank 0 sent %d bytes, want a seed of 8", len(blobs[0]))
	}
	set.seed = binary.BigEndian.Uint64(blobs[0])
	if err := write(ctx, job, set); err != nil {
		return err
	}
	return job.Barrier(ctx)
}
