package traffic

import "sync/atomic"

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
