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
