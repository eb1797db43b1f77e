package ndcheck

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// endpoint watches an endpoint. checker.mu guards what may change.
type endpoint struct {
	nd.Endpoint
	*checker
	adapter                      *adapter
	id                           uint32
	context                      uint64 // that the program has chosen
	receiveQueue, initiatorQueue *queue // nil: not made by the checker
	shared                       *sharedQueue
	connectors                   map[nd.Connector]nd.Connector // those of the program, by those below

	order      sync.Mutex   // held during a post, so that initiator has the provider's order; taken before checker.mu
	peer       netip.Addr   // once it is known
	peerRank   atomic.Int32 // its rank + 1, 0 = not known, or not watched
	depth      int          // of the initiator queue
	initiator  []*request   // posted, result not taken
	pending    int          // initiator requests and Receives whose result was not taken
	deferred   *request     // the first that nothing has submitted
	hasFailed  bool         // the program has taken a failed result
	failedOn   *queue       // from which it took it,
	failedPoll uint64       // in this call
	ignored    int          // posts since the call after that
	fenced     *request     // the first with ReadFence
	reads      int          // posted so far
	link       uint64       // identifies the connection on both sides, 0 = unknown
	ending     bool         // disconnected, flushed or closed
	closed     bool
}

// label is the name with the peer.
func (ep *endpoint) label() string {
	if rank := ep.peerRank.Load() - 1; rank >= 0 {
		return fmt.Sprintf("%s to rank %d", ep.name(), rank)
	}
	return ep.name()
}

func (ep *endpoint) name() string   { return fmt.Sprintf("endpoint %d", ep.id) }
func (ep *endpoint) home() *adapter { return ep.adapter }

// Connector returns the connector of the program.
func (ep *endpoint) Connector() nd.Connector {
	inner := ep.Endpoint.Connector()
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if outer := ep.connectors[inner]; outer != nil {
		return outer
	}
	return inner
}

// checkedEndpoint is an endpoint with the optional interface of the one below.
type checkedEndpoint interface{ self() *endpoint }

func (ep *endpoint) self() *endpoint { return ep }

type countingEndpoint struct {
	*endpoint
	nd.CountingEndpoint
}

func (ep *endpoint) withOptions() nd.Endpoint {
	if c, ok := ep.Endpoint.(nd.CountingEndpoint); ok {
		return &countingEndpoint{ep, c}
	}
	return ep
}

// unwrap returns the endpoint of the provider below.
func unwrap(ep nd.Endpoint) nd.Endpoint {
	if c, ok := ep.(checkedEndpoint); ok {
		return c.self().Endpoint
	}
	return ep
}

func (ep *endpoint) Send(reqCtx uint64, sge nd.SGL, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestSend, reqCtx, sge, flags)
	return ep.post(r, func() error { return ep.Endpoint.Send(r.id, sge, flags) })
}

func (ep *endpoint) SendAndInvalidate(reqCtx uint64, sge nd.SGL, remoteToken nd.Token, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestSend, reqCtx, sge, flags)
	r.token, r.invalidate = remoteToken, true
	return ep.post(r, func() error { return ep.Endpoint.SendAndInvalidate(r.id, sge, remoteToken, flags) })
}

func (ep *endpoint) Read(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestRead, reqCtx, sge, flags)
	r.address, r.token = remoteAddress, remoteToken
	if flags.Has(nd.ReadLocalInvalidate) && ep.adapter.info.AdapterFlags.Has(nd.ReadLocalInvalidateSupported) {
		if i := slices.IndexFunc(r.sge, func(e nd.SGE) bool { return len(e.Buffer) > 0 }); i >= 0 {
			ep.mu.Lock()
			r.ends(ep.regions[r.sge[i].Token])
			ep.mu.Unlock()
		}
	}
	return ep.post(r, func() error { return ep.Endpoint.Read(r.id, sge, remoteAddress, remoteToken, flags) })
}

func (ep *endpoint) Write(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestWrite, reqCtx, sge, flags)
	r.address, r.token = remoteAddress, remoteToken
	return ep.post(r, func() error { return ep.Endpoint.Write(r.id, sge, remoteAddress, remoteToken, flags) })
}

func (ep *endpoint) SendImmediate(reqCtx uint64, sge nd.SGL, immediate uint32, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestSend, reqCtx, sge, flags)
	r.hasImmediate = true
	return ep.post(r, func() error { return ep.Endpoint.SendImmediate(r.id, sge, immediate, flags) })
}

func (ep *endpoint) WriteImmediate(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, immediate uint32, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestWrite, reqCtx, sge, flags)
	r.address, r.token, r.hasImmediate = remoteAddress, remoteToken, true
	return ep.post(r, func() error {
		return ep.Endpoint.WriteImmediate(r.id, sge, remoteAddress, remoteToken, immediate, flags)
	})
}

func (ep *endpoint) FetchAndAdd(reqCtx uint64, old nd.SGE, remoteAddress uint64, remoteToken nd.Token, add uint64, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestFetchAndAdd, reqCtx, nd.One(old), flags)
	r.address, r.token = remoteAddress, remoteToken
	return ep.post(r, func() error { return ep.Endpoint.FetchAndAdd(r.id, old, remoteAddress, remoteToken, add, flags) })
}

func (ep *endpoint) CompareAndSwap(reqCtx uint64, old nd.SGE, remoteAddress uint64, remoteToken nd.Token, compare, swap uint64, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestCompareAndSwap, reqCtx, nd.One(old), flags)
	r.address, r.token = remoteAddress, remoteToken
	return ep.post(r, func() error {
		return ep.Endpoint.CompareAndSwap(r.id, old, remoteAddress, remoteToken, compare, swap, flags)
	})
}

func (ep *endpoint) Swap(reqCtx uint64, old nd.SGE, remoteAddress uint64, remoteToken nd.Token, value uint64, flags nd.OpFlags) error {
	r := ep.newRequest(nd.RequestSwap, reqCtx, nd.One(old), flags)
	r.address, r.token = remoteAddress, remoteToken
	return ep.post(r, func() error { return ep.Endpoint.Swap(r.id, old, remoteAddress, remoteToken, value, flags) })
}

func (ep *endpoint) Bind(reqCtx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	m, ok1 := mr.(*region)
	w, ok2 := mw.(*window)
	if !ok1 || !ok2 {
		return ep.Endpoint.Bind(reqCtx, mr, mw, buf, flags) // it refuses objects that are not its own
	}
	r := ep.newRequest(nd.RequestBind, reqCtx, nd.SGL{}, flags)
	r.window, r.region = w, m
	return ep.post(r, func() error {
		w.mu.Lock()
		on := w.boundOn
		w.mu.Unlock()
		hasEnded := false // its connection, and with it the window
		if on != nil {
			cause := on.Err()
			hasEnded = cause != nil
			r.isMisuse = !hasEnded || nd.StatusOf(cause) == nd.ConnectionDisconnected // perhaps by the peer alone, so the window may still be bound
		}
		if hasEnded && !r.isMisuse {
			w.journal.cutOff(w.unbound(r.site))
		}
		err := ep.Endpoint.Bind(r.id, m.MemoryRegion, w.MemoryWindow, buf, flags)
		if err == nil && (on == nil || hasEnded) {
			w.bound(ep, m, buf, flags, r.site)
		}
		return err
	})
}

func (ep *endpoint) Invalidate(reqCtx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	w, ok := mw.(*window)
	if !ok {
		return ep.Endpoint.Invalidate(reqCtx, mw, flags)
	}
	r := ep.newRequest(nd.RequestInvalidate, reqCtx, nd.SGL{}, flags)
	r.window = w
	return ep.post(r, func() error {
		w.mu.Lock()
		bound := *w
		r.isMisuse = w.boundOn != ep
		w.mu.Unlock()
		if r.isMisuse {
			return ep.Endpoint.Invalidate(r.id, w.MemoryWindow, flags)
		}
		w.unbound(r.site) // before the post: a peer may fail at once
		err := ep.Endpoint.Invalidate(r.id, w.MemoryWindow, flags)
		if err != nil { // the post has changed nothing
			w.mu.Lock()
			w.token, w.bytes, w.boundOn = bound.token, bound.bytes, bound.boundOn
			w.windows[w] = struct{}{}
			w.mu.Unlock()
			w.journal.change(bound.token, func(t *tokenRecord) { t.live, t.ended = true, 0 })
		}
		return err
	})
}

func (ep *endpoint) InvalidateRegion(reqCtx uint64, mr nd.MemoryRegion, flags nd.OpFlags) error {
	m, ok := mr.(*region)
	if !ok {
		return ep.Endpoint.InvalidateRegion(reqCtx, mr, flags)
	}
	r := ep.newRequest(nd.RequestInvalidate, reqCtx, nd.SGL{}, flags)
	m.mu.Lock()
	r.ends(m)
	m.mu.Unlock()
	return ep.post(r, func() error { return ep.Endpoint.InvalidateRegion(r.id, m.MemoryRegion, flags) })
}

// ends notes the registration that the request ends, because a FastRegister behind it gives the region other tokens. The caller
// holds checker.mu.
func (r *request) ends(m *region) {
	if m != nil {
		r.region, r.local, r.remote = m, m.local, m.remote
	}
}

func (ep *endpoint) FastRegister(reqCtx uint64, f nd.FastRegistration, flags nd.OpFlags) error {
	m, ok := f.Region.(*region)
	if !ok {
		return ep.Endpoint.FastRegister(reqCtx, f, flags)
	}
	r := ep.newRequest(nd.RequestFastRegister, reqCtx, nd.SGL{}, flags)
	r.region = m
	return ep.post(r, func() error {
		inner := m.MemoryRegion
		f.Region = inner
		before := inner.Bytes()
		err := ep.Endpoint.FastRegister(r.id, f, flags)
		if err == nil {
			bytes := inner.Bytes()
			if addressOf(bytes) == addressOf(before) {
				bytes = nil // perhaps of the registration that an earlier request ends
			}
			m.registeredAs(ep, f.Rights, r.site, inner.LocalToken(), inner.RemoteToken(), bytes, f.BaseAddress, uint64(f.Length))
		}
		return err
	})
}
