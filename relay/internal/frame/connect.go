package frame

import (
	"encoding/binary"
	"net/netip"
)

// MaxPrivateData is the limit of the private data of a Connect in bytes.
const MaxPrivateData = 512

// Connect is the payload of an Open or an Accept: what one side brings into a connection.
type Connect struct {
	Tunnel            uint32         // number of the tunnel at the sender, not 0
	From, To          netip.AddrPort // of an Open: the process that connects, and the address that it connects to
	ReadsIn, ReadsOut uint16         // read limits
	Private           []byte         // private data; part of the encoded payload
}

const (
	connectHeader = 24
	maxConnect    = connectHeader + MaxPrivateData
)

// Append appends the encoded c to b. An address that is not one of IPv4 becomes 0.0.0.0.
func (c *Connect) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, c.Tunnel)
	b = appendAddress(b, c.From)
	b = appendAddress(b, c.To)
	b = binary.LittleEndian.AppendUint16(b, c.ReadsIn)
	b = binary.LittleEndian.AppendUint16(b, c.ReadsOut)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Private)))
	b = append(b, 0, 0)
	return append(b, c.Private...)
}

// Decode decodes the payload of an Open or an Accept.
func (c *Connect) Decode(b []byte) error {
	if len(b) < connectHeader || len(b) > maxConnect || int(binary.LittleEndian.Uint16(b[20:])) != len(b)-connectHeader {
		return ErrLength
	}
	*c = Connect{
		Tunnel: binary.LittleEndian.Uint32(b),
		From:   address(b[4:]), To: address(b[10:]),
		ReadsIn: binary.LittleEndian.Uint16(b[16:]), ReadsOut: binary.LittleEndian.Uint16(b[18:]),
		Private: b[connectHeader:],
	}
	if c.Tunnel == 0 || b[22] != 0 || b[23] != 0 {
		return ErrField
	}
	return nil
}

// An encoded address has 6 bytes: the four of the address in their order, and the port.

func appendAddress(b []byte, a netip.AddrPort) []byte {
	four := [4]byte{}
	if a.Addr().Is4() {
		four = a.Addr().As4()
	}
	return binary.LittleEndian.AppendUint16(append(b, four[:]...), a.Port())
}

func address(b []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.LittleEndian.Uint16(b[4:]))
}
