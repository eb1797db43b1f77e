// Package flagnames prints bit flags by name, for the String methods of packages nd and ndcompat.
package flagnames

import (
	"strconv"
	"strings"
)

// Name is the name of a flag. A flag may have several bits.
type Name struct {
	Bits uint32
	Name string
}

// Join returns the names of the flags that are set in v, joined by "|". Bits without a name
// follow as one hex number. Join returns "0" if v is 0. In names, a flag of several bits must
// precede the flags that have a part of these bits.
func Join(v uint32, names []Name) string {
	if v == 0 {
		return "0"
	}
	var out []string
	for _, n := range names {
		if v&n.Bits == n.Bits {
			out = append(out, n.Name)
			v &^= n.Bits
		}
	}
	if v != 0 {
		out = append(out, "0x"+strconv.FormatUint(uint64(v), 16))
	}
	return strings.Join(out, "|")
}
