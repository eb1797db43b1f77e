// Package progress holds the work of a provider that has to wait.
package progress

import (
	"sync"
	"time"
)

// Work is cleanup that has to wait for an event elsewhere. It is called until it returns true.
type Work func() bool

// Recent is how long deferred work is run about a thousand times a second after some of
// it was added or done. Work that is left after that may take long, such as the end of a region
// with a bound window. Each round of the housekeeper runs it.
const Recent = time.Second

// Deferred is deferred work. It is safe for concurrent use.
type Deferred struct {
	running sync.Mutex // held while the work runs

	mu           sync.Mutex // guards the fields below
	list         []Work
	runningCount int       // work that runs
	changed      time.Time // when work was last added or done
}

// Add adds work. The caller may hold a lock which the work takes.
func (d *Deferred) Add(w Work) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list, d.changed = append(d.list, w), time.Now()
}

// Run runs all work once. The caller holds no lock.
func (d *Deferred) Run() {
	d.running.Lock() // work that another goroutine has taken from the list is also done when this returns
	defer d.running.Unlock()
	d.mu.Lock()
	work := d.list
	d.list, d.runningCount = nil, len(work)
	d.mu.Unlock()
	kept := work[:0]
	for _, w := range work {
		if !w() {
			kept = append(kept, w)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(kept) < len(work) {
		d.changed = time.Now()
	}
	clear(work[len(kept):]) // the array must not keep what the finished work refers to
	d.list, d.runningCount = append(kept, d.list...), 0
}

// IsEmpty reports whether no work is left. Work that runs is left: it may have to run again.
func (d *Deferred) IsEmpty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list)+d.runningCount == 0
}

// IsRecent reports whether there is work that may soon be done.
func (d *Deferred) IsRecent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list)+d.runningCount > 0 && time.Since(d.changed) < Recent
}

// KeepRecent makes the work count as recent.
func (d *Deferred) KeepRecent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = time.Now()
}
