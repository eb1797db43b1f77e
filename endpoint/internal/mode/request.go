package mode

import (
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// Request is the part of a request of the initiator queue that a hook can see.
type Request struct {
	Number uint64 // in the order of posting

	Kind  nd.RequestType
	Flags nd.OpFlags
	SGEs  []wire.SGE // the capacity is allocated once
	Total uint64     // bytes

	Inline []byte // data of a request with nd.Inline; the capacity is allocated once

	RemoteAddress uint64
	RemoteToken   nd.Token              // remote token, or the token to invalidate at the peer
	Invalidate    bool                  // SendAndInvalidate
	Object        *window.Invalidatable // window or region to bind, register or invalidate

	PostedAfterEnd  bool             // posted when the connection had ended: it can only be canceled
	ResponderCopies bool             // the peer copies the data: the request goes through the ring
	Transferred     uint64           // bytes copied or, through the ring, sent in fragments
	LocalBindCheck  window.BindCheck // bind of the local token that is in use
	EndEntry        uint64           // number after its last ring entry; 0 = none

	State  State
	Status nd.Status // final when the request is Finished

	InOrder      bool // a hook forbids that the request is set aside
	HasImmediate bool
	Immediate    uint32
	Hashed       bool   // its ring entries have wire.FlagHashed and Hash, and the peer confirms it
	Hash         uint64 // the word of its ring entries, see wire.Entry.Hash
}

// FitsEntry reports whether the data fits a ring entry of a kind.
func (r *Request) FitsEntry(k wire.Kind) bool { return r.Total <= wire.Room(k, r.DataFlags()) }

// IsAtomic reports whether the request is an atomic.
func (r *Request) IsAtomic() bool {
	return r.Kind >= nd.RequestFetchAndAdd && r.Kind <= nd.RequestSwap
}

// DataFlags returns the flags of its ring entries that mean further words.
func (r *Request) DataFlags() (flags uint8) {
	if r.Hashed {
		flags |= wire.FlagHashed
	}
	if r.HasImmediate {
		flags |= wire.FlagImmediate
	}
	return flags
}

// State says how far a request is. It goes down this list, and leaves out what does not apply. Only a Read with
// ReadLocalInvalidate goes from Finished to Draining, to invalidate its sink, and is Finished once more.
type State uint8

const (
	Waiting  State = iota // it has not run, or in part
	SetAside              // the same, and later requests may run before it
	Sent                  // it has run, and the peer must confirm it
	Draining              // an Invalidate has revoked its tokens, and waits for the end of accesses with them
	Finished              // Status is final; the result follows those of the requests before it
)

// Finish sets the final status.
func (r *Request) Finish(s nd.Status) { r.State, r.Status = Finished, s }

// OpName returns the name of the request in errors.
func (r *Request) OpName() string {
	switch r.Kind {
	case nd.RequestSend:
		if r.Invalidate {
			return "send and invalidate"
		}
		if r.HasImmediate {
			return "send immediate"
		}
		return "send"
	case nd.RequestWrite:
		if r.HasImmediate {
			return "write immediate"
		}
		return "write"
	case nd.RequestFetchAndAdd:
		return "fetch and add"
	case nd.RequestCompareAndSwap:
		return "compare and swap"
	case nd.RequestSwap:
		return "swap"
	case nd.RequestRead:
		return "read"
	case nd.RequestBind:
		return "bind"
	case nd.RequestInvalidate:
		return "invalidate"
	case nd.RequestFastRegister:
		return "fast register"
	}
	return r.Kind.String()
}

// SetOperand makes operand name e, which is an entry of r or a part of one.
func (r *Request) SetOperand(operand *window.Operand, e wire.SGE, rights window.Rights) {
	if r.Flags.Has(nd.Inline) {
		*operand = window.Operand{Mem: r.Inline[e.Address:][:e.Length]}
		return
	}
	SetLocalOperand(operand, e, rights)
	operand.BindCheck = &r.LocalBindCheck
}

// SetLocalOperand makes operand name memory of this process with the local token of e.
func SetLocalOperand(operand *window.Operand, e wire.SGE, rights window.Rights) {
	*operand = window.Operand{Token: e.Token, Rights: window.Local | rights, Address: e.Address}
}

// Advance makes o name the memory n bytes after its own.
func Advance(o *window.Operand, n uint64) {
	if o.Mem != nil {
		o.Mem = o.Mem[n:]
	} else {
		o.Address += n
	}
}
