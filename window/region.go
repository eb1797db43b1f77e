package window

// TWIN c/src/window/region.c.

import (
	"sync/atomic"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Region is registered memory. The owner uses it through a local token, and peers, where its flags
// allow it, through a remote token. Windows let peers access parts of it. Safe for concurrent use.
//
// Source: IND2MemoryRegion, NDK_MR.
type Region struct {
	Invalidatable

	flags         nd.RegionFlags
	fastRegister  bool          // InitializeFastRegister was called
	ended         func()        // called when the registration has ended; nil = no call
	windowsClosed func()        // see Retire
	tokens        atomic.Uint64 // the latest tokens: the local one in the upper half; changes with mu held
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
	r := &Region{Invalidatable: Invalidatable{domain: d, local: local, remote: remote}}
	r.invalidated = r.endRegistration
	return r, nil
}

// Register registers mem, any memory of the process. If mem is in the arena, peers can reach it.
// Other memory is private: only this process can reach it. The region refers to private memory, so
// that the garbage collector keeps it, until Deregister. Private memory is accessed only through
// the slice mem, never through an address from a request. ended is called when the registration has ended and no
// executor accesses the memory; nil means no call.
//
// Errors: [nd.InvalidDeviceState] if the region is registered already, or is
// for fast registration. mem must not be empty.
func (r *Region) Register(mem []byte, flags nd.RegionFlags, ended func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isInUse() || r.fastRegister {
		return nd.InvalidDeviceState
	}
	local, remote := r.prepare(mem, shm.AddressOf(mem), flags)
	r.ended = ended
	r.apply(&local, &remote, flags)
	return nil
}

// Deregister makes both tokens invalid. The caller calls EndInvalidation until that returns true: then no
// executor accesses the memory.
//
// Errors: [nd.InvalidDeviceState] if the region is not registered;
// [nd.DeviceBusy] while a window is bound to it. Nothing has changed then.
func (r *Region) Deregister() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.windows > 0 {
		return nd.DeviceBusy
	}
	if r.state != bound {
		return nd.InvalidDeviceState
	}
	r.revoke()
	return nil
}

// Tokens returns the latest local and remote tokens, 0 before the first
// registration.
func (r *Region) Tokens() (local, remote nd.Token) {
	tokens := r.tokens.Load()
	return nd.Token(tokens >> 32), nd.Token(tokens)
}

// Bytes returns the registered memory, nil if there is none.
func (r *Region) Bytes() []byte {
	if p := r.local.permissions.Load(); p != nil {
		return p.mem
	}
	return nil
}

// Address returns the address of the first byte for peers, 0 if the region is not registered.
func (r *Region) Address() uint64 {
	if p := r.remote.permissions.Load(); p != nil {
		return p.base
	}
	return 0
}

// prepare makes the tokens of a registration. address is that of mem[0] for peers; the owner's
// requests use the address of mem. The caller holds r.mu.
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
	if flags.RemoteAtomic() {
		remote.rights |= Atomic
	}
	r.tokens.Store(uint64(local.token)<<32 | uint64(remote.token))
	return local, remote
}

// apply registers the region. The caller holds r.mu.
func (r *Region) apply(local, remote *permissions, flags nd.RegionFlags) {
	r.state, r.flags = bound, flags
	r.local.bind(local)
	r.remote.bind(remote)
}

// endRegistration is called when the invalidation of the tokens has ended, and when that of the last window of an
// invalid region has. It ends the registration if it is the later of the two. The caller holds r.mu.
func (r *Region) endRegistration() {
	if r.isInUse() || r.ended == nil {
		return
	}
	r.ended()
	r.ended = nil
}

// attach checks that a window may be bound to mem, and keeps the region from being deregistered. It
// stores in p where mem is. write says that the window lets peers write.
func (r *Region) attach(p *permissions, mem []byte, write bool) (ok bool) {
	if !r.mu.LockBiased() {
		r.mu.Lock()
	}
	if r.state == bound && len(mem) != 0 && (!write || r.flags.LocalWrite()) {
		whole := r.local.permissions.Load()
		at := shm.AddressOf(mem)
		if within(at, uint64(len(mem)), whole.base, uint64(len(whole.mem))) {
			at -= whole.base
			p.base, p.mem = r.remote.permissions.Load().base+at, whole.mem[at:][:len(mem)]
			p.offset, _ = r.domain.table.arena.Locate(mem)
			r.windows++
			ok = true
		}
	}
	r.mu.Unlock()
	return ok
}

// detach undoes attach.
func (r *Region) detach() {
	if !r.mu.LockBiased() {
		r.mu.Lock()
	}
	var closed func()
	if r.windows--; r.windows == 0 {
		closed = r.windowsClosed
		r.endRegistration()
	}
	r.mu.Unlock()
	if closed != nil {
		closed()
	}
}
