package relay

import (
	"errors"
	"slices"

	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/relay/internal/frame"
)

// Collective calls over several hosts. The leader of each host makes a call at its relay, which passes it to the other relays. When a
// relay has the call of each host, and each other relay has that of its own host, its leader gets the answer. So no call is on its way
// when a relay ends.

// maxAhead is how many calls of another host may have arrived that the leader here has not made: the next, one more, and the
// failure of that host.
const maxAhead = 3

var (
	errCall  = errors.New("a collective call out of order")
	errAhead = errors.New("more collective calls than agreed")
)

// call is a collective call of one host.
type call struct {
	kind   relayclient.CallKind
	status uint32
	length uint64
	pack   []byte // nothing if length is more than a pack may have
}

// collective is the state of the calls of this host.
type collective struct {
	made    uint64            // calls that other relays get
	current *relayclient.Call // without an answer
	packs   [][]byte          // of the current call by host; nil until all have arrived
	failed  bool              // the others know, or will, that this host takes part in no further call
	left    bool              // the leader makes no more
	hosts   [MaxHosts]*hostCalls
}

// hostCalls is the state of the calls of another host.
type hostCalls struct {
	begun   uint64 // calls of which a part has arrived
	part    *call  // the last of them, while it has not arrived completely
	got     uint64 // bytes of it
	arrived []call // that the leader here has not made
	acked   uint64 // calls of this host that have arrived there
	gone    bool   // the host takes part in no further call
}

// callFrame is a frame that waits for room on the link, with the bytes that are still to be sent.
type callFrame struct {
	frame frame.Frame
	rest  []byte
}

// Call makes a collective call for the leader of this host. Config.Answer is called with the answer.
func (r *Relay) Call(c relayclient.Call) { r.do(func() { r.makeCall(c) }) }

// EndCalls says that the leader of this host makes no more calls.
func (r *Relay) EndCalls() {
	r.do(func() {
		r.collective.left, r.collective.current = true, nil
		r.toAllHosts(callFrame{frame: frame.Frame{Kind: frame.Leave}})
	})
}

func (r *Relay) makeCall(c relayclient.Call) {
	s := &r.collective
	switch c.Kind {
	case relayclient.Exchange:
	case relayclient.Barrier:
		c.Pack = nil
	case relayclient.Failed:
		c.Pack = c.Pack[:min(len(c.Pack), relayclient.MaxReason)]
	default:
		return
	}
	if c.Kind != relayclient.Failed {
		c.Status = 0
	}
	s.current, s.packs = &c, nil
	if s.failed { // said once is enough
		r.matchCalls()
		return
	}
	s.made++
	s.failed = c.Kind == relayclient.Failed
	r.toAllHosts(callFrame{frame.Frame{Kind: frame.Call, Request: s.made, Address: uint64(len(c.Pack)), Token: uint32(c.Kind), Status: c.Status}, c.Pack})
	r.matchCalls()
}

func (r *Relay) toAllHosts(f callFrame) {
	for _, l := range r.links {
		l.unsaid = append(l.unsaid, f)
	}
}

// matchCalls answers the current call, if that is possible by now.
func (r *Relay) matchCalls() {
	s := &r.collective
	c := s.current
	if c == nil || !s.failed && s.packs == nil && !r.meet(c) {
		return
	}
	for _, h := range s.hosts {
		if h != nil && !h.gone && h.acked < s.made {
			return
		}
	}
	r.answer(relayclient.Answer{Outcome: relayclient.Met, Packs: s.packs})
}

// meet reports whether the call of each host has arrived, and takes them then. If they do not match, or one of them cannot
// arrive, it answers.
func (r *Relay) meet(c *relayclient.Call) bool {
	s, all := &r.collective, true
	for host, h := range s.hosts {
		switch {
		case h == nil:
		case len(h.arrived) == 0 && h.gone:
			r.answer(relayclient.Answer{Outcome: relayclient.Lost, Host: uint16(host)})
			return false
		case len(h.arrived) == 0:
			all = false
		case h.arrived[0].kind == relayclient.Failed:
			r.answer(relayclient.Answer{Outcome: relayclient.FailedAt, Host: uint16(host), Status: h.arrived[0].status, Bytes: h.arrived[0].pack})
			return false
		}
	}
	if !all {
		return false
	}
	own := r.config.Arena.Host()
	packs := make([][]byte, own+1)
	packs[own] = c.Pack
	for host, h := range s.hosts {
		if h == nil {
			continue
		}
		theirs := h.arrived[0]
		h.arrived = slices.Delete(h.arrived, 0, 1)
		switch {
		case theirs.kind != c.Kind:
			r.answer(relayclient.Answer{Outcome: relayclient.AnotherCall, Host: uint16(host), Status: uint32(theirs.kind)})
			return false
		case theirs.length > r.config.Pack:
			r.answer(relayclient.Answer{Outcome: relayclient.TooLong, Host: uint16(host)})
			return false
		}
		for len(packs) <= host {
			packs = append(packs, nil)
		}
		packs[host] = theirs.pack
	}
	s.packs = packs
	total := uint64(0)
	for _, p := range packs {
		total += uint64(len(p))
	}
	if total > r.config.Pack+numberSize*MaxHosts { // more than the leaders take: the numbers of bytes suffice for that error
		for host, p := range packs {
			packs[host] = slices.Clone(p[:min(len(p), numberSize)])
		}
	}
	return true
}

// numberSize is the length of the first part of the pack of an Exchange, which is the number of bytes of its blobs.
const numberSize = 8

func (r *Relay) answer(a relayclient.Answer) {
	a.Number = r.collective.current.Number
	r.collective.current, r.collective.packs = nil, nil
	r.config.Answer(a)
}

// stepCalls sends parts of calls, in turn with the requests of tunnels.
func (l *link) stepCalls() (worked bool) {
	for n := 0; n < framesATurn && len(l.unsaid) > 0 && l.hasRoom(); n++ {
		u := &l.unsaid[0]
		f, part := u.frame, u.rest[:min(len(u.rest), frame.MaxPart)]
		u.rest = u.rest[len(part):]
		if len(u.rest) == 0 {
			l.unsaid = slices.Delete(l.unsaid, 0, 1)
		}
		l.send(&f, part)
		worked = true
	}
	return worked
}

// calls is the state of the calls of the other host.
func (l *link) calls() *hostCalls { return l.relay.collective.hosts[l.session.Host] }

// called handles Call.
func (l *link) called(f *frame.Frame) error {
	h, r := l.calls(), l.relay
	if h.part == nil {
		if err := h.begin(f); err != nil {
			return err
		}
	}
	p := h.part
	if h.gone || f.Request != h.begun || f.Address != p.length || f.Token != uint32(p.kind) || f.Status != p.status ||
		uint64(len(f.Payload)) > p.length-h.got || len(f.Payload) == 0 && p.length > 0 {
		return errCall
	}
	h.got += uint64(len(f.Payload))
	if p.length <= max(r.config.Pack, relayclient.MaxReason) {
		p.pack = append(p.pack, f.Payload...)
	}
	if h.got < p.length {
		return nil
	}
	h.part = nil
	if r.collective.left { // no host waits for this one
		return nil
	}
	h.arrived = append(h.arrived, *p)
	l.unsaid = append(l.unsaid, callFrame{frame: frame.Frame{Kind: frame.Called, Request: f.Request}})
	r.matchCalls()
	return nil
}

// begin handles the first part of a call.
func (h *hostCalls) begin(f *frame.Frame) error {
	kind := relayclient.CallKind(f.Token)
	switch {
	case len(h.arrived) == maxAhead:
		return errAhead
	case f.Request != h.begun+1:
		return errCall
	case kind == relayclient.Exchange && f.Status == 0:
	case kind == relayclient.Barrier && f.Status == 0 && f.Address == 0:
	case kind == relayclient.Failed && f.Address <= relayclient.MaxReason:
	default:
		return errCall
	}
	h.begun++
	h.part, h.got = &call{kind: kind, status: f.Status, length: f.Address}, 0
	return nil
}

// acknowledged handles Called.
func (l *link) acknowledged(f *frame.Frame) error {
	h := l.calls()
	if f.Request != h.acked+1 || f.Request > l.relay.collective.made {
		return errCall
	}
	h.acked++
	l.relay.matchCalls()
	return nil
}

// endCalls marks the other host as one that takes part in no further call.
func (l *link) endCalls() {
	l.calls().gone = true
	l.relay.matchCalls()
}
