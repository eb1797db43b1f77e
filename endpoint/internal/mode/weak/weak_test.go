package weak

import (
	"testing"

	"github.com/softnd/softnd/endpoint/internal/mode"
)

func newOrder(seed uint64, slot int) *Order { return New(seed, slot, mode.NoCalls{}) }

func newHook(o *Order, endpoint uint64) *Hook {
	return o.Endpoint(mode.Endpoint{Number: endpoint, Requests: 1}, mode.None{})
}

// Each number has a part in each decision.
func TestWeakOrderDecisions(t *testing.T) {
	first := newOrder(1, 0)
	drawn := map[uint64]string{first.draw(ofStart, 1, 1): "the first"}
	for what, x := range map[string]uint64{
		"seed": newOrder(2, 0).draw(ofStart, 1, 1), "member": newOrder(1, 1).draw(ofStart, 1, 1),
		"kind": first.draw(ofResult, 1, 1), "endpoint": first.draw(ofStart, 2, 1), "request": first.draw(ofStart, 1, 2),
	} {
		if other, ok := drawn[x]; ok {
			t.Errorf("another %s draws the same number as %s", what, other)
		}
		drawn[x] = "another " + what
	}
	if again := newOrder(1, 0).draw(ofStart, 1, 1); drawn[again] != "the first" {
		t.Error("the same numbers draw another one")
	}
}

// sumOfDecisions is the same in c/tests/weak.c, which has the same loops: a rank in C decides as one in Go.
const sumOfDecisions = 0x2f397680bd6b1303

func TestWeakOrderDecides(t *testing.T) {
	sum := uint64(14695981039346656037)
	add := func(x uint64) { sum = (sum ^ x) * 1099511628211 }
	for seed := range uint64(4) {
		for slot := range 3 {
			o := newOrder(seed<<62|seed, slot)
			for endpoint := uint64(1); endpoint <= 3; endpoint++ {
				w := newHook(o, endpoint)
				for c := ofStart; c <= ofEvents; c++ {
					for number := range uint64(20) {
						add(o.draw(c, endpoint, number))
						add(w.steps(c, number))
					}
				}
			}
			for total := uint64(1); total < 5000; total += total/3 + 1 {
				var p placement
				for p.draw(o.draw(ofPlacement, 1, total), total*5, total); p.next < p.count; {
					at, n := p.part()
					if n > 3 {
						n /= 2 // a budget ends within the part
					}
					add(at)
					add(n)
					p.advance(n)
				}
			}
		}
	}
	if sum != sumOfDecisions {
		t.Errorf("the decisions have the sum %#x", sum)
	}
}

// The engine drives an endpoint when the program has not done so for 10 rounds.
func TestWeakOrderLetsTheProgramDrive(t *testing.T) {
	w := newHook(newOrder(1, 0), 1)
	for range 2 {
		for round := 1; round < 12; round++ {
			if may := w.EngineTurn(false); may != (round >= 10) {
				t.Errorf("round %d: %v", round, may)
			}
		}
		if w.EngineTurn(true) {
			t.Error("right after the program")
		}
		w.idleRounds = 0
	}
}
