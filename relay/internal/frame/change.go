package frame

import "encoding/binary"

// Operation is what an Atomic does with the 8 bytes at its address.
type Operation uint8

// The operations.
const (
	FetchAndAdd    Operation = 1 + iota // adds the operand
	CompareAndSwap                      // stores the swap value if the bytes equal the operand
	Swap                                // stores the operand
)

// Change is the payload of an Atomic. Data with the number that the 8 bytes were before answers it.
type Change struct {
	Operation     Operation
	Operand, Swap uint64
}

// Lengths in bytes.
const (
	ChangeSize = 1 + 2*8 // of an encoded Change
	OldSize    = 8       // of that Data
)

// Append appends the encoded c to b.
func (c *Change) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, byte(c.Operation)), c.Operand)
	return binary.LittleEndian.AppendUint64(b, c.Swap)
}

// Decode decodes the payload of an Atomic.
func (c *Change) Decode(b []byte) error {
	if len(b) != ChangeSize {
		return ErrLength
	}
	*c = Change{Operation(b[0]), binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:])}
	if c.Operation-1 >= Swap || c.Swap != 0 && c.Operation != CompareAndSwap {
		return ErrField
	}
	return nil
}

// AppendOld appends the payload of the Data that answers an Atomic.
func AppendOld(b []byte, old uint64) []byte { return binary.LittleEndian.AppendUint64(b, old) }

// Old decodes a payload of OldSize bytes.
func Old(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
