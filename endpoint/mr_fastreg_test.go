package endpoint

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/softnd/softnd/nd"
)

func TestFastRegisterToInvalidate(t *testing.T) {
	const size = 200_000
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		r := p.b.fastRegion(size)
		seen := map[nd.Token]bool{0: true}
		var d nd.WindowDescriptor
		for round, n := range []int{1, 8, 5000, 70_000, size - 7} {
			d = p.b.register(r, 7, n)
			local := nd.Token(p.b.must(order{Do: doRegionInfo, Region: r}).Sum)
			if seen[d.Token] || seen[local] || d.Token == local {
				t.Fatalf("round %d: the tokens are not new", round)
			}
			seen[d.Token], seen[local] = true, true
			if got := p.b.must(order{Do: doBytes, Region: r}); got.N != n || got.Far != d {
				t.Errorf("round %d: %d bytes, described as %v, want %v", round, got.N, got.Far, d)
			}
			p.a.fill(0, 0, size, uint64(round))
			p.a.must(order{Do: doWrite, Parts: mine(0, n), Far: d})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, n))
			if p.b.sum(r, 7, n) != p.a.sum(0, 0, n) {
				t.Errorf("a write of %d bytes came out wrong", n)
			}
			p.a.must(order{Do: doRead, Parts: mine(1, n-n/2), Far: at(d, n/2)})
			p.a.expect(initiatorQueue, success(nd.RequestRead, 0, n-n/2))
			if p.a.sum(0, 1, n-n/2) != p.b.sum(r, 7+n/2, n-n/2) {
				t.Errorf("a read of %d bytes came out wrong", n-n/2)
			}
			p.b.unregister(r)
			if got := p.b.must(order{Do: doBytes, Region: r}); got.N != 0 || got.Far.Address != 0 || got.Far.Token != d.Token {
				t.Errorf("round %d: after the invalidation: %v", round, got)
			}
		}
		before := p.b.sum(r, 0, size)
		p.offend(doWrite, mine(3, 100), d)
		if p.b.sum(r, 0, size) != before {
			t.Error("memory has changed after the invalidation")
		}
	})
}

// TestFastRegionInOwnRequests: slices of the memory, with the region's local token, as source
// and as sink of all requests.
func TestFastRegionInOwnRequests(t *testing.T) {
	const n = 60_000
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		r := p.b.fastRegion(4 * n)
		p.b.register(r, 0, 3*n)
		own := func(i, n int) []part { return []part{{Region: r, Off: i * 60_000, Len: n}} }
		for i, n := range []int{8, n} {
			seed := uint64(10 * i)
			p.b.fill(r, 0, n, seed)
			p.a.must(order{Do: doReceive, Parts: mine(0, n)})
			p.b.must(order{Do: doSend, Parts: own(0, n)})
			p.a.expect(receiveQueue, success(nd.RequestReceive, 0, n))
			p.b.expect(initiatorQueue, success(nd.RequestSend, 0, n))
			p.b.must(order{Do: doReceive, Parts: own(1, n)})
			p.a.must(order{Do: doSend, Parts: mine(0, n)})
			p.b.expect(receiveQueue, success(nd.RequestReceive, 0, n))
			p.a.expect(initiatorQueue, success(nd.RequestSend, 0, n))
			p.b.must(order{Do: doWrite, Parts: own(1, n), Far: at(p.a.memory, 100_000)})
			p.b.must(order{Do: doRead, Parts: own(2, n), Far: at(p.a.memory, 100_000)})
			p.b.expect(initiatorQueue, success(nd.RequestWrite, 0, n), success(nd.RequestRead, 0, n))
			if p.b.sum(r, 2*60_000, n) != p.b.sum(r, 0, n) {
				t.Errorf("%d bytes came back wrong", n)
			}
		}
		// Bytes that are mapped but not registered are not covered.
		p.b.must(order{Do: doWrite, Context: 1, Parts: []part{{Region: r, Off: 3*n - 1, Len: 2}}, Far: p.a.memory})
		p.b.expect(initiatorQueue, failure(nd.RequestWrite, 1, nd.AccessViolation))
	})
}

// TestFastRegisterPipelined: registrations and invalidations may be posted without waiting, behind
// a request that takes long.
func TestFastRegisterPipelined(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		r := p.b.fastRegion(10_000)
		p.b.must(order{Do: doWrite, Parts: mine(0, 200_000), Far: p.a.memory})
		want := []nd.Result{success(nd.RequestWrite, 0, 200_000)}
		var old, d nd.WindowDescriptor
		for i := range 10 {
			old = d
			o := order{Do: doFastRegister, Context: 1, Region: r, Off: i, Len: 1000, Far: nd.WindowDescriptor{Address: uint64(i+1) << 40}, Rights: fastAll}
			if d = p.b.must(o).Far; d.Token == old.Token {
				t.Fatalf("registration %d has the token of the last", i)
			}
			want = append(want, success(nd.RequestFastRegister, 1, 0))
			if i < 9 {
				p.b.must(order{Do: doInvalidateRegion, Context: 2, Region: r})
				want = append(want, success(nd.RequestInvalidate, 2, 0))
			}
		}
		p.a.must(order{Do: doReceive})
		p.b.must(order{Do: doSend})
		p.a.expect(receiveQueue, success(nd.RequestReceive, 0, 0))
		p.b.expect(initiatorQueue, append(want, success(nd.RequestSend, 0, 0))...)
		p.a.must(order{Do: doWrite, Parts: mine(0, 1000), Far: d})
		p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 1000))
		if p.b.sum(r, 9, 1000) != p.a.sum(0, 0, 1000) {
			t.Error("the data differ")
		}
		p.offend(doRead, mine(0, 1), old)
	})
}

func TestFastRegionRights(t *testing.T) {
	t.Parallel()
	for _, rights := range []nd.RegionFlags{0, nd.AllowLocalWrite, nd.AllowRemoteRead, nd.AllowRemoteWrite} {
		for _, do := range []verb{doRead, doWrite} {
			allowed := rights.RemoteRead()
			if do == doWrite {
				allowed = rights.RemoteWrite()
			}
			t.Run(fmt.Sprintf("%s with %v", do, rights), func(t *testing.T) {
				onFast(t, setup{}, func(t *testing.T, p *pair) {
					r := p.b.fastRegion(9000)
					d := p.b.must(order{Do: doFastRegister, Region: r, Off: 50, Len: 5000, Far: nd.WindowDescriptor{Address: 1}, Rights: rights}).Far
					p.b.expect(initiatorQueue, success(nd.RequestFastRegister, 0, 0))
					before := p.b.sum(r, 0, 9000)
					if allowed {
						p.a.must(order{Do: do, Parts: mine(0, 5000), Far: d})
						p.a.expect(initiatorQueue, nd.Result{RequestType: map[verb]nd.RequestType{doRead: nd.RequestRead, doWrite: nd.RequestWrite}[do], BytesTransferred: 5000})
						before = p.b.sum(r, 0, 9000)
						p.offend(do, mine(0, 5000), at(d, 1)) // one byte beyond
					} else {
						p.offend(do, mine(0, 5000), d)
					}
					if p.b.sum(r, 0, 9000) != before {
						t.Error("bytes have moved")
					}
				})
			})
		}
	}
	t.Run("a sink needs the right to write", func(t *testing.T) {
		p := newPair(t, setup{})
		r := p.b.fastRegion(100)
		p.b.must(order{Do: doFastRegister, Region: r, Len: 100, Far: nd.WindowDescriptor{Address: 1}})
		p.b.must(order{Do: doRead, Context: 1, Parts: []part{{Region: r, Len: 10}}, Far: p.a.memory})
		p.b.expect(initiatorQueue, success(nd.RequestFastRegister, 0, 0), failure(nd.RequestRead, 1, nd.AccessViolation))
	})
}

func TestFastRegisterRejectsBadArguments(t *testing.T) {
	p := newPair(t, setup{})
	s := p.a
	ctx, ep := s.ctx, s.endpointAt(0)
	memory := must(s.adapter.Allocate(ctx, 5*4096, nd.AllowLocalWrite))
	mapping := must(s.adapter.BuildLogicalAddressMapping(ctx, memory.Bytes()[100:][:3*4096]))
	pages := mapping.Pages()
	if len(pages) != 4 || mapping.PageSize() != 4096 || mapping.Offset() != 100 {
		t.Fatalf("%d pages of %d bytes, offset %d", len(pages), mapping.PageSize(), mapping.Offset())
	}
	plain, local, remote := newRegion(t, s), newRegion(t, s), newRegion(t, s)
	for _, pages := range []int{0, -1, math.MinInt} {
		wantStatus(t, plain.InitializeFastRegister(ctx, pages, true), nd.InvalidParameter)
	}
	for _, pages := range []int{fastRegisterPages + 1, math.MaxInt} {
		wantStatus(t, plain.InitializeFastRegister(ctx, pages, true), nd.ImplementationLimit)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	wantStatus(t, plain.InitializeFastRegister(canceled, 1, true), nd.Canceled)
	wantStatus(t, memory.InitializeFastRegister(ctx, 1, true), nd.InvalidDeviceState)
	wantStatus(t, ep.InvalidateRegion(0, plain, 0), nd.InvalidDeviceRequest)
	for i := range 3 { // the last one counts
		wantStatus(t, local.InitializeFastRegister(ctx, i+1, i == 0), nd.Success)
		wantStatus(t, remote.InitializeFastRegister(ctx, fastRegisterPages, true), nd.Success)
	}
	wantStatus(t, remote.Register(ctx, memory.Bytes(), 0), nd.InvalidDeviceState)
	wantStatus(t, remote.Deregister(ctx), nd.InvalidDeviceState)

	other, err := s.provider.OpenAdapter(ctx, s.provider.adapterID())
	if err != nil {
		t.Fatal(err)
	}
	otherRegion := must(other.CreateMemoryRegion(ctx))
	wantStatus(t, otherRegion.InitializeFastRegister(ctx, 10, true), nd.Success)
	foreign := must(other.BuildLogicalAddressMapping(ctx, memory.Bytes()[4*4096:]))
	invented := slices.Clone(pages)
	invented[1]++
	type args struct {
		mr             nd.MemoryRegion
		pages          []nd.LogicalPage
		offset, length int
		base           uint64
		rights         nd.RegionFlags
		flags          nd.OpFlags
	}
	good := args{mr: remote, pages: pages, offset: 100, length: 3 * 4096, base: 1, rights: fastAll}
	with := func(change func(*args)) args { a := good; change(&a); return a }
	for name, c := range map[string]struct {
		args
		want nd.Status
	}{
		"no region":                  {with(func(a *args) { a.mr = nil }), nd.InvalidParameter},
		"another adapter's":          {with(func(a *args) { a.mr = otherRegion }), nd.InvalidParameter},
		"a plain region":             {with(func(a *args) { a.mr = plain }), nd.InvalidParameter},
		"a registered plain region":  {with(func(a *args) { a.mr = memory }), nd.InvalidParameter},
		"too many pages":             {with(func(a *args) { a.mr, a.rights = local, 0 }), nd.InvalidParameter},
		"no pages":                   {with(func(a *args) { a.pages, a.offset, a.length = nil, 0, 0 }), nd.InvalidParameter},
		"an invented page":           {with(func(a *args) { a.pages = invented }), nd.InvalidParameter},
		"page 0":                     {with(func(a *args) { a.pages = []nd.LogicalPage{0}; a.length = 1 }), nd.InvalidParameter},
		"the last page there is":     {with(func(a *args) { a.pages = []nd.LogicalPage{math.MaxUint64 - 4095}; a.length = 1 }), nd.InvalidParameter},
		"the page behind":            {with(func(a *args) { a.pages = []nd.LogicalPage{pages[3] + 4096}; a.length = 1 }), nd.InvalidParameter},
		"a page of another adapter":  {with(func(a *args) { a.pages = append(slices.Clone(pages), foreign.Pages()...) }), nd.InvalidParameter},
		"a negative offset":          {with(func(a *args) { a.offset = -1 }), nd.InvalidParameter},
		"an offset beyond":           {with(func(a *args) { a.offset, a.length = 4*4096, 1 }), nd.InvalidParameter},
		"a byte before the mapped":   {with(func(a *args) { a.offset = 99 }), nd.InvalidParameter},
		"length 0":                   {with(func(a *args) { a.length = 0 }), nd.InvalidParameter},
		"a negative length":          {with(func(a *args) { a.length = math.MinInt }), nd.InvalidParameter},
		"a length beyond":            {with(func(a *args) { a.length = 4*4096 - 99 }), nd.InvalidParameter},
		"a huge length":              {with(func(a *args) { a.length = math.MaxInt }), nd.InvalidParameter},
		"a byte behind the mapped":   {with(func(a *args) { a.length++ }), nd.InvalidParameter},
		"base 0":                     {with(func(a *args) { a.base = 0 }), nd.InvalidParameter},
		"a base that wraps":          {with(func(a *args) { a.base = math.MaxUint64 - 3*4096 + 1 }), nd.InvalidParameter},
		"unknown rights":             {with(func(a *args) { a.rights |= 0x100 }), nd.InvalidParameter},
		"flags of other requests":    {with(func(a *args) { a.flags = nd.Inline }), nd.InvalidParameter},
		"rights that it cannot have": {with(func(a *args) { a.mr, a.pages, a.length = local, pages[:3], 10 }), nd.AccessViolation},
	} {
		t.Run(name, func(t *testing.T) {
			wantStatus(t, ep.FastRegister(0, nd.FastRegistration{Region: c.mr, Pages: c.pages, Offset: c.offset, Length: c.length, BaseAddress: c.base, Rights: c.rights}, c.flags), c.want)
		})
	}
	wantStatus(t, ep.InvalidateRegion(0, otherRegion, 0), nd.InvalidParameter)
	wantStatus(t, ep.InvalidateRegion(0, nil, 0), nd.InvalidParameter)
	wantStatus(t, ep.InvalidateRegion(0, remote, nd.AllowRead), nd.InvalidParameter)
	for name, buf := range map[string][]byte{"nothing": nil, "empty": memory.Bytes()[:0], "private": make([]byte, 100), "the header": arenaBytes(t, s, 0)} {
		if _, err := s.adapter.BuildLogicalAddressMapping(ctx, buf); nd.StatusOf(err) != nd.InvalidParameter {
			t.Errorf("mapping of %s: %v", name, err)
		}
	}
	p.a.nothing(initiatorQueue)
	wantStatus(t, mapping.Close(ctx), nd.Success) // no registration holds it
	wantStatus(t, ep.FastRegister(0, nd.FastRegistration{Region: remote, Pages: pages, Offset: 100, Length: 10, BaseAddress: 1, Rights: 0}, 0), nd.InvalidParameter)
	wantStatus(t, mapping.Close(ctx), nd.Success)
	wantStatus(t, remote.Close(ctx), nd.Success)
	wantStatus(t, remote.InitializeFastRegister(ctx, 1, true), nd.InvalidHandle)
	wantStatus(t, ep.FastRegister(0, nd.FastRegistration{Region: remote, Pages: foreign.Pages(), Offset: 0, Length: 10, BaseAddress: 1, Rights: 0}, 0), nd.InvalidHandle)
	wantStatus(t, ep.InvalidateRegion(0, remote, 0), nd.InvalidHandle)
	wantStatus(t, foreign.Close(ctx), nd.Success)
	p.a.must(order{Do: doWrite, Parts: mine(0, 1), Far: p.b.memory}) // the refused calls have had no effect
	p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 1))
	for _, mr := range []nd.MemoryRegion{memory, plain, local, otherRegion} {
		wantStatus(t, mr.Close(ctx), nd.Success)
	}
}

func newRegion(t *testing.T, s *side) nd.MemoryRegion {
	t.Helper()
	return must(s.adapter.CreateMemoryRegion(s.ctx))
}

// arenaBytes returns a page of the arena, of any owner.
func arenaBytes(t *testing.T, s *side, off uint64) []byte {
	t.Helper()
	b, err := s.member.Arena().Bytes(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	return b[off:]
}

// TestFastRegisterPagesOutOfOrder: pages in any order are one contiguous range for peers.
func TestFastRegisterPagesOutOfOrder(t *testing.T) {
	const pages, page = 20, 4096
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		// Off: the reversed list starts with the last page, of which all is mapped.
		r := p.b.fastRegion(pages*page - 2*fastEdge)
		o := order{Do: doFastRegister, Region: r, Off: page - fastEdge, Len: (pages - 2) * page, N: 1, Far: nd.WindowDescriptor{Address: fastBase}, Rights: fastAll}
		for round := range 3 {
			d := p.b.must(o).Far
			p.b.expect(initiatorQueue, success(nd.RequestFastRegister, 0, 0))
			if n := p.b.must(order{Do: doBytes, Region: r}).N; n != 0 {
				t.Errorf("Bytes has %d bytes", n)
			}
			p.b.refuse(nd.DeviceBusy, order{Do: doCloseMapping, Region: r})
			p.a.fill(0, 0, (pages-2)*page, uint64(round))
			p.a.must(order{Do: doWrite, Parts: mine(0, (pages-2)*page), Far: d})
			p.a.must(order{Do: doRead, Parts: mine(100_000, 50_000), Far: at(d, 5000)})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, (pages-2)*page), success(nd.RequestRead, 0, 50_000))
			var got, want []part
			for i := range pages - 2 {
				want = append(want, part{Off: i * page, Len: page})
				got = append(got, part{Region: r, Off: (pages-2-i)*page - fastEdge, Len: page})
			}
			if p.b.must(order{Do: doGather, Parts: got}).Sum != p.a.must(order{Do: doGather, Parts: want}).Sum {
				t.Error("the pages are not where they belong")
			}
			if p.a.sum(0, 100_000, 50_000) != p.a.sum(0, 5000, 50_000) && round == 0 {
				t.Error("the read brought something else")
			}
			p.b.unregister(r)
		}
		p.b.must(order{Do: doCloseMapping, Region: r})
		p.b.refuse(nd.InvalidParameter, o)
	})
}
