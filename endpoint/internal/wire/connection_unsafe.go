package wire

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// ConnectionRecord is one connection, or an attempt at one. The active side allocates and frees it.
// Index 0 of each pair belongs to the active side, index 1 to the passive side. Each side writes its
// own elements before the state change that shows them to the other.
type ConnectionRecord struct {
	_            structs.HostLayout
	Link         atomic.Uint64 // used by the inbox
	State        atomic.Uint32 // see ConnState of package cm
	_            uint32
	Disconnected [2]atomic.Uint32        // 1: this side has disconnected gracefully
	Detached     [2]atomic.Uint32        // 0, DetachedQP or DetachedRecord
	Member       [2]uint64               // shm.MemberID
	Adapter      [2]uint64               // see window.Domain
	QP           [2]uint64               // offset of the SharedQP
	Port         [2]uint32               // port number; with ByNumber, the number of an endpoint instead
	ReadIn       [2]uint32               // limit of inbound Reads
	ReadOut      [2]uint32               // limit of outbound Reads
	DataLen      [2]uint32               // length of the private data
	Address      [2]uint32               // address, its first byte in the highest bits; the active side's and the one that it connects to
	Data         [2][MaxPrivateData]byte // private data
}

// Values of ConnectionRecord.Detached.
const (
	DetachedQP     = 1 + iota // this side never accesses the other's SharedQP again
	DetachedRecord            // nor this record; the passive side only
)

// ByNumber is a bit of ConnectionRecord.Port: the sides connect by the numbers of their endpoints, which only the C library has.
const ByNumber = 1 << 31

// MaxPrivateData is the limit of Connect's and of Accept's private data in bytes.
const MaxPrivateData = 512

// ConnectionRecordSize is the size of a ConnectionRecord in bytes.
const ConnectionRecordSize = 120 + 2*MaxPrivateData

func _() { // a constant or index error here means that the shared layout has moved
	var at [1]struct{}
	_ = at[unsafe.Offsetof(ConnectionRecord{}.Data)-120]
	_ = at[unsafe.Sizeof(ConnectionRecord{})-ConnectionRecordSize]
}
