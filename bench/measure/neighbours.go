package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// runNeighbours measures steps in which every rank of a ring sends a message to both neighbours and waits for both of
// theirs, as a stencil does. Idle ranks sleep, so there may be more ranks than cores.
func runNeighbours(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	for _, size := range sizes(o, 64) {
		if size < stampBytes {
			return nil, fmt.Errorf("oversubscribed: size %d: too small for a step number: want %d bytes or more", size, stampBytes)
		}
		r, err := newRing(ctx, w, o, size)
		if err != nil {
			return nil, err
		}
		res := timed(w, o, "oversubscribed", size)
		res.Mode, res.Memory = "event", memoryName(o.Private)
		l := &loop{result: res, run: onAll(nsPerOp, r.steps), sample: sampleOnAll(w, r.steps)}
		results, err := l.measure(ctx, w, o)
		if err := afterAll(ctx, w, err, r.close); err != nil {
			return nil, err
		}
		found = append(found, results...)
	}
	return found, nil
}

const (
	stampBytes = 8 // the number of the step, at the front of every message
	// A neighbour can be at most one step ahead, because it waits for our message.
	slotsAhead = 2
)

// ring is one rank's two connections.
type ring struct {
	ctx       context.Context
	cq        nd.CompletionQueue
	mr        nd.MemoryRegion
	size      int
	done      uint64 // steps
	sent      int    // sends of this step that are complete
	neighbour [2]neighbour
	found     [4 * slotsAhead]nd.Result
}

type neighbour struct {
	ep       nd.Endpoint
	received uint64 // messages taken
}

func newRing(ctx context.Context, w *World, o Options, size int) (r *ring, err error) {
	r = &ring{ctx: ctx, size: size}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	ad := w.Job.Adapter()
	if r.cq, err = ad.CreateCompletionQueue(ctx, len(r.found)); err != nil {
		return r, err
	}
	// For each neighbour slotsAhead buffers to receive into, and as many to send from.
	if r.mr, err = newRegion(ctx, ad, 4*slotsAhead*size, o.Private); err != nil {
		return r, err
	}
	rank, n := w.Job.Rank(), w.Job.Size()
	peers := [2]int{(rank + n - 1) % n, (rank + 1) % n}
	order := [2]int{0, 1}
	if peers[1] < peers[0] { // job.Connect requires ascending ranks
		order = [2]int{1, 0}
	}
	for _, i := range order {
		if r.neighbour[i].ep, err = w.Job.Connect(ctx, peers[i], nd.EndpointConfig{ReceiveCQ: r.cq, InitiatorCQ: r.cq, Context: uint64(i)}); err != nil {
			return r, err
		}
		for slot := range uint64(slotsAhead) {
			if err := r.receive(i, slot); err != nil {
				return r, err
			}
		}
	}
	return r, w.Job.Barrier(ctx) // all receives are posted
}

// buffer returns the buffer of message number step.
func (r *ring) buffer(neighbour int, step uint64, sending bool) nd.SGE {
	at := neighbour*slotsAhead + int(step%slotsAhead)
	if sending {
		at += 2 * slotsAhead
	}
	return nd.SGE{Buffer: r.mr.Bytes()[at*r.size:][:r.size], Token: r.mr.LocalToken()}
}

func (r *ring) receive(neighbour int, step uint64) error {
	return r.neighbour[neighbour].ep.Receive(step, nd.One(r.buffer(neighbour, step, false)))
}

// steps makes n steps.
func (r *ring) steps(n int) error {
	for range n {
		if err := r.step(); err != nil {
			return err
		}
	}
	return nil
}

// step sends to both neighbours, and waits for their messages of this step.
func (r *ring) step() error {
	r.sent = 0
	for i := range r.neighbour {
		out := r.buffer(i, r.done, true)
		binary.NativeEndian.PutUint64(out.Buffer, r.done)
		if err := r.neighbour[i].ep.Send(r.done, nd.One(out), 0); err != nil {
			return err
		}
	}
	r.done++
	for r.sent < len(r.neighbour) || r.neighbour[0].received < r.done || r.neighbour[1].received < r.done {
		n, err := r.cq.Wait(r.ctx, r.found[:])
		if err != nil {
			return err
		}
		if err := each(r.found[:n], r.handle); err != nil {
			return err
		}
	}
	return nil
}

func (r *ring) handle(res nd.Result) error {
	if res.Status != nd.Success {
		return fmt.Errorf("measure: %w", nd.Explain(r.neighbour[res.EndpointContext].ep, res))
	}
	if res.RequestType == nd.RequestSend {
		r.sent++
		return nil
	}
	i, step := int(res.EndpointContext), res.RequestContext
	in := r.buffer(i, step, false).Buffer
	if stamp := binary.NativeEndian.Uint64(in); stamp != r.neighbour[i].received || step != stamp {
		return fmt.Errorf("measure: receive of step %d: wrong message (stamp %d, want %d)", step, stamp, r.neighbour[i].received)
	}
	r.neighbour[i].received++
	return r.receive(i, step+slotsAhead)
}

// each calls f for every element until it fails.
func each[T any](list []T, f func(T) error) error {
	for _, v := range list {
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

func (r *ring) close() (err error) {
	for _, n := range r.neighbour {
		if n.ep != nil {
			err = errors.Join(err, n.ep.Close())
		}
	}
	if r.cq != nil {
		err = errors.Join(err, r.cq.Close())
	}
	if r.mr != nil {
		err = errors.Join(err, r.mr.Close(r.ctx))
	}
	return err
}
