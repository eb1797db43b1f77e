package window

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/shm"
)

// aligned returns n bytes whose address is a multiple of 8 plus skew.
func aligned(n, skew int) []byte {
	b := make([]byte, n+16)
	skip := int(-shm.AddressOf(b)&7) + skew
	return b[skip : skip+n : skip+n]
}

func TestCopyOrderedCopiesLikeCopy(t *testing.T) {
	lengths := []int{0}
	for n := 1; n <= 40; n++ {
		lengths = append(lengths, n)
	}
	lengths = append(lengths, 63, 64, 65, 255, 256, 257, 2047, 2048, 2049, ChunkSize-1, ChunkSize)
	for _, n := range lengths {
		source := pattern(n+8, 1)
		for sinkSkew := range 8 {
			for sourceSkew := range 8 {
				from := aligned(n, sourceSkew)
				copy(from, source)
				to, want := aligned(n+16, sinkSkew), make([]byte, n+16)
				fill(to, 0xa5)
				fill(want, 0xa5)
				copyOrdered(to[8:8+n], from)
				copy(want[8:8+n], from)
				if !bytes.Equal(to, want) {
					t.Fatalf("%d bytes from alignment %d to %d:\n%x, want\n%x", n, sourceSkew, sinkSkew, to, want)
				}
				if !bytes.Equal(from, source[:n]) {
					t.Fatalf("%d bytes from alignment %d to %d: the source has changed", n, sourceSkew, sinkSkew)
				}
			}
		}
	}
}

// Overlapping ranges of one buffer, in both directions, at all distances.
func TestCopyOrderedHandlesOverlap(t *testing.T) {
	const room = 64
	for n := 1; n <= 40; n++ {
		for skew := range 8 {
			for distance := -min(n+1, 20); distance <= min(n+1, 20); distance++ {
				got, want := aligned(n+2*room, skew), make([]byte, n+2*room)
				copy(got, pattern(len(got), byte(n)))
				copy(want, got)
				at := room + distance
				copyOrdered(got[at:at+n], got[room:room+n])
				copy(want[at:at+n], want[room:room+n])
				if !bytes.Equal(got, want) {
					t.Fatalf("%d bytes at alignment %d moved by %d:\n%x, want\n%x", n, skew, distance, got, want)
				}
			}
		}
	}
	for _, n := range []int{1000, 4096, ChunkSize} {
		for _, distance := range []int{-n / 2, -9, -8, -1, 0, 1, 8, 9, n / 2} {
			got, want := aligned(3*n, 0), make([]byte, 3*n)
			copy(got, pattern(len(got), 7))
			copy(want, got)
			copyOrdered(got[n+distance:][:n], got[n:2*n])
			copy(want[n+distance:][:n], want[n:2*n])
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes moved by %d: wrong bytes", n, distance)
			}
		}
	}
}

// polledTransfers are the lengths of the polling test, and the alignments of their ends: the last word, for which programs
// poll, is of 8, 4 or 1 bytes.
var polledTransfers = []struct{ n, end int }{
	{8, 0}, {9, 1}, {12, 4}, {16, 0}, {17, 1}, {20, 4}, {24, 0}, {33, 1}, {40, 0}, {64, 0}, {65, 1}, {100, 4},
	{256, 0}, {257, 7}, {1000, 0}, {1004, 4}, {2048, 0}, {4096, 0}, {4099, 3}, {16384, 0}, {ChunkSize, 0}, {3 * ChunkSize, 0}, {3*ChunkSize + 1, 1},
}

// polled is memory whose end one side polls, and a word in which it acknowledges.
type polled struct {
	mem  []byte         // the transfer, and bytes before it for the alignment of its end
	n    int            // the length of the transfer
	end  int            // its end, as an index of mem
	last *endWords      // the aligned 8 bytes with its last byte
	acks *atomic.Uint64 // how many rounds the poller has seen; or missed
}

const missed = math.MaxUint64

type endWords struct{ lo, hi atomic.Uint32 }

// polledAt places a polled transfer at an offset that is a multiple of 8.
func polledAt(a *shm.Arena, at shm.Offset, n, end int) (*polled, error) {
	room := (n + 15) / 8 * 8
	if end != 0 {
		room += 8
	}
	p := &polled{n: n, end: room - 8 + end}
	if end == 0 {
		p.end = room
	}
	var err error
	if p.mem, err = a.Bytes(at+64, uint64(room)); err != nil {
		return nil, err
	}
	if p.acks, err = shm.At[atomic.Uint64](a, at); err != nil {
		return nil, err
	}
	p.last, err = shm.At[endWords](a, at+64+shm.Offset(room-8))
	return p, err
}

func (p *polled) transfer() []byte { return p.mem[p.end-p.n : p.end] }

// seen reports whether the last word, loaded as a program loads it, is that of a round.
func (p *polled) seen(round byte) bool {
	word, byteAt := p.last.hi.Load(), uint(3)
	switch p.end % 8 {
	case 4:
		word = p.last.lo.Load()
	case 1, 2, 3:
		word, byteAt = p.last.lo.Load(), uint(p.end%8-1)
	case 5, 6, 7:
		byteAt = uint(p.end%8 - 5)
	}
	return byte(word>>(8*byteAt)) == round
}

// poll waits for so many transfers and checks each. All bytes of a transfer are the number of its round.
func (p *polled) poll(rounds int) error {
	for i := 1; i <= rounds; i++ {
		round := byte(i%250 + 1)
		for spins := 1; !p.seen(round); spins++ {
			if spins%1000 == 0 {
				if p.acks.Load() == missed {
					return errors.New("the other side has given up")
				}
				proctest.Yield()
			}
		}
		// Check from the end, where the copy finishes: a check from the front would
		// run behind the copy and find all bytes there.
		b := p.transfer()
		sound := true
		for at := len(b); at > 0 && sound; {
			part := b[max(0, at-256):at]
			at -= len(part)
			sound = only(part, round)
		}
		if !sound {
			late := len(b) - bytes.Count(b, []byte{round})
			p.acks.Store(missed)
			return fmt.Errorf("round %d of %d bytes with the end at %d: the last word arrived before other bytes, %d of which are still missing", i, p.n, p.end%8, late)
		}
		p.acks.Store(uint64(i))
	}
	return nil
}

// feed makes the transfers for which poll waits.
func (p *polled) feed(t *testing.T, s *side, to *Operand, rounds int) {
	t.Helper()
	source := make([]byte, p.n)
	to.Address = shm.AddressOf(p.transfer())
	for i := uint64(1); i <= uint64(rounds); i++ {
		fill(source, byte(i%250+1))
		if moved, f := s.write(to, source); moved != uint64(p.n) || f != NoFault {
			p.acks.Store(missed)
			t.Fatalf("%d bytes moved, %v", moved, f)
		}
		proctest.Eventually(t, "the poller sees the transfer", func() bool { return p.acks.Load() >= i })
		if p.acks.Load() == missed {
			return
		}
	}
}

func pollRounds() int {
	if raceEnabled {
		return 200
	}
	return 2000
}

func TestLastWordIsStoredLast(t *testing.T) {
	owner, executor, to := pair(t)
	const room = 4 * ChunkSize
	mem := owner.alloc(t, room)
	_, remote := owner.region(t, mem, allRights).Tokens()
	for _, tc := range polledTransfers {
		fill(mem, 0)
		p, err := polledAt(owner.arena, owner.offsetOf(t, mem), tc.n, tc.end)
		if err != nil {
			t.Fatal(err)
		}
		if shm.AddressOf(mem[64+p.end:])%8 != uint64(tc.end) {
			t.Fatalf("the end lies at %#x", shm.AddressOf(p.mem[p.end:]))
		}
		var poller sync.WaitGroup
		poller.Go(func() {
			if err := p.poll(pollRounds()); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(poller.Wait) // before the arena is closed
		p.feed(t, executor, remoteOperand(to, remote, Write, 0), pollRounds())
		poller.Wait()
	}
}

var rolePoller = arenaRole("poller", runPoller)

// runPoller polls in another process. Its arguments are the offset of the memory and the number of rounds.
func runPoller(self *proctest.Self, a *shm.Arena) error {
	at, err := strconv.ParseUint(self.Args[0], 10, 64)
	if err != nil {
		return err
	}
	rounds, err := strconv.Atoi(self.Args[1])
	if err != nil {
		return err
	}
	for {
		line, err := self.Hear()
		if err != nil {
			return err
		}
		var n, end int
		if line == "leave" {
			return nil
		}
		if _, err := fmt.Sscan(line, &n, &end); err != nil {
			return fmt.Errorf("unknown line %q", line)
		}
		p, err := polledAt(a, shm.Offset(at), n, end)
		if err != nil {
			return err
		}
		self.Say("polling")
		if err := p.poll(rounds); err != nil {
			return err
		}
		self.Say("seen")
	}
}

func TestLastWordIsStoredLastForAnotherProcess(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 4*ChunkSize)
	_, remote := owner.region(t, mem, allRights).Tokens()
	at := owner.offsetOf(t, mem)
	c := proctest.StartWith(t, owner.arena.File(), rolePoller, uint64(at), pollRounds())
	for _, tc := range polledTransfers {
		fill(mem, 0)
		c.Say("%d %d", tc.n, tc.end)
		c.Expect("polling")
		p, err := polledAt(owner.arena, at, tc.n, tc.end)
		if err != nil {
			t.Fatal(err)
		}
		p.feed(t, executor, remoteOperand(to, remote, Write, 0), pollRounds())
		c.Expect("seen")
	}
	c.Say("leave")
	c.Wait()
}

// Random lengths and alignments, so also memory in which no aligned word of 8 or 4 bytes fits.
func TestCopyOrderedAtRandomAlignments(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	got, want := aligned(5000, 0), make([]byte, 5000)
	for range 20000 {
		n := random.IntN(300)
		from, to := random.IntN(5000-n), random.IntN(5000-n)
		copyOrdered(got[to:to+n], got[from:from+n])
		copy(want[to:to+n], want[from:from+n])
		i := random.IntN(5000)
		got[i]++
		want[i]++
	}
	if !bytes.Equal(got, want) {
		t.Error("wrong bytes")
	}
}
