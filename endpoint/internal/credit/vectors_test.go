package credit

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/internal/vectors"
)

// The cases are the life of one credit.
func TestVectorsOfCredits(t *testing.T) {
	var k Credit
	answer := func(ok bool) uint64 {
		if ok {
			return 1
		}
		return 0
	}
	vectors.Check(t, "credits.txt", func(c vectors.Case) string {
		var r uint64
		switch c.Kind() {
		case "new":
			k = Credit{}
		case "refresh":
			r = answer(k.Refresh(c.Number(1), c.Number(2), c.Number(3), c.Number(4), c.Number(5)))
		case "fits":
			r = answer(k.Fits(c.Number(1), c.Number(2)))
		case "extend":
			r = answer(k.Extend(c.Number(1), c.Number(2)))
		case "count":
			k.CountEntry(c.Number(1), c.Number(2) != 0)
		case "ack":
			k.AckRequestEnd = c.Number(1)
		case "barrier":
			r = k.OrderBarrier(c.Number(1))
		}
		return fmt.Sprintf("%x %x %x %x %x %x %x %x %x %x", r, k.sendRunStart, k.PayloadEndBeforeRun, k.AckRequestEnd, k.FastLimit,
			k.FastMaxLength, k.smallReceiveBytes, k.entriesWithoutReceive, k.posted, k.smallReceivesEnd)
	})
}
