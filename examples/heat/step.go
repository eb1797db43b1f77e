package main

import (
	"context"
	"fmt"

	"github.com/softnd/softnd/nd"
)

// compute runs the steps and calls after behind each of them.
func (b *block) compute(ctx context.Context, steps int, after func(step int)) error {
	for g := range steps {
		if ctx.Err() != nil {
			return ctx.Err() // a rank that never waits would not notice
		}
		if err := b.neighboursAt(ctx, g); err != nil {
			return err
		}
		// The edges first, so that the neighbours can go on while we do the rest.
		b.spread(g, 0)
		if b.rows > 1 {
			b.spread(g, b.rows-1)
		}
		if g+1 < steps {
			if err := b.tell(&b.above, g+1, 0, b.rowSize()*((g+1)&1)); err != nil {
				return err
			}
			if err := b.tell(&b.below, g+1, b.rows-1, b.rowSize()*((g+1)&1)); err != nil {
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

// tell writes row y of a generation to the neighbour's memory, offset bytes into its window, and
// sends an empty message after it. Neither request has a result if it succeeds.
func (b *block) tell(to *border, generation, y, offset int) error {
	if to.ep == nil {
		return nil
	}
	row := nd.SGEOf(b.region, b.place(generation, y)*b.rowSize(), b.rowSize())
	target, err := to.theirs.Slice(offset, b.rowSize())
	if err != nil {
		return err
	}
	if err := nd.WriteTo(to.ep, 0, []nd.SGE{row}, target, nd.SilentSuccess); err != nil {
		return err
	}
	b.moved += uint64(len(row.Buffer))
	return to.ep.Send(0, nil, nd.SilentSuccess)
}

// neighboursAt waits until the rows beyond the edges are those of a generation.
func (b *block) neighboursAt(ctx context.Context, generation int) error {
	for _, side := range []*border{&b.above, &b.below} {
		for side.ep != nil && side.arrived < generation {
			if err := b.takeResults(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish waits for the one request that is outstanding, apart from receives.
func (b *block) finish(ctx context.Context) error {
	for b.done == 0 {
		if err := b.takeResults(ctx); err != nil {
			return err
		}
	}
	b.done = 0
	return nil
}

// takeResults waits for results and acts on them. A receive says that a row has come.
func (b *block) takeResults(ctx context.Context) error {
	n, err := b.cq.Wait(ctx, b.results[:])
	if err != nil {
		return err
	}
	for _, r := range b.results[:n] {
		peer := int(r.EndpointContext)
		ep := b.peers[peer]
		switch {
		case r.Status.Failed():
			return lost(r, peer, ep)
		case r.RequestType != nd.RequestReceive:
			b.done++
			continue
		case peer == b.job.Rank()-1:
			b.above.arrived++
		case peer == b.job.Rank()+1:
			b.below.arrived++
		}
		if err := ep.Receive(0, nil); err != nil {
			return err
		}
	}
	return nil
}

// lost says why there is no going on with a peer.
func lost(r nd.Result, peer int, ep nd.Endpoint) error {
	return fmt.Errorf("the connection with rank %d has ended: %w", peer, r.Err(ep))
}
