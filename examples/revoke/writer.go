package main

import (
	"context"
	"fmt"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// postedWrites is the number of transfers that a writer keeps outstanding.
const postedWrites = 4

// write writes through each window of rank 0 until it is invalidated.
func write(ctx context.Context, job *softnd.Job, set settings) error {
	size := len(newPattern(0, set.max))
	region, err := job.Adapter().Allocate(ctx, size, 0) // the source of a Write needs no permissions
	if err != nil {
		return err
	}
	defer region.Close(ctx)
	fillPattern(region.Bytes(), set.seed)
	cq, err := job.Adapter().CreateCompletionQueue(ctx, 2*postedWrites)
	if err != nil {
		return err
	}
	defer cq.Close()
	box, err := openMailbox(ctx, job, 0)
	defer box.close()
	if err != nil {
		return err
	}
	connect := func() (nd.Endpoint, error) {
		return job.Connect(ctx, 0, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq,
			ReceiveDepth: 1, InitiatorDepth: postedWrites})
	}
	steady, err := connect() // the owner's steady connection; no transfer uses it
	if err != nil {
		return err
	}
	defer steady.Close()
	for last := false; !last; {
		ep, err := connect()
		if err != nil {
			return err
		}
		message, err := box.receive(ctx)
		if err != nil {
			return err
		}
		a, err := decodeAccess(message)
		if err != nil {
			return err
		}
		nd.Expect(ep, "the owner invalidates the window while this rank writes through it", "N101", "N107")
		r, err := flood(ctx, ep, cq, region, a, newPlan(set, job.Rank(), a.round))
		ep.Close()
		if err != nil {
			return err
		}
		if err := box.send(ctx, r.encode()); err != nil {
			return err
		}
		last = a.last
	}
	return nil
}

// flood writes through a window until a transfer fails, which ends the connection. It then waits for
// the results of the transfers posted after it.
func flood(ctx context.Context, ep nd.Endpoint, cq nd.CompletionQueue, source nd.MemoryRegion, a access, p *plan) (report, error) {
	var r report
	post := func() error {
		entry := nd.SGE{Buffer: p.next().of(source.Bytes()), Token: source.LocalToken()}
		return nd.WriteTo(ep, 0, nd.One(entry), a.window, 0)
	}
	for range postedWrites {
		if err := post(); err != nil {
			return r, err
		}
	}
	var results [postedWrites]nd.Result
	posted, failed := postedWrites, false
	for posted > 0 {
		n, err := cq.Wait(ctx, results[:])
		if err != nil {
			return r, err
		}
		for _, result := range results[:n] {
			posted--
			switch {
			case result.Status == nd.Success && !failed:
				r.done++
				if err := post(); err != nil {
					return r, err
				}
				posted++
			case result.Status == nd.AccessViolation && !failed:
				failed = true
			case result.Status == nd.Canceled && failed:
				r.cancelled++
			case failed:
				return r, fmt.Errorf("transfer after the failed one: want status %v: %w", nd.Canceled, result.Status)
			default:
				return r, fmt.Errorf("transfer: want status %v: %w", nd.AccessViolation, nd.Explain(ep, result))
			}
		}
	}
	return r, nil
}
