package ndtest

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// ownChanges is how often the owner changes its shared numbers in a round.
const ownChanges = 30

// shared makes s an atomic of a shared number. The first is only incremented, so each old value occurs once.
func (p *plan) shared(s *step) {
	s.shared, s.at = true, sharedAt(p.IntN(stressShared))
	if s.at == sharedAt(0) {
		s.stepKind, s.operands = doFetchAndAdd, [2]uint64{1}
		return
	}
	for i := range s.operands { // few values, so that a CompareAndSwap can find its own
		s.operands[i] = p.Uint64N(4)
	}
}

// sharedNumbers are the numbers in a side's region that the peer changes over all connections, while the owner changes
// them with instructions of the processor.
type sharedNumbers struct {
	words []uint64 // nil without atomics
	first [stressShared]uint64
	steps [stressShared]changes // of the owner in this round
	left  int
}

// changes maps each value of a number to how often atomics have left it, less how often they have stored it.
type changes map[uint64]int

func (m changes) add(from, to uint64) {
	m[from]++
	m[to]--
}

// newSharedNumbers starts a round, in which nothing has changed the numbers.
func newSharedNumbers(c *conn, used bool) *sharedNumbers {
	n := new(sharedNumbers)
	if !used {
		return n
	}
	var err error
	n.words, err = nd.View[uint64](c.memory.mem[stressWords:][:8*stressShared])
	c.must(err)
	n.left = ownChanges
	for i := range n.words {
		n.first[i], n.steps[i] = atomic.LoadUint64(&n.words[i]), changes{}
	}
	return n
}

// change makes one change by the owner. It reports whether more are to come.
func (n *sharedNumbers) change(random uint64) bool {
	if n.left == 0 {
		return false
	}
	n.left--
	if i := random % stressShared; i == 0 {
		now := atomic.AddUint64(&n.words[0], 1)
		n.steps[0].add(now-1, now)
	} else if old := atomic.LoadUint64(&n.words[i]); atomic.CompareAndSwapUint64(&n.words[i], old, old^1) {
		n.steps[i].add(old, old^1)
	}
	return n.left > 0
}

// check compares the numbers with the changes of both sides. Atomic changes are a path: each value but the first and
// the last is left as often as it is stored.
func (n *sharedNumbers) check(round int, conns []*stressConn, p *plan) {
	if n.words == nil {
		return
	}
	s := conns[0].side
	var mine [stressShared]changes
	for i := range mine {
		mine[i] = changes{}
	}
	for _, c := range conns {
		sum := uint64(0)
		for _, st := range p.directions[s.role][c.index].steps {
			if st.shared {
				old := binary.NativeEndian.Uint64(c.bytesOf(st.parts))
				if st.at == sharedAt(0) {
					if old < sum {
						c.fatalf("connection %d, round %d: additions took effect in another order than they were posted in", c.index, round)
					}
					sum = old
				}
				mine[(st.at-stressWords)/8].add(old, st.store(old))
			}
		}
	}
	s.tell(mine)
	theirs := hear[[stressShared]changes](s)
	for i := range n.words {
		last := atomic.LoadUint64(&n.words[i])
		total := changes{}
		total.add(last, n.first[i])
		for _, m := range []changes{n.steps[i], theirs[i]} {
			for value, times := range m {
				total[value] += times
			}
		}
		for value, times := range total {
			if times != 0 {
				s.fatalf("round %d: shared number %d is %d after %d: atomics found %d there %+d times more often than it was stored", round, i, last, n.first[i], value, times)
			}
		}
	}
}
