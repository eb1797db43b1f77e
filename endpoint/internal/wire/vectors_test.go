package wire

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/internal/vectors"
	"github.com/softnd/softnd/nd"
)

func TestVectorsOfEntries(t *testing.T) {
	vectors.Check(t, "entries.txt", func(c vectors.Case) string {
		if c.Kind() == "header" {
			return fmt.Sprintf("%x", Header(Kind(c.Number(1)), uint8(c.Number(2)), int(c.Number(3)), nd.Token(c.Number(4))))
		}
		var w ring.Words
		if c.Kind() == "immediate" {
			w[0] = c.Number(1)
			PutImmediate(&w, uint32(c.Number(2)))
			return fmt.Sprintf("%x %x %x", w[0], w[5], w[6])
		}
		for i := range w {
			w[i] = c.Number(i + 1)
		}
		var e Entry
		if !e.Decode(&w) {
			return "refused"
		}
		more := ""
		if e.Flags&FlagImmediate != 0 {
			more = fmt.Sprintf(" immediate %x", e.Immediate)
		}
		if e.Kind == Atomic {
			more = fmt.Sprintf(" atomic %x %x %x %x", uint8(e.Operation), e.Operand, e.Swap, e.ResultIndex)
		}
		return fmt.Sprintf("%x %x %x %x %x %x %x %x %x %x %x %s", uint8(e.Kind), e.Flags, e.PayloadLength, uint32(e.Token), e.SenderAddress,
			uint32(e.SenderToken), e.ReceiverAddress, e.FragmentLength, e.RequestLength, e.Hash, uint32(e.ReceiveStatus()), vectors.Hex(e.Payload[:e.PayloadLength])) + more
	})
}
