package window

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Domain is a protection domain: the tokens of one adapter, and the hazards of all executors that may use them, those of
// its own endpoints and of their peers. Safe for concurrent use.
type Domain struct {
	Adapter uint64 // number of the adapter, unique in the arena; does not change

	table *Table

	mu      sync.Mutex
	hazards atomic.Pointer[[]*Hazard] // replaced as a whole, so that Drained takes no lock
}

// Hazard is a hazard word: the two tokens that one executor is using at the moment, 0 while it is not in a transfer. The
// fields must not change after [Domain.AddHazard].
type Hazard struct {
	Word *atomic.Uint64
	Peer *shm.Peer // the process of the executor; nil = this process
}

// NewDomain returns the domain of an adapter. No other adapter of the arena may have the same number.
func NewDomain(t *Table, adapter uint64) *Domain {
	d := &Domain{Adapter: adapter, table: t}
	d.hazards.Store(new([]*Hazard))
	return d
}

// AddHazard adds a hazard. The caller must add it before its executor can use a token of this domain, that is before the
// connection is established.
func (d *Domain) AddHazard(h *Hazard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := append(slices.Clone(*d.hazards.Load()), h)
	d.hazards.Store(&list)
}

// RemoveHazard removes a hazard whose executor will make no more transfers.
func (d *Domain) RemoveHazard(h *Hazard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*d.hazards.Load()), func(o *Hazard) bool { return o == h })
	d.hazards.Store(&list)
}

// Drained reports whether no live executor uses an invalid token (HAZARD-DRAIN). Token 0 is always drained. The
// hazards of dead members do not count, because a dead process executes nothing.
func (d *Domain) Drained(token nd.Token) bool {
	if token == 0 {
		return true
	}
	for _, h := range *d.hazards.Load() {
		// ORDER hazard, hazard-clear: pairs with Guard.publishHazard, see ownEntry.revoke, and with Guard.clearHazard
		if hazardNames(h.Word.Load(), token) && (h.Peer == nil || !h.Peer.Gone()) {
			return false
		}
	}
	return true
}

// makeHazard returns a hazard word: the sink's token is the upper 32 bits, the source's token the lower 32.
func makeHazard(sink, source nd.Token) uint64 { return uint64(sink)<<32 | uint64(source) }

func hazardNames(h uint64, t nd.Token) bool {
	return nd.Token(h>>32) == t || nd.Token(h) == t
}
