package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

const (
	longestPause = 3 * time.Millisecond   // from the message to the writer to the invalidation
	pollFor      = 100 * time.Microsecond // how long to poll for a completion before sleeping
	watchFor     = time.Millisecond       // how long to watch the memory after the writer's report
	ownRequests  = 2                      // Bind and Invalidate
)

// owner serves one writer.
type owner struct {
	job     *softnd.Job
	set     settings
	writer  int
	pattern []byte
	rng     *rand.Rand // for the pauses
	region  nd.MemoryRegion
	window  nd.MemoryWindow // nil before the first round, and after it had to be closed
	cq      nd.CompletionQueue
	box     *mailbox
	steady  nd.Endpoint // a connection that no transfer uses, so no failed transfer ends it
	watch   *watch
	tally   tally
}

// serve binds and invalidates windows for a writer until the deadline, and once after it.
func serve(ctx context.Context, job *softnd.Job, set settings, writer int, pattern []byte, deadline time.Time) (tally, error) {
	o := &owner{job: job, set: set, writer: writer, pattern: pattern,
		rng: rand.New(rand.NewPCG(set.seed, uint64(writer)))}
	defer o.close()
	if err := o.open(ctx); err != nil {
		return o.tally, err
	}
	for round, last := uint64(0), false; !last; round++ {
		last = time.Now().After(deadline)
		if err := o.round(ctx, round, last); err != nil {
			return o.tally, fmt.Errorf("round %d: %w", round, err)
		}
	}
	return o.tally, nil
}

// open creates the objects that all rounds use.
func (o *owner) open(ctx context.Context) (err error) {
	adapter := o.job.Adapter()
	if o.set.private {
		o.region, err = adapter.Register(ctx, make([]byte, o.set.max), nd.AllowLocalWrite)
	} else {
		o.region, err = adapter.Allocate(ctx, o.set.max, nd.AllowLocalWrite)
	}
	if err != nil {
		return err
	}
	if o.cq, err = adapter.CreateCompletionQueue(ctx, 4*ownRequests); err != nil {
		return err
	}
	o.watch = newWatch(o.region.Bytes())
	if o.box, err = openMailbox(ctx, o.job, o.writer); err != nil {
		return err
	}
	o.steady, err = o.connect(ctx)
	return err
}

// connect makes a connection with the writer.
func (o *owner) connect(ctx context.Context) (nd.Endpoint, error) {
	return o.job.Connect(ctx, o.writer, nd.EndpointConfig{ReceiveCQ: o.cq, InitiatorCQ: o.cq,
		ReceiveDepth: 1, InitiatorDepth: ownRequests})
}

// round binds the window once, invalidates it, and checks the memory afterwards.
//
// In every second round the window is bound on the connection that the transfers use. In the other
// rounds it is bound on the steady one, so the invalidation has to reach transfers of another
// connection.
func (o *owner) round(ctx context.Context, round uint64, last bool) error {
	mem := o.region.Bytes()
	clear(mem)
	used, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer used.Close()
	ep, rights := used, nd.AllowWrite|nd.ThisEndpointOnly
	if round%2 == 1 {
		ep, rights = o.steady, nd.AllowWrite
	}
	if o.window == nil {
		if o.window, err = o.job.Adapter().CreateMemoryWindow(ctx); err != nil {
			return err
		}
	}
	if err := ep.Bind(0, o.region, o.window, mem, rights); err != nil {
		return err
	}
	if status, err := o.completion(ctx); err != nil {
		return err
	} else if status != nd.Success {
		return fmt.Errorf("bind the window: %w", status)
	}
	message := access{window: o.window.Descriptor(), round: round, last: last}
	if err := o.box.send(ctx, message.encode()); err != nil {
		return err
	}
	time.Sleep(time.Duration(o.rng.Int64N(int64(longestPause))))

	if err := o.invalidate(ctx, ep); err != nil {
		return err
	}
	o.watch.record()

	answer, err := o.box.receive(ctx)
	if err != nil {
		return err
	}
	time.Sleep(watchFor)
	o.tally.late += o.watch.changed()
	o.verify(round, decodeReport(answer))
	return nil
}

// invalidate invalidates the window, and returns as soon as that is complete.
func (o *owner) invalidate(ctx context.Context, ep nd.Endpoint) error {
	if err := ep.Invalidate(0, o.window, 0); err != nil {
		return err
	}
	status, err := o.completion(ctx)
	switch {
	case err != nil:
		return err
	case status == nd.Success:
		return nil
	case status != nd.Canceled:
		return fmt.Errorf("invalidate the window: %w", status)
	}
	// The writer's failure ended the connection before the invalidation was complete. Close
	// invalidates the window, too.
	o.tally.closed++
	err = o.window.Close(ctx)
	o.window = nil
	return err
}

// completion returns the status of the only outstanding request. It polls before it sleeps, so that it
// returns shortly after the completion.
func (o *owner) completion(ctx context.Context) (nd.Status, error) {
	var r [1]nd.Result
	for start := time.Now(); time.Since(start) < pollFor; {
		if o.cq.Poll(r[:]) == 1 {
			return r[0].Status, nil
		}
	}
	_, err := o.cq.Wait(ctx, r[:])
	return r[0].Status, err
}

// verify compares the memory with the writer's report, and counts.
func (o *owner) verify(round uint64, r report) {
	p := newPlan(o.set, o.writer, round)
	done := make([]transfer, r.done)
	for i := range done {
		done[i] = p.next()
		o.tally.bytes += uint64(done[i].size)
	}
	begun, wrong := explain(o.region.Bytes(), o.pattern, done, p.next())
	if begun {
		o.tally.inFlight++
	} else {
		o.tally.refused++
	}
	o.tally.windows++
	o.tally.done += r.done
	o.tally.cancelled += r.cancelled
	o.tally.wrong += wrong
}

func (o *owner) close() {
	if o.steady != nil {
		o.steady.Close()
	}
	if o.box != nil {
		o.box.close()
	}
	if o.window != nil {
		o.window.Close(context.Background())
	}
	if o.region != nil {
		o.region.Close(context.Background())
	}
	if o.cq != nil {
		o.cq.Close()
	}
}
