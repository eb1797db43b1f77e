package softnd_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// Each rank writes a line of text into memory of rank 0, which prints them
// all. Started alone, as here, a program is rank 0 of 1; ndrun -n 4 would make
// it print four lines.
func Example() {
	ctx := context.Background()
	job := must(softnd.Init(ctx))
	defer job.Close()
	rank, size, adapter := job.Rank(), job.Size(), job.Adapter()

	const line = len("hello from rank 1234\n")
	memory := must(adapter.Allocate(ctx, size*line, nd.AllowLocalWrite|nd.AllowRemoteWrite))
	all := must(job.ExchangeWindows(ctx, nd.WindowDescriptor{
		Address: memory.Address(), Length: uint64(size * line), Token: memory.RemoteToken(),
	}))
	mine := memory.Bytes()[rank*line:][:line]
	copy(mine, fmt.Sprintf("hello from rank %4d\n", rank))

	results := must(adapter.CreateCompletionQueue(ctx, 16))
	for peer := range size {
		if peer == rank || peer != 0 && rank != 0 {
			continue // a star: rank 0 connects with everybody
		}
		ep := must(job.Connect(ctx, peer, nd.EndpointConfig{Receive: results, Initiator: results}))
		if rank != 0 {
			from := []nd.SGE{{Buffer: mine, Token: memory.LocalToken()}}
			check(ep.Write(1, from, all[0].Address+uint64(rank*line), all[0].Token, 0))
			var r [1]nd.Result
			must(results.Wait(ctx, r[:]))
			check(r[0].Err(ep))
		}
	}
	check(job.Barrier(ctx)) // when everybody is here, all lines are there
	if rank == 0 {
		os.Stdout.Write(memory.Bytes())
	}
	// Output: hello from rank    0
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
