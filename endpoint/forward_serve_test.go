package endpoint

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// Serve calls step again and again while there is work, sleeps when there is none, and calls step after a wake-up. It ends
// with its context.
func TestServeSleepsAndWakes(t *testing.T) {
	p := newPair(t, setup{}).b.provider
	ctx, cancel := context.WithCancel(t.Context())
	var work, done atomic.Int64
	var isArmed atomic.Bool // the last call of step found the doorbell armed
	ended := make(chan error, 1)
	go func() {
		ended <- p.serve(ctx, statuspage.Call{Op: "serve"}, func() bool {
			isArmed.Store(p.waiters.IsArmed())
			if work.Load() == 0 {
				return false
			}
			work.Add(-1)
			done.Add(1)
			return true
		})
	}()
	const portion = 5 * spinsPerProgress
	for round := int64(1); round <= 3; round++ {
		proctest.Eventually(t, "it checks with the doorbell armed, and sleeps", func() bool { return isArmed.Load() && p.waiters.Sleeping() == 1 })
		work.Add(portion)
		p.waiters.Wake()
		proctest.Eventually(t, "it does the work", func() bool { return done.Load() == round*portion })
	}
	proctest.Eventually(t, "it sleeps", func() bool { return p.waiters.Sleeping() == 1 })
	cancel()
	if err := proctest.Receive(t, "Serve returns", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Serve: %v, want %v", err, context.Canceled)
	}
}

// Serve ends with its context and with the provider although there is always work.
func TestServeEndsInWork(t *testing.T) {
	p := newPair(t, setup{}).b.provider
	for _, x := range []struct {
		name string
		want error
		end  func(cancel context.CancelFunc)
	}{
		{"context", context.Canceled, func(cancel context.CancelFunc) { cancel() }},
		{"provider", errClosed, func(context.CancelFunc) { p.waiters.Close() }},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var calls atomic.Int64
		ended := make(chan error, 1)
		go func() {
			ended <- p.serve(ctx, statuspage.Call{Op: "serve"}, func() bool { calls.Add(1); return true })
		}()
		proctest.Eventually(t, "it works", func() bool { return calls.Load() > 0 })
		x.end(cancel)
		if err := proctest.Receive(t, "Serve returns", ended); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
}
