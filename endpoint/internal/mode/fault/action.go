package fault

// TWIN c/src/endpoint/fault.c.

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// disrupt runs an action that does not concern a single request: it ends the process, the connection, or the
// completion queue of requests or receives.
func (h *Hook) disrupt(f faultplan.Fired, op string, ofReceives bool) {
	switch faultplan.Action(f.Action) {
	case faultplan.Drop:
		h.ep.Terminate(h.ep.Error(op, nd.ConnectionAborted, f.String()+" has dropped the connection", next))
	case faultplan.Overrun:
		h.ep.Overrun(ofReceives)
	default:
		signalSelf(f)
	}
}

// signalSelf stops or kills this process, if f asks for it. The signal goes to this thread, so that the
// thread runs no further instruction of the program.
func signalSelf(f faultplan.Fired) {
	var sig unix.Signal
	switch faultplan.Action(f.Action) {
	case faultplan.Stop:
		sig = unix.SIGSTOP
	case faultplan.Kill:
		sig = unix.SIGKILL
	default:
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig) // a process may always signal itself
}

// stageCorrupted copies the data of a Send or Write, with a wrong byte. The request then transfers the
// copy, as a request with Inline does. It reports false if it has rejected r, because a local token does not allow
// the copy.
func (h *Hook) stageCorrupted(r *mode.Request, f *pending) bool {
	data := make([]byte, 0, r.Total)
	f.inline = r.Inline // with its capacity, for the next request
	for _, e := range r.SGEs {
		part := data[len(data):][:e.Length]
		data = data[:len(data)+len(part)]
		r.SetOperand(h.ep.Source, e, window.Read)
		*h.ep.Sink = window.Operand{Mem: part}
		if _, _, fault := h.ep.Guard.Copy(h.ep.Sink, h.ep.Source, uint64(e.Length)); fault != window.NoFault {
			h.ep.RejectLocal(r, e, fault)
			return false
		}
	}
	data[f.Offset] ^= byte(f.Flip) // the rule matches only requests that have this byte
	r.Inline, r.Flags = data, r.Flags|nd.Inline
	r.SGEs = append(r.SGEs[:0], wire.SGE{Length: uint32(len(data))})
	return true
}

// corrupt changes a byte of local memory, if its token still allows that.
func (h *Hook) corrupt(entries []wire.SGE, f *pending) {
	var b [1]byte
	e := wire.SGEAt(entries, f.Offset)
	sink, source := h.ep.Sink, h.ep.Source
	mode.SetLocalOperand(source, e, window.Read)
	*sink = window.Operand{Mem: b[:]}
	if _, _, fault := h.ep.Guard.Copy(sink, source, 1); fault != window.NoFault {
		return
	}
	b[0] ^= byte(f.Flip)
	mode.SetLocalOperand(sink, e, window.Write)
	*source = window.Operand{Mem: b[:]}
	h.ep.Guard.Copy(sink, source, 1)
}
