package launcher

import (
	"bufio"
	"encoding/binary"
	"io"
)

// message is sent between front end and supervisor. fields passes each field to the codec, for
// both encoding and decoding.
//
// The package does not use encoding/gob: front end, watchdog and supervisor start one after the
// other before the first rank. Loading gob in all three takes longer than running three ranks.
type message interface{ fields(c *codec) }

// codec encodes or decodes fields.
type codec struct {
	encodes bool
	b       []byte // encoded so far, or still to be decoded
	bad     bool   // the input was too short
}

// next returns the next n bytes of the input. A negative n makes the message bad.
func (c *codec) next(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b, n = true, nil, 0
	}
	taken := c.b[:n]
	c.b = c.b[n:]
	return taken
}

func number[N ~int | ~int64 | ~uint32 | ~uintptr](c *codec, n *N) {
	if c.encodes {
		c.b = binary.AppendVarint(c.b, int64(*n))
		return
	}
	v, length := binary.Varint(c.b)
	if length == 0 { // truncated; Varint returns a negative length on overflow
		length = -1
	}
	c.next(length)
	*n = N(v)
}

func flag(c *codec, b *bool) {
	n := 0
	if *b {
		n = 1
	}
	number(c, &n)
	*b = n != 0
}

func text[S ~string](c *codec, s *S) {
	n := len(*s)
	number(c, &n)
	if c.encodes {
		c.b = append(c.b, *s...)
		return
	}
	*s = S(c.next(n))
}

func each[T any](c *codec, l *[]T, visit func(*codec, *T)) {
	n := len(*l)
	number(c, &n)
	if !c.encodes {
		if n < 0 || n > len(c.b) { // each element has at least one byte
			c.next(-1)
			n = 0
		}
		*l = make([]T, n)
	}
	for i := range *l {
		visit(c, &(*l)[i])
	}
}

func texts(c *codec, l *[]string) { each(c, l, text[string]) }

func numbers(c *codec, l *[]int) { each(c, l, number[int]) }

// put queues a message for the next flush.
func (s *sender) put(m message) {
	c := codec{encodes: true}
	m.fields(&c)
	s.bytes = binary.AppendUvarint(s.bytes, uint64(len(c.b)))
	s.bytes = append(s.bytes, c.b...)
}

const maxMessage = 1 << 30 // bytes

// get reads the next message. It reports whether there was one.
func get(from *bufio.Reader, m message) bool {
	n, err := binary.ReadUvarint(from)
	if err != nil || n > maxMessage {
		return false
	}
	c := codec{b: make([]byte, n)}
	if _, err := io.ReadFull(from, c.b); err != nil {
		return false
	}
	m.fields(&c)
	return !c.bad
}

// receive decodes messages and sends them to a channel, which it closes at the end of the stream.
func receive[T any, M interface {
	*T
	message
}](in *receiver, to chan<- T) {
	defer close(to)
	for from := bufio.NewReader(in); ; {
		var v T
		if !get(from, M(&v)) {
			return
		}
		to <- v
	}
}
