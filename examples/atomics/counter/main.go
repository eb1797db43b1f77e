// Counter divides tasks among ranks that steal from each other. Each rank has tasks of its own, and the number of those that
// are taken. It takes them with an atomic instruction. A rank without tasks takes those of the others with FetchAndAdd.
//
//	go run ./cmd/ndrun -n 4 ./examples/atomics/counter
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const tasks = 5000 // of each rank

func main() {
	ctx := context.Background()
	job := softnd.Must(softnd.Init(ctx))
	softnd.Check(run(ctx, job))
	softnd.Check(job.Close())
}

func run(ctx context.Context, job *softnd.Job) error {
	mr, err := job.Adapter().Allocate(ctx, 4096, nd.AllowLocalWrite|nd.AllowRemoteAtomic)
	if err != nil {
		return err
	}
	words, err := nd.View[uint64](mr.Bytes()) // for instructions that are atomic with the requests of other ranks
	if err != nil {
		return err
	}
	cq, err := job.Adapter().CreateCompletionQueue(ctx, 64*job.Size())
	if err != nil {
		return err
	}
	endpoints, err := job.ConnectAll(ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq, InitiatorDepth: 4, ReceiveDepth: 4})
	if err != nil {
		return err
	}
	counters, err := job.ExchangeWindows(ctx, nd.DescriptorOf(mr))
	if err != nil {
		return err
	}
	old := nd.SGEOf(mr, 64, 8) // behind the rank's own counter, in another cache line
	done, stolen, sum := uint64(0), uint64(0), uint64(0)
	for i := range job.Size() {
		victim := (job.Rank() + i) % job.Size()
		for {
			var task uint64
			if ep := endpoints[victim]; ep == nil {
				task = atomic.AddUint64(&words[0], 1) - 1
			} else {
				if err := ep.FetchAndAdd(0, old, counters[victim].Address, counters[victim].Token, 1, 0); err != nil {
					return err
				}
				if _, err := nd.WaitOne(ctx, cq, ep); err != nil {
					return err
				}
				task = binary.NativeEndian.Uint64(old.Buffer)
			}
			if task >= tasks {
				break // all tasks of this rank are taken
			}
			done++
			sum += work(victim, task)
			if victim != job.Rank() {
				stolen++
			}
		}
	}
	fmt.Printf("rank %d: %d tasks, of which %d stolen\n", job.Rank(), done, stolen)
	answer := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, done), sum)
	answers, err := job.Exchange(ctx, answer) // until then, each rank keeps its counter
	if err != nil || job.Rank() != 0 {
		return err
	}
	done, sum = 0, 0
	for _, a := range answers {
		done += binary.LittleEndian.Uint64(a)
		sum += binary.LittleEndian.Uint64(a[8:])
	}
	n := uint64(job.Size()) * tasks
	if done != n || sum != n*(n-1)/2 {
		return fmt.Errorf("%d tasks with the sum %d, want %d", done, sum, n)
	}
	fmt.Println("counter: each task was done once")
	return nil
}

// work does a task of a rank, and returns its result: the number of the task in the job.
func work(rank int, task uint64) uint64 { return uint64(rank)*tasks + task }
