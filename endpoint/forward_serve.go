package endpoint

import (
	"context"
	"runtime"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
)

// A relay that serves checks this often without finding work before it sleeps. That takes longer than an answer over the
// network if processes sleep: otherwise a relay that has slept once would sleep before each frame.
const serveRounds = 300

// serve is relayhook.Adapter.Serve. Observers see call.
func (p *Provider) serve(ctx context.Context, call statuspage.Call, step func() bool) error {
	if !p.waiters.BeginCall() {
		return errClosed
	}
	defer p.waiters.EndCall()
	p.waiters.BeginWait()
	defer p.waiters.EndWait()
	defer p.waiters.Unlist(p.waiters.List(call))
	for {
		if err := p.serveBusy(ctx, step); err != nil {
			return err
		}
		if err := p.park(ctx, step); err != nil {
			return err
		}
		p.housekeeper.wakeIfQuiet()
	}
}

// serveBusy calls step until it has found no work serveRounds times, one after the other.
func (p *Provider) serveBusy(ctx context.Context, step func() bool) error {
	for round, idle := 0, 0; idle < serveRounds; round++ {
		if step() {
			idle = 0
		} else {
			idle++
			linux.Yield() // to a rank that shares the core
		}
		if round%spinsPerProgress == spinsPerProgress-1 {
			p.progressAll()
			runtime.Gosched()
			if err := ctx.Err(); err != nil {
				return err
			}
			if p.waiters.IsClosed() {
				return errClosed
			}
		}
	}
	return nil
}
