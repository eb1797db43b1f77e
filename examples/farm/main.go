// Farm counts the primes below a limit in a farm of ranks that survives deaths. Rank 0 hands out tasks to the other ranks. If
// one of them dies, another rank gets its task.
//
//	go run ./cmd/ndrun --on-death continue -n 4 ./examples/farm
//	go run ./cmd/ndrun --on-death continue --faults plan.yaml -n 4 ./examples/farm
//
// In the second command, a fault plan kills a rank at a certain Send:
//
//	rules:
//	  - {operation: send, rank: 2, nth: 5, action: kill}
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const (
	perTask = 1000       // numbers of a task
	stop    = ^uint64(0) // in place of a task: the worker ends
)

func main() {
	tasks := flag.Int("tasks", 200, "`number` of tasks, of 1,000 numbers each")
	flag.Parse()
	ctx := context.Background()
	job := softnd.Must(softnd.Init(ctx))
	if job.Size() < 2 || *tasks < job.Size()-1 {
		softnd.Abort(1, "farm needs 2 ranks or more, and a task for each worker: start it with ndrun -n 4")
	}
	var err error
	if job.Rank() == 0 {
		err = master(ctx, job, *tasks)
	} else {
		err = work(ctx, job)
	}
	if err := errors.Join(err, job.Close()); err != nil {
		fmt.Fprintln(os.Stderr, "farm:", err)
		os.Exit(1)
	}
}

// master hands out the tasks, and prints the sum of the answers.
func master(ctx context.Context, job *softnd.Job, number int) error {
	watching, end := context.WithCancel(ctx)
	defer end()
	go func() {
		for {
			rank, err := job.NextDeath(watching)
			if err != nil {
				return
			}
			fmt.Printf("farm: rank %d has died\n", rank)
		}
	}()
	tasks, answers := make(chan uint64, number), make(chan uint64, number)
	for task := range number {
		tasks <- uint64(task)
	}
	over := make(chan struct{}) // closed when all answers are there
	var workers sync.WaitGroup
	for rank := 1; rank < job.Size(); rank++ {
		first := <-tasks // before a worker takes its second
		workers.Go(func() { handOut(ctx, job, rank, first, tasks, answers, over) })
	}
	lost := make(chan struct{})
	go func() {
		workers.Wait()
		close(lost)
	}()
	sum := uint64(0)
	for range number {
		select {
		case n := <-answers:
			sum += n
		case <-lost:
			return errors.New("all workers are lost")
		}
	}
	close(over)
	<-lost
	fmt.Printf("farm: %d primes below %d\n", sum, number*perTask)
	return nil
}

// handOut gives tasks to a worker until all answers are there, or the worker is lost. Then another worker gets its task.
func handOut(ctx context.Context, job *softnd.Job, rank int, task uint64, tasks, answers chan uint64, over chan struct{}) {
	l, err := connect(ctx, job, rank)
	for err == nil {
		var answer uint64
		if answer, err = l.ask(ctx, task); err != nil {
			break
		}
		answers <- answer
		select {
		case task = <-tasks:
		case <-over:
			if err := l.send(ctx, stop); err != nil {
				fmt.Printf("farm: rank %d is lost at its end: %v\n", rank, err)
			}
			return
		}
	}
	fmt.Printf("farm: rank %d is lost, and another rank gets its task: %v\n", rank, err)
	tasks <- task
}

// work answers tasks until rank 0 ends it.
func work(ctx context.Context, job *softnd.Job) error {
	l, err := connect(ctx, job, 0)
	if err != nil {
		return err
	}
	for {
		task, err := l.receive(ctx)
		if err != nil || task == stop {
			return err
		}
		if err := l.send(ctx, count(task*perTask, (task+1)*perTask)); err != nil {
			return err
		}
	}
}

// count returns the number of primes from a to b-1.
func count(a, b uint64) (n uint64) {
next:
	for x := max(a, 2); x < b; x++ {
		for d := uint64(2); d*d <= x; d++ {
			if x%d == 0 {
				continue next
			}
		}
		n++
	}
	return n
}

// link is a connection that carries numbers.
type link struct {
	ep             nd.Endpoint
	received, sent nd.CompletionQueue
	message        nd.SGE
}

// connect connects to another rank, and posts the first Receive.
func connect(ctx context.Context, job *softnd.Job, rank int) (*link, error) {
	a := job.Adapter()
	memory, err := a.Allocate(ctx, 8, nd.AllowLocalWrite)
	if err != nil {
		return nil, err
	}
	l := &link{message: nd.SGEOf(memory, 0, 8)}
	if l.received, err = a.CreateCompletionQueue(ctx, 2); err != nil {
		return nil, err
	}
	if l.sent, err = a.CreateCompletionQueue(ctx, 2); err != nil {
		return nil, err
	}
	l.ep, err = job.Connect(ctx, rank, nd.EndpointConfig{ReceiveCQ: l.received, InitiatorCQ: l.sent, ReceiveDepth: 1, InitiatorDepth: 1, InlineSize: 8})
	if err != nil {
		return nil, err
	}
	return l, l.ep.Receive(0, nd.One(l.message))
}

// send sends a number, for which the peer has posted a Receive.
func (l *link) send(ctx context.Context, n uint64) error {
	if err := nd.SendInline(l.ep, 0, binary.LittleEndian.AppendUint64(nil, n), 0); err != nil {
		return err
	}
	_, err := nd.WaitOne(ctx, l.sent, l.ep)
	return err
}

// ask sends a task, and returns the answer.
func (l *link) ask(ctx context.Context, task uint64) (answer uint64, err error) {
	if err := l.send(ctx, task); err != nil {
		return 0, err
	}
	return l.receive(ctx)
}

// receive returns the next number, and posts the next Receive.
func (l *link) receive(ctx context.Context) (uint64, error) {
	if _, err := nd.WaitOne(ctx, l.received, l.ep); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint64(l.message.Buffer)
	return n, l.ep.Receive(0, nd.One(l.message))
}
