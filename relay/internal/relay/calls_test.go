package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// answer waits for the answer to the call of a host.
func (h *host) answer(t *testing.T) relayclient.Answer {
	t.Helper()
	return proctest.Receive(t, "the answer of a relay", h.answers)
}

func packsOf(packs ...[]byte) (b []byte) {
	for _, p := range packs {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(p))), p...)
	}
	return b
}

// The leaders of both hosts get the packs of both, whichever of them calls first, and also if one is ahead.
func TestCalls(t *testing.T) {
	a, b := linkedHosts(t)
	hosts := []*host{a, b}
	for round, size := range []int{0, 1, frame.MaxPart, frame.MaxPart + 1, packLimit / 2} {
		first, second := hosts[round%2], hosts[1-round%2]
		call := func(h *host) {
			pack := bytes.Repeat([]byte{byte(10*round + h.arena.Host())}, size)
			h.relay.Call(relayclient.Call{Kind: relayclient.Exchange, Number: uint64(2*round + 1), Pack: pack})
		}
		call(first)
		call(second)
		want := packsOf(bytes.Repeat([]byte{byte(10 * round)}, size), bytes.Repeat([]byte{byte(10*round + 1)}, size))
		if got := first.answer(t); got.Outcome != relayclient.Met || got.Number != uint64(2*round+1) || !bytes.Equal(packsOf(got.Packs...), want) {
			t.Fatalf("%d bytes: outcome %d of call %d with %d packs", size, got.Outcome, got.Number, len(got.Packs))
		}
		first.relay.Call(relayclient.Call{Kind: relayclient.Barrier, Number: uint64(2*round + 2)}) // before the other has its answer
		if got := second.answer(t); got.Outcome != relayclient.Met || !bytes.Equal(packsOf(got.Packs...), want) {
			t.Fatalf("%d bytes: outcome %d with %d packs", size, got.Outcome, len(got.Packs))
		}
		second.relay.Call(relayclient.Call{Kind: relayclient.Barrier, Number: uint64(2*round + 2)})
		for _, h := range hosts {
			if got := h.answer(t); got.Outcome != relayclient.Met || !bytes.Equal(packsOf(got.Packs...), packsOf(nil, nil)) {
				t.Fatalf("barrier: %+v", got)
			}
		}
	}
}

// A call that the other host does not make fails with the reason.
func TestCallsThatDoNotMeet(t *testing.T) {
	barrier := relayclient.Call{Kind: relayclient.Barrier, Number: 1}
	long := relayclient.Call{Kind: relayclient.Exchange, Number: 1, Pack: make([]byte, packLimit+1)}
	failed := relayclient.Call{Kind: relayclient.Failed, Number: 1, Status: uint32(nd.NoMemory), Pack: []byte("no room")}
	for name, c := range map[string]struct {
		call  relayclient.Call
		other func(b *host)
		want  relayclient.Answer
	}{
		"another call":   {barrier, func(b *host) { b.relay.Call(relayclient.Call{Kind: relayclient.Exchange}) }, relayclient.Answer{Outcome: relayclient.AnotherCall, Status: uint32(relayclient.Exchange)}},
		"too long":       {relayclient.Call{Kind: relayclient.Exchange, Number: 1}, func(b *host) { b.relay.Call(long) }, relayclient.Answer{Outcome: relayclient.TooLong}},
		"failed":         {barrier, func(b *host) { b.relay.Call(failed) }, relayclient.Answer{Outcome: relayclient.FailedAt, Status: failed.Status, Bytes: failed.Pack}},
		"leader left":    {barrier, func(b *host) { b.relay.EndCalls() }, relayclient.Answer{Outcome: relayclient.Lost}},
		"relay left":     {barrier, func(b *host) { b.relay.cancel() }, relayclient.Answer{Outcome: relayclient.Lost}},
		"link has ended": {barrier, func(b *host) { _ = b.onLink(func(l *link) error { return l.conn.Close() }) }, relayclient.Answer{Outcome: relayclient.Lost}},
	} {
		for _, order := range []string{"before", "after"} {
			t.Run(name+" "+order, func(t *testing.T) {
				a, b := linkedHosts(t)
				if order == "before" {
					c.other(b)
				}
				a.relay.Call(c.call)
				if order == "after" {
					c.other(b)
				}
				c.want.Host, c.want.Number = 1, 1
				if got := a.answer(t); got.Outcome != c.want.Outcome || got.Host != 1 || got.Status != c.want.Status || got.Number != 1 || !bytes.Equal(got.Bytes, c.want.Bytes) {
					t.Errorf("%+v, want %+v", got, c.want)
				}
			})
		}
	}
}

// linkedHosts returns two hosts whose relays have their link. A leader calls its relay only then.
func linkedHosts(t *testing.T) (a, b *host) {
	t.Helper()
	a, b = newHosts(t, settings{})
	proctest.Eventually(t, "the link is up", func() bool { return a.relay.state().Linked == 1 && b.relay.state().Linked == 1 })
	return a, b
}

// A call that both hosts have made before one of them leaves succeeds, and the next one fails.
func TestLeaveAfterACall(t *testing.T) {
	for range 20 {
		a, b := linkedHosts(t)
		a.relay.Call(relayclient.Call{Kind: relayclient.Barrier, Number: 1})
		b.relay.Call(relayclient.Call{Kind: relayclient.Barrier, Number: 1})
		if got := b.answer(t); got.Outcome != relayclient.Met {
			t.Fatalf("%+v", got)
		}
		b.relay.EndCalls()
		b.relay.cancel()
		if got := a.answer(t); got.Outcome != relayclient.Met {
			t.Fatalf("%+v", got)
		}
		a.relay.Call(relayclient.Call{Kind: relayclient.Barrier, Number: 2})
		if got := a.answer(t); got.Outcome != relayclient.Lost || got.Number != 2 {
			t.Fatalf("%+v", got)
		}
	}
}

// A leader gets its answer when the other relays have its call: it may leave then, and its relay with it.
func TestAnswerWaitsForOthers(t *testing.T) {
	a, b := linkedHosts(t)
	b.relay.Call(relayclient.Call{Kind: relayclient.Barrier})
	proctest.Eventually(t, "the call of host 1 has arrived", func() bool {
		return a.onLink(func(l *link) error {
			if len(l.calls().arrived) == 0 {
				return errCall
			}
			return nil
		}) == nil
	})
	goOn := make(chan struct{})
	b.relay.do(func() { <-goOn })
	a.relay.Call(relayclient.Call{Kind: relayclient.Barrier})
	select {
	case got := <-a.answers:
		t.Errorf("before the other relay has the call: %+v", got)
	case <-time.After(100 * time.Millisecond):
	}
	close(goOn)
	if got := a.answer(t); got.Outcome != relayclient.Met {
		t.Errorf("%+v", got)
	}
}

// A relay that breaks the rules of calls loses the link.
func TestLiesInCalls(t *testing.T) {
	exchange := frame.Frame{Kind: frame.Call, Request: 1, Token: uint32(relayclient.Exchange), Address: 10, Payload: make([]byte, 5)}
	changed := func(change func(*frame.Frame)) frame.Frame {
		f := exchange
		change(&f)
		return f
	}
	barrier := func(n uint64) frame.Frame {
		return frame.Frame{Kind: frame.Call, Request: n, Token: uint32(relayclient.Barrier)}
	}
	for name, c := range map[string]struct {
		frames []frame.Frame // the last one is a lie
		want   error
	}{
		"number":                   {[]frame.Frame{barrier(2)}, errCall},
		"repeated":                 {[]frame.Frame{barrier(1), barrier(1)}, errCall},
		"kind":                     {[]frame.Frame{changed(func(f *frame.Frame) { f.Token = 4 })}, errCall},
		"no kind":                  {[]frame.Frame{changed(func(f *frame.Frame) { f.Token = 0 })}, errCall},
		"barrier with bytes":       {[]frame.Frame{changed(func(f *frame.Frame) { f.Token = uint32(relayclient.Barrier) })}, errCall},
		"exchange with a status":   {[]frame.Frame{changed(func(f *frame.Frame) { f.Status = 1 })}, errCall},
		"long reason":              {[]frame.Frame{changed(func(f *frame.Frame) { f.Token, f.Address = uint32(relayclient.Failed), relayclient.MaxReason+1 })}, errCall},
		"more bytes than it says":  {[]frame.Frame{changed(func(f *frame.Frame) { f.Address = 4 })}, errCall},
		"more bytes in the end":    {[]frame.Frame{exchange, changed(func(f *frame.Frame) { f.Payload = make([]byte, 6) })}, errCall},
		"a part without bytes":     {[]frame.Frame{exchange, changed(func(f *frame.Frame) { f.Payload = nil })}, errCall},
		"another length":           {[]frame.Frame{exchange, changed(func(f *frame.Frame) { f.Address = 11 })}, errCall},
		"another call within one":  {[]frame.Frame{exchange, barrier(2)}, errCall},
		"too many":                 {[]frame.Frame{barrier(1), barrier(2), barrier(3), barrier(4)}, errAhead},
		"after the end":            {[]frame.Frame{{Kind: frame.Leave}, barrier(1)}, errCall},
		"answer to none":           {[]frame.Frame{{Kind: frame.Called, Request: 1}}, errCall},
		"answer to another number": {[]frame.Frame{{Kind: frame.Called, Request: 0}}, errCall},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := linkedHosts(t)
			err := a.onLink(func(l *link) error { // at once: the other relay drops the link when it gets answers to calls that it has not made
				for i, f := range c.frames {
					err := l.handle(&f)
					if i < len(c.frames)-1 && err != nil || i == len(c.frames)-1 && !errors.Is(err, c.want) {
						t.Errorf("frame %d: %v, want %v at the last", i, err, c.want)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A host that fails twice, as its ranks find one cause after the other, keeps its links.
func TestTwoFailures(t *testing.T) {
	a, b := linkedHosts(t)
	call := func(h *host, kind relayclient.CallKind, n uint64, want relayclient.Outcome) {
		t.Helper()
		h.relay.Call(relayclient.Call{Kind: kind, Number: n})
		if want == 0 {
			return
		}
		if got := h.answer(t); got.Outcome != want || got.Number != n {
			t.Fatalf("call %d: %+v, want outcome %d", n, got, want)
		}
	}
	call(a, relayclient.Barrier, 1, 0) // which its leader gives up
	call(a, relayclient.Failed, 2, relayclient.Met)
	call(b, relayclient.Barrier, 1, relayclient.Met)
	call(b, relayclient.Barrier, 2, relayclient.FailedAt)
	for n := range uint64(5) {
		call(b, relayclient.Failed, 3+n, relayclient.Met)
	}
	if a.relay.state().Linked != 1 || b.relay.state().Linked != 1 {
		t.Error("the link has ended")
	}
}

// When the leader has left, calls of other hosts take no memory.
func TestCallsAfterTheLeader(t *testing.T) {
	a, _ := linkedHosts(t)
	a.relay.EndCalls()
	if err := a.onLink(func(l *link) error {
		before := len(l.unsaid)
		for n := range uint64(1000) {
			if err := l.called(&frame.Frame{Kind: frame.Call, Request: n + 1, Token: uint32(relayclient.Barrier)}); err != nil {
				return err
			}
		}
		if len(l.unsaid) > before || len(l.calls().arrived) > 0 {
			t.Errorf("%d frames and %d calls are kept", len(l.unsaid)-before, len(l.calls().arrived))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// Of packs that are together longer than an Exchange may be, the leaders get the lengths.
func TestPacksOfTooManyBytes(t *testing.T) {
	a, b := linkedHosts(t)
	for _, h := range []*host{a, b} {
		h.relay.Call(relayclient.Call{Kind: relayclient.Exchange, Pack: append([]byte("12345678"), make([]byte, packLimit-8)...)})
	}
	for _, h := range []*host{a, b} {
		if got := h.answer(t); got.Outcome != relayclient.Met || len(got.Packs) != 2 || string(got.Packs[0]) != "12345678" || string(got.Packs[1]) != "12345678" {
			t.Errorf("outcome %d, packs of %d and %d bytes", got.Outcome, len(got.Packs[0]), len(got.Packs[1]))
		}
	}
}
