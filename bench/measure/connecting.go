package measure

import (
	"context"
	"errors"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// runConnect measures how many connections ranks 0 and 1 can make and close per second, one after the other, and how
// long one takes.
func runConnect(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	cq, err := w.Job.Adapter().CreateCompletionQueue(ctx, 1)
	if err != nil {
		return nil, err
	}
	c := &connecting{ctx: ctx, w: w, config: nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq}}
	rate := timed(w, o, "connect_rate", 0)
	rate.Unit, rate.Better = "ops/s", "more"
	var found []report.Result
	for _, l := range []*loop{
		{result: rate, run: onAll(perSecond, c.connectN)},
		{result: timed(w, o, "connect_lat", 0), run: onAll(nsPerOp, c.connectN), sample: sampleOnAll(w, c.connectN)},
	} {
		r, err := l.measure(ctx, w, o)
		if err != nil {
			return nil, errors.Join(err, cq.Close())
		}
		found = append(found, r...)
	}
	return found, cq.Close()
}

type connecting struct {
	ctx    context.Context
	w      *World
	config nd.EndpointConfig
}

// connectN makes a connection and closes it, n times.
func (c *connecting) connectN(n int) error {
	for range n {
		if err := c.connect(); err != nil {
			return err
		}
	}
	return nil
}

func (c *connecting) connect() error {
	ep, err := c.w.Job.Connect(c.ctx, 1-c.w.Job.Rank(), c.config)
	if err != nil {
		return err
	}
	// A Close before the peer's Connect has returned would make that Connect fail.
	err = c.w.Job.Barrier(c.ctx)
	return errors.Join(err, ep.Close())
}
