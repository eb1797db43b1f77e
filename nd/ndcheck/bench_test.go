//go:build linux

package ndcheck_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/checkjournal"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/softndtest"
)

// BenchmarkWrite posts a Write and polls its result: without the checker, with a checker that knows this process only,
// and with the journal of a job, as under ndrun.
func BenchmarkWrite(b *testing.B) {
	file, err := checkjournal.Create()
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for _, size := range []int{8, 64 << 10} {
		for _, how := range []string{"unwatched", "watched", "journal"} {
			var options []softnd.Option
			switch how {
			case "watched":
				options = []softnd.Option{softnd.WithChecker(ndcheck.Options{})}
			case "journal":
				journal, err := checkjournal.Open(int(file.Fd()))
				if err != nil {
					b.Fatal(err)
				}
				options = []softnd.Option{softnd.WithChecker(ndcheck.Options{Journal: journal})}
			}
			b.Run(fmt.Sprintf("%d/%s", size, how), func(b *testing.B) {
				softndtest.Run(b, 2, func(ctx context.Context, job *softnd.Job) error { return writeMany(ctx, b, job, size) }, options...)
			})
		}
	}
}

func writeMany(ctx context.Context, b *testing.B, job *softnd.Job, size int) error {
	a := job.Adapter()
	mr, err := a.Allocate(ctx, size, nd.AllowRemoteWrite)
	if err != nil {
		return err
	}
	q, err := a.CreateCompletionQueue(ctx, 64)
	if err != nil {
		return err
	}
	ep, err := job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
	if err != nil {
		return err
	}
	all, err := job.ExchangeWindows(ctx, nd.DescriptorOf(mr))
	if err != nil || job.Rank() == 1 {
		return err
	}
	sge := nd.One(nd.SGEOf(mr, 0, size))
	var results [1]nd.Result
	for b.Loop() {
		if err := nd.WriteTo(ep, 1, sge, all[1], 0); err != nil {
			return err
		}
		for q.Poll(results[:]) == 0 {
		}
	}
	return nil
}
