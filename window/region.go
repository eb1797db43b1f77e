package window

import (
	"sync/atomic"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Region is registered memory. The owner uses it through a local token, and peers, where its flags allow it, through a
// remote token. Windows let peers access parts of it. Safe for concurrent use.
//
// Source: IND2MemoryRegion, NDK_MR.
type Region struct {
	domain        *Domain
	local, remote *ownEntry

	mu       asym.BiasedMutex
	draining bool // from the invalidation of the tokens to the end of the registration
	released bool // Release was called; with windows left, the registration has not ended yet
	flags    nd.RegionFlags
	windows  int    // bound to it, or prepared
	unbound  func() // see Retire
	fast     fastState

	snapshot atomic.Pointer[snapshot] // changes with mu held; every request reads a token, without mu
}

// snapshot is the readable state of a region. It is replaced as a whole.
type snapshot struct {
	mem           []byte   // nil = not registered
	address       uint64   // of mem[0] for peers
	local, remote nd.Token // the latest; not valid after deregistration
}

// setMemory changes the memory of the snapshot. The caller holds r.mu.
func (r *Region) setMemory(mem []byte, address uint64) {
	local, remote := r.Tokens()
	r.snapshot.Store(&snapshot{mem, address, local, remote})
}

// NewRegion returns an empty region. It takes two entries of the window table.
//
// Errors: [shm.ErrFull], [shm.NoMemoryError].
func (d *Domain) NewRegion() (*Region, error) {
	local, err := d.table.take()
	if err != nil {
		return nil, err
	}
	remote, err := d.table.take()
	if err != nil {
		d.table.giveBack(local)
		return nil, err
	}
	r := &Region{domain: d, local: local, remote: remote}
	r.snapshot.Store(new(snapshot))
	return r, nil
}

// Register registers mem, any memory of the process. If mem is in the arena, peers can reach it. Other memory is private:
// only this process can reach it. The region refers to private memory, so that the garbage collector keeps it, until
// Deregister. Private memory is accessed only through the slice mem, never through an address from a request.
//
// Errors: [nd.InvalidDeviceState] if the region is registered already, or is
// for fast registration. mem must not be empty.
func (r *Region) Register(mem []byte, flags nd.RegionFlags) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Bytes() != nil || r.draining || r.fast.enabled {
		return nd.InvalidDeviceState
	}
	local, remote := r.prepare(mem, shm.AddressOf(mem), flags)
	r.flags = flags
	r.setMemory(mem, remote.base)
	r.local.bind(&local)
	r.remote.bind(&remote)
	return nil
}

// prepare makes the tokens of a registration. address is that of mem[0] for peers; the owner's requests use the address of
// mem. The caller holds r.mu.
func (r *Region) prepare(mem []byte, address uint64, flags nd.RegionFlags) (local, remote permissions) {
	offset, inArena := r.domain.table.arena.Locate(mem)
	if !inArena {
		offset = 0
	}
	local = permissions{base: shm.AddressOf(mem), mem: mem, offset: offset, adapter: r.domain.Adapter}
	remote = local
	remote.base = address

	local.token, local.bindNumber = r.local.nextToken()
	local.rights = Local | Read
	if flags.LocalWrite() {
		local.rights |= Write
	}
	remote.token, remote.bindNumber = r.remote.nextToken()
	remote.rights = Remote
	if flags.RemoteRead() {
		remote.rights |= Read
	}
	if flags.RemoteWrite() {
		remote.rights |= Write
	}
	now := r.snapshot.Load()
	r.snapshot.Store(&snapshot{now.mem, now.address, local.token, remote.token})
	return local, remote
}

// Deregister makes both tokens invalid and returns them. When both are drained, no executor accesses the
// memory, and the caller calls Release.
//
// Errors: [nd.InvalidDeviceState] if the region is not registered;
// [nd.DeviceBusy] while a window is bound to it. Nothing has changed then.
func (r *Region) Deregister() (local, remote nd.Token, err error) {
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
	r.setMemory(nil, 0)
	return r.local.revoke(), r.remote.revoke()
}

// Release ends a registration whose tokens are drained. If windows are still bound, as [Region.Invalidate] allows with force, the
// registration ends with the last of them.
func (r *Region) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = true
	r.end()
}

// end ends a registration that is released and has no windows. The caller holds r.mu.
func (r *Region) end() {
	if !r.released || r.windows > 0 {
		return
	}
	r.draining, r.released = false, false
	if r.fast.ended != nil {
		r.fast.ended()
		r.fast.ended = nil
	}
}

// Free gives the entries of the window table back. The region must be deregistered and drained, and must not be used
// afterwards.
func (r *Region) Free() {
	r.domain.table.giveBack(r.local)
	r.domain.table.giveBack(r.remote)
}

// Tokens returns the latest local and remote tokens, 0 before the first
// registration.
func (r *Region) Tokens() (local, remote nd.Token) {
	now := r.snapshot.Load()
	return now.local, now.remote
}

// Bytes returns the registered memory, nil if there is none.
func (r *Region) Bytes() []byte {
	return r.snapshot.Load().mem
}

// Address returns the address of the first byte for peers, 0 if the region is not registered.
func (r *Region) Address() uint64 {
	return r.snapshot.Load().address
}

// attach checks that a window may be bound to mem, and keeps the region from being deregistered. It stores in p where mem
// is. write says that the window lets peers write.
func (r *Region) attach(p *permissions, mem []byte, write bool) (ok bool) {
	if !r.mu.LockBiased() {
		r.mu.Lock()
	}
	now := r.snapshot.Load()
	base, at := shm.AddressOf(now.mem), shm.AddressOf(mem)
	if now.mem != nil && len(mem) != 0 && within(at, uint64(len(mem)), base, uint64(len(now.mem))) && (!write || r.flags.LocalWrite()) {
		p.base, p.mem = now.address+(at-base), now.mem[at-base:][:len(mem)]
		p.offset, _ = r.domain.table.arena.Locate(mem)
		r.windows++
		ok = true
	}
	r.mu.Unlock()
	return ok
}

// detach undoes attach.
func (r *Region) detach() {
	if !r.mu.LockBiased() {
		r.mu.Lock()
	}
	if r.windows--; r.released { // else the registration goes on
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
