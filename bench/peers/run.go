package peers

import (
	"context"

	"github.com/softnd/softnd/bench/report"
)

// Run measures the figures of o, each of them in rounds: own makes one repeat, and then each of the chosen peers that has
// the figure. After the last round, own makes one more repeat. Changes of the machine therefore affect all providers alike.
// Each repeat of a peer is compared with the limits of the machine in the results of own directly before and after it.
//
// Run skips peers that are not installed. It calls failed with the errors of own and of the peers, and continues. The results
// are those of own, pooled, and the best of each peer. Run returns an error if o is invalid or ctx ends.
func Run(ctx context.Context, chosen []Peer, o Options, own func(context.Context, Figure) ([]report.Result, error), failed func(error)) ([]report.Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &measurement{o: o, own: own, failed: func(err error) {
		if err != nil && ctx.Err() == nil { // the end of ctx is no failure of a program
			failed(err)
		}
	}}
	defer c.close()
	for _, p := range chosen {
		if p.Missing() != "" || ctx.Err() != nil {
			continue
		}
		r, err := newRunner(ctx, p, o)
		c.failed(err)
		if err == nil {
			c.runners = append(c.runners, r)
		}
	}
	var results []report.Result
	for _, f := range figures(o) {
		results = append(results, c.measure(ctx, f)...)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return results, nil
}

// measurement is one call of Run.
type measurement struct {
	o       Options
	own     func(context.Context, Figure) ([]report.Result, error)
	failed  func(error) // accepts nil
	runners []*runner
}

func (c *measurement) close() {
	for _, r := range c.runners {
		r.close()
	}
}

// measure measures one figure.
func (c *measurement) measure(ctx context.Context, f Figure) []report.Result {
	var results []report.Result
	var limits []*report.Limit
	var runners []*runner
	for _, r := range c.runners {
		if r.has(f) {
			runners = append(runners, r)
		}
	}
	for round := range c.o.Repeats + 1 {
		own, err := c.own(ctx, f)
		c.failed(err)
		results = report.Pool(results, own)
		if len(own) > 0 {
			limits = append(limits, own[0].Limit)
		}
		for i := range runners {
			if round < c.o.Repeats {
				runners[(i+round)%len(runners)].repeat(ctx, f) // none of them is always the first
			}
		}
	}
	limit := limitOf(limits, c.o.Repeats+1)
	for _, r := range runners {
		one, err := r.result(f, limit)
		c.failed(err)
		if one != nil {
			results = append(results, *one)
		}
	}
	return results
}

// limitByRound is the limit of the machine before the first round, between the rounds, and after the last one.
type limitByRound struct {
	name, unit string
	values     []float64
}

// limitOf returns the limit in each round, nil if a round lacks it.
func limitOf(limits []*report.Limit, rounds int) *limitByRound {
	if len(limits) != rounds {
		return nil
	}
	all := &limitByRound{}
	for _, l := range limits {
		if l == nil {
			return nil
		}
		all.name, all.unit, all.values = l.Name, l.Unit, append(all.values, l.Value)
	}
	return all
}
