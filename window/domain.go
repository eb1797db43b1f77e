package window

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Space is the tokens of one adapter, and the hazards that may name them:
// those of its own endpoints and of their peers. Safe for concurrent use.
type Space struct {
	table *Table
	owner Owner

	mu      sync.Mutex
	hazards atomic.Pointer[[]*Hazard] // replaced as a whole, so that a drain takes no lock
}

// Hazard is the word in which one executor names the two tokens that it is
// using, and the process that executes.
type Hazard struct {
	word *atomic.Uint64
	peer *shm.Peer // nil: an executor of this process
}

// NewHazard describes a hazard word. peer is its executor's process, nil for
// our own.
func NewHazard(word *atomic.Uint64, peer *shm.Peer) *Hazard { return &Hazard{word, peer} }

// InUse tells whether its executor is in the middle of a transfer, as far as can be
// seen at this moment.
func (h *Hazard) InUse() bool { return h.word.Load() != 0 }

// NewSpace returns the space of the adapter named owner.
func NewSpace(t *Table, owner Owner) *Space {
	s := &Space{table: t, owner: owner}
	s.hazards.Store(new([]*Hazard))
	return s
}

// Owner returns the adapter's name.
func (s *Space) Owner() Owner { return s.owner }

// Watch adds a hazard. It must happen before its executor can use a token of
// this space, that is before the connection is made.
func (s *Space) Watch(h *Hazard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append(slices.Clone(*s.hazards.Load()), h)
	s.hazards.Store(&list)
}

// Unwatch removes a hazard whose executor executes no more.
func (s *Space) Unwatch(h *Hazard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*s.hazards.Load()), func(o *Hazard) bool { return o == h })
	s.hazards.Store(&list)
}

// Drained tells whether no live executor uses an invalid token any more
// (HAZARD-DRAIN). Token 0 is always drained. Hazards of dead members do not
// count: a dead process executes nothing.
func (s *Space) Drained(token nd.Token) bool {
	if token == 0 {
		return true
	}
	for _, h := range *s.hazards.Load() {
		if hazardNames(h.word.Load(), token) && (h.peer == nil || !h.peer.Gone()) { // ORDER hazard, hazard-clear: pairs with Guard.publish, see grant.revoke, and with Guard.clear
			return false
		}
	}
	return true
}

// A hazard holds the sink's token in the upper half, the source's in the lower.
func hazardOf(sink, source nd.Token) uint64 { return uint64(sink)<<32 | uint64(source) }

func hazardNames(h uint64, t nd.Token) bool {
	return nd.Token(h>>32) == t || nd.Token(h) == t
}
