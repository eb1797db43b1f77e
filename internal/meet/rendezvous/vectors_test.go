package rendezvous

import (
	"errors"
	"fmt"
	"testing"

	"github.com/softnd/softnd/internal/vectors"
)

func TestVectorsOfMessages(t *testing.T) {
	vectors.Check(t, "messages.txt", func(c vectors.Case) string {
		secret, sent := c.Bytes(1), c.Bytes(2)
		if c.Kind() == "prove" {
			return vectors.Hex(sum(secret, []byte("root"), sent))
		}
		mine, wire := newPair(t)
		ch := newChannel(mine, secret, sent, c.Number(3) != 0)
		if c.Kind() == "send" {
			ch.out = c.Number(4)
			return vectors.Hex(taken(t, ch, wire, message{Kind: string(c.Bytes(5)), Rank: int(c.Number(6)), Size: int(c.Number(7)), Key: string(c.Bytes(8)),
				Value: string(c.Bytes(9)), Code: int(c.Number(10)), Text: string(c.Bytes(11))}))
		}
		ch.in = c.Number(4)
		if _, err := wire.Write(c.Bytes(5)); err != nil {
			t.Fatal(err)
		}
		m, err := ch.receive()
		if errors.Is(err, ErrSecret) {
			return "refused"
		}
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %x %x %s %s %x %s", vectors.Hex([]byte(m.Kind)), m.Rank, m.Size, vectors.Hex([]byte(m.Key)), vectors.Hex([]byte(m.Value)),
			m.Code, vectors.Hex([]byte(m.Text)))
	})
}
