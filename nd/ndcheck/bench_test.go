package ndcheck_test

import (
	"context"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/softndtest"
)

// BenchmarkWrite posts a Write of 8 bytes and polls its result, with and without the checker.
func BenchmarkWrite(b *testing.B) {
	for name, options := range map[string][]softnd.Option{"unwatched": nil, "watched": {softnd.WithChecker(ndcheck.Options{})}} {
		b.Run(name, func(b *testing.B) {
			softndtest.Run(b, 2, func(ctx context.Context, job *softnd.Job) error {
				a := job.Adapter()
				mr, err := a.Allocate(ctx, 64, nd.AllowRemoteWrite)
				if err != nil {
					return err
				}
				q, err := a.CreateCompletionQueue(ctx, 64)
				if err != nil {
					return err
				}
				ep, err := job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{Receive: q, Initiator: q})
				if err != nil {
					return err
				}
				all, err := job.ExchangeWindows(ctx, nd.DescriptorOf(mr))
				if err != nil || job.Rank() == 1 {
					return err
				}
				sge := []nd.SGE{nd.SGEOf(mr, 0, 8)}
				var results [1]nd.Result
				for b.Loop() {
					if err := nd.WriteTo(ep, 1, sge, all[1], 0); err != nil {
						return err
					}
					for q.Poll(results[:]) == 0 {
					}
				}
				return nil
			}, options...)
		})
	}
}
