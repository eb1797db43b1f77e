package endpoint

import (
	"context"
	"slices"
	"testing"

	"github.com/softnd/softnd/nd"
)

const (
	doFastRegion       verb = "set up a fast-register region" // of Len bytes, mapped; at most N pages, In != 0: remote access
	doFastRegister     verb = "fast register"                 // N: 1 = with the pages in reverse order
	doInvalidateRegion verb = "invalidate region"
	doCloseMapping     verb = "close mapping"
	doPrivileged       verb = "get privileged token"
	doBytes            verb = "count Bytes"
)

// fastOrders are a side's operations of fast registration.
var fastOrders = map[verb]func(*side, context.Context, order, *reply) error{
	doFastRegion:   (*side).addFastRegion,
	doFastRegister: (*side).fastRegister,
	doInvalidateRegion: func(s *side, _ context.Context, o order, _ *reply) error {
		return s.endpointAt(o.Endpoint).InvalidateRegion(o.Context, s.regionAt(o.Region).mr, o.Flags)
	},
	doCloseMapping: func(s *side, _ context.Context, o order, _ *reply) error {
		return s.regionAt(o.Region).mapped.Close(s.ctx)
	},
	doPrivileged: func(s *side, _ context.Context, _ order, r *reply) error {
		token, err := s.adapter.PrivilegedToken()
		r.Sum = uint64(token)
		return err
	},
	doBytes: func(s *side, _ context.Context, o order, r *reply) error {
		r.N = len(s.regionAt(o.Region).mr.Bytes())
		r.Far = farOf(s.regionAt(o.Region).mr)
		return nil
	},
}

// fastEdge is the number of bytes in the first and last page that are outside the mapping.
const fastEdge = 100

// addFastRegion maps o.Len bytes between two edges, and makes a region for them.
func (s *side) addFastRegion(ctx context.Context, o order, r *reply) (err error) {
	m := &regionMemory{edge: fastEdge}
	if m.holder, err = s.adapter.Allocate(ctx, o.Len+2*fastEdge, nd.AllowLocalWrite); err != nil {
		return err
	}
	m.all = m.holder.Bytes()
	for i := range fastEdge {
		m.all[i], m.all[len(m.all)-1-i] = edgeByte, edgeByte
	}
	if m.mapped, err = s.adapter.BuildLogicalAddressMapping(ctx, m.bytes()); err != nil {
		return err
	}
	if m.mr, err = s.adapter.CreateMemoryRegion(ctx); err != nil {
		return err
	}
	if err := m.mr.InitializeFastRegister(ctx, o.N, o.In != 0); err != nil {
		return err
	}
	s.keep(m, r)
	return nil
}

// fastRegister registers o.Len bytes of the mapping, from o.Off on.
func (s *side) fastRegister(_ context.Context, o order, r *reply) error {
	m := s.regionAt(o.Region)
	pages, at := m.mapped.Pages(), m.mapped.Offset()+o.Off
	if o.N == 1 {
		pages = slices.Clone(pages)
		slices.Reverse(pages)
	}
	err := s.endpointAt(o.Endpoint).FastRegister(o.Context, nd.FastRegistration{Region: m.mr, Pages: pages, Offset: at, Length: o.Len, BaseAddress: o.Far.Address, Rights: o.Rights}, o.Flags)
	r.Far = nd.WindowDescriptor{Address: o.Far.Address, Length: uint64(o.Len), Token: m.mr.RemoteToken()}
	r.Sum = uint64(m.mr.LocalToken())
	return err
}

const (
	fastBase = 0x7000_1234_5678_9abc // not a multiple of anything
	fastAll  = nd.AllowRemoteRead | nd.AllowRemoteWrite
)

// fastRegion makes a region of n bytes that can be registered with all rights.
func (s *side) fastRegion(n int) int {
	s.t.Helper()
	return s.must(order{Do: doFastRegion, Len: n, N: fastRegisterPages, In: 1}).N
}

// register registers a range of a region with all rights, and takes the result.
func (s *side) register(region, off, n int) nd.WindowDescriptor {
	s.t.Helper()
	d := s.must(order{Do: doFastRegister, Context: 0xf0, Region: region, Off: off, Len: n, Far: nd.WindowDescriptor{Address: fastBase}, Rights: fastAll}).Far
	s.expect(initiatorQueue, success(nd.RequestFastRegister, 0xf0, 0))
	return d
}

func (s *side) unregister(region int) {
	s.t.Helper()
	s.must(order{Do: doInvalidateRegion, Context: 0xf1, Region: region})
	s.expect(initiatorQueue, success(nd.RequestInvalidate, 0xf1, 0))
}

// fastSetups are the setups in which fast registrations may differ. They are fewer than those of
// everySetup, because the memory of the region is always in the arena.
func fastSetups(s setup) (all []setup) {
	all = someSetups(s)
	if raceDetector {
		return all // the race detector sees nothing of another process, and slows it down
	}
	s.Processes = true
	return append(all, s, setup{Unwired: s.Unwired, Both: s.Both, Processes: true, Executors: [2]Executor{Target, Target}})
}

func onFast(t *testing.T, s setup, test func(t *testing.T, p *pair)) {
	t.Helper()
	onEach(t, fastSetups(s), test)
}
