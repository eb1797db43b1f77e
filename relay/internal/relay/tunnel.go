package relay

import (
	"context"

	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// tunnel is this relay's end of a connection that it carries: a connection to a local process, and a number at each of
// two relays.
//
// A tunnel ends with an Abort in each direction. After that no frame for it is on the way, and its number is free.
type tunnel struct {
	link   *link
	number uint32 // here
	id     uint64 // of all tunnels that had or have the number
	remote uint32 // at the other relay; 0 = not known yet

	ep        relayhook.Endpoint
	connector nd.Connector
	stop      context.CancelFunc // ends calls of the connector

	state      tunnelState
	localEnded bool   // the local connection has ended
	outbox     []note // frames without data, to be sent before others

	out outbound
	in  inbound
}

// note is a frame that waits for room on the link.
type note struct {
	kind    frame.Kind
	request uint64
	status  nd.Status
	payload []byte
}

// newTunnel adds a tunnel to the link. It returns nil if there are too many.
func (l *link) newTunnel(s tunnelState) *tunnel {
	for i, other := range &l.relay.tunnels {
		if other == nil {
			l.relay.made++
			t := &tunnel{link: l, number: uint32(i + 1), id: l.relay.made*maxTunnels + uint64(i), state: s, stop: func() {}}
			t.out.limit, t.in.room = smallRoom, newRoom()
			l.relay.tunnels[i] = t
			l.tunnels = append(l.tunnels, t)
			return t
		}
	}
	return nil
}

// setUp creates the endpoint of a tunnel.
func (t *tunnel) setUp(ctx context.Context) error {
	r := t.link.relay
	ep, err := r.adapter.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: r.unused, InitiatorCQ: r.results, InitiatorDepth: tunnelDepth, ReceiveDepth: 1,
		Context: t.id})
	if err != nil {
		return err
	}
	t.ep = ep.(relayhook.Endpoint)
	return nil
}

// watch makes the tunnel notice the end of the local connection.
func (t *tunnel) watch() {
	r, ep := t.link.relay, t.ep
	r.calls.Go(func() {
		select {
		case <-ep.Done():
			r.do(func() { t.localEnded = true })
		case <-r.ctx.Done():
		}
	})
}

// passOnEnd tells the other relay that the local connection has ended. After an end by force it first waits for the results
// of all requests: one of them may be the cause.
func (t *tunnel) passOnEnd() {
	err := t.ep.Err()
	if nd.StatusOf(err) == nd.ConnectionDisconnected {
		if t.state == open { // else disconnect waits for the local process, or the other relay knows
			t.tellDisconnect()
		}
		return
	}
	if !t.in.isSettled() {
		return
	}
	why := "the connection has ended"
	if err != nil {
		why = err.Error()
	}
	t.end(nd.ConnectionAborted, why)
}

// tellDisconnect passes on that the local process has disconnected gracefully.
func (t *tunnel) tellDisconnect() {
	t.change(disconnects)
	t.post(note{kind: frame.Disconnect})
}

// peerDisconnected handles Disconnect.
func (t *tunnel) peerDisconnected() error {
	switch t.state {
	case open:
		t.disconnect()
	case disconnected:
		t.acknowledgeDisconnect()
	default:
		return errTunnel
	}
	t.change(peerDisconnects)
	return nil
}

// disconnect ends the local connection gracefully, because the other process has done so.
func (t *tunnel) disconnect() {
	r, c := t.link.relay, t.connector
	r.calls.Go(func() {
		err := c.Disconnect(r.ctx)
		r.do(func() {
			switch {
			case t.state != told:
			case err != nil:
				t.end(nd.StatusOf(err), err.Error())
			default:
				t.tellDisconnect() // the other relay ends the tunnel when its process knows
			}
		})
	})
}

// end ends the local connection, and tells the other relay.
func (t *tunnel) end(status nd.Status, why string) {
	if t.hasEnded() {
		return
	}
	t.change(ends)
	t.stop()
	if t.ep != nil {
		t.ep.Abort(why)
	}
	if t.remote != 0 {
		t.post(note{kind: frame.Abort, status: status, payload: text(why)})
	}
}

// text returns the payload of a frame for a text.
func text(why string) []byte { return []byte(why[:min(len(why), frame.MaxText)]) }

// isOver reports whether the other relay has ended the tunnel too, and everything is sent.
func (t *tunnel) isOver() bool { return t.state == over && len(t.outbox) == 0 }

// release frees the objects of a tunnel that has ended.
func (t *tunnel) release() {
	r := t.link.relay
	r.tunnels[t.number-1] = nil
	if t.in.room.size == largeRoom {
		r.enlarged--
	}
	ep, connector, isUnanswered := t.ep, t.connector, t.remote == 0
	r.calls.Go(func() { // these calls may wait for a copy of the local process
		if ep != nil {
			_ = ep.Close()
		}
		if connector != nil {
			if isUnanswered { // the link has ended, or the process has its answer already
				_ = connector.(relayhook.Connector).RejectUnreachable()
			}
			_ = connector.Close()
		}
	})
}

func (t *tunnel) post(n note) { t.outbox = append(t.outbox, n) }

// step sends the frames that the tunnel has to send. It reports whether it has sent any.
func (t *tunnel) step() (worked bool) {
	l := t.link
	if t.state == asked && !t.connector.(relayhook.Connector).IsWanted() {
		t.withdraw()
	}
	if t.state.carries() {
		worked = t.answer()
	}
	if t.state.carries() && t.localEnded {
		t.passOnEnd()
	}
	for len(t.outbox) > 0 && l.hasRoom() {
		n := t.outbox[0]
		t.outbox = t.outbox[:copy(t.outbox, t.outbox[1:])]
		tunnel := t.remote
		if n.kind == frame.Open || n.kind == frame.Withdraw { // Accept may have come while a Withdraw waited
			tunnel = 0
		}
		l.send(&frame.Frame{Kind: n.kind, Tunnel: tunnel, Request: n.request, Status: uint32(n.status)}, n.payload)
		worked = true
	}
	if t.state.carries() && len(t.outbox) == 0 {
		worked = t.forward() || worked
	}
	return worked
}

// handle handles a frame of the other relay.
func (t *tunnel) handle(f *frame.Frame) error {
	switch f.Kind {
	case frame.Refuse:
		if t.remote != 0 {
			return t.peerRejects(f.Payload)
		}
		return t.opened(f)
	case frame.Accept:
		return t.opened(f)
	case frame.Abort:
		if t.remote == 0 || t.state == over || t.state == lastAnswer {
			return errTunnel
		}
		if t.state != answering { // else the tunnel ends when the local process has its answer
			t.end(nd.ConnectionAborted, string(f.Payload))
		}
		t.change(peerEnds)
		return nil
	case frame.Established:
		return t.established()
	}
	switch {
	case t.state == ended && t.remote != 0:
		return nil // the other relay did not know yet
	case !t.state.carries() || t.state == lastAnswer:
		return errTunnel
	}
	if f.Done != 0 {
		if err := t.done(t.out.done + uint64(f.Done)); err != nil || t.hasEnded() {
			return err
		}
	}
	switch f.Kind {
	case frame.Disconnect:
		return t.peerDisconnected()
	case frame.Send, frame.Write, frame.Read, frame.Atomic:
		return t.accept(f)
	case frame.Data:
		return t.store(f)
	case frame.Done:
		return t.done(f.Request)
	case frame.Room:
		return t.enlarge(f.Request)
	}
	return t.fail(f)
}

// acknowledgeDisconnect completes a graceful end that the local process has begun.
func (t *tunnel) acknowledgeDisconnect() {
	r, c := t.link.relay, t.connector
	r.calls.Go(func() {
		err := c.Disconnect(r.ctx)
		r.do(func() {
			why := "disconnected"
			if err != nil {
				why = err.Error()
			}
			t.end(nd.ConnectionDisconnected, why)
		})
	})
}
