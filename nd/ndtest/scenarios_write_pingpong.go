package ndtest

import (
	"runtime"
	"time"

	"github.com/softnd/softnd/nd"
)

// rounds returns how often messages of a size go to and fro.
func rounds(size int) int {
	if size > 4096 {
		return 2
	}
	return 4
}

// pingPongSizes are bytes; the largest is 4 MiB in the table. Each message ends at a multiple of 8.
var pingPongSizes = []int{minPolledSize, 8, 64, 512, 4096, 64 << 10, 1 << 20}

// pingPongWrites is either half of a game: both Write into each other's window, and each waits for the
// last byte of what it gets. The active half serves. With shared, what comes in lands where the
// answered Write has come from, and that Write's result is taken only afterwards.
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
		skip := (8 - n%8) % 8 // so that it ends at a multiple of 8
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

// fillTurn fills b with what is sent in a turn; the last byte differs from the turn before.
func fillTurn(b []byte, turn uint64) []byte {
	fill(b, turn)
	b[len(b)-1] = byte(turn)
	return b
}

// pollLastByte waits until the last byte of b is the given one.
func (s *side) pollLastByte(b []byte, last byte) {
	for polls := 1; loadLastByte(b) != last; polls++ {
		if polls%256 != 0 {
			continue // close behind the writer, to catch a last byte that comes too early
		}
		if s.ctx.Err() != nil {
			s.fatalf("the last of %d bytes did not come", len(b))
		}
		yield(polls / 256)
	}
}

// yield lets others run after a look in vain: goroutines, and now and then processes, which may
// outnumber the cores and would else wait for the end of a time slice.
func yield(polls int) {
	if polls%256 == 0 {
		time.Sleep(time.Microsecond)
	}
	runtime.Gosched()
}
