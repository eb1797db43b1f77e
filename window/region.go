package window

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Region is registered memory: the owner uses it through a local token,
// peers, where its flags allow it, through a remote one, and windows grant
// parts of it. Safe for concurrent use.
//
// Source: IND2MemoryRegion, NDK_MR.
type Region struct {
	space         *Space
	local, remote *grant

	mu       asym.Mutex
	draining bool // from the invalidation of the tokens to the end of the registration
	drained  bool // Release was called, but windows still use the memory
	flags    nd.RegionFlags
	windows  int    // bound to it, or about to be
	unbound  func() // see Retire
	fast     fastState

	shown atomic.Pointer[shown] // changes under mu; every post needs a token, and looks without it
}

// shown is what a region tells about itself. It never changes once published.
type shown struct {
	mem           []byte   // nil = not registered
	address       uint64   // of mem[0], as peers count
	local, remote nd.Token // the latest; stale after deregistration
}

// show replaces the memory. The caller holds r.mu.
func (r *Region) show(mem []byte, address uint64) {
	local, remote := r.Tokens()
	r.shown.Store(&shown{mem, address, local, remote})
}

// NewRegion returns an empty region. It takes two entries of the table.
//
// Errors: [shm.ErrFull], [shm.ErrShortage].
func (s *Space) NewRegion() (*Region, error) {
	local, err := s.table.take()
	if err != nil {
		return nil, err
	}
	remote, err := s.table.take()
	if err != nil {
		s.table.giveBack(local)
		return nil, err
	}
	r := &Region{space: s, local: local, remote: remote}
	r.shown.Store(new(shown))
	return r, nil
}

// Register makes mem, any memory of the process, usable. Memory in the arena
// is recognised; other memory is private: only this process can reach it.
// Private memory stays reachable, and so is not freed, until Revoke; it is
// only ever used through mem itself, never through a number made of its address.
//
// Errors: [nd.InvalidDeviceState] if the region is registered already, or is
// for fast registration. mem must not be empty.
func (r *Region) Register(mem []byte, flags nd.RegionFlags) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Bytes() != nil || r.draining || r.fast.is {
		return nd.InvalidDeviceState
	}
	local, remote := r.draft(mem, shm.AddressOf(mem), flags)
	r.flags = flags
	r.show(mem, remote.base)
	r.local.publish(&local)
	r.remote.publish(&remote)
	return nil
}

// draft gives a registration to come its tokens. Peers count from address; the
// owner's requests name mem by where it is. The caller holds r.mu.
func (r *Region) draft(mem []byte, address uint64, flags nd.RegionFlags) (local, remote terms) {
	offset, inArena := r.space.table.arena.Locate(mem)
	if !inArena {
		offset = 0
	}
	local = terms{base: shm.AddressOf(mem), mem: mem, offset: offset, owner: r.space.owner}
	remote = local
	remote.base = address

	local.token, local.bind = r.local.next()
	local.rights = Local | Read
	if flags.LocalWrite() {
		local.rights |= Write
	}
	remote.token, remote.bind = r.remote.next()
	remote.rights = Remote
	if flags.RemoteRead() {
		remote.rights |= Read
	}
	if flags.RemoteWrite() {
		remote.rights |= Write
	}
	now := r.shown.Load()
	r.shown.Store(&shown{now.mem, now.address, local.token, remote.token})
	return local, remote
}

// Revoke makes both tokens invalid and returns them, to be drained. When they
// are, the memory is the caller's again, who calls Release.
//
// Errors: [nd.InvalidDeviceState] if the region is not registered;
// [nd.DeviceBusy] while a window is bound to it. Nothing has changed then.
func (r *Region) Revoke() (local, remote nd.Token, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.windows > 0 {
		return 0, 0, nd.DeviceBusy
	}
	if r.Bytes() == nil {
		return 0, 0, nd.InvalidDeviceState
	}
	local, remote = r.revoke()
	return local, remote, nil
}

// revoke makes both tokens invalid. The caller holds r.mu.
func (r *Region) revoke() (local, remote nd.Token) {
	r.draining = true
	r.show(nil, 0)
	return r.local.revoke(), r.remote.revoke()
}

// Release ends a registration whose tokens are drained: at once, or, if the
// registration was not asked whether windows use it, when the last one is gone.
func (r *Region) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drained = true
	r.end()
}

// end is the end of a registration, unless something of it is left. The caller
// holds r.mu.
func (r *Region) end() {
	if !r.drained || r.windows > 0 {
		return
	}
	r.draining, r.drained = false, false
	if r.fast.ended != nil {
		r.fast.ended()
		r.fast.ended = nil
	}
}

// Free returns the table entries. The region must be deregistered and drained,
// and is not usable afterwards.
func (r *Region) Free() {
	r.space.table.giveBack(r.local)
	r.space.table.giveBack(r.remote)
}

// Tokens returns the latest local and remote tokens, 0 before the first
// registration.
func (r *Region) Tokens() (local, remote nd.Token) {
	now := r.shown.Load()
	return now.local, now.remote
}

// Bytes returns the registered memory, nil if there is none.
func (r *Region) Bytes() []byte {
	return r.shown.Load().mem
}

// Address returns the address by which peers name the first byte, 0 if the
// region is not registered.
func (r *Region) Address() uint64 {
	return r.shown.Load().address
}

// attach checks that a window may be bound to mem with the given rights, and
// keeps the region from being deregistered. It says in tm where mem lies.
func (r *Region) attach(tm *terms, mem []byte, write bool) (ok bool) {
	if !r.mu.Enter() {
		r.mu.Lock()
	}
	now := r.shown.Load()
	base, at := shm.AddressOf(now.mem), shm.AddressOf(mem)
	if now.mem != nil && len(mem) != 0 && within(at, uint64(len(mem)), base, uint64(len(now.mem))) && (!write || r.flags.LocalWrite()) {
		tm.base, tm.mem = now.address+(at-base), now.mem[at-base:][:len(mem)]
		tm.offset, _ = r.space.table.arena.Locate(mem)
		r.windows++
		ok = true
	}
	r.mu.Unlock()
	return ok
}

func (r *Region) detach() {
	if !r.mu.Enter() {
		r.mu.Lock()
	}
	if r.windows--; r.drained { // else there is no end yet
		r.end()
	}
	unbound := r.unbound
	if r.windows > 0 {
		unbound = nil
	}
	r.mu.Unlock()
	if unbound != nil {
		unbound()
	}
}
