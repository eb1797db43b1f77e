package ndtest

import (
	"runtime"
	"time"

	"github.com/softnd/softnd/nd"
)

// rounds returns the number of round trips for a size.
func rounds(size int) int {
	if size > 4096 {
		return 2
	}
	return 4
}

// pingPongSizes are the sizes of the Writes in bytes; the largest is 4 MiB in the table.
var pingPongSizes = []int{minPolledSize, 8, 64, 512, 4096, 64 << 10, 1 << 20}

// pingPongWrites is each side of round trips of Writes into the other's window. A side polls in memory
// for the last byte of the other's Write, and then posts its own. The active side begins. With shared,
// the peer's Write stores into the source of this side's latest Write, whose result is taken only then.
func pingPongWrites(s *side, shared bool) {
	const room = 1<<20 + 8
	c := s.pair(connOptions{RegionSize: 2 * room})
	w := s.newWindow()
	d := c.bind(w, 0, len(c.memory.mem), nd.AllowWrite)
	in := alignedOffset(c.memory.mem)
	d.Address += uint64(in)
	s.tell(d)
	d = c.hearDescriptor()
	out := in
	if !shared {
		out += room
	}
	turn, untaken := uint64(0), -1
	take := func() {
		if untaken >= 0 {
			c.wantLength(c.wantResult(nd.Success, turn-1), untaken)
			untaken = -1
		}
	}
	for _, n := range pingPongSizes {
		skip := (8 - n%8) % 8 // the transfer ends at a multiple of 8
		sink, source := c.memory.mem[in+skip:][:n], c.memory.mem[out+skip:][:n]
		for range 2 * rounds(n) {
			turn++
			if mine := turn%2 == uint64(s.role); mine {
				fillTurn(source, turn)
				c.must(c.ep.Write(turn, c.sge(out+skip, n), d.Address+uint64(skip), d.Token, 0))
				untaken = n
				continue
			}
			if !shared {
				take()
			}
			s.pollLastByte(sink, byte(turn))
			s.wantEqual(sink, fillTurn(make([]byte, n), turn))
			take()
		}
	}
}

// fillTurn fills b with the bytes of a turn. The last byte differs from that of the turn before.
func fillTurn(b []byte, turn uint64) []byte {
	fill(b, turn)
	b[len(b)-1] = byte(turn)
	return b
}

// pollLastByte polls until the last byte of b is last.
func (s *side) pollLastByte(b []byte, last byte) {
	for polls := 1; loadLastByte(b) != last; polls++ {
		if polls%256 != 0 {
			continue // poll fast, to detect a last byte that is stored before the others
		}
		if s.ctx.Err() != nil {
			s.fatalf("polling for the last of %d bytes of a Write: it has not been stored", len(b))
		}
		yield(polls / 16)
	}
}

// yield is called after an unsuccessful poll. Every 16 polls it lets other goroutines run: among busy ones its next turn may be far away.
// Every 256 polls it sleeps, so that other processes can run before the end of this process's time slice.
func yield(polls int) {
	if polls%256 == 0 {
		time.Sleep(time.Microsecond)
	}
	if polls%16 == 0 {
		runtime.Gosched()
	}
}
