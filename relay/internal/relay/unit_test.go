package relay

import (
	"math/rand/v2"
	"testing"

	"github.com/softnd/softnd/internal/relayhook"
)

// Two sides that send whenever they may never stop both, whatever the order of sending and receiving is.
func TestCreditsNeverRunOut(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		window := 2 + random.IntN(8)*2
		sides := [2]credits{newCredits(window), newCredits(window)}
		var wires [2][]uint16 // frames on their way to each side: the credits that they carry
		wants := [2]int{2000, 2000}
		if seed%2 == 0 {
			wants[1] = 0 // one side has nothing to send but credits
		}
		for idle := 0; wants[0]+wants[1] > 0; {
			i := random.IntN(2)
			c := &sides[i]
			switch {
			case random.IntN(2) == 0 && len(wires[i]) > 0:
				if !c.received(wires[i][0]) {
					t.Fatalf("seed %d: a correct side is refused: %+v", seed, *c)
				}
				wires[i] = wires[i][1:]
			case wants[i] > 0 && c.canSend():
				wants[i]--
				wires[1-i] = append(wires[1-i], c.sent())
			case c.mustReturn():
				wires[1-i] = append(wires[1-i], c.sent())
			default:
				if idle++; idle > 10000 {
					t.Fatalf("seed %d: no side sends: %+v", seed, sides)
				}
				continue
			}
			idle = 0
			if len(wires[0]) > window || len(wires[1]) > window {
				t.Fatalf("seed %d: more frames are on their way than there are buffers", seed)
			}
		}
	}
}

func TestCreditsRefuse(t *testing.T) {
	c := newCredits(4)
	if c.received(1) {
		t.Error("a credit that was not due")
	}
	c = newCredits(4)
	for range 4 {
		if !c.received(0) {
			t.Error("a frame within the window is refused")
		}
	}
	if c.received(0) {
		t.Error("a frame beyond the window is accepted")
	}
}

// A relay that sends what it may never waits for ever, and never sends more than the other relay holds.
func TestRoom(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		mine, limit, sent, used := newRoom(), uint64(smallRoom), uint64(0), uint64(0)
		for round := range 5000 {
			if n := min(random.Uint64N(maxPayload)+1, limit-sent); n >= leastPart || random.IntN(2) == 0 {
				if sent += n; !mine.receive(int(n)) {
					t.Fatalf("seed %d: bytes are refused that were granted", seed)
				}
			}
			if random.IntN(3) == 0 {
				used += random.Uint64N(sent - used + 1)
			}
			if round == 3000 {
				mine.size = largeRoom
			}
			if sent-used > mine.size {
				t.Fatalf("seed %d: %d bytes are held", seed, sent-used)
			}
			if round%500 == 499 {
				used = sent
			}
			if !mine.isRoomy() {
				if l, ok := mine.grant(used); ok {
					limit = l
				}
			}
			if used == sent && limit-sent < leastPart {
				t.Fatalf("seed %d: nothing is held, and only %d bytes are granted", seed, limit-sent)
			}
		}
		if n := limit - sent; mine.receive(int(n) + 1) {
			t.Fatalf("seed %d: a byte is accepted that was not granted", seed)
		}
	}
}

// A ring entry that no correct process writes ends its tunnel, and not the link: the other relay never sees it.
func TestCheckEntryRefuses(t *testing.T) {
	for name, e := range map[string]relayhook.Request{
		"a Write that invalidates":       {Kind: relayhook.Write, First: true, Last: true, Length: 8, Total: 8, Invalidate: true},
		"a Write with a solicited event": {Kind: relayhook.Write, First: true, Last: true, Length: 8, Total: 8, Solicited: true},
		"an entry without bytes":         {Kind: relayhook.Send, First: true, Total: 8},
		"a Read without bytes":           {Kind: relayhook.Read},
		"a rest without a beginning":     {Kind: relayhook.Send, Last: true, Length: 8, Total: 8},
		"more than the request":          {Kind: relayhook.Send, First: true, Last: true, Length: 9, Total: 8},
	} {
		tunnel := &tunnel{state: open, stop: func() {}}
		tunnel.out.entry = e
		if tunnel.checkEntry() || !tunnel.hasEnded() {
			t.Errorf("%s is carried", name)
		}
	}
	for _, e := range []relayhook.Request{
		{Kind: relayhook.Send, First: true, Last: true, Length: 8, Total: 8, Invalidate: true, Solicited: true},
		{Kind: relayhook.Send, First: true, Last: true},
		{Kind: relayhook.Write, First: true, Length: 8, Total: 16},
	} {
		tunnel := &tunnel{state: open, stop: func() {}}
		tunnel.out.entry = e
		if !tunnel.checkEntry() || tunnel.hasEnded() {
			t.Errorf("%+v is refused", e)
		}
	}
}
