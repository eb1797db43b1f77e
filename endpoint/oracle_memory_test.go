package endpoint

import (
	"bytes"
	"fmt"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// oracleArea is registered memory of a side, and its contents according to the model. Its first
// half is what requests of the peer read, write and fill; its second half is what requests of
// the side itself take bytes from and Reads fill. So each byte changes in the order of one
// endpoint's requests.
type oracleArea struct {
	name       string
	mr         nd.MemoryRegion
	mem, model []byte
	changed    []span
}

const (
	areaMiddle = 4<<20 + 1<<18
	// Where most ranges lie, and most of the short ones, so that they overlap.
	hotBytes     = 4096
	hottestBytes = 256
)

// span is a range of an area.
type span struct{ off, n int }

func (s span) overlaps(o span) bool { return s.off < o.off+o.n && o.off < s.off+s.n }

// oraclePart is one scatter/gather entry.
type oraclePart struct {
	span
	area  *oracleArea
	token nd.Token
}

func (p oraclePart) String() string { return fmt.Sprintf("%s[%d:+%d]", p.area.name, p.off, p.n) }

func listOf(parts []oraclePart) nd.SGL {
	var sge []nd.SGE
	for _, p := range parts {
		sge = append(sge, nd.SGE{Buffer: p.area.mem[p.off:][:p.n:p.n], Token: p.token})
	}
	return nd.List(sge...)
}

func lengthOf(parts []oraclePart) (n int) {
	for _, p := range parts {
		n += p.n
	}
	return n
}

func overlap(a, b []oraclePart) bool {
	for _, x := range a {
		for _, y := range b {
			if x.area == y.area && x.overlaps(y.span) {
				return true
			}
		}
	}
	return false
}

// gather returns the bytes of a list as the model has them.
func gather(parts []oraclePart) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		b.Write(p.area.model[p.off:][:p.n])
	}
	return b.Bytes()
}

// scatter stores bytes into a list, in the model.
func scatter(parts []oraclePart, data []byte) {
	for _, p := range parts {
		n := copy(p.area.model[p.off:][:p.n], data)
		p.area.changed = append(p.area.changed, span{p.off, n})
		data = data[n:]
	}
}

// differs returns the first byte near a change that is not what the model says.
func (a *oracleArea) differs() (at int, ok bool) {
	const around = 256
	for _, s := range append(a.changed, span{0, hotBytes}, span{areaMiddle, hotBytes}) {
		lo, hi := max(s.off-around, 0), min(s.off+s.n+around, len(a.mem))
		if bytes.Equal(a.mem[lo:hi], a.model[lo:hi]) {
			continue
		}
		for at = lo; a.mem[at] == a.model[at]; at++ {
		}
		return at, true
	}
	a.changed = a.changed[:0]
	return 0, false
}

// refill puts other bytes where most ranges lie; all of it after a connection whose end has left
// bytes that the model cannot predict.
func (a *oracleArea) refill(seed uint64, all bool) {
	if all {
		fill(a.model, seed)
		copy(a.mem, a.model)
		return
	}
	for _, at := range []int{0, areaMiddle} {
		fill(a.model[at:][:hotBytes], seed+uint64(at))
		copy(a.mem[at:], a.model[at:][:hotBytes])
	}
}

// size picks mostly small sizes.
func (o *oracle) size() int {
	switch n := o.IntN(1000); {
	case n < 60:
		return 0
	case n < 500:
		return 1 + o.IntN(48)
	case n < 720:
		return 1 + o.IntN(300)
	case n < 920:
		return 1 + o.IntN(5000)
	case n < 980:
		return 1 + o.IntN(2*smallTransfer)
	case n < 990:
		return 1 + o.IntN(2*window.ChunkSize)
	case n < 997:
		return 1 + o.IntN(3*quantum/2)
	}
	return 1 + o.IntN(4*quantum)
}

// place picks a range of n bytes in the first (0) or second (1) part of an area.
func (o *oracle) place(part, n int) span {
	at := part * areaMiddle
	switch {
	case n < hottestBytes/2 && o.one(2):
		return span{at + o.IntN(hottestBytes-n), n}
	case n < hotBytes && !o.one(4):
		return span{at + o.IntN(hotBytes-n), n}
	}
	return span{at + o.IntN(areaMiddle-n+1), n}
}

// split picks a list of n bytes in the first (0) or second (1) part of a side's areas.
func (p *oracleSide) split(part, n, most int) (parts []oraclePart) {
	for n > 0 {
		k := n
		if len(parts)+1 < most && p.o.one(3) {
			k = 1 + p.o.IntN(n)
		}
		area := p.areas[p.o.IntN(len(p.areas))]
		s := p.o.place(part, k)
		token := area.mr.LocalToken()
		if f := p.fast[1]; part == 1 && area == p.areas[0] && f.live && f.covers(s) && !p.o.one(4) {
			token = f.mr.LocalToken()
		}
		parts = append(parts, oraclePart{s, area, token})
		n -= k
	}
	if len(parts) < most && p.o.one(20) {
		parts = append(parts, oraclePart{span{part * areaMiddle, 0}, p.areas[0], p.areas[0].mr.LocalToken()})
	}
	return parts
}

// fastArea is a fast-register region over the first or second part of the memory that lies in the arena.
type fastArea struct {
	mr      nd.MemoryRegion
	mapping nd.LogicalMapping
	part    int
	span         // registered bytes
	live    bool // from the post of its registration to that of the end
}

func (f *fastArea) covers(s span) bool { return s.off >= f.off && s.off+s.n <= f.off+f.n }

// choose picks what to register.
func (f *fastArea) choose(o *oracle) (pages []nd.LogicalPage, offset int) {
	f.span = o.place(f.part, 1+o.IntN(3*hotBytes))
	at := f.mapping.Offset() + f.off - f.part*areaMiddle
	first, last := at/shm.PageSize, (at+f.n-1)/shm.PageSize
	return f.mapping.Pages()[first : last+1], at % shm.PageSize
}
