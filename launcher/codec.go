package launcher

import (
	"bufio"
	"encoding/binary"
	"io"
)

// message is what goes over the wire. It names its fields to a codec, once for both ways.
//
// Package encoding/gob would do as much. But front, guard and keeper start one after the
// other before the first rank does, and it takes longer to be loaded by all three, and to
// learn what the messages are, than three ranks to run.
type message interface{ fields(c *codec) }

// codec turns fields into bytes, or bytes into fields.
type codec struct {
	writes bool
	b      []byte // written so far, or still to be read
	bad    bool   // what was to be read is not there
}

// next takes n bytes that are to be read. A negative number is never there.
func (c *codec) next(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b, n = true, nil, 0
	}
	taken := c.b[:n]
	c.b = c.b[n:]
	return taken
}

func number[N ~int | ~int64 | ~uint32 | ~uintptr](c *codec, n *N) {
	if c.writes {
		c.b = binary.AppendVarint(c.b, int64(*n))
		return
	}
	v, length := binary.Varint(c.b)
	if length == 0 { // cut off; a number that is too long gives a negative length
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
	if c.writes {
		c.b = append(c.b, *s...)
		return
	}
	*s = S(c.next(n))
}

func each[T any](c *codec, l *[]T, visit func(*codec, *T)) {
	n := len(*l)
	number(c, &n)
	if !c.writes {
		if n < 0 || n > len(c.b) { // none takes less than a byte
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

// put has a message sent with the next flush.
func (s *sender) put(m message) {
	c := codec{writes: true}
	m.fields(&c)
	s.bytes = binary.AppendUvarint(s.bytes, uint64(len(c.b)))
	s.bytes = append(s.bytes, c.b...)
}

const maxMessage = 1 << 30 // bytes

// get reads the next message, and tells whether there was one.
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

// receive passes on what comes over the wire until it ends.
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
