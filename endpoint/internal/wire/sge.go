package wire

import "github.com/softnd/softnd/nd"

// SGE is a scatter/gather entry. It holds an address instead of a pointer: only a check of the
// token turns the address into memory.
type SGE struct {
	Address uint64
	Length  uint32
	Token   nd.Token
}

// LengthAndToken packs the length (bits 0..31) and the token (32..63) into one shared word.
func (e SGE) LengthAndToken() uint64 { return uint64(e.Length) | uint64(e.Token)<<32 }

// SGEAt returns the part of one entry that begins at byte at of the whole list, up to the end of
// that entry. It returns the zero entry if the list is shorter.
func SGEAt(entries []SGE, at uint64) SGE {
	for _, e := range entries {
		if at < uint64(e.Length) {
			return SGE{Address: e.Address + at, Length: e.Length - uint32(at), Token: e.Token}
		}
		at -= uint64(e.Length)
	}
	return SGE{}
}
