package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/ofi"
)

// talk is one input being played.
type talk struct {
	*linkRig
	t       *testing.T
	ctx     context.Context
	input   []byte
	session *handshake.Session
	tunnels []farTunnel
	opens   uint32 // requests for connections
	called  uint64 // collective calls
	owed    uint16 // frames of the relay that were read and not returned
	locals  []local
	calls   sync.WaitGroup
	queue   nd.CompletionQueue
	memory  nd.MemoryRegion
}

// farTunnel is a tunnel as the far side knows it.
type farTunnel struct {
	number      uint32 // at the relay
	own         uint32 // at the far side
	last        uint64 // number of the last request to the relay
	sent, total uint32 // bytes of it, and how many were sent
	done        uint64 // requests of the relay that are answered
	reads       [8]uint32
	stored      uint32 // bytes of the answer to the oldest Read
}

// local is an endpoint of the local process.
type local struct {
	ep        nd.Endpoint
	connector nd.Connector
	window    nd.MemoryWindow
}

// end checks that the link has left nothing, and that the other link works.
func (p *talk) end() {
	t, r := p.t, p.near.relay
	for _, l := range p.locals {
		l.close()
	}
	p.calls.Wait()
	for over := false; !over; {
		select {
		case c := <-p.requests:
			c.Close()
		default:
			over = true
		}
	}
	must(t, p.queue.Close())
	must(t, p.memory.Deregister(context.Background()))
	must(t, p.memory.Close(p.ctx))
	proctest.Eventually(t, "the end of the link", func() bool { s := r.state(); return s.Links == 1 && s.Tunnels == 1 })
	proctest.Eventually(t, "all memory is free", func() bool {
		for len(p.requests) > 0 {
			(<-p.requests).Close()
		}
		return p.linkRig.memory() == p.inUse
	})
	if !bytes.Equal(p.forbidden.Bytes(), make([]byte, len(p.forbidden.Bytes()))) {
		t.Error("memory has changed that no window grants")
	}
	if n := runtime.NumGoroutine(); n > 200 {
		t.Errorf("%d goroutines:\n%s", n, proctest.Stacks())
	}
	w := p.good
	must(t, w.y.Receive(1, w.b.sge(0, 64)))
	must(t, w.x.Send(2, w.a.sge(0, 64), 0))
	for _, n := range []*rank{w.a, w.b} {
		if r := n.result(t); r.Status != nd.Success {
			t.Fatalf("the other link: %+v, %v, %v", r, w.x.Err(), w.y.Err())
		}
	}
}

func (l *local) close() {
	if l.ep != nil {
		l.ep.Close()
	}
	if l.connector != nil {
		l.connector.Close()
	}
	if l.window != nil {
		l.window.Close(context.Background())
	}
}

// take takes a byte of the input; 0 at its end.
func (p *talk) take() byte {
	if len(p.input) == 0 {
		return 0
	}
	b := p.input[0]
	p.input = p.input[1:]
	return b
}

func (p *talk) op() {
	switch p.take() % ops {
	case opFrame:
		p.sendFrame()
	case opRaw:
		n := min(int(p.take()), len(p.input))
		b := append(make([]byte, 8), p.input[:n]...)
		p.input = p.input[n:]
		binary.LittleEndian.PutUint64(b, p.session.Inbound)
		p.deliver(b)
	case opAccept:
		p.accept()
	case opReject:
		if c := p.request(); c != nil {
			_ = c.Reject(p.input[:min(len(p.input), 4)])
			c.Close()
		}
	case opConnect:
		p.connect()
	case opLocal:
		p.post()
	case opReceive:
		if l := p.local(); l != nil {
			_ = l.ep.Receive(1, nd.One(nd.SGEOf(p.memory, 0, sizeOf(p.take())%(1<<20))))
		}
	case opInvalidate:
		if l := p.local(); l != nil && l.window != nil {
			_ = l.ep.Invalidate(1, l.window, 0)
		}
	case opDisconnect:
		if l := p.local(); l != nil {
			c := l.connector
			p.calls.Go(func() { _ = c.Disconnect(p.ctx) })
		}
	case opClose:
		if len(p.locals) > 0 {
			p.locals[0].close()
			p.locals = p.locals[1:]
		}
	case opWait:
		time.Sleep(time.Millisecond)
	}
}

// local selects an endpoint of the local process.
func (p *talk) local() *local {
	if len(p.locals) == 0 {
		return nil
	}
	return &p.locals[len(p.locals)-1]
}

// request returns a connection request that arrives soon, or nil.
func (p *talk) request() nd.Connector {
	select {
	case c := <-p.requests:
		return c
	case <-time.After(3 * time.Millisecond):
		return nil
	}
}

func (p *talk) endpoint() nd.Endpoint {
	ep, err := p.near.rank.adapter.CreateEndpoint(p.ctx, nd.EndpointConfig{ReceiveCQ: p.queue, InitiatorCQ: p.queue, InitiatorDepth: 64, ReceiveDepth: 64})
	must(p.t, err)
	return ep
}

func (p *talk) accept() {
	c := p.request()
	if c == nil {
		return
	}
	ep := p.endpoint()
	l := local{ep: ep, connector: c}
	var err error
	l.window, err = p.near.rank.adapter.CreateMemoryWindow(p.ctx)
	must(p.t, err)
	p.locals = append(p.locals, l)
	p.calls.Go(func() {
		if c.Accept(p.ctx, ep, nd.ConnectParams{InboundReadLimit: 4, OutboundReadLimit: 4}) == nil {
			_ = ep.Bind(1, p.memory, l.window, p.memory.Bytes(), nd.AllowRead|nd.AllowWrite|nd.AllowAtomic)
		}
	})
	p.settle(func() bool { return len(p.tunnels) > 0 })
}

func (p *talk) connect() {
	n := p.near.rank
	c, err := n.adapter.CreateConnector(p.ctx)
	must(p.t, err)
	ep := p.endpoint()
	p.locals = append(p.locals, local{ep: ep, connector: c})
	p.calls.Go(func() {
		if c.Connect(p.ctx, ep, netip.AddrPortFrom(farRank, port), nd.ConnectParams{InboundReadLimit: 4, OutboundReadLimit: 4, PrivateData: []byte("x")}) == nil {
			_ = c.CompleteConnect(p.ctx)
		}
	})
	before := len(p.tunnels)
	p.settle(func() bool { return len(p.tunnels) > before })
}

// post posts a request of the local process to the far side.
func (p *talk) post() {
	kind, l := p.take(), p.local()
	if l == nil {
		return
	}
	sge := nd.One(nd.SGEOf(p.memory, 0, sizeOf(kind/8)%(1<<20)))
	switch kind % 8 {
	case 0:
		_ = l.ep.Send(1, sge, 0)
	case 1:
		_ = l.ep.Write(2, sge, 1<<40, 77, 0)
	case 2:
		_ = l.ep.Read(3, sge, 1<<40, 77, 0)
	case 3:
		_ = l.ep.SendAndInvalidate(4, sge, 77, 0)
	case 4:
		_ = l.ep.SendImmediate(5, sge, 9, 0)
	case 5:
		_ = l.ep.WriteImmediate(6, sge, 1<<40, 77, 9, 0)
	case 6:
		_ = l.ep.FetchAndAdd(7, nd.SGEOf(p.memory, 0, 8), 1<<40, 77, 9, 0)
	case 7:
		_ = l.ep.CompareAndSwap(8, nd.SGEOf(p.memory, 8, 8), 1<<40, 77, 9, 8, 0)
	}
	p.settle(func() bool { return true })
}

// settle lets the relay work for a few milliseconds at most, until something has happened.
func (p *talk) settle(happened func() bool) {
	for end := time.Now().Add(500 * time.Microsecond); ; {
		p.listen()
		if happened() || time.Now().After(end) {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// sizeOf returns a size of a request.
func sizeOf(b byte) int {
	sizes := [...]int{0, 1, 8, 100, 4096, maxPayload, maxPayload + 1, 100000, largeRoom, largeRoom + 1, frame.MaxTotal}
	return sizes[int(b)%len(sizes)]
}

// listen reads the frames of the relay.
func (p *talk) listen() {
	var received [16]ofi.Received
	n, _, err := p.sink.Poll(received[:])
	must(p.t, err)
	for _, m := range received[:n] {
		var f frame.Frame
		if err := f.Decode(m.Message); err != nil {
			p.t.Errorf("the relay sends a bad frame: %v", err)
		}
		if f.Session == p.session.Outbound {
			p.heard(&f)
		}
		must(p.t, p.sink.Repost(m.Buffer))
	}
}

func (p *talk) heard(f *frame.Frame) {
	p.owed++
	switch f.Kind {
	case frame.Open, frame.Accept:
		var c frame.Connect
		must(p.t, c.Decode(f.Payload))
		own := f.Tunnel
		if f.Kind == frame.Open {
			own = uint32(1000 + len(p.tunnels))
		}
		p.tunnels = append(p.tunnels, farTunnel{number: c.Tunnel, own: own})
	case frame.Read, frame.Atomic:
		total := f.Total
		if f.Kind == frame.Atomic {
			total = frame.OldSize
		}
		for i := range p.tunnels {
			if x := &p.tunnels[i]; x.own == f.Tunnel {
				x.reads[f.Request%8] = total
			}
		}
	}
}

// sendFrame sends a frame that is right if the bytes of the input are 0, except that of its size.
func (p *talk) sendFrame() {
	f := frame.Frame{Kind: frame.Kind(p.take()), Session: p.session.Inbound, Credits: p.owed}
	tunnel, request, where, size := p.take(), p.take(), p.take(), p.take()
	x := &farTunnel{number: uint32(tunnel)} // an unknown one
	if known := len(p.tunnels) - 1 - int(tunnel); known >= 0 {
		x = &p.tunnels[known]
	}
	f.Tunnel = x.number
	length := sizeOf(size)
	switch f.Kind {
	case frame.Withdraw:
		f.Tunnel, f.Request = 0, uint64(max(p.opens, 1))
	case frame.Hello, frame.Credit, frame.Leave:
		f.Tunnel = 0
	case frame.Call:
		p.called++
		f.Tunnel, f.Request, f.Token = 0, p.called, 1+uint32(where%4)
		if f.Token != uint32(relayclient.Barrier) {
			f.Payload = make([]byte, length%(1+frame.MaxPart))
			f.Address = uint64(len(f.Payload))
		}
	case frame.Called:
		f.Tunnel, f.Request = 0, uint64(request)
	case frame.Ping, frame.Pong:
		f.Tunnel, f.Request = 0, uint64(request)
	case frame.Open, frame.Accept:
		c := frame.Connect{Tunnel: x.own, From: netip.AddrPortFrom(farRank, port), To: netip.AddrPortFrom(p.near.rank.address, port+uint16(where)), ReadsIn: uint16(request), ReadsOut: 4, Private: make([]byte, length%(frame.MaxPrivateData+1))}
		if f.Kind == frame.Open {
			p.opens++
			c.Tunnel, f.Tunnel = p.opens, 0
		}
		f.Payload = c.Append(nil)
	case frame.Refuse:
		f.Payload = make([]byte, length%(frame.MaxRefusal+1))
	case frame.Send, frame.Write:
		if x.sent == x.total {
			x.last, x.sent, x.total = x.last+1, 0, uint32(length)
		}
		f.Request, f.Total, f.Offset = x.last, x.total, x.sent
		n := min(x.total-x.sent, maxPayload)
		f.Payload = make([]byte, n)
		x.sent += n
		if where%64 >= 48 {
			f.Flags, f.Immediate = frame.Immediate, uint32(where)
		}
		if f.Kind == frame.Send {
			f.Flags |= where % 4
			if f.Flags&frame.Invalidate != 0 {
				f.Token = uint32(p.token(where))
			}
			break
		}
		fallthrough
	case frame.Read:
		if f.Kind == frame.Read {
			x.last++
			f.Request, f.Total = x.last, max(uint32(length), 1)
		}
		f.Address, f.Token = nd.DescriptorOf(p.memory).Address+uint64(where)*8000, uint32(p.token(where))
	case frame.Atomic:
		x.last++
		f.Request, f.Address, f.Token = x.last, nd.DescriptorOf(p.memory).Address+uint64(where)*8000, uint32(p.token(where))
		f.Payload = (&frame.Change{Operation: frame.FetchAndAdd + frame.Operation(where%4)}).Append(nil)
	case frame.Data:
		f.Request, f.Total, f.Offset = x.done+1, x.reads[(x.done+1)%8], x.stored
		n := min(f.Total-f.Offset, maxPayload)
		f.Payload = make([]byte, n)
		if x.stored += n; x.stored == f.Total {
			x.stored = 0
		}
	case frame.Done:
		x.done++
		f.Request = x.done
	case frame.Fail:
		f.Request, f.Status, f.Payload = x.done+1, uint32(nd.RemoteError)+uint32(where), make([]byte, length%(frame.MaxText+1))
	case frame.Abort:
		f.Status = uint32(where)
	}
	if request%2 != 0 {
		f.Request += uint64(int8(request))
	}
	if request%8 == 7 {
		f.Offset, f.Credits = f.Offset+uint32(request), f.Credits+uint16(request)
	}
	if where%16 == 15 {
		f.Total = uint32(where) << 24
	}
	p.owed = 0
	b := make([]byte, frame.HeaderSize+len(f.Payload)+frame.MaxTrailer)
	p.deliver(b[:f.Encode(b)])
}

// token returns one that the far side has, or another one.
func (p *talk) token(where byte) nd.Token {
	l := p.local()
	switch {
	case where < 128 && l != nil && l.window != nil && where%2 == 1:
		return l.window.RemoteToken()
	case where < 200:
		return nd.DescriptorOf(p.memory).Token
	}
	return nd.DescriptorOf(p.forbidden).Token
}

// deliver lets the relay receive a message, with the number of the next frame.
func (p *talk) deliver(message []byte) {
	r, done := p.near.relay, make(chan struct{})
	r.do(func() {
		defer close(done)
		if l := r.links[p.session.Inbound]; l != nil && len(message) >= frame.HeaderSize {
			binary.LittleEndian.PutUint32(message[frame.HeaderSize-4:], l.handled)
		}
		r.receive(ofi.Received{Buffer: -1, Message: message})
	})
	<-done
	p.settle(func() bool { return p.owed > 0 || len(p.input)%4 != 0 })
}
