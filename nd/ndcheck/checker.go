package ndcheck

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// Options configures [Wrap]. The zero value suits a single process.
type Options struct {
	// Rank is the number of this process in reports, from 0.
	Rank int
	// Journal is shared by the processes of a job. If it is nil, the checker knows this process only.
	Journal *Journal
	// Report gets each finding once; later findings of the same rule at the same lines are only counted.
	// It must be safe for concurrent use, and must not call the provider. If it is nil, findings are
	// written to stderr.
	Report func(Finding)
}

// checker is the state of one wrapped provider.
type checker struct {
	rank    int
	journal *Journal
	report  func(Finding)
	numbers [kinds]atomic.Uint32 // of objects, from 1
	ids     atomic.Uint64        // numbers of requests

	mu        sync.Mutex // guards the rest, and the fields of all objects that say so
	seen      map[findingKey]int
	adapters  []*adapter
	endpoints map[uint64]*endpoint // by number; a closed one stays while results of it may follow
	requests  map[uint64]*request  // in flight, by number
	sinks     map[*request]struct{}
	regions   map[nd.Token]*region // registered ones, by local token
	windows   map[*window]struct{} // bound ones
	churn     map[string]int       // registrations that served one request, by line
	accepts   bool                 // the program has called GetConnectionRequest
	waits     waits
	syncedAt  int64 // when the process has last synchronised with others
	over      bool  // End has been called
}

type findingKey struct {
	rule            *Rule
	site, otherSite string
}

func newChecker(o Options) *checker {
	c := &checker{rank: o.Rank, journal: o.Journal, report: o.Report, seen: make(map[findingKey]int),
		endpoints: make(map[uint64]*endpoint), requests: make(map[uint64]*request), sinks: make(map[*request]struct{}),
		regions: make(map[nd.Token]*region), windows: make(map[*window]struct{}), churn: make(map[string]int)}
	if c.journal == nil {
		c.journal, _ = NewJournal(make([]byte, JournalSize), nil) // cannot fail: the memory is zero
	}
	if c.report == nil {
		c.report = func(f Finding) { fmt.Fprint(os.Stderr, "softnd check: ", f) }
	}
	return c
}

// Kinds of objects, which are numbered separately.
const (
	adapters = iota
	connectors
	listeners
	queues
	sharedQueues
	regions
	windows
	endpoints
	kinds
)

func (c *checker) number(kind int) uint32 { return c.numbers[kind].Add(1) }

// found reports a finding, unless it has been reported for these lines before. The caller does not hold c.mu.
func (c *checker) found(f Finding) {
	f.Rank = c.rank
	key := findingKey{f.Rule, f.Site, f.OtherSite}
	c.mu.Lock()
	c.seen[key]++
	first := c.seen[key] == 1 && !c.over
	c.mu.Unlock()
	if first {
		c.journal.add(f)
		c.report(f)
	}
}

// Provider is a provider whose use is watched.
type Provider struct {
	*checker
	inner nd.Provider
}

// Wrap returns a provider that forwards all calls to p and watches them. Objects of p that were made otherwise
// cannot be used together with objects of the result.
func Wrap(p nd.Provider, o Options) *Provider {
	w := &Provider{newChecker(o), p}
	if list, err := p.QueryAddressList(); err == nil && len(list) > 0 {
		w.journal.enter(o.Rank, list[0])
	}
	return w
}

// Synchronised tells the checker that the process has synchronised with others without the provider, for example
// in a barrier.
func (p *Provider) Synchronised() { p.synchronised() }

func (c *checker) synchronised() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.syncedAt = now()
	for _, ep := range c.endpoints {
		ep.answered()
	}
}

// Counts returns how often each rule was broken so far.
func (p *Provider) Counts() map[*Rule]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := make(map[*Rule]int)
	for key, n := range p.seen {
		counts[key.rule] += n
	}
	return counts
}

// QueryAddressList implements [nd.Provider].
func (p *Provider) QueryAddressList() ([]netip.Addr, error) { return p.inner.QueryAddressList() }

// ResolveAddress implements [nd.Provider].
func (p *Provider) ResolveAddress(local netip.Addr) (nd.AdapterID, error) {
	return p.inner.ResolveAddress(local)
}

// ResolveRoute implements [nd.RouteResolver], also if the provider below does not.
func (p *Provider) ResolveRoute(remote netip.Addr) (netip.Addr, error) {
	return nd.ResolveRoute(p.inner, remote)
}

// Close implements [nd.Provider].
func (p *Provider) Close() error {
	p.End()
	return p.inner.Close()
}
