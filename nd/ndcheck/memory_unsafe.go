package ndcheck

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/softnd/softnd/nd"
)

// addressOf returns the address of a buffer as peers name it.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func isWithin(at, n, base, length uint64) bool {
	return at >= base && n <= length && at-base <= length-n
}

// region watches a memory region. checker.mu guards what may change.
type region struct {
	nd.MemoryRegion
	*checker
	adapter *adapter
	id      uint32
	site    string // that created it

	flags        nd.RegionFlags
	bytes        []byte
	local        nd.Token
	remote       nd.Token
	registeredOn *endpoint                 // by FastRegister, with which the registration ends; nil = it does not
	replaced     map[nd.Token]registration // by local token: those that FastRegister has replaced before they have ended
	registeredAt string
	uses         int          // requests since the registration
	unheard      *tokenRecord // of the first token to which peers wrote, and which ended before the program has heard of it
}

// registration is an earlier registration of a region.
type registration struct {
	remote nd.Token
	on     *endpoint // as region.registeredOn
}

func (r *region) name() string   { return fmt.Sprintf("region %d", r.id) }
func (r *region) home() *adapter { return r.adapter }

// registered notes a registration that has just been made.
func (r *region) registered(flags nd.RegionFlags, site string) {
	local, remote, bytes, base := r.MemoryRegion.LocalToken(), r.MemoryRegion.RemoteToken(), r.MemoryRegion.Bytes(), r.MemoryRegion.Address()
	r.registeredAs(nil, flags, site, local, remote, bytes, base, uint64(len(bytes)))
}

// registeredAs notes a registration by a call, or by a request of the endpoint on.
func (r *region) registeredAs(on *endpoint, flags nd.RegionFlags, site string, local, remote nd.Token, bytes []byte, base, length uint64) {
	r.mu.Lock()
	if r.local != 0 && r.local != local {
		if r.replaced == nil {
			r.replaced = make(map[nd.Token]registration)
		}
		r.replaced[r.local] = registration{r.remote, r.registeredOn}
	}
	r.flags, r.bytes, r.local, r.remote, r.registeredOn, r.registeredAt, r.uses = flags, bytes, local, remote, on, site, 0
	r.regions[local] = r
	r.mu.Unlock()
	t := tokenRecord{token: local, kind: localToken, rank: r.rank, object: r.id, adapter: r.adapter.id, base: addressOf(bytes), length: uint64(len(bytes)), memory: addressOf(bytes),
		read: true, write: flags.LocalWrite(), site: site}
	r.journal.issue(t)
	if remote != local {
		t.token, t.kind, t.base, t.length, t.read, t.write, t.atomic = remote, regionToken, base, length, flags.RemoteRead(), flags.RemoteWrite(), flags.RemoteAtomic()
		r.journal.issue(t)
	}
}

// registration returns the registration with a local token. The caller holds checker.mu.
func (r *region) registration(local nd.Token) registration {
	if r.local == local {
		return registration{r.remote, r.registeredOn}
	}
	return r.replaced[local]
}

// ended notes that all registrations have ended, by a call at site.
func (r *region) ended(site string) {
	r.mu.Lock()
	local, remote := r.local, r.remote
	replaced := r.replaced
	r.replaced = nil
	for local := range replaced {
		r.forget(local)
	}
	r.mu.Unlock()
	for local, before := range replaced {
		r.endToken(local, site)
		r.endToken(before.remote, site)
	}
	if local != 0 {
		r.invalidated(local, remote, site)
	}
	r.reportUnheard()
}

// invalidated notes that the registration with two tokens has ended, by a call at site. The region may have a later one.
func (r *region) invalidated(local, remote nd.Token, site string) {
	r.mu.Lock()
	at, churned := r.registeredAt, false
	if r.local == local && r.uses == 1 && !r.flags.RemoteRead() && !r.flags.RemoteWrite() && !r.flags.RemoteAtomic() { // else peers may have used it often
		r.churn[at]++
		churned = r.churn[at] == churnLimit
	}
	r.forget(local)
	r.mu.Unlock()
	if churned {
		r.found(Finding{Rule: registrationChurn, Site: at, What: fmt.Sprintf("%d registrations served one request each", churnLimit), OtherRank: r.rank, Other: "ended", OtherSite: site}, r)
	}
	for _, token := range []nd.Token{local, remote} {
		r.endToken(token, site)
	}
	r.reportUnheard()
}

// forget forgets the registration with a local token. The caller holds checker.mu.
func (r *region) forget(local nd.Token) {
	if r.regions[local] == r {
		delete(r.regions, local)
	}
	delete(r.replaced, local)
	if r.local == local {
		r.local, r.remote, r.bytes, r.registeredOn = 0, 0, nil, nil
	}
}

// churnLimit is how many registrations for one request make a finding.
const churnLimit = 100

// endToken notes the end of a token for memory of the region.
func (r *region) endToken(token nd.Token, site string) {
	t, ok := r.journal.withdraw(token, r.rank, site, now())
	if ok && t.live && t.writes > 0 {
		r.mu.Lock()
		if r.unheard == nil {
			r.unheard = &t
		}
		r.mu.Unlock()
	}
}

// reportUnheard reports Writes of peers if the program has learned nothing since. The registration ends, or the job.
func (r *region) reportUnheard() {
	r.mu.Lock()
	t := r.unheard
	r.unheard = nil
	if t != nil && r.learnedAt > t.firstWrite {
		t = nil
	}
	r.mu.Unlock()
	if t != nil {
		r.found(Finding{Rule: neverSynchronised, Site: t.site, What: fmt.Sprintf("granted memory, to which peers wrote (%d Writes)", t.writes), Address: t.base, Length: t.length}, r)
	}
}

// users returns the requests in flight that use the region, which a call is about to end. Their bytes are not compared from now
// on, even if the call is refused.
func (r *region) users() (users []*request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.requests {
		if q.uses(r.local) {
			q.isUnchecked = true // the program may unmap the memory
		}
		// If the connection has ended, the program has given the requests up.
		if ep, ok := q.owner.(*endpoint); ok && !ep.ending && !ep.hasFailed && q.kind != nd.RequestReceive && !q.answered && q.uses(r.local) {
			users = append(users, q)
		}
	}
	return users
}

// reportUsers reports the requests that used the region when a call ended it.
func (r *region) reportUsers(users []*request, what, site string) {
	for _, q := range users {
		r.found(Finding{Rule: closedInUse, Site: site, What: what + " " + r.name(), OtherRank: r.rank, Other: q.name() + " is in flight", OtherSite: q.site}, r, q.owner)
	}
}

func (r *region) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) error {
	err := r.MemoryRegion.Register(ctx, buf, flags)
	if err == nil {
		r.registered(flags, here())
	}
	return err
}

func (r *region) Deregister(ctx context.Context) error {
	site := here()
	users := r.users()
	err := r.MemoryRegion.Deregister(ctx)
	if err == nil || nd.StatusOf(err) == nd.Canceled { // else the call had no effect
		r.reportUsers(users, "deregisters", site)
		r.ended(site)
	}
	return err
}

func (r *region) closing(site string) { r.reportUsers(r.users(), "closes", site) }

func (r *region) gone(site string) { r.ended(site) }

func (r *region) Close(ctx context.Context) error {
	return r.adapter.close(r, func() error { return r.MemoryRegion.Close(ctx) })
}

// window watches a memory window. checker.mu guards what may change.
type window struct {
	nd.MemoryWindow
	*checker
	adapter *adapter
	id      uint32

	token   nd.Token // of the bind, 0 = not bound
	bytes   []byte
	write   bool
	atomic  bool
	boundOn *endpoint
	region  *region
	boundAt string
}

func (w *window) name() string   { return fmt.Sprintf("window %d", w.id) }
func (w *window) home() *adapter { return w.adapter }

// bound notes a Bind whose post has just returned.
func (w *window) bound(ep *endpoint, r *region, buf []byte, flags nd.OpFlags, site string) {
	d := w.MemoryWindow.Descriptor()
	t := tokenRecord{token: d.Token, kind: windowToken, rank: w.rank, object: w.id, adapter: w.adapter.id, base: d.Address, length: d.Length, memory: addressOf(buf),
		read: flags.Has(nd.AllowRead), write: flags.Has(nd.AllowWrite), atomic: flags.Has(nd.AllowAtomic), site: site}
	if flags.Has(nd.ThisEndpointOnly) {
		w.mu.Lock()
		t.link = ep.link
		w.mu.Unlock()
	}
	w.journal.issue(t)
	at, n := addressOf(buf), uint64(len(buf))
	var others []window
	w.mu.Lock()
	for other := range w.windows {
		if other != w && other.boundOn.peer != ep.peer && (t.write || other.write) && overlaps(at, n, addressOf(other.bytes), uint64(len(other.bytes))) {
			others = append(others, *other)
		}
	}
	w.windows[w] = struct{}{}
	w.token, w.bytes, w.write, w.atomic, w.boundOn, w.region, w.boundAt = d.Token, buf, t.write, t.atomic, ep, r, site
	flagged, registeredAt := r.flags, r.registeredAt
	w.mu.Unlock()
	for i := range others {
		if others[i].boundOn.Err() != nil {
			continue // the peer has ended the connection, and with it the window
		}
		w.found(Finding{Rule: grantedTwice, Site: site, What: fmt.Sprintf("%s binds %s to %d bytes", ep.name(), w.name(), n), Address: at, Length: n,
			OtherRank: w.rank, Other: fmt.Sprintf("%s has bound %s to some of them for another peer", others[i].boundOn.name(), others[i].name()), OtherSite: others[i].boundAt}, w, ep)
	}
	if flagged.RemoteRead() && t.read || flagged.RemoteWrite() && t.write || flagged.RemoteAtomic() && t.atomic { // else the window gives the peer more
		w.found(Finding{Rule: wholeRegionGranted, Site: registeredAt, What: fmt.Sprintf("%s is registered with %v", r.name(), flagged),
			OtherRank: w.rank, Other: w.name() + " limits access to a part of it", OtherSite: site}, w, r)
	}
}

// unbound notes that the window is invalid, by a call at site. It returns the token.
func (w *window) unbound(site string) nd.Token {
	w.mu.Lock()
	token, r := w.token, w.region
	w.token, w.bytes, w.boundOn = 0, nil, nil
	delete(w.windows, w)
	w.mu.Unlock()
	if token != 0 {
		r.endToken(token, site)
	}
	return token
}

func (w *window) closing(string) {}

func (w *window) gone(site string) { w.unbound(site) }

func (w *window) Close(ctx context.Context) error {
	return w.adapter.close(w, func() error { return w.MemoryWindow.Close(ctx) })
}
