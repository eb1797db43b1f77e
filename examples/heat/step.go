package main

import (
	"context"
	"fmt"

	"github.com/softnd/softnd/nd"
)

// compute computes the steps, and calls after when each is complete.
func (b *block) compute(ctx context.Context, steps int, after func(step int)) error {
	for g := range steps {
		if ctx.Err() != nil {
			return ctx.Err() // with one rank, no call below checks ctx
		}
		if err := b.waitForNeighbours(ctx, g); err != nil {
			return err
		}
		// Compute and send the edges first: the neighbours then work at the same time as this rank.
		b.spread(g, 0)
		if b.rows > 1 {
			b.spread(g, b.rows-1)
		}
		if g+1 < steps {
			if err := b.sendRow(ctx, &b.above, g+1, 0, b.rowSize()*((g+1)&1)); err != nil {
				return err
			}
			if err := b.sendRow(ctx, &b.below, g+1, b.rows-1, b.rowSize()*((g+1)&1)); err != nil {
				return err
			}
		}
		for y := 1; y < b.rows-1; y++ {
			b.spread(g, y)
		}
		after(g + 1)
	}
	return nil
}

// spread computes row y of generation g+1.
func (b *block) spread(g, y int) {
	next, here := b.row(g+1, y), b.row(g, y)
	if line := b.first + y; line == 0 || line == b.size.Height-1 {
		copy(next, here) // the rim keeps its temperature
		return
	}
	spreadRow(next, b.row(g, y-1), here, b.row(g, y+1))
}

// sendRow writes row y of a generation into the neighbour's window at offset. It then sends an empty
// message, which arrives after the row. With SilentSuccess, the Write has a result only if it fails. The
// Send has a result, which frees the places of both in the queue. The result can come later than the
// neighbour's next rows, so sendRow waits for a place. It leaves places for one other request.
func (b *block) sendRow(ctx context.Context, to *border, generation, y, offset int) error {
	if to.ep == nil {
		return nil
	}
	for to.sending == initiatorDepth/2-1 {
		if err := b.handleResults(ctx); err != nil {
			return err
		}
	}
	row := nd.SGEOf(b.region, b.rowIndex(generation, y)*b.rowSize(), b.rowSize())
	target, err := to.remote.Slice(offset, b.rowSize())
	if err != nil {
		return err
	}
	if err := nd.WriteTo(to.ep, 0, nd.One(row), target, nd.SilentSuccess); err != nil {
		return err
	}
	b.moved += uint64(len(row.Buffer))
	to.sending++
	return to.ep.Send(0, nd.SGL{}, 0)
}

// waitForNeighbours waits until the rows of a generation beyond the edges have arrived.
func (b *block) waitForNeighbours(ctx context.Context, generation int) error {
	for _, side := range []*border{&b.above, &b.below} {
		for side.ep != nil && side.arrived < generation {
			if err := b.handleResults(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitForOne waits for the only outstanding request that is neither a Receive nor a Send.
func (b *block) waitForOne(ctx context.Context) error {
	for b.done == 0 {
		if err := b.handleResults(ctx); err != nil {
			return err
		}
	}
	b.done = 0
	return nil
}

// handleResults waits for results. A completed receive means that a row has arrived.
func (b *block) handleResults(ctx context.Context) error {
	n, err := b.cq.Wait(ctx, b.results[:])
	if err != nil {
		return err
	}
	for _, r := range b.results[:n] {
		peer := int(r.EndpointContext)
		ep := b.peers[peer]
		switch {
		case r.Status.Failed():
			return fmt.Errorf("connection with rank %d: %w", peer, nd.Explain(ep, r))
		case r.RequestType == nd.RequestSend && peer < b.job.Rank():
			b.above.sending--
			continue
		case r.RequestType == nd.RequestSend:
			b.below.sending--
			continue
		case r.RequestType != nd.RequestReceive:
			b.done++
			continue
		case peer == b.job.Rank()-1:
			b.above.arrived++
		case peer == b.job.Rank()+1:
			b.below.arrived++
		}
		if err := ep.Receive(0, nd.SGL{}); err != nil {
			return err
		}
	}
	return nil
}
