package frame

import "encoding/binary"

// MaxPrivateData is the limit of the private data of a Connect in bytes.
const MaxPrivateData = 512

// Connect is the payload of an Open or an Accept: what one side brings into a connection.
type Connect struct {
	Tunnel            uint32 // number of the tunnel at the sender, not 0
	Port              uint16 // of an Open: the port of the other host that the connection is for
	ReadsIn, ReadsOut uint16 // read limits
	Private           []byte // private data; part of the encoded payload
}

const (
	connectHeader = 12
	maxConnect    = connectHeader + MaxPrivateData
)

// Append appends the encoded c to b.
func (c *Connect) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, c.Tunnel)
	b = binary.LittleEndian.AppendUint16(b, c.Port)
	b = binary.LittleEndian.AppendUint16(b, c.ReadsIn)
	b = binary.LittleEndian.AppendUint16(b, c.ReadsOut)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Private)))
	return append(b, c.Private...)
}

// Decode decodes the payload of an Open or an Accept.
func (c *Connect) Decode(b []byte) error {
	if len(b) < connectHeader || len(b) > maxConnect || int(binary.LittleEndian.Uint16(b[10:])) != len(b)-connectHeader {
		return ErrLength
	}
	*c = Connect{
		Tunnel:  binary.LittleEndian.Uint32(b),
		Port:    binary.LittleEndian.Uint16(b[4:]),
		ReadsIn: binary.LittleEndian.Uint16(b[6:]), ReadsOut: binary.LittleEndian.Uint16(b[8:]),
		Private: b[connectHeader:],
	}
	if c.Tunnel == 0 {
		return ErrField
	}
	return nil
}
