package window

// TWIN c/src/window/invalidatable.c.

import (
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
	hazards atomic.Pointer[[]hazard] // drained reads it without the lock; see AddHazard
	places  map[executor][]int       // of hazards: indices; guarded by mu
	removed int                      // elements of hazards that are removed; guarded by mu
}

// hazard is a hazard word and its executor.
type hazard struct {
	word atomic.Pointer[atomic.Uint64] // the two tokens that the executor is using, see makeHazard; 0 while it is not in a transfer. &noHazard = removed
	peer *shm.Peer                     // the process of the executor; nil = this process
}

// noHazard is the word of all removed hazards.
var noHazard atomic.Uint64

// executor identifies a hazard.
type executor struct {
	word *atomic.Uint64
	peer *shm.Peer
}

// NewDomain returns the domain of an adapter. No other adapter of the arena may have the same
// number.
func NewDomain(t *Table, adapter uint64) *Domain {
	d := &Domain{Adapter: adapter, table: t, places: make(map[executor][]int)}
	d.hazards.Store(new([]hazard))
	return d
}

// AddHazard adds the hazard word of an executor in the process peer. The caller must add it before
// the executor can use a token of this domain, that is before the connection is established.
//
// An element behind the end of a list that drained may be reading is filled, and then a longer list is published. So a
// connection costs no copy of the list, which has two elements for each endpoint.
func (d *Domain) AddHazard(word *atomic.Uint64, peer *shm.Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(*d.hazards.Load(), executor{word, peer})
}

// add publishes list with one more element. The caller holds d.mu.
func (d *Domain) add(list []hazard, e executor) {
	n := len(list)
	if n == cap(list) {
		list = d.copyOf(list, 2*(n-d.removed)+4)
		n = len(list)
	}
	list = list[:n+1]
	list[n].peer = e.peer
	list[n].word.Store(e.word)
	d.places[e] = append(d.places[e], n)
	d.hazards.Store(&list)
}

// copyOf returns a copy of list without removed elements, with room for size. The caller holds d.mu.
func (d *Domain) copyOf(list []hazard, size int) []hazard {
	kept := make([]hazard, 0, size)
	clear(d.places)
	for i := range list {
		word := list[i].word.Load()
		if word == &noHazard {
			continue
		}
		n := len(kept)
		kept = kept[:n+1]
		kept[n].peer = list[i].peer
		kept[n].word.Store(word)
		e := executor{word, list[i].peer}
		d.places[e] = append(d.places[e], n)
	}
	d.removed = 0
	return kept
}

// RemoveHazard undoes one AddHazard with the same arguments. The executor must make no more
// transfers.
func (d *Domain) RemoveHazard(word *atomic.Uint64, peer *shm.Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := executor{word, peer}
	at := d.places[e]
	if len(at) == 0 {
		return
	}
	list := *d.hazards.Load()
	list[at[len(at)-1]].word.Store(&noHazard)
	d.removed++
	if at = at[:len(at)-1]; len(at) > 0 {
		d.places[e] = at
	} else {
		delete(d.places, e)
	}
	if d.removed > len(list)/2 {
		list = d.copyOf(list, len(list))
		d.hazards.Store(&list)
	}
}

// drained reports whether no live executor uses an invalid token (HAZARD-DRAIN). The hazards of
// dead members do not count, because a dead process executes nothing.
func (d *Domain) drained(token nd.Token) bool {
	list := *d.hazards.Load()
	for i := range list {
		h := &list[i]
		// ORDER hazard, hazard-clear: pairs with Guard.publishHazard, see ownEntry.revoke, and with
		// Guard.clearHazard
		if hazardNames(h.word.Load().Load(), token) && (h.peer == nil || !h.peer.Gone()) {
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
