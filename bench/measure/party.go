package measure

import (
	"context"
	"time"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// steps are the operations of a test over a link. All ranks call them with the same n.
type steps struct {
	repeat func(l *link, n int) (time.Duration, error) // returns the time of n operations on rank 0
	sample func(l *link, n int, h *histogram) error    // the same, and records each of them
	figure func(ns float64, size int) float64          // of one operation in a sample
}

// party is both ranks of a test with their connection.
type party struct {
	settings report.Settings
	repeat   func(n int) (time.Duration, error)
	sample   func(n int, h *histogram) error
	close    func() error
}

// open connects the ranks for a test.
func (w *World) open(ctx context.Context, o Options, kind nd.RequestType, c linkConfig, res *report.Result, t steps) (*party, error) {
	if w.crew != nil {
		return w.crew.open(ctx, o, c, res, t)
	}
	l, err := openValidated(ctx, w, o, kind, c, res)
	if err != nil {
		return nil, err
	}
	return &party{
		settings: l.o.settings(l.size),
		repeat:   func(n int) (time.Duration, error) { return t.repeat(l, n) },
		sample:   func(n int, h *histogram) error { return t.sample(l, n, h) },
		close:    l.Close,
	}, nil
}
