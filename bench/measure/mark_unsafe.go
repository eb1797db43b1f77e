package measure

import (
	"sync/atomic"
	"unsafe"
)

// mark is the end of a buffer, which shows that a Write has arrived. It is the last 8 bytes if they are an aligned
// word, otherwise the last byte. The provider stores it last (nd.InOrderDMASupported). Numbers are in the byte order of
// amd64 and arm64.
type mark struct {
	word  *atomic.Uint64
	shift uint8
	mask  uint64 // the bits of word that belong to the mark
}

func newMark(b []byte) mark {
	end := uintptr(len(b))
	last := unsafe.Pointer(&b[end-1])
	in := uintptr(last) % 8
	m := mark{word: (*atomic.Uint64)(unsafe.Add(last, -int(in))), mask: ^uint64(0)}
	if in != 7 || end < 8 {
		m.shift = uint8(8 * in)
		m.mask = 0xff << m.shift
	}
	return m
}

// value returns the bits of word, within mask, that show n.
func (m *mark) value(n uint64) uint64 { return n << m.shift & m.mask }

// shows reports whether n has arrived.
func (m *mark) shows(n uint64) bool { return m.word.Load()&m.mask == m.value(n) }

// put makes the mark show n. No other thread may use the memory during the call.
func (m *mark) put(n uint64) {
	w := (*uint64)(unsafe.Pointer(m.word))
	*w = *w&^m.mask | m.value(n)
}

// aligned returns n bytes of private memory that begin at a page.
func aligned(n int) []byte {
	const page = 4096
	b := make([]byte, n+page)
	skip := -uintptr(unsafe.Pointer(&b[0])) % page
	return b[skip:][:n:n]
}
