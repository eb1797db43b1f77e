package endpoint

import (
	"time"
)

// runOrDefer runs work now. If it is not done, the engine runs it again later.
func (p *Provider) runOrDefer(c deferredWork) {
	if !c() {
		p.deferWork(c)
	}
}

// deferWork is runOrDefer for a caller that holds a lock which the work takes.
func (p *Provider) deferWork(c deferredWork) {
	p.mu.Lock()
	p.deferred, p.deferredChanged = append(p.deferred, c), time.Now()
	p.mu.Unlock()
	p.engine.wake()
}

// runDeferred runs all deferred work once. The caller holds no lock.
func (p *Provider) runDeferred() {
	p.deferredMu.Lock() // work that another goroutine has taken from the list is also done when this returns
	defer p.deferredMu.Unlock()
	p.mu.Lock()
	work := p.deferred
	p.deferred = nil
	p.mu.Unlock()
	kept := work[:0]
	for _, c := range work {
		if !c() {
			kept = append(kept, c)
		}
	}
	p.mu.Lock()
	if len(kept) < len(work) {
		p.deferredChanged = time.Now()
	}
	clear(work[len(kept):]) // the array must not keep what the finished work refers to
	p.deferred = append(kept, p.deferred...)
	p.mu.Unlock()
}

func (p *Provider) hasDeferred() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.deferred) > 0
}

// deferredRecent is how long deferred work is run about a thousand times a second after some of
// it was added or done. Work that is left after that may take long, such as the end of a region
// with a bound window. Each round of the housekeeper runs it.
const deferredRecent = time.Second

// hasRecentDeferred reports whether there is deferred work that may soon be done.
func (p *Provider) hasRecentDeferred() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.deferred) > 0 && time.Since(p.deferredChanged) < deferredRecent
}

// keepDeferredRecent makes the deferred work count as recent.
func (p *Provider) keepDeferredRecent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deferredChanged = time.Now()
}
