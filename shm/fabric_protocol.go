package shm

// TWIN c/src/shm/fabric_name.c.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/layout"
)

// The protocol by which a process joins a named fabric: one record in each direction, over a socket
// of type SOCK_SEQPACKET.
//
//	joiner                                     member
//	------                                     ------
//	connects; checks the socket's user         accepts; checks the connection's user
//	hello: layout version and hash       -->   compares user, version and hash with its own
//	                                     <--   welcome: arena id, with two descriptors,
//	                                           the arena and the listening socket,
//	                                           or a refusal: the member's version or user
//	attaches, compares the id,
//	and answers later joiners
//
// A record is 64 bytes, little-endian:
//
//	 0  8  magic
//	 8  4  protocol version
//	12  4  status
//	16  4  layout version of the sender
//	20  4  effective user of the sender
//	24  8  layout hash of the sender
//	32 16  arena id (welcome only, else 0)
//	48 16  first bytes of the name of the sender's build, padded with zeros
//
// The first two fields are the same in all protocol versions.
const (
	fabricMagic      uint64 = 0x4246_444e_5446_4f53 // "SOFTNDFB", read as little-endian bytes
	fabricProtocol   uint32 = 1
	fabricRecordSize        = 64

	// fabricDescriptors is the number of descriptors with a welcome.
	fabricDescriptors = 2
)

// fabricStatus is the kind of a record.
type fabricStatus uint32

const (
	fabricHello        fabricStatus = 1 + iota // joiner: asks to join
	fabricWelcome                              // member: sends arena and socket
	fabricWrongVersion                         // member: refuses, the releases differ
	fabricWrongUser                            // member: refuses, the users differ
	fabricStatusEnd
)

// fabricRecord is a decoded record.
type fabricRecord struct {
	status  fabricStatus
	version uint32
	user    uint32
	hash    uint64
	id      [2]uint64
	build   [16]byte
}

// newFabricRecord returns a record of this program, run by user, without a status.
func newFabricRecord(user uint32) fabricRecord {
	r := fabricRecord{version: layout.Version, hash: layout.Hash(), user: user}
	copy(r.build[:], goruntime.BuildName())
	return r
}

func (r fabricRecord) encode() []byte {
	b := make([]byte, 0, fabricRecordSize)
	b = binary.LittleEndian.AppendUint64(b, fabricMagic)
	b = binary.LittleEndian.AppendUint32(b, fabricProtocol)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.status))
	b = binary.LittleEndian.AppendUint32(b, r.version)
	b = binary.LittleEndian.AppendUint32(b, r.user)
	b = binary.LittleEndian.AppendUint64(b, r.hash)
	b = binary.LittleEndian.AppendUint64(b, r.id[0])
	b = binary.LittleEndian.AppendUint64(b, r.id[1])
	return append(b, r.build[:]...)
}

// errFabricProtocol: the peer belongs to a fabric, but uses another version of the protocol.
var errFabricProtocol = errors.New("another version of the fabric protocol")

// parseFabric decodes a record. It fails with errFabricProtocol for a record of another protocol
// version, and with errNotFabric for anything else that is not a valid record.
func parseFabric(b []byte) (r fabricRecord, err error) {
	if len(b) < 12 {
		return r, fmt.Errorf("%w: record of %d bytes, want %d", errNotFabric, len(b), fabricRecordSize)
	}
	if magic := binary.LittleEndian.Uint64(b); magic != fabricMagic {
		return r, fmt.Errorf("%w: record with magic %#x", errNotFabric, magic)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != fabricProtocol {
		return r, fmt.Errorf("%w: version %d, this program uses %d", errFabricProtocol, v, fabricProtocol)
	}
	if len(b) != fabricRecordSize {
		return r, fmt.Errorf("%w: record of %d bytes, want %d", errNotFabric, len(b), fabricRecordSize)
	}
	r = fabricRecord{
		status:  fabricStatus(binary.LittleEndian.Uint32(b[12:])),
		version: binary.LittleEndian.Uint32(b[16:]),
		user:    binary.LittleEndian.Uint32(b[20:]),
		hash:    binary.LittleEndian.Uint64(b[24:]),
		id:      [2]uint64{binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])},
	}
	copy(r.build[:], b[48:])
	if r.status == 0 || r.status >= fabricStatusEnd || r.status != fabricWelcome && r.id != [2]uint64{} {
		return fabricRecord{}, fmt.Errorf("%w: invalid record (status %d)", errNotFabric, r.status)
	}
	return r, nil
}

// answer returns the member's reply to the bytes that a joiner of the given user has sent. If ok is
// false, the member closes the connection without a reply.
func (local fabricRecord) answer(b []byte, user uint32) (reply fabricRecord, ok bool) {
	reply = local
	reply.id = [2]uint64{}
	hello, err := parseFabric(b)
	switch {
	case errors.Is(err, errFabricProtocol):
		reply.status = fabricWrongVersion
	case err != nil || hello.status != fabricHello:
		return fabricRecord{}, false
	case user != local.user:
		reply.status = fabricWrongUser
	case hello.version != local.version || hello.hash != local.hash:
		reply.status = fabricWrongVersion
	default:
		reply.status, reply.id = fabricWelcome, local.id
	}
	return reply, true
}

// checkReply checks the reply to a joiner, which came with some descriptors, and returns the arena's
// id. If err is nil, the descriptors are those of the arena and the socket.
func (local fabricRecord) checkReply(b []byte, descriptors int) (id [2]uint64, err error) {
	r, err := parseFabric(b)
	switch {
	case errors.Is(err, errFabricProtocol):
		return id, versionError("the members of the fabric contain", nil, err.Error())
	case err != nil:
		return id, err
	}
	switch r.status {
	case fabricWelcome:
		if descriptors != fabricDescriptors {
			return id, fmt.Errorf("%w: welcome with %d descriptors, want %d", errNotFabric, descriptors, fabricDescriptors)
		}
		return r.id, nil
	case fabricWrongVersion:
		return id, versionError("the members of the fabric contain", r.build[:],
			fmt.Sprintf("their layout has version %d and hash %#x, this program's %d and %#x", r.version, r.hash, local.version, local.hash))
	case fabricWrongUser:
		return id, wrongUser(r.user, local.user)
	}
	return id, fmt.Errorf("%w: reply with status %d", errNotFabric, r.status)
}

func wrongUser(theirs, ours uint32) error {
	return fmt.Errorf("%w: the fabric belongs to user %d, this process runs as user %d", errUser, theirs, ours)
}
