package endpoint

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/softnd/softnd/nd"
)

// TestReasonReachesPeer ends connections in several ways: the error of each side contains the reason.
func TestReasonReachesPeer(t *testing.T) {
	for name, c := range map[string]struct {
		end       func(p *pair)
		own, told string // in the errors of the two sides
	}{
		"flush":            {func(p *pair) { p.a.must(order{Do: doFlush}) }, "the endpoint was flushed", "(flush: the endpoint was flushed)"},
		"closed connector": {func(p *pair) { p.a.must(order{Do: doCloseLink}) }, "the connector was closed", "(close: the connector was closed)"},
		"no receive":       {func(p *pair) { p.a.must(order{Do: doSend}) }, "has no receive posted", "has no receive posted)"},
		"overrun": {func(p *pair) {
			for range 9 {
				p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
			}
			p.a.refuse(nd.InternalError, order{Do: doWhy})
		}, "the initiator completion queue overran and lost results (it holds 8)", "the initiator completion queue overran and lost results (it holds 8))"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, processes := range []bool{false, true} {
				t.Run(fmt.Sprintf("processes=%v", processes), func(t *testing.T) {
					p := newPair(t, setup{Processes: processes, Both: sideOptions{QueueDepth: 4, Options: Options{ReceiveTimeout: AtOnce}}})
					c.end(p)
					p.b.must(order{Do: doNotify})
					for side, want := range map[*side]string{p.a: c.own, p.b: c.told} {
						if got := side.do(order{Do: doWhy}).Text; !strings.Contains(got, want) {
							t.Errorf("%s says %q, want %q", side.name, got, want)
						}
					}
					p.b.refuse(nd.ConnectionAborted, order{Do: doWhy})
				})
			}
		})
	}
}

// TestFailedResultHasCause takes the first failed result at either side: Endpoint.Err returns the cause at once.
func TestFailedResultHasCause(t *testing.T) {
	t.Parallel()
	for _, executors := range [][2]Executor{{Auto, Auto}, {Target, Target}} {
		for i := range 50 {
			p := newPair(t, setup{Executors: executors})
			a, b := p.a, p.b
			p.a.must(order{Do: doReceive, Context: 1})
			p.b.must(order{Do: doReceive, Context: 2, Parts: mine(0, 100)})
			p.a.must(order{Do: doSend, Context: 3, Parts: mine(0, 200)})
			for s, queues := range map[*side][]queue{a: {initiatorQueue, receiveQueue}, b: {receiveQueue}} {
				for _, q := range queues {
					var r [1]nd.Result
					if _, err := s.queues[q].Wait(t.Context(), r[:]); err != nil {
						t.Fatal(err)
					}
					err := nd.Explain(s.endpointAt(0), r[0])
					if !errors.Is(err, r[0].Status) || !strings.Contains(err.Error(), "a message of 200 bytes for a receive of 100") {
						t.Fatalf("trial %d: %v has the error %v", i, r[0].RequestType, err)
					}
				}
			}
			if err := b.endpointAt(0).Err(); !errors.Is(err, nd.BufferOverflow) {
				t.Errorf("trial %d: the receive failed, and Err is %v", i, err)
			}
		}
	}
}

// TestReasonOfFaultyPeerIsSanitized stores invalid text as the reason: the reader survives, and prints no control characters.
func TestReasonOfFaultyPeerIsSanitized(t *testing.T) {
	p := newPair(t, setup{})
	attacker, c := p.b.endpointAt(0).(*queuePair).localQP, p.a.endpointAt(0).(*queuePair).conn
	for i := range attacker.Reason {
		attacker.Reason[i] = byte(i)
	}
	for length, want := range map[uint32]int{0: 0, 5: 5, uint32(len(attacker.Reason)): len(attacker.Reason), 1 << 31: len(attacker.Reason), ^uint32(0): len(attacker.Reason)} {
		attacker.ReasonLength.Store(length)
		got := c.reason()
		if utf8.RuneCountInString(got) != want || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x07\n\r\x1b\x7f") {
			t.Errorf("%d bytes are shown as %q", length, got)
		}
	}
}
