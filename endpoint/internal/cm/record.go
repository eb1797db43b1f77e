package cm

// TWIN c/src/endpoint/cm_connection.c.

import (
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/shm"
)

// Indexes of the sides of a connection in its record.
const (
	Active  = 0 // calls Connect, and owns the record
	Passive = 1
)

// Record is one side's access to the record of a connection. Its methods write nothing after the peer's death was handled:
// the record may have been the dead process's, and its memory may be reused. They are safe for concurrent use. Stores
// through Shared are within Write, or before the request is sent.
type Record struct {
	// These fields never change.
	Peer   *shm.Peer // the other process
	Shared *wire.ConnectionRecord
	Offset shm.Offset // of the record in the arena
	Side   int        // Active or Passive

	mu         sync.Mutex // held while the record is written, or peerDead or released is set
	peerDead   atomic.Bool
	released   atomic.Bool // the connection's resources are freed
	endedEarly atomic.Bool // this side has ended the connection before it was established
}

// State returns the state; ConnAborted after Release.
func (r *Record) State() ConnState {
	s := ConnState(r.Shared.State.Load()) // ORDER conn-state: pairs with the compare-and-swap in Move
	if r.released.Load() {                // ORDER released: after the load of the state; pairs with the store in Release
		return ConnAborted // the record may be reused memory by now, and s meaningless
	}
	return s
}

// Move changes the state by an event. It reports whether it has: the other side may have been first.
func (r *Record) Move(e Event) (moved bool) {
	r.Write(func() {
		for range connStates.after { // the other side may change it at the same time
			s := r.Shared.State.Load()
			to, ok := connStates.find(s, e)
			if moved = ok && r.Shared.State.CompareAndSwap(s, to); moved || !ok { // ORDER conn-state: pairs with the load in State, at the other side
				if moved && ConnState(s) == ConnAccepted && ConnState(to) == ConnAborted {
					r.endedEarly.Store(true)
				}
				return
			}
		}
	})
	if moved {
		failpoint.Reach(failpoint.StateChanged)
		r.Peer.Wake()
		failpoint.Reach(failpoint.PeerRung)
	}
	return moved
}

// EndedEarly reports whether this side has ended the connection before it was established.
func (r *Record) EndedEarly() bool { return r.endedEarly.Load() }

// Write runs f, which writes to the record, unless the peer's death was handled or Release was called. f calls neither
// Write nor what calls it: Move, PutData, Detach.
func (r *Record) Write(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.peerDead.Load() && !r.released.Load() {
		f()
	}
}

// PutData stores this side's private data.
func (r *Record) PutData(data []byte) {
	r.Write(func() { r.Shared.DataLen[r.Side] = uint32(copy(r.Shared.Data[r.Side][:], data)) })
}

// Data returns a copy of one side's private data; none if the record was a dead process's, whose death is handled.
func (r *Record) Data(side int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Side == Passive && r.peerDead.Load() {
		return nil
	}
	n := min(r.Shared.DataLen[side], wire.MaxPrivateData)
	data := r.Shared.Data[side]
	return data[:n:n]
}

// IsPeerGone reports whether the other process has died or left.
func (r *Record) IsPeerGone() bool { return r.peerDead.Load() || r.Peer.Gone() }

// IsPeerDead reports whether the peer's death was handled.
func (r *Record) IsPeerDead() bool { return r.peerDead.Load() }

// PeerDied notes that the peer's death is handled.
func (r *Record) PeerDied() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peerDead.Store(true)
}

// Detach says that this side never uses the peer's queue-pair state again.
func (r *Record) Detach() {
	r.Write(func() { r.Shared.Detached[r.Side].Store(wire.DetachedQP) }) // ORDER detached: pairs with the load in MayRelease
	failpoint.Reach(failpoint.Detached)
	r.Peer.Wake()
}

// MayRelease reports whether the other side has detached, too. A passive side that has refused the request has not
// attached: it has used no memory of the other side and does not wait. Otherwise it would keep something for each request
// of an active side that never detaches. The active side waits until the passive side does not read the record.
func (r *Record) MayRelease(hasAttached bool) bool {
	theirs := r.Shared.Detached[1-r.Side].Load() // ORDER detached: pairs with the stores in Detach and Release
	return r.IsPeerGone() || !(r.Side == Active && theirs != wire.DetachedRecord || hasAttached && theirs == 0)
}

// Release ends this side's use of the record. The record belongs to the active side, but the passive side reads the active
// side's Detached word in it. So the passive side stores wire.DetachedRecord after its last read of that word.
func (r *Record) Release() {
	r.mu.Lock() // held for both stores: a write between them could come after the record is freed
	defer r.mu.Unlock()
	r.released.Store(true) // ORDER released: before detached, which lets the record be freed; pairs with the load in State
	if r.Side == Passive && !r.peerDead.Load() {
		r.Shared.Detached[Passive].Store(wire.DetachedRecord) // ORDER detached: pairs with the load in MayRelease
	}
}

// IsReleased reports whether Release was called.
func (r *Record) IsReleased() bool { return r.released.Load() }
