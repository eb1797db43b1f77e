package carry

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// ForwardPort makes the relay listen at a port of its own, and carry each connection to it to the same port of the other
// host of a link. It stops when the relay ends.
func (r *Relay) ForwardPort(port uint16, host uint16) error {
	l, err := r.adapter.CreateListener(r.ctx)
	if err != nil {
		return err
	}
	if err = l.Bind(netip.AddrPortFrom(r.Address(), port)); err == nil {
		err = l.Listen(0)
	}
	if err != nil {
		l.Close()
		return fmt.Errorf("forward port %d to host %d: %w", port, host, err)
	}
	r.calls.Go(func() {
		for {
			c, err := r.adapter.CreateConnector(r.ctx)
			if err == nil {
				err = l.GetConnectionRequest(r.ctx, c)
			}
			if err != nil {
				return // the relay ends
			}
			r.do(func() { r.request(c, port, host) })
		}
	})
	return nil
}

// linkTo returns the link to a host, or nil.
func (r *Relay) linkTo(host uint16) *link {
	for _, l := range r.links {
		if l.session.Host == host {
			return l
		}
	}
	return nil
}

// request carries the request of a local process for a connection.
func (r *Relay) request(c nd.Connector, port, host uint16) {
	inbound, outbound, err := c.ReadLimits()
	private := make([]byte, frame.MaxPrivateData)
	n := 0
	if err == nil {
		n, err = c.GetPrivateData(private)
	}
	var t *tunnel
	if l := r.linkTo(host); err == nil && l != nil {
		t = l.newTunnel()
	}
	if t == nil {
		r.calls.Go(func() {
			_ = c.Reject(nil)
			_ = c.Close()
		})
		return
	}
	t.connector, t.isPassive = c, true
	// The limits of this side of the request are those of the other side of the local process.
	open := frame.Connect{Tunnel: t.number, Port: port, ReadsIn: uint16(outbound), ReadsOut: uint16(inbound), Private: private[:n]}
	t.post(note{kind: frame.Open, payload: open.Append(nil)})
}

// opened handles Accept and Refuse.
func (t *tunnel) opened(f *frame.Frame) error {
	if !t.isPassive || t.remote != 0 || t.aborted {
		return errTunnel
	}
	r, c := t.link.relay, t.connector
	if f.Kind == frame.Refuse {
		t.aborted = true
		if t.ended {
			return nil
		}
		private := append([]byte(nil), f.Payload...)
		r.calls.Go(func() {
			_ = c.Reject(private)
			r.do(func() { t.ended = true }) // which closes the connector, so not before
		})
		return nil
	}
	var answer frame.Connect
	if err := answer.Decode(f.Payload); err != nil {
		return err
	}
	t.remote = answer.Tunnel
	if t.ended {
		t.post(note{kind: frame.Abort, status: nd.Canceled})
		return nil
	}
	if err := t.setUp(r.ctx); err != nil {
		t.end(nd.StatusOf(err), err.Error())
		return nil
	}
	params := nd.ConnectParams{InboundReadLimit: int(answer.ReadsIn), OutboundReadLimit: int(answer.ReadsOut), PrivateData: append([]byte(nil), answer.Private...)}
	t.connect(func(ctx context.Context) error { return c.Accept(ctx, t.ep, params) }, func() {
		t.post(note{kind: frame.Established})
		t.start()
	})
	return nil
}

// connect makes a call of a connector that blocks, and then calls ready, unless the call has failed.
func (t *tunnel) connect(call func(context.Context) error, ready func()) {
	r := t.link.relay
	ctx, stop := context.WithCancel(r.ctx)
	t.stop = stop
	r.calls.Go(func() {
		err := call(ctx)
		r.do(func() {
			defer stop()
			switch {
			case t.ended:
			case err != nil:
				t.end(nd.StatusOf(err), err.Error())
			default:
				ready()
			}
		})
	})
}

// start lets requests pass.
func (t *tunnel) start() {
	t.open = true
	t.watch()
}

// open handles Open: a process of the other host asks for a connection.
func (l *link) open(f *frame.Frame) error {
	var request frame.Connect
	if err := request.Decode(f.Payload); err != nil {
		return err
	}
	r := l.relay
	to, ok := netip.AddrPort{}, false
	if r.config.Deliver != nil {
		to, ok = r.config.Deliver(request.Port)
	}
	t := l.newTunnel()
	if t == nil {
		if len(l.refused) == maxTunnels { // more than the other relay has
			return errTunnel
		}
		l.refused = append(l.refused, request.Tunnel)
		return nil
	}
	t.remote = request.Tunnel
	err := error(nil)
	if ok {
		err = t.setUp(r.ctx)
	}
	if ok && err == nil {
		t.connector, err = r.adapter.CreateConnector(r.ctx)
	}
	if !ok || err != nil {
		t.refuseOpen(nil)
		return nil
	}
	params := nd.ConnectParams{InboundReadLimit: int(request.ReadsIn), OutboundReadLimit: int(request.ReadsOut), PrivateData: append([]byte(nil), request.Private...)}
	c := t.connector
	ctx, stop := context.WithCancel(r.ctx)
	t.stop = stop
	r.calls.Go(func() {
		err := c.Connect(ctx, t.ep, to, params)
		r.do(func() { t.answered(err) })
	})
	return nil
}

// answered handles the answer of the local process to a request of the other host.
func (t *tunnel) answered(err error) {
	if t.ended {
		return
	}
	private := make([]byte, frame.MaxPrivateData)
	n, _ := t.connector.GetPrivateData(private)
	var inbound, outbound int
	if err == nil {
		inbound, outbound, err = t.connector.ReadLimits()
	}
	if err != nil {
		t.refuseOpen(private[:n])
		return
	}
	accept := frame.Connect{Tunnel: t.number, ReadsIn: uint16(outbound), ReadsOut: uint16(inbound), Private: private[:n]}
	t.post(note{kind: frame.Accept, payload: accept.Append(nil)})
}

// refuseOpen refuses a request of the other host. Neither side knows the tunnel afterwards.
func (t *tunnel) refuseOpen(private []byte) {
	t.post(note{kind: frame.Refuse, payload: private})
	t.ended, t.aborted = true, true
}

// established handles Established: the process of the other host has completed its Connect.
func (t *tunnel) established() error {
	if t.isPassive || t.open || t.aborted {
		return errTunnel
	}
	if t.ended {
		return nil
	}
	if err := t.connector.CompleteConnect(t.link.relay.ctx); err != nil {
		t.end(nd.StatusOf(err), err.Error())
		return nil
	}
	t.start()
	return nil
}
