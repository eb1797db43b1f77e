package window

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/internal/vectors"
)

func TestVectorsOfTokens(t *testing.T) {
	vectors.Check(t, "tokens.txt", func(c vectors.Case) string {
		index := uint32(c.Number(3))
		if c.Kind() == "base" {
			return fmt.Sprintf("%x", bindBaseOf([2]uint64{c.Number(1), c.Number(2)}, index))
		}
		bind := uint32(c.Number(1))
		w := boundWord(uint32(c.Number(2)), bind, Rights(c.Number(3)))
		return fmt.Sprintf("%x %x %x", uint32(makeToken(uint32(c.Number(2)), bind)), uint64(w), uint64(w|validBit))
	})
}
