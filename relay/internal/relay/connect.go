package relay

import (
	"context"
	"errors"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// takeRequests takes the requests of local processes for connections to other hosts. It reports whether there was any.
func (r *Relay) takeRequests() (worked bool) {
	for {
		if r.spare == nil {
			var err error
			if r.spare, err = r.adapter.CreateConnector(r.ctx); err != nil {
				return worked // the relay ends
			}
		}
		taken, err := r.others.TakeRequest(r.spare)
		if !taken {
			return worked
		}
		c := r.spare
		r.spare, worked = nil, true
		if err == nil {
			r.request(c)
		}
	}
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
func (r *Relay) request(c nd.Connector) {
	from, err := c.PeerAddress()
	to, err2 := c.LocalAddress()
	inbound, outbound, err3 := c.ReadLimits()
	err = errors.Join(err, err2, err3)
	private := make([]byte, frame.MaxPrivateData)
	n := 0
	if err == nil {
		n, err = c.GetPrivateData(private)
	}
	status := nd.HostUnreachable
	var t *tunnel
	if host, _ := endpoint.HostOf(to.Addr()); err == nil {
		if l := r.linkTo(uint16(host)); l != nil {
			t, status = l.newTunnel(asked), nd.ConnectionRefused // there are too many
		}
	}
	if t == nil {
		r.calls.Go(func() {
			reject(c, status, nil)
			_ = c.Close()
		})
		return
	}
	t.connector = c
	// The limits of this side of the request are those of the other side of the local process.
	open := frame.Connect{Tunnel: t.number, From: from, To: to, ReadsIn: uint16(outbound), ReadsOut: uint16(inbound), Private: private[:n]}
	t.post(note{kind: frame.Open, payload: open.Append(nil)})
}

// reject answers the request of a local process: its Connect returns nd.HostUnreachable if that is the status, and else
// nd.ConnectionRefused.
func reject(c nd.Connector, status nd.Status, private []byte) {
	if status == nd.HostUnreachable {
		_ = c.(relayhook.Connector).RejectUnreachable()
	} else {
		_ = c.Reject(private)
	}
}

// withdraw ends a tunnel whose process has stopped waiting for the answer to its request. The number of the tunnel is
// free when the other relay has answered, if it knows of the request.
func (t *tunnel) withdraw() {
	if len(t.outbox) > 0 { // Open is not sent
		t.change(withdraws)
		t.outbox = nil
		return
	}
	t.change(ends)
	t.post(note{kind: frame.Withdraw, request: uint64(t.number)})
}

// withdrawn handles Withdraw. If the local process has accepted, Accept is on its way, and the answer to it will be Abort.
func (l *link) withdrawn(number uint64) {
	for _, t := range l.tunnels {
		if t.state == calling && uint64(t.remote) == number {
			t.stop()
			t.refuseOpen(0, nil)
		}
	}
}

// opened handles Accept and Refuse.
func (t *tunnel) opened(f *frame.Frame) error {
	if t.remote != 0 || t.state != asked && t.state != ended {
		return errTunnel
	}
	r, c := t.link.relay, t.connector
	if f.Kind == frame.Refuse {
		t.change(peerRefuses)
		if t.state == over {
			return nil
		}
		private, status := append([]byte(nil), f.Payload...), nd.Status(f.Status)
		r.calls.Go(func() {
			reject(c, status, private)
			r.do(func() { t.change(answers) }) // which closes the connector, so not before
		})
		return nil
	}
	var answer frame.Connect
	if err := answer.Decode(f.Payload); err != nil {
		return err
	}
	t.remote = answer.Tunnel
	if t.state == ended {
		t.post(note{kind: frame.Abort, status: nd.Canceled})
		return nil
	}
	t.change(peerAccepts)
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

// rejected passes on that the local process has rejected the connection in place of CompleteConnect.
func (t *tunnel) rejected() {
	private := make([]byte, frame.MaxPrivateData)
	if n, err := t.connector.GetPrivateData(private); err == nil {
		t.post(note{kind: frame.Refuse, payload: private[:n]})
	}
}

// peerRejects handles Refuse of the process that has asked for the connection. Abort follows it.
func (t *tunnel) peerRejects(private []byte) error {
	switch t.state {
	case offered:
		_ = t.connector.Reject(private) // if it fails, the local process has ended the connection
	case ended:
	default:
		return errTunnel
	}
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
			case t.state != accepting:
			case err != nil:
				if nd.StatusOf(err) == nd.ConnectionRefused {
					t.rejected()
				}
				t.end(nd.StatusOf(err), err.Error())
			default:
				ready()
			}
		})
	})
}

// start lets requests pass.
func (t *tunnel) start() {
	t.change(completes)
	t.watch()
}

// open handles Open: a process of the other host asks for a connection.
func (l *link) open(f *frame.Frame) error {
	var request frame.Connect
	if err := request.Decode(f.Payload); err != nil {
		return err
	}
	r := l.relay
	from, ok1 := endpoint.HostOf(request.From.Addr())
	to, ok2 := endpoint.HostOf(request.To.Addr())
	if !ok1 || !ok2 || from != int(l.session.Host) || to != r.config.Arena.Host() {
		return errAddress
	}
	t := l.newTunnel(calling)
	if t == nil {
		if len(l.refused) == maxTunnels { // more than the other relay has
			return errTunnel
		}
		l.refused = append(l.refused, request.Tunnel)
		return nil
	}
	t.remote = request.Tunnel
	err := t.setUp(r.ctx)
	if err == nil {
		t.connector, err = r.adapter.CreateConnector(r.ctx)
	}
	if err == nil {
		err = t.connector.Bind(request.From)
	}
	if err != nil {
		t.refuseOpen(0, nil)
		return nil
	}
	params := nd.ConnectParams{InboundReadLimit: int(request.ReadsIn), OutboundReadLimit: int(request.ReadsOut), PrivateData: append([]byte(nil), request.Private...)}
	c := t.connector
	ctx, stop := context.WithCancel(r.ctx)
	t.stop = stop
	r.calls.Go(func() {
		err := c.Connect(ctx, t.ep, request.To, params)
		r.do(func() { t.answered(err) })
	})
	return nil
}

// answered handles the answer of the local process to a request of the other host.
func (t *tunnel) answered(err error) {
	if t.state != calling {
		return
	}
	private := make([]byte, frame.MaxPrivateData)
	n, _ := t.connector.GetPrivateData(private)
	var inbound, outbound int
	if err == nil {
		inbound, outbound, err = t.connector.ReadLimits()
	}
	if err != nil {
		t.refuseOpen(nd.StatusOf(err), private[:n])
		return
	}
	t.change(accepts)
	accept := frame.Connect{Tunnel: t.number, ReadsIn: uint16(outbound), ReadsOut: uint16(inbound), Private: private[:n]}
	t.post(note{kind: frame.Accept, payload: accept.Append(nil)})
}

// refuseOpen refuses a request of the other host. Connect returns nd.HostUnreachable there if that is the status or this relay
// leaves, and else nd.ConnectionRefused. Neither side knows the tunnel afterwards.
func (t *tunnel) refuseOpen(status nd.Status, private []byte) {
	switch {
	case t.link.relay.ctx.Err() != nil: // this relay leaves, which has ended the call
		status = nd.HostUnreachable
	case status != nd.HostUnreachable:
		status = 0
	}
	t.post(note{kind: frame.Refuse, status: status, payload: private})
	t.change(refuses)
}

// established handles Established: the process of the other host has completed its Connect.
func (t *tunnel) established() error {
	switch t.state {
	case offered:
	case ended:
		return nil
	default:
		return errTunnel
	}
	if err := t.connector.CompleteConnect(t.link.relay.ctx); err != nil {
		t.end(nd.StatusOf(err), err.Error())
		return nil
	}
	t.start()
	return nil
}
