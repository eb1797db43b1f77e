package endpoint

import "github.com/softnd/softnd/endpoint/internal/progress"

// runOrDefer runs work now. If it is not done, the engine runs it again later.
func (p *Provider) runOrDefer(w progress.Work) {
	if !w() {
		p.deferWork(w)
	}
}

// deferWork is runOrDefer for a caller that holds a lock which the work takes.
func (p *Provider) deferWork(w progress.Work) {
	p.deferred.Add(w)
	p.engine.wake()
}
