package softnd_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// Each rank writes a line of text into memory of rank 0, which prints them all. Started without a
// launcher, as here, a program is rank 0 of 1. Under ndrun -n 4 it prints four lines.
func Example() {
	ctx := context.Background()
	job := softnd.Must(softnd.Init(ctx))
	defer job.Close()
	const line = len("hello from rank 1234\n")
	memory := softnd.Must(job.Adapter().Allocate(ctx, job.Size()*line, nd.AllowLocalWrite|nd.AllowRemoteWrite))
	all := softnd.Must(job.ExchangeWindows(ctx, nd.DescriptorOf(memory)))
	results := softnd.Must(job.Adapter().CreateCompletionQueue(ctx, 16))
	peers := softnd.Must(job.ConnectAll(ctx, nd.EndpointConfig{ReceiveCQ: results, InitiatorCQ: results}))
	mine := nd.SGEOf(memory, job.Rank()*line, line)
	copy(mine.Buffer, fmt.Sprintf("hello from rank %4d\n", job.Rank()))
	if ep := peers[0]; ep != nil { // nil at rank 0 itself
		softnd.Check(nd.WriteTo(ep, 1, nd.One(mine), softnd.Must(all[0].Slice(job.Rank()*line, line)), 0))
		softnd.Must(nd.WaitOne(ctx, results, ep))
	}
	softnd.Check(job.Barrier(ctx)) // all lines are in rank 0's memory
	if job.Rank() == 0 {
		fmt.Printf("%s", memory.Bytes())
	}
	// Output: hello from rank    0
}

// A server accepts connections of ranks that it does not know before.
func ExampleJob_Listen() {
	ctx := context.Background()
	job := softnd.Must(softnd.Init(ctx))
	defer job.Close()
	results := softnd.Must(job.Adapter().CreateCompletionQueue(ctx, 16))
	cfg := nd.EndpointConfig{ReceiveCQ: results, InitiatorCQ: results}
	if job.Rank() > 0 { // a client
		softnd.Check(job.Barrier(ctx)) // the server listens
		ep := softnd.Must(job.Dial(ctx, 0, cfg))
		defer ep.Close()
		return
	}
	server := softnd.Must(job.Listen(ctx))
	defer server.Close()
	softnd.Check(job.Barrier(ctx))
	for range job.Size() - 1 {
		ep, peer, err := server.Accept(ctx, cfg)
		softnd.Check(err)
		defer ep.Close()
		fmt.Println("accepted rank", peer)
	}
	fmt.Println("served", job.Size()-1, "ranks")
	// Output: served 0 ranks
}

// A program prints what its endpoints have done, and logs events of its connections.
func ExampleJob_Stats() {
	ctx := context.Background()
	job := softnd.Must(softnd.Init(ctx, softnd.WithLogger(slog.Default()), softnd.WithStats()))
	defer job.Close()
	// ... connect, transfer ...
	for _, ep := range job.Stats().Endpoints {
		slog.Info("endpoint", "peer", ep.Peer, "requests", ep.RequestsCompleted, "bytes written", ep.Operations.Write.Bytes, "sends that waited for a receive", ep.Stalls.Receive)
	}
	// Output:
}
