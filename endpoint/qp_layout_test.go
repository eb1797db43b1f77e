package endpoint

import (
	"testing"
	"unsafe"
)

// The fast path reads and writes the first fields of a queuePair. No other field may come between
// them: that would add cache lines to each request.
func TestHotFieldsOfEndpointStayTogether(t *testing.T) {
	var ep queuePair
	next := uintptr(0)
	for _, f := range []struct {
		name         string
		offset, size uintptr
	}{
		{"stateWord", unsafe.Offsetof(ep.stateWord), unsafe.Sizeof(ep.stateWord)},
		{"outstanding", unsafe.Offsetof(ep.uncompleted), unsafe.Sizeof(ep.uncompleted)},
		{"requesterCopies, wakeupRequested, serving", unsafe.Offsetof(ep.requesterCopies), unsafe.Offsetof(ep.serving) - unsafe.Offsetof(ep.requesterCopies) + 1},
		{"mu", unsafe.Offsetof(ep.mu), unsafe.Sizeof(ep.mu)},
		{"conn", unsafe.Offsetof(ep.conn), unsafe.Sizeof(ep.conn)},
		{"guard", unsafe.Offsetof(ep.guard), unsafe.Sizeof(ep.guard)},
		{"sq", unsafe.Offsetof(ep.sq), unsafe.Sizeof(ep.sq)},
		{"inbound", unsafe.Offsetof(ep.inbound), unsafe.Sizeof(ep.inbound)},
		{"rq", unsafe.Offsetof(ep.rq), unsafe.Sizeof(ep.rq)},
		{"localQP", unsafe.Offsetof(ep.localQP), unsafe.Sizeof(ep.localQP)},
		{"srq", unsafe.Offsetof(ep.srq), unsafe.Sizeof(ep.srq)},
	} {
		const word = 8
		if f.offset-next >= word {
			t.Errorf("%s is at offset %d, want it at %d, right behind the field before it", f.name, f.offset, next)
		}
		next = f.offset + f.size
	}
	const sq, rq = 56, 104 // bytes: two fields more, and they cost another cache line
	if n := unsafe.Sizeof(ep.sq); n != sq {
		t.Errorf("sendQueue has %d bytes, want %d", n, sq)
	}
	if n := unsafe.Sizeof(ep.rq); n != rq {
		t.Errorf("recvQueue has %d bytes, want %d", n, rq)
	}
}
