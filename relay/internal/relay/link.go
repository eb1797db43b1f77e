package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/ofi"
)

// link is the exchange of frames with one other relay.
type link struct {
	relay      *Relay
	session    *handshake.Session
	conn       net.Conn    // control connection: its end is that of the link
	forget     func() bool // ends the wait for the end of the relay
	peer       ofi.Peer
	hasPeer    bool
	credits    credits
	failed     error
	broken     error // a frame could not be sent: the control connection says why, or checkAlive ends the link
	hello      hello
	linked     bool      // Config.Linked has been called
	ready      bool      // the other relay knows the session: it would drop a frame before
	heard      time.Time // when the last frame arrived; exact to the checks
	doomed     bool      // a check has found it broken
	silent     bool      // no frame has arrived since the last check
	pings      uint64
	pong       uint64             // number of a Ping to be answered; 0 = none
	sent       uint32             // frames so far
	handled    uint32             // frames of the other relay so far
	early      [linkWindow]*early // frames that have arrived before others, by the rest of their numbers
	unsent     []unsent           // messages that the provider could not take
	unsaid     []callFrame        // of collective calls
	callsFirst bool
	refused    []uint32 // tunnels of the other relay for which there is none here
	tunnels    []*tunnel
	turn       int // tunnel that is served next
}

type unsent struct{ buffer, n int }

// hello is the state of the first frame of a link. The first connection of the provider may break, such as on a path whose route has
// just changed, and take the Hello with it. While no other frame has been sent, the Hello is sent again.
type hello struct {
	failures int
	cause    error     // of the last failure; nil if the Hello need not be sent again
	at       time.Time // of the next attempt
}

const (
	maxHellos  = 5 // attempts
	helloPause = 100 * time.Millisecond
)

// early is a frame that has arrived before one that was sent earlier.
type early struct {
	buffer int
	frame  frame.Frame
}

// Errors of a link.
var (
	errCredits = errors.New("more frames or credits than agreed")
	errTunnel  = errors.New("a tunnel that does not exist, or not in this state")
	errAddress = errors.New("an address that is not one of these two hosts")
	errOrder   = errors.New("a request out of order")
	errRoom    = errors.New("more bytes than agreed")
	errLeft    = errors.New("all processes of that host have ended")
)

// Link adds a link to another relay, with which the handshake on conn has succeeded. conn belongs to the relay then.
func (r *Relay) Link(conn net.Conn, session *handshake.Session) {
	forget := context.AfterFunc(r.ctx, func() { leave(conn) })
	r.do(func() { r.addLink(conn, session, forget) })
}

func (r *Relay) addLink(conn net.Conn, session *handshake.Session, forget func() bool) {
	l := &link{relay: r, session: session, conn: conn, forget: forget, credits: newCredits(linkWindow), heard: time.Now()}
	if session.Host >= MaxHosts {
		l.fail(fmt.Errorf("host %d of at most %d", session.Host, MaxHosts))
		return
	}
	if len(r.links) == maxLinks {
		l.fail(fmt.Errorf("%d links, the maximum", maxLinks))
		return
	}
	var err error
	if l.peer, err = r.ofi.AddPeer(session.Address); err != nil {
		l.fail(err)
		return
	}
	l.hasPeer = true
	r.links[session.Inbound] = l
	r.collective.hosts[session.Host] = new(hostCalls)
	if err = r.ofi.PostReceives(len(r.links) * linkWindow); err != nil {
		l.fail(err)
		return
	}
	if _, err = conn.Write([]byte{knowsSession}); err != nil {
		l.fail(fmt.Errorf("control connection: %w", err))
		return
	}
	r.calls.Go(func() { l.readControl() })
}

// Bytes on a control connection after the handshake.
const (
	knowsSession = 1 // the relay knows the session number of the frames that will arrive
	leaves       = 2 // the relay ends, because the processes of its host have ended
)

// leave tells another relay that this one ends.
func leave(conn net.Conn) {
	_, _ = conn.Write([]byte{leaves})
	conn.Close()
}

// readControl reads the control connection until it ends, and the link with it.
func (l *link) readControl() {
	var b [1]byte
	_, err := io.ReadFull(l.conn, b[:])
	if err == nil && b[0] == knowsSession {
		l.relay.do(l.begun)
		_, err = io.ReadFull(l.conn, b[:])
	}
	switch {
	case err != nil:
		err = fmt.Errorf("control connection: %w", err)
	case b[0] == leaves:
		err = errLeft
	default:
		err = fmt.Errorf("control connection: unexpected byte %d", b[0])
	}
	l.relay.do(func() {
		if l.broken != nil && !errors.Is(err, errLeft) {
			err = l.broken // which came first
		}
		l.fail(err)
	})
}

// begun allows frames, because the other relay knows the session.
func (l *link) begun() {
	if l.failed != nil {
		return
	}
	l.ready = true
	if l.hasRoom() {
		l.send(&frame.Frame{Kind: frame.Hello}, nil)
	}
	l.announce()
}

// announce calls Config.Linked when frames may be sent and the first one has arrived: the control connection alone says
// nothing about the provider.
func (l *link) announce() {
	if !l.linked && l.ready && l.handled > 0 {
		l.linked = true
		l.relay.config.Linked(l.session.Host, nil)
	}
}

// fail ends the link and all its tunnels.
func (l *link) fail(err error) {
	if l.failed != nil {
		return
	}
	l.failed, l.relay.lost = err, true
	delete(l.relay.links, l.session.Inbound)
	l.conn.Close()
	l.relay.config.Linked(l.session.Host, err)
	if !errors.Is(err, errLeft) && l.relay.ctx.Err() == nil {
		l.relay.config.Logf("link to host %d: %v", l.session.Host, err)
	}
	for _, t := range l.tunnels {
		t.end(nd.ConnectionAborted, fmt.Sprintf("the link to host %d has failed: %v", l.session.Host, err))
		t.release()
	}
	l.tunnels = nil
	for _, u := range l.unsent {
		l.relay.ofi.FreeBuffer(u.buffer)
	}
	l.unsent, l.unsaid = nil, nil
	for _, e := range l.early {
		if e != nil {
			l.relay.ofiFailed(l.relay.ofi.Repost(e.buffer))
		}
	}
	l.forget()
	if l.hasPeer {
		l.endCalls()
		if err := l.relay.ofi.RemovePeer(l.peer); err != nil {
			l.relay.config.Logf("link to host %d: %v", l.session.Host, err)
		}
	}
}

// hasRoom reports whether a frame can be sent now.
func (l *link) hasRoom() bool { return l.credits.canSend() && l.hasBuffer() }

// hasBuffer reports whether a frame can be sent, if the credits allow it.
func (l *link) hasBuffer() bool {
	return l.ready && l.failed == nil && l.broken == nil && l.hello.cause == nil && len(l.unsent) == 0 && l.relay.ofi.FreeBuffers() > 0
}

// begin takes a buffer for a frame; send does the rest of what hasRoom has allowed.
func (l *link) begin() (buffer int, payload []byte) {
	buffer, _ = l.relay.ofi.TakeBuffer()
	l.relay.senders[buffer] = l
	return buffer, l.relay.ofi.Bytes(buffer)[frame.HeaderSize:]
}

// commit sends a frame whose payload is in its buffer already.
func (l *link) commit(buffer int, f *frame.Frame, length int) {
	f.Session, f.Credits, f.Order = l.session.Outbound, l.credits.sent(), l.sent
	l.sent++
	l.transmit(unsent{buffer, f.Put(l.relay.ofi.Bytes(buffer), length)})
}

// send sends a frame. hasRoom has allowed it.
func (l *link) send(f *frame.Frame, payload []byte) {
	buffer, to := l.begin()
	l.commit(buffer, f, copy(to, payload))
}

func (l *link) transmit(u unsent) {
	switch err := l.relay.ofi.Send(l.peer, u.buffer, u.n); {
	case errors.Is(err, ofi.ErrBusy):
		l.unsent = append(l.unsent, u)
	case err != nil:
		l.relay.ofi.FreeBuffer(u.buffer)
		l.frameFailed(err)
	}
}

// frameFailed handles the failure of a frame, or of the connection of the provider to the other relay.
func (l *link) frameFailed(err error) {
	if l.sent != 1 || l.hello.failures+1 >= maxHellos || l.failed != nil {
		l.sendFailed(err)
		return
	}
	if l.hello.cause == nil {
		l.hello.failures++
	}
	l.hello.cause, l.hello.at = err, time.Now().Add(helloPause)
}

// sayHelloAgain sends the Hello again if it is time. The other relay ignores it if the first one has arrived.
func (l *link) sayHelloAgain() (worked bool) {
	if l.hello.cause == nil || l.failed != nil || l.relay.ofi.FreeBuffers() == 0 || time.Now().Before(l.hello.at) {
		return false
	}
	l.hello.cause = nil
	buffer, _ := l.begin()
	l.transmit(unsent{buffer, (&frame.Frame{Kind: frame.Hello, Session: l.session.Outbound}).Put(l.relay.ofi.Bytes(buffer), 0)})
	return true
}

// sendFailed ends the exchange of frames. The other relay may have left and said so on the control connection, which has not
// been read yet.
func (l *link) sendFailed(err error) {
	if l.broken == nil {
		l.broken = err
	}
}

// arrive handles a frame in a receive buffer, and then those that have waited for it. It reports whether the buffer is in use
// afterwards.
func (l *link) arrive(f *frame.Frame, buffer int) (kept bool, err error) {
	if f.Kind == frame.Hello && f.Order == 0 && l.handled > 0 {
		return false, nil // said again
	}
	if ahead := f.Order - l.handled; ahead != 0 {
		at := &l.early[f.Order%linkWindow]
		if ahead >= linkWindow || *at != nil {
			return false, errCredits
		}
		*at = &early{buffer, *f}
		return true, nil
	}
	l.handled++
	err = l.handle(f)
	for err == nil && l.failed == nil {
		at := &l.early[l.handled%linkWindow]
		e := *at
		if e == nil {
			break
		}
		*at = nil
		l.handled++
		err = l.handle(&e.frame)
		l.relay.ofiFailed(l.relay.ofi.Repost(e.buffer))
	}
	return false, err
}

// handle handles a frame of the other relay. An error means that no correct relay sends it.
func (l *link) handle(f *frame.Frame) error {
	l.silent = false
	if !l.linked {
		l.announce()
	}
	if !l.credits.received(f.Credits) {
		return errCredits
	}
	switch f.Kind {
	case frame.Hello, frame.Credit, frame.Pong:
		return nil
	case frame.Ping:
		l.pong = f.Request
		return nil
	case frame.Open:
		return l.open(f)
	case frame.Withdraw:
		l.withdrawn(f.Request)
		return nil
	case frame.Call:
		return l.called(f)
	case frame.Called:
		return l.acknowledged(f)
	case frame.Leave:
		l.endCalls()
		return nil
	}
	if f.Tunnel > maxTunnels {
		return errTunnel
	}
	t := l.relay.tunnels[f.Tunnel-1]
	if t == nil || t.link != l {
		return errTunnel
	}
	return t.handle(f)
}

// step sends what can be sent, and reports whether it has sent anything.
func (l *link) step() (worked bool) {
	worked = l.sayHelloAgain()
	for len(l.unsent) > 0 && l.failed == nil {
		u := l.unsent[0]
		l.unsent = l.unsent[:copy(l.unsent, l.unsent[1:])]
		before := len(l.unsent)
		if l.transmit(u); len(l.unsent) > before { // appended again: there is one, and the order is kept because nothing else is sent
			copy(l.unsent[1:], l.unsent[:before])
			l.unsent[0] = u
			return worked
		}
		worked = true
	}
	if l.pong != 0 && l.hasRoom() {
		l.send(&frame.Frame{Kind: frame.Pong, Request: l.pong}, nil)
		l.pong, worked = 0, true
	}
	for len(l.refused) > 0 && l.hasRoom() {
		l.send(&frame.Frame{Kind: frame.Refuse, Tunnel: l.refused[0]}, nil)
		l.refused, worked = l.refused[1:], true
	}
	if l.callsFirst = !l.callsFirst; l.callsFirst { // in turn, because each takes what the link has room for
		worked = l.stepCalls() || worked
		worked = l.stepTunnels() || worked
	} else {
		worked = l.stepTunnels() || worked
		worked = l.stepCalls() || worked
	}
	l.dropEnded()
	if l.credits.mustReturn() && l.hasBuffer() {
		l.send(&frame.Frame{Kind: frame.Credit}, nil)
		worked = true
	}
	return worked
}

// stepTunnels lets the tunnels send, one after the other, until the link has no more room. The next step goes on with the next
// tunnel. So a tunnel waits at most for one turn of each other one, and can send at least one frame in its own.
func (l *link) stepTunnels() (worked bool) {
	for range l.tunnels {
		if !l.hasRoom() {
			break
		}
		if l.turn >= len(l.tunnels) {
			l.turn = 0
		}
		t := l.tunnels[l.turn]
		l.turn++
		worked = t.step() || worked
	}
	return worked || l.failed != nil
}

// dropEnded removes the tunnels that have ended.
func (l *link) dropEnded() {
	kept, turn := l.tunnels[:0], l.turn
	for i, t := range l.tunnels {
		if t.isOver() {
			t.release()
			if i < turn {
				l.turn--
			}
			continue
		}
		kept = append(kept, t)
	}
	clear(l.tunnels[len(kept):])
	l.tunnels = kept
}

// checkAlive ends the link if the other relay is silent.
func (l *link) checkAlive(now time.Time) {
	if l.broken != nil && l.doomed {
		l.fail(l.broken)
		return
	}
	l.doomed = l.broken != nil
	if !l.silent {
		l.heard, l.silent = now, true
		return
	}
	if limit := l.relay.config.Keepalive; now.Sub(l.heard) > limit {
		l.fail(fmt.Errorf("no frame for %v", limit))
		return
	}
	if l.hasRoom() {
		l.pings++
		l.send(&frame.Frame{Kind: frame.Ping, Request: l.pings}, nil)
	}
}
