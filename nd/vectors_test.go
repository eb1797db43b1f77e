package nd

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/internal/vectors"
)

func TestVectorsOfDescriptors(t *testing.T) {
	vectors.Check(t, "descriptors.txt", func(c vectors.Case) string {
		if c.Kind() == "encode" {
			b, err := WindowDescriptor{Address: c.Number(1), Length: c.Number(2), Token: Token(c.Number(3))}.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			return vectors.Hex(b)
		}
		var d WindowDescriptor
		if err := d.UnmarshalBinary(c.Bytes(1)); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x %x %x", d.Address, d.Length, uint32(d.Token))
	})
}
