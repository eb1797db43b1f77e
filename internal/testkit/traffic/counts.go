package traffic

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// Counters of a link.
const (
	Sessions           = iota // connections
	Done                      // requests that have succeeded
	TooLate                   // requests that used an access after its end
	Revocations               // accesses that have ended
	PeerRevocations           // those among them that a SendAndInvalidate of the peer has ended
	LocalInvalidations        // Reads that end the registration of their own memory
	Sends
	Writes
	Reads
	Atomics
	Numbers // requests with a number
	Relays  // Sends of bytes that a Read before them fetches
	Binds
	Registrations
	Invalidates
	SendInvalidates
	Messages // received
	Privileged
	Silents
	Fences
	Inlines
	Kinds
)

// Names are the names of the counters.
var Names = [Kinds]string{"sessions", "results", "requests too late", "revocations", "revocations by the peer", "local invalidations", "Sends", "Writes", "Reads", "atomics", "requests with a number",
	"fenced relays", "Binds", "fast registrations", "Invalidates", "SendAndInvalidates", "messages received", "privileged", "silent", "fenced", "inline"}

// Counts are the counters of a link.
type Counts [Kinds]atomic.Int64

func (c *Counts) count(what int) { c[what].Add(1) }

// Totals are sums of counters.
type Totals [Kinds]int64

// Add adds the counters of a link.
func (t *Totals) Add(c *Counts) {
	for what := range c {
		t[what] += c[what].Load()
	}
}

// Untried returns the names of the counters that are 0.
func (t *Totals) Untried() (names []string) {
	for what, n := range t {
		if n == 0 {
			names = append(names, Names[what])
		}
	}
	return names
}

// String lists all counters.
func (t *Totals) String() string {
	var b strings.Builder
	for what, n := range t {
		if what > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", n, Names[what])
	}
	return b.String()
}
