package endpoint

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/softnd/softnd/nd"
)

// request posts a random initiator request.
func (p *oracleSide) request() {
	switch n := p.o.IntN(100); {
	case n < 35:
		p.send()
	case n < 55:
		p.write()
	case n < 72:
		p.read()
	case n < 80:
		p.atomic()
	case n < 88:
		p.bind()
	case n < 92:
		p.fastRegister(p.fast[p.o.IntN(2)])
	default:
		p.invalidate()
	}
}

// flags picks flags that every request takes; often none, as requests without flags take the fast path.
func (p *oracleSide) flags() (f nd.OpFlags) {
	if p.batching {
		f = nd.Defer
	}
	if p.o.one(2) {
		return f
	}
	if p.o.one(3) {
		f |= nd.SilentSuccess
	}
	if p.o.one(4) {
		f |= nd.ReadFence
	}
	if p.o.one(4) {
		f |= nd.Defer
	}
	return f
}

// fence adds a fence to a request that needs one, because it uses what a Read before it fills, or
// changes what that reads; and notes what a fence is for.
func (p *oracleSide) fence(f nd.OpFlags, local, far []oraclePart, sink bool) nd.OpFlags {
	for _, r := range p.reads {
		source := []oraclePart{r.source}
		if !r.fenced && (overlap(local, r.sink) || !sink && overlap(far, source)) {
			f |= nd.ReadFence
		}
	}
	return f
}

func (p *oracleSide) fenced(f nd.OpFlags) {
	if f.Has(nd.ReadFence) {
		for _, r := range p.reads {
			r.fenced = true
		}
	}
}

// inline makes a request inline if it can be: its bytes are taken at once, so no Read may be
// filling them.
func (p *oracleSide) inline(f nd.OpFlags, parts []oraclePart) nd.OpFlags {
	for _, r := range p.reads {
		if overlap(parts, r.sink) {
			return f
		}
	}
	if lengthOf(parts) <= p.limits.InlineSize && p.o.one(4) {
		f |= nd.Inline
	}
	return f
}

// captured returns the list of a request, and what to do when it has been posted: the bytes of
// an inline request are the caller's again.
func captured(f nd.OpFlags, parts []oraclePart) (sge nd.SGL, posted func()) {
	if !f.Has(nd.Inline) {
		return listOf(parts), func() {}
	}
	data := gather(parts)
	return nd.One(nd.SGE{Buffer: data}), func() {
		for i := range data {
			data[i] ^= 0xff
		}
	}
}

// send posts a message, which may take a window or region of the peer's back.
func (p *oracleSide) send() {
	o := p.o
	n := o.size()
	var far []oraclePart
	f := p.flags()
	if p.blocked() == nil && len(p.far.receives) > 0 {
		to := p.far.receives[0]
		n, far = min(n, to.capacity), to.parts
	} else if len(p.reads) > 0 {
		f |= nd.ReadFence // the model does not know which receive it takes
	}
	parts := p.split(1, n, p.limits.MaxInitiatorSGE)
	f = p.inline(p.fence(f, parts, far, false), parts)
	if f != 0 && o.one(3) {
		f |= nd.SendAndSolicitEvent
	}
	g := p.far.pick(func(g *oracleAccess) bool { return !g.plain })
	if !o.one(8) {
		g = nil
	}
	if g != nil && len(p.reads) > 0 {
		f |= nd.ReadFence
	}
	hasImmediate, immediate := o.one(4), o.Uint32()
	var now []byte
	if f.Has(nd.Inline) {
		now = gather(parts)
	}
	r := &oracleRequest{message: true, bytes: n, expectation: &expectation{what: fmt.Sprintf("send %v", parts),
		Result: nd.Result{RequestType: nd.RequestSend, BytesTransferred: uint32(n)}}}
	r.apply = func(into *oracleReceive) {
		data := now
		if !f.Has(nd.Inline) {
			data = gather(parts)
		}
		scatter(into.parts, data)
		into.BytesTransferred = uint32(n)
		if g != nil {
			into.RequestType, into.InvalidatedToken = nd.RequestReceiveAndInvalidate, g.token
			into.done = g.free
		} else if hasImmediate {
			into.SetImmediate(nd.RequestReceiveImmediate, immediate)
		}
	}
	sge, posted := captured(f, parts)
	var ok bool
	switch {
	case g == nil && hasImmediate:
		r.what += fmt.Sprintf(" with %#x", immediate)
		ok = p.post(r, f, func(c uint64) error { return p.ep.SendImmediate(c, sge, immediate, f) })
	case g == nil:
		ok = p.post(r, f, func(c uint64) error { return p.ep.Send(c, sge, f) })
	default:
		r.what += fmt.Sprintf(" and invalidate %v", g.token)
		if ok = p.post(r, f, func(c uint64) error { return p.ep.SendAndInvalidate(c, sge, g.token, f) }); ok {
			p.far.drop(g)
		}
	}
	posted()
	if ok {
		p.fenced(f)
	}
}

// target picks a range of the peer's memory, of n bytes at most.
func (p *oracleSide) target(n int, allowed func(*oracleAccess) bool) (*oracleAccess, oraclePart) {
	g := p.far.pick(allowed)
	return g, g.part(p.o, n)
}

// part picks a range of n bytes at most.
func (g *oracleAccess) part(o *oracle, n int) oraclePart {
	if g.plain {
		return oraclePart{o.place(0, n), g.area, g.token}
	}
	n = min(n, g.n)
	return oraclePart{span{g.off + o.IntN(g.n-n+1), n}, g.area, g.token}
}

func (g *oracleAccess) addressOf(part oraclePart) uint64 { return g.address + uint64(part.off-g.off) }

func (p *oracleSide) write() {
	g, to := p.target(p.o.size(), func(g *oracleAccess) bool { return g.write })
	parts := p.split(1, to.n, p.limits.MaxInitiatorSGE)
	f := p.inline(p.fence(p.flags(), parts, []oraclePart{to}, false), parts)
	var now []byte
	if f.Has(nd.Inline) {
		now = gather(parts)
	}
	r := &oracleRequest{expectation: &expectation{what: fmt.Sprintf("write %v to %v", parts, to),
		Result: nd.Result{RequestType: nd.RequestWrite, BytesTransferred: uint32(to.n)}, done: func() { g.users-- }}}
	r.message = p.o.one(5)
	immediate := p.o.Uint32()
	r.apply = func(into *oracleReceive) {
		data := now
		if !f.Has(nd.Inline) {
			data = gather(parts)
		}
		scatter([]oraclePart{to}, data)
		if r.message {
			into.BytesTransferred = uint32(to.n)
			into.SetImmediate(nd.RequestReceiveWriteImmediate, immediate)
		}
	}
	sge, posted := captured(f, parts)
	if p.post(r, f, func(c uint64) error {
		if r.message {
			return p.ep.WriteImmediate(c, sge, g.addressOf(to), g.token, immediate, f)
		}
		return p.ep.Write(c, sge, g.addressOf(to), g.token, f)
	}) {
		g.users++
		p.fenced(f)
	}
	posted()
}

func (p *oracleSide) read() {
	g, from := p.target(p.o.size(), func(g *oracleAccess) bool { return g.read })
	parts := p.split(1, from.n, p.limits.MaxInitiatorSGE)
	f := p.fence(p.flags(), parts, nil, true)
	fast := p.fast[1]
	if len(parts) > 0 && parts[0].n > 0 && fast.live && parts[0].token == fast.mr.LocalToken() && p.o.one(2) {
		f |= nd.ReadLocalInvalidate
	}
	read := &oracleRead{sink: parts, source: from}
	r := &oracleRequest{expectation: &expectation{what: fmt.Sprintf("read %v from %v", parts, from),
		Result: nd.Result{RequestType: nd.RequestRead, BytesTransferred: uint32(from.n)}, done: func() { g.users--; p.forget(read) }}}
	r.apply = func(*oracleReceive) { scatter(parts, gather([]oraclePart{from})) }
	if p.post(r, f, func(c uint64) error { return p.ep.Read(c, listOf(parts), g.addressOf(from), g.token, f) }) {
		g.users++
		p.fenced(f)
		p.reads = append(p.reads, read)
		if f.Has(nd.ReadLocalInvalidate) {
			fast.live = false
		}
	}
}

// atomic changes 8 bytes of the peer's memory. The old value arrives as the bytes of a Read do, but no later request overtakes
// the change.
func (p *oracleSide) atomic() {
	o := p.o
	g := p.far.pick(func(g *oracleAccess) bool { return g.atomic && g.n >= 16 && (g.address-uint64(g.off))%8 == 0 })
	if g == nil {
		return
	}
	to := g.part(o, 16)
	to.off, to.n = (to.off+7)&^7, 8
	parts := p.split(1, 8, 1)
	kind := nd.RequestFetchAndAdd + nd.RequestType(o.IntN(3))
	operand, swap := o.Uint64(), o.Uint64()
	f := p.fence(p.flags(), parts, []oraclePart{to}, false)
	read := &oracleRead{sink: parts}
	r := &oracleRequest{expectation: &expectation{what: fmt.Sprintf("%v(%#x, %#x) of %v into %v", kind, operand, swap, to, parts),
		Result: nd.Result{RequestType: kind, BytesTransferred: 8}, done: func() { g.users--; p.forget(read) }}}
	r.apply = func(*oracleReceive) {
		b := gather([]oraclePart{to})
		scatter(parts, b)
		switch old := binary.NativeEndian.Uint64(b); {
		case kind == nd.RequestFetchAndAdd:
			binary.NativeEndian.PutUint64(b, old+operand)
		case kind == nd.RequestSwap:
			binary.NativeEndian.PutUint64(b, operand)
		case old == operand:
			binary.NativeEndian.PutUint64(b, swap)
		}
		scatter([]oraclePart{to}, b)
	}
	if o.one(2) && len(p.requests) == 0 { // a CompareAndSwap finds what it compares with
		operand = binary.NativeEndian.Uint64(gather([]oraclePart{to}))
	}
	if p.post(r, f, func(c uint64) error {
		return p.postAtomic(kind, c, listOf(parts).First, g.addressOf(to), g.token, operand, swap, f)
	}) {
		g.users++
		p.fenced(f)
		p.reads = append(p.reads, read)
	}
}

func (p *oracleSide) postAtomic(kind nd.RequestType, c uint64, old nd.SGE, address uint64, token nd.Token, operand, swap uint64, f nd.OpFlags) error {
	switch kind {
	case nd.RequestFetchAndAdd:
		return p.ep.FetchAndAdd(c, old, address, token, operand, f)
	case nd.RequestSwap:
		return p.ep.Swap(c, old, address, token, operand, f)
	}
	return p.ep.CompareAndSwap(c, old, address, token, operand, swap, f)
}

// pick returns a random grant that can be used and that a condition holds for; nil if there is none.
func (p *oracleSide) pick(allowed func(*oracleAccess) bool) *oracleAccess {
	var some []*oracleAccess
	for _, g := range p.access {
		if g.usable && allowed(g) {
			some = append(some, g)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[p.o.IntN(len(some))]
}

// drop removes a grant that can be used no more.
func (p *oracleSide) drop(g *oracleAccess) {
	p.access = slices.DeleteFunc(p.access, func(x *oracleAccess) bool { return x == g })
}

// free makes what a grant was given through available again.
func (g *oracleAccess) free() {
	if g.window != nil {
		g.window.busy = false
	} else {
		g.fast.live = false
	}
}

// grant posts what gives the peer a part of our memory.
func (p *oracleSide) giveAccess(g *oracleAccess, f nd.OpFlags, k nd.RequestType, what string, call func(context uint64) error) {
	r := &oracleRequest{expectation: &expectation{what: what, Result: nd.Result{RequestType: k}, done: func() { g.usable = true }}, apply: func(*oracleReceive) {}}
	if p.post(r, f, call) {
		p.fenced(f)
		if g.area != nil {
			p.access = append(p.access, g)
		}
	}
}

func (p *oracleSide) bind() {
	o := p.o
	w := p.windows[o.IntN(len(p.windows))]
	if w.busy {
		return
	}
	area := p.areas[o.IntN(len(p.areas))]
	g := &oracleAccess{oraclePart: oraclePart{span: o.place(0, 1+o.IntN(3*hotBytes)), area: area}, read: !o.one(4), write: !o.one(4), atomic: !o.one(4), window: w}
	f := p.flags()
	if g.read {
		f |= nd.AllowRead
	}
	if g.write {
		f |= nd.AllowWrite
	}
	if g.atomic {
		f |= nd.AllowAtomic
	}
	if o.one(4) {
		f |= nd.ThisEndpointOnly
	}
	p.giveAccess(g, f, nd.RequestBind, fmt.Sprintf("bind %v", g), func(c uint64) error {
		err := p.ep.Bind(c, area.mr, w.mw, area.mem[g.off:][:g.n], f)
		if err == nil {
			w.busy = true
			d := w.mw.Descriptor()
			g.address, g.token = d.Address, d.Token
		}
		return err
	})
}

func (g *oracleAccess) String() string { return fmt.Sprintf("%v token %v", g.oraclePart, g.token) }

func (p *oracleSide) fastRegister(fa *fastArea) {
	o := p.o
	if fa.live {
		return
	}
	pages, offset := fa.choose(o)
	g := &oracleAccess{oraclePart: oraclePart{span: fa.span}, address: 1 + o.Uint64()>>1, read: !o.one(4), write: !o.one(4), atomic: !o.one(4), fast: fa}
	if o.one(2) { // else its numbers are not aligned for peers
		g.address = g.address&^7 + 8 + uint64(fa.off%8)
	}
	rights := nd.AllowLocalWrite
	if fa.part == 0 {
		g.area = p.areas[0]
		if g.read {
			rights |= nd.AllowRemoteRead
		}
		if g.write {
			rights |= nd.AllowRemoteWrite
		}
		if g.atomic {
			rights |= nd.AllowRemoteAtomic
		}
	}
	f := p.flags()
	p.giveAccess(g, f, nd.RequestFastRegister, fmt.Sprintf("fast register %v", fa.span), func(c uint64) error {
		err := p.ep.FastRegister(c, nd.FastRegistration{Region: fa.mr, Pages: pages, Offset: offset, Length: fa.n, BaseAddress: g.address, Rights: rights}, f)
		if err == nil {
			fa.live = true
			g.token = fa.mr.RemoteToken()
		}
		return err
	})
}

// invalidate invalidates a window or region that no request uses.
func (p *oracleSide) invalidate() {
	if p.o.one(2) && p.fast[1].live {
		p.invalidateNow(&oracleAccess{fast: p.fast[1]})
		return
	}
	if g := p.pick(func(g *oracleAccess) bool { return !g.plain && g.users == 0 }); g != nil {
		p.invalidateNow(g)
	}
}

func (p *oracleSide) invalidateNow(g *oracleAccess) {
	f := p.flags()
	r := &oracleRequest{expectation: &expectation{what: fmt.Sprintf("invalidate %v", g.token), Result: nd.Result{RequestType: nd.RequestInvalidate}}, apply: func(*oracleReceive) {}}
	if p.post(r, f, func(c uint64) error {
		if g.window != nil {
			return p.ep.Invalidate(c, g.window.mw, f)
		}
		return p.ep.InvalidateRegion(c, g.fast.mr, f)
	}) {
		p.fenced(f)
		p.drop(g)
		g.free()
	}
}
