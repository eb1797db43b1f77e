package window

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Domain is a protection domain: the tokens of one adapter, and the hazards of all executors that
// may use them, those of its own endpoints and of their peers. Safe for concurrent use.
type Domain struct {
	Adapter uint64 // number of the adapter, unique in the arena; does not change

	table *Table

	mu      sync.Mutex
	hazards atomic.Pointer[[]hazard] // replaced as a whole, so that drained takes no lock
}

// hazard is a hazard word and its executor.
type hazard struct {
	word *atomic.Uint64 // the two tokens that the executor is using, see makeHazard; 0 while it is not in a transfer
	peer *shm.Peer      // the process of the executor; nil = this process
}

// NewDomain returns the domain of an adapter. No other adapter of the arena may have the same
// number.
func NewDomain(t *Table, adapter uint64) *Domain {
	d := &Domain{Adapter: adapter, table: t}
	d.hazards.Store(new([]hazard))
	return d
}

// AddHazard adds the hazard word of an executor in the process peer. The caller must add it before
// the executor can use a token of this domain, that is before the connection is established.
func (d *Domain) AddHazard(word *atomic.Uint64, peer *shm.Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := append(slices.Clone(*d.hazards.Load()), hazard{word, peer})
	d.hazards.Store(&list)
}

// RemoveHazard undoes one AddHazard with the same arguments. The executor must make no more
// transfers.
func (d *Domain) RemoveHazard(word *atomic.Uint64, peer *shm.Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.Clone(*d.hazards.Load())
	if i := slices.Index(list, hazard{word, peer}); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	d.hazards.Store(&list)
}

// drained reports whether no live executor uses an invalid token (HAZARD-DRAIN). The hazards of
// dead members do not count, because a dead process executes nothing.
func (d *Domain) drained(token nd.Token) bool {
	for _, h := range *d.hazards.Load() {
		// ORDER hazard, hazard-clear: pairs with Guard.publishHazard, see ownEntry.revoke, and with
		// Guard.clearHazard
		if hazardNames(h.word.Load(), token) && (h.peer == nil || !h.peer.Gone()) {
			return false
		}
	}
	return true
}

// makeHazard returns a hazard word: the sink's token is the upper 32 bits, the source's token the
// lower 32.
func makeHazard(sink, source nd.Token) uint64 { return uint64(sink)<<32 | uint64(source) }

func hazardNames(h uint64, t nd.Token) bool {
	return nd.Token(h>>32) == t || nd.Token(h) == t
}
