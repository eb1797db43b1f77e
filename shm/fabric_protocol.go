package shm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softnd/softnd/internal/build"
)

// How a process gets into a named fabric. One record goes each way over a
// connection that keeps record boundaries.
//
//	joiner                                     member
//	------                                     ------
//	connects; looks whose socket it is         accepts; looks whose connection it is
//	hello: layout version and hash       -->   compares user, version and hash with its own
//	                                     <--   welcome: arena id, with two descriptors,
//	                                           the arena and the listening socket,
//	                                           or a refusal: what the member speaks
//	attaches, compares the id,
//	and answers the next joiner too
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
//	48 16  start of the name of the sender's build, ended by zeros
//
// The first two fields stay what they are in all protocol versions.
const (
	fabricMagic      uint64 = 0x4246_444e_5446_4f53 // "SOFTNDFB", read as little-endian bytes
	fabricProtocol   uint32 = 1
	fabricRecordSize        = 64

	// fabricDescriptors is how many descriptors a welcome carries.
	fabricDescriptors = 2
)

// fabricStatus is what a record says.
type fabricStatus uint32

const (
	fabricHello        fabricStatus = 1 + iota // joiner: let me in
	fabricWelcome                              // member: here it is
	fabricWrongVersion                         // member: we cannot share an arena
	fabricWrongUser                            // member: this is somebody else's
	fabricStatusEnd
)

// fabricRecord is a record as the program sees it.
type fabricRecord struct {
	status  fabricStatus
	version uint32
	user    uint32
	hash    uint64
	id      [2]uint64
	build   [16]byte
}

// recordOf is a record of this program, run by a user, without a status.
func recordOf(user uint32) fabricRecord {
	r := fabricRecord{version: Version, hash: LayoutHash(), user: user}
	copy(r.build[:], build.Name())
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

// errProtocol: the peer is a fabric's, but speaks another protocol version.
var errProtocol = errors.New("another version of the fabric protocol")

// parseFabric takes a record apart. Anything but a whole, sound record is
// refused with [ErrNotFabric], or with errProtocol if its version is foreign.
func parseFabric(b []byte) (r fabricRecord, err error) {
	if len(b) < 12 {
		return r, fmt.Errorf("%w: %d bytes instead of a record of %d", ErrNotFabric, len(b), fabricRecordSize)
	}
	if magic := binary.LittleEndian.Uint64(b); magic != fabricMagic {
		return r, fmt.Errorf("%w: record with magic %#x", ErrNotFabric, magic)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != fabricProtocol {
		return r, fmt.Errorf("%w: it is %d, this program speaks %d", errProtocol, v, fabricProtocol)
	}
	if len(b) != fabricRecordSize {
		return r, fmt.Errorf("%w: %d bytes instead of a record of %d", ErrNotFabric, len(b), fabricRecordSize)
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
		return fabricRecord{}, fmt.Errorf("%w: a record that no release writes (status %d)", ErrNotFabric, r.status)
	}
	return r, nil
}

// answer is the member's side: what it says to the bytes that a joiner of the
// given user has sent. With false it says nothing and hangs up.
func (own fabricRecord) answer(b []byte, user uint32) (fabricRecord, bool) {
	reply := own
	reply.id = [2]uint64{}
	hello, err := parseFabric(b)
	switch {
	case errors.Is(err, errProtocol):
		reply.status = fabricWrongVersion
	case err != nil || hello.status != fabricHello:
		return fabricRecord{}, false
	case user != own.user:
		reply.status = fabricWrongUser
	case hello.version != own.version || hello.hash != own.hash:
		reply.status = fabricWrongVersion
	default:
		reply.status, reply.id = fabricWelcome, own.id
	}
	return reply, true
}

// verdict is the joiner's side: what to make of a reply that came with some
// descriptors. nil means that the arena is in them.
func (own fabricRecord) verdict(b []byte, descriptors int) (id [2]uint64, err error) {
	r, err := parseFabric(b)
	switch {
	case errors.Is(err, errProtocol):
		return id, otherVersion("the members of the fabric contain", nil, err.Error())
	case err != nil:
		return id, err
	}
	switch r.status {
	case fabricWelcome:
		if descriptors != fabricDescriptors {
			return id, fmt.Errorf("%w: a welcome with %d descriptors, want %d", ErrNotFabric, descriptors, fabricDescriptors)
		}
		return r.id, nil
	case fabricWrongVersion:
		return id, otherVersion("the members of the fabric contain", r.build[:],
			fmt.Sprintf("their layout is of version %d with hash %#x, this program's of %d with %#x", r.version, r.hash, own.version, own.hash))
	case fabricWrongUser:
		return id, wrongUser(r.user, own.user)
	}
	return id, fmt.Errorf("%w: a reply with status %d", ErrNotFabric, r.status)
}

func wrongUser(theirs, ours uint32) error {
	return fmt.Errorf("%w: it belongs to user %d, this process runs as user %d", ErrUser, theirs, ours)
}
